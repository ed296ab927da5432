"""Schedules of several pieces: warm-up, steps, one cycle, warm restarts.

Made of the curves of `curves.py`, and like them functions of the number of updates so
far. Next on the walk: `scaling.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import fnx.numpy as fnp
from fnx.core.array import Array
from fnx.dtypes import default_float
from fnx.errors import ArgumentError, OptionError
from fnx.optim.curves import (
    constant_schedule,
    cosine_curve,
    exponential_decay,
    linear_schedule,
)
from fnx.optim.hyperparameters import (
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    UNIT,
    Schedule,
    steps,
)

# ---------------------------------------------------------------- joints


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


# ---------------------------------------------------------------- warm-up


def warmup_constant_schedule(
    init_value: float | Array, peak_value: float | Array, warmup_steps: int
) -> Schedule:
    """A line from `init_value` to `peak_value`, which then stays.

    >>> rate = warmup_constant_schedule(0.0, 1.0, 4)
    >>> [float(rate(count)) for count in (0, 1, 4, 100)]
    [0.0, 0.25, 1.0, 1.0]
    """
    name = "warmup_constant_schedule"
    FINITE.check(name, "init_value", init_value)
    FINITE.check(name, "peak_value", peak_value)
    before = steps(name, "warmup_steps", warmup_steps, least=0)
    return _warmed_up(init_value, peak_value, before, constant_schedule(peak_value))


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
    decay = cosine_curve(peak_value, end_value, whole - before, exponent)
    return _warmed_up(init_value, peak_value, before, decay)


def warmup_exponential_decay_schedule(
    init_value: float | Array,
    peak_value: float | Array,
    warmup_steps: int,
    transition_steps: int,
    decay_rate: float | Array,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | Array | None = None,
) -> Schedule:
    """A line from `init_value` to `peak_value`, then `exponential_decay` from there.

    >>> rate = warmup_exponential_decay_schedule(0.0, 1.0, 2, 2, 0.25)
    >>> [round(float(rate(count)), 4) for count in range(5)]
    [0.0, 0.5, 1.0, 0.5, 0.25]
    """
    name = "warmup_exponential_decay_schedule"
    FINITE.check(name, "init_value", init_value)
    before = steps(name, "warmup_steps", warmup_steps, least=0)
    decay = exponential_decay(
        peak_value, transition_steps, decay_rate, transition_begin, staircase, end_value
    )
    return _warmed_up(init_value, peak_value, before, decay)


def _warmed_up(
    init_value: Any, peak_value: Any, before: int, then: Schedule
) -> Schedule:
    if before == 0:
        return then
    return join_schedules(
        [linear_schedule(init_value, peak_value, before), then], [before]
    )


def sgdr_schedule(cosine_kwargs: Iterable[Mapping[str, Any]]) -> Schedule:
    """Cosine decays with warm restarts: one after the other.

    Each mapping has the arguments of `warmup_cosine_decay_schedule` for one of them,
    which lasts for its `decay_steps`. Loshchilov and Hutter, "SGDR: Stochastic Gradient
    Descent with Warm Restarts", 2017.

    >>> cycle = {"init_value": 1.0, "peak_value": 1.0, "warmup_steps": 0}
    >>> rate = sgdr_schedule([cycle | {"decay_steps": 2}, cycle | {"decay_steps": 4}])
    >>> [round(float(rate(count)), 3) for count in range(7)]
    [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    cycles = [dict(cycle) for cycle in cosine_kwargs]
    if not cycles:
        raise OptionError("sgdr_schedule: cosine_kwargs must have one cycle or more")
    ends = [0]
    for cycle in cycles[:-1]:
        ends.append(ends[-1] + cycle["decay_steps"])
    return join_schedules([warmup_cosine_decay_schedule(**c) for c in cycles], ends[1:])


# ---------------------------------------------------------------- steps


def piecewise_constant_schedule(
    init_value: float | Array, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """`init_value`, multiplied by each scale from its boundary on.

    >>> rate = piecewise_constant_schedule(1.0, {2: 0.5, 4: 0.5})
    >>> [float(rate(count)) for count in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """
    name = "piecewise_constant_schedule"
    places, values = _pieces(name, init_value, boundaries_and_scales or {})

    def schedule(count: Any) -> Any:
        value = fnp.asarray(values[0], default_float())
        for place, following in zip(places[1:], values[1:], strict=True):
            value = fnp.where(fnp.less(count, place), value, following)
        return value

    return schedule


def piecewise_interpolate_schedule(
    interpolate_type: str,
    init_value: float | Array,
    boundaries_and_scales: Mapping[int, float] | None = None,
) -> Schedule:
    """From `init_value` to it times the first scale, and so on; each at its boundary.

    A value is that of the boundary before, times the scale; between them it goes along
    a line (`interpolate_type` "linear") or half a cosine wave ("cosine").

    >>> rate = piecewise_interpolate_schedule("linear", 1.0, {2: 0.5, 4: 0.5})
    >>> [float(rate(count)) for count in range(6)]
    [1.0, 0.75, 0.5, 0.375, 0.25, 0.25]
    """
    name = "piecewise_interpolate_schedule"
    if interpolate_type not in ("linear", "cosine"):
        raise OptionError(
            f"{name}: interpolate_type must be linear or cosine, got "
            f"{interpolate_type!r}"
        )
    places, values = _pieces(name, init_value, boundaries_and_scales or {})
    return _interpolated(interpolate_type, places, values)


def _interpolated(kind: str, places: Sequence[int], values: Sequence[Any]) -> Schedule:
    def schedule(count: Any) -> Any:
        now: Any = fnp.asarray(count)
        value = fnp.asarray(values[0], default_float())
        for (a, start), (b, end) in pairwise(zip(places, values, strict=True)):
            done: Any = fnp.clip((now - a) / (b - a), 0, 1)
            if kind == "cosine":
                done = (1 - fnp.cos(math.pi * done)) / 2
            value = fnp.where(now < a, value, (1 - done) * start + done * end)
        return value

    return schedule


def _pieces(
    function: str, init_value: Any, boundaries_and_scales: Mapping[int, float]
) -> tuple[list[int], list[Any]]:
    """The boundaries in order, 0 first, and the values there."""
    FINITE.check(function, "init_value", init_value)
    places, values = [0], [init_value]
    for place, scale in sorted(boundaries_and_scales.items()):
        steps(function, f"boundaries_and_scales's boundary {place!r}", place, least=0)
        NOT_NEGATIVE.check(function, f"boundaries_and_scales[{place}]", scale)
        places.append(place)
        values.append(values[-1] * scale)
    if len(places) > 1 and places[1] == 0:
        return places[1:], values[1:]
    return places, values


# ---------------------------------------------------------------- one cycle


def linear_onecycle_schedule(
    transition_steps: int,
    peak_value: float | Array,
    pct_start: float = 0.3,
    pct_final: float = 0.85,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Up to `peak_value` along a line, down again, and down further.

    From peak / div_factor to the peak at `pct_start` of the steps, back at `pct_final`,
    and at the end that divided by `final_div_factor`. Smith and Topin,
    "Super-Convergence: Very Fast Training of Neural Networks Using Large Learning
    Rates", 2018.

    >>> rate = linear_onecycle_schedule(10, 1.0, 0.5, 0.9, div_factor=2)
    >>> [round(float(rate(count)), 3) for count in (0, 5, 9, 10)]
    [0.5, 1.0, 0.5, 0.0]
    """
    name = "linear_onecycle_schedule"
    start, low = _onecycle(name, transition_steps, peak_value, pct_start, div_factor)
    UNIT.check(name, "pct_final", pct_final)
    POSITIVE.check(name, "final_div_factor", final_div_factor)
    places = [0, start, int(pct_final * transition_steps), transition_steps]
    if not 0 < start < places[2] < transition_steps:
        raise OptionError(
            f"{name}: each phase must have one step or more; got {transition_steps} "
            f"steps, with pct_start={pct_start} and pct_final={pct_final}"
        )
    values = [low, peak_value, low, low / final_div_factor]
    return _interpolated("linear", places, values)


def cosine_onecycle_schedule(
    transition_steps: int,
    peak_value: float | Array,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> Schedule:
    """Up to `peak_value` and down again, along half cosine waves.

    From peak / div_factor to the peak at `pct_start` of the steps, then to the first
    value divided by `final_div_factor`. Smith and Topin, "Super-Convergence: Very Fast
    Training of Neural Networks Using Large Learning Rates", 2018.

    >>> rate = cosine_onecycle_schedule(10, 1.0, 0.4, div_factor=2)
    >>> [round(float(rate(count)), 3) for count in (0, 2, 4, 7, 10)]
    [0.5, 0.75, 1.0, 0.5, 0.0]
    """
    name = "cosine_onecycle_schedule"
    start, low = _onecycle(name, transition_steps, peak_value, pct_start, div_factor)
    POSITIVE.check(name, "final_div_factor", final_div_factor)
    if not 0 < start < transition_steps:
        raise OptionError(
            f"{name}: each phase must have one step or more; got {transition_steps} "
            f"steps with pct_start={pct_start}"
        )
    places = [0, start, transition_steps]
    return _interpolated("cosine", places, [low, peak_value, low / final_div_factor])


def _onecycle(
    function: str, transition_steps: int, peak: Any, pct_start: float, div_factor: Any
) -> tuple[int, Any]:
    """The step of the peak, and the value at the start."""
    length = steps(function, "transition_steps", transition_steps)
    FINITE.check(function, "peak_value", peak)
    UNIT.check(function, "pct_start", pct_start)
    POSITIVE.check(function, "div_factor", div_factor)
    return int(pct_start * length), peak / div_factor
