"""Reductions over windows: sums, largest and smallest elements, and where these are.

`reduce_window_max` is differentiated through `window_argmax`, which says for each
window the number of its first largest element: `select_and_gather_add` takes a tangent
from there, `select_and_scatter_add`, its transpose, puts a cotangent there. Receives an
array and `Windows`; what is padding never wins and adds nothing.
Next on the walk: `cumulative.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis, Primitive
from fnx.core.program import Eqn
from fnx.core.types import ArrayType
from fnx.errors import DTypeError, ShapeError, explain
from fnx.kernel.expr import linear_offset, unravel
from fnx.ops.families import NUMBER, REAL, widened
from fnx.ops.prefix import filled
from fnx.ops.rearrange import Ints, all_of
from fnx.ops.reduce import check_kind, fold_tag
from fnx.ops.rewriting import rewritten
from fnx.ops.shape import all_along, kept_axes
from fnx.ops.window_prefix import check_apart, check_windows_alike
from fnx.ops.windows import (
    UNROLLED,
    Windows,
    check_windows,
    elements_of,
    met_at,
    offsets,
    over_window,
    padded_array,
    unpadded_array,
    window_slices,
)

PLACE = dtypes.int32
"""The dtype of an element's number in its window."""


class _OverWindows(Primitive):
    """What reads, or writes, the windows over an array."""

    reads = "many"
    whole_before = True

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        windows: Windows,
        **params: Any,
    ) -> Flow:
        """Axes without windows run along the output."""
        return kept_axes(types, outs, windows.axes)


class WindowReduction(_OverWindows):
    """Combines the elements of each window by a NumPy ufunc.

    `combine` is what a kernel calls it.
    """

    def __init__(self, name: str, kinds: str, combine: str, numpy: np.ufunc) -> None:
        super().__init__(name)
        self.kinds = kinds
        self.combine = combine
        self.numpy = numpy

    sized = ("windows",)

    def padded(self, pads: Pads, x: Padded, *, windows: Windows) -> Any:
        """What is behind a prefix is what padding is."""
        check_windows_alike(pads, pads.now["windows"], windows)
        return self(filled(pads, x, self.neutral(x.array.dtype)), windows=windows)

    def infer(self, x: ArrayType, *, windows: Windows) -> ArrayType:
        """How many windows there are along each axis."""
        asked = f"{self.name}({x}, {windows})"
        check_kind(asked, x, self.kinds)
        check_windows(asked, x.shape, windows)
        return x.with_shape(windows.over(x.shape))

    def neutral(self, dtype: np.dtype[Any]) -> Any:
        """What padding is."""
        return 0

    def reference(self, x: Any, *, windows: Windows) -> Any:
        """Axis by axis, one offset after the other; 16-bit floats in float32."""
        value = widened(x)
        for axis in range(value.ndim):
            one = _along(windows, axis)
            counts = one.over(value.shape)
            padded = padded_array(value, one, self.neutral(value.dtype))
            value = np.full(counts, self.neutral(value.dtype), value.dtype)
            for offset in offsets(one):
                part = padded[window_slices(one, counts, offset)]
                value = self.numpy(value, part)
        return value.astype(x.dtype, copy=False)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        windows: Windows,
    ) -> tuple[Any, bool]:
        """Windows with one element along the new axis."""
        return self(*args, windows=windows.raised if mapped[0] else windows), mapped[0]

    def element(self, k: Any, index: Any, x: Any, *, windows: Windows) -> Any:
        """What the elements of the window combine to."""
        wide = dtypes.compute_dtype(x.dtype)
        neutral = k.constant(self.neutral(wide), wide)

        def value(place: Any, offset: Any, met: Any) -> Any:
            return k.where(met, lambda: k.convert(x(place), wide), lambda: neutral)

        found = over_window(k, self.combine, index, windows, x.shape, value)
        return k.convert(found, x.dtype)

    def hoisted(self, eqn: Eqn) -> Sequence[Eqn] | None:
        """Large windows are reduced along one axis after the other."""
        windows: Windows = eqn.params["windows"]
        long = [axis for axis, size in enumerate(windows.size) if size > 1]
        if windows.count <= UNROLLED or len(long) < 2:
            return None
        first, rest = _along(windows, long[0]), _without(windows, long[0])
        return rewritten(eqn, lambda x: self(self(x, windows=first), windows=rest))


