"""The axes of a contraction, on plain integers: their roles, and checks.

Receives the types of two operands and which of their axes are contracted or batched;
gives the role of every axis (`Side`) and the sizes. Next on the walk: `matrices.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fnx import errors
from fnx.core.types import ArrayType
from fnx.records import record

Axes = tuple[int, ...]
Pair = tuple[Axes, Axes]


@record
class Side:
    """The axes of one operand, and where its free axes begin in the output."""

    batch: Axes
    free: Axes
    contract: Axes
    start: int

    @property
    def placed(self) -> Axes:
        """The output's axes that are this operand's free axes, in order."""
        return tuple(range(self.start, self.start + len(self.free)))

    @property
    def alignment(self) -> tuple[int | None, ...]:
        """For each axis the output axis that it is; `None` for contracted ones."""
        places = dict(zip(self.free, self.placed, strict=True))
        places.update({axis: place for place, axis in enumerate(self.batch)})
        ndim = len(self.batch) + len(self.free) + len(self.contract)
        return tuple([places.get(axis) for axis in range(ndim)])

    def index(self, outer: Sequence[Any], inner: Sequence[Any]) -> tuple[Any, ...]:
        """The operand's index from the output's and that of the contracted axes."""
        folded = dict(zip(self.contract, inner, strict=True))
        return tuple(
            [
                folded[axis] if place is None else outer[place]
                for axis, place in enumerate(self.alignment)
            ]
        )


def sides(x_ndim: int, y_ndim: int, contract: Pair, batch: Pair) -> tuple[Side, Side]:
    """The roles of the operands' axes.

    >>> x, y = sides(2, 3, ((1,), (0,)), ((), ()))
    >>> x.free, y.free, y.placed
    ((0,), (1, 2), (1, 2))
    """
    x_free = _free(x_ndim, contract[0], batch[0])
    y_free = _free(y_ndim, contract[1], batch[1])
    batched = len(batch[0])
    return (
        Side(batch[0], x_free, contract[0], batched),
        Side(batch[1], y_free, contract[1], batched + len(x_free)),
    )


def _free(ndim: int, contract: Axes, batch: Axes) -> Axes:
    return tuple([i for i in range(ndim) if i not in contract and i not in batch])


def output_shape(x_shape: Axes, y_shape: Axes, x: Side, y: Side) -> Axes:
    """The batch axes, the free axes of x, the free axes of y."""
    sizes = [x_shape[i] for i in x.batch + x.free]
    return tuple(sizes + [y_shape[i] for i in y.free])


def extents(shapes: Pair, x: Side, y: Side) -> tuple[int, int, int, int]:
    """The sizes as a stack of products of [m, k] by [k, n] matrices: stack, m, n, k."""
    x_shape, y_shape = shapes
    return (
        _size(x_shape, x.batch),
        _size(x_shape, x.free),
        _size(y_shape, y.free),
        _size(x_shape, x.contract),
    )


def _size(shape: Axes, axes: Axes) -> int:
    return math.prod([shape[axis] for axis in axes])


# ---------------------------------------------------------------- checks


def axis_pair(pair: Any, name: str) -> Pair:
    """Two tuples of axis numbers, from whatever sequences they were given as."""
    try:
        x, y = pair
        return tuple(map(int, x)), tuple(map(int, y))
    except (TypeError, ValueError):
        raise errors.ArgumentError(
            f"dot_general: {name} must be a pair of sequences of axis numbers, one for "
            f"each operand, got {pair!r}."
        ) from None


def check_contraction(
    asked: str, x: ArrayType, y: ArrayType, contract: Pair, batch: Pair
) -> None:
    """Raises unless every axis is there, named once, and paired with an equal one."""
    named = (("contract", contract), ("batch", batch))
    for name, (left, right) in named:
        if len(left) != len(right):
            reason = f"{name} has {len(left)} and {len(right)} axes"
            fix = "name the axes in pairs, one of each operand"
            raise errors.ShapeError(errors.explain(asked, reason, fix))
    _check_operand(asked, "first", x, contract[0] + batch[0])
    _check_operand(asked, "second", y, contract[1] + batch[1])
    for name, pair in named:
        for i, j in zip(*pair, strict=True):
            if x.shape[i] != y.shape[j]:
                reason = (
                    f"{name} pairs axis {i} of size {x.shape[i]} with axis {j} of size "
                    f"{y.shape[j]}"
                )
                fix = "paired axes must have equal sizes"
                raise errors.ShapeError(errors.explain(asked, reason, fix))


def _check_operand(asked: str, which: str, type: ArrayType, axes: Axes) -> None:
    for axis in axes:
        if not 0 <= axis < type.ndim:
            reason = f"axis {axis} of the {which} operand is not in [0, {type.ndim})"
            raise errors.AxisError(errors.explain(asked, reason))
    if len(set(axes)) < len(axes):
        reason = f"an axis of the {which} operand is named twice"
        fix = "an axis is contracted, batched or free"
        raise errors.AxisError(errors.explain(asked, reason, fix))
