"""Tight loops: a few instructions a round, which LLVM's passes make one function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
from fnx import numpy as np_
from fnx.compiler.pipeline import plan_program
from fnx.cpu.driver import print_plan

ROUNDS = 40


def rotation(size: int) -> Any:
    drawn = np.random.default_rng(size).standard_normal((size, size))
    return np.linalg.qr(drawn)[0].astype(np.float32)


def assert_tight(function: Any, *args: Any) -> None:
    texts = print_plan(plan_program(fnx.make_jaxpr(function)(*args))).module
    assert len(texts.tight_texts()) == 1


# Vectors of 2, 4 and 8 lanes do not divide these.
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 9, 11, 13])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_awkward_sizes(size, transposed):
    turn = rotation(size)
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)

    def function(x: Any, turn: Any) -> Any:
        def body(x: Any, _: Any) -> Any:
            return (x @ turn if transposed else turn @ x), None

        return fnx.lax.scan(body, x, None, ROUNDS)[0]

    assert_tight(function, x, turn)
    exact = turn.astype(np.float64)
    power = np.linalg.matrix_power(exact.T if transposed else exact, ROUNDS)
    np.testing.assert_allclose(fnx.jit(function)(x, turn), power @ x, atol=1e-5)


@pytest.mark.parametrize("size", [1, 3, 6, 15])
def test_folds_and_rows(size):
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    rows = np.random.default_rng(size + 1).standard_normal((ROUNDS, size))
    rows = rows.astype(np.float32)

    def function(x: Any, rows: Any) -> Any:
        def body(x: Any, row: Any) -> Any:
            x = x * np_.float32(0.5) + row
            x = x / np_.sqrt((x * x).sum() + 1)
            return x, (x.max(), x[::-1])

        return fnx.lax.scan(body, x, rows)

    assert_tight(function, x, rows)
    end, (tops, backwards) = fnx.jit(function)(x, rows)
    state = x.astype(np.float64)
    for n in range(ROUNDS):
        state = state * 0.5 + rows[n]
        state /= np.sqrt((state * state).sum() + 1)
        np.testing.assert_allclose(tops[n], state.max(), atol=1e-5)
        np.testing.assert_allclose(backwards[n], state[::-1], atol=1e-5)
    np.testing.assert_allclose(end, state, atol=1e-5)


def test_a_loop_in_a_loop_with_a_branch():
    def function(x: Any) -> Any:
        def inner(state: Any) -> Any:
            y, n = state
            return fnx.lax.cond(n % 2 == 0, lambda: y * 0.9, lambda: y + 0.1), n + 1

        def body(x: Any, limit: Any) -> Any:
            x, _ = fnx.lax.while_loop(lambda s: s[1] < limit, inner, (x, limit * 0))
            return x, x

        return fnx.lax.scan(body, x, np.arange(ROUNDS, dtype=np.int32) % 5)

    x = np.float32(1.5)
    assert_tight(function, x)
    end, every = fnx.jit(function)(x)
    state = float(x)
    for n in range(ROUNDS):
        for k in range(n % 5):
            state = state * 0.9 if k % 2 == 0 else state + 0.1
        np.testing.assert_allclose(every[n], state, rtol=1e-5)
    np.testing.assert_allclose(end, state, rtol=1e-5)
