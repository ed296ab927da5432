"""A stack of matrix products as kernels take it: operands by their strides.

Receives a `MatmulStep`; gives a `Problem`, whose sides can be swapped, and its numbers
as the parameter struct of a kernel: the text of the struct and the bytes that fill it.
Sizes and strides are such numbers, so that products of many shapes share one text.
Next on the walk: `products_numbers.py`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fnx.records import record
from fnx.runtime.plan import MatmulStep, Matrices, Place

DType = np.dtype[Any]
Ints = tuple[int, ...]

VECTOR = 16
"""Bytes that a thread reads or writes at once at most; all memory of arrays is aligned
to as many."""


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

    @property
    def stack(self) -> int:
        """The number of products."""
        return math.prod(self.batch)

    @property
    def swapped(self) -> Problem:
        """The same as outᵀ = yᵀ @ xᵀ."""
        turned = self.out.swapped, self.y.swapped, self.x.swapped
        sizes = self.n, self.m, self.k
        return Problem(self.dtype, self.out_dtype, self.batch, *sizes, *turned)

    @property
    def is_short(self) -> bool:
        """Whether 32 bits hold every index inside a matrix."""
        return max(self.out.reach, self.x.reach, self.y.reach) < 2**31


def problem(step: MatmulStep) -> Problem:
    """The products of a step."""
    product = step.product
    m, n, k = product.m, product.n, product.k
    out = _operand(step.out, product.out, m, n)
    x, y = _operand(step.x, product.x, m, k), _operand(step.y, product.y, k, n)
    types = step.dtype, step.out_dtype
    return Problem(*types, product.batch, m, n, k, out, x, y)


def _operand(place: Place, matrices: Matrices, rows: int, columns: int) -> Operand:
    row, column = matrices.leading, 1
    if matrices.transposed:
        row, column = column, row
    offset, strides = matrices.offset, matrices.strides
    return Operand(place, offset, strides, rows, columns, row, column)


# ---------------------------------------------------------------- parameters


class Parameters:
    """The parameter struct of a kernel: addresses, then numbers, each with its name.

    Those of 64 bits come before those of 32, so that there are no gaps.
    """

    def __init__(self, *pointers: str) -> None:
        self._pointers = pointers
        self._wide: dict[str, int | Ints] = {}
        self._short: dict[str, int | Ints] = {}

    def wide(self, **numbers: int | Ints) -> None:
        """Adds numbers of the type `long long`; tuples become arrays."""
        self._wide.update(numbers)

    def short(self, **numbers: int | Ints) -> None:
        """Adds numbers of the type `int`; tuples become arrays."""
        self._short.update(numbers)

    @property
    def text(self) -> str:
        """The struct `P`."""
        lines = [
            *self._pointers,
            *_declared("long long", self._wide),
            *_declared("int", self._short),
        ]
        return "struct P {\n" + "".join(f"  {line};\n" for line in lines) + "};\n"

    @property
    def numbers(self) -> bytes:
        """The bytes after the addresses, as many as the struct has in C."""
        wide, short = _flat(self._wide), _flat(self._short)
        packed = struct.pack(f"<{len(wide)}q{len(short)}i", *wide, *short)
        return packed + b"\0" * (-len(packed) % 8)


def _declared(type: str, numbers: Mapping[str, int | Ints]) -> list[str]:
    return [
        f"{type} {name}[{len(value)}]" if isinstance(value, tuple) else f"{type} {name}"
        for name, value in numbers.items()
    ]


def _flat(numbers: Mapping[str, int | Ints]) -> list[int]:
    rows = [v if isinstance(v, tuple) else (v,) for v in numbers.values()]
    return [number for row in rows for number in row]


def place_parameters(parameters: Parameters, problem: Problem) -> str:
    """Adds what says where items lie; the text of the function `place`.

    It gives the places of the matrices of an item: three numbers of elements.
    """
    out, x, y = problem.out, problem.x, problem.y
    offsets = out.offset, x.offset, y.offset
    if problem.stack == 1:
        parameters.wide(offsets=offsets)
        return _PLACE_OF_ONE
    parameters.wide(
        offsets=offsets,
        out_strides=out.strides,
        x_strides=x.strides,
        y_strides=y.strides,
    )
    parameters.short(batch=problem.batch)
    return _PLACE % len(problem.batch)


_PLACE_OF_ONE = """
__device__ __forceinline__ void place(const P& p, int item, long long at[3]) {
  at[0] = p.offsets[0], at[1] = p.offsets[1], at[2] = p.offsets[2];
}
"""

_PLACE = """
__device__ __forceinline__ void place(const P& p, int item, long long at[3]) {
  at[0] = p.offsets[0], at[1] = p.offsets[1], at[2] = p.offsets[2];
#pragma unroll
  for (int axis = %d - 1; axis >= 0; --axis) {
    const int index = item %% p.batch[axis];
    item /= p.batch[axis];
    at[0] += index * p.out_strides[axis];
    at[1] += index * p.x_strides[axis];
    at[2] += index * p.y_strides[axis];
  }
}
"""
