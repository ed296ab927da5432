"""Which convolutions cuDNN has, and as what: data without a library.

Receives a `ConvolutionStep`; gives a `Problem`. A convolution is cuDNN's forward one,
its gradient by the data, or by the filter: all three are convolutions here, and which
one it is follows from strides. The data's gradient has spread elements, or a filter
whose output features lie inside of the others; that of the filter has a filter as its
output, and the batch is what is summed. Tensors may have any strides; filters are
dense, with their features before space or behind it, and perhaps reversed. Others
(height, width, features, output features) are copied: they are small.
Next on the walk: `cudnn.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fnx import dtypes
from fnx.kernel.build import KernelBuilder
from fnx.kernel.expr import IndexExpr, linear_offset
from fnx.kernel.grid import grid_schedule
from fnx.kernel.ir import Kernel
from fnx.records import record
from fnx.runtime.plan import ConvolutionStep, Convolved, Layout, Place
from fnx_cuda.products_access import DType, Ints

_LARGEST = 2**31 - 1
_LEAST_SPACE = 2
"""Axes of space at least: one alone gets another one of a single element."""

MOST_SPACE = 3
"""Axes of space at most."""

DTYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.float64)
"""The dtypes that cuDNN convolves."""


@record
class Tensor:
    """Batch, features, and space: sizes, strides in elements, and where it begins."""

    sizes: Ints
    strides: Ints
    offset: int


@record
class Filter:
    """Output features, features of a group, and space, which lie side by side.

    `features_last` says in which order; `reversed` filters begin with the last element
    of space, which makes a cross-correlation a convolution. What lies in another way is
    copied, from or to the `loose` layout of groups, output features, features, space.
    """

    sizes: Ints
    features_last: bool
    reversed: bool
    offset: int
    loose: Layout | None = None


@record
class Problem:
    """A convolution of x and a filter that gives y, or one of its gradients.

    `kind` is "forward" for y, "data" for x and "filter" for the filter. The numbers of
    windows are those of axes of space. `tf32` allows that operands are rounded.
    """

    kind: str
    dtype: DType
    x: Tensor
    filter: Filter
    y: Tensor
    pads: Ints
    strides: Ints
    dilations: Ints
    groups: int
    tf32: bool


def problem(step: ConvolutionStep) -> Problem | None:
    """What cuDNN would be asked for; `None` if it has no such convolution."""
    given = step.convolved
    if step.dtype not in DTYPES or step.out_dtype != step.dtype or not given.work:
        return None
    if not 1 <= len(given.axes) <= MOST_SPACE:
        return None
    made = [make(given) for make in (_forward, _data, _filter)]
    found = [None if numbers is None else numbers.problem(step) for numbers in made]
    # Several do, with another array in the place of the filter: that is the smallest.
    return min(filter(None, found), key=_hindrance, default=None)


def _hindrance(problem: Problem) -> tuple[int, bool]:
    given = problem.filter
    return math.prod(given.sizes[2:]), given.loose is not None


def packing_kernel(problem: Problem) -> Kernel:
    """Copies a filter that lies loose to where it is dense, or back if it is made."""
    given, groups = problem.filter, problem.groups
    assert given.loose is not None, "a dense filter needs no copy"
    outs, features, *space = given.sizes
    space = space[len(space) + 3 - len(given.loose.strides) :]
    k = KernelBuilder()
    back = problem.kind == "filter"
    size = math.prod(given.sizes)
    one, other = ("packed", "loose") if back else ("loose", "packed")
    source = k.buffer(one, problem.dtype, size, "in")
    target = k.buffer(other, problem.dtype, size, "out")
    index = k.domain((groups, outs // groups, features, *space))
    loose = layout_offset(given.loose, index)
    group, out, feature, *places = index
    row = group * (outs // groups) + out
    if given.features_last:
        packed = linear_offset((row, *places, feature), (outs, *space, features))
    else:
        packed = linear_offset((row, feature, *places), (outs, features, *space))
    read, written = (packed, loose) if back else (loose, packed)
    k.store(target, written, k.load(source, read))
    return k.finish("packing", grid_schedule)


def layout_offset(layout: Layout, index: Sequence[IndexExpr]) -> IndexExpr:
    """Where the element at an index lies."""
    steps = zip(index, layout.strides, strict=True)
    terms = [place * step for place, step in steps]
    return sum(terms[1:], terms[0] + layout.offset)


def places(kind: str, step: ConvolutionStep) -> tuple[Place, Place, Place]:
    """Where x, the filter and y are of a problem that is a step."""
    if kind == "data":
        return step.out, step.kernel, step.x
    if kind == "filter":
        return step.x, step.out, step.kernel
    return step.x, step.kernel, step.out


@record
class _Numbers:
    """The parts of a problem that depend on its kind."""

    kind: str
    x: Tensor | None
    filter: Filter | None
    y: Tensor | None
    pads: Ints
    strides: Ints
    dilations: Ints

    def problem(self, step: ConvolutionStep) -> Problem | None:
        """The problem, if cuDNN would see outputs of the same sizes."""
        x, kernel, y = self.x, self.filter, self.y
        if x is None or kernel is None or y is None or min(self.pads) < 0:
            return None
        counts = [
            (size + 2 * pad - (window - 1) * dilation - 1) // stride + 1
            for size, window, pad, stride, dilation in zip(
                x.sizes[2:],
                kernel.sizes[2:],
                self.pads,
                self.strides,
                self.dilations,
                strict=True,
            )
        ]
        if counts != list(y.sizes[2:]):
            return None
        axes = self.pads, self.strides, self.dilations
        if kernel.loose is not None:
            # What is copied may as well lie as x does.
            kernel = replace(kernel, features_last=x.strides[1] == 1)
        groups, tf32 = step.convolved.groups, step.tf32
        return Problem(self.kind, step.dtype, x, kernel, y, *axes, groups, tf32)


def _forward(given: Convolved) -> _Numbers | None:
    axes, groups = given.axes, given.groups
    if any(axis.base != 1 for axis in axes):
        return None
    ends = given.batch, given.features, given.outs
    sizes, windows = [a.size for a in axes], [a.window for a in axes]
    counts = [a.count for a in axes]
    kernel = _dense(groups, (ends[2], ends[1], *windows), given.kernel, False)
    if kernel is None:
        return None
    return _numbers(
        "forward",
        _tensor(groups, (ends[0], ends[1], *sizes), given.x),
        kernel,
        _tensor(groups, (ends[0], ends[2], *counts), given.out),
        [(axis.low, axis.stride, axis.dilation) for axis in axes],
    )


def _data(given: Convolved) -> _Numbers | None:
    """What is made is x, of y; the filter has the features of both exchanged."""
    axes, groups = given.axes, given.groups
    if any(axis.stride != 1 for axis in axes):
        return None
    sizes, windows = [a.size for a in axes], [a.window for a in axes]
    counts = [a.count for a in axes]
    layout = _exchanged(given.kernel, 1, 2)
    kernel = _dense(groups, (given.features, given.outs, *windows), layout, True)
    if kernel is None:
        return None
    reach = [(axis.window - 1) * axis.dilation for axis in axes]
    return _numbers(
        "data",
        _tensor(groups, (given.batch, given.outs, *counts), given.out),
        kernel,
        _tensor(groups, (given.batch, given.features, *sizes), given.x),
        [
            (far - axis.low, axis.base, axis.dilation)
            for axis, far in zip(axes, reach, strict=True)
        ],
    )


def _filter(given: Convolved) -> _Numbers | None:
    """The filter is what is made: windows are as large as y, and its batch is summed.

    What is the batch here are features of x.
    """
    axes, groups = given.axes, given.groups
    if any(axis.base != 1 for axis in axes):
        return None
    sizes, windows = [a.size for a in axes], [a.window for a in axes]
    counts = [a.count for a in axes]
    layout = _exchanged(given.out, 1, 2)
    kernel = _dense(groups, (given.outs, given.batch, *counts), layout, False)
    if kernel is None:
        return None
    x, y = _exchanged(given.x, 1, 2), _exchanged(given.kernel, 1, 2)
    return _numbers(
        "filter",
        _tensor(groups, (given.features, given.batch, *sizes), x),
        kernel,
        _tensor(groups, (given.features, given.outs, *windows), y),
        [(axis.low, axis.dilation, axis.stride) for axis in axes],
    )


def _numbers(
    kind: str,
    x: Tensor | None,
    kernel: Filter,
    y: Tensor | None,
    axes: Sequence[tuple[int, int, int]],
) -> _Numbers:
    """With an axis of one element more, if there are too few of them."""
    more = (0, 1, 1) if len(axes) < _LEAST_SPACE else None
    pads, strides, dilations = zip(*([more, *axes] if more else axes), strict=True)
    return _Numbers(kind, x, kernel, y, pads, strides, dilations)


def _exchanged(layout: Layout, first: int, second: int) -> Layout:
    strides = list(layout.strides)
    strides[first], strides[second] = strides[second], strides[first]
    return Layout(layout.offset, tuple(strides))


def _tensor(groups: int, sizes: Ints, layout: Layout) -> Tensor | None:
    """A tensor whose features are those of one group behind those of another."""
    apart, batch, feature, *space = layout.strides
    count, features, *places = sizes
    if groups > 1 and apart != features * feature:
        return None
    if len(space) < _LEAST_SPACE:
        places, space = [1, *places], [places[0] * space[0], *space]
    found = (count, groups * features, *places), (batch, feature, *space)
    reach = sum(size * step for size, step in zip(*found, strict=True))
    if min(found[1]) < 1 or reach > _LARGEST:
        return None
    return Tensor(*found, layout.offset)


def _dense(groups: int, sizes: Ints, layout: Layout, turned: bool) -> Filter | None:
    """A filter, if its elements lie side by side in an order that cuDNN has.

    In a gradient by the data its space is `turned` around once more.
    """
    outs, features, *space = sizes
    apart, *strides = layout.strides
    backward = {step < 0 for size, step in zip(sizes, strides, strict=True) if size > 1}
    signs = {s < 0 for n, s in zip(space, strides[2:], strict=True) if n > 1}
    shape = space if len(space) >= _LEAST_SPACE else [1, *space]
    ends = groups * outs, features, *shape
    is_loose = len(signs) > 1 or (backward - signs and True in backward)
    if is_loose or (groups > 1 and apart != outs * strides[0]):
        return _loose(ends, layout, turned)
    is_reversed = True in signs
    one = math.prod(space)
    inner = [math.prod(space[n + 1 :]) for n in range(len(space))]
    first = (features * one, one, *inner)
    last = (features * one, 1, *[features * step for step in inner])
    steps = [abs(step) for step in strides]
    for wanted, features_last in (first, False), (last, True):
        pairs = zip(sizes, steps, wanted, strict=True)
        if all(size == 1 or step == want for size, step, want in pairs):
            begin = layout.offset + sum(
                [(n - 1) * s for n, s in zip(space, strides[2:], strict=True) if s < 0]
            )
            return Filter(ends, features_last, is_reversed != turned, begin)
    return _loose(ends, layout, turned)


def _loose(sizes: Ints, layout: Layout, turned: bool) -> Filter | None:
    """A filter that is copied, if it is all of an array."""
    lies_forward = min(layout.strides) > 0 and layout.offset == 0
    return Filter(sizes, False, turned, 0, layout) if lies_forward else None