class _WindowSum(WindowReduction):
    """reduce_window_sum(x, windows): the sum of each window. Transposes to itself."""

    linear = True

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, windows: Windows
    ) -> tuple[Any, Any]:
        """Linear."""
        return self(*primals, windows=windows), self(*tangents, windows=windows)

    def transpose(self, ct: Any, x: Any, *, windows: Windows) -> tuple[Any]:
        """The sum over the windows that an element lies in."""
        return (self(ct, windows=windows.turned(x.shape)),)


class _WindowExtremum(WindowReduction):
    """reduce_window_max and _min: NaN wins. Of the tied the first is differentiated."""

    def neutral(self, dtype: np.dtype[Any]) -> Any:
        """The value that every other one beats."""
        lowest = self.combine == "max"
        if dtypes.is_float(dtype):
            return -math.inf if lowest else math.inf
        info = np.iinfo(dtype)
        return info.min if lowest else info.max

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, windows: Windows
    ) -> tuple[Any, Any]:
        """The tangent of the first element that is the largest."""
        (x,), (t,) = primals, tangents
        where = window_argmax if self.combine == "max" else window_argmin
        place = where(x, windows=windows)
        moved = select_and_gather_add(t, place, windows=windows)
        return self(x, windows=windows), moved


class _WindowPlace(_OverWindows):
    """window_argmax and window_argmin: the number of the first NaN, or best element.

    Elements are counted in row-major order in the window. Where there is only padding
    it is the number of some of that.
    """

    def __init__(self, name: str, better: str) -> None:
        super().__init__(name)
        self.better = better

    def infer(self, x: ArrayType, *, windows: Windows) -> ArrayType:
        """A number for each window."""
        asked = f"{self.name}({x}, {windows})"
        check_kind(asked, x, REAL)
        check_windows(asked, x.shape, windows)
        return ArrayType(windows.over(x.shape), PLACE)

    def reference(self, x: Any, *, windows: Windows) -> Any:
        """One offset after the other: who is better takes the place."""
        counts = windows.over(x.shape)
        padded = padded_array(widened(x), windows, 0)
        is_element = padded_array(np.ones(x.shape, np.bool_), windows, False)
        compare = np.greater if self.better == "gt" else np.less
        best = np.zeros(counts, padded.dtype)
        seen = np.zeros(counts, np.bool_)
        place = np.zeros(counts, PLACE)
        for number, offset in enumerate(offsets(windows)):
            slices = window_slices(windows, counts, offset)
            value = padded[slices]
            wins = compare(value, best) | ((value != value) & (best == best))
            wins = is_element[slices] & (wins | ~seen)
            best = np.where(wins, value, best)
            place[wins] = number
            seen |= wins
        return place

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """A number does not move."""
        return self(*primals, **params), None

    def padded(self, pads: Pads, *xs: Padded, windows: Windows) -> Any:
        """Only axes vary over which no windows lie."""
        check_apart(pads, windows, *xs)
        return self(*[x.array for x in xs], windows=windows)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        windows: Windows,
    ) -> tuple[Any, bool]:
        """Windows with one element along the new axis."""
        return self(*args, windows=windows.raised if mapped[0] else windows), mapped[0]

    def element(self, k: Any, index: Any, x: Any, *, windows: Windows) -> Any:
        """Elements are compared one after the other, or a fold does it."""
        if windows.count > UNROLLED:
            return self._folded(k, index, x, windows)
        wide = dtypes.compute_dtype(x.dtype)
        place, best = k.constant(0, PLACE), k.constant(0, wide)
        seen = k.constant(False, dtypes.bool_)
        for at, offset, met in elements_of(k, index, windows, x.shape):
            value = _value(k, x, at, met, best)
            wins = k.op(self.better, value, best)
            if dtypes.is_float(wide):
                wins = k.or_(wins, k.and_(k.ne(value, value), k.eq(best, best)))
            wins = all_of(k, [met, _either(k, k.not_(seen), wins)])
            number = k.index_value(linear_offset(offset, windows.size), PLACE)
            place, best = k.select(wins, number, place), k.select(wins, value, best)
            seen = _either(k, seen, met)
        return place

    def _folded(self, k: Any, index: Any, x: Any, windows: Windows) -> Any:
        """A fold of pairs of a value and its number; padding loses against all."""
        wide = dtypes.compute_dtype(x.dtype)
        most = self.better == "gt"
        neutral = (reduce_window_max if most else reduce_window_min).neutral(wide)
        lost = k.constant(neutral, wide)

        def body(offset: Any) -> Any:
            place, met = met_at(k, index, offset, windows, x.shape)
            value = _value(k, x, place, met, lost)
            return value, k.index_value(linear_offset(offset, windows.size), PLACE)

        name = "argmax" if most else "argmin"
        return k.fold(name, fold_tag(index), windows.size, body)[1]


