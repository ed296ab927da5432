"""slice, pad and concatenate: parts of arrays, and arrays of parts.

They only move elements, as those of `shape.py` do. slice and pad transpose to each
other, concatenate to slices. `part_of` and `padded_along` are slice and pad along one
axis, for other rules. Receives arrays, gives arrays of the same dtype. Next on the
walk: `reduce.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.layout import Layout
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis, Pulled, is_linear, primitive
from fnx.core.program import Atom, Literal
from fnx.core.types import ArrayType
from fnx.errors import DTypeError, ShapeError, explain
from fnx.kernel.expr import linear_offset
from fnx.ops.arithmetic import select
from fnx.ops.families import Copying, along
from fnx.ops.prefix import padded_concatenate, padded_pad, padded_slice
from fnx.ops.rearrange import (
    Ints,
    Rearrangement,
    all_of,
    check_axes,
    dilated,
    padded,
    without,
)
from fnx.ops.shape import all_along, broadcast_in_dim, full, kept_axes, zeros_like
from fnx.sizes import surely_below


class _Slice(Rearrangement):
    """slice(x, start, stop, strides): every strides[d]-th element in [start, stop).

    Bounds lie inside the array, strides are positive and may be left out. Transposes
    to `pad`.
    """

    sized = ("start", "stop", "strides")

    def __call__(
        self, x: Any, *, start: Ints, stop: Ints, strides: Ints | None = None
    ) -> Any:
        strides = (1,) * len(start) if strides is None else strides
        return super().__call__(x, start=start, stop=stop, strides=strides)

    def flow(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], **bounds: Any
    ) -> Flow:
        """Axes of which all is taken run along the output."""
        return kept_axes(types, outs, _changed(types[0].shape, outs[0].shape))

    def localized(
        self, inputs: Sequence[Ints], outputs: Sequence[Ints], **bounds: Any
    ) -> dict[str, Any]:
        """All of an axis that is cut, too."""
        rows = zip(bounds["stop"], inputs[0], outputs[0], strict=True)
        stop = tuple([size if size == out else n for n, size, out in rows])
        return bounds | {"stop": stop}

    def infer(
        self, x: ArrayType, *, start: Ints, stop: Ints, strides: Ints
    ) -> ArrayType:
        """The number of steps that fit between the bounds, in every axis."""
        asked = f"slice({x}, start={start}, stop={stop}, strides={strides})"
        if not len(start) == len(stop) == len(strides) == x.ndim:
            reason = f"each of the {x.ndim} axes needs a start, a stop and a stride"
            raise ShapeError(explain(asked, reason))
        rows = list(zip(start, stop, strides, strict=True))
        for d, (low, high, step) in enumerate(rows):
            ends = (0, low, high, x.shape[d])
            if any(surely_below(b, a) for a, b in pairwise(ends)):
                reason = f"axis {d} needs 0 <= start <= stop <= {x.shape[d]}"
                raise ShapeError(explain(asked, reason))
            if surely_below(step, 1):
                reason = f"the stride of axis {d} is not positive"
                raise ShapeError(explain(asked, reason, "reverse the axis first"))
        # As many as in range(low, high, step).
        sizes = [(high - low + step - 1) // step for low, high, step in rows]
        return x.with_shape(tuple(sizes))

    def reference(self, x: Any, *, start: Ints, stop: Ints, strides: Ints) -> Any:
        """NumPy's basic indexing."""
        return x[tuple(map(slice, start, stop, strides))]

    def transpose(
        self, ct: Any, x: Any, *, start: Ints, stop: Ints, strides: Ints
    ) -> tuple[Any]:
        """Puts the elements back among zeros."""
        interior = tuple([step - 1 for step in strides])
        spread = dilated(ct.shape, interior)
        rows = zip(x.shape, start, spread, strict=True)
        high = tuple([n - low - size for n, low, size in rows])
        return (pad(ct, 0, low=start, high=high, interior=interior),)

    def padded(
        self, pads: Pads, x: Padded, *, start: Ints, stop: Ints, strides: Ints
    ) -> Any:
        """The same steps from the same start, which may vary."""
        return padded_slice(pads, x, start, stop, strides)

    def raised(
        self, size: int, *, start: Ints, stop: Ints, strides: Ints
    ) -> dict[str, Any]:
        """Takes the whole of the new axis."""
        return {"start": (0, *start), "stop": (size, *stop), "strides": (1, *strides)}

    def element(
        self, k: Any, index: Any, x: Any, *, start: Ints, stop: Ints, strides: Ints
    ) -> Any:
        """The index times the stride, from the start."""
        rows = zip(index, strides, start, strict=True)
        return x(tuple([i * step + low for i, step, low in rows]))

    def viewed(
        self, layout: Layout, x: ArrayType, *, start: Ints, stop: Ints, strides: Ints
    ) -> Layout:
        """The same strides, or multiples of them, from the first element on."""
        first = sum([i * n for i, n in zip(start, layout.strides, strict=True)])
        steps = [i * n for i, n in zip(strides, layout.strides, strict=True)]
        return Layout(layout.offset + first, tuple(steps))

    def still(self, x: ArrayType, *, start: Ints, stop: Ints, strides: Ints) -> bool:
        """The whole array."""
        return self.infer(x, start=start, stop=stop, strides=strides) is x


