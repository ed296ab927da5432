"""The transformations composed with each other, on random programs.

Compiled equals eager equals reference; batched equals a loop; derivatives agree with
differences, with each other and with their batched and compiled selves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
from fnx import dtypes
from fnx.core.reference import run_reference
from tests.programs import SIZES, Recipe, recipes

# How far two evaluations of a program may be apart, in units of the dtype's precision
# and relative to the largest element: the programs have up to seven operations, whose
# bounded slopes multiply the differences of a few last places each.
SLACK = 400


def tolerance(dtype: np.dtype[Any]) -> float:
    """The largest allowed difference relative to the largest element."""
    bits = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[dtype.name]
    return SLACK * 2.0**-bits


def assert_close(found: Any, wanted: Any) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if not dtypes.is_inexact(found.dtype):
        np.testing.assert_array_equal(found, wanted)
        return
    x, y = found.astype("f8"), wanted.astype("f8")
    assert np.array_equal(np.isnan(x), np.isnan(y))
    size = np.nanmax(np.abs(y), initial=1.0)
    assert np.nanmax(np.abs(x - y), initial=0.0) <= tolerance(found.dtype) * size


def assert_same_bits(found: Any, wanted: Any) -> None:
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


# 8 parts of 300 programs: 2 400 in one run of the suite, spread over its workers.
@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "bf16"])
def test_jit_equals_eager_equals_reference(dtype: str, part: int) -> None:
    @settings(max_examples=300)
    @given(st.just(part).flatmap(lambda _: recipes(dtype, most=5 + 2 * part)))
    def run(recipe: Recipe) -> None:
        inputs = [fnx.numpy.asarray(x) for x in recipe.inputs()]
        eager = recipe.function(*inputs)
        compiled = fnx.jit(recipe.function)(*inputs)
        program = fnx.make_jaxpr(recipe.function)(*inputs)
        reference = run_reference(program, [np.asarray(x) for x in inputs])
        rows = zip(eager, compiled, reference, recipe.exactness(), strict=True)
        for a, b, c, exact in rows:
            assert_same_bits(a, c)
            (assert_same_bits if exact else assert_close)(b, a)

    run()


# Each part draws other programs; inputs lie in memory with gaps.
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("dtype", ["f4", "f8", "bf16"])
def test_jit_equals_eager_at_every_size(dtype: str, part: int) -> None:
    @settings(max_examples=60)
    @given(recipes(dtype, most=4 + part, shapes=SIZES))
    def run(recipe: Recipe) -> None:
        gapped = [np.repeat(x[..., None], 2, axis=-1)[..., 0] for x in recipe.inputs()]
        eager = recipe.function(*map(fnx.numpy.asarray, gapped))
        compiled = fnx.jit(recipe.function)(*gapped)
        for a, b, exact in zip(eager, compiled, recipe.exactness(), strict=True):
            (assert_same_bits if exact else assert_close)(b, a)

    run()


@settings(max_examples=150)
@given(recipes("f8"))
def test_vmap_equals_a_loop(recipe: Recipe) -> None:
    inputs = [np.stack([x, x * 0.5, -x]) for x in recipe.inputs()]
    batched = fnx.vmap(recipe.function)(*inputs)
    rows = [
        recipe.function(*[fnx.numpy.asarray(x[i]) for x in inputs]) for i in range(3)
    ]
    for found, *wanted in zip(batched, *rows, strict=True):
        assert_close(found, np.stack([np.asarray(w) for w in wanted]))


def total(recipe: Recipe) -> Any:
    """The recipe as a scalar function: a weighted sum of its outputs."""

    def run(*inputs: Any) -> Any:
        outputs = recipe.function(*inputs)
        return sum((n + 1.0) * fnx.numpy.sum(x * x) for n, x in enumerate(outputs))

    return run


@settings(max_examples=150)
@given(recipes("f8"))
def test_grad_equals_differences(recipe: Recipe) -> None:
    if recipe.kinked:
        return
    function, inputs = total(recipe), recipe.inputs()
    rng = np.random.default_rng(recipe.seed)
    direction = [rng.standard_normal(x.shape) for x in inputs]
    gradient = fnx.grad(function, argnums=tuple(range(len(inputs))))(*inputs)
    slope = sum(
        np.sum(np.asarray(g) * d) for g, d in zip(gradient, direction, strict=True)
    )
    h = 1e-6

    def at(step: float) -> float:
        moved = [x + step * d for x, d in zip(inputs, direction, strict=True)]
        return float(function(*[fnx.numpy.asarray(x) for x in moved]))

    difference = (at(h) - at(-h)) / (2 * h)
    assert abs(slope - difference) <= 1e-4 * max(1.0, abs(at(0.0)), abs(difference))


@settings(max_examples=100)
@given(recipes("f8"))
def test_forward_equals_reverse(recipe: Recipe) -> None:
    """<J t, ct> = <t, Jᵀ ct>, kinks included."""
    inputs = [fnx.numpy.asarray(x) for x in recipe.inputs()]
    rng = np.random.default_rng(recipe.seed)
    tangents = [fnx.numpy.asarray(rng.standard_normal(x.shape)) for x in inputs]
    outputs, moved = fnx.jvp(lambda *xs: tuple(recipe.function(*xs)), inputs, tangents)
    cts = tuple(fnx.numpy.asarray(rng.standard_normal(x.shape)) for x in outputs)
    _, pull = fnx.vjp(lambda *xs: tuple(recipe.function(*xs)), *inputs)
    left = sum(
        np.sum(np.asarray(m) * np.asarray(c)) for m, c in zip(moved, cts, strict=True)
    )
    pairs = zip(tangents, pull(cts), strict=True)
    right = sum(np.sum(np.asarray(t) * np.asarray(c)) for t, c in pairs)
    assert abs(left - right) <= 1e-9 * max(1.0, abs(left))


@settings(max_examples=80)
@given(recipes("f8", most=5))
def test_jit_vmap_and_grad_commute(recipe: Recipe) -> None:
    function = total(recipe)
    every = tuple(range(len(recipe.shapes)))
    inputs = recipe.inputs()
    stacked = [np.stack([x, -x]) for x in inputs]
    gradient = fnx.grad(function, argnums=every)
    eager = gradient(*inputs)
    compiled = fnx.jit(gradient)(*inputs)
    inner = fnx.grad(fnx.jit(function), argnums=every)(*inputs)
    per_row = fnx.vmap(gradient)(*stacked)
    of_sum = fnx.grad(
        lambda *xs: fnx.numpy.sum(fnx.vmap(function)(*xs)), argnums=every
    )(*stacked)
    for a, b, c, d, e in zip(eager, compiled, inner, per_row, of_sum, strict=True):
        assert_close(b, a)
        assert_close(c, a)
        assert_close(d[0], a)
        assert_close(e, d)


@settings(max_examples=60)
@given(recipes("f8", most=4))
def test_second_derivatives_agree(recipe: Recipe) -> None:
    """A Hessian-vector product: forward over reverse, the reverse, compiled."""
    function = total(recipe)
    x, *rest = [fnx.numpy.asarray(x) for x in recipe.inputs()]
    v = np.random.default_rng(recipe.seed).standard_normal(x.shape)
    gradient = fnx.grad(lambda y: function(y, *rest))
    _, forward = fnx.jvp(gradient, (x,), (v,))
    reverse = fnx.grad(lambda y: fnx.numpy.sum(gradient(y) * v))(x)
    compiled = fnx.jit(lambda y: fnx.jvp(gradient, (y,), (v,))[1])(x)
    assert_close(reverse, forward)
    assert_close(compiled, forward)
