"""Windows that slide over an array: their arithmetic, and `windows` itself.

`Windows` says along each axis how long a window is, how far apart windows begin, and
what is put around and between the elements first. Element `offset` of window `o` is
element `i` of the array where

    stride * o + dilation * offset == base_dilation * i + low

which is the same relation from the other side: what goes back from windows to elements
has windows, too (`turned`). Pooling and convolutions are made of it.
Next on the walk: `pooling.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.links import Links, copied
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis, Primitive
from fnx.core.types import ArrayType
from fnx.errors import AxisError, ShapeError, explain
from fnx.ops.families import NUMBER, Copying, widened
from fnx.ops.prefix import filled
from fnx.ops.rearrange import Ints, all_of, dilated, inverse
from fnx.ops.reduce import check_kind, fold_tag
from fnx.ops.shape import reshaped
from fnx.ops.window_prefix import check_windows_alike
from fnx.records import record

Index = tuple[Any, ...]
Row = tuple[int, int, tuple[int, int], int, int]

UNROLLED = 32
"""So many offsets in a window are written one after the other, not as a loop."""


@record
class Windows:
    """How windows lie over an array; each field has an entry for each axis.

    `padding` are the elements that are put before and after an axis (cut off, if
    negative), `base_dilation` is the distance that its elements are spread to,
    `dilation` that of the elements of a window.

    >>> pool = Windows.of((2,), strides=(2,))
    >>> pool.over((7,)), pool.turned((7,)).over((3,))
    ((3,), (7,))
    """

    size: Ints
    strides: Ints
    padding: tuple[tuple[int, int], ...]
    base_dilation: Ints
    dilation: Ints

    @staticmethod
    def of(
        size: Ints,
        *,
        strides: Ints | None = None,
        padding: Sequence[tuple[int, int]] | None = None,
        base_dilation: Ints | None = None,
        dilation: Ints | None = None,
    ) -> Windows:
        """Windows that touch each other nowhere padded, unless said otherwise."""
        ones = (1,) * len(size)
        return Windows(
            size,
            ones if strides is None else strides,
            ((0, 0),) * len(size) if padding is None else tuple(padding),
            ones if base_dilation is None else base_dilation,
            ones if dilation is None else dilation,
        )

    @property
    def rows(self) -> Iterator[Row]:
        """Size, stride, padding, base dilation and dilation of each axis."""
        return zip(
            self.size,
            self.strides,
            self.padding,
            self.base_dilation,
            self.dilation,
            strict=True,
        )

    @property
    def count(self) -> int:
        """The number of elements of a window."""
        return math.prod(self.size)

    @property
    def low(self) -> Ints:
        """What is put before each axis."""
        return tuple([low for low, _ in self.padding])

    @property
    def high(self) -> Ints:
        """What is put after each axis."""
        return tuple([high for _, high in self.padding])

    @property
    def interior(self) -> Ints:
        """What is put between the elements of each axis."""
        return tuple([spread - 1 for spread in self.base_dilation])

    @property
    def axes(self) -> Ints:
        """The axes along which windows are more than the elements as they are."""
        alone = 1, 1, (0, 0), 1
        return tuple([axis for axis, row in enumerate(self.rows) if row[:4] != alone])

    def over(self, shape: Ints) -> Ints:
        """How many windows there are along each axis of an array."""
        counts = []
        for n, (size, stride, (low, high), base, spread) in zip(
            shape, self.rows, strict=True
        ):
            room = _spread(n, base) + low + high - _spread(size, spread)
            counts.append(room // stride + 1 if room >= 0 else 0)
        return tuple(counts)

    def turned(self, shape: Ints) -> Windows:
        """The windows over the array of windows that give back the shape.

        Offset `size - 1 - k` of these is offset `k` of the others.
        """
        counts, padding = self.over(shape), []
        for n, count, row in zip(shape, counts, self.rows, strict=True):
            size, stride, (low, _), base, spread = row
            before = spread * (size - 1) - low
            length = (n - 1) * base + _spread(size, spread)
            padding.append((before, length - before - _spread(count, stride)))
        return Windows(
            self.size, self.base_dilation, tuple(padding), self.strides, self.dilation
        )

    def swapped(self, shape: Ints) -> Windows:
        """The windows over the same array whose numbers are the offsets of these.

        And whose offsets are the numbers of these.
        """
        counts, padding = self.over(shape), []
        for n, count, row in zip(shape, counts, self.rows, strict=True):
            size, stride, (low, _), base, spread = row
            length = (size - 1) * spread + _spread(count, stride)
            padding.append((low, length - low - _spread(n, base)))
        return Windows(
            counts, self.dilation, tuple(padding), self.base_dilation, self.strides
        )

    @property
    def unpadded(self) -> Windows:
        """The same windows over an array that has been padded and spread."""
        return Windows.of(self.size, strides=self.strides, dilation=self.dilation)

    @property
    def raised(self) -> Windows:
        """The same windows one axis up: along the new leading one they are single."""
        return self.beside(1, 0)

    def beside(self, before: int, after: int) -> Windows:
        """The windows with single elements along further axes, before and after."""
        first, last = [Windows.of((1,) * n) for n in (before, after)]
        rows = [first._values(), self._values(), last._values()]  # type: ignore[attr-defined]
        return Windows(*[sum(field, ()) for field in zip(*rows, strict=True)])


def _spread(n: int, dilation: int) -> int:
    """The length of `n` elements at that distance."""
    return (n - 1) * dilation + 1 if n else 0


def check_windows(asked: str, shape: Ints, windows: Windows) -> None:
    """Raises unless the windows fit an array of that shape."""
    fields = windows._values()  # type: ignore[attr-defined]
    if any(len(values) != len(shape) for values in fields):
        reason = f"each of the {len(shape)} axes needs a window, a stride, a padding"
        raise ShapeError(explain(asked, f"{reason} and dilations"))
    names = "window size", "stride", "base dilation", "window dilation"
    lists = windows.size, windows.strides, windows.base_dilation, windows.dilation
    for name, values in zip(names, lists, strict=True):
        for axis, value in enumerate(values):
            if value < 1:
                reason = f"the {name} of axis {axis} is {value}"
                raise ShapeError(explain(asked, reason, "it must be at least 1"))


# ---------------------------------------------------------------- kernels


def over_window(
    k: Any, combine: str, index: Sequence[Any], windows: Windows, shape: Ints, body: Any
) -> Any:
    """What `body(place, offset, met)` at the elements of a window combines to.

    `place` is an element's index in an array of that shape, `offset` its index in the
    window; `met` says whether there is an element. Offsets between the elements that
    `base_dilation` spreads are left out, as far as they can be told.
    """
    extents = _steps(windows)

    def value(steps: Sequence[Any]) -> Any:
        return body(*_element(k, index, steps, windows, shape))

    if math.prod(extents) > UNROLLED:
        return k.fold(combine, fold_tag(index), extents, value)
    values = [value(steps) for steps in itertools.product(*map(range, extents))]
    total = values[0]
    for other in values[1:]:
        total = k.op(combine, total, other)
    return total


def sum_of_products(
    k: Any,
    index: Sequence[Any],
    windows: Windows,
    shape: Ints,
    dtype: np.dtype[Any],
    factors: Callable[[Index, Index], tuple[Any, Any]],
) -> Any:
    """The sum of `factors(place, offset)` multiplied, over the elements of a window.

    Of floats in a small window, each product is added before it is rounded.
    """
    zero = k.constant(0, dtype)
    if math.prod(_steps(windows)) > UNROLLED or not dtypes.is_float(dtype):

        def product(place: Index, offset: Index, met: Any) -> Any:
            return k.where(met, lambda: k.mul(*factors(place, offset)), lambda: zero)

        return over_window(k, "add", index, windows, shape, product)
    total = None
    for place, offset, met in elements_of(k, index, windows, shape):
        total = _one_more(k, total, zero, met, partial(factors, place, offset))
    return total


def _one_more(
    k: Any, total: Any, zero: Any, met: Any, factors: Callable[..., Any]
) -> Any:
    """The sum with one more product, if that is met; `None` is the sum of nothing."""
    if total is None:
        return k.where(met, lambda: k.mul(*factors()), lambda: zero)
    return k.where(met, lambda: k.fma(*factors(), total), lambda: total)


def elements_of(
    k: Any, index: Sequence[Any], windows: Windows, shape: Ints
) -> Iterator[tuple[Index, Index, Any]]:
    """Place, offset and condition of all elements of a window (see `over_window`)."""
    for steps in itertools.product(*map(range, _steps(windows))):
        yield _element(k, index, steps, windows, shape)


def _element(
    k: Any, index: Sequence[Any], steps: Sequence[Any], windows: Windows, shape: Ints
) -> tuple[Index, Index, Any]:
    """Place, offset and condition of the element at so many steps along each axis."""
    places, found, met = [], [], []
    for i, step, n, row in zip(index, steps, shape, windows.rows, strict=True):
        size, stride, (low, _), base, _ = row
        if _is_dense(row):
            # Of `base` offsets in a row one meets an element; counted from the end.
            last = i * stride + (size - 1 - low)
            behind = last % base + step * base
            offset, place = size - 1 - behind, last // base - step
            conditions = [k.inside(behind, 0, size), k.inside(place, 0, n)]
        else:
            offset = step
            place, conditions = _met(k, i, offset, n, row)
        places.append(place)
        found.append(offset)
        met += conditions
    return tuple(places), tuple(found), all_of(k, met)


def met_at(
    k: Any, index: Sequence[Any], offset: Sequence[Any], windows: Windows, shape: Ints
) -> tuple[Index, Any]:
    """Place and condition of the element at an offset in a window."""
    rows = zip(index, offset, shape, windows.rows, strict=True)
    found = [_met(k, i, at, n, row) for i, at, n, row in rows]
    met = all_of(k, [condition for _, each in found for condition in each])
    return tuple([place for place, _ in found]), met


def _is_dense(row: Row) -> bool:
    """Whether the offsets that meet elements are those at one distance."""
    return row[3] > 1 and row[4] == 1


def _steps(windows: Windows) -> Ints:
    """How many offsets are looked at along each axis."""
    return tuple([-(-r[0] // r[3]) if _is_dense(r) else r[0] for r in windows.rows])


def _met(k: Any, i: Any, offset: Any, n: int, row: Row) -> tuple[Any, list[Any]]:
    """Which of n elements of an axis lies at an offset in window i, and if one does."""
    _, stride, (low, _), base, spread = row
    at = i * stride + offset * spread - low
    met = [k.inside(at, 0, _spread(n, base))]
    if base > 1:
        met.append(k.inside(at % base, 0, 1))
        at = at // base
    return at, met


# ---------------------------------------------------------------- NumPy


def padded_array(x: Any, windows: Windows, value: Any) -> Any:
    """A NumPy array with what the windows put around and between its elements."""
    sizes, source, target = _padding_slices(x.shape, windows)
    out = np.full(sizes, value, x.dtype)
    out[target] = x[source]
    return out


def unpadded_array(x: Any, windows: Windows, shape: Ints) -> Any:
    """What of a padded array the elements are; 0 for those that were cut off."""
    _, source, target = _padding_slices(shape, windows)
    out = np.zeros(shape, x.dtype)
    out[source] = x[target]
    return out


Slices = tuple[slice, ...]


def _padding_slices(shape: Ints, windows: Windows) -> tuple[Ints, Slices, Slices]:
    """The padded shape, which elements it has, and where these lie."""
    sizes, source, target = [], [], []
    spread = dilated(shape, windows.interior)
    for n, long, row in zip(shape, spread, windows.rows, strict=True):
        _, _, (low, high), base, _ = row
        size = max(long + low + high, 0)
        first, last = max(0, -(low // base)), min(n, (size - 1 - low) // base + 1)
        begin, end = low + first * base, low + (last - 1) * base + 1
        sizes.append(size)
        source.append(slice(first, last) if first < last else slice(0, 0))
        target.append(slice(begin, end, base) if first < last else slice(0, 0))
    return tuple(sizes), tuple(source), tuple(target)


def window_slices(windows: Windows, counts: Ints, offset: Ints) -> Slices:
    """Where that element of all windows lies in the padded array."""
    rows = zip(offset, counts, windows.rows, strict=True)
    return tuple(
        [
            slice(k * spread, k * spread + max(count - 1, 0) * stride + 1, stride)
            if count
            else slice(0, 0)
            for k, count, (_, stride, _, _, spread) in rows
        ]
    )


def offsets(windows: Windows) -> Iterator[Ints]:
    """The offsets in a window, in row-major order."""
    return itertools.product(*map(range, windows.size))


# ---------------------------------------------------------------- the operations


class _Patches(Copying):
    """patches(x, windows, dims): the windows of x, written out; padding is 0.

    The axes are those of the array of windows, then those of a window, in the order
    `dims`. Transposes to `overlap_add`.
    """

    linear = True
    cheap = True
    lanewise = True
    reads = "many"
    whole_before = True

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        windows: Windows,
        dims: Ints,
    ) -> Flow:
        """Axes without windows run along the output."""
        axes, found = _labels(windows, dims)
        return Flow((axes,), (found,))

    def infer(self, x: ArrayType, *, windows: Windows, dims: Ints) -> ArrayType:
        """How many windows there are along each axis, then their sizes."""
        asked = f"patches({x}, {windows}, dims={dims})"
        check_windows(asked, x.shape, windows)
        natural = (*windows.over(x.shape), *windows.size)
        if sorted(dims) != list(range(len(natural))):
            reason = f"dims must be a permutation of the {len(natural)} axes"
            raise AxisError(explain(asked, reason))
        return x.with_shape(tuple([natural[d] for d in dims]))

    def reference(self, x: Any, *, windows: Windows, dims: Ints) -> Any:
        """One offset after the other."""
        counts = windows.over(x.shape)
        padded = padded_array(x, windows, 0)
        out = np.empty((*windows.size, *counts), x.dtype)
        for offset in offsets(windows):
            out[offset] = padded[window_slices(windows, counts, offset)]
        ndim = len(counts)
        return out.transpose([(d + ndim) % (2 * ndim) for d in dims])

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The tangent's windows."""
        return self(*primals, **params), self(*tangents, **params)

    def transpose(self, ct: Any, x: Any, *, windows: Windows, dims: Ints) -> tuple[Any]:
        """What lies in several windows gets the sum of their cotangents."""
        return (overlap_add(ct, windows=windows, dims=dims, shape=x.shape),)

    sized = ("windows",)

    def padded(self, pads: Pads, x: Padded, *, windows: Windows, dims: Ints) -> Any:
        """What is behind a prefix is what padding is."""
        check_windows_alike(pads, pads.now["windows"], windows)
        return self(filled(pads, x, 0), windows=windows, dims=dims)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        windows: Windows,
        dims: Ints,
    ) -> tuple[Any, bool]:
        """The same windows of each; they have one element along the new axis."""
        if not mapped[0]:
            return self(*args, windows=windows, dims=dims), False
        out = self(*args, windows=windows.raised, dims=_raised(dims))
        return reshaped(out, out.type.shape[:-1]), True

    def element(
        self, k: Any, index: Any, x: Any, *, windows: Windows, dims: Ints
    ) -> Any:
        """The element that lies there, or 0."""
        natural = [index[i] for i in inverse(dims)]
        ndim = len(natural) // 2
        place, met = met_at(k, natural[:ndim], natural[ndim:], windows, x.shape)
        zero = k.constant(0, x.dtype)
        return k.where(met, lambda: x(place), lambda: zero)