class _GatherAdd(_OverWindows):
    """select_and_gather_add(t, place, windows): the element with that number.

    Of each window of t; 0 where that is padding. Transposes to
    `select_and_scatter_add`.
    """

    linear = True
    lanewise = True

    def infer(self, t: ArrayType, place: ArrayType, *, windows: Windows) -> ArrayType:
        """An element of t for each window."""
        asked = f"{self.name}({t}, {place}, {windows})"
        check_kind(asked, t, NUMBER)
        check_windows(asked, t.shape, windows)
        _check_place(asked, place, windows.over(t.shape))
        return t.with_shape(place.shape)

    def reference(self, t: Any, place: Any, *, windows: Windows) -> Any:
        """One offset after the other: where it is the one, the element is taken."""
        padded = padded_array(t, windows, 0)
        out = np.zeros(place.shape, t.dtype)
        for number, offset in enumerate(offsets(windows)):
            part = padded[window_slices(windows, place.shape, offset)]
            np.copyto(out, part, where=place == number)
        return out

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Linear in t."""
        (t, place), (moved, _) = primals, tangents
        tangent = None if moved is None else self(moved, place, **params)
        return self(t, place, **params), tangent

    def transpose(
        self, ct: Any, t: Any, place: Any, *, windows: Windows
    ) -> tuple[Any, None]:
        """Puts the cotangents where the elements were taken from."""
        put = select_and_scatter_add(ct, place, windows=windows, shape=t.shape)
        return put, None

    def padded(self, pads: Pads, *xs: Padded, windows: Windows) -> Any:
        """Only axes vary over which no windows lie."""
        check_apart(pads, windows, *xs)
        return self(*[x.array for x in xs], windows=windows)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        windows: Windows,
    ) -> tuple[Any, bool]:
        """Both operands have the new axis; windows have one element along it."""
        if not any(mapped):
            return self(*args, windows=windows), False
        return self(*all_along(axis, args, mapped), windows=windows.raised), True

    def element(
        self, k: Any, index: Any, t: Any, place: Any, *, windows: Windows
    ) -> Any:
        """The element at an index that depends on the number."""
        number = k.as_index(place(index), 0, windows.count - 1)
        offset = unravel(number, windows.size)
        at, met = met_at(k, index, offset, windows, t.shape)
        zero = k.constant(0, t.dtype)
        return k.where(met, lambda: t(at), lambda: zero)


class _ScatterAdd(_OverWindows):
    """select_and_scatter_add(x, place, windows, shape): puts each window's element.

    To where the element with that number lies in an array of the shape; what meets at
    one place is added up. Transposes to `select_and_gather_add`.
    """

    linear = True
    lanewise = True

    def infer(
        self, x: ArrayType, place: ArrayType, *, windows: Windows, shape: Ints
    ) -> ArrayType:
        """An array of the shape."""
        asked = f"{self.name}({x}, {place}, {windows}, shape={shape})"
        check_kind(asked, x, NUMBER)
        check_windows(asked, shape, windows)
        for type in (x, place):
            if type.shape != windows.over(shape):
                reason = f"such an array has windows of shape {windows.over(shape)}"
                raise ShapeError(explain(asked, reason))
        _check_place(asked, place, x.shape)
        return x.with_shape(shape)

    def reference(self, x: Any, place: Any, *, windows: Windows, shape: Ints) -> Any:
        """One offset after the other, into the padded array."""
        wide = widened(x)
        total = padded_array(np.zeros(shape, wide.dtype), windows, 0)
        for number, offset in enumerate(offsets(windows)):
            part = np.where(place == number, wide, 0)
            total[window_slices(windows, place.shape, offset)] += part
        return unpadded_array(total, windows, shape).astype(x.dtype, copy=False)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Linear in x."""
        (x, place), (moved, _) = primals, tangents
        tangent = None if moved is None else self(moved, place, **params)
        return self(x, place, **params), tangent

    def transpose(
        self, ct: Any, x: Any, place: Any, *, windows: Windows, shape: Ints
    ) -> tuple[Any, None]:
        """Takes the cotangents from where the elements were put."""
        return select_and_gather_add(ct, place, windows=windows), None

    sized = ("shape",)

    def padded(self, pads: Pads, *xs: Padded, windows: Windows, shape: Ints) -> Any:
        """Only axes vary over which no windows lie."""
        check_apart(pads, windows, *xs)
        return self(*[x.array for x in xs], windows=windows, shape=shape)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        windows: Windows,
        shape: Ints,
    ) -> tuple[Any, bool]:
        """Both operands have the new axis; windows have one element along it."""
        if not any(mapped):
            return self(*args, windows=windows, shape=shape), False
        args = all_along(axis, args, mapped)
        return self(*args, windows=windows.raised, shape=(axis.size, *shape)), True

    def element(
        self, k: Any, index: Any, x: Any, place: Any, *, windows: Windows, shape: Ints
    ) -> Any:
        """A sum over the windows that the element lies in, of those that chose it."""
        wide = dtypes.compute_dtype(x.dtype)
        zero = k.constant(0, wide)

        def value(at: Any, offset: Any, met: Any) -> Any:
            sizes = zip(windows.size, offset, strict=True)
            own = linear_offset([n - 1 - i for n, i in sizes], windows.size)
            number = k.index_value(own, PLACE)

            def taken() -> Any:
                chosen = k.eq(place(at), number)
                return k.select(chosen, k.convert(x(at), wide), zero)

            return k.where(met, taken, lambda: zero)

        turned = windows.turned(shape)
        return k.convert(over_window(k, "add", index, turned, x.shape, value), x.dtype)


