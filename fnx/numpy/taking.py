"""Elements by their places, as functions: take, take_along_axis, repeat, delete.

Receives arrays and integer places, gives the elements there. Known places out of range
raise; traced ones follow `mode`. Next on the walk: `sorting.py`.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.key_arrays import takes_keys
from fnx.api.promote import becomes_native
from fnx.config import busy
from fnx.core.array import Array
from fnx.core.trace import Tracer
from fnx.numpy import on_numpy, ufuncs
from fnx.numpy.indexing import analyse, known_part, read_at
from fnx.numpy.joining import concatenate
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    Shape,
    as_array,
    axis_index,
    broadcast,
    cast,
    refuse,
    typed,
)
from fnx.numpy.reductions import cumsum, sum
from fnx.numpy.shaping import broadcast_shapes, moveaxis, ravel, reshape
from fnx.ops.arithmetic import add, mul, select
from fnx.ops.elementwise import div, ge, lt, rem
from fnx.ops.elementwise import max as larger
from fnx.ops.elementwise import min as smaller
from fnx.ops.index import take_along
from fnx.ops.pieces import part_of
from fnx.ops.shape import iota
from fnx.ops.sort import sort
from fnx.runtime.array import from_numpy


@takes_keys(0)
@at_once(on_numpy.take)
def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Array:
    """The slices at these places of an axis (or of the flattened array).

    Modes for places out of range: `None` raises where they are known, else "fill"
    (`fill_value`, NaN by default), "clip" (negative ones become 0), "wrap". The two
    promises are accepted as in JAX; nothing depends on them.

    >>> take(np.array([10, 20, 30]), np.array([2, 0])).tolist()
    [30, 10]
    """
    refuse("take", out=out)
    x, places = as_array("take", a), _places("take", indices)
    if axis is None:
        x, axis = ravel(x), 0
    place = axis_index("take", axis, x.ndim)
    if mode is None and not busy:
        found = known_part(x, (slice(None),) * place + (places,))
        if found is not None:
            return found
    if mode == "wrap":
        places, mode = _wrapped(places, x.shape[place]), "promise_in_bounds"
    if mode == "clip" and dtypes.is_signed(places.dtype):
        places = larger(places, 0)  # the nearest, as in NumPy; not from the end
    if mode is None and isinstance(places, Tracer):
        mode = "fill"
    if mode not in (None, "fill", "clip", "promise_in_bounds"):
        raise errors.OptionError(
            f"take: mode {mode!r} is none of 'fill', 'clip', 'wrap', "
            "'promise_in_bounds'"
        )
    index = (slice(None),) * place + (places,)
    return read_at(x, analyse(x, index, mode), mode, fill_value)


def _places(function: str, indices: ArrayLike) -> Array:
    places = as_array(function, indices, 1)
    if not dtypes.is_integer(places.dtype):
        raise errors.DTypeError(f"{function}: places are integers, got {places.type}")
    return places


def _wrapped(places: Array, n: int) -> Array:
    """The places modulo the size of the axis."""
    places = cast(
        places, dtypes.promote((places.dtype, False), (dtypes.int32, False))[0]
    )
    rest = rem(places, n)
    return select(lt(rest, 0), add(rest, n), rest)


@at_once(on_numpy.take_along_axis)
@takes_keys(0)
def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: str | None = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Array:
    """The elements at places of an axis that differ along the others.

    `indices` has the rank of the array; other axes are broadcast. What `argsort` and
    `argmax(keepdims=True)` give fits. Modes as in `take`. Negative places count from
    the end, or are out of range if `wrap_negative_indices` is false.

    >>> x = np.array([[3, 1], [2, 4]])
    >>> take_along_axis(x, np.argsort(x, 1), 1).tolist()
    [[1, 3], [2, 4]]
    """
    x, places = as_array("take_along_axis", arr), _places("take_along_axis", indices)
    if axis is None:
        x, axis = ravel(x), 0
    place = axis_index("take_along_axis", axis, x.ndim)
    x, places = _aligned("take_along_axis", x, places, place)
    n = x.shape[place]
    wraps = wrap_negative_indices is None or wrap_negative_indices
    if mode is None:
        known = not isinstance(places, Tracer)
        mode = _checked(x, places, place, -n if wraps else 0) if known else "fill"
    if mode not in ("fill", "clip", "promise_in_bounds"):
        raise errors.OptionError(
            f"take_along_axis: mode {mode!r} is none of 'fill', 'clip', "
            "'promise_in_bounds'"
        )
    if not dtypes.is_unsigned(places.dtype):
        places = cast(
            places, dtypes.promote((places.dtype, False), (dtypes.int32, False))[0]
        )
        if wraps:
            places = select(lt(places, 0), add(places, n), places)
    return take_along(x, places, place, mode, fill_value)


def _aligned(function: str, x: Array, places: Array, axis: int) -> tuple[Array, Array]:
    """Both arrays with equal sizes along all other axes."""
    if places.ndim != x.ndim:
        raise errors.ShapeError(
            f"{function}: {x.type} and places {places.type} must have the same rank"
        )
    outer = [broadcast_shapes(_without(x, axis), _without(places, axis))]
    before, after = outer[0][:axis], outer[0][axis:]
    x = broadcast(x, (*before, x.shape[axis], *after))
    return x, broadcast(places, (*before, places.shape[axis], *after))


def _without(x: Array, axis: int) -> Shape:
    return x.shape[:axis] + x.shape[axis + 1 :]


def _checked(x: Array, places: Array, axis: int, least: int) -> str:
    values = np.asarray(places)
    n = x.shape[axis]
    wrong = values[(values < least) | (values >= n)]
    if wrong.size:
        raise errors.IndexOutOfRange(
            f"index {int(wrong.flat[0])} is out of range for axis {axis} with size {n} "
            f"of {x.type}"
        )
    return "promise_in_bounds"


@becomes_native
@takes_keys(0)
def repeat(
    a: ArrayLike,
    repeats: Any,
    axis: int | None = None,
    *,
    total_repeat_length: int | None = None,
) -> Array:
    """Each element repeated, along an axis or of all.

    `repeats` is one number, or one for each element: then they must be known, or
    `total_repeat_length` must say how many elements the result has (the last is
    repeated to fill it).

    >>> repeat(np.array([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    """
    x = as_array("repeat", a)
    if axis is None:
        x, axis = ravel(x), 0
    place = axis_index("repeat", axis, x.ndim)
    if np.ndim(repeats) == 0 and total_repeat_length is None:
        return _repeated(x, int(repeats), place)
    if total_repeat_length is None:
        counts = np.broadcast_to(np.asarray(repeats), (x.shape[place],))
        places = from_numpy(np.repeat(np.arange(counts.size, dtype=np.int32), counts))
        return take(x, places, place, mode="promise_in_bounds")
    counts_array = broadcast(
        as_array(
            "repeat", np.asarray(repeats) if isinstance(repeats, list) else repeats, 1
        ),
        (x.shape[place],),
    )
    return _repeated_to(x, counts_array, place, total_repeat_length)


def _repeated(x: Array, count: int, axis: int) -> Array:
    shape = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
    column = reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    flat = (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :])
    return reshape(broadcast(column, shape), flat)


def _repeated_to(x: Array, counts: Array, axis: int, total: int) -> Array:
    """Place i holds the element before which the counts add up to at most i."""
    ends = cumsum(counts)
    index = iota(shape=(total, counts.size), dtype=ends.dtype, axis=0)
    passed = ge(index, broadcast(ends, (total, counts.size)))
    places = sum(passed, 1)
    return take(x, smaller(places, builtins.max(counts.size - 1, 0)), axis, mode="clip")


@at_once(on_numpy.delete)
@takes_keys(0)
def delete(
    arr: ArrayLike,
    obj: Any,
    axis: int | None = None,
    *,
    assume_unique_indices: bool = False,
) -> Array:
    """The array without the elements at places (or a slice) of an axis.

    Places are known; with `assume_unique_indices` they may be traced, all different.

    >>> delete(np.array([1, 2, 3]), 1).tolist()
    [1, 3]
    """
    x = as_array("delete", arr)
    if axis is None:
        x, axis = ravel(x), 0
    place = axis_index("delete", axis, x.ndim)
    n = x.shape[place]
    if assume_unique_indices and isinstance(obj, Tracer):
        return take(x, _others(ravel(obj), n), place, mode="clip")
    chosen = obj if isinstance(obj, slice) else _known_places(obj)
    kept = np.delete(np.arange(n, dtype=np.int32), chosen)
    return take(x, from_numpy(kept), place, mode="promise_in_bounds")


def _known_places(places: Any) -> np.ndarray[Any, Any]:
    """Places as NumPy's integers or booleans; an empty list is that of integers."""
    found = np.asarray(places)
    return found if found.size else found.astype(np.int32)


def _others(places: Array, n: int) -> Array:
    """The places from 0 to n that are not among some that all differ, in order."""
    wrapped = select(lt(places, 0), add(places, n), places)
    everywhere = iota(shape=(n, places.size), dtype=places.dtype, axis=0)
    alike = ufuncs.equal(everywhere, broadcast(wrapped, (n, places.size)))
    gone = cast(alike, dtypes.int32)
    # Those that are gone sort after all others.
    keys = add(iota(shape=(n,), dtype=dtypes.int32, axis=0), mul(n, sum(gone, 1)))
    (ordered,) = sort(keys, axis=0, num_keys=1, stable=True)
    return part_of(ordered, 0, 0, max(n - places.size, 0))


@at_once(on_numpy.insert)
@takes_keys(0, 2)
def insert(
    arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None
) -> Array:
    """The array with values put before places of an axis, one or several.

    The places may be traced: one that is out of range is then the nearest. Raises
    `ShapeError` for values that do not fit.

    >>> insert(np.array([1, 3]), 1, 2).tolist()
    [1, 2, 3]
    """
    x = as_array("insert", arr)
    if axis is None:
        x, axis = ravel(x), 0
    place = axis_index("insert", axis, x.ndim)
    n = x.shape[place]
    update = typed("insert", values, x.dtype, position=2)
    chosen = _places_of(obj, n)
    count = chosen.size
    if count == 1 and update.ndim <= x.ndim:  # there may be several values for one
        update = reshape(update, (1,) * (x.ndim - update.ndim) + update.shape)
        if not chosen.ndim:  # their first axis is the one that they are put along
            update = moveaxis(update, 0, place)
        count = update.shape[place]
    shape = (*x.shape[:place], count, *x.shape[place + 1 :])
    sizes = zip(update.shape[::-1], shape[::-1], strict=False)
    if update.ndim > x.ndim or builtins.any(a not in (1, b) for a, b in sizes):
        raise errors.ShapeError(
            f"insert: values {update.type} do not fit into {shape}, what is put along "
            f"axis {place} of {x.type}"
        )
    update = broadcast(update, shape)
    if isinstance(chosen, Tracer):
        joined = concatenate([update, x], place)
        order = _order_of_inserted(chosen, count, n)
    else:
        # The order in which NumPy puts places of old (0..n-1) and new elements (n..).
        new = np.arange(n, n + count)
        known = np.insert(np.arange(n), chosen if chosen.ndim else int(chosen), new)
        joined = concatenate([x, update], place)
        order = from_numpy(known.astype(np.int32))
    return take(joined, order, place, mode="promise_in_bounds")


def _places_of(obj: Any, n: int) -> Any:
    """Where `insert` puts elements: an array, which may be traced."""
    if isinstance(obj, slice):
        return np.arange(n)[obj]
    # Of booleans must be known how many are true.
    is_traced = isinstance(obj, Tracer) and not dtypes.is_bool(obj.dtype)
    given: Any = obj if is_traced else _known_places(obj)
    if given.dtype.kind not in "iub":
        raise errors.DTypeError(f"insert: a place is an integer, got {given.dtype}")
    return np.flatnonzero(given) if given.dtype == bool else given


def _order_of_inserted(places: Array, count: int, n: int) -> Array:
    """Where elements come from that stand at traced places: new ones, then old ones."""
    inside = broadcast(ravel(cast(places, dtypes.int32)), (count,))
    inside = select(lt(inside, 0), add(inside, n), inside)
    inside = smaller(larger(inside, 0), n)
    old = iota(shape=(n,), dtype=dtypes.int32, axis=0)
    row = iota(shape=(count + n,), dtype=dtypes.int32, axis=0)
    wanted = concatenate([inside, old])  # of equal ones the new element comes first
    return sort(wanted, row, axis=0, num_keys=1, stable=True)[1]


@becomes_native
def ravel_multi_index(
    multi_index: Any,
    dims: Any,
    mode: str = "raise",
    order: str = "C",
    *,
    dtype: DTypeLike = None,
) -> Array:
    """Places in several axes as places in the flattened array, row by row.

    `mode` is "clip", "wrap" or "raise", which traced places pass as they are;
    `order="F"` goes column by column. `dtype` is that of the result.

    >>> ravel_multi_index((np.array([1]), np.array([2])), (3, 4)).tolist()
    [6]
    """
    if order not in ("C", "F") or mode not in ("raise", "clip", "wrap"):
        raise errors.OptionError(
            f"ravel_multi_index: {mode=} and {order=} do not exist"
        )
    flat: Any = 0
    axes = list(enumerate(zip(multi_index, dims, strict=True)))
    for axis, (places, n) in axes if order == "C" else axes[::-1]:
        i = as_array("ravel_multi_index", places)
        if mode == "raise" and not isinstance(i, Tracer):
            values = np.asarray(i)
            wrong = values[(values < 0) | (values >= n)]
            if wrong.size:
                raise errors.IndexOutOfRange(
                    f"ravel_multi_index: {int(wrong.flat[0])} is out of range for axis "
                    f"{axis} with size {n}"
                )
        if mode == "clip":
            i = smaller(larger(i, 0), n - 1)
        elif mode == "wrap":
            i = _wrapped(i, n)
        flat = ufuncs.add(ufuncs.multiply(flat, n), i)
    return flat if dtype is None else cast(flat, dtypes.as_dtype(dtype))


@at_once(on_numpy.unravel_index)
def unravel_index(indices: ArrayLike, shape: Any) -> tuple[Array, ...]:
    """Places in the flattened array as places in each axis of a shape.

    >>> [int(i) for i in unravel_index(5, (2, 3))]
    [1, 2]
    """
    rest = _places("unravel_index", indices)
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    found = []
    for n in sizes[::-1]:
        found.append(rem(rest, n))
        rest = div(rest, n)
    return tuple(found[::-1])
