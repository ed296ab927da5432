"""Momentum: a running sum of past updates. Next on the walk: `moments.py`."""

from __future__ import annotations

from typing import Any, NamedTuple

from fnx.core.array import Array
from fnx.optim.averages import zeros
from fnx.optim.hyperparameters import UNIT, float_dtype
from fnx.optim.leafwise import Here, leafwise
from fnx.optim.transformation import GradientTransformation, Updates
from fnx.optim.updates import Leaf


class TraceState(NamedTuple):
    """The running sum, a tree like the parameters."""

    trace: Updates


def trace(
    decay: float | Array, nesterov: bool = False, accumulator_dtype: Any = None
) -> GradientTransformation:
    """Give the decayed sum of all updates so far: t ← g + decay · t.

    With `nesterov`, what the next step would add is anticipated: g + decay · t, with
    the new t. The sum is kept in `accumulator_dtype`, by default the parameter's.
    Polyak, "Some methods of speeding up the convergence of iteration methods", 1964;
    Sutskever, Martens, Dahl and Hinton, "On the importance of initialization and
    momentum in deep learning", 2013.

    >>> import fnx.numpy as fnp
    >>> momentum = trace(0.5)
    >>> state = momentum.init(fnp.array([0.0]))
    >>> for _ in range(3):
    ...     updates, state = momentum.update(fnp.array([1.0]), state)
    ...     print(updates)
    [1.]
    [1.5]
    [1.75]
    """
    return momentum("trace", "decay", decay, nesterov, accumulator_dtype)


def momentum(
    function: str, argument: str, decay: Any, nesterov: bool, accumulator_dtype: Any
) -> GradientTransformation:
    """`trace` on behalf of an algorithm that its errors name."""
    UNIT.check(function, argument, decay)
    dtype = float_dtype(function, "accumulator_dtype", accumulator_dtype)

    def start(p: Leaf) -> tuple[Leaf]:
        return (zeros(p, dtype),)

    def rule(here: Here, total: Leaf) -> tuple[Leaf, Leaf]:
        total = here.g + decay * total
        return here.g + decay * total if nesterov else total, total

    return leafwise(function, TraceState, start, rule)
