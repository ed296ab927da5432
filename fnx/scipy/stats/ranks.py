"""Statistics of samples: mode, rankdata, sem.

Receives arrays, gives arrays; NaN spoils what it is in (`nan_policy="propagate"`). Next
on the walk: `kde.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fnx import errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import (
    counting,
    creation,
    joining,
    reductions,
    shaping,
    sorting,
    taking,
    ufuncs,
)
from fnx.numpy.operands import ArrayLike, as_array, axis_index
from fnx.ops.cumulative import cummax, cumsum


class ModeResult(NamedTuple):
    """What `mode` gives: the commonest values, and how often they are there."""

    mode: Array
    count: Array  # type: ignore[assignment]  # JAX's and SciPy's name


def _policy(function: str, nan_policy: str) -> None:
    if nan_policy != "propagate":
        raise errors.OptionError(
            f"{function}: nan_policy={nan_policy!r} is not supported; it must be "
            "'propagate'"
        )


def _rows(function: str, a: ArrayLike, axis: int | None) -> tuple[Array, int]:
    """The array and the number of its axis; flat if the axis is None."""
    array = as_array(function, a)
    if axis is None or not array.ndim:
        return shaping.reshape(array, (-1,)), 0
    return array, axis_index(function, axis, array.ndim)


def _is_new(ordered: Array) -> Array:
    """Along the last axis of what is sorted: where another value begins."""
    before, after = ordered[..., :-1], ordered[..., 1:]
    unknown = (before != before) & (after != after)
    changes = (before != after) & ~unknown
    first = creation.ones_like(ordered[..., :1], dtype=bool)
    return joining.concatenate([first, changes], axis=-1)


@becomes_native
def mode(
    a: ArrayLike,
    axis: int | None = 0,
    nan_policy: str = "propagate",
    keepdims: bool = False,
) -> ModeResult:
    """The commonest value along an axis, the smallest of several, and its count.

    Raises `OptionError` for another `nan_policy`; equal NaNs count as one value.

    >>> import numpy as np
    >>> mode(np.array([2, 4, 1, 1, 3, 4, 4])).mode.item()
    4
    """
    _policy("mode", nan_policy)
    array, place = _rows("mode", a, axis)
    ordered = sorting.sort(shaping.moveaxis(array, place, -1), axis=-1)
    if not ordered.shape[-1]:
        raise errors.ShapeError(
            f"mode: there is nothing along axis {axis}: {array.type}"
        )
    index = creation.arange(ordered.shape[-1])
    starts = counting.where(_is_new(ordered), index, 0)
    lengths = index - cummax(starts, axis=ordered.ndim - 1, reverse=False) + 1
    best = reductions.argmax(lengths, axis=-1, keepdims=True)
    found = [taking.take_along_axis(x, best, axis=-1) for x in (ordered, lengths)]
    if keepdims:
        shape = [1] * as_array("mode", a).ndim if axis is None else None
        moved = [shaping.moveaxis(x, -1, place) for x in found]
        if shape is not None:
            moved = [shaping.reshape(x, tuple(shape)) for x in moved]
        return ModeResult(*moved)
    return ModeResult(*[x[..., 0] for x in found])


@becomes_native
def rankdata(
    a: ArrayLike,
    method: str = "average",
    *,
    axis: int | None = None,
    nan_policy: str = "propagate",
) -> Array:
    """The rank of each element, from 1 on, along an axis or among all.

    Equal elements get the average, the smallest (`min`) or the largest (`max`) of their
    ranks, ranks without gaps (`dense`), or others in their order (`ordinal`).

    >>> import numpy as np
    >>> rankdata(np.array([0, 2, 3, 2])).tolist()
    [1.0, 2.5, 4.0, 2.5]
    """
    _policy("rankdata", nan_policy)
    methods = ("average", "min", "max", "dense", "ordinal")
    if method not in methods:
        raise errors.OptionError(
            f"rankdata: method must be one of {methods}, got {method!r}"
        )
    array, place = _rows("rankdata", a, axis)
    rows = shaping.moveaxis(array, place, -1)
    order = sorting.argsort(rows, axis=-1)
    ordered = taking.take_along_axis(rows, order, axis=-1)
    ranks = _ranks(ordered, method)
    # Back from the order to the places.
    places = sorting.argsort(order, axis=-1)
    ranks = taking.take_along_axis(ranks, places, axis=-1)
    ranks = shaping.moveaxis(ranks, -1, place)
    if not ufuncs.isnan(array).size or array.dtype.kind in "iub":
        return ranks
    spoiled = reductions.any(ufuncs.isnan(array), axis=place, keepdims=True)
    return counting.where(spoiled, float("nan"), ranks)


def _ranks(ordered: Array, method: str) -> Array:
    """The ranks of what is sorted along the last axis."""
    size, last = ordered.shape[-1], ordered.ndim - 1
    number = creation.arange(1, size + 1)
    number = shaping.broadcast_to(number, ordered.shape)
    if method == "ordinal":
        return number
    new = _is_new(ordered)
    if method == "dense":
        return cumsum(counting.where(new, 1, 0), axis=last, reverse=False)
    low = cummax(counting.where(new, number, 0), axis=last, reverse=False)
    if method == "min":
        return low
    # From the right, the first of a run is the one before another begins.
    ends = joining.concatenate(
        [new[..., 1:], creation.ones_like(new[..., :1])], axis=-1
    )
    left = counting.where(ends, size + 1 - number, 0)
    high = size + 1 - cummax(left, axis=last, reverse=True)
    if method == "max":
        return high
    return ufuncs.true_divide(low + high, 2)


@becomes_native
def sem(
    a: ArrayLike,
    axis: int | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Array:
    """The standard error of the mean along an axis, or of all elements.

    >>> import numpy as np
    >>> sem(np.array([1.0, 2.0, 3.0])).item()
    0.5773502691896258
    """
    _policy("sem", nan_policy)
    array = as_array("sem", a)
    if not array.ndim:
        array = shaping.reshape(array, (1,))
    count: Any = array.size if axis is None else array.shape[axis]
    spread = reductions.std(array, axis, ddof=ddof, keepdims=keepdims)
    return spread / float(count) ** 0.5
