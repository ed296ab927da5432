"""A stack of matrix products as kernels take it: operands by their strides.

Receives a `MatmulStep`; gives a `Problem`, whose sides can be swapped.
Next on the walk: `products_numbers.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fnx.records import record
from fnx.runtime.plan import MatmulStep, Matrices, Place
from fnx_cuda.products_access import (
    VECTOR,
    Access,
    DType,
    Ints,
    Parameters,
)
from fnx_cuda.products_numbers import numbers


@record
class Operand:
    """A stack of matrices in memory, in elements.

    The element at a row and column of an item of the stack lies at `offset`, plus row
    times `row`, plus column times `column`, plus the item's index times `strides`.
    """

    place: Place
    offset: int
    strides: Ints
    rows: int
    columns: int
    row: int
    column: int

    @property
    def swapped(self) -> Operand:
        """The transposed matrices."""
        rows, columns = self.columns, self.rows
        turned = replace(self, rows=rows, columns=columns)
        return replace(turned, row=self.column, column=self.row)

    @property
    def by_rows(self) -> bool:
        """Whether a row's elements lie side by side, and not a column's.

        Those of a single column may do both.
        """
        return self.column == 1 and (self.row != 1 or self.columns > 1)

    @property
    def leading(self) -> int:
        """The stride from row to row, or from column to column."""
        return self.row if self.by_rows else self.column

    @property
    def reach(self) -> int:
        """The largest index inside a matrix that a kernel computes.

        A tile may go beyond the last row and column.
        """
        return (self.rows + 128) * self.row + (self.columns + 128) * self.column

    def width(self, size: int) -> int:
        """Elements of `size` bytes that can be moved at once: a power of 2.

        They lie side by side, in a row or in a column.
        """
        extent, lines = self.columns, self.rows
        if not self.by_rows:
            extent, lines = lines, extent
        leading = self.leading if lines > 1 else 0
        width = VECTOR // size
        for number in (extent, leading, self.offset, *self.strides):
            width = math.gcd(width, number)
        return width

    def row_width(self, size: int) -> int:
        """Elements of a row that can be moved at once."""
        return self.width(size) if self.by_rows else 1


@record
class Problem:
    """out[m, n] = x[m, k] @ y[k, n] for each item of a stack of the shape `batch`."""

    dtype: DType
    out_dtype: DType
    batch: Ints
    m: int
    n: int
    k: int
    out: Operand
    x: Operand
    y: Operand
    tf32: bool = False

    @property
    def stack(self) -> int:
        """The number of products."""
        return math.prod(self.batch)

    @property
    def swapped(self) -> Problem:
        """The same as outᵀ = yᵀ @ xᵀ."""
        turned = self.out.swapped, self.y.swapped, self.x.swapped
        sizes = self.n, self.m, self.k
        types = self.dtype, self.out_dtype
        return Problem(*types, self.batch, *sizes, *turned, self.tf32)

    @property
    def is_short(self) -> bool:
        """Whether 32 bits hold every index inside a matrix."""
        return max(self.out.reach, self.x.reach, self.y.reach) < 2**31

    def access(self, parameters: Parameters) -> Access:
        """How tiles are moved: along the rows or columns of matrices."""
        kind = numbers(self.dtype, self.out_dtype)
        parameters.short(x_leading=self.x.leading, y_leading=self.y.leading)
        return Access(
            self.x.width(kind.size),
            self.y.width(kind.size),
            self.x.by_rows,
            not self.y.by_rows,
            self.is_short,
            _AT_ONCE,
            _SOURCES,
        )

    def target(self, parameters: Parameters) -> str:
        """Where results lie, by rows or by columns."""
        return matrix_target(self.out, parameters)

    @property
    def out_width(self) -> int:
        """Results of a row that lie side by side."""
        return self.out.row_width(numbers(self.dtype, self.out_dtype).out_size)


def matrix_target(out: Operand, parameters: Parameters) -> str:
    """The text of `out_place` for a matrix, and its numbers."""
    parameters.wide(row=out.row, column=out.column)
    return _OUT


def problem(step: MatmulStep) -> Problem:
    """The products of a step."""
    product = step.product
    m, n, k = product.m, product.n, product.k
    out = _operand(step.out, product.out, m, n)
    x, y = _operand(step.x, product.x, m, k), _operand(step.y, product.y, k, n)
    types = step.dtype, step.out_dtype
    return Problem(*types, product.batch, m, n, k, out, x, y, step.tf32)


def _operand(place: Place, matrices: Matrices, rows: int, columns: int) -> Operand:
    row, column = matrices.leading, 1
    if matrices.transposed:
        row, column = column, row
    offset, strides = matrices.offset, matrices.strides
    return Operand(place, offset, strides, rows, columns, row, column)


_AT_ONCE = 64  # all that a thread moves of a tile


# ---------------------------------------------------------------- text

_SOURCES = """
// Lines of a matrix that lie along k, or across it.
template <bool ALONG> struct Matrix {
  const Element* from;
  int lines, leading;
  // Whether there is an element of a line, before the end of k; and where it is.
  __device__ __forceinline__ bool find(int line, int depth, int end, Index& at) const {
    at = ALONG ? (Index)line * leading + depth : (Index)depth * leading + line;
    return line < lines && depth < end;
  }
};
typedef Matrix<X_ALONG> XSource;
typedef Matrix<Y_ALONG> YSource;
__device__ __forceinline__ XSource x_source(const P& p, const Element* from) {
  return {from, p.m, p.x_leading};
}
__device__ __forceinline__ YSource y_source(const P& p, const Element* from) {
  return {from, p.n, p.y_leading};
}
"""

_OUT = """
__device__ __forceinline__ Index out_place(const P& p, int row, int column) {
  return (Index)row * p.row + (Index)column * p.column;
}
"""
