"""How padding is kept out: what the `padded` rules of operations share.

An axis that varies is a prefix of one of the largest size, and what is behind it may be
anything, NaN included (see `fnx.core.padding`). Receives padded arrays; gives arrays
whose prefixes are right again. Operations are called by name, since those that move
elements use this file. Next on the walk: `shape.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.array import Array
from fnx.core.padding import Extent, Ints, Padded, Pads
from fnx.core.primitive import primitive
from fnx.core.program import Literal
from fnx.ops.families import literal

# ---------------------------------------------------------------- values behind


def filled(pads: Pads, x: Padded, value: Any, axes: Sequence[int] | None = None) -> Any:
    """The array with a number, or a scalar array, in the place of the padding.

    Of these axes alone, if they are given.
    """
    array = x.array
    for axis in x.varying:
        if axes is None or axis in axes:
            inside = _is_inside(pads, array.shape, axis, x.sizes[axis])
            array = primitive("select")(inside, array, _spread(value, array))
    return array


def _is_inside(pads: Pads, shape: Ints, axis: int, size: Extent) -> Any:
    """Whether an element of an array of that shape is no padding along an axis."""
    places = primitive("iota")(shape=shape, dtype=dtypes.int32, axis=axis)
    end = primitive("broadcast_in_dim")(pads.number(size), shape=shape, dims=())
    return primitive("lt")(places, end)


def _spread(value: Any, like: Any) -> Any:
    if isinstance(value, Literal):
        return value
    if isinstance(value, Array):
        return primitive("broadcast_in_dim")(value, shape=like.shape, dims=())
    return literal(value, like.type.dtype)


def extreme(dtype: np.dtype[Any], lowest: bool) -> Any:
    """The least number of a dtype, or the greatest."""
    if dtypes.is_bool(dtype):
        return not lowest
    if dtypes.is_float(dtype):
        return -math.inf if lowest else math.inf
    info = dtypes.limits(dtype)
    return int(info.min if lowest else info.max)


# ---------------------------------------------------------------- places


def begun(x: Any, axis: int, start: Any, size: int) -> Any:
    """So many elements of an axis from a place that is a scalar, moved inside."""
    shape = x.shape
    sizes = (*shape[:axis], size, *shape[axis + 1 :])
    return primitive("dynamic_slice")(x, *_starts(x, axis, start), sizes=sizes)


def written(x: Any, part: Any, axis: int, start: Any) -> Any:
    """The array with a part written over it from a place on, which may reach behind."""
    size = x.shape[axis]
    long = _longer(x, axis, part.shape[axis])
    out = primitive("dynamic_update_slice")(long, part, *_starts(x, axis, start))
    return primitive("slice")(
        out,
        start=(0,) * len(x.shape),
        stop=(*out.shape[:axis], size, *out.shape[axis + 1 :]),
    )


def _longer(x: Any, axis: int, more: int) -> Any:
    """The array with more elements behind those of an axis."""
    none = (0,) * len(x.shape)
    high = (*none[:axis], more, *none[axis + 1 :])
    zero = literal(0, x.type.dtype)
    return primitive("pad")(x, zero, low=none, high=high, interior=none)


def _starts(x: Any, axis: int, start: Any) -> list[Any]:
    """The beginning of every axis but one."""
    zero = literal(0, dtypes.int32)
    return [start if d == axis else zero for d in range(len(x.shape))]


# ---------------------------------------------------------------- moved elements


def padded_slice(pads: Pads, x: Padded, start: Ints, stop: Ints, strides: Ints) -> Any:
    """The same elements of a prefix; starts and strides that vary are numbers."""
    array, starts, stops, steps = x.array, list(start), list(stop), list(strides)
    firsts, every = [pads.extents(itemgetter(n)) for n in ("start", "strides")]
    for axis, (first, step) in enumerate(zip(firsts, every, strict=True)):
        size = pads.sizes[0][axis].largest
        if step.varies:
            place = primitive("iota")(shape=(size,), dtype=dtypes.int32, axis=0)
            spread = [_spread_number(pads, n, (size,)) for n in (step, first)]
            place = primitive("mul")(place, spread[0])
            array = _looked_up(array, axis, primitive("add")(place, spread[1]))
        elif first.varies:
            if step.now != 1 or first.now > first.largest:
                raise pads.cannot(f"axis {axis} begins at a place that varies")
            array = begun(array, axis, pads.number(first), size)
        else:
            continue
        starts[axis], stops[axis], steps[axis] = 0, size, 1
    return primitive("slice")(
        array, start=tuple(starts), stop=tuple(stops), strides=tuple(steps)
    )


def padded_reverse(pads: Pads, x: Padded, axes: Ints) -> Any:
    """The padding comes first, and is cut off."""
    array = primitive("reverse")(x.array, axes=axes)
    for axis in x.varying:
        if axis in axes:
            size = x.sizes[axis]
            largest = Extent(size.largest, size.largest, size.largest)
            skipped = pads.number(largest.minus(size))
            array = _longer(array, axis, size.largest)
            array = begun(array, axis, skipped, size.largest)
    return array


def padded_concatenate(pads: Pads, xs: Sequence[Padded], axis: int) -> Any:
    """Each array is written where the one before it ends."""
    out = primitive("concatenate")(*[x.array for x in xs], axis=axis)
    if not any(x.sizes[axis].varies for x in xs[:-1]):
        return out
    place = Extent(0, 0, 0)
    for x in xs:
        start = pads.number(place) if place.varies else literal(place.now, dtypes.int32)
        out = written(out, x.array, axis, start)
        place = place.plus(x.sizes[axis])
    return out


def padded_pad(
    pads: Pads, x: Padded, value: Any, low: Ints, high: Ints, interior: Ints
) -> Any:
    """The padding becomes `value`; what begins at a place that varies is written there.

    What is cut off at the end is behind the prefix.
    """
    lows = pads.extents(itemgetter("low"))
    moved = [axis for axis, extent in enumerate(lows) if extent.varies]
    for axis in moved:
        if not 0 <= lows[axis].now <= low[axis] or interior[axis] or high[axis] < 0:
            raise pads.cannot(f"axis {axis} begins at a place that varies")
    before, behind = [
        tuple([0 if axis in moved else n for axis, n in enumerate(sizes)])
        for sizes in (low, high)
    ]
    array = primitive("pad")(
        filled(pads, x, value), value, low=before, high=behind, interior=interior
    )
    for axis in moved:
        size = low[axis] + array.shape[axis] + high[axis]
        shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
        around = primitive("broadcast_in_dim")(value, shape=shape, dims=())
        array = written(around, array, axis, pads.number(lows[axis]))
    return array


# ---------------------------------------------------------------- reshape

Extents = Sequence[Extent]


def padded_reshape(pads: Pads, x: Padded, shape: Ints) -> Any:
    """The same elements in row-major order.

    Axes that are merged or cut stay a prefix if only the first of them varies. The
    elements of others are looked up at places that are computed from the sizes.
    """
    array = x.array
    blocks = list(_blocks(x.sizes, pads.sizes[0]))
    counts = [_product(before).largest for before, _ in blocks]
    for number, (before, after) in enumerate(blocks):
        if not (_first_varies(before) and _first_varies(after)):
            array = primitive("reshape")(array, shape=tuple(counts))
            array = _looked_up(array, number, _places(pads, before, after))
    return primitive("reshape")(array, shape=shape)


def _blocks(before: Extents, after: Extents) -> Iterator[tuple[Extents, Extents]]:
    """The sizes of axes that are merged and cut together, before and after."""
    i = j = 0
    while i < len(before) or j < len(after):
        first, second, given, made = i, j, _ONE, _ONE
        while True:
            if i < len(before) and (given.largest <= made.largest or j == len(after)):
                given = given.times(before[i])
                i += 1
            elif j < len(after):
                made = made.times(after[j])
                j += 1
            if given == made or (i == len(before) and j == len(after)):
                break
        yield before[first:i], after[second:j]


_ONE = Extent(1, 1, 1)


def _product(sizes: Extents) -> Extent:
    return functools.reduce(Extent.times, sizes, _ONE)


def _first_varies(sizes: Extents) -> bool:
    """Whether no size varies but the first that is more than 1."""
    varying = [i for i, size in enumerate(sizes) if size.varies]
    return not varying or all(size == _ONE for size in sizes[: varying[-1]])


def _places(pads: Pads, before: Extents, after: Extents) -> Any:
    """Where, among the axes before as one, each element of those after is."""
    shape = (_product(after).largest,)
    mul, add = primitive("mul"), primitive("add")

    def number(extent: Extent) -> Any:
        return _spread_number(pads, extent, shape)

    def digit(place: Any, stride: Any, size: Any) -> Any:
        return primitive("rem")(primitive("div")(place, stride), size)

    place = primitive("iota")(shape=shape, dtype=dtypes.int32, axis=0)
    among = found = mul(place, literal(0, dtypes.int32))
    for axis, size in enumerate(after):
        stride = _product(after[axis + 1 :])
        steps = [literal(n, dtypes.int32) for n in (stride.largest, size.largest)]
        among = add(among, mul(digit(place, *steps), number(stride)))
    for axis, size in enumerate(before):
        stride = _product(before[axis + 1 :])
        at = digit(among, number(stride), number(size))
        found = add(found, mul(at, literal(stride.largest, dtypes.int32)))
    return found


def _spread_number(pads: Pads, extent: Extent, shape: Ints) -> Any:
    """An integer as an array, or a literal that stands for one."""
    if not extent.varies:
        return literal(extent.now, dtypes.int32)
    value = pads.number(extent)
    return primitive("broadcast_in_dim")(value, shape=shape, dims=())


def _looked_up(x: Any, axis: int, places: Any) -> Any:
    """The elements of an axis at places, which are moved inside."""
    # lazy: gathers are made of operations that use this file
    from fnx.ops.gather import gather
    from fnx.ops.window_dims import WindowDims  # lazy: see above

    others = tuple([d for d in range(len(x.shape)) if d != axis])
    sizes = tuple([1 if d == axis else n for d, n in enumerate(x.shape)])
    column = primitive("reshape")(places, shape=(*places.shape, 1))
    dims = WindowDims(others, (axis,), (axis,))
    return gather(x, column, dims=dims, sizes=sizes, mode="clip")
