"""Running averages of updates: `ema`, and the sum of every few of them.

Receives updates, gives updates. Next on the walk: `squares.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx.core.array import Array
from fnx.optim.averages import average, correction, zeros
from fnx.optim.hyperparameters import UNIT, float_dtype, steps
from fnx.optim.leafwise import Here, leafwise
from fnx.optim.transformation import GradientTransformation, Updates
from fnx.optim.updates import Leaf


class EmaState(NamedTuple):
    """The number of updates made (int32) and their running average."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    ema: Updates


def ema(
    decay: float | Array, debias: bool = True, accumulator_dtype: Any = None
) -> GradientTransformation:
    """Replace updates by their running average, m ← decay · m + (1 - decay) · g.

    `debias` divides it by 1 - decayᵗ, since it starts at 0. It is kept in
    `accumulator_dtype`, by default the parameter's.

    >>> smooth = ema(0.5)
    >>> state = smooth.init(fnp.zeros(1))
    >>> for g in (1.0, 4.0):
    ...     updates, state = smooth.update(fnp.array([g]), state)
    ...     print(updates)
    [1.]
    [3.]
    """
    return smoothing("ema", "decay", decay, debias, accumulator_dtype)


def smoothing(
    function: str, argument: str, decay: Any, debias: bool, accumulator_dtype: Any
) -> GradientTransformation:
    """`ema` on behalf of an algorithm that its errors name."""
    UNIT.check(function, argument, decay)
    dtype = float_dtype(function, "accumulator_dtype", accumulator_dtype)

    def start(p: Leaf) -> tuple[Leaf]:
        return (zeros(p, dtype),)

    def rule(here: Here, mean: Leaf) -> tuple[Leaf, Leaf]:
        mean = average(mean, here.g, decay)
        if not debias:
            return mean, mean
        return mean / correction(decay, here.count, mean.dtype), mean

    return leafwise(function, EmaState, start, rule)


class ApplyEvery(NamedTuple):
    """The number of updates made (int32) and the sum of the latest."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    grad_acc: Updates


def apply_every(k: int = 1) -> GradientTransformation:
    """Give the sum of k updates every k-th time, and zeros between.

    `MultiSteps` does the same to gradients, before they become steps.

    >>> every = apply_every(2)
    >>> state = every.init(fnp.zeros(1))
    >>> for g in (1.0, 4.0, 2.0):
    ...     updates, state = every.update(fnp.array([g]), state)
    ...     print(updates)
    [0.]
    [5.]
    [0.]
    """
    k = steps("apply_every", "k", k)

    def start(p: Leaf) -> tuple[Leaf]:
        return (zeros(p),)

    def rule(here: Here, total: Leaf) -> tuple[Leaf, Leaf]:
        total = here.g + fnp.where(here.count % k == 1 % k, 0, total)
        return fnp.where(here.count % k == 0, total, 0), total

    return leafwise("apply_every", ApplyEvery, start, rule)
