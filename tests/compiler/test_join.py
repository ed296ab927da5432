"""fnx/compiler/join.py: sums over stacks of products, and over sums."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.compiler.join import joined
from fnx.core.simplify import simplify


def normal(*shape, dtype="float64", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def equations(function, *args):
    """The names of what is left of a function, and its sizes."""
    program = joined(simplify(fnx.make_jaxpr(function)(*args)))
    return [(eqn.primitive.name, eqn.outputs[0].type.shape) for eqn in program.eqns]


def product(x, y, contract, batch):
    return lax.dot_general(x, y, (contract, batch))


# name: contract, batch, summed axes of the output, shapes, whether one product does it
STACKS = {
    "the whole stack": (((1,), (1,)), ((0,), (0,)), (0,), (5, 7, 3), (5, 7, 4), True),
    "one of two axes": (
        ((2,), (2,)), ((0, 1), (0, 1)), (1,), (2, 5, 7, 3), (2, 5, 7, 4), True,
    ),
    "both axes": (
        ((2,), (2,)), ((0, 1), (0, 1)), (0, 1), (2, 5, 7, 3), (2, 5, 7, 4), True,
    ),
    "of size 1": (((1,), (1,)), ((0,), (0,)), (0,), (1, 7, 3), (1, 7, 4), True),
    "empty": (((1,), (1,)), ((0,), (0,)), (0,), (0, 7, 3), (0, 7, 4), True),
    "outer one of two": (
        ((2,), (2,)), ((0, 1), (0, 1)), (0,), (2, 5, 7, 3), (2, 5, 7, 4), False,
    ),
    "apart in x": (((2,), (1,)), ((0,), (0,)), (0,), (5, 3, 7), (5, 7, 4), False),
    "rows, too": (((1,), (1,)), ((0,), (0,)), (0, 1), (5, 7, 3), (5, 7, 4), False),
}  # fmt: skip


@pytest.mark.parametrize("name", STACKS)
def test_a_sum_over_a_stack_is_one_product(name):
    contract, batch, axes, x_shape, y_shape, is_one = STACKS[name]
    x, y = normal(*x_shape), normal(*y_shape, seed=1)

    def function(x, y):
        return product(x, y, contract, batch).sum(axes)

    names = [found for found, _ in equations(function, x, y)]
    assert ("reduce_sum" not in names) == is_one
    ((x_in,), (y_in,)), (x_stack, y_stack) = contract, batch
    letters = "abcdef"
    x_axes = [letters[d] for d in range(x.ndim)]
    y_axes = [letters[d].upper() for d in range(y.ndim)]
    for one, other in [(x_in, y_in), *zip(x_stack, y_stack, strict=True)]:
        y_axes[other] = x_axes[one]
    out = [x_axes[d] for d in x_stack]
    out += [a for d, a in enumerate(x_axes) if d not in (x_in, *x_stack)]
    out += [a for d, a in enumerate(y_axes) if d not in (y_in, *y_stack)]
    left = [a for d, a in enumerate(out) if d not in axes]
    want = np.einsum(f"{''.join(x_axes)},{''.join(y_axes)}->{''.join(left)}", x, y)
    np.testing.assert_allclose(fnx.jit(function)(x, y), want, 1e-12, 1e-12)


# name: the shapes of x and y, of which axis 0 is the stack, and whether one product
# does it
SIZES = {
    "long and narrow": ((1000, 64, 4), (1000, 64, 4), False),
    "a vector": ((90, 64, 1), (90, 64, 63), False),
    "short": ((1000, 8, 32), (1000, 8, 32), True),
    "wide enough to be cut": ((1000, 64, 4), (1000, 64, 64), True),
    "soon done": ((8, 64, 16), (8, 64, 16), True),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_stack_stays_where_threads_share_it(name):
    x_shape, y_shape, is_one = SIZES[name]
    x, y = normal(*x_shape), normal(*y_shape, seed=1)

    def function(x, y):
        return product(x, y, ((1,), (1,)), ((0,), (0,))).sum(0)

    names = [found for found, _ in equations(function, x, y)]
    assert ("reduce_sum" not in names) == is_one
    want = np.tensordot(x, y, ((0, 1), (0, 1)))
    np.testing.assert_allclose(fnx.jit(function)(x, y), want, 1e-11, 1e-11)

    # Where many sums are kept, threads share these.
    def many(x, y):
        return product(x, y, ((2,), (2,)), ((0, 1), (0, 1))).sum(1)

    several = [np.broadcast_to(a, (64, *a.shape)) for a in (x[:8], y[:8])]
    names = [found for found, _ in equations(many, *several)]
    assert "reduce_sum" not in names


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "complex64"])
def test_dtypes(dtype):
    x = (10 * normal(6, 20, 3)).astype(dtype)
    y = (10 * normal(6, 20, 4, seed=1)).astype(dtype)

    def function(x, y):
        return product(x, y, ((1,), (1,)), ((0,), (0,))).sum(0, dtype=x.dtype)

    got = np.asarray(fnx.jit(function)(x, y))
    assert got.dtype == dtype
    if dtype == "int8":
        want = np.einsum("bki,bkj->ij", x.astype(int), y.astype(int)).astype(dtype)
        np.testing.assert_array_equal(got, want)
    else:
        wide = np.complex128 if dtype == "complex64" else np.float64
        want = np.einsum("bki,bkj->ij", x.astype(wide), y.astype(wide))
        error = 2e-3 if dtype == "float16" else 1e-6
        np.testing.assert_allclose(got.astype(wide), want, error, error * 1e3)


def test_what_is_read_again_stays():
    x, y = normal(5, 7, 3), normal(5, 7, 4)

    def function(x, y):
        each = product(x, y, ((1,), (1,)), ((0,), (0,)))
        return each, each.sum(0)

    assert [name for name, _ in equations(function, x, y)].count("dot_general") == 1
    each, total = fnx.jit(function)(x, y)
    np.testing.assert_allclose(each.sum(0), total, 1e-12, 1e-12)


def test_sums_of_sums():
    """Over any axes of what the first one left, once; in the order that is there."""
    x = normal(2, 3, 4, 5)
    for first in [(0,), (1,), (3,), (0, 2), (1, 3)]:
        for second in range(4 - len(first)):

            def function(x, first=first, second=second):
                return lax.reduce_sum(lax.reduce_sum(x, first), (second,))

            assert len(equations(function, x)) == 1
            want = x.sum(first).sum(second)
            np.testing.assert_allclose(fnx.jit(function)(x), want, 1e-12, 1e-12)


def test_gradients_of_examples_are_never_stored():
    """The sum of `vmap` of a gradient takes no more memory than one gradient."""
    w, x = normal(30, 40, dtype="float32"), normal(500, 8, 30, dtype="float32")

    def loss(w, x):
        return fnp.tanh(x @ w).sum()

    def function(w, x):
        return fnx.vmap(fnx.grad(loss), (None, 0))(w, x).sum(0)

    compiled = fnx.jit(function).lower(w, x).compile()
    each = 4 * 500 * 30 * 40
    assert compiled.memory_analysis().temp_size_in_bytes < each
    x64 = x.astype(float)
    slope = 1 - np.tanh(x64 @ w.astype(float)) ** 2
    want = np.einsum("bki,bkj->ij", x64, slope)
    np.testing.assert_allclose(compiled(w, x), want, 1e-4, 1e-3)
