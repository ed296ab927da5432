"""Stacks of matrices as launches: solving, factors and reflections, panel by panel.

An `Algebra` collects the launches of one routine. Receives places of memory, seen as
`Matrix`es by strides; used by `decompositions.py`, next on the walk:
`matrices_text.py`.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator

from fnx.dtypes import DType
from fnx.records import record
from fnx.runtime.plan import Place
from fnx_cuda.instructions import Launch
from fnx_cuda.matrices_text import (
    IDENTITY,
    LOWER,
    PANEL,
    THREADS,
    WHOLE,
    text,
)
from fnx_cuda.work import Work

MOST_BLOCKS = 16_384


@record
class Matrix:
    """A stack of matrices in memory: sizes, and strides and an offset in elements."""

    place: Place
    rows: int
    columns: int
    stack: int
    row: int
    column: int
    offset: int = 0

    @property
    def T(self) -> Matrix:
        """The transposed matrices."""
        turned = self.columns, self.rows, self.stack, self.column, self.row
        return Matrix(self.place, *turned, self.offset)

    @property
    def reversed(self) -> Matrix:
        """The matrices from their last elements on, row by row and column by column."""
        offset = self.offset + (self.rows - 1) * self.row
        offset += (self.columns - 1) * self.column
        steps = self.stack, -self.row, -self.column
        return Matrix(self.place, self.rows, self.columns, *steps, offset)

    def part(self, row: int, column: int, rows: int, columns: int) -> Matrix:
        """The parts that begin at an element."""
        offset = self.offset + row * self.row + column * self.column
        return dataclasses.replace(self, rows=rows, columns=columns, offset=offset)

    @property
    def numbers(self) -> bytes:
        """The struct `View` of the text."""
        return struct.pack("<4q", self.offset, self.stack, self.row, self.column)


def dense(place: Place, rows: int, columns: int) -> Matrix:
    """Matrices one behind the other, row by row."""
    return Matrix(place, rows, columns, rows * columns, columns, 1)


class Algebra:
    """The launches of a routine on `count` matrices of a dtype."""

    def __init__(self, dtype: DType, count: int, work: Work) -> None:
        self.dtype = dtype
        self.count = count
        self.work = work
        self.text = text(dtype)
        self.launches: list[Launch] = []

    def room(self, rows: int, columns: int) -> Matrix:
        """Work memory for matrices."""
        nbytes = self.count * rows * columns * self.dtype.itemsize
        return dense(self.work.place(nbytes), rows, columns)

    def integers(self, count: int) -> Place:
        """Work memory for so many numbers of 32 bits for each matrix."""
        return self.work.place(4 * count * self.count)

    # -- parts

    def copy(
        self,
        source: Matrix,
        out: Matrix,
        kind: int = WHOLE,
        *,
        conjugated: bool = False,
    ) -> None:
        """Copies matrices, or their triangles; the rest of `out` is zeros."""
        ends = source.place, out.place
        self._elements("copy_part", ends, source, out, kind, conjugated)

    def identity(self, out: Matrix) -> None:
        """Ones on the diagonal, and zeros."""
        self._elements("copy_part", (out.place, out.place), out, out, IDENTITY)

    def scale(self, x: Matrix, factor: float) -> None:
        """Multiplies matrices by a number."""
        size = self.count * x.rows * x.columns
        numbers = x.numbers + struct.pack("<dq2i", factor, size, x.rows, x.columns)
        blocks = min(-(-size // THREADS), MOST_BLOCKS)
        self._launch("scale", blocks, (x.place,), numbers)

    def addresses(self, start: Place, nbytes: int, out: Place) -> None:
        """The addresses of arrays that lie so many bytes apart, as an array."""
        numbers = struct.pack("<q2i", nbytes, self.count, 0)
        blocks = -(-self.count // THREADS)
        self._launch("list_addresses", blocks, (start, out), numbers)

    def pair(self, vectors: Place, values: Place, out: Place, n: int) -> None:
        """Complex vectors of columns of which pairs are real and imaginary parts."""
        size = self.count * n * n
        numbers = struct.pack("<q2i", size, n, 0)
        blocks = min(-(-size // THREADS), MOST_BLOCKS)
        self._launch("pair_vectors", blocks, (vectors, values, out), numbers)

    def spoil(self, out: Matrix, failed: Place, kind: int = WHOLE) -> None:
        """NaN for matrices that have failed."""
        self._elements("spoil", (out.place, failed), None, out, kind)

    def _elements(
        self,
        function: str,
        ends: tuple[Place, ...],
        source: Matrix | None,
        out: Matrix,
        kind: int,
        conjugated: bool = False,
    ) -> None:
        size = self.count * out.rows * out.columns
        if not size:
            return
        numbers = (b"" if source is None else source.numbers) + out.numbers
        numbers += struct.pack("<q4i", size, out.rows, out.columns, kind, conjugated)
        self._launch(function, min(-(-size // THREADS), MOST_BLOCKS), ends, numbers)

    def _launch(
        self, function: str, blocks: int, ends: tuple[Place, ...], numbers: bytes
    ) -> None:
        grid = blocks, 1, 1
        self.launches.append(
            Launch(self.text, function, grid, THREADS, 0, ends, numbers)
        )

    # -- solving

    def solve(
        self,
        a: Matrix,
        x: Matrix,
        *,
        upper: bool = False,
        unit: bool = False,
        conjugated: bool = False,
    ) -> None:
        """Solves a @ x = x in place; a is triangular as it is seen, or conjugated."""
        if not (x.rows and x.columns):
            return
        shift = min((x.columns - 1).bit_length(), PANEL.bit_length() - 1)
        tiles = -(-x.columns // (1 << shift))
        numbers = a.numbers + x.numbers
        numbers += struct.pack("<4i", x.rows, x.columns, tiles, shift)
        numbers += struct.pack("<4i", upper, unit, conjugated, 0)
        self._launch("solve_columns", tiles * self.count, (a.place, x.place), numbers)

    def subtract(
        self, a: Matrix, b: Matrix, c: Matrix, *, lower: bool, conjugated: bool
    ) -> None:
        """Makes c - a @ b of c, or of its lower triangle; b may be conjugated."""
        if not (c.rows and c.columns):
            return
        tiles_m, tiles_n = -(-c.rows // PANEL), -(-c.columns // PANEL)
        numbers = a.numbers + b.numbers + c.numbers
        numbers += struct.pack("<3i", c.rows, c.columns, a.columns)
        numbers += struct.pack("<5i", tiles_m, tiles_n, lower, conjugated, 0)
        blocks = tiles_m * tiles_n * self.count
        self._launch("update", blocks, (a.place, b.place, c.place), numbers)

    # -- factors

    def cholesky(self, a: Matrix, failed: Place) -> None:
        """The lower factor in place of the lower triangle; which matrices have none."""
        n = a.rows
        for k, width in panels(n):
            square = a.part(k, k, width, width)
            numbers = square.numbers + struct.pack("<q4i", 1, width, width, k, 0)
            self._launch("cholesky_panel", self.count, (a.place, failed), numbers)
            rest = n - k - width
            below = a.part(k + width, k, rest, width)
            self.solve(square, below.T, conjugated=True)
            corner = a.part(k + width, k + width, rest, rest)
            self.subtract(below, below.T, corner, lower=True, conjugated=True)

    def lu(self, a: Matrix, pivots: Place) -> None:
        """Both factors in place of the matrix, and the pivots, counted from 0."""
        m, n = a.rows, a.columns
        count = min(m, n)
        for k, width in panels(count):
            panel = a.part(k, k, m - k, width)
            numbers = panel.numbers + struct.pack("<q4i", count, m - k, width, k, 0)
            self._launch("lu_panel", self.count, (a.place, pivots), numbers)
            if width < n:
                self.exchange(a, pivots, count, (k, width), done=(k, k + width))
            square = a.part(k, k, width, width)
            behind = n - k - width
            right = a.part(k, k + width, width, behind)
            self.solve(square, right, unit=True)
            below = a.part(k + width, k, m - k - width, width)
            corner = a.part(k + width, k + width, m - k - width, behind)
            self.subtract(below, right, corner, lower=False, conjugated=False)

    def exchange(
        self,
        x: Matrix,
        pivots: Place,
        every: int,
        some: tuple[int, int],
        *,
        back: bool = False,
        done: tuple[int, int] = (0, 0),
    ) -> None:
        """Exchanges rows by some of every pivot: the first one, and how many.

        Columns in a range are `done` already.
        """
        chunks = -(-x.columns // THREADS)
        numbers = x.numbers + struct.pack("<q2i", every, x.columns, chunks)
        numbers += struct.pack("<6i", *some, *done, back, 0)
        ends = x.place, pivots
        self._launch("exchange_rows", chunks * self.count, ends, numbers)

    def order(self, pivots: Place, count: int, out: Place, length: int) -> None:
        """The numbers of rows after exchanges."""
        numbers = struct.pack("<2i", count, length)
        self._launch("order_rows", self.count, (pivots, out), numbers)

    def count_from_0(self, pivots: Place, count: int, out: Place) -> None:
        """Pivots that a library counts from 1."""
        numbers = struct.pack("<2i", count, 0)
        self._launch("count_from_0", self.count, (pivots, out), numbers)

    def find_zeros(self, a: Matrix, failed: Place) -> None:
        """Which matrices have a 0 on their diagonals."""
        numbers = a.numbers + struct.pack("<q", a.rows)
        self._launch("find_zeros", self.count, (a.place, failed), numbers)

    # -- reflections

    def qr(self, a: Matrix, taus: Place) -> Place:
        """Reflections in place of the matrix, with the triangle; and T of panels."""
        m, n = a.rows, a.columns
        count = min(m, n)
        triangles = self._triangles(count)
        for k, width in panels(count):
            panel = a.part(k, k, m - k, width)
            numbers = panel.numbers + struct.pack("<q4i", count, m - k, width, k, 0)
            self._launch("qr_panel", self.count, (a.place, taus), numbers)
            self._triangle(panel, taus, count, k, triangles)
            right = a.part(k, k + width, m - k, n - k - width)
            self._apply(panel, triangles, k, right, adjoint=True, conjugated=False)
        return triangles

    def triangles(self, a: Matrix, taus: Place, count: int) -> Place:
        """T of each panel of so many reflections."""
        made = self._triangles(count)
        for k, width in panels(count):
            panel = a.part(k, k, a.rows - k, width)
            self._triangle(panel, taus, count, k, made)
        return made

    def reflect(
        self,
        a: Matrix,
        triangles: Place,
        count: int,
        c: Matrix,
        *,
        adjoint: bool = False,
        conjugated: bool = False,
        fresh: bool = False,
    ) -> None:
        """The product Q @ c of reflections, or that of Qᴴ; of conjugated ones if asked.

        A `fresh` c is an identity, whose first columns are zeros further down.
        """
        steps = list(panels(count))
        for k, width in steps if adjoint else reversed(steps):
            panel = a.part(k, k, a.rows - k, width)
            first = k if fresh else 0
            below = c.part(k, first, a.rows - k, c.columns - first)
            self._apply(
                panel, triangles, k, below, adjoint=adjoint, conjugated=conjugated
            )

    def _triangles(self, count: int) -> Place:
        number = -(-count // PANEL)
        nbytes = number * self.count * PANEL * PANEL * self.dtype.itemsize
        return self.work.place(nbytes)

    def _triangle_at(self, triangles: Place, k: int) -> Place:
        nbytes = self.count * PANEL * PANEL * self.dtype.itemsize
        return dataclasses.replace(
            triangles, index=triangles.index + k // PANEL * nbytes
        )

    def _triangle(
        self, panel: Matrix, taus: Place, count: int, k: int, triangles: Place
    ) -> None:
        numbers = panel.numbers
        numbers += struct.pack("<q4i", count, panel.rows, panel.columns, k, 0)
        ends = panel.place, taus, self._triangle_at(triangles, k)
        self._launch("make_triangle", self.count, ends, numbers)

    def _apply(
        self,
        panel: Matrix,
        triangles: Place,
        k: int,
        c: Matrix,
        *,
        adjoint: bool,
        conjugated: bool,
    ) -> None:
        if not c.columns:
            return
        tiles = -(-c.columns // PANEL)
        numbers = panel.numbers + c.numbers
        numbers += struct.pack("<4i", panel.rows, panel.columns, c.columns, tiles)
        numbers += struct.pack("<2i", adjoint, conjugated)
        ends = panel.place, self._triangle_at(triangles, k), c.place
        self._launch("apply_reflections", tiles * self.count, ends, numbers)


def panels(count: int) -> Iterator[tuple[int, int]]:
    """Where panels begin, and how many columns they have.

    >>> list(panels(70))
    [(0, 32), (32, 32), (64, 6)]
    """
    for k in range(0, count, PANEL):
        yield k, min(PANEL, count - k)


__all__ = ["LOWER", "Algebra", "Matrix", "dense", "panels"]