class _Pad(Copying):
    """pad(x, value, low, high, interior): x among elements equal to the scalar `value`.

    `low` and `high` elements are put before and after each axis, `interior` ones
    between neighbours; negative `low` and `high` cut off. `value` may be a Python
    scalar. Transposes to `slice`.
    """

    linear = True
    cheap = True
    sized = ("low", "high")

    def __call__(self, x: Any, value: Any, **params: Any) -> Any:
        if isinstance(value, bool | int | float | complex):
            value = Literal(value, ArrayType((), x.type.dtype, True))
        return super().__call__(x, value, **params)

    def flow(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], **padding: Any
    ) -> Flow:
        """Axes that are not padded run along the output."""
        rows = zip(*padding.values(), strict=True)
        padded = [axis for axis, row in enumerate(rows) if any(n != 0 for n in row)]
        (axes,), ends = kept_axes(types[:1], outs, padded)
        return Flow((axes, ()), ends)

    def infer(
        self, x: ArrayType, value: ArrayType, *, low: Ints, high: Ints, interior: Ints
    ) -> ArrayType:
        """The operand's type with longer (or shorter) axes."""
        asked = f"pad({x}, {value}, low={low}, high={high}, interior={interior})"
        if value.shape or value.dtype != x.dtype:
            reason = f"the value must be a scalar of type {dtypes.short(x.dtype)}[]"
            raise DTypeError(explain(asked, reason, "convert it"))
        if not len(low) == len(high) == len(interior) == x.ndim:
            reason = f"each of the {x.ndim} axes needs a low, a high and an interior"
            raise ShapeError(explain(asked, reason))
        if any(between < 0 for between in interior):
            raise ShapeError(explain(asked, "interior padding cannot be negative"))
        shape = padded(x.shape, low, high, interior)
        if any(size < 0 for size in shape):
            reason = f"it cuts off more than there is: the shape would be {shape}"
            raise ShapeError(explain(asked, reason))
        return ArrayType(shape, x.dtype, x.weak and value.weak)

    def reference(
        self, x: Any, value: Any, *, low: Ints, high: Ints, interior: Ints
    ) -> Any:
        """Fills the output with the value, then writes what remains of x."""
        shape = padded(x.shape, low, high, interior)
        out = np.full(shape, value, x.dtype)
        source, target = [], []
        for n, size, before, between in zip(x.shape, shape, low, interior, strict=True):
            step = between + 1
            first = max(0, -(before // step))
            last = min(n, (size - 1 - before) // step + 1)
            if first >= last:
                return out
            begin, end = before + first * step, before + (last - 1) * step + 1
            source.append(slice(first, last))
            target.append(slice(begin, end, step))
        out[tuple(target)] = x[tuple(source)]
        return out

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Linear in both operands together."""
        tx, tvalue = tangents
        tx = zeros_like(primals[0]) if tx is None else tx
        tvalue = 0 if tvalue is None else tvalue
        return self(*primals, **params), self(tx, tvalue, **params)

    def transpose(
        self, ct: Any, x: Any, value: Any, *, low: Ints, high: Ints, interior: Ints
    ) -> tuple[Any, Any]:
        """The cotangent at the places of x; the sum of the others for the value."""
        at_x = at_value = None
        if is_linear(x):
            at_x = _unpadded(ct, low, high, interior)
        if is_linear(value):
            mask = _is_padding(x.type.shape, low=low, high=high, interior=interior)
            axes = tuple(range(ct.ndim))
            # By name: reductions are defined from the operations in this file.
            at_value = primitive("reduce_sum")(select(mask, ct, 0), axes=axes)
        return at_x, at_value

    def padded(
        self,
        pads: Pads,
        x: Padded,
        value: Padded,
        *,
        low: Ints,
        high: Ints,
        **rest: Any,
    ) -> Any:
        """What is behind a prefix is the value."""
        return padded_pad(pads, x, value.array, low, high, **rest)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        **params: Ints,
    ) -> tuple[Any, bool]:
        """Pads the other axes; values that differ along the new axis are selected."""
        x, value = args
        if not any(mapped):
            return self(x, value, **params), False
        x = x if mapped[0] else along(axis, x)
        params = {name: (0, *sizes) for name, sizes in params.items()}
        if not mapped[1]:
            return self(x, value, **params), True
        out = self(x, 0, **params)
        values = broadcast_in_dim(value, shape=out.shape, dims=(0,))
        return select(_is_padding(x.shape, **params), values, out), True

    def element(
        self,
        k: Any,
        index: Any,
        x: Any,
        value: Any,
        *,
        low: Ints,
        high: Ints,
        interior: Ints,
    ) -> Any:
        """The operand's element where the index meets one, the value elsewhere."""
        spread = dilated(x.shape, interior)
        met, place = [], []
        for i, before, size, between in zip(index, low, spread, interior, strict=True):
            at = i - before
            met.append(k.inside(at, 0, size))
            if between:
                met.append(k.inside(at % (between + 1), 0, 1))
                at = at // (between + 1)
            place.append(at)
        return k.where(all_of(k, met), lambda: x(tuple(place)), lambda: value(()))

    def identity(
        self, inputs: Sequence[Atom], *, low: Ints, high: Ints, interior: Ints
    ) -> Atom | None:
        """x, if nothing is put in or cut off."""
        shape = inputs[0].type.shape
        still = all(n == 0 for n in low) and padded(shape, low, high, interior) == shape
        return inputs[0] if still and not any(high) else None


_MANY_NUMBERS = 8  # numbers that are put in an array one by one, each by a store


class _Concatenate(Copying):
    """concatenate(*xs, axis): the arrays one after the other along an axis."""

    linear = True

    def flow(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], *, axis: int
    ) -> Flow:
        """The other axes run along the output."""
        return kept_axes(types, outs, (axis,))

    def infer(self, *types: ArrayType, axis: int) -> ArrayType:
        """The sizes along the axis added up; weak if all operands are."""
        asked = f"concatenate({', '.join(map(str, types))}, axis={axis})"
        if not types:
            raise ShapeError(explain(asked, "it needs at least one array"))
        first = types[0]
        check_axes(asked, first, (axis,))
        for other in types[1:]:
            if other.dtype != first.dtype:
                raise DTypeError(explain(asked, "the dtypes differ", "convert them"))
            if without(other.shape, axis) != without(first.shape, axis):
                reason = "the shapes must be equal except along the axis"
                raise ShapeError(explain(asked, reason))
        size = sum([type.shape[axis] for type in types])
        shape = (*first.shape[:axis], size, *first.shape[axis + 1 :])
        return ArrayType(shape, first.dtype, all(type.weak for type in types))

    def reference(self, *xs: Any, axis: int) -> Any:
        """NumPy's concatenate."""
        return np.concatenate(xs, axis)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, axis: int
    ) -> tuple[Any, Any]:
        """The tangents one after the other, zeros where there are none."""
        rows = zip(primals, tangents, strict=True)
        parts = [zeros_like(x) if t is None else t for x, t in rows]
        return self(*primals, axis=axis), self(*parts, axis=axis)

    def transpose(self, ct: Any, *xs: Any, axis: int) -> Sequence[Any]:
        """Cuts the cotangent in the same parts."""
        parts, end = [], 0
        for x in xs:
            begin, end = end, end + x.shape[axis]
            part = part_of(ct, axis, begin, end) if is_linear(x) else None
            parts.append(part)
        return parts

    def padded(self, pads: Pads, *xs: Padded, axis: int) -> Any:
        """Each array begins where the prefix of the one before it ends."""
        return padded_concatenate(pads, xs, axis)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        /,  # the params have an axis, too
        **params: int,
    ) -> tuple[Any, bool]:
        """Concatenates along the next axis; unmapped operands are repeated."""
        if not any(mapped):
            return self(*args, **params), False
        xs = all_along(axis, args, mapped)
        return self(*xs, axis=params["axis"] + 1), True

    def element(self, k: Any, index: Any, *xs: Any, axis: int) -> Any:
        """The element of the operand that the index falls in."""
        ends = accumulate([x.shape[axis] for x in xs])
        parts = [(x, end) for x, end in zip(xs, ends, strict=True) if x.type.size != 0]

        def pick(number: int) -> Any:
            x, end = parts[number]
            at = index[axis] - (end - x.shape[axis])
            here = (*index[:axis], at, *index[axis + 1 :])
            if number == len(parts) - 1:
                return x(here)
            before_end = k.inside(index[axis], 0, end)
            return k.where(before_end, lambda: x(here), lambda: pick(number + 1))

        return pick(0) if parts else k.constant(0, xs[0].dtype)

    def fusible(self, types: Sequence[ArrayType], params: Any) -> bool:
        """Not for many single numbers: for each, an element would be chosen of all."""
        return len(types) < _MANY_NUMBERS or any(type.size != 1 for type in types)

    def steps(self, plan: Any, *xs: Any, axis: int) -> None:
        """Stores one number after the other."""
        (out,) = plan.outputs
        first = (0,) * len(out.shape)

        def build(k: Any, index: Any, buffer: Any, *pulls: Any) -> None:
            for number, x in enumerate(pulls):
                place = (*first[:axis], number, *first[axis + 1 :])
                k.store(buffer, linear_offset(place, out.shape), x(first))

        plan.pulling("numbers", range(len(xs)), (), build, "out")

    def pulled(self, types: Sequence[ArrayType], params: Any) -> dict[int, Pulled]:
        """Each number, without lanes."""
        return dict.fromkeys(range(len(types)), Pulled(ordered=True, serial=True))

    def identity(self, inputs: Sequence[Atom], *, axis: int) -> Atom | None:
        """The one operand that is not empty."""
        filled = [x for x in inputs if x.type.shape[axis] != 0]
        return filled[0] if len(filled) == 1 else None


