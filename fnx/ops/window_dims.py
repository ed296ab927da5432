"""Where windows lie: what `WindowDims` mean, for `gather.py` and `scatter.py` alike.

Receives the types of an operand and of index vectors, and which axes mean what; gives
the shape of the windows array, the place of each of its elements in the operand for a
kernel (`window_place`), and both as the rows of NumPy matrices (`Rows`). Next on the
walk: `gather.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.types import ArrayType
from fnx.errors import DTypeError, OptionError, ShapeError, explain
from fnx.kernel.expr import Const, IndexValue
from fnx.ops.rearrange import Ints, all_of, inverse, shifted
from fnx.records import record
from fnx.sizes import lesser, surely_at_most

MODES = ("clip", "fill", "promise_in_bounds")


@record
class WindowDims:
    """Which axes mean what, in the words of `jax.lax.GatherDimensionNumbers`.

    An index vector (the last axis of the indices) says where a window begins in the
    axes `start_index_map` of the operand; it begins at 0 in the others. Axes
    `offset_dims` of the windows array (what gather gives, what scatter takes) run
    through the window, its other axes are those of the indices but the last. Operand
    axes `collapsed_slice_dims` have windows of size 1 and are left out. Operand axes
    `operand_batching_dims` go with the axes `start_indices_batching_dims` of the
    indices: each of their places has its own windows.
    """

    offset_dims: Ints
    collapsed_slice_dims: Ints
    start_index_map: Ints
    operand_batching_dims: Ints = ()
    start_indices_batching_dims: Ints = ()

    def window_axes(self, ndim: int) -> Ints:
        """The operand's axes that `offset_dims` run through, in the same order."""
        absent = self.collapsed_slice_dims + self.operand_batching_dims
        return tuple([d for d in range(ndim) if d not in absent])

    def batch_axes(self, ndim: int) -> Ints:
        """The axes of the windows array, of rank `ndim`, that the indices have."""
        return tuple([d for d in range(ndim) if d not in self.offset_dims])

    def window_sizes(self, windows: Ints, ndim: int) -> Ints:
        """The window's size in each axis of the operand, from the windows' shape."""
        sizes = [1] * ndim
        for axis, place in zip(self.window_axes(ndim), self.offset_dims, strict=True):
            sizes[axis] = windows[place]
        return tuple(sizes)

    def raised(self, operand: bool, indices: bool) -> WindowDims:
        """The same with a new leading axis in the operand, the indices, or both."""
        first = (0,) if operand else ()
        places = shifted(self.start_indices_batching_dims)
        up = shifted if operand else tuple
        return WindowDims(
            offset_dims=(() if indices else first) + shifted(self.offset_dims),
            collapsed_slice_dims=up(self.collapsed_slice_dims),
            start_index_map=up(self.start_index_map),
            operand_batching_dims=(first if indices else ())
            + up(self.operand_batching_dims),
            start_indices_batching_dims=(first + places)
            if indices
            else self.start_indices_batching_dims,
        )


