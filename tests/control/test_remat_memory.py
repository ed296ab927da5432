"""Checkpoints bound the memory of programs, of long loops too."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import checkpoint_policies as policies
from fnx import errors, lax
from tests.control.checkpoints import W, bare, close, kept, rounds
from tests.control.flows import STACK, TRANSFORMS, X

# ---------------------------------------------------------------- memory


def arena(f, *args):
    """The bytes that a compiled function takes besides its arguments and results."""
    compiled = fnx.jit(f).lower(*args).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def deep(wrap, x, depth=20):
    """A chain of layers, each with several costly values."""

    def block(y):
        for _ in range(4):
            y = fnp.tanh(y @ W) + fnp.sin(y)
        return y

    for _ in range(depth):
        x = wrap(block)(x)
    return (x * x).sum()


BIG = np.linspace(-1, 1, 3000).reshape(1000, 3)


def test_a_policy_keeps_values_of_branches():
    def f(x, w, n):
        def one(x):
            return fnp.sin(fnp.exp(x) @ w)

        def two(x):
            return fnp.sin(fnp.sin(fnp.cos(x) @ w) @ w)

        return lax.switch(n, [one, two, lambda x: x * 2], x).sum()

    x, w, n = np.ones((2, 3)), np.ones((3, 3)), np.int32(1)

    def residuals(policy):
        return kept(lambda x, w: fnx.checkpoint(f, policy=policy)(x, w, n), x, w)

    # the branches share places: there are as many as the second one needs
    given = residuals(policies.nothing_saveable)
    dots = residuals(policies.dots_saveable)
    assert sorted(dots) == sorted([*given, "f64[2,3]", "f64[2,3]"])

    def products(policy):
        both = fnx.value_and_grad(fnx.checkpoint(f, policy=policy))
        return str(fnx.make_jaxpr(both)(x, w, n)).count("dot_general")

    # three forward, six backward, and the three again
    assert products(policies.nothing_saveable) > products(policies.dots_saveable)


def test_a_policy_keeps_rows_of_a_while_loop():
    def f(x, w, n):
        def body(state):
            i, y = state
            return i + 1, fnp.sin(fnp.tanh(y) @ w)

        return lax.while_loop(lambda s: s[0] < n, body, (0, x), max_steps=10)[1].sum()

    x, w, n = np.ones((2, 3)), np.ones((3, 3)), np.int32(4)

    def residuals(policy):
        return kept(lambda x, w: fnx.checkpoint(f, policy=policy)(x, w, n), x, w)

    given = residuals(policies.nothing_saveable)
    dots = residuals(policies.dots_saveable)
    # the number of rounds takes the place of their test's operand
    assert sorted(dots) == sorted([*given, "f64[10,2,3]"])

    def products(policy):
        both = fnx.value_and_grad(fnx.checkpoint(f, policy=policy))
        return str(fnx.make_jaxpr(both)(x, w, n)).count("dot_general")

    assert products(policies.nothing_saveable) == products(policies.dots_saveable) + 1
    for policy in (policies.nothing_saveable, policies.dots_saveable):
        g = fnx.checkpoint(f, policy=policy)
        for count in (0, 4, 10):
            found = fnx.jit(fnx.grad(g))(x, w, count)
            np.testing.assert_allclose(found, fnx.grad(f)(x, w, count), rtol=1e-12)
        with pytest.raises(errors.StepLimitError, match="more than 10 rounds"):
            fnx.jit(fnx.grad(g))(x, w, 11)


def test_the_compiler_does_not_undo_a_checkpoint():
    full = arena(fnx.grad(functools.partial(deep, bare)), BIG)
    merged = functools.partial(fnx.checkpoint, prevent_cse=False)
    assert arena(fnx.grad(functools.partial(deep, merged)), BIG) == full
    least = arena(fnx.grad(functools.partial(deep, fnx.checkpoint)), BIG)
    # 20 arguments of blocks and what one block computes, of 160 values of blocks
    assert least <= 40 * BIG.nbytes
    assert full >= 120 * BIG.nbytes


def test_nor_in_second_derivatives():
    def directional(wrap):
        f = functools.partial(deep, wrap, depth=8)
        slope = lambda x: (fnx.grad(f)(x) * BIG).sum()  # noqa: E731
        return arena(fnx.grad(slope), BIG)

    assert directional(fnx.checkpoint) < directional(bare) / 2


def test_a_barrier_keeps_equal_computations_apart():
    def twice(behind):
        return lambda x: fnp.sin(fnp.exp(x)) + fnp.cos(fnp.exp(behind(x)))

    def exponentials(f):
        return str(fnx.make_jaxpr(f)(X)).count("= exp")

    assert exponentials(twice(lambda x: x)) == 1
    assert exponentials(twice(lax.optimization_barrier)) == 2
    x = {"a": np.arange(3), "b": (1.5, X + 1j)}
    found = fnx.jit(lax.optimization_barrier)(x)
    np.testing.assert_array_equal(found["a"], x["a"])
    np.testing.assert_array_equal(found["b"][1], x["b"][1])
    slope = fnx.grad(lambda x: (lax.optimization_barrier((x, 2.0))[0] ** 2).sum())
    close(fnx.vmap(slope)(STACK), 2 * STACK)


def test_constants_that_both_passes_compute_do_not_merge_them():
    def block(y):
        waves = fnp.exp(fnp.sin(fnp.arange(3000.0).reshape(1000, 3)))
        return fnp.tanh(fnp.sin(y * waves) * fnp.cos(y)) * fnp.exp(-y * waves)

    def f(wrap, x):
        for _ in range(20):
            x = wrap(block)(x)
        return x.sum()

    least = arena(fnx.grad(functools.partial(f, fnx.checkpoint)), BIG)
    assert least <= 30 * BIG.nbytes
    assert arena(fnx.grad(functools.partial(f, bare)), BIG) >= 50 * BIG.nbytes


# ---------------------------------------------------------------- loops


def rounds_plain(x, length, reverse=False):
    rows = np.sin(np.arange(3.0 * length)).reshape(length, 3)
    state, extra = x, 0.0
    order = reversed(range(length)) if reverse else range(length)
    for n, i in enumerate(order):
        state = fnp.sin(state) * x + rows[i]
        extra = extra + state * n * np.cos(i)
    return state * length + extra


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize(
    "options",
    [
        {"checkpoint": "sqrt"},
        {"checkpoint": 2, "reverse": True},
        {"checkpoint": 4, "unroll": 3},
    ],
    ids=str,
)
def test_checkpoints_of_a_scan_change_no_value(options, name):
    transform, maps = TRANSFORMS[name]
    reverse = options.get("reverse", False)
    found = transform(lambda x: rounds(x, 7, **options))
    wanted = transform(lambda x: rounds_plain(x, 7, reverse))
    if not maps:
        close(found(X), wanted(X))
        return
    rows = np.stack([wanted(x) for x in STACK])
    close(fnx.vmap(found)(STACK), rows)
    close(fnx.jit(fnx.vmap(found))(STACK), rows)


@pytest.mark.parametrize("checkpoint", [1, 3, 4, 5, 9, "sqrt"])
@pytest.mark.parametrize("length", [0, 1, 4, 6])
def test_any_number_of_rounds(checkpoint, length):
    def slope(x):
        return fnx.grad(lambda x: rounds(x, length, checkpoint=checkpoint).sum())(x)

    close(fnx.jit(slope)(X), fnx.grad(lambda x: rounds_plain(x, length).sum())(X))


def test_fori_loop_takes_checkpoints():
    def loop(x, checkpoint):
        return lax.fori_loop(
            2, 9, lambda i, v: fnp.sin(v) * x + i, x, checkpoint=checkpoint
        ).sum()

    close(fnx.grad(lambda x: loop(x, "sqrt"))(X), fnx.grad(lambda x: loop(x, None))(X))


def test_checkpoints_bound_the_memory_of_a_long_scan():
    x = np.linspace(-1, 1, 100)

    def f(x, checkpoint):
        def body(c, r):
            a = fnp.sin(c * x) + r
            return fnp.tanh(a) * fnp.exp(-c * c), None

        return lax.scan(body, x, np.zeros(2500), checkpoint=checkpoint)[0].sum()

    def rows(checkpoint):
        return arena(fnx.grad(lambda x: f(x, checkpoint)), x) / x.nbytes

    assert rows(None) > 4 * 2500
    assert rows("sqrt") < 10 * 50
    assert rows(10) < 250 + 10 * 10
    assert rows(500) < 10 * 500
