"""x.at[index].set(y) and its kin: arrays with some elements changed.

Receives an index (analysed in `indexing.py`) and values broadcast to what it names,
gives a new array; x itself never changes, and the compiler reuses its memory where
nobody needs it any more. Next on the walk: `contractions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy.indexing import (
    MODES,
    ArrayPart,
    Indexer,
    analyse,
    point_sizes,
    read_at,
    starts,
    static_read,
    vectors,
    window_dims,
)
from fnx.numpy.mathematics import power
from fnx.numpy.operands import ArrayLike, broadcast, pair, read, typed
from fnx.ops import elementwise as ops
from fnx.ops import parts
from fnx.ops import scatter as scatters
from fnx.ops.arithmetic import add, mul, neg, select
from fnx.ops.index import dynamic_slice, dynamic_update_slice
from fnx.ops.pieces import pad
from fnx.ops.shape import broadcast_in_dim, full, reshape, reverse
from fnx.records import record


def _new(old: Array, update: Array) -> Array:
    return update


@record
class _Update:
    """One kind of update: on plain parts, and as a scatter."""

    combine: Callable[[Any, Any], Array]
    scatter: Any


_SET = _Update(_new, scatters.scatter)
_ADD = _Update(add, scatters.scatter_add)
_MUL = _Update(mul, scatters.scatter_mul)
_MIN = _Update(ops.min, scatters.scatter_min)
_MAX = _Update(ops.max, scatters.scatter_max)


class At:
    """`x.at`: indexed by x's index, gives an `IndexUpdate`."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> IndexUpdate:
        return IndexUpdate(self.array, index)

    def __repr__(self) -> str:
        return f"At({self.array!r})"


