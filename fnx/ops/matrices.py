"""A contraction as matrix products: which matrices BLAS reads and writes, and where.

Receives the shapes of two operands, the roles of their axes and where the arrays lie;
gives a `MatmulLayout`. BLAS takes a matrix at any address of which one axis has stride
1 and the other any stride: most operands are read where they lie, in whatever order
their axes are, and only the others are copied. Next on the walk: `dot.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from fnx.core.layout import Layout, Matrices, Product, merged, merged_alike, row_major
from fnx.ops.contraction import Axes, Pair, Side, extents, output_shape
from fnx.records import record
from fnx.sizes import usual

Layouts = tuple[Layout, Layout, Layout]
"""Where the two operands and the output of a contraction lie."""

# BLAS counts with 32-bit integers.
_LARGEST = 2**31 - 1

# A free axis becomes one of the stack where so many rows or columns are left to BLAS.
_LEFT = 16


@record
class MatmulLayout:
    """A contraction as a stack of matrix products.

    `contract` has the contracted axes of both operands in the order in which they
    become one. An operand is read where it lies, or it is copied first with its axes in
    the order `dims`. If `swapped`, the output is written transposed: the product's x is
    the second operand.
    """

    product: Product
    contract: Pair
    dims: tuple[Axes | None, Axes | None]
    swapped: bool

    def copied(self, shapes: Pair) -> int:
        """The number of elements that are copied."""
        pairs = zip(shapes, self.dims, strict=True)
        return sum([math.prod(shape) for shape, dims in pairs if dims is not None])


@lru_cache(maxsize=4096)
def matmul_layout(
    shapes: Pair, x: Side, y: Side, layouts: Layouts | None = None
) -> MatmulLayout | None:
    """The layout that copies the fewest elements; of those, that with fewest products.

    `None` if there is nothing to multiply, or if no product can be written where the
    output lies. Without `layouts`, every array is stored by itself. The order of the
    contracted axes is free, but the same in both operands, so each operand's own order
    is tried. Leading free axes of an operand may become axes of the stack, along which
    the other operand stays where it is.

    >>> from fnx.ops.contraction import sides
    >>> roles = sides(2, 2, ((0,), (0,)), ((), ()))
    >>> matmul_layout(((8, 3), (8, 5)), *roles).product.x
    Matrices(offset=0, strides=(), leading=3, transposed=True)
    """
    if 0 in extents(shapes, x, y):
        return None
    every = (*shapes, output_shape(*shapes, x, y))
    arrays = list(zip(every, layouts or map(row_major, every), strict=True))
    found = []
    for contract in _summations(x, y):
        for p in _splits(shapes[0], x.free):
            for q in _splits(shapes[1], y.free):
                groups = _groups(x, y, contract, p, q)
                stacks = map(_Stack, *zip(*arrays, strict=True), groups)
                found.append(_laid_out(contract, *stacks))
    possible = [layout for layout in found if layout is not None]

    def cost(layout: MatmulLayout) -> tuple[int, int]:
        return usual(layout.copied(shapes)), usual(layout.product.stack)

    return min(possible, key=cost, default=None)


def _summations(x: Side, y: Side) -> list[Pair]:
    """The orders of the contracted axes that are tried."""
    pairs = list(zip(x.contract, y.contract, strict=True))
    tried = pairs, sorted(pairs), sorted(pairs, key=lambda pair: pair[1])
    orders = [(tuple([i for i, _ in p]), tuple([j for _, j in p])) for p in tried]
    return list(dict.fromkeys(orders))


def _splits(shape: Axes, free: Axes) -> list[int]:
    """How many of the free axes may be axes of the stack."""
    left = [math.prod([shape[i] for i in free[n:]]) for n in range(1, len(free))]
    return [0, *[n for n, size in enumerate(left, 1) if usual(size) >= _LEFT]]


# The axes of an array in groups: those of the stack (`None` where it has no such axis),
# of the rows and of the columns.
_Groups = tuple[tuple[int | None, ...], Axes, Axes]


def _groups(
    x: Side, y: Side, contract: Pair, p: int, q: int
) -> tuple[_Groups, _Groups, _Groups]:
    """The axes of both operands and of the output.

    The first p and q free axes of the operands are axes of the stack.
    """
    stack = (*range(len(x.batch)), *x.placed[:p], *y.placed[:q])
    return (
        ((*x.batch, *x.free[:p], *[None] * q), x.free[p:], contract[0]),
        ((*y.batch, *[None] * p, *y.free[:q]), contract[1], y.free[q:]),
        (stack, x.placed[p:], y.placed[q:]),
    )


@record
class _Stack:
    """An array as a stack of matrices: its shape, where it lies, its axes in groups."""

    shape: Axes
    layout: Layout
    groups: _Groups

    def sizes(self, group: int) -> list[int]:
        """The sizes of the axes of a group that the array has."""
        return [self.shape[axis] for axis in self.groups[group] if axis is not None]

    @property
    def dims(self) -> Axes:
        """The axes in the order of the groups."""
        return tuple([axis for g in self.groups for axis in g if axis is not None])

    @property
    def copied(self) -> _Stack:
        """The array after it is copied in the order of the groups."""
        dims = self.dims
        strides = row_major(tuple([self.shape[axis] for axis in dims])).strides
        own = [strides[dims.index(axis)] for axis in range(len(dims))]
        return replace(self, layout=Layout(0, tuple(own)))

    @property
    def matrices(self) -> Matrices | None:
        """The matrices, if BLAS can read and write them where they lie."""
        row, column = self._one_axis(self.groups[1]), self._one_axis(self.groups[2])
        if row is None or column is None:
            return None
        ways = (False, column, row), (True, row, column)
        for transposed, (extent, unit), (count, stride) in ways:
            leading = stride if count > 1 else extent
            if unit == 1 and extent <= leading <= _LARGEST:
                return Matrices(
                    self.layout.offset, self._strides(), leading, transposed
                )
        return None

    def _strides(self) -> Axes:
        """The strides of the axes of the stack; 0 along those that are not there."""
        own = self.layout.strides
        return tuple([0 if axis is None else own[axis] for axis in self.groups[0]])

    def _one_axis(self, axes: Axes) -> tuple[int, int] | None:
        """Axes as one axis, as its size and stride, if they are one."""
        strides = [self.layout.strides[axis] for axis in axes]
        return merged([self.shape[axis] for axis in axes], strides)


def _laid_out(contract: Pair, x: _Stack, y: _Stack, out: _Stack) -> MatmulLayout | None:
    """The layout with these stacks; `None` if BLAS cannot read or write them."""
    x_dims = x.dims if x.matrices is None else None
    y_dims = y.dims if y.matrices is None else None
    a = (x if x_dims is None else x.copied).matrices
    b = (y if y_dims is None else y.copied).matrices
    c = out.matrices
    if a is None or b is None or c is None:
        return None
    m, n, k = [math.prod(s.sizes(g)) for s, g in ((x, 1), (y, 2), (x, 2))]
    swapped = c.transposed
    if swapped:
        m, n, a, b, c = n, m, b.swapped, a.swapped, c.swapped
    batch, strides = merged_alike(out.sizes(0), [c.strides, a.strides, b.strides])
    pairs = zip((c, a, b), strides, strict=True)
    placed = [replace(matrices, strides=own) for matrices, own in pairs]
    product = Product(batch, m, n, k, *placed)
    return MatmulLayout(product, contract, (x_dims, y_dims), swapped)