slice_ = _Slice("slice")
pad = _Pad("pad")
concatenate = _Concatenate("concatenate")


# ---------------------------------------------------------------- for other rules


def _changed(before: Ints, after: Ints) -> list[int]:
    """The axes whose lengths differ."""
    rows = enumerate(zip(before, after, strict=True))
    return [axis for axis, (n, m) in rows if n != m]


def part_of(x: Any, axis: int, begin: int, end: int, step: int = 1) -> Any:
    """The part of an array with index in range(begin, end, step) along an axis.

    >>> import fnx.runtime.eager
    >>> from fnx.runtime.array import from_numpy
    >>> part_of(from_numpy(np.arange(6)), 0, 1, 6, 2)
    Array([1, 3, 5], dtype=int64)
    """
    before, after = (0,) * axis, (0,) * (len(x.type.shape) - axis - 1)
    shape = x.type.shape
    return slice_(
        x,
        start=(*before, begin, *after),
        stop=(*shape[:axis], end, *shape[axis + 1 :]),
        strides=(1,) * axis + (step,) + (1,) * len(after),
    )


def padded_along(x: Any, axis: int, low: int, high: int, value: Any = 0) -> Any:
    """An array with `low` and `high` more elements (or fewer, if negative) on an axis.

    >>> import fnx.runtime.eager
    >>> from fnx.runtime.array import from_numpy
    >>> padded_along(from_numpy(np.arange(4)), 0, 1, -1, 9)
    Array([9, 0, 1, 2], dtype=int64)
    """
    none = (0,) * len(x.type.shape)
    lows, highs = [(*none[:axis], size, *none[axis + 1 :]) for size in (low, high)]
    return pad(x, value, low=lows, high=highs, interior=none)


def _unpadded(x: Any, low: Ints, high: Ints, interior: Ints) -> Any:
    """The elements of a padded array that are not padding; 0 for those cut off."""
    none = (0,) * len(low)
    lows, highs = [tuple([-size for size in sizes]) for sizes in (low, high)]
    x = pad(x, 0, low=lows, high=highs, interior=none)
    if not any(interior):
        return x
    strides = tuple([between + 1 for between in interior])
    return slice_(x, start=none, stop=x.shape, strides=strides)


def _is_padding(shape: Ints, **params: Ints) -> Any:
    """Whether an element of a padded array of that shape is the padding value."""
    return pad(full(shape, dtypes.bool_, False), True, **params)
