"""Counts and places by value: nonzero, isin, bincount, diff.

Functions whose result has a size that depends on the values (`nonzero`, `bincount`)
need known values, or `size=...`. Receives arrays, gives arrays. Next on the walk:
`interpolation.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.key_arrays import takes_keys
from fnx.api.promote import becomes_native, becomes_native_with_numbers
from fnx.core.array import Array
from fnx.numpy import on_numpy, ufuncs
from fnx.numpy.choices import choose_where, truth
from fnx.numpy.joining import concatenate
from fnx.numpy.operands import (
    ArrayLike,
    as_array,
    axis_index,
    broadcast,
    cast,
    promoted,
    typed,
)
from fnx.numpy.reductions import any, cumsum, sum
from fnx.numpy.shaping import expand_dims, moveaxis, ravel, reshape
from fnx.numpy.sorting import searchsorted
from fnx.ops import parts
from fnx.ops.arithmetic import mul, select, sub
from fnx.ops.elementwise import div, lt
from fnx.ops.elementwise import min as smaller
from fnx.ops.gather import POINTS, points
from fnx.ops.pieces import part_of
from fnx.ops.scatter import scatter_add
from fnx.ops.shape import full, iota
from fnx.ops.sort import sort as in_order
from fnx.runtime.device_array import beside


def _known(function: str, x: Array) -> np.ndarray:
    try:
        return np.asarray(x)
    except errors.TracerValueError as error:
        raise errors.TracerValueError(
            f"{function}: the size of the result depends on the values: {error}\n"
            "  Call it outside of the transformed function, or give size=... where the "
            "function has it."
        ) from None


@at_once(on_numpy.nonzero)
def nonzero(
    a: ArrayLike, *, size: int | None = None, fill_value: Any = None
) -> tuple[Array, ...]:
    """The places of the elements that are not 0, an array for each axis.

    With `size` the result has that many, the missing ones are `fill_value` (or 0), and
    the values may be traced.

    >>> nonzero(np.array([0, 5, 0, 7]))[0].tolist()
    [1, 3]
    """
    x = as_array("nonzero", a)
    if not x.ndim:
        raise errors.ShapeError("nonzero: an array of rank 0 has no places")
    mask = truth("nonzero", x)
    if size is None:
        found = _known("nonzero", mask).nonzero()
        return tuple([beside(i.astype(dtypes.default_int()), x) for i in found])
    return _nonzero_of_size(mask, size, fill_value)


def _nonzero_of_size(mask: Array, size: int, fill_value: Any) -> tuple[Array, ...]:
    dtype = dtypes.default_int()
    flat = cast(ravel(mask), dtype)
    # The i-th place is the first where i + 1 elements have been met.
    wanted = iota(shape=(size,), dtype=dtype, axis=0)
    place = searchsorted(cumsum(flat), wanted, side="right")
    there = lt(wanted, broadcast(sum(flat), (size,)))
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * mask.ndim
    found = []
    rest = place
    for n, fill in zip(mask.shape[::-1], fills[::-1], strict=True):
        i = sub(rest, mul(div(rest, n), n)) if n else rest
        rest = div(rest, n) if n else rest
        found.append(cast(choose_where(there, i, 0 if fill is None else fill), dtype))
    return tuple(found[::-1])


@becomes_native_with_numbers
@takes_keys(1, 2)
def where(
    condition: ArrayLike,
    x: ArrayLike | None = None,
    y: ArrayLike | None = None,
    /,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """X where the condition holds, y elsewhere; all three are broadcast.

    The branch that is not chosen gets gradient 0, even where its derivative is infinite
    or NaN. With the condition alone this is `nonzero(condition)`.

    >>> where(np.array([True, False]), 1.0, 2.0).tolist()
    [1.0, 2.0]
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise errors.ArgumentError("where takes both x and y, or neither")
    if size is not None or fill_value is not None:
        raise errors.ArgumentError("where: size and fill_value go without x and y")
    return choose_where(condition, x, y)


