"""Which kernels behind a product are epilogues of cuBLASLt, and which are not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import nn
from fnx.compiler import reading
from fnx.compiler.pipeline import plan_program
from fnx.runtime.plan import FollowedStep, MatmulStep
from fnx_cuda.backend import BACKEND
from fnx_cuda.blaslt_api import Epilogue

pytestmark = pytest.mark.cuda
named = pytest.mark.parametrize

SIXTEEN = [np.float16, ml_dtypes.bfloat16]
BOTH = [np.float32, *SIXTEEN]
M, N, K = 40, 48, 36


def steps(function, *shapes, dtype=np.float32):
    given = [fnx.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    program = fnx.jit(function).trace(*given).jaxpr
    return plan_program(program, BACKEND.target).steps


def epilogues(function, *shapes, dtype=np.float32):
    found = []
    for step in steps(function, *shapes, dtype=dtype):
        if isinstance(step, FollowedStep):
            assert step.out.role in ("output", "arena")
            found.append(step.epilogue)
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


# ---------------------------------------------------------------- gradients


def gradient(activation):
    """The gradients of two layers by the weights and biases of both."""

    def loss(given, x):
        w, b, v, c = given
        return fnp.sum((activation(x @ w + b) @ v + c) ** 2)

    return lambda w, b, v, c, x: fnx.grad(loss)((w, b, v, c), x)


TWO = (K, N), (N,), (N, 2 * K), (2 * K,), (M, K)


@named("dtype", BOTH)
def test_the_gradient_of_a_layer(dtype):
    found = epilogues(gradient(nn.relu), *TWO, dtype=dtype)
    wanted = [Epilogue.RELU_AUX_BIAS, Epilogue.BGRADA, Epilogue.DRELU_BGRAD]
    assert found == wanted


@named("dtype", SIXTEEN)
def test_gelu_keeps_the_values_before_it(dtype):
    found = epilogues(gradient(nn.gelu), *TWO, dtype=dtype)
    assert found == [Epilogue.GELU_AUX_BIAS, Epilogue.BGRADA, Epilogue.BGRADA]
    bare = lambda w, v, x: fnx.grad(  # noqa: E731
        lambda w, v: fnp.sum((nn.gelu(x @ w) @ v) ** 2), argnums=(0, 1)
    )(w, v)
    found = epilogues(bare, (K, N), (N, 2 * K), (M, K), dtype=dtype)
    assert found == [Epilogue.GELU_AUX]


def test_what_keeps_no_values_before_gelu():
    # Rows of values must be a multiple of 8 long, and float32 has no GELU of theirs.
    odd = (K, 45), (45,), (45, 2 * K), (2 * K,), (M, K)
    for shapes, dtype in ((odd, np.float16), (TWO, np.float32)):
        found = epilogues(gradient(nn.gelu), *shapes, dtype=dtype)
        assert Epilogue.GELU_AUX_BIAS not in found
    found = epilogues(gradient(lambda x: nn.gelu(x, False)), *TWO, dtype=np.float16)
    assert Epilogue.GELU_AUX_BIAS not in found


def test_values_before_gelu_that_are_needed_outside():
    def both(x, w, b):
        h = x @ w + b
        return h, nn.gelu(h)

    assert epilogues(both, *USUAL, dtype=np.float16) == [Epilogue.GELU_AUX_BIAS]

    def besides(x, w, b):
        h = x @ w + b
        return nn.gelu(h), h * h

    # Another kernel computes the square, of what is kept.
    assert epilogues(besides, *USUAL, dtype=np.float16) == [Epilogue.GELU_AUX_BIAS]

    def product(x, w, b):
        return x @ w, nn.gelu(x @ w + b)

    # The library would not write the product without the bias.
    assert epilogues(product, *USUAL, dtype=np.float16) == []


def test_sums_are_apart_from_what_optimizers_make_of_them(monkeypatch):
    """So that they are the product's; of small arrays they are a part of kernels."""

    def step(*arrays):
        made = zip(arrays, gradient(nn.relu)(*arrays), strict=False)
        return [one - 0.1 * slope for one, slope in made]

    assert epilogues(step, *TWO) == [Epilogue.RELU_AUX_BIAS, Epilogue.DRELU]
    monkeypatch.setattr(reading, "LEAST_ROWS", M * N)
    found = epilogues(step, *TWO)
    assert found == [Epilogue.RELU_AUX_BIAS, Epilogue.BGRADA, Epilogue.DRELU_BGRAD]


