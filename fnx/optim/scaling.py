"""Updates times a number: fixed, from a schedule, or the learning rate.

Receives updates, gives updates of the same dtypes. Next on the walk: `schedules.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fnx import tree
from fnx.core.array import Array
from fnx.errors import ArgumentError
from fnx.optim.hyperparameters import FINITE, NOT_NEGATIVE, ScalarOrSchedule, Schedule
from fnx.optim.transformation import (
    GradientTransformation,
    OptState,
    Params,
    Updates,
    identity,
    stateless,
    transformation,
)
from fnx.optim.updates import first_count, floating, next_count, scaled


class ScaleByScheduleState(NamedTuple):
    """How many updates were made: int32, rank 0."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed


def scale(step_size: float | Array) -> GradientTransformation:
    """Multiply the updates by a number.

    >>> import fnx.numpy as fnp
    >>> scale(-0.5).update(fnp.array([2.0]), ())[0]
    Array([-1.], dtype=float32)
    """
    FINITE.check("scale", "step_size", step_size)
    return scaling_by("scale", step_size)


def scaling_by(function: str, factor: Any) -> GradientTransformation:
    """`scale` on behalf of an algorithm that its errors name."""
    return stateless(lambda updates, params: _scaled_tree(function, updates, factor))


def scale_by_schedule(step_size_fn: Schedule) -> GradientTransformation:
    """Multiply the updates by `step_size_fn(count)`, where count is 0 at the first.

    >>> import fnx.numpy as fnp
    >>> by_count = scale_by_schedule(lambda count: 1.0 * count)
    >>> state = by_count.init(None)
    >>> for _ in range(2):
    ...     updates, state = by_count.update(fnp.array([2.0]), state)
    ...     print(updates)
    [0.]
    [2.]
    """
    if not callable(step_size_fn):
        raise ArgumentError(
            "scale_by_schedule: step_size_fn must be a function of the step count, got "
            f"{step_size_fn!r}; for a fixed number use fnx.optim.scale"
        )

    def init(params: Params) -> OptState:
        return ScaleByScheduleState(first_count())

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        size = step_size_fn(state.count)
        updates = _scaled_tree("scale_by_schedule", updates, size)
        return updates, ScaleByScheduleState(next_count(state.count))

    return transformation(init, update)


def scale_by_learning_rate(
    learning_rate: ScalarOrSchedule | None = None, *, flip_sign: bool = True
) -> GradientTransformation:
    """Multiply the updates by minus the learning rate (plus, if not `flip_sign`).

    The rate is a number, 0 or more, or a schedule; the last link of most chains. With
    None the updates stay as they are, sign included.

    >>> import fnx.numpy as fnp
    >>> scale_by_learning_rate(0.1).update(fnp.array([10.0]), ())[0]
    Array([-1.], dtype=float32)
    """
    return optional_rate("scale_by_learning_rate", learning_rate, flip_sign)


def signed_rate(
    function: str, rate: Any, flip_sign: bool = True
) -> GradientTransformation:
    """`scale_by_learning_rate` on behalf of an algorithm that its errors name."""
    NOT_NEGATIVE.check_or_schedule(function, "learning_rate", rate)
    sign = -1 if flip_sign else 1
    if callable(rate):
        return scale_by_schedule(lambda count: sign * rate(count))
    return scaling_by(function, sign * rate)


def optional_rate(
    function: str, rate: Any, flip_sign: bool = True
) -> GradientTransformation:
    """As `signed_rate`; with None the updates stay as they are."""
    return identity() if rate is None else signed_rate(function, rate, flip_sign)


def _scaled_tree(function: str, updates: Updates, factor: Any) -> Updates:
    updates = floating(function, "updates", updates)
    return tree.map(lambda g: scaled(g, factor), updates)
