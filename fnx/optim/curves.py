"""Schedules of one curve: functions from the number of updates so far to a number.

The count starts at 0 everywhere; it may be a Python integer or an int32 array, so that
a schedule runs inside `jit`. Gives arrays of rank 0 in the default float dtype. Next on
the walk: `piecewise.py`.
"""

from __future__ import annotations

import math
from typing import Any

import fnx.numpy as fnp
from fnx.core.array import Array
from fnx.dtypes import default_float
from fnx.optim.hyperparameters import FINITE, POSITIVE, Schedule, steps


def constant_schedule(value: float | Array) -> Schedule:
    """The same value at every step.

    >>> constant_schedule(0.1)(1000)
    0.1
    """
    FINITE.check("constant_schedule", "value", value)
    return lambda count: value


def linear_schedule(
    init_value: float | Array,
    end_value: float | Array,
    transition_steps: int,
    transition_begin: int = 0,
) -> Schedule:
    """A straight line from one value to another, constant before and after it.

    `init_value` up to step `transition_begin`, `end_value` from `transition_steps`
    steps later on.

    >>> warmup = linear_schedule(0.0, 1.0, 4)
    >>> [float(warmup(count)) for count in range(6)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """
    FINITE.check("linear_schedule", "init_value", init_value)
    FINITE.check("linear_schedule", "end_value", end_value)
    length = steps("linear_schedule", "transition_steps", transition_steps)
    begin = steps("linear_schedule", "transition_begin", transition_begin, least=0)

    def schedule(count: Any) -> Any:
        since: Any = fnp.asarray(count)
        done = part_done(since - begin, length)
        return (1 - done) * init_value + done * end_value  # exact at both ends

    return schedule


def polynomial_schedule(
    init_value: float | Array,
    end_value: float | Array,
    power: float | Array,
    transition_steps: int,
    transition_begin: int = 0,
) -> Schedule:
    """(init - end) · (1 - t)^power + end, t the part of the transition that is behind.

    `init_value` up to step `transition_begin`, `end_value` from `transition_steps`
    steps later on.

    >>> decay = polynomial_schedule(1.0, 0.0, 2, 4)
    >>> [float(decay(count)) for count in range(6)]
    [1.0, 0.5625, 0.25, 0.0625, 0.0, 0.0]
    """
    name = "polynomial_schedule"
    FINITE.check(name, "init_value", init_value)
    FINITE.check(name, "end_value", end_value)
    POSITIVE.check(name, "power", power)
    length = steps(name, "transition_steps", transition_steps)
    begin = steps(name, "transition_begin", transition_begin, least=0)

    def schedule(count: Any) -> Any:
        since: Any = fnp.asarray(count)
        left: Any = fnp.power(1 - part_done(since - begin, length), power)
        return left * init_value + (1 - left) * end_value

    return schedule


def exponential_decay(
    init_value: float | Array,
    transition_steps: int,
    decay_rate: float | Array,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | Array | None = None,
) -> Schedule:
    """Init · decay_rate^(t / transition_steps), t counted from `transition_begin`.

    With `staircase` the exponent is rounded down, so that the value changes every
    `transition_steps` steps. `end_value` bounds it: from below if `decay_rate` is less
    than 1, else from above.

    >>> decay = exponential_decay(1.0, 2, 0.25, end_value=0.1)
    >>> [round(float(decay(count)), 4) for count in range(5)]
    [1.0, 0.5, 0.25, 0.125, 0.1]
    """
    name = "exponential_decay"
    FINITE.check(name, "init_value", init_value)
    POSITIVE.check(name, "decay_rate", decay_rate)
    length = steps(name, "transition_steps", transition_steps)
    begin = steps(name, "transition_begin", transition_begin, least=0)
    if end_value is not None:
        FINITE.check(name, "end_value", end_value)
    rate: Any = decay_rate

    def schedule(count: Any) -> Any:
        since: Any = fnp.maximum(fnp.asarray(count) - begin, 0)
        exponent = since // length if staircase else since / length
        value: Any = init_value * fnp.power(
            fnp.asarray(rate, default_float()), exponent
        )
        if end_value is None:
            return value
        inside = fnp.where(
            fnp.less(rate, 1),
            fnp.maximum(value, end_value),
            fnp.minimum(value, end_value),
        )
        return inside

    return schedule


def cosine_decay_schedule(
    init_value: float | Array,
    decay_steps: int,
    alpha: float | Array = 0.0,
    exponent: float | Array = 1.0,
) -> Schedule:
    """Half a cosine wave from `init_value` to `alpha * init_value`, constant after it.

    At step t of T = `decay_steps`: init · ((1 - alpha) · c**exponent + alpha) with
    c = (1 + cos(π t/T)) / 2. Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent
    with Warm Restarts", 2017 (one period, without restarts).

    >>> decay = cosine_decay_schedule(1.0, 100)
    >>> [round(float(decay(count)), 3) for count in (0, 50, 100, 200)]
    [1.0, 0.5, 0.0, 0.0]
    """
    name = "cosine_decay_schedule"
    FINITE.check(name, "init_value", init_value)
    FINITE.check(name, "alpha", alpha)
    POSITIVE.check(name, "exponent", exponent)
    length = steps(name, "decay_steps", decay_steps)
    start: Any = init_value
    return cosine_curve(start, start * alpha, length, exponent)


def cosine_curve(start: Any, end: Any, length: int, exponent: Any) -> Schedule:
    """Half a cosine wave from one value to another, constant after it."""

    def schedule(count: Any) -> Any:
        angle: Any = fnp.cos(math.pi * part_done(count, length))
        left: Any = fnp.power(0.5 * (1 + angle), exponent)
        return left * start + (1 - left) * end

    return schedule


def part_done(count: Any, length: int) -> Any:
    """The part of a transition that lies behind, from 0 to 1."""
    done: Any = fnp.clip(fnp.asarray(count), 0, length)
    return done.astype(default_float()) / length
