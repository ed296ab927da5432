"""x[index]: one analysis of an index, for reading here and writing in `updating.py`.

An index is first cut into a *static part* (integers and slices known while tracing: a
slice of the array) and an *array part* (integer arrays and traced integers: a gather).
`analyse` gives an `Indexer` with both; `read_at` applies it. Known indices out of range
raise; traced ones follow `mode` (reads clip, writes drop). Next on the walk:
`updating.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.config import busy
from fnx.core.array import Array
from fnx.core.trace import Tracer
from fnx.numpy.operands import Shape, broadcast, cast, common_shape
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, select
from fnx.ops.gather import gather
from fnx.ops.index import dynamic_slice
from fnx.ops.pieces import concatenate, part_of, slice_
from fnx.ops.shape import reshape, reverse
from fnx.ops.window_dims import WindowDims
from fnx.records import record
from fnx.runtime.array import ConcreteArray, from_numpy, own

MODES = {
    None: None,
    "clip": "clip",
    "fill": "fill",
    "drop": "fill",
    "promise_in_bounds": "promise_in_bounds",
}
"""JAX's names of the modes, and the primitives' names."""


@record
class ArrayPart:
    """The integer arrays of an index, broadcast to one shape.

    `axes` are the axes that they index, after the static part was applied; `position`
    is where their own axes stand among the axes that are left. `mode` is that of the
    primitives, `None` where the values are known to be in range.
    """

    axes: Shape
    arrays: tuple[Array, ...]
    shape: Shape
    position: int
    known: bool


@record
class Indexer:
    """An index into an array of a given shape, analysed.

    The static part takes `start:stop:strides` of every axis, reverses the axes
    `reversed`, and drops the axes `dropped`, which have size 1. `shape` is that of the
    result, new axes (`None`) included.
    """

    start: Shape
    stop: Shape
    strides: Shape
    reversed: Shape
    dropped: Shape
    arrays: ArrayPart | None
    shape: Shape

    @property
    def static_shape(self) -> Shape:
        """The shape after the static part, without the dropped axes."""
        rows = zip(self.start, self.stop, self.strides, strict=True)
        sizes = [len(range(*row)) for row in rows]
        return tuple([n for i, n in enumerate(sizes) if i not in self.dropped])

    def is_whole(self, shape: Shape) -> bool:
        """Whether the static part takes everything as it is."""
        whole = not any(self.start) and self.stop == shape
        return whole and all(s == 1 for s in self.strides) and not self.reversed


def get(x: Array, index: Any) -> Array:
    """x[index]: integers, slices, `...`, `None`, integer and boolean arrays, as NumPy.

    >>> from fnx.numpy.creation import array
    >>> get(array([[1, 2, 3], [4, 5, 6]]), (slice(None), array([2, 0])))
    Array([[3, 1],
           [6, 4]], dtype=int32)
    """
    if index.__class__ is int and x.shape and -x.shape[0] <= index < x.shape[0]:
        return _row(x, index % x.shape[0])
    if not busy and (index.__class__ is ConcreteArray or index.__class__ is np.ndarray):
        found = known_part(x, index) if index.shape else None
        if found is not None:
            return found
    try:
        indexer = analyse(x, index)
    except _Flag:
        x, index = _without_flags(x, index)
        indexer = analyse(x, index)
    return read_at(x, indexer)


def known_part(x: Array, index: Any) -> Array | None:
    """What NumPy reads outside of any trace; None where it or the index is elsewhere.

    It is also None where NumPy would raise, so that the error is one of ours.
    """
    items = index if isinstance(index, tuple) else (index,)
    if x.__class__ is not ConcreteArray:
        return None
    plain: list[Any] = []
    for item in items:
        if item.__class__ is ConcreteArray:
            item = item._numpy()
        elif isinstance(item, Array):
            return None
        plain.append(item)
    try:
        found = x._numpy()[tuple(plain)]
    except IndexError:
        return None
    return from_numpy(np.array(found), x.weak_type)


def _row(x: Array, place: int) -> Array:
    """What the analysis of an index comes to that is one integer in range."""
    shape = x.shape
    part = x if shape[0] == 1 else part_of(x, 0, place, place + 1)
    return reshape(part, shape=shape[1:])


def read_at(
    x: Array, indexer: Indexer, mode: str | None = None, fill_value: Any = None
) -> Array:
    """The elements that an index names; out of range they follow `mode`."""
    x = static_read(x, indexer)
    part = indexer.arrays
    if part is not None:
        if not part.shape and mode != "fill":
            x = dynamic_slice(
                x, *starts(part, x.shape), sizes=point_sizes(part, x.shape)
            )
        else:
            x = gather(
                x,
                vectors(part),
                dims=window_dims(part, x.ndim),
                sizes=point_sizes(part, x.shape),
                mode=mode or ("promise_in_bounds" if part.known else "clip"),
                fill_value=fill_value,
            )
    return x if x.shape == indexer.shape else reshape(x, shape=indexer.shape)


def static_read(x: Array, indexer: Indexer) -> Array:
    """The static part of an index applied."""
    if not indexer.is_whole(x.shape):
        x = slice_(x, start=indexer.start, stop=indexer.stop, strides=indexer.strides)
        if indexer.reversed:
            x = reverse(x, axes=indexer.reversed)
    if indexer.dropped:
        x = reshape(x, shape=indexer.static_shape)
    return x


# ---------------------------------------------------------------- the array part


def vectors(part: ArrayPart) -> Array:
    """The index arrays as an array of index vectors, for a gather or a scatter."""
    columns = [reshape(x, shape=(*part.shape, 1)) for x in part.arrays]
    return (
        concatenate(*columns, axis=len(part.shape)) if len(columns) > 1 else columns[0]
    )


def window_dims(part: ArrayPart, ndim: int) -> WindowDims:
    """How a gather lays out its result: whole axes around those of the index arrays."""
    whole = ndim - len(part.axes)
    count = len(part.shape)
    offsets = [i if i < part.position else i + count for i in range(whole)]
    collapsed = tuple(sorted(part.axes))
    return WindowDims(tuple(offsets), collapsed, part.axes)


def point_sizes(part: ArrayPart, shape: Shape) -> Shape:
    """The size of a window: one element of indexed axes, the whole of the others."""
    return tuple([1 if i in part.axes else n for i, n in enumerate(shape)])


def starts(part: ArrayPart, shape: Shape) -> list[Any]:
    """Scalar index arrays as the starts of a dynamic slice."""
    places: list[Any] = [0] * len(shape)
    for axis, x in zip(part.axes, part.arrays, strict=True):
        places[axis] = x
    return places


# ---------------------------------------------------------------- analysis


def analyse(
    x: Array, index: Any, mode: str | None = None, wrap_negative: bool = True
) -> Indexer:
    """What an index means for an array; raises where it does not fit.

    With a `mode`, integers out of range do not raise but are left to it.
    """
    items = _expanded(x, _items(index))
    return _Analysis(x, mode, wrap_negative).run(items)


class _Analysis:
    """Goes through the items of an index from left to right, an axis at a time."""

    def __init__(self, x: Array, mode: str | None, wrap_negative: bool) -> None:
        self.x = x
        self.mode = mode
        self.wrap_negative = wrap_negative
        self.start: list[int] = []
        self.stop: list[int] = []
        self.strides: list[int] = []
        self.reversed: list[int] = []
        self.dropped: list[int] = []
        self.arrays: list[tuple[int, Array]] = []
        self.known = True
        # The sizes of the result's axes that are not those of the index arrays, and
        # before how many of them each integer or array stood.
        self.kept: list[int] = []
        self.places: list[int] = []
        self.whole_before = 0

    def run(self, items: Sequence[Any]) -> Indexer:
        wholes: list[bool] = []  # for each kept axis: an axis of x, not a new one
        for item in items:
            axis = len(self.start)
            if item is None:
                self.kept.append(1)
                wholes.append(False)
            elif isinstance(item, slice):
                self.take(item, axis)
                wholes.append(True)
            elif isinstance(item, int):
                self.take_one(item, axis)
            else:
                self.take_array(item, axis)
        return self.result(wholes)

    def take(self, item: slice, axis: int) -> None:
        n = self.x.shape[axis]
        start, stop, step = _bounds(item, n)
        count = len(range(start, stop, step))
        if step < 0 and count:
            start, stop, step = start + (count - 1) * step, start + 1, -step
            self.reversed.append(axis)
        elif not count:
            start = stop = 0
            step = 1
        self.static(start, stop, step)
        self.kept.append(count)

    def take_one(self, item: int, axis: int) -> None:
        n = self.x.shape[axis]
        if not -n <= item < n:
            if self.mode is None:
                raise out_of_range(item, axis, n, self.x)
            self.take_array(from_numpy(np.asarray(item, dtypes.int64)), axis)
            return
        place = item % n
        if item < 0 and not self.wrap_negative:
            self.take_array(from_numpy(np.asarray(item, dtypes.int64)), axis)
            return
        self.static(place, place + 1, 1)
        self.dropped.append(axis)
        self.places.append(len(self.kept))

    def take_array(self, item: Array | _Places, axis: int) -> None:
        if isinstance(item, _Places):
            if item.size != self.x.shape[axis]:
                raise errors.IndexOutOfRange(
                    f"a mask of size {item.size} does not fit axis {axis} of "
                    f"{self.x.type}"
                )
            item = item.array
        self.static(0, self.x.shape[axis], 1)
        self.arrays.append((axis, self.checked(item, axis)))
        self.places.append(len(self.kept))

    def static(self, start: int, stop: int, step: int) -> None:
        self.start.append(start)
        self.stop.append(stop)
        self.strides.append(step)

    def checked(self, item: Array, axis: int) -> Array:
        """An index array with negative entries wrapped; known ones must be in range."""
        n = self.x.shape[axis]
        if item.dtype.itemsize < 4:
            item = cast(item, dtypes.int32)
        if isinstance(item, Tracer):
            self.known = False
            return self.wrapped(item, n)
        values = np.asarray(item)
        if not values.size:
            return item
        low, high = values.min(), values.max()
        if low < -n or high >= n:
            if self.mode is None:
                raise out_of_range(int(low if low < -n else high), axis, n, self.x)
            self.known = False
        return self.wrapped(item, n) if low < 0 else item

    def wrapped(self, item: Array, n: int) -> Array:
        """Negative entries counted from the end."""
        if not self.wrap_negative or dtypes.is_unsigned(item.dtype):
            return item
        return select(ops.lt(item, 0), add(item, n), item)

    def result(self, wholes: Sequence[bool]) -> Indexer:
        kept = tuple(self.kept)
        part, shape = None, kept
        if self.arrays:
            together = len(set(self.places)) == 1
            place = self.places[0] if together else 0
            part = self.array_part(sum(wholes[:place]))
            shape = (*kept[:place], *part.shape, *kept[place:])
        return Indexer(
            tuple(self.start),
            tuple(self.stop),
            tuple(self.strides),
            tuple(self.reversed),
            tuple(self.dropped),
            part,
            shape,
        )

    def array_part(self, position: int) -> ArrayPart:
        axes = [axis - sum([d < axis for d in self.dropped]) for axis, _ in self.arrays]
        arrays = [array for _, array in self.arrays]
        shape = common_shape("an index", arrays)
        dtype = dtypes.promote(*[(array.dtype, False) for array in arrays])[0]
        if not dtypes.is_integer(dtype):  # int64 beside uint64
            dtype = dtypes.int64
        arrays = [broadcast(cast(array, dtype), shape) for array in arrays]
        return ArrayPart(tuple(axes), tuple(arrays), shape, position, self.known)


def out_of_range(index: int, axis: int, size: int, x: Array) -> Exception:
    """The error for a known index outside of its axis."""
    return errors.IndexOutOfRange(
        f"index {index} is out of range for axis {axis} with size {size} of {x.type}"
    )


def _bounds(item: slice, n: int) -> tuple[int, int, int]:
    try:
        return item.indices(n)
    except errors.TracerValueError as error:
        raise errors.TracerValueError(
            f"a slice with traced bounds has no known size: {error}\n"
            "  Use fnx.lax.dynamic_slice with a known size instead."
        ) from None


def _items(index: Any) -> list[Any]:
    """The items of an index: `None`, `...`, slices, ints, integer arrays."""
    if isinstance(index, list):
        raise errors.ArgumentError(
            "a list is no index; use x[fnx.numpy.array(...)] for an array of places, "
            "or a tuple for one place in each axis"
        )
    many = index if isinstance(index, tuple) else (index,)
    return [flat for item in many for flat in _item(item)]


def _item(item: Any) -> list[Any]:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return [item]
    if isinstance(item, bool | np.bool_):
        raise _Flag("a single bool is no index here; use fnx.numpy.where")
    if isinstance(item, int):
        return [int(item)]
    if isinstance(item, list | tuple):
        item = np.asarray(item)
        item = item.astype(np.int32) if not item.size else item
    if isinstance(item, np.ndarray | np.generic):
        item = int(item) if item.ndim == 0 and item.dtype.kind in "iu" else own(item)
        if isinstance(item, int):
            return [item]
    if not isinstance(item, Array):
        return [_integer(item)]
    if dtypes.is_bool(item.dtype):
        return list(_places_of(item))
    if not dtypes.is_integer(item.dtype):
        raise errors.ArgumentError(
            f"an index must be of integers or booleans, got {item.type}; convert it "
            "with .astype(int)"
        )
    if not item.shape and not isinstance(item, Tracer):
        return [int(item)]
    return [item]


def _integer(item: Any) -> int:
    try:
        return int(item.__index__())
    except AttributeError:
        raise errors.ArgumentError(
            f"{type(item).__name__} is no index; integers, slices, None, ... and "
            "integer or boolean arrays are"
        ) from None


@record
class _Places:
    """The places along one axis of a mask, and the size of that axis."""

    array: Array
    size: int


def _places_of(mask: Array) -> list[_Places]:
    """The places where a mask holds, an integer array for each of its axes.

    Raises `TracerValueError` where the mask is not known: then the number of places,
    which the shape of the result needs, is not known either.
    """
    try:
        values = np.asarray(mask)
    except errors.TracerValueError as error:
        raise errors.TracerValueError(
            f"a mask as an index must be known, since the result's shape depends on it:"
            f" {error}\n  Use fnx.numpy.where(mask, x, y), or x.at[mask].set(scalar)."
        ) from None
    if not values.ndim:
        raise _Flag("a mask of rank 0 is no index here; use fnx.numpy.where")
    places = [from_numpy(i.astype(dtypes.default_int())) for i in values.nonzero()]
    return [_Places(i, n) for i, n in zip(places, values.shape, strict=True)]


class _Flag(errors.ArgumentError):
    """A mask of rank 0 in an index: reading knows it, writing does not."""


def _is_flag(item: Any) -> bool:
    if isinstance(item, bool | np.bool_):
        return True
    is_array = isinstance(item, Array | np.ndarray) and not item.shape
    return is_array and item.dtype == dtypes.bool_


def _without_flags(x: Array, index: Any) -> tuple[Array, tuple[Any, ...]]:
    """The array with an axis of size 1 for each mask of rank 0, and places there.

    A mask that holds takes the one place, one that does not takes none.
    """
    items = index if isinstance(index, tuple) else (index,)
    free = x.ndim - sum([_consumed(item) for item in items if item is not Ellipsis])
    shape, found, axis = [], [], 0
    for item in items:
        if _is_flag(item):
            found.append(from_numpy(np.zeros(int(bool(item)), np.int32)))
            shape.append(1)
            continue
        found.append(item)
        count = free if item is Ellipsis else _consumed(item)
        shape += x.shape[axis : axis + count]
        axis += count
    return reshape(x, shape=(*shape, *x.shape[axis:])), tuple(found)


def _consumed(item: Any) -> int:
    """How many axes of the array an item is for."""
    if item is None or _is_flag(item):
        return 0
    is_mask = getattr(item, "dtype", None) == dtypes.bool_
    return item.ndim if is_mask else 1


def _expanded(x: Array, items: list[Any]) -> list[Any]:
    """The items with `...` and missing ones written out as whole slices."""
    count = sum([item is not None and item is not Ellipsis for item in items])
    if count > x.ndim:
        raise errors.IndexOutOfRange(
            f"an index of {count} items is too long for {x.type} with {x.ndim} axes"
        )
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise errors.ArgumentError("an index can only have a single ellipsis ('...')")
    place = dots[0] if dots else len(items)
    whole = [slice(None)] * (x.ndim - count)
    return items[:place] + whole + items[place + 1 :]
