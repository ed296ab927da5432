"""Schedules: functions from the number of updates made so far to a hyperparameter.

The count starts at 0 everywhere; it may be a Python integer or an int32 array, so that
a schedule runs inside `jit`. Gives arrays of rank 0 in the default float dtype. Next on
the walk: `momentum.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import fnx.numpy as fnp
from fnx.core.array import Array
from fnx.dtypes import default_float
from fnx.errors import ArgumentError, OptionError
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
        done = _done(since - begin, length)
        return (1 - done) * init_value + done * end_value  # exact at both ends

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
    return _cosine(start, start * alpha, length, exponent)


def warmup_cosine_decay_schedule(
    init_value: float | Array,
    peak_value: float | Array,
    warmup_steps: int,
    decay_steps: int,
    end_value: float | Array = 0.0,
    exponent: float | Array = 1.0,
) -> Schedule:
    """A line from `init_value` to `peak_value`, then half a cosine to `end_value`.

    `decay_steps` is the length of the whole, the `warmup_steps` included; the peak is
    the value at count `warmup_steps`.

    >>> rate = warmup_cosine_decay_schedule(0.0, 1.0, warmup_steps=2, decay_steps=6)
    >>> [round(float(rate(count)), 3) for count in range(7)]
    [0.0, 0.5, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    name = "warmup_cosine_decay_schedule"
    for argument, value in (
        ("init_value", init_value),
        ("peak_value", peak_value),
        ("end_value", end_value),
    ):
        FINITE.check(name, argument, value)
    POSITIVE.check(name, "exponent", exponent)
    before = steps(name, "warmup_steps", warmup_steps, least=0)
    whole = steps(name, "decay_steps", decay_steps)
    if whole <= before:
        raise OptionError(
            f"{name}: decay_steps counts the whole schedule, so it must be more than "
            f"warmup_steps={before}, got {whole}"
        )
    decay = _cosine(peak_value, end_value, whole - before, exponent)
    if before == 0:
        return decay
    return join_schedules(
        [linear_schedule(init_value, peak_value, before), decay], [before]
    )


def join_schedules(
    schedules: Sequence[Schedule], boundaries: Sequence[int]
) -> Schedule:
    """Several schedules one after the other; each counts from 0 at its start.

    `boundaries`, one fewer than the schedules and rising, are the counts at which the
    second, third… begin.

    >>> rate = join_schedules([constant_schedule(1.0), constant_schedule(0.1)], [10])
    >>> [round(float(rate(count)), 3) for count in (0, 9, 10)]
    [1.0, 1.0, 0.1]
    """
    _check_joints(schedules, boundaries)
    first, *rest = schedules

    def schedule(count: Any) -> Any:
        value = first(count)
        for boundary, following in zip(boundaries, rest, strict=True):
            count = fnp.asarray(count)
            value = fnp.where(count < boundary, value, following(count - boundary))
        return value

    return schedule


def _check_joints(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> None:
    name = "join_schedules"
    for place, schedule in enumerate(schedules):
        if not callable(schedule):
            raise ArgumentError(
                f"{name}: schedules[{place}] must be a function of the step count, got "
                f"{schedule!r}; a constant is fnx.optim.constant_schedule(value)"
            )
    for place, boundary in enumerate(boundaries):
        steps(name, f"boundaries[{place}]", boundary, least=0)
    if len(schedules) != len(boundaries) + 1:
        raise OptionError(
            f"{name}: boundaries must be one fewer than schedules, got "
            f"{len(boundaries)} and {len(schedules)}"
        )
    if any(b <= a for a, b in pairwise(boundaries)):
        raise OptionError(f"{name}: boundaries must rise, got {list(boundaries)}")


def _cosine(start: Any, end: Any, length: int, exponent: Any) -> Schedule:
    def schedule(count: Any) -> Any:
        angle: Any = fnp.cos(math.pi * _done(count, length))
        left: Any = fnp.power(0.5 * (1 + angle), exponent)
        return left * start + (1 - left) * end

    return schedule


def _done(count: Any, length: int) -> Any:
    """The part of a transition that lies behind, from 0 to 1."""
    done: Any = fnp.clip(fnp.asarray(count), 0, length)
    return done.astype(default_float()) / length
