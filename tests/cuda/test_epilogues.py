"""Which kernels behind a product are epilogues of cuBLASLt, and which are not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import nn
from fnx.compiler.pipeline import plan_program
from fnx.kernel.grid import grid_schedule
from fnx.runtime.plan import FollowedStep, MatmulStep
from fnx_cuda.blaslt_api import Epilogue
from fnx_cuda.blaslt_epilogue import follower
from fnx_cuda.convolution import PRODUCTS

pytestmark = pytest.mark.cuda
named = pytest.mark.parametrize

SIXTEEN = [np.float16, ml_dtypes.bfloat16]
BOTH = [np.float32, *SIXTEEN]
M, N, K = 40, 48, 36


def steps(function, *shapes, dtype=np.float32):
    given = [fnx.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    program = fnx.jit(function).trace(*given).jaxpr
    return plan_program(program, grid_schedule, PRODUCTS).steps


def epilogues(function, *shapes, dtype=np.float32):
    found = []
    for step in steps(function, *shapes, dtype=dtype):
        if isinstance(step, FollowedStep):
            product, kernel = step.product, step.kernel
            number = kernel.buffers.index(product.out)
            made = follower(product, kernel.kernel, number)
            assert kernel.buffers[made.out].role in ("output", "arena")
            found.append(made.epilogue)
    return found


USUAL = (M, K), (K, N), (N,)


@named("dtype", BOTH)
@named(
    "function, epilogue",
    [
        (lambda x, w, b: x @ w + b, Epilogue.BIAS),
        (lambda x, w, b: b + x @ w, Epilogue.BIAS),
        (lambda x, w, b: nn.relu(x @ w + b), Epilogue.RELU_BIAS),
        (lambda x, w, b: fnp.maximum(0, b + x @ w), Epilogue.RELU_BIAS),
    ],
)
def test_bias_and_relu(function, epilogue, dtype):
    assert epilogues(function, *USUAL, dtype=dtype) == [epilogue]


@named("dtype", SIXTEEN)
def test_gelu_of_16_bits(dtype):
    found = epilogues(lambda x, w, b: nn.gelu(x @ w + b), *USUAL, dtype=dtype)
    assert found == [Epilogue.GELU_BIAS]
    found = epilogues(lambda x, w: nn.gelu(x @ w), *USUAL[:2], dtype=dtype)
    assert found == [Epilogue.GELU]


def test_rows_in_several_axes():
    def function(x, w, b):
        return nn.relu(x @ w + b)

    assert epilogues(function, (3, 16, K), (K, N), (N,)) == [Epilogue.RELU_BIAS]


def test_a_layer_behind_a_layer():
    def function(x, w, b, v, c):
        return nn.relu(x @ w + b) @ v + c

    found = epilogues(function, *USUAL, (N, K), (K,))
    assert found == [Epilogue.RELU_BIAS, Epilogue.BIAS]


@named(
    "function",
    [
        # In float32 the tail of the library's GELU has fewer digits than ours.
        lambda x, w, b: nn.gelu(x @ w + b),
        lambda x, w, b: nn.gelu(x @ w + b, approximate=False),
        # Whether ReLU keeps NaN can be tried with a bias only.
        lambda x, w, b: nn.relu(x @ w),
        lambda x, w, b: nn.leaky_relu(x @ w + b),
        lambda x, w, b: nn.relu6(x @ w + b),
        lambda x, w, b: fnp.minimum(x @ w + b, 0),
        lambda x, w, b: fnp.maximum(x @ w + b, 1),
        lambda x, w, b: x @ w - b,
        lambda x, w, b: (x @ w + b) * 2,
        lambda x, w, b: x @ w + b[::-1],
        lambda x, w, b: x @ w + b[0],
        lambda x, w, b: (x @ w + b).T,
        lambda x, w, b: x @ w + b.sum(),
        # The product is needed besides.
        lambda x, w, b: (x @ w + b, x @ w),
        # Products that only move memory.
        lambda x, w, b: x[:2] @ w + b,
    ],
)
def test_what_is_no_epilogue(function):
    assert epilogues(function, *USUAL) == []


def test_a_bias_for_each_row_is_none():
    assert epilogues(lambda x, w, c: x @ w + c, (N, K), (K, N), (N, 1)) == []
    assert epilogues(lambda x, w, c: x @ w + c, (N, K), (K, N), (N,)) != []


def test_a_whole_matrix_is_no_bias():
    assert epilogues(lambda x, w, c: x @ w + c, (M, K), (K, N), (M, N)) == []


def test_results_of_other_dtypes_are_none():
    def function(x, w, b):
        return (x @ w + b).astype(np.float64)

    assert epilogues(function, *USUAL) == []


def test_products_that_gradients_read_again_stay():
    def loss(w, b, x):
        return fnp.sum(nn.relu(x @ w + b) ** 2)

    found = steps(fnx.grad(loss), (K, N), (N,), (M, K))
    assert [step for step in found if isinstance(step, MatmulStep)]


def test_the_output_lies_apart_from_the_operands():
    def function(x, w, b, v, c):
        y = nn.relu(x @ w + b)
        return nn.relu(y @ v + c) @ w

    for step in steps(function, *USUAL, (N, K), (K,)):
        if isinstance(step, FollowedStep):
            product, kernel = step.product, step.kernel
            out = [
                place
                for place, buffer in zip(
                    kernel.buffers, kernel.kernel.buffers, strict=True
                )
                if buffer.role == "out"
            ]
            assert not {product.x, product.y, product.out} & set(out)
