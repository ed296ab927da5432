"""Transforms of small squares, for convolutions with fewer products.

`sandwich(x, matrix)` is matrix · x · matrixᵀ over the two leading axes of x, with a
matrix of a few numbers known at compile time. Winograd's algorithms are made of it: a
convolution of a square by a kernel is, after both are transformed, one product for each
place (A. Lavin, S. Gray, Fast algorithms for convolutional neural networks, 2016).
Next on the walk: `squares.py`, which does so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.layout import Layout
from fnx.core.primitive import MappedAxis, Primitive, Pulled
from fnx.core.types import ArrayType
from fnx.errors import ShapeError, explain
from fnx.ops.families import FLOAT
from fnx.ops.reduce import check_kind
from fnx.ops.shape import permute

Matrix = tuple[tuple[float, ...], ...]


class _Sandwich(Primitive):
    """sandwich(x, matrix): along the two leading axes, matrix · x · matrixᵀ."""

    linear = True
    reads = "many"

    def infer(self, x: ArrayType, *, matrix: Matrix) -> ArrayType:
        """As many places along each of the two axes as the matrix has rows."""
        asked = f"sandwich({x})"
        check_kind(asked, x, FLOAT)
        width = len(matrix[0])
        if x.shape[:2] != (width, width):
            reason = f"the matrix has {width} columns"
            raise ShapeError(explain(asked, reason, "the leading axes are so long"))
        return x.with_shape((len(matrix), len(matrix), *x.shape[2:]))

    def reference(self, x: Any, *, matrix: Matrix) -> Any:
        """Two products; 16-bit floats in float32."""
        rows = np.asarray(matrix, dtypes.compute_dtype(x.dtype))
        value = np.tensordot(rows, x.astype(rows.dtype, copy=False), (1, 0))
        value = np.tensordot(rows, value, (1, 1)).swapaxes(0, 1)
        return value.astype(x.dtype, copy=False)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, matrix: Matrix
    ) -> tuple[Any, Any]:
        """Linear."""
        return self(*primals, matrix=matrix), self(*tangents, matrix=matrix)

    def transpose(self, ct: Any, x: Any, *, matrix: Matrix) -> tuple[Any]:
        """The transposed matrix."""
        return (self(ct, matrix=tuple(zip(*matrix, strict=True))),)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        matrix: Matrix,
    ) -> tuple[Any, bool]:
        """The new axis goes behind the two."""
        (x,) = args
        if not mapped[0]:
            return self(x, matrix=matrix), False
        rest = range(3, x.type.ndim)
        out = self(permute(x, dims=(1, 2, 0, *rest)), matrix=matrix)
        return permute(out, dims=(2, 0, 1, *rest)), True

    def pulled(self, types: Sequence[ArrayType], params: Any) -> dict[int, Pulled]:
        """Each element once, in a kernel over the axes behind the two."""
        return {0: Pulled(ordered=False, serial=False)}

    def copied(
        self, types: Sequence[ArrayType], layouts: Sequence[Layout], *, matrix: Matrix
    ) -> int:
        """The output may lie anywhere."""
        return 0

    def steps(self, plan: Any, x: Any, *, matrix: Matrix) -> None:
        """A kernel that makes a whole square in a round."""
        out = plan.outputs[0]

        def build(k: Any, index: Any, buffer: Any, x: Any) -> None:
            add_sandwich(k, index, buffer, x, matrix, out.layout)

        plan.pulling("sandwich", (0,), out.shape[2:], build, "out")


def add_sandwich(
    k: Any, index: Any, buffer: Any, x: Any, matrix: Matrix, layout: Layout
) -> None:
    """Stores the square of outputs at an index along the other axes."""
    size, wide = range(len(matrix[0])), dtypes.compute_dtype(buffer.dtype)
    square = [[k.convert(x((i, j, *index)), wide) for j in size] for i in size]
    rows = [transformed(k, matrix, row) for row in square]
    columns = [transformed(k, matrix, column) for column in zip(*rows, strict=True)]
    for j, column in enumerate(columns):
        for i, value in enumerate(column):
            place = zip((i, j, *index), layout.strides, strict=True)
            offset = sum([n * step for n, step in place], layout.offset)
            k.store(buffer, offset, k.convert(value, buffer.dtype))


def transformed(k: Any, matrix: Matrix, values: Sequence[Any]) -> list[Any]:
    """The product of the matrix and a vector, in a kernel.

    Rows come in pairs that differ in the signs of every other column, so that sums over
    even and over odd columns serve two rows.
    """
    found = []
    for row in matrix:
        parts = []
        for parity in (0, 1):
            pairs = enumerate(zip(row, values, strict=True))
            own = [(c, x) for n, (c, x) in pairs if c and n % 2 == parity]
            if own:
                parts.append(_scaled_sum(k, own))
        found.append(_joined(k, parts))
    return found


def _scaled_sum(k: Any, terms: Sequence[tuple[float, Any]]) -> tuple[float, Any]:
    """A factor and a sum whose last term has the coefficient 1."""
    factor = terms[-1][0]
    total = terms[-1][1]
    for c, x in reversed(terms[:-1]):
        total = _plus(k, total, c / factor, x)
    return factor, total


def _joined(k: Any, parts: Sequence[tuple[float, Any]]) -> Any:
    """The sum of parts with factors."""
    if not parts:
        raise ValueError("a row of zeros")
    (factor, total), *rest = parts
    if rest and factor != 1 and rest[0][0] == 1:
        (factor, total), rest = rest[0], [(factor, total)]
    if factor == -1:
        total = k.neg(total)
    elif factor != 1:
        total = k.mul(k.constant(factor, total.dtype), total)
    for c, x in rest:
        total = _plus(k, total, c, x)
    return total


def _plus(k: Any, total: Any, c: float, x: Any) -> Any:
    """Total + c * x."""
    if c == 1:
        return k.add(total, x)
    if c == -1:
        return k.sub(total, x)
    return k.fma(k.constant(c, x.dtype), x, total)


sandwich = _Sandwich("sandwich")

# For the points 0, 1, -1, 2, -2 and infinity: four outputs of a kernel of three
# elements, or three of a kernel of four, from six elements.
INPUT: Matrix = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
_POINTS = ((0, 4), (1, -6), (-1, -6), (2, 24), (-2, 24))


def kernel_matrix(size: int) -> Matrix:
    """What transforms a kernel of three or four elements."""
    rows = [tuple([p**n / scale for n in range(size)]) for p, scale in _POINTS]
    return (*rows, (*(0.0,) * (size - 1), 1.0))


def output_matrix(size: int) -> Matrix:
    """What gives four or three outputs."""
    last = [0.0] * (size - 1) + [1.0]
    return tuple([(*[float(p**n) for p, _ in _POINTS], last[n]) for n in range(size)])
