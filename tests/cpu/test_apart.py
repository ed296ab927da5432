"""Loops whose rounds know nothing of each other: threads make whole rounds of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fnx
from fnx import lax
from fnx import numpy as np_
from fnx.api.loops import map_locally
from fnx.compiler.pipeline import plan_program
from fnx.cpu import apart, driver
from fnx.cpu.apart import stretch
from fnx.cpu.backend import BACKEND
from fnx.cpu.driver import print_plan
from fnx.cpu.effort import one_round
from fnx.runtime.plan import LoopStep, Plan

ROUNDS = 38


@pytest.fixture(autouse=True)
def processors(monkeypatch) -> Iterator[None]:
    """Two processors, and as many threads as before at the end."""
    monkeypatch.setattr(apart, "cpus", lambda: 2)
    before = fnx.num_threads()
    yield
    fnx.set_num_threads(before)


@pytest.fixture
def rows(rng):
    return rng.standard_normal((ROUNDS, 60, 24)).astype(np.float32)


@pytest.fixture
def weights(rng):
    return rng.standard_normal((24, 24)).astype(np.float32)


def planned(function: Any, *args: Any) -> Plan:
    return plan_program(fnx.make_jaxpr(function)(*args))


def parts(plan: Plan) -> int:
    """How many loops threads share."""
    text = print_plan(plan).module.text()
    return len(
        re.findall("^define internal void @(?:loop.*_)?part[0-9]+[(]", text, re.M)
    )


def powers(x, w):
    """Something with a product, a fold, a sort of loop inside, and two results."""

    def step(c, _):
        c = np_.tanh(c @ w)
        return c, c.sum()

    last, sums = lax.scan(step, x, None, 3)
    return last.max(0), sums


def expected(rows, weights):
    lasts, sums = [], []
    for x in rows.astype(np.float64):
        each = []
        for _ in range(3):
            x = np.tanh(x @ weights.astype(np.float64))
            each.append(x.sum())
        lasts.append(x.max(0))
        sums.append(each)
    return np.array(lasts), np.array(sums)


@pytest.mark.parametrize("reverse", [False, True])
def test_rounds_are_shared(rows, weights, reverse):
    def function(rows, weights):
        def step(_, x):
            return None, powers(x, weights)

        return lax.scan(step, None, rows, reverse=reverse)[1]

    assert parts(planned(function, rows, weights)) == 1
    found = fnx.jit(function)(rows, weights)
    for got, want in zip(found, expected(rows, weights), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def bits(arrays) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in arrays]


def ran(plan: Plan, *arrays: Any) -> list[bytes]:
    return bits(BACKEND.load(BACKEND.compile(plan))([*arrays]))


def mapped(rows, weights):
    return lax.map(lambda x: powers(x, weights), rows)


def test_bits_do_not_depend_on_threads_nor_on_stretches(rows, weights, monkeypatch):
    plan = planned(mapped, rows, weights)
    want = ran(plan, rows, weights)
    for count in (1, 2, 3, 16):
        fnx.set_num_threads(count)
        assert ran(plan, rows, weights) == want
    (loop,) = [step for step in plan.steps if isinstance(step, LoopStep)]
    for rounds in (3, 7, 20):
        monkeypatch.setattr(apart, "UNSEEN", rounds * one_round(loop))
        assert stretch(loop).rounds < ROUNDS
        assert ran(plan, rows, weights) == want
    monkeypatch.setattr(driver, "has_pool", lambda: False)
    assert not parts(plan)
    assert ran(plan, rows, weights) == want


def test_each_thread_has_an_arena(rows, weights):
    plan = planned(mapped, rows, weights)
    (loop,) = [step for step in plan.steps if isinstance(step, LoopStep)]
    share = stretch(loop)
    assert share.arenas == 2 and share.arena >= loop.body.arena > 0
    assert print_plan(plan).arena >= plan.arena + 2 * loop.body.arena


@pytest.mark.parametrize("count", [1, 2, 3, 37, 64])
def test_any_number_of_processors(rows, weights, count, monkeypatch):
    monkeypatch.setattr(apart, "cpus", lambda: count)
    plan = planned(mapped, rows, weights)
    (loop,) = [step for step in plan.steps if isinstance(step, LoopStep)]
    share = stretch(loop)
    # 38 rounds on 3 are 13, 13, 12; on 37 all but one would wait.
    assert (share is None) == (count in (37, 64))
    assert share is None or share.arenas == count
    want = expected(rows, weights)[0].astype(np.float32)
    got = np.frombuffer(ran(plan, rows, weights)[0], np.float32).reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_large_products_have_one_thread_of_blas_each(rng):
    rows = rng.standard_normal((4, 700, 700)).astype(np.float64)

    def function(rows):
        return map_locally(lambda x: np_.tanh(np_.tanh(x) @ x[::-1]), rows)

    assert parts(planned(function, rows)) == 1
    want = np.tanh(np.tanh(rows) @ rows[:, ::-1])
    np.testing.assert_allclose(fnx.jit(function)(rows), want, rtol=1e-9, atol=1e-9)


def test_loops_inside_are_not_shared_again(rows, weights):
    def function(rows, weights):
        def outer(x):
            return lax.map(lambda row: np_.tanh(row @ weights), x).sum(0)

        return lax.map(outer, rows)

    assert parts(planned(function, rows, weights)) == 1
    want = np.tanh(rows.astype(np.float64) @ weights).sum(1)
    np.testing.assert_allclose(
        fnx.jit(function)(rows, weights), want, rtol=1e-4, atol=1e-4
    )


def test_a_shared_loop_in_the_rounds_of_another(rows, weights):
    def function(rows, weights):
        def body(rows, _):
            return map_locally(lambda x: np_.tanh(x @ weights), rows), None

        return lax.scan(body, rows, None, 3)[0]

    assert parts(planned(function, rows, weights)) == 1
    want = rows.astype(np.float64)
    for _ in range(3):
        want = np.tanh(want @ weights)
    np.testing.assert_allclose(
        fnx.jit(function)(rows, weights), want, rtol=1e-4, atol=1e-4
    )


def test_branches_in_rounds(rows):
    rows = np.tile(rows, (1, 7, 1))

    def function(rows):
        def one(x):
            return lax.cond(
                x[0, 0] > 0, lambda: np_.sin(x).sum(0), lambda: np_.cos(x).sum(0)
            )

        return lax.map(one, rows)

    assert parts(planned(function, rows)) == 1
    each = [(np.sin if x[0, 0] > 0 else np.cos)(x).sum(0) for x in rows]
    np.testing.assert_allclose(fnx.jit(function)(rows), each, rtol=1e-4, atol=1e-4)


def running_sum(rows):
    return lax.scan(lambda c, x: (c + x.sum(), c * x), np_.float32(0), rows)


def with_python(rows):
    return lax.map(lambda x: fnx.pure_callback(np.negative, x, np_.sin(x)), rows)


def endless_perhaps(rows):
    def one(x):
        return lax.while_loop(lambda y: y.sum() < 1e3, lambda y: y * 2 + 1, abs(x))

    return lax.map(one, rows)


def very_long(rows):
    def one(x):
        return lax.scan(lambda c, _: (np_.sin(c) + 1, None), x, None, 10**7)[0]

    return lax.map(one, rows)


def one_row(rows):
    return lax.map(np_.sin, rows[:1])


def next_to_nothing(rows):
    return lax.map(lambda x: x + 1, rows[:, 0, 0])


@pytest.mark.parametrize(
    "function",
    [running_sum, with_python, endless_perhaps, very_long, one_row, next_to_nothing],
)
def test_what_is_not_shared(rows, function):
    assert not parts(planned(function, rows))