def flatnonzero(
    a: ArrayLike, *, size: int | None = None, fill_value: Any = None
) -> Array:
    """The places in the flattened array of the elements that are not 0."""
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The places of the elements that are not 0, one a row."""
    x = as_array("argwhere", a)
    columns = nonzero(x, size=size, fill_value=fill_value)
    return moveaxis(_stacked(columns), 0, -1)


def _stacked(arrays: Sequence[Array]) -> Array:
    from_rows = [reshape(x, (1, x.size)) for x in arrays]
    return concatenate(from_rows, 0)


_FEW = 64  # To compare with so many is quicker than to sort them.


def _is_among(x: Array, others: Array) -> Array:
    """Whether each element is one of the others, which are sorted."""
    values, dtype, _ = promoted("isin", (x, others))
    wanted, known = [typed("isin", value, dtype) for value in values]
    if not known.size:
        return full(wanted.shape, dtypes.bool_, False)
    (ordered,) = in_order(known, axis=0, num_keys=1, stable=True)
    place = smaller(searchsorted(ordered, wanted), known.size - 1)
    return ufuncs.equal(points(ordered, place), wanted)


@becomes_native
def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Array:
    """Whether each element is one of the others (or none of them, with `invert`).

    `method` is "compare_all", "sort" or "binary_search" (which both need less memory
    where there are many others), or "auto"; `assume_unique` permits a shortcut that
    none of them takes.

    >>> isin(np.array([1, 2]), np.array([2, 3])).tolist()
    [False, True]
    """
    x, others = as_array("isin", element), ravel(as_array("isin", test_elements, 1))
    if method not in ("auto", "compare_all", "sort", "binary_search"):
        raise errors.OptionError(
            f"isin: method {method!r} is none of auto, compare_all, sort, binary_search"
        )
    if method == "auto":
        method = "compare_all" if others.size <= _FEW else "sort"
    if method != "compare_all":
        found = _is_among(x, others)
        return parts.not_(found) if invert else found
    shape = (*x.shape, others.size)
    wide = broadcast(expand_dims(x, x.ndim), shape)
    found = any(ufuncs.equal(wide, broadcast(others, shape)), -1)
    return parts.not_(found) if invert else found


@at_once(on_numpy.bincount)
def bincount(
    x: ArrayLike,
    weights: ArrayLike | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
) -> Array:
    """How often each of 0, 1, 2, … occurs, or the sum of the weights where it does.

    Without `length` the values must be known; numbers out of range are left out.
    Booleans, as values or as weights, count as 0 and 1.

    >>> bincount(np.array([0, 2, 2])).tolist()
    [1, 0, 2]
    """
    values = as_array("bincount", x)
    if dtypes.is_bool(values.dtype):
        values = cast(values, dtypes.default_int())
    if values.ndim != 1 or not dtypes.is_integer(values.dtype):
        raise errors.ShapeError(
            f"bincount takes a vector of integers, got {values.type}"
        )
    if length is None:
        known = _known("bincount", values)
        length = max(minlength, int(known.max()) + 1 if known.size else 0)
    ones = full(values.shape, dtypes.default_int(), 1)
    amounts = ones if weights is None else as_array("bincount", weights, 1)
    if dtypes.is_bool(amounts.dtype):
        amounts = cast(amounts, dtypes.default_int())
    start = full((length,), amounts.dtype, 0)
    if values.dtype.itemsize < 4:  # which may not hold the length
        values = cast(values, dtypes.default_int())
    places = select(lt(values, 0), length, values)
    column = reshape(places, (values.size, 1))
    return scatter_add(start, column, amounts, dims=POINTS, mode="fill")


@becomes_native
def diff(
    a: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Array:
    """The n-th differences of neighbours along an axis.

    >>> diff(np.array([1, 4, 9])).tolist()
    [3, 5]
    """
    x = as_array("diff", a)
    place = axis_index("diff", axis, x.ndim)
    if n == 0:
        return x
    ends = [_end(x, value, place) for value in (prepend, append)]
    row = [ends[0], x, ends[1]]
    x = concatenate([part for part in row if part is not None], place)
    for _ in range(n):
        size = x.shape[place]
        later = part_of(x, place, min(1, size), size)
        x = _difference(later, part_of(x, place, 0, max(size - 1, 0)))
    return x


def _difference(x: Array, y: Array) -> Array:
    """X - y, or whether they differ, of booleans."""
    if dtypes.is_bool(x.dtype):
        return ufuncs.not_equal(x, y)
    return sub(x, y)


def _end(x: Array, value: ArrayLike | None, axis: int) -> Array | None:
    if value is None:
        return None
    _, dtype, weak = promoted("diff", (x, value))
    end = typed("diff", value, dtype, weak)
    if end.ndim:
        return end
    return broadcast(end, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
