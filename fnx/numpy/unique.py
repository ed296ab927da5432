"""Sets: unique and what is made of it. Sizes depend on values, or are given.

Receives arrays whose values are known; with `size=...` they may be traced. Gives sorted
arrays without repetitions. Next on the walk: `statistics.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy import ufuncs
from fnx.numpy.choices import choose_where
from fnx.numpy.counting import bincount, isin, nonzero
from fnx.numpy.creation import arange, asarray
from fnx.numpy.indexing import get
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
from fnx.numpy.shaping import moveaxis, ravel, reshape
from fnx.numpy.sorting import lexsort
from fnx.numpy.taking import take
from fnx.numpy.updating import At
from fnx.ops.shape import full
from fnx.runtime.device_array import beside


def _known(function: str, x: Array) -> Any:
    try:
        return np.asarray(x)
    except errors.TracerValueError as error:
        raise errors.TracerValueError(
            f"{function}: the size of the result depends on the values: {error}\n"
            "  Call it outside of the transformed function, or give size=..."
        ) from None


def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Any:
    """The different elements (or slices along an axis), sorted.

    Optionally also the place of the first of each, for each element its place among
    them, and how often each occurs. With `size` there are so many of them, the missing
    ones are `fill_value` (by default the smallest element), and the values may be
    traced. `sorted=False` allows another order, which is not made use of.

    >>> unique(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    x = as_array("unique", ar)
    wanted = bool(return_index), bool(return_inverse), bool(return_counts)
    along = None if axis is None else axis_index("unique", axis, x.ndim)
    if size is None:
        values = _known("unique", x)
        return _of_values(values, wanted, along, equal_nan, x)
    found = _of_size(x, along, equal_nan, size.__index__(), fill_value)
    rows = zip(found, (True, *wanted), strict=True)
    parts = [part for part, is_wanted in rows if is_wanted]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _of_values(
    values: np.ndarray[Any, Any],
    wanted: tuple[bool, bool, bool],
    axis: int | None,
    equal_nan: bool,
    like: Array,
) -> Any:
    """What NumPy gives; it takes longer to find the places, too."""
    different: Any = np.unique
    found = different(values, *wanted, axis=axis, equal_nan=equal_nan)
    if wanted == (False, False, False):
        return beside(found, like)
    values, *places = found
    integers = [part.astype(dtypes.default_int()) for part in places]
    return tuple([beside(part, like) for part in (values, *integers)])


def _of_size(
    x: Array, axis: int | None, equal_nan: bool, size: int, fill_value: Any
) -> list[Array]:
    """What `unique` gives, by sorting: each first of its kind begins a group."""
    rows = ravel(x) if axis is None else moveaxis(x, axis, 0)
    n = rows.shape[0]
    table = reshape(rows, (n, rows.size // n if n else 0))
    columns = [get(table, (slice(None), i)) for i in range(table.shape[1])]
    order = lexsort(columns[::-1]) if columns else arange(n)
    ordered = take(table, order, 0)
    later, earlier = get(ordered, slice(1, None)), get(ordered, slice(0, max(n - 1, 0)))
    differs = ufuncs.not_equal(later, earlier)
    if equal_nan:
        both = ufuncs.bitwise_and(ufuncs.isnan(later), ufuncs.isnan(earlier))
        differs = ufuncs.bitwise_and(differs, ufuncs.bitwise_not(both))
    first = full((min(n, 1),), dtypes.bool_, True)
    begins = concatenate([first, any(differs, 1)])
    group = ufuncs.subtract(cumsum(begins, dtype=dtypes.default_int()), 1)
    (starts,) = nonzero(begins, size=size)
    places = take(order, starts, 0, mode="clip") if n else starts
    inverse = At(full((n,), dtypes.default_int(), 0))[order].set(group)
    counts = bincount(group, length=size)
    values = take(rows, places, 0, mode="clip") if n else _nothing(rows, size)
    if fill_value is not None or not n:
        there = ufuncs.less(arange(size), sum(begins, dtype=dtypes.default_int()))
        thin = reshape(there, (size, *(1,) * (rows.ndim - 1)))
        fill = cast(asarray(0 if fill_value is None else fill_value), x.dtype)
        values = choose_where(thin, values, fill)
    if axis is None:
        return [values, places, reshape(inverse, x.shape), counts]
    return [moveaxis(values, 0, axis), places, inverse, counts]


def _nothing(rows: Array, size: int) -> Array:
    return full((size, *rows.shape[1:]), rows.dtype, 0)


# ---------------------------------------------------------------- array API


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Array
    inverse_indices: Array


def unique_all(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueAll:
    """The different elements with first places, inverse and counts; NaNs all differ.

    >>> unique_all(np.array([3, 1, 3])).counts.tolist()
    [1, 2]
    """
    options: Any = {"equal_nan": False, "size": size, "fill_value": fill_value}
    return UniqueAll(*unique(x, True, True, True, **options))


def unique_counts(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueCounts:
    """The different elements, and how often each occurs; NaNs all differ.

    >>> unique_counts(np.array([3, 1, 3])).values.tolist()
    [1, 3]
    """
    options: Any = {"equal_nan": False, "size": size, "fill_value": fill_value}
    return UniqueCounts(*unique(x, return_counts=True, **options))


def unique_inverse(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> UniqueInverse:
    """The different elements, and each element's place among them; NaNs all differ.

    >>> unique_inverse(np.array([3, 1, 3])).inverse_indices.tolist()
    [1, 0, 1]
    """
    options: Any = {"equal_nan": False, "size": size, "fill_value": fill_value}
    return UniqueInverse(*unique(x, return_inverse=True, **options))


def unique_values(
    x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None
) -> Array:
    """The different elements, sorted; NaNs all differ.

    >>> unique_values(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# ---------------------------------------------------------------- of two sets


def union1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """What is in one of both, sorted; `size` and `fill_value` as in `unique`.

    >>> union1d(np.array([1, 2]), np.array([2, 3])).tolist()
    [1, 2, 3]
    """
    both = concatenate(_two("union1d", ar1, ar2))
    return unique(both, size=size, fill_value=fill_value)


def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Any:
    """What is in both, sorted, and where it is first in either if `return_indices`.

    `assume_unique` promises that neither repeats itself, which saves work. With `size`
    what is missing is `fill_value` (by default the first element), and its place is one
    past the end.

    >>> intersect1d(np.array([1, 2]), np.array([2, 3])).tolist()
    [2]
    """
    x, y = _two("intersect1d", ar1, ar2)
    if size is None:
        left, right = [_known("intersect1d", side) for side in (x, y)]
        # The stubs know the two values of the option, not a bool.
        found: Any = np.intersect1d(left, right, assume_unique, return_indices)  # type: ignore[call-overload]
        if not return_indices:
            return beside(np.array(found), x, y)
        values, *places = found
        integers = [part.astype(dtypes.default_int()) for part in places]
        return tuple([beside(np.array(part), x, y) for part in (values, *integers)])
    values, there, first = _different(x)
    common = ufuncs.bitwise_and(there, isin(values, y))
    found, kept = _chosen(values, common, size, fill_value)
    if not return_indices:
        return found
    others, others_there, others_first = _different(y)
    matches = ufuncs.equal(_column(found, others.size), others)
    matches = ufuncs.bitwise_and(matches, others_there)
    second = sum(choose_where(matches, others_first, 0), 1, dtypes.default_int())
    (order,) = nonzero(common, size=size)
    places = take(first, order, 0, mode="clip")
    past = [choose_where(kept, p, n) for p, n in ((places, x.size), (second, y.size))]
    return found, *past


def _column(x: Array, count: int) -> Array:
    """A vector as a column, repeated so many times."""
    return broadcast(reshape(x, (x.size, 1)), (x.size, count))


def setdiff1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """What is in the first only, sorted (in its order with `assume_unique`).

    With `size` what is missing is `fill_value`, by default 0.

    >>> setdiff1d(np.array([1, 2]), np.array([2, 3])).tolist()
    [1]
    """
    x, y = _two("setdiff1d", ar1, ar2)
    if size is None:
        left, right = [_known("setdiff1d", side) for side in (x, y)]
        return beside(np.array(np.setdiff1d(left, right, assume_unique)), x, y)
    if assume_unique:
        values, there = x, full(x.shape, dtypes.bool_, True)
    else:
        values, there, _ = _different(x)
    alone = ufuncs.bitwise_and(there, isin(values, y, invert=True))
    fill = 0 if fill_value is None else fill_value
    return _chosen(values, alone, size, fill)[0]


def setxor1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """What is in one only, sorted; `size` and `fill_value` as in `intersect1d`.

    >>> setxor1d(np.array([1, 2]), np.array([2, 3])).tolist()
    [1, 3]
    """
    x, y = _two("setxor1d", ar1, ar2)
    if size is None:
        left, right = [_known("setxor1d", side) for side in (x, y)]
        return beside(np.array(np.setxor1d(left, right, assume_unique)), x, y)
    both = concatenate([x, y])
    values, there, _ = _different(both)
    one = ufuncs.bitwise_xor(isin(values, x), isin(values, y))
    return _chosen(values, ufuncs.bitwise_and(there, one), size, fill_value)[0]


def _two(function: str, ar1: ArrayLike, ar2: ArrayLike) -> list[Array]:
    values, dtype, _ = promoted(function, (ar1, ar2))
    return [ravel(typed(function, x, dtype)) for x in values]


def _different(x: Array) -> tuple[Array, Array, Array]:
    """The different elements, filled up; which are no filling; their first places."""
    values, places, counts = unique(x, True, False, True, size=x.size)
    return values, ufuncs.greater(counts, 0), places


def _chosen(
    values: Array, mask: Array, size: int, fill_value: Any
) -> tuple[Array, Array]:
    """The values where a mask holds, filled up, and which are no filling."""
    (places,) = nonzero(mask, size=size)
    kept = ufuncs.less(arange(size), sum(mask, dtype=dtypes.default_int()))
    if not values.size:
        values = full((1,), values.dtype, 0)
    found = take(values, places, 0, mode="clip")
    # The first one that was chosen fills up what is missing.
    fill = get(found, slice(0, 1)) if fill_value is None else fill_value
    return cast(choose_where(kept, found, fill), values.dtype), kept
