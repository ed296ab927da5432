"""Orders: sort, argsort, lexsort, partition, searchsorted.

Receives arrays, gives them in order along an axis, or places in them. NaN comes last.
Next on the walk: `quantiles.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.promote import becomes_native
from fnx.config import busy
from fnx.core.array import Array
from fnx.numpy import on_numpy, ufuncs
from fnx.numpy.choices import choose_where
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    axis_index,
    broadcast,
    cast,
    inexact_dtype,
    promoted,
    refuse,
    typed,
)
from fnx.numpy.reductions import sum
from fnx.numpy.shaping import expand_dims, flip, ravel, reshape
from fnx.numpy.taking import take
from fnx.ops import parts
from fnx.ops import sort as sorts
from fnx.ops.arithmetic import add, select
from fnx.ops.elementwise import div, lt
from fnx.ops.elementwise import min as smaller
from fnx.ops.gather import points
from fnx.ops.pieces import part_of
from fnx.ops.shape import full, iota
from fnx.runtime.array import ConcreteArray, from_numpy


@at_once(on_numpy.sort)
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """The elements in ascending order along an axis (or of the flattened array).

    >>> import numpy as np
    >>> sort(np.array([3, 1, 2])).tolist()
    [1, 2, 3]
    """
    refuse("sort", kind=kind, order=order)
    x, place = _along("sort", a, axis)
    (out,) = sorts.sort(x, axis=place, num_keys=1, stable=stable)
    return flip(out, place) if descending else out


@at_once(on_numpy.argsort)
def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: DTypeLike = None,
) -> Array:
    """The places of the elements in ascending order.

    Equal elements keep their order, also in descending order.

    >>> import numpy as np
    >>> argsort(np.array([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    refuse("argsort", kind=kind, order=order)
    x, place = _along("argsort", a, axis)
    wanted = dtypes.default_int() if dtype is None else dtypes.as_dtype(dtype)
    if not busy and x.__class__ is ConcreteArray and not descending:
        order = sorts.sorting_order([np.asarray(x)], place)
        return from_numpy(np.array(order, wanted, order="C"))
    places = iota(shape=x.shape, dtype=wanted, axis=place)
    if descending:
        # Sorted from the end and read backwards: equal elements keep their order.
        x, places = flip(x, place), flip(places, place)
    _, out = sorts.sort(x, places, axis=place, num_keys=1, stable=stable)
    return flip(out, place) if descending else out


def _along(function: str, a: ArrayLike, axis: int | None) -> tuple[Array, int]:
    x = as_array(function, a)
    if axis is None:
        return ravel(x), 0
    return x, axis_index(function, axis, x.ndim)


@becomes_native
def lexsort(keys: Sequence[ArrayLike] | Array, axis: int = -1) -> Array:
    """The places in order of several keys, the last of which is the most important.

    >>> import numpy as np
    >>> lexsort([np.array([1, 0, 2]), np.array([0, 0, -1])]).tolist()
    [2, 1, 0]
    """
    arrays = [as_array("lexsort", key, i) for i, key in enumerate(keys)][::-1]
    place = axis_index("lexsort", axis, arrays[0].ndim)
    places = iota(shape=arrays[0].shape, dtype=dtypes.default_int(), axis=place)
    *_, out = sorts.sort(*arrays, places, axis=place, num_keys=len(arrays), stable=True)
    return out


@becomes_native
def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """The elements with the kth in its place, none smaller after it: all sorted."""
    x, place = _along("partition", a, axis)
    axis_index("partition", kth, x.shape[place], "kth")
    return sort(x, place)


def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """The places of what `partition` gives."""
    x, place = _along("argpartition", a, axis)
    axis_index("argpartition", kth, x.shape[place], "kth")
    return argsort(x, place)


@at_once(on_numpy.searchsorted)
def searchsorted(
    a: ArrayLike,
    v: ArrayLike,
    side: str = "left",
    sorter: ArrayLike | None = None,
    *,
    method: str = "scan",
) -> Array:
    """Where values would be inserted into a sorted array of rank 1.

    "left" is before equal elements, "right" after them. `method="compare_all"` compares
    with all elements at once (fast for short arrays), the others halve the array.

    >>> import numpy as np
    >>> searchsorted(np.array([1, 2, 4]), np.array([2, 3])).tolist()
    [1, 2]
    """
    if side not in ("left", "right"):
        raise errors.OptionError(
            f"searchsorted: side is 'left' or 'right', not {side!r}"
        )
    methods = ("scan", "scan_unrolled", "sort", "compare_all", "default")
    if method not in methods:
        raise errors.OptionError(
            f"searchsorted: method {method!r} is none of {methods}"
        )
    sides, dtype, _ = promoted("searchsorted", (a, v))
    x, values = [typed("searchsorted", side, dtype) for side in sides]
    if x.ndim != 1:
        raise errors.ShapeError(f"searchsorted takes an array of rank 1, got {x.type}")
    if sorter is not None:
        x = take(x, sorter, 0)
    passes = _not_before if side == "left" else _after
    if method == "compare_all":
        shape = (*values.shape, x.size)
        wide = broadcast(expand_dims(values, values.ndim), shape)
        places = sum(passes(wide, broadcast(x, shape)), -1, dtypes.int32)
    else:
        places = _bisected(x, values, passes)
    return cast(places, dtypes.default_int())


def _not_before(value: Array, element: Array) -> Array:
    """Whether the element comes before the value: NaN comes last."""
    nan = ufuncs.isnan
    return select(nan(value), parts.not_(nan(element)), ufuncs.less(element, value))


def _after(value: Array, element: Array) -> Array:
    """Whether the element does not come after the value."""
    return select(ufuncs.isnan(value), True, ufuncs.greater_equal(value, element))


def _bisected(x: Array, values: Array, passes: Any) -> Array:
    """Halves the range in which the place lies until it is one place."""
    low = full(values.shape, dtypes.int32, 0)
    high = full(values.shape, dtypes.int32, x.size)
    for _ in range(x.size.bit_length()):
        middle = div(add(low, high), 2)
        inside = smaller(middle, max(x.size - 1, 0))
        goes_on = parts.and_(passes(values, points(x, inside)), lt(low, high))
        low = select(goes_on, add(middle, 1), low)
        high = select(goes_on, high, middle)
    return low


@at_once(on_numpy.digitize)
def digitize(
    x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None
) -> Array:
    """The number of the bin that each value lies in; bins ascend or descend.

    Bins hold their left edge, or their right one with `right`; NaN is above all others.
    `method` is that of `searchsorted`.
    """
    how = method or "scan"
    edges = as_array("digitize", bins, 1)
    if edges.ndim != 1:
        raise errors.ShapeError(f"digitize: bins must be a vector, got {edges.type}")
    side = "left" if right else "right"
    if edges.size < 2:
        return searchsorted(edges, x, side, method=how)
    up = searchsorted(edges, x, side, method=how)
    down = searchsorted(flip(edges), x, side, method=how)
    first, last = part_of(edges, 0, 0, 1), part_of(edges, 0, edges.size - 1, edges.size)
    ascending = reshape(_after(last, first), ())
    return choose_where(ascending, up, ufuncs.subtract(edges.size, down))


@at_once(on_numpy.sort_complex)
def sort_complex(a: ArrayLike) -> Array:
    """The elements as complex numbers, sorted by real part, then by imaginary part.

    >>> import numpy as np
    >>> sort_complex(np.array([2.0, 1.0])).dtype
    dtype('complex128')
    """
    x = as_array("sort_complex", a)
    if dtypes.is_complex(x.dtype):
        return sort(x)
    return sort(cast(x, dtypes.complex_dtype(inexact_dtype(x.dtype))))