def window_labels(
    operand: ArrayType, indices: ArrayType, windows: ArrayType, dims: WindowDims
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Labels of the axes of operand, indices and windows array (see `Flow`).

    An axis of the operand runs along the windows array where a window is all of it.
    """
    at: list[Any] = [None] * operand.ndim
    out: list[Any] = [None] * windows.ndim
    of_indices: list[Any] = [None] * indices.ndim
    pairs = zip(dims.window_axes(operand.ndim), dims.offset_dims, strict=True)
    for axis, place in pairs:
        if operand.shape[axis] == windows.shape[place]:
            at[axis] = out[place] = ("window", axis)
    for axis, place in enumerate(dims.batch_axes(windows.ndim)):
        of_indices[axis] = out[place] = ("index", axis)
    both = zip(
        dims.operand_batching_dims, dims.start_indices_batching_dims, strict=True
    )
    for axis, place in both:
        at[axis] = of_indices[place]
    return tuple(at), tuple(of_indices), tuple(out)


# ---------------------------------------------------------------- types


def windows_shape(
    asked: str,
    operand: ArrayType,
    indices: ArrayType,
    dims: WindowDims,
    sizes: Ints,
    mode: str,
) -> Ints:
    """The shape of the windows array; raises where the arguments do not fit."""
    for reason in _misfits(operand, indices, dims, sizes):
        raise ShapeError(explain(asked, reason))
    if not dtypes.is_integer(indices.dtype):
        raise DTypeError(explain(asked, "the indices must be integers", "convert them"))
    if mode not in MODES:
        reason = f"mode {mode!r} is none of {', '.join(MODES)}"
        raise OptionError(explain(asked, reason))
    shape = shape_of_windows(dims, sizes, indices.shape)
    if not operand.size and mode != "fill" and 0 not in shape:
        raise ShapeError(explain(asked, "the operand has no elements to index"))
    return shape


def shape_of_windows(dims: WindowDims, sizes: Ints, indices: Ints) -> Ints:
    """That of the array of windows of these sizes, for indices of that shape."""
    window = iter([sizes[d] for d in dims.window_axes(len(sizes))])
    outer = iter(indices[:-1])
    ndim = len(indices) - 1 + len(dims.offset_dims)
    return tuple(
        [next(window if d in dims.offset_dims else outer) for d in range(ndim)]
    )


def _misfits(
    operand: ArrayType, indices: ArrayType, dims: WindowDims, sizes: Ints
) -> Iterator[str]:
    """What is wrong with the arguments of a gather or a scatter, in words."""
    ndim = operand.ndim
    if not indices.ndim:
        yield "the indices need a last axis, that of the index vectors"
        return
    if indices.shape[-1] != len(dims.start_index_map):
        yield f"index vectors have {indices.shape[-1]} entries, start_index_map has not"
    if len(sizes) != ndim:
        yield f"there must be one size for each of the operand's {ndim} axes"
    absent = dims.collapsed_slice_dims + dims.operand_batching_dims
    groups = {
        "collapsed_slice_dims and operand_batching_dims": (absent, ndim),
        "start_index_map and operand_batching_dims": (
            dims.start_index_map + dims.operand_batching_dims,
            ndim,
        ),
        "start_indices_batching_dims": (
            dims.start_indices_batching_dims,
            indices.ndim - 1,
        ),
        "offset_dims": (dims.offset_dims, indices.ndim - 1 + len(dims.offset_dims)),
    }
    for name, (axes, end) in groups.items():
        if len(set(axes)) < len(axes) or not all(0 <= d < end for d in axes):
            yield f"{name} must be different axes in [0, {end}), not {axes}"
            return
    ordered = (dims.offset_dims, dims.collapsed_slice_dims, dims.operand_batching_dims)
    if any(list(axes) != sorted(axes) for axes in ordered):
        yield "offset, collapsed and batching dims must be in increasing order"
    if len(dims.offset_dims) != ndim - len(absent):
        yield f"offset_dims must be {ndim - len(absent)} axes, one for each window axis"
    yield from _size_misfits(operand, indices, dims, sizes)


def _size_misfits(
    operand: ArrayType, indices: ArrayType, dims: WindowDims, sizes: Ints
) -> Iterator[str]:
    for d, (size, whole) in enumerate(zip(sizes, operand.shape, strict=False)):
        if d in dims.collapsed_slice_dims + dims.operand_batching_dims:
            if size != 1:
                yield f"the size of axis {d}, collapsed or batching, must be 1"
        elif not 0 <= size <= whole:
            yield f"the size of axis {d} must be in [0, {whole}]"
    if len(dims.operand_batching_dims) != len(dims.start_indices_batching_dims):
        yield "the operand and the indices must have equally many batching dims"
        return
    for d, i in _batching(dims):
        if operand.shape[d] != indices.shape[i]:
            yield f"axis {d} of the operand and axis {i} of the indices differ in size"


def _batching(dims: WindowDims) -> list[tuple[int, int]]:
    """The pairs of batching axes of the operand and the indices."""
    operand, indices = dims.operand_batching_dims, dims.start_indices_batching_dims
    return list(zip(operand, indices, strict=True))


# ---------------------------------------------------------------- NumPy


class Rows:
    """The windows of a NumPy operand as rows of a matrix.

    The operand's axes that every window takes whole become the columns, all others
    together are numbered row by row; `numbers` has the rows that the windows consist
    of, in the order of the windows array, and `inside` whether their window was inside
    the operand before it was moved there.
    """

    def __init__(
        self, shape: Ints, indices: Any, dims: WindowDims, sizes: Ints
    ) -> None:
        self.shape = shape
        self.windows = shape_of_windows(dims, sizes, indices.shape)
        axes = dims.window_axes(len(shape))
        places = dict(zip(axes, dims.offset_dims, strict=True))
        self.whole = tuple([d for d in axes if sizes[d] == shape[d]])
        self.picked = tuple([d for d in range(len(shape)) if d not in self.whole])
        self.columns = tuple([places[d] for d in self.whole])
        ndim = len(self.windows)
        self.domain = tuple([d for d in range(ndim) if d not in self.columns])
        self._number(_signed(indices), dims, sizes, places)

    def _number(
        self, indices: Any, dims: WindowDims, sizes: Ints, places: dict[int, int]
    ) -> None:
        outer = dims.batch_axes(len(self.windows))
        sources = dict(_batching(dims))
        numbers = np.zeros((), np.int64)
        inside = np.ones((), bool)
        for d, n in enumerate(self.shape):
            at = np.zeros((), np.int64)
            if d in sources:
                at = self._along(outer[sources[d]])
            elif d in dims.start_index_map:
                start = indices[..., dims.start_index_map.index(d)]
                start = start.reshape(self._spread(outer, start.shape))
                inside = inside & (start >= 0) & (start <= n - sizes[d])
                at = np.clip(start, 0, n - sizes[d])
            if d in self.picked:
                if d in places:
                    at = at + self._along(places[d])
                numbers = numbers * n + at
        domain = [self.windows[d] for d in self.domain]
        self.numbers = np.broadcast_to(numbers, domain).reshape(-1)
        self.inside = np.broadcast_to(inside, domain).reshape(-1)

    def _spread(self, axes: Ints, sizes: Ints) -> list[int]:
        """The shape in the domain's axes of an array with these axes of the windows."""
        shape = dict(zip(axes, sizes, strict=True))
        return [shape.get(d, 1) for d in self.domain]

    def _along(self, axis: int) -> Any:
        """0, 1, 2, … along one axis of the windows."""
        size = self.windows[axis]
        return np.arange(size).reshape(self._spread((axis,), (size,)))

    def of_operand(self, operand: Any) -> Any:
        """An array of the operand's shape as the matrix."""
        rows = math.prod([self.shape[d] for d in self.picked])
        moved = operand.transpose(self.picked + self.whole)
        return moved.reshape(rows, math.prod([self.shape[d] for d in self.whole]))

    def as_operand(self, matrix: Any) -> Any:
        """The matrix as an array of the operand's shape."""
        order = self.picked + self.whole
        return matrix.reshape([self.shape[d] for d in order]).transpose(inverse(order))

    def of_windows(self, windows: Any) -> Any:
        """The windows array as rows that correspond to `numbers`."""
        columns = math.prod([self.windows[d] for d in self.columns])
        moved = windows.transpose(self.domain + self.columns)
        return moved.reshape(len(self.numbers), columns)

    def as_windows(self, rows: Any) -> Any:
        """Rows that correspond to `numbers` as an array of the windows' shape."""
        order = self.domain + self.columns
        return rows.reshape([self.windows[d] for d in order]).transpose(inverse(order))


def _signed(indices: Any) -> Any:
    """Indices as int64; what uint64 alone can hold is out of bounds anyway."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(2**63 - 1))
    return indices.astype(np.int64)


# ---------------------------------------------------------------- kernels


def window_place(
    k: Any,
    index: Any,
    shape: Ints,
    indices: Any,
    dims: WindowDims,
    sizes: Ints,
    *,
    moves: bool = True,
) -> tuple[Any, Any]:
    """The operand's index for an index of the windows array, moved inside.

    Also gives whether the whole window was inside, as a boolean expression; the index
    is of no use elsewhere unless it `moves`.
    """
    place_of = clipped if moves else tested
    outer = tuple([index[d] for d in dims.batch_axes(len(index))])
    place: list[Any] = [0] * len(shape)
    conditions = []
    for d, i in _batching(dims):
        place[d] = outer[i]
    for number, d in enumerate(dims.start_index_map):
        start = indices((*outer, number))
        place[d], inside = place_of(k, start, shape[d] - sizes[d])
        conditions += inside
    for d, axis in zip(dims.window_axes(len(shape)), dims.offset_dims, strict=True):
        place[d] = index[axis] + place[d]
    return tuple(place), all_of(k, conditions)


def clipped(k: Any, value: Any, high: int) -> tuple[Any, list[Any]]:
    """An integer value as an index moved into [0, high]; the conditions of being in it.

    What the value's dtype or origin excludes is not tested.
    """
    lowest, highest = _bounds(value)
    if isinstance(value, Const):
        return lesser(high, max(lowest, 0)), [k.inside(lowest, 0, high + 1)]
    conditions = []
    if not surely_at_most(0, lowest):
        zero = k.constant(0, value.dtype)
        conditions.append(k.ge(value, zero))
        value = k.max(value, zero)
    if not surely_at_most(highest, high):
        top = k.constant(high, value.dtype)
        conditions.append(k.le(value, top))
        value = k.min(value, top)
    return k.as_index(value, 0, high), conditions


def tested(k: Any, value: Any, high: int) -> tuple[Any, list[Any]]:
    """An integer value as an index; the conditions of being in [0, high], if any.

    Where they do not hold, the index has any value.
    """
    lowest, highest = _bounds(value)
    if isinstance(value, Const) or surely_at_most(highest, high):
        return clipped(k, value, high)
    if not surely_at_most(0, lowest):
        # as unsigned numbers, the negative ones are the greatest
        value = k.bitcast(value, np.dtype(f"uint{8 * value.dtype.itemsize}"))
    top = k.constant(high, value.dtype)
    return k.as_index(value, 0, high), [k.le(value, top)]


def _bounds(value: Any) -> tuple[int, int]:
    """The smallest and the largest number that an integer expression may be."""
    info = np.iinfo(value.dtype)
    if isinstance(value, Const):
        return int(value.value), int(value.value)
    lo, hi = int(info.min), int(info.max)
    if isinstance(value, IndexValue):
        least, most = value.index.range
        if surely_at_most(lo, least) and surely_at_most(most, hi):
            return least, most
    return lo, hi
