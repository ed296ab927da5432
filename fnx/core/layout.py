"""Where the elements of arrays lie in memory, as numbers: offsets and strides.

Receives shapes, gives the `Layout` of an array that holds some or all of the elements
of another one, in whatever order, the `Matrices` that a matrix product reads and
writes, and what a convolution reads (`Convolved`). Everything counts elements, not
bytes. Next on the walk: `primitive.py`, whose rules `viewed` and `written` say how an
operation changes a layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fnx.records import record

Ints = tuple[int, ...]


@record
class Layout:
    """The element at an index lies at `offset` plus the sum of index times stride."""

    offset: int
    strides: Ints


@record
class Matrices:
    """A stack of matrices: a Layout of which one matrix axis has stride 1.

    `leading` is the stride of the other one: from row to row, or, `transposed`, from
    column to column. `strides` are those of the axes of the stack.
    """

    offset: int
    strides: Ints
    leading: int
    transposed: bool

    @property
    def swapped(self) -> Matrices:
        """The same elements as matrices whose rows are these columns."""
        return replace(self, transposed=not self.transposed)


@record
class Product:
    """A stack of matrix products, out[m, n] = x[m, k] @ y[k, n], of the shape `batch`.

    The matrices of `out` are not transposed.
    """

    batch: Ints
    m: int
    n: int
    k: int
    out: Matrices
    x: Matrices
    y: Matrices

    @property
    def stack(self) -> int:
        """The number of products."""
        return math.prod(self.batch)

    @property
    def work(self) -> int:
        """The number of multiply-adds."""
        return self.stack * self.m * self.n * self.k


@record
class Sliding:
    """Windows along one axis of `size` elements: `count` of them, of `window` offsets.

    Offset o of window w is element i where w·stride + o·dilation = i·base + low, if
    there is such an element; it is 0 otherwise.
    """

    size: int
    count: int
    window: int
    stride: int
    dilation: int
    base: int
    low: int


@record
class Convolved:
    """A convolution as numbers, of arrays that lie wherever their strides say.

    out[g, b, m, *w] is the sum of x[g, b, f, *i] · kernel[g, m, f, *o] over the
    features f and offsets o, where the `axes` give the elements i: there are `groups`
    of `batch` items and `outs` output features. The layouts have these axes.
    """

    groups: int
    batch: int
    outs: int
    features: int
    axes: tuple[Sliding, ...]
    out: Layout
    x: Layout
    kernel: Layout

    @property
    def places(self) -> int:
        """How many windows there are in one item of the batch."""
        return math.prod(axis.count for axis in self.axes)

    @property
    def summed(self) -> int:
        """How many products are added up for one element of the output."""
        return self.features * math.prod(axis.window for axis in self.axes)

    @property
    def work(self) -> int:
        """The number of multiply-adds, those with padding included."""
        return self.groups * self.batch * self.places * self.outs * self.summed

    @property
    def read(self) -> int:
        """The elements of both operands."""
        space = math.prod(axis.size for axis in self.axes)
        window = math.prod(axis.window for axis in self.axes)
        each = self.batch * space + self.outs * window
        return self.groups * self.features * each


def row_major(shape: Ints) -> Layout:
    """The layout of an array that is stored by itself.

    >>> row_major((2, 3, 4))
    Layout(offset=0, strides=(12, 4, 1))
    """
    return Layout(0, tuple([math.prod(shape[i + 1 :]) for i in range(len(shape))]))


def is_row_major(layout: Layout, shape: Ints) -> bool:
    """Whether elements lie as in an array that is stored by itself."""
    if 0 in shape:
        return True
    given = zip(layout.strides, row_major(shape).strides, shape, strict=True)
    return layout.offset == 0 and all(a == b for a, b, size in given if size != 1)


def reshaped_layout(layout: Layout, before: Ints, after: Ints) -> Layout | None:
    """The layout under another shape of the same size; `None` if there is none.

    >>> reshaped_layout(Layout(5, (12, 1)), (2, 6), (2, 3, 2))
    Layout(offset=5, strides=(12, 2, 1))
    >>> reshaped_layout(Layout(5, (12, 1)), (2, 6), (12,)) is None
    True
    """
    if 0 in before:
        return row_major(after)
    runs = _runs(before, layout.strides)
    left, stride = runs.pop() if runs else (1, 1)
    strides: list[int] = []
    for size in reversed(after):
        if left == 1 and size != 1:
            left, stride = runs.pop()
        if left % size:
            return None
        strides.append(stride)
        left, stride = left // size, stride * size
    return Layout(layout.offset, tuple(reversed(strides)))


def merged(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, int] | None:
    """Several axes as one, as its size and stride; `None` if they are none.

    >>> merged((2, 3), (12, 4)), merged((2, 3), (20, 4)), merged((), ())
    ((6, 4), None, (1, 1))
    """
    runs = _runs(sizes, strides)
    if len(runs) > 1:
        return None
    return runs[0] if runs else (1, 1)


def merged_alike(
    sizes: Sequence[int], strides: Sequence[Ints]
) -> tuple[Ints, list[Ints]]:
    """Axes that several arrays have, as few longer ones: sizes, and each one's strides.

    >>> merged_alike((2, 3, 4), [(12, 4, 1), (24, 8, 1)])
    ((6, 4), [(4, 1), (8, 1)])
    """
    long: list[int] = []
    steps: list[Ints] = []
    for size, step in zip(sizes, zip(*strides, strict=True), strict=True):
        if long and steps[-1] == tuple([size * each for each in step]):
            long[-1], steps[-1] = long[-1] * size, step
        elif size != 1:
            long.append(size)
            steps.append(step)
    own = [tuple([step[n] for step in steps]) for n in range(len(strides))]
    return tuple(long), own


def _runs(sizes: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Axes as few longer ones, as sizes and strides; those of length 1 do not count."""
    longer, (own,) = merged_alike(sizes, [tuple(strides)])
    return list(zip(longer, own, strict=True))
