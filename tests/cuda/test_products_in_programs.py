"""Products of programs on an emulated GPU: as on the CPU, and which are steps."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import dtypes
from tests.cuda.products import random_numbers

pytestmark = pytest.mark.cuda


def arrays(rng, dtype, *shapes):
    sizes = [int(np.prod(shape)) for shape in shapes]
    return [
        random_numbers(np.dtype(dtype), size, rng).reshape(shape)
        for size, shape in zip(sizes, shapes, strict=True)
    ]


def same(function, gpu, *inputs, rtol=1e-5):
    """Both devices give the same, up to the order of sums."""
    run = fnx.jit(function)
    want = fnx.tree.leaves(run(*inputs))
    got = fnx.tree.leaves(run(*[fnx.device_put(x, gpu) for x in inputs]))
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        a, b = np.asarray(a), np.asarray(b)
        if dtypes.is_inexact(b.dtype):
            wide = np.complex128 if dtypes.is_complex(b.dtype) else np.float64
            a, b = a.astype(wide), b.astype(wide)
            assert np.abs(a - b).max() <= rtol * np.abs(b).max()
        else:
            np.testing.assert_array_equal(a, b)


def matmuls(function, *inputs):
    """The products of a program's plan for a GPU, as the dtypes of operands and out."""
    backend = fnx.runtime.backend.device_backend("cuda")
    program = fnx.make_jaxpr(function)(*inputs)
    plan = fnx.compiler.pipeline.plan_program(program, backend.target)
    steps = fnx.runtime.plan.all_steps(plan)
    products = [s for s in steps if isinstance(s, fnx.runtime.plan.MatmulStep)]
    return [(str(step.dtype), str(step.out_dtype)) for step in products]


@pytest.mark.parametrize("dtype", dtypes.SUPPORTED, ids=dtypes.short)
def test_products_of_every_dtype(dtype, gpu, rng):
    x, y = arrays(rng, dtype, (33, 40), (40, 20))
    rounding = {dtypes.float16: 1e-3, dtypes.bfloat16: 1e-2}.get(dtype, 1e-5)
    same(fnx.lax.dot, gpu, x, y, rtol=rounding)
    assert matmuls(fnx.lax.dot, x, y) == [(str(dtype), str(dtype))]


@pytest.mark.parametrize("dtype", [np.float16, "bfloat16"])
def test_gradients_of_16_bit_layers(dtype, gpu, rng):
    def loss(w, v, x):
        return fnp.sum(fnp.tanh(x @ w) @ v).astype(fnp.float32)

    w, v, x = arrays(rng, dtypes.same(np.dtype(dtype)), (40, 24), (24, 17), (33, 40))
    same(fnx.grad(loss, argnums=(0, 1, 2)), gpu, w, v, x, rtol=0.02)
    # One of the three gradients is of the second layer alone.
    assert len(matmuls(fnx.grad(loss, argnums=(0, 1, 2)), w, v, x)) >= 3


def test_results_wider_than_operands(gpu, rng):
    def wide(a, b):
        return fnx.lax.dot(a, b, preferred_element_type=fnp.float32)

    x, y = arrays(rng, dtypes.float16, (33, 40), (40, 20))
    same(wide, gpu, x, y)
    assert matmuls(wide, x, y) == [("float16", "float32")]
    x, y = arrays(rng, dtypes.float32, (33, 40), (40, 20))

    def wider(a, b):
        return fnx.lax.dot(a, b, preferred_element_type=fnp.float64)

    same(wider, gpu, x, y)
    assert matmuls(wider, x, y) == []


def test_stacks_and_contractions(gpu, rng):
    x, y = arrays(rng, np.float16, (3, 20, 2, 16), (3, 24, 2, 16))
    scores = "bqhd,bkhd->bhqk"
    same(lambda a, b: fnp.einsum(scores, a, b), gpu, x, y, rtol=1e-3)
    same(fnx.vmap(lambda a, b: a[:, 0] @ b[:, 1].T), gpu, x, y, rtol=1e-3)


def test_vectors(gpu, rng):
    matrix, vector = arrays(rng, np.float32, (300, 300), (300,))
    for function in (
        lambda a, v: a @ v,
        lambda a, v: v @ a,
        lambda a, v: fnp.tanh(a.T @ v) + 1,
    ):
        same(function, gpu, matrix, vector, rtol=1e-4)
        assert matmuls(function, matrix, vector) == [("float32", "float32")]
    same(lambda a, v: v @ v, gpu, matrix, vector, rtol=1e-4)
    assert matmuls(lambda a, v: v @ v, matrix, vector) == []
