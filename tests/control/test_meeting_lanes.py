"""Branches and loops in which members of a mapped axis meet, though not all chose them.

What `psum` and its kin then see of the others are their own values, written out with
NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax

X = np.array([0.3, -1.2, 2.0])
ON = X > 0
ROWS = np.arange(12.0).reshape(3, 4) - 4.5


def total(x):
    return lax.psum(x, "i")


def rounds(x):
    return lax.fori_loop(0, 2, lambda _, c: c + total(c), x)


def rounds_plain():
    values = X
    for _ in range(2):
        values = values + values.sum()
    return values


BRANCHES = {
    "psum": (total, X.sum()),
    "psum in a jitted function": (fnx.jit(total), X.sum()),
    "psum computed again": (fnx.checkpoint(total), X.sum()),
    "pmax": (lambda x: lax.pmax(-x, "i"), 1.2),
    "all_gather": (lambda x: (lax.all_gather(x, "i") ** 2).sum(), (X**2).sum()),
    "ppermute": (
        lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]),
        X[[2, 0, 1]],
    ),
    "psum in a loop": (rounds, rounds_plain()),
    "psum in a branch of a branch": (
        lambda x: lax.cond(x > 1, lambda: total(x), lambda: 2 * x),
        np.where(X > 1, X.sum(), 2 * X),
    ),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_all_members_meet_in_a_branch_that_some_chose(name):
    branch, wanted = BRANCHES[name]

    def f(x):
        return lax.cond(x > 0, lambda: branch(x), lambda: x)

    def other(x):
        return lax.switch((x > 0).astype("int32"), [lambda: x, lambda: branch(x)])

    for function in (f, other):
        mapped = fnx.vmap(function, axis_name="i")
        for run in (mapped, fnx.jit(mapped)):
            np.testing.assert_allclose(run(X), np.where(ON, wanted, X), rtol=1e-12)


def test_gradients_reach_the_members_that_others_meet():
    def loss(x):
        def f(x):
            return lax.cond(x > 0, lambda: total(x * x), lambda: x)

        return fnx.vmap(f, axis_name="i")(x).sum()

    wanted = 2 * ON.sum() * X + ~ON  # each of those that chose it sees all squares
    for run in (fnx.grad(loss), fnx.jit(fnx.grad(loss)), fnx.jacfwd(loss)):
        np.testing.assert_allclose(run(X), wanted, rtol=1e-12)


def test_rounds_that_some_do_not_make():
    def f(k, x):
        return lax.fori_loop(0, k, lambda _, c: c + total(c), x)

    counts, values = np.array([1, 2, 3]), X
    for number in range(3):
        values = np.where(number < counts, values + values.sum(), values)
    mapped = fnx.vmap(f, axis_name="i")
    for run in (mapped, fnx.jit(mapped)):
        np.testing.assert_allclose(run(counts, X), values, rtol=1e-12)


def test_members_of_another_axis_choose():
    def f(x):
        return lax.cond(x > 0, lambda: total(x), lambda: x)

    inside = fnx.vmap(fnx.vmap(f), axis_name="i")
    wanted = np.where(ROWS > 0, ROWS.sum(0), ROWS)
    np.testing.assert_allclose(inside(ROWS), wanted, rtol=1e-12)
    outside = fnx.vmap(fnx.vmap(f, axis_name="i"), in_axes=1, out_axes=1)
    np.testing.assert_allclose(outside(ROWS), wanted, rtol=1e-12)


def test_nans_of_those_that_did_not_choose_stay_their_own_where_nobody_meets():
    def f(x):
        return lax.cond(x > 0, lambda: fnp.sqrt(x) + lax.axis_index("i"), lambda: x)

    mapped = fnx.vmap(f, axis_name="i")
    wanted = np.where(ON, np.sqrt(np.abs(X)) + np.arange(3), X)
    with fnx.debug_nans(True):
        np.testing.assert_allclose(fnx.jit(mapped)(X), wanted, rtol=1e-12)
