"""Shapes, parts and places under the names of `jax.lax`: reshape, slice, pad, gather.

Receives arrays and static shapes; starts and indices may be traced. Next on the walk:
`reducing.py`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fnx import dtypes, errors
from fnx.api.key_arrays import takes_keys
from fnx.core.array import Array
from fnx.numpy import creation, joining, shaping
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    axis_index,
    cast,
    read,
    shape_tuple,
)
from fnx.numpy.operands import broadcast as repeated
from fnx.ops import elementwise as ops
from fnx.ops import index as indexed
from fnx.ops import pieces
from fnx.ops import scatter as scatters
from fnx.ops import shape as shapes
from fnx.ops.arithmetic import add, neg, select
from fnx.ops.gather import gather as gather_
from fnx.ops.window_dims import WindowDims

Ints = Sequence[int]

# ---------------------------------------------------------------- shapes


@takes_keys(0)
def reshape(
    operand: ArrayLike, new_sizes: Ints, dimensions: Ints | None = None
) -> Array:
    """The same elements with another shape; `dimensions` are permuted first.

    >>> reshape(np.zeros((2, 3)), (3, 2)).shape
    (3, 2)
    """
    x = as_array("reshape", operand)
    if dimensions is not None:
        x = shaping.transpose(x, dimensions)
    return shapes.reshape(x, shape=shape_tuple("reshape", new_sizes))


@takes_keys(0)
def transpose(operand: ArrayLike, permutation: Ints) -> Array:
    """The axes in another order.

    >>> transpose(np.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return shaping.transpose(operand, tuple(permutation))


@takes_keys(0)
def expand_dims(array: ArrayLike, dimensions: Ints) -> Array:
    """New axes of size 1 at the given places of the result."""
    return shaping.expand_dims(array, tuple(dimensions))


@takes_keys(0)
def squeeze(array: ArrayLike, dimensions: Ints) -> Array:
    """The given axes, of size 1, removed."""
    return shaping.squeeze(array, tuple(dimensions))


def collapse(
    operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None
) -> Array:
    """The axes in [start, stop) as one.

    >>> collapse(np.zeros((2, 3, 4)), 0, 2).shape
    (6, 4)
    """
    x = as_array("collapse", operand)
    start, stop, _ = builtin_slice(start_dimension, stop_dimension).indices(x.ndim)
    size = math.prod(x.shape[start:stop])
    return shapes.reshape(x, shape=(*x.shape[:start], size, *x.shape[stop:]))


@takes_keys(0)
def broadcast_in_dim(
    operand: ArrayLike, shape: Ints, broadcast_dimensions: Ints
) -> Array:
    """The array in a larger shape: its axis i becomes axis `broadcast_dimensions[i]`.

    >>> broadcast_in_dim(np.arange(2), (2, 3), (0,)).tolist()
    [[0, 0, 0], [1, 1, 1]]
    """
    x = as_array("broadcast_in_dim", operand)
    sizes = shape_tuple("broadcast_in_dim", shape)
    return shapes.broadcast_in_dim(x, shape=sizes, dims=tuple(broadcast_dimensions))


@takes_keys(0)
def broadcast(operand: ArrayLike, sizes: Ints) -> Array:
    """The array repeated along new leading axes."""
    x = as_array("broadcast", operand)
    return repeated(x, (*shape_tuple("broadcast", sizes), *x.shape))


def broadcast_to_rank(x: ArrayLike, rank: int) -> Array:
    """The array with leading axes of size 1 up to a rank."""
    array = as_array("broadcast_to_rank", x)
    return shapes.reshape(array, shape=(1,) * (rank - array.ndim) + array.shape)


@takes_keys(0)
def rev(operand: ArrayLike, dimensions: Ints) -> Array:
    """The elements in opposite order along the given axes.

    >>> rev(np.arange(3), (0,)).tolist()
    [2, 1, 0]
    """
    return shaping.flip(operand, tuple(dimensions))


@takes_keys(0)
def concatenate(operands: Sequence[ArrayLike], dimension: int) -> Array:
    """The arrays, of one dtype, one after the other along an axis."""
    arrays = [as_array("concatenate", x, i) for i, x in enumerate(operands)]
    return pieces.concatenate(*arrays, axis=dimension)


def split(operand: ArrayLike, sizes: Ints, axis: int = 0) -> list[Array]:
    """The parts of the given sizes along an axis.

    >>> [part.tolist() for part in split(np.arange(3), (1, 2))]
    [[0], [1, 2]]
    """
    x = as_array("split", operand)
    place = axis_index("split", axis, x.ndim)
    if sum(sizes) != x.shape[place]:
        raise errors.ShapeError(
            f"split: the sizes {tuple(sizes)} do not add up to axis {place} of {x.type}"
        )
    return joining.split(x, np.cumsum(sizes)[:-1], place)


def pad(
    operand: ArrayLike,
    padding_value: ArrayLike,
    padding_config: Sequence[tuple[int, int, int]],
) -> Array:
    """The array among padding: (low, high, interior) elements for each axis.

    Negative low and high cut off; interior elements stand between neighbours.

    >>> pad(np.array([1, 2]), 0, [(1, 0, 1)]).tolist()
    [0, 1, 0, 2]
    """
    x, value = as_array("pad", operand), read("pad", padding_value, 1)
    low, high, interior = (
        zip(*padding_config, strict=True) if padding_config else ((),) * 3
    )
    return pieces.pad(x, value, low=low, high=high, interior=interior)


def stack(operands: Sequence[ArrayLike], axis: int = 0) -> Array:
    """The arrays, of one shape and dtype, along a new axis."""
    place = axis_index("stack", axis, as_array("stack", operands[0]).ndim + 1)
    return concatenate([shaping.expand_dims(x, place) for x in operands], place)


def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """The arrays along an axis, which they do not have any more."""
    return joining.unstack(x, axis=axis)


def tile(operand: ArrayLike, reps: Ints) -> Array:
    """The array repeated as a whole, so many times along each axis."""
    return joining.tile(operand, tuple(reps))


# ---------------------------------------------------------------- new arrays


def iota(dtype: DTypeLike, size: int) -> Array:
    """0, 1, 2, … as a vector.

    >>> iota("int8", 3)
    Array([0, 1, 2], dtype=int8)
    """
    return shapes.iota(shape=(size,), dtype=dtypes.as_dtype(dtype), axis=0)


def broadcasted_iota(dtype: DTypeLike, shape: Ints, dimension: int) -> Array:
    """An array whose elements are their index along one axis."""
    sizes = shape_tuple("broadcasted_iota", shape)
    return shapes.iota(shape=sizes, dtype=dtypes.as_dtype(dtype), axis=dimension)


def full(shape: Any, fill_value: ArrayLike, dtype: DTypeLike = None) -> Array:
    """An array of that shape with all elements equal."""
    return creation.full(shape, fill_value, dtype)


def full_like(
    x: Any, fill_value: ArrayLike, dtype: DTypeLike = None, shape: Any = None
) -> Array:
    """An array of the shape and dtype of another one with all elements equal."""
    return creation.full_like(x, fill_value, dtype, shape)


def zeros_like_array(x: Any) -> Array:
    """Zeros of the shape and dtype of another array."""
    return creation.zeros_like(x)


# ---------------------------------------------------------------- static parts


builtin_slice = slice  # Python's own, before the function takes the name


@takes_keys(0)
def slice(
    operand: ArrayLike,
    start_indices: Ints,
    limit_indices: Ints,
    strides: Ints | None = None,
) -> Array:
    """The elements from start to limit (exclusive) by strides, in every axis.

    >>> slice(np.arange(5), (1,), (5,), (2,)).tolist()
    [1, 3]
    """
    x = as_array("slice", operand)
    steps = None if strides is None else tuple(strides)
    start, stop = tuple(start_indices), tuple(limit_indices)
    return pieces.slice_(x, start=start, stop=stop, strides=steps)


@takes_keys(0)
def slice_in_dim(
    operand: ArrayLike,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> Array:
    """`slice` along one axis; negative indices count from the end."""
    x = as_array("slice_in_dim", operand)
    place = axis_index("slice_in_dim", axis, x.ndim)
    start, stop, step = builtin_slice(start_index, limit_index, stride).indices(
        x.shape[place]
    )
    return pieces.part_of(x, place, start, max(start, stop), step)


@takes_keys(0)
def index_in_dim(
    operand: ArrayLike, index: int, axis: int = 0, keepdims: bool = True
) -> Array:
    """The elements at one place of an axis; out of range raises."""
    x = as_array("index_in_dim", operand)
    place = axis_index("index_in_dim", axis, x.ndim)
    n = x.shape[place]
    if not -n <= index < n:
        raise errors.IndexOutOfRange(
            f"index {index} is out of range for axis {place} with size {n} of {x.type}"
        )
    part = pieces.part_of(x, place, index % n, index % n + 1)
    return part if keepdims else shaping.squeeze(part, place)


# ---------------------------------------------------------------- dynamic parts


def _start(start: ArrayLike, n: int, wrap: bool) -> Any:
    """A start as a scalar; a negative one counts from the end."""
    value = read("dynamic_slice", start, 1)
    if not isinstance(value, Array):
        return value + n if wrap and value < 0 else value
    if not wrap or dtypes.is_unsigned(value.dtype):
        return value
    if value.dtype.itemsize < 4:
        value = cast(value, dtypes.int32)
    return select(ops.lt(value, 0), add(value, n), value)


def _starts(starts: Any, shape: tuple[int, ...], wrap: Any) -> list[Any]:
    """The starts as scalars of one dtype."""
    if isinstance(starts, Array | np.ndarray):
        starts = joining.unstack(starts)
    flags = [wrap] * len(shape) if isinstance(wrap, bool) else wrap
    if len(starts) != len(shape):
        raise errors.ShapeError(
            f"dynamic_slice: {len(starts)} starts for an array of {len(shape)} axes"
        )
    values = [_start(*row) for row in zip(starts, shape, flags, strict=True)]
    found = {v.dtype for v in values if isinstance(v, Array)}
    if len(found) > 1:
        wide = dtypes.promote(*[(dtype, False) for dtype in found])[0]
        values = [cast(v, wide) if isinstance(v, Array) else v for v in values]
    return values


@takes_keys(0)
def dynamic_slice(
    operand: ArrayLike,
    start_indices: Any,
    slice_sizes: Ints,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The part of known sizes that begins at starts which may be traced.

    Negative starts count from the end; a part that is not inside is moved inside.

    >>> dynamic_slice(np.arange(5), (4,), (2,)).tolist()
    [3, 4]
    """
    x = as_array("dynamic_slice", operand)
    starts = _starts(start_indices, x.shape, allow_negative_indices)
    sizes = shape_tuple("dynamic_slice", slice_sizes)
    return indexed.dynamic_slice(x, *starts, sizes=sizes)


@takes_keys(0)
def dynamic_slice_in_dim(
    operand: ArrayLike,
    start_index: ArrayLike,
    slice_size: int,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """`dynamic_slice` along one axis."""
    x = as_array("dynamic_slice_in_dim", operand)
    place = axis_index("dynamic_slice_in_dim", axis, x.ndim)
    starts = _at(place, _start(start_index, x.shape[place], allow_negative_indices), x)
    sizes = (*x.shape[:place], slice_size, *x.shape[place + 1 :])
    return indexed.dynamic_slice(x, *starts, sizes=sizes)


@takes_keys(0)
def dynamic_index_in_dim(
    operand: ArrayLike,
    index: ArrayLike,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """The elements at one place of an axis, which may be traced."""
    x = as_array("dynamic_index_in_dim", operand)
    place = axis_index("dynamic_index_in_dim", axis, x.ndim)
    wrap = allow_negative_indices
    part = dynamic_slice_in_dim(x, index, 1, place, allow_negative_indices=wrap)
    return part if keepdims else shaping.squeeze(part, place)


@takes_keys(0, 1)
def dynamic_update_slice(
    operand: ArrayLike,
    update: ArrayLike,
    start_indices: Any,
    *,
    allow_negative_indices: bool | Sequence[bool] = True,
) -> Array:
    """The array with the part that begins at the starts replaced by `update`.

    >>> dynamic_update_slice(np.zeros(3), np.ones(1), (1,)).tolist()
    [0.0, 1.0, 0.0]
    """
    x = as_array("dynamic_update_slice", operand)
    part = as_array("dynamic_update_slice", update, 1)
    starts = _starts(start_indices, x.shape, allow_negative_indices)
    return indexed.dynamic_update_slice(x, part, *starts)


@takes_keys(0, 1)
def dynamic_update_slice_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    start_index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """`dynamic_update_slice` along one axis."""
    x = as_array("dynamic_update_slice_in_dim", operand)
    part = as_array("dynamic_update_slice_in_dim", update, 1)
    place = axis_index("dynamic_update_slice_in_dim", axis, x.ndim)
    starts = _at(place, _start(start_index, x.shape[place], allow_negative_indices), x)
    return indexed.dynamic_update_slice(x, part, *starts)


@takes_keys(0, 1)
def dynamic_update_index_in_dim(
    operand: ArrayLike,
    update: ArrayLike,
    index: ArrayLike,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Array:
    """The array with the elements at one place of an axis replaced."""
    x = as_array("dynamic_update_index_in_dim", operand)
    part = as_array("dynamic_update_index_in_dim", update, 1)
    place = axis_index("dynamic_update_index_in_dim", axis, x.ndim)
    if part.ndim != x.ndim:
        part = shaping.expand_dims(part, place)
    wrap = allow_negative_indices
    return dynamic_update_slice_in_dim(
        x, part, index, place, allow_negative_indices=wrap
    )


def _at(place: int, start: Any, x: Array) -> list[Any]:
    return [start if axis == place else 0 for axis in range(x.ndim)]


# ---------------------------------------------------------------- gather and scatter


class GatherScatterMode(enum.Enum):
    """What happens to windows out of bounds; the names as strings do as well."""

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"


class GatherDimensionNumbers(NamedTuple):
    """Which axes mean what in `gather`; see `jax.lax.GatherDimensionNumbers`."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """Which axes mean what in `scatter`; see `jax.lax.ScatterDimensionNumbers`."""

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


def _mode(mode: Any, default: str) -> str:
    if mode is None:
        return default
    if isinstance(mode, GatherScatterMode):
        return mode.value
    names = {"clip": "clip", "fill": "fill", "drop": "fill"}
    names["promise_in_bounds"] = "promise_in_bounds"
    if mode not in names:
        raise errors.OptionError(f"mode {mode!r} is none of {', '.join(names)}")
    return names[mode]


def _dims(numbers: Sequence[Any]) -> WindowDims:
    return WindowDims(*[tuple(axes) for axes in numbers])


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Ints,
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> Array:
    """Windows of an array, each beginning at an index vector (the last axis).

    Windows out of bounds are moved inside, or with `mode="fill"` become `fill_value`
    (NaN; the lowest integer). The two promises are accepted; nothing depends on them.
    """
    return gather_(
        as_array("gather", operand),
        as_array("gather", start_indices, 1),
        dims=_dims(dimension_numbers),
        sizes=tuple(slice_sizes),
        mode=_mode(mode, "clip"),
        fill_value=fill_value,
    )


def _scatter(name: str, op: Any, summary: str) -> Any:
    def function(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
    ) -> Array:
        return op(
            as_array(name, operand),
            as_array(name, scatter_indices, 1),
            as_array(name, updates, 2),
            dims=_dims(dimension_numbers),
            mode=_mode(mode, "fill"),
            unique=unique_indices,
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{summary}\n\n    Windows out of bounds are dropped by default. "
        "`unique_indices=True` promises that no\n    element is written twice.\n    "
    )
    return function


def _subtract(operand: Any, indices: Any, updates: Any, **params: Any) -> Array:
    return scatters.scatter_add(operand, indices, neg(updates), **params)


scatter = _scatter(
    "scatter", scatters.scatter, "Windows of the array replaced; of several the last."
)
scatter_add = _scatter("scatter_add", scatters.scatter_add, "Updates added to windows.")
scatter_sub = _scatter("scatter_sub", _subtract, "Updates subtracted from windows.")
scatter_mul = _scatter(
    "scatter_mul", scatters.scatter_mul, "Windows multiplied by updates."
)
scatter_min = _scatter(
    "scatter_min", scatters.scatter_min, "The smaller of windows and updates."
)
scatter_max = _scatter(
    "scatter_max", scatters.scatter_max, "The larger of windows and updates."
)
