"""segment_sum and its kin, which users call as `fnx.ops.segment_sum`.

Receives rows and for each the number of its segment, gives a row for each segment:
scatters into the identity of the operation. Next on the walk: `contractions.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import reductions
from fnx.numpy.creation import arange, full
from fnx.numpy.mathematics import floor_divide
from fnx.numpy.operands import ArrayLike, as_array, cast, strong
from fnx.numpy.updating import IndexUpdate
from fnx.records import record


@record
class _Operation:
    """How rows of a segment are combined, and what a segment without rows gets."""

    method: Callable[..., Array]
    reduce: Callable[..., Array]
    identity: Callable[[np.dtype[Any]], Any]


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -math.inf if dtypes.is_float(dtype) else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    return math.inf if dtypes.is_float(dtype) else np.iinfo(dtype).max


_SUM = _Operation(IndexUpdate.add, reductions.sum, lambda dtype: 0)
_PROD = _Operation(IndexUpdate.multiply, reductions.prod, lambda dtype: 1)
_MAX = _Operation(IndexUpdate.max, reductions.max, _lowest)
_MIN = _Operation(IndexUpdate.min, reductions.min, _highest)


def segment_sum(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """The sum of the rows of each segment; 0 for one without rows.

    `segment_ids` are integers, one for each row of `data`. There are `num_segments`
    segments, by default one more than the largest number, which then must be known.
    Rows of segments outside of [0, num_segments) are left out, unless `mode` is "clip",
    which counts them to the next one, or "promise_in_bounds". `indices_are_sorted` and
    `unique_indices` promise that the numbers are, and that each comes once; the second
    makes derivatives cheaper. With `bucket_size`, so many rows at a time are combined,
    and then those results, which rounds less.

    Raises `ShapeError`, `DTypeError`, `ArgumentError`, by the argument's name.

    >>> import numpy as np
    >>> segment_sum(np.arange(5.0), np.array([0, 0, 2, 2, 2]))
    Array([1., 0., 9.], dtype=float64)
    """
    options = indices_are_sorted, unique_indices, bucket_size, mode
    return _segments("segment_sum", _SUM, data, segment_ids, num_segments, *options)


@becomes_native
def segment_prod(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """The product of the rows of each segment; 1 for one without rows.

    The arguments are those of `segment_sum`.

    >>> import numpy as np
    >>> segment_prod(np.arange(5.0), np.array([1, 0, 0, 1, 3]), 4)
    Array([2., 0., 1., 4.], dtype=float64)
    """
    options = indices_are_sorted, unique_indices, bucket_size, mode
    return _segments("segment_prod", _PROD, data, segment_ids, num_segments, *options)


@becomes_native
def segment_max(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """The largest of the rows of each segment, element by element.

    One without rows gets -inf, or the smallest integer of the dtype. The arguments are
    those of `segment_sum`.

    >>> import numpy as np
    >>> segment_max(np.arange(5.0), np.array([0, 0, 2, 2, 0]))
    Array([  4., -inf,   3.], dtype=float64)
    """
    options = indices_are_sorted, unique_indices, bucket_size, mode
    return _segments("segment_max", _MAX, data, segment_ids, num_segments, *options)


@becomes_native
def segment_min(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """The smallest of the rows of each segment, element by element.

    One without rows gets inf, or the largest integer of the dtype. The arguments are
    those of `segment_sum`.

    >>> import numpy as np
    >>> segment_min(np.arange(5.0), np.array([0, 0, 2, 2, 0]))
    Array([ 0., inf,  2.], dtype=float64)
    """
    options = indices_are_sorted, unique_indices, bucket_size, mode
    return _segments("segment_min", _MIN, data, segment_ids, num_segments, *options)


def _segments(
    name: str,
    operation: _Operation,
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None,
    indices_are_sorted: bool,
    unique_indices: bool,
    bucket_size: int | None,
    mode: str | None,
) -> Array:
    rows, numbers = strong(as_array(name, data)), as_array(name, segment_ids, 1)
    if numbers.ndim != 1 or rows.shape[:1] != numbers.shape:
        raise errors.ShapeError(
            errors.explain(
                f"{name}: segment_ids is {numbers.type}",
                f"data is {rows.type}, and each of its rows has a number",
                "pass a vector as long as data",
            )
        )
    if not dtypes.is_integer(numbers.dtype):
        raise errors.DTypeError(
            f"{name}: segment_ids must be integers, got {numbers.type}"
        )
    if not (dtypes.is_integer(rows.dtype) or dtypes.is_inexact(rows.dtype)):
        raise errors.DTypeError(
            errors.explain(f"{name}: data is {rows.type}", "", "convert it to numbers")
        )
    count = _count(name, numbers, num_segments)
    empty = operation.identity(rows.dtype)

    def combined(shape: tuple[int, ...], index: Any) -> Array:
        return operation.method(
            IndexUpdate(full(shape, empty, rows.dtype), index),
            rows,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            mode="drop" if mode is None else mode,
            wrap_negative_indices=False,
        )

    if bucket_size is None:
        return combined((count, *rows.shape[1:]), numbers)
    if not isinstance(bucket_size, int) or bucket_size < 1:
        raise errors.ArgumentError(
            f"{name}: bucket_size must be a positive integer, got {bucket_size!r}"
        )
    length = rows.shape[0]
    buckets = -(-length // bucket_size)
    places = floor_divide(arange(length), bucket_size)
    parts = combined((buckets, count, *rows.shape[1:]), (places, numbers))
    return cast(operation.reduce(parts, 0), rows.dtype)


def _count(name: str, numbers: Array, given: int | None) -> int:
    """How many segments there are."""
    if given is not None:
        try:
            count = operator.index(given)
        except TypeError:
            count = -1
        if count < 0:
            raise errors.ArgumentError(
                f"{name}: num_segments must be an integer of at least 0, got {given!r}"
            )
        return count
    if not numbers.size:
        return 0
    try:
        largest = int(reductions.max(numbers))
    except errors.TracerValueError as error:
        raise errors.ArgumentError(
            errors.explain(
                f"{name}: num_segments is not given",
                "segment_ids is traced, so that its largest number is not known",
                "pass num_segments=",
            )
        ) from error
    return max(largest + 1, 0)
