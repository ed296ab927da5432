"""Schedules: values at and beyond their ends, under jit, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim
from fnx.errors import ArgumentError, OptionError

SCHEDULES = {
    "constant": (optim.constant_schedule(0.3), [0.3, 0.3, 0.3, 0.3]),
    "linear": (optim.linear_schedule(1.0, 3.0, 4), [1.0, 1.5, 2.0, 3.0]),
    "linear later": (optim.linear_schedule(1.0, 3.0, 4, 1), [1.0, 1.0, 1.5, 3.0]),
    "cosine": (
        optim.cosine_decay_schedule(2.0, 2, alpha=0.25),
        [2.0, 1.25, 0.5, 0.5],
    ),
    "cosine squared": (
        optim.cosine_decay_schedule(1.0, 2, exponent=2.0),
        [1.0, 0.25, 0.0, 0.0],
    ),
    "warm-up": (
        optim.warmup_cosine_decay_schedule(0.0, 1.0, 2, 4, end_value=0.5),
        [0.0, 0.5, 1.0, 0.5],
    ),
    "no warm-up": (
        optim.warmup_cosine_decay_schedule(7.0, 1.0, 0, 2),
        [1.0, 0.5, 0.0, 0.0],
    ),
    "peak 0": (
        optim.warmup_cosine_decay_schedule(1.0, 0.0, 1, 3, end_value=1.0),
        [1.0, 0.0, 0.5, 1.0],
    ),
    "joined": (
        optim.join_schedules(
            [optim.constant_schedule(1.0), optim.linear_schedule(4.0, 6.0, 2)], [1]
        ),
        [1.0, 4.0, 5.0, 6.0],
    ),
}
COUNTS = (0, 1, 2, 1000)
EACH = pytest.mark.parametrize("name", SCHEDULES)


@EACH
def test_values(name):
    schedule, expected = SCHEDULES[name]
    found = [float(schedule(count)) for count in COUNTS]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@EACH
def test_under_jit(name):
    schedule, expected = SCHEDULES[name]
    jitted = fnx.jit(lambda count: schedule(count) * fnp.ones(()))
    found = [float(jitted(fnp.array(count, "int32"))) for count in COUNTS]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_ends_are_exact():
    schedule = optim.linear_schedule(0.1, 0.7, 3)
    assert float(schedule(0)) == np.float32(0.1)
    assert float(schedule(3)) == np.float32(0.7)


def test_an_optimizer_counts_from_0():
    seen = []
    optimizer = optim.sgd(lambda count: seen.append(int(count)) or 0.1)
    state = optimizer.init(fnp.ones(1))
    for _ in range(3):
        _, state = optimizer.update(fnp.ones(1), state)
    assert seen == [0, 1, 2]


BAD = [
    (lambda: optim.constant_schedule(float("nan")), "constant_schedule: value must"),
    (lambda: optim.linear_schedule(0.0, 1.0, 0), "transition_steps must be 1 or more"),
    (lambda: optim.linear_schedule(0.0, 1.0, 5, -1), "transition_begin must be 0 or"),
    (lambda: optim.cosine_decay_schedule(1.0, -5), "decay_steps must be 1 or more"),
    (lambda: optim.cosine_decay_schedule(1.0, 5, exponent=0), "exponent must be a fin"),
    (
        lambda: optim.warmup_cosine_decay_schedule(0.0, 1.0, 10, 10),
        "decay_steps counts the whole schedule, so it must be more than warmup_st",
    ),
    (
        lambda: optim.join_schedules([optim.constant_schedule(1.0)], [10]),
        "boundaries must be one fewer than schedules, got 1 and 1",
    ),
    (
        lambda: optim.join_schedules([optim.constant_schedule(1.0)] * 3, [10, 5]),
        r"boundaries must rise, got \[10, 5\]",
    ),
]
BAD_KINDS = [
    (lambda: optim.linear_schedule(0.0, 1.0, 2.5), "transition_steps must be an int"),
    (lambda: optim.join_schedules([0.1], []), r"schedules\[0\] must be a function"),
    (lambda: optim.cosine_decay_schedule("1", 5), "init_value must be a number"),
]


@pytest.mark.parametrize(("make", "match"), BAD, ids=[m for _, m in BAD])
def test_bad_values(make, match):
    with pytest.raises(OptionError, match=match):
        make()


@pytest.mark.parametrize(("make", "match"), BAD_KINDS, ids=[m for _, m in BAD_KINDS])
def test_bad_kinds(make, match):
    with pytest.raises(ArgumentError, match=match):
        make()


# ---------------------------------------------------------------- against optax

CYCLE = {"init_value": 0.1, "peak_value": 1.0, "warmup_steps": 2, "decay_steps": 5}
LIKE_OPTAX = {
    "polynomial": lambda o: o.polynomial_schedule(1.0, 0.1, 3, 6, 2),
    "exponential": lambda o: o.exponential_decay(1.0, 3, 0.5, 2),
    "staircase": lambda o: o.exponential_decay(1.0, 3, 0.5, 1, True, 0.2),
    "growing": lambda o: o.exponential_decay(1.0, 3, 2.0, end_value=3.0),
    "warm-up constant": lambda o: o.warmup_constant_schedule(0.1, 1.0, 4),
    "warm-up exponential": lambda o: o.warmup_exponential_decay_schedule(
        0.1, 1.0, 3, 2, 0.5, 1, end_value=0.2
    ),
    "pieces": lambda o: o.piecewise_constant_schedule(1.0, {6: 0.5, 3: 0.1}),
    "lines": lambda o: o.piecewise_interpolate_schedule("linear", 1.0, {3: 0.5, 7: 4}),
    "waves": lambda o: o.piecewise_interpolate_schedule("cosine", 1.0, {3: 0.5, 7: 4}),
    "linear one-cycle": lambda o: o.linear_onecycle_schedule(10, 2.0, 0.4, 0.8, 4.0),
    "cosine one-cycle": lambda o: o.cosine_onecycle_schedule(10, 2.0, 0.35, 5.0),
    "warm restarts": lambda o: o.sgdr_schedule(
        [CYCLE, CYCLE | {"decay_steps": 4, "end_value": 0.05}]
    ),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", LIKE_OPTAX)
def test_optax_has_the_same_values(name, jax):
    optax = pytest.importorskip("optax", reason="the oracle of schedules")
    make = LIKE_OPTAX[name]
    expected = [float(make(optax)(count)) for count in range(14)]
    found = [float(make(optim)(count)) for count in range(14)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    jitted = fnx.jit(make(optim))
    found = [float(jitted(fnp.array(count, "int32"))) for count in range(14)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


MORE_BAD = [
    (lambda: optim.polynomial_schedule(1.0, 0.0, 0, 4), "power must be a finite numb"),
    (lambda: optim.exponential_decay(1.0, 4, 0.0), "exponential_decay: decay_rate mus"),
    (lambda: optim.sgdr_schedule([]), "sgdr_schedule: cosine_kwargs must have one"),
    (
        lambda: optim.piecewise_constant_schedule(1.0, {-1: 0.5}),
        "boundary -1 must be 0 or more",
    ),
    (
        lambda: optim.piecewise_constant_schedule(1.0, {3: -0.5}),
        "must be a finite number, 0 or more, got -0.5",
    ),
    (
        lambda: optim.piecewise_interpolate_schedule("cubic", 1.0),
        "interpolate_type must be linear or cosine, got 'cubic'",
    ),
    (lambda: optim.linear_onecycle_schedule(3, 1.0, 0.3), "each phase must have one"),
    (lambda: optim.cosine_onecycle_schedule(3, 1.0, 0.3), "each phase must have one"),
]


@pytest.mark.parametrize(("make", "match"), MORE_BAD, ids=[m for _, m in MORE_BAD])
def test_more_bad_values(make, match):
    with pytest.raises(OptionError, match=match):
        make()
