"""A convolution as a product of matrices that are nowhere written out.

A row of the one matrix is a window over x, its columns are the offsets and features
that are summed; the other one is the kernel. Both are read where x and the kernel lie:
`convolution_source.py` has the text, the numbers are here. Receives a
`ConvolutionStep`; gives a `Windowed` for each phase: where elements are spread
(`base` > 1, as in the gradient of a convolution with strides), windows at one distance
meet the same offsets, and all others are zeros that are not multiplied.
Next on the walk: `convolution_source.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fnx.records import record
from fnx.runtime.plan import ConvolutionStep, Convolved, Layout, Place, Sliding
from fnx_cuda.convolution_source import Order, access_text, target_text
from fnx_cuda.products_access import VECTOR, Access, DType, Ints, Parameters
from fnx_cuda.products_numbers import numbers

MARGIN = 256
"""Rows and columns behind the last one that a tile may have."""


AT_ONCE = 4
"""So many places of windows a thread finds at once: each takes several registers."""


@record
class Stacked:
    """The memory of an array, and where the part of each group begins in it."""

    place: Place
    offset: int
    strides: Ints


@record
class Run:
    """Axes of a matrix's rows, columns or sums, the innermost one last, with strides.

    >>> Run((2, 3, 4), (40, 4, 1)).length
    12
    """

    sizes: Ints
    strides: Ints

    @property
    def length(self) -> int:
        """How many elements lie side by side at least, one group behind the other."""
        length = 1
        for size, stride in zip(self.sizes[::-1], self.strides[::-1], strict=True):
            if size != 1 and stride != length:
                break
            length *= size
        return length

    @property
    def others(self) -> Ints:
        """The strides between such groups."""
        length, found = 1, list[int]()
        for size, stride in zip(self.sizes[::-1], self.strides[::-1], strict=True):
            if size == 1 or (not found and stride == length):
                length *= size
            else:
                found.append(stride)
        return tuple(found)


@record
class Windowed:
    """One phase of a convolution: elements lie side by side, not spread.

    Rows are windows and columns output features, or the other way round if `swapped`,
    so that results that lie side by side are written together. What is summed are the
    offsets of a window and the features, these innermost where they are in x.
    """

    dtype: DType
    out_dtype: DType
    places: tuple[Place, Place, Place]
    given: Convolved
    tf32: bool = False

    # -- the sizes of the product

    @property
    def batch(self) -> Ints:
        """The groups."""
        return () if self.given.groups == 1 else (self.given.groups,)

    @property
    def stack(self) -> int:
        """The number of groups."""
        return self.given.groups

    @property
    def windows(self) -> int:
        """The number of windows."""
        return self.given.batch * self.given.places

    @property
    def m(self) -> int:
        """The rows."""
        return self.given.outs if self.swapped else self.windows

    @property
    def n(self) -> int:
        """The columns."""
        return self.windows if self.swapped else self.given.outs

    @property
    def k(self) -> int:
        """The products that are summed."""
        return self.given.summed

    # -- what lies where

    @property
    def out(self) -> Stacked:
        """The results."""
        return self._stacked(self.places[0], self.given.out)

    @property
    def x(self) -> Stacked:
        """What the rows are of."""
        return self._sides[self.swapped]

    @property
    def y(self) -> Stacked:
        """What the columns are of."""
        return self._sides[not self.swapped]

    @property
    def _sides(self) -> tuple[Stacked, Stacked]:
        _, x, kernel = self.places
        given = self.given
        return self._stacked(x, given.x), self._stacked(kernel, given.kernel)

    def _stacked(self, place: Place, layout: Layout) -> Stacked:
        return Stacked(place, layout.offset, layout.strides[: len(self.batch)])

    # -- the order of axes

    @property
    def order(self) -> Order:
        """All of it."""
        return Order(self.swapped, self.features_last, self.batch_last)

    @property
    def features_last(self) -> bool:
        """Whether features are the innermost axis of what is summed."""
        return self.given.x.strides[2] == 1

    @property
    def batch_last(self) -> bool:
        """Whether the batch is the innermost axis of the windows."""
        return self.given.x.strides[1] == 1 and not self.features_last

    @property
    def swapped(self) -> bool:
        """Whether rows are output features: windows are what lies side by side."""
        beside = self.given.out.strides[2] == 1 and self.given.outs > 1
        return not beside and self._windows_of(self.given.out).length > 1

    def _windows_of(self, layout: Layout) -> Run:
        """The axes of the windows, with the strides of out."""
        counts = [axis.count for axis in self.given.axes]
        one = self.given.batch, layout.strides[1]
        return _ordered(one, counts, layout.strides[3:], self.batch_last)

    @property
    def _summed_of_kernel(self) -> Run:
        """The axes of what is summed, with the strides of the kernel."""
        sizes = [axis.window for axis in self.given.axes]
        strides = self.given.kernel.strides
        one = self.given.features, strides[2]
        return _ordered(one, sizes, strides[3:], self.features_last)

    @property
    def _reads(self) -> tuple[tuple[int, bool], tuple[int, bool]]:
        """Elements of x and of the kernel that lie side by side, and if along k."""
        size = self.dtype.itemsize
        x, kernel, axes = self.given.x, self.given.kernel, self.given.axes
        last = axes[-1]
        if self.features_last:
            others = x.strides[0], x.strides[1], *x.strides[3:]
            of_x = _width(size, self.given.features, (x.offset, *others)), True
        elif self.batch_last:
            others = x.strides[0], *x.strides[2:]
            of_x = _width(size, self.given.batch, (x.offset, *others)), False
        else:
            # Some windows end where others begin, so that elements are read alone.
            of_x = 1, last.window > last.count
        if kernel.strides[1] == 1 and self.given.outs > 1:
            others = kernel.strides[0], *kernel.strides[2:]
            of_kernel = _width(size, self.given.outs, (kernel.offset, *others)), False
        else:
            run = self._summed_of_kernel
            others = *kernel.strides[:2], *run.others
            of_kernel = _width(size, run.length, (kernel.offset, *others)), True
        return of_x, of_kernel

    # -- what kernels ask

    @property
    def out_width(self) -> int:
        """Results of a row that lie side by side."""
        size = numbers(self.dtype, self.out_dtype).out_size
        out = self.given.out
        if self.swapped:
            run = self._windows_of(out)
            numbers_of = (out.offset, out.strides[0], out.strides[2], *run.others)
            return _width(size, run.length, numbers_of)
        if out.strides[2] != 1:
            return 1
        others = out.offset, *out.strides[:2], *out.strides[3:]
        return _width(size, self.given.outs, others)

    def access(self, parameters: Parameters) -> Access:
        """How tiles are moved: x where windows are, the kernel by its strides."""
        (x_width, x_along), (y_width, y_along) = self._reads
        if self.swapped:
            (y_width, y_along), (x_width, x_along) = self._reads
        return Access(
            x_width,
            y_width,
            x_along,
            y_along,
            self.is_short,
            AT_ONCE,
            access_text(self.given, self.order, parameters),
        )

    def target(self, parameters: Parameters) -> str:
        """Where results lie: by windows and output features."""
        return target_text(self.given, self.order, parameters)

    @property
    def is_short(self) -> bool:
        """Whether 32 bits hold every index inside a group."""
        return all(reach < 2**31 for reach in self.reaches)

    @property
    def reaches(self) -> tuple[int, int, int]:
        """The largest index inside a group of out, x and the kernel."""
        given = self.given
        rows = given.batch + MARGIN, given.outs + MARGIN
        counts = [axis.count for axis in given.axes]
        sizes = [axis.window for axis in given.axes]
        spans = [
            abs(axis.low) + axis.count * axis.stride + axis.window * axis.dilation
            for axis in given.axes
        ]
        return (
            _reach(given.out, (*rows, *counts)),
            _reach(given.x, (rows[0], given.features, *spans)),
            _reach(given.kernel, (rows[1], given.features, *sizes)),
        )


def _ordered(
    one: tuple[int, int], sizes: Sequence[int], strides: Sequence[int], last: bool
) -> Run:
    """Axes of space with one more axis, which comes last or first."""
    size, stride = one
    if last:
        return Run((*sizes, size), (*strides, stride))
    return Run((size, *sizes), (stride, *strides))


def _width(size: int, length: int, others: Sequence[int]) -> int:
    """Elements of `size` bytes that are moved at once, of so many side by side."""
    return math.gcd(VECTOR // size, length, *others)


def _reach(layout: Layout, sizes: Sequence[int]) -> int:
    steps = zip(sizes, layout.strides[1:], strict=True)
    return sum(size * abs(stride) for size, stride in steps)


# ---------------------------------------------------------------- phases


def windowed(step: ConvolutionStep) -> tuple[Windowed, ...]:
    """The phases of a step, each of which computes its own part of out."""
    places = step.out, step.x, step.kernel
    return tuple(
        [
            Windowed(step.dtype, step.out_dtype, places, phase, step.tf32)
            for phase in phases(step.convolved)
        ]
    )


def phases(given: Convolved) -> tuple[Convolved, ...]:
    """A convolution as several whose elements are not spread."""
    found = [given]
    for axis in range(len(given.axes)):
        found = [phase for one in found for phase in _phases_along(one, axis)]
    return tuple(found)


def count_phases(given: Convolved) -> int:
    """How many phases there are."""
    each = [
        min(axis.base // math.gcd(axis.stride, axis.base), axis.count)
        for axis in given.axes
    ]
    return math.prod(each)


def _phases_along(given: Convolved, number: int) -> list[Convolved]:
    axis = given.axes[number]
    if axis.base == 1:
        return [given]
    # Windows that are `apart` meet the same offsets, which are `between` each other.
    stride = axis.stride // math.gcd(axis.stride, axis.base)
    apart = axis.base // math.gcd(axis.stride, axis.base)
    dilation = axis.dilation // math.gcd(axis.dilation, axis.base)
    between = axis.base // math.gcd(axis.dilation, axis.base)
    found = []
    for first in range(min(apart, axis.count)):
        begin = first * axis.stride - axis.low
        offsets = range(min(between, axis.window))
        meeting = [o for o in offsets if (begin + o * axis.dilation) % axis.base == 0]
        offset = meeting[0] if meeting else 0
        along = Sliding(
            axis.size,
            -(-(axis.count - first) // apart),
            -(-(axis.window - offset) // between) if meeting else 0,
            stride,
            dilation,
            1,
            -((begin + offset * axis.dilation) // axis.base),
        )
        axes = (*given.axes[:number], along, *given.axes[number + 1 :])
        out = _part(given.out, 3 + number, first, apart)
        kernel = _part(given.kernel, 3 + number, offset, between)
        found.append(replace(given, axes=axes, out=out, kernel=kernel))
    return found


def _part(layout: Layout, axis: int, first: int, apart: int) -> Layout:
    """Every so manieth element along an axis, from one on."""
    strides = list(layout.strides)
    offset = layout.offset + first * strides[axis]
    strides[axis] *= apart
    return Layout(offset, tuple(strides))