class IndexUpdate:
    """`x.at[index]`: its methods give x with the elements at the index changed.

    Values are broadcast to the shape of `x[index]` and converted to x's dtype; one of a
    kind that it cannot hold (a float for integers) raises `DTypeError`. Known indices
    out of range raise; traced ones drop the update, unless `mode` says otherwise:
    "drop" (or "fill"), "clip" (moved inside) or "promise_in_bounds" (unchecked).
    Where an index names an element several times, `set` keeps the last value, `add`
    and its like apply all of them. `unique_indices=True` promises that none does, so
    that derivatives are cheaper; `indices_are_sorted` is a promise of which no use is
    made yet. `wrap_negative_indices=False` makes negative indices out of range.

    >>> from fnx.numpy.creation import array
    >>> IndexUpdate(array([1, 2, 3]), 1).set(9)
    Array([1, 9, 3], dtype=int32)
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Array, index: Any) -> None:
        self.array = array
        self.index = index

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        fill_value: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """x[index]; out of range elements follow `mode`: "fill" gives `fill_value`.

        That is NaN by default, the lowest signed integer, the highest unsigned one, or
        True.
        """
        found = _mode(mode)
        indexer = analyse(self.array, self.index, found, wrap_negative_indices)
        return read_at(self.array, indexer, found, fill_value)

    def set(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The elements replaced by the values."""
        options = mode, unique_indices, wrap_negative_indices
        return _updated(self.array, self.index, _SET, values, *options)

    def add(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The values added to the elements."""
        options = mode, unique_indices, wrap_negative_indices
        return _updated(self.array, self.index, _ADD, values, *options)

    def subtract(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The values subtracted from the elements."""
        values = neg(_converted(self.array, values))
        options = mode, unique_indices, wrap_negative_indices
        return _updated(self.array, self.index, _ADD, values, *options)

    def multiply(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The elements multiplied by the values."""
        options = mode, unique_indices, wrap_negative_indices
        return _updated(self.array, self.index, _MUL, values, *options)

    mul = multiply

    def divide(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The elements divided by the values."""
        options = mode, unique_indices, wrap_negative_indices
        return ops.div(self.array, self._products(values, *options))

    def power(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The elements raised to the values."""
        options = mode, unique_indices, wrap_negative_indices
        return power(self.array, self._products(values, *options))

    def _products(self, values: ArrayLike, *options: Any) -> Array:
        """For each element of x the product of its values, 1 where it has none."""
        ones = full(self.array.shape, self.array.dtype, 1)
        return _updated(ones, self.index, _MUL, values, *options)

    def min(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The smaller of the elements and the values."""
        options = mode, unique_indices, wrap_negative_indices
        return _updated(self.array, self.index, _MIN, values, *options)

    def max(
        self,
        values: ArrayLike,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The larger of the elements and the values."""
        options = mode, unique_indices, wrap_negative_indices
        return _updated(self.array, self.index, _MAX, values, *options)

    def apply(
        self,
        func: Callable[[Array], Array],
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | None = None,
        wrap_negative_indices: bool = True,
    ) -> Array:
        """The elements replaced by `func` of them, once however often they are named.

        >>> from fnx.numpy.creation import array
        >>> IndexUpdate(array([1.0, 4.0]), 1).apply(lambda x: x * x)
        Array([ 1., 16.], dtype=float32)
        """
        old = self.get(mode=_reading(mode), wrap_negative_indices=wrap_negative_indices)
        options = mode, unique_indices, wrap_negative_indices
        return _updated(self.array, self.index, _SET, func(old), *options)


def _mode(mode: str | None) -> str | None:
    if mode not in MODES:
        names = ", ".join(repr(name) for name in MODES if name)
        raise errors.OptionError(f"mode {mode!r} is none of {names}")
    return MODES[mode]


def _reading(mode: str | None) -> str | None:
    """The mode to read with what is written back with `mode`."""
    return "clip" if _mode(mode) == "fill" else mode


def _converted(x: Array, values: ArrayLike) -> Array:
    """The values in x's dtype; raises where that cannot hold their kind."""
    update = read("an indexed update", values)
    joined = dtypes.promote((x.dtype, False), pair(update))[0]
    if _rank(joined) > _rank(x.dtype):
        raise errors.DTypeError(
            f"an update of dtype {pair(update)[0]} does not fit into {x.type}; convert "
            f"the update with .astype({x.dtype.name!r}), or the array"
        )
    return typed("an indexed update", update, x.dtype)


def _rank(dtype: Any) -> int:
    """Kinds in the order of what can hold what."""
    tests = (dtypes.is_integer, dtypes.is_float, dtypes.is_complex)
    return next((i + 1 for i, test in enumerate(tests) if test(dtype)), 0)


def _updated(
    x: Array,
    index: Any,
    kind: _Update,
    values: ArrayLike,
    mode: str | None,
    unique: bool,
    wrap_negative: bool,
) -> Array:
    found = _mode(mode)
    update = _converted(x, values)
    if isinstance(index, Array) and dtypes.is_bool(index.dtype) and not update.shape:
        return _masked(x, index, kind, update)
    indexer = analyse(x, index, found, wrap_negative)
    update = _shaped(update, indexer)
    part = static_read(x, indexer)
    if indexer.arrays is None:
        return _write_back(x, kind.combine(part, update), indexer)
    how = found or ("promise_in_bounds" if indexer.arrays.known else "fill")
    if not indexer.arrays.shape:
        part = _at_one_place(part, indexer.arrays, kind, update, how)
    else:
        part = kind.scatter(
            part,
            vectors(indexer.arrays),
            update,
            dims=window_dims(indexer.arrays, part.ndim),
            mode=how,
            unique=unique,
        )
    return _write_back(x, part, indexer)


def _masked(x: Array, mask: Array, kind: _Update, update: Array) -> Array:
    """An update by a mask and a scalar: a choice, so that the mask may be traced."""
    if mask.shape != x.shape[: mask.ndim]:
        raise errors.IndexOutOfRange(
            f"a mask of type {mask.type} does not fit the leading axes of {x.type}"
        )
    dims = tuple(range(mask.ndim))
    chosen = broadcast_in_dim(mask, shape=x.shape, dims=dims)
    return select(chosen, kind.combine(x, broadcast(update, x.shape)), x)


def _shaped(update: Array, indexer: Indexer) -> Array:
    """The update with the shape of what is replaced, without its new axes."""
    if update.shape != indexer.shape:
        try:
            update = broadcast(update, indexer.shape)
        except errors.FnxError:
            raise errors.ShapeError(
                f"an update of type {update.type} cannot be broadcast to the shape "
                f"{indexer.shape} that is indexed"
            ) from None
    shape = indexer.static_shape
    if indexer.arrays is not None:
        part = indexer.arrays
        rest = [n for i, n in enumerate(shape) if i not in part.axes]
        shape = (*rest[: part.position], *part.shape, *rest[part.position :])
    return update if update.shape == shape else reshape(update, shape=shape)


def _at_one_place(
    x: Array, part: ArrayPart, kind: _Update, update: Array, mode: str
) -> Array:
    """An update at one traced place: no scatter is needed."""
    sizes, places = point_sizes(part, x.shape), starts(part, x.shape)
    old = dynamic_slice(x, *places, sizes=sizes)
    new = kind.combine(old, reshape(update, shape=sizes))
    if mode == "fill":
        inside = None
        for axis, i in zip(part.axes, part.arrays, strict=True):
            fits = parts.and_(ops.ge(i, 0), ops.lt(i, x.shape[axis]))
            inside = fits if inside is None else parts.and_(inside, fits)
        new = select(broadcast(inside, sizes), new, old)  # type: ignore[arg-type]
    return dynamic_update_slice(x, new, *places)


def _write_back(x: Array, part: Array, indexer: Indexer) -> Array:
    """The static part of x replaced by `part`."""
    rows = zip(indexer.start, indexer.stop, indexer.strides, strict=True)
    sizes = tuple([len(range(*row)) for row in rows])
    if part.shape != sizes:
        part = reshape(part, shape=sizes)
    if indexer.reversed:
        part = reverse(part, axes=indexer.reversed)
    if indexer.is_whole(x.shape):
        return part
    if not math.prod(sizes):
        return x
    if all(step == 1 for step in indexer.strides):
        return dynamic_update_slice(x, part, *indexer.start)
    return _interleaved(x, part, indexer)


def _interleaved(x: Array, part: Array, indexer: Indexer) -> Array:
    """Elements with a stride written as a choice, which fuses with what is around."""
    interior = tuple([step - 1 for step in indexer.strides])
    ends = [
        first + (n - 1) * step + 1
        for first, n, step in zip(
            indexer.start, part.shape, indexer.strides, strict=True
        )
    ]
    high = tuple([n - end for n, end in zip(x.shape, ends, strict=True)])
    layout = {"low": indexer.start, "high": high, "interior": interior}
    mask = pad(full(part.shape, dtypes.bool_, True), False, **layout)
    return select(mask, pad(part, 0, **layout), x)