def test_a_product_is_not_kept_beside_its_mask():
    plan = plan_program(
        fnx.jit(gradient(nn.relu))
        .trace(*[fnx.ShapeDtypeStruct(shape, np.float32) for shape in TWO])
        .jaxpr,
        BACKEND.target,
    )
    first, down = [s for s in plan.steps if getattr(s, "aux", None)]
    assert first.aux == down.aux
    later = plan.steps[plan.steps.index(first) + 1 :]
    read = {p for s in later for p in getattr(s, "buffers", ())}
    assert first.product.out not in read - {first.aux}


def test_sums_of_the_rows_of_either_operand():
    def function(x, s):
        return x.T @ s, s.sum(0)

    def turned(x, s):
        return s.T @ x, s.sum(0)

    assert epilogues(function, (M, K), (M, N)) == [Epilogue.BGRADA]
    assert epilogues(turned, (M, K), (M, N)) == [Epilogue.BGRADB]
    assert epilogues(turned, (M, K), (M, N), dtype=np.float16) == [Epilogue.BGRADB]
    # As many rows as axes before the last one have, and sums that are split.
    shapes = (4096, 72), (4096, 96)
    assert epilogues(function, *shapes) == [Epilogue.BGRADA]


@named(
    "function",
    [
        lambda x, s: (x.T @ s, s.sum(1)),
        lambda x, s: (x.T @ s, s.max(0)),
        lambda x, s: (x.T @ s, (2 * s).sum(0)),
        lambda x, s: (x @ s[:K, :], s.sum(0)),
        lambda x, s: (x.T @ s[:, ::-1], s.sum(0)),
        lambda x, s: (x.T @ (s + s.sum(0)), s.sum(0)),
    ],
)
def test_what_is_no_sum_of_an_operand(function):
    assert epilogues(function, (M, K), (M, N)) == []


def test_sums_of_rounded_operands_are_none():
    def function(x, s):
        return fnp.matmul(x.T, s, precision="default"), s.sum(0)

    assert epilogues(function, (M, K), (M, N)) == []


@named(
    "function",
    [
        # The sum with the bias, or its derivative, is needed besides.
        lambda w, b, x, g: (lambda h: (nn.relu(h), h))(x @ w + b),
        lambda w, b, x, g: (nn.relu(x @ w + b), x @ w),
        # Another mask than that of the layer.
        lambda w, b, x, g: (
            nn.relu(x @ w + b),
            fnp.where(x @ w + b <= 0, 0, g @ w) + 1,
        ),
        lambda w, b, x, g: (nn.relu(x @ w + b), fnp.where(x @ w - b <= 0, 0, g @ w)),
        lambda w, b, x, g: (nn.relu(x @ w + b), fnp.where(x @ w + b < 0, 0, g @ w)),
        lambda w, b, x, g: (nn.relu(x @ w + b), fnp.where(x @ w + b <= 0, g @ w, 0)),
    ],
)
def test_what_keeps_no_mask(function):
    found = epilogues(function, (K, N), (N,), (M, K), (M, K))
    assert Epilogue.RELU_AUX_BIAS not in found


def test_a_mask_by_hand_is_one():
    def function(w, b, x, g):
        h = x @ w + b
        return nn.relu(h), fnp.where(h <= 0, 0, g @ w)

    found = epilogues(function, (K, N), (N,), (M, K), (M, K))
    assert found == [Epilogue.RELU_AUX_BIAS, Epilogue.DRELU]


def test_the_output_lies_apart_from_the_operands():
    def function(x, w, b, v, c):
        y = nn.relu(x @ w + b)
        return nn.relu(y @ v + c) @ w

    for step in steps(function, *USUAL, (N, K), (K,)):
        if isinstance(step, FollowedStep):
            product, (kernel,) = step.product, step.kernels
            out = [
                place
                for place, buffer in zip(
                    kernel.buffers, kernel.kernel.buffers, strict=True
                )
                if buffer.role == "out"
            ]
            assert not {product.x, product.y, product.out} & set(out)