# ---------------------------------------------------------------- the rules' parts


def _along(windows: Windows, axis: int) -> Windows:
    """The windows along one axis, with single elements along the others."""
    single = Windows.of((1,) * len(windows.size))
    return _replaced(single, windows, axis)


def _without(windows: Windows, axis: int) -> Windows:
    """The windows along the other axes, with single elements along this one."""
    return _replaced(windows, Windows.of((1,) * len(windows.size)), axis)


def _replaced(windows: Windows, other: Windows, axis: int) -> Windows:
    """The windows, along one axis those of the other."""
    names = "size", "strides", "padding", "base_dilation", "dilation"
    fields = {}
    for name in names:
        own, given = getattr(windows, name), getattr(other, name)
        fields[name] = (*own[:axis], given[axis], *own[axis + 1 :])
    return replace(windows, **fields)


def _check_place(asked: str, place: ArrayType, counts: Ints) -> None:
    if place.dtype != PLACE:
        raise DTypeError(explain(asked, f"the numbers must have dtype {PLACE}"))
    if place.shape != counts:
        reason = f"there are windows of shape {counts}"
        raise ShapeError(explain(asked, reason, "give a number for each"))


def _value(k: Any, x: Any, place: Any, met: Any, otherwise: Any) -> Any:
    """The element in the dtype that it is compared in, if there is one."""
    wide = otherwise.dtype
    return k.where(met, lambda: k.convert(x(place), wide), lambda: otherwise)


def _either(k: Any, a: Any, b: Any) -> Any:
    """The disjunction, constant where one is true and gone where one is false."""
    for one, other in ((a, b), (b, a)):
        if one is k.constant(True, dtypes.bool_):
            return one
        if one is k.constant(False, dtypes.bool_):
            return other
    return k.or_(a, b)


reduce_window_sum = _WindowSum("reduce_window_sum", NUMBER, "add", np.add)
reduce_window_max = _WindowExtremum("reduce_window_max", REAL, "max", np.maximum)
reduce_window_min = _WindowExtremum("reduce_window_min", REAL, "min", np.minimum)
window_argmax = _WindowPlace("window_argmax", "gt")
window_argmin = _WindowPlace("window_argmin", "lt")
select_and_gather_add = _GatherAdd("select_and_gather_add")
select_and_scatter_add = _ScatterAdd("select_and_scatter_add")