class _OverlapAdd(Primitive):
    """overlap_add(x, windows, dims, shape): the sum of all windows where they lie.

    x has the axes that `patches` gives for an array of that shape.
    """

    linear = True
    lanewise = True
    reads = "many"
    whole_before = True

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        windows: Windows,
        dims: Ints,
        shape: Ints,
    ) -> Flow:
        """Axes without windows run along the output."""
        axes, found = _labels(windows, dims)
        return Flow((found,), (axes,))

    def infer(
        self, x: ArrayType, *, windows: Windows, dims: Ints, shape: Ints
    ) -> ArrayType:
        """An array of the shape."""
        asked = f"overlap_add({x}, {windows}, dims={dims}, shape={shape})"
        check_kind(asked, x, NUMBER)
        wanted = patches.infer(x.with_shape(shape), windows=windows, dims=dims)
        if x.shape != wanted.shape:
            reason = f"the windows of such an array have shape {wanted.shape}"
            raise ShapeError(explain(asked, reason))
        return x.with_shape(shape)

    def reference(self, x: Any, *, windows: Windows, dims: Ints, shape: Ints) -> Any:
        """One offset after the other, into the padded array; then its elements."""
        counts, wide = windows.over(shape), widened(x)
        natural = wide.transpose(inverse(dims))
        sizes, _, _ = _padding_slices(shape, windows)
        total = np.zeros(sizes, wide.dtype)
        for offset in offsets(windows):
            part = natural[(..., *offset)]
            total[window_slices(windows, counts, offset)] += part
        return unpadded_array(total, windows, shape).astype(x.dtype, copy=False)

    def links(
        self,
        position: int,
        types: Sequence[ArrayType],
        out: ArrayType,
        known: Sequence[Any],
        *,
        windows: Windows,
        dims: Ints,
        shape: Ints,
    ) -> Links | None:
        """Those of the windows, turned around."""
        params = {"windows": windows, "dims": dims}
        found = copied(patches, 0, (None,), (out,), params)
        return None if found is None else (found[1], found[0])

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Linear."""
        return self(*primals, **params), self(*tangents, **params)

    def transpose(
        self, ct: Any, x: Any, *, windows: Windows, dims: Ints, shape: Ints
    ) -> tuple[Any]:
        """The windows."""
        return (patches(ct, windows=windows, dims=dims),)

    sized = ("windows", "shape")

    def padded(
        self, pads: Pads, x: Padded, *, windows: Windows, dims: Ints, shape: Ints
    ) -> Any:
        """The windows behind a prefix are 0."""
        check_windows_alike(pads, pads.now["windows"], windows)
        return self(filled(pads, x, 0), windows=windows, dims=dims, shape=shape)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        windows: Windows,
        dims: Ints,
        shape: Ints,
    ) -> tuple[Any, bool]:
        """The same of windows with one element along the new axis."""
        (x,) = args
        if not mapped[0]:
            return self(x, windows=windows, dims=dims, shape=shape), False
        x, shape = reshaped(x, (*x.type.shape, 1)), (axis.size, *shape)
        return self(x, windows=windows.raised, dims=_raised(dims), shape=shape), True

    def element(
        self, k: Any, index: Any, x: Any, *, windows: Windows, dims: Ints, shape: Ints
    ) -> Any:
        """A sum over the windows that the element lies in."""
        wide = dtypes.compute_dtype(x.dtype)
        zero = k.constant(0, wide)

        def one(place: Index, offset: Index, met: Any) -> Any:
            sizes = zip(windows.size, offset, strict=True)
            natural = (*place, *[size - 1 - i for size, i in sizes])
            at = tuple([natural[d] for d in dims])
            return k.where(met, lambda: k.convert(x(at), wide), lambda: zero)

        counts, turned = windows.over(shape), windows.turned(shape)
        return k.convert(over_window(k, "add", index, turned, counts, one), x.dtype)


def _labels(
    windows: Windows, dims: Ints
) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """Labels of an array's axes and of those of its windows (see `Flow`)."""
    ndim, covered = len(windows.size), windows.axes
    axes = [None if axis in covered else axis for axis in range(ndim)]
    natural = [*axes, *[None] * ndim]
    return tuple(axes), tuple([natural[d] for d in dims])


def _raised(dims: Ints) -> Ints:
    """The order of the axes with a new axis first, and its windows' axis last."""
    ndim = len(dims) // 2
    return (0, *[d + 1 if d < ndim else d + 2 for d in dims], ndim + 1)


patches = _Patches("patches")
overlap_add = _OverlapAdd("overlap_add")
