"""What goes column by column as launches: pivoted QR, Hessenberg and tridiagonal forms,
and tridiagonal systems.

Each function adds launches to an `Algebra`, on matrices seen as `Matrix`es. A column is
two or three launches, which are worth it up to `MOST_COLUMNS`. Used by
`decompositions.py`; next on the walk: `reductions_text.py`.
"""

from __future__ import annotations

import struct

from fnx import dtypes
from fnx.runtime.plan import Place
from fnx_cuda.instructions import Launch
from fnx_cuda.matrices import MOST_BLOCKS, Algebra, Matrix
from fnx_cuda.matrices_text import PANEL, THREADS
from fnx_cuda.reductions_text import text

MOST_COLUMNS = 2048
"""Matrices with more columns are the host's: each of them is several launches."""

ROWS = THREADS // PANEL
"""The rows that a block reflects from the right."""


def pivoted_qr(algebra: Algebra, a: Matrix, taus: Place, order: Place) -> None:
    """Reflections in place of the matrix, with the triangle of its ordered columns."""
    m, n = a.rows, a.columns
    count = min(m, n)
    real = dtypes.real_dtype(algebra.dtype).itemsize
    lengths = algebra.work.place(real * n * algebra.count)
    vector = algebra.room(1, m).place
    tiles = -(-n // PANEL)
    numbers = a.numbers + struct.pack("<4i", m, n, tiles, 0)
    blocks = tiles * algebra.count
    _launch(algebra, "measure_columns", blocks, (a.place, lengths, order), numbers)
    for k in range(count):
        numbers = a.numbers + struct.pack("<q4i", count, m, n, k, 0)
        ends = a.place, taus, vector, lengths, order
        _launch(algebra, "choose_column", algebra.count, ends, numbers)
        rest = a.part(k, k + 1, m - k, n - k - 1)
        _from_the_left(algebra, rest, vector, (m, k), (taus, count, k), lengths)


def hessenberg(algebra: Algebra, a: Matrix, taus: Place, *, back: bool = False) -> None:
    """Reflections in place of the matrix, with what they make of it, and their factors.

    Those of a matrix that is seen from its end come in the other order: `back`.
    """
    n = a.rows
    vector = algebra.room(1, n).place
    for k in range(n - 1):
        number = n - 2 - k if back else k
        numbers = a.numbers + struct.pack("<q4i", n - 1, n, k + 1, k, number)
        ends = a.place, taus, vector
        _launch(algebra, "reflect_column", algebra.count, ends, numbers)
        factor = taus, n - 1, number
        right = a.part(0, k + 1, n, n - k - 1)
        _from_the_right(algebra, right, vector, (n, k + 1), factor)
        rest = a.part(k + 1, k + 1, n - k - 1, n - k - 1)
        _from_the_left(algebra, rest, vector, (n, k + 1), factor)


def tridiagonal(
    algebra: Algebra, a: Matrix, out: Matrix, ends: tuple[Place, Place, Place]
) -> None:
    """A Hermitian matrix's reflections in its lower triangle, both diagonals and taus.

    With strides back from its end, it is the upper triangle. The other one stays.
    """
    diagonal, beside, taus = ends
    n, back = a.rows, a.row < 0
    whole = algebra.room(n, n)
    size = algebra.count * n * n
    blocks = min(-(-size // THREADS), MOST_BLOCKS)
    numbers = a.numbers + whole.numbers + struct.pack("<q2i", size, n, 0)
    _launch(algebra, "mirror", blocks, (a.place, whole.place), numbers)
    hessenberg(algebra, whole, taus, back=back)
    numbers = whole.numbers + out.numbers + struct.pack("<q2i", size, n, back)
    places = whole.place, out.place, diagonal, beside
    _launch(algebra, "take_diagonals", blocks, places, numbers)


def tridiagonal_solve(
    algebra: Algebra, diagonals: tuple[Place, Place, Place], x: Matrix, failed: Place
) -> None:
    """Solves systems in place; which of them have no solution."""
    n, count = x.rows, algebra.count
    factors, swaps = algebra.room(4, n).place, algebra.integers(n)
    ends = *diagonals, factors, swaps, failed
    numbers = struct.pack("<q2i", count, n, 0)
    _launch(algebra, "factor_systems", -(-count // THREADS), ends, numbers)
    numbers = struct.pack("<q2i", count, n, x.columns)
    blocks = -(-count * x.columns // THREADS)
    _launch(algebra, "solve_systems", blocks, (x.place, factors, swaps), numbers)


def _from_the_left(
    algebra: Algebra,
    c: Matrix,
    vector: Place,
    where: tuple[int, int],
    factor: tuple[Place, int, int],
    lengths: Place | None = None,
) -> None:
    """Applies a reflection's adjoint; `where` are the sizes of its vector and its first
    element, `factor` is among so many, with a number.
    """
    if not c.columns:
        return
    taus, count, number = factor
    tiles = -(-c.columns // PANEL)
    numbers = c.numbers + struct.pack("<2q", count, where[0])
    numbers += struct.pack("<4i", c.rows, c.columns, tiles, number)
    numbers += struct.pack("<2i", where[1], lengths is not None)
    ends = c.place, vector, taus, vector if lengths is None else lengths
    _launch(algebra, "reflect_left", tiles * algebra.count, ends, numbers)


def _from_the_right(
    algebra: Algebra,
    c: Matrix,
    vector: Place,
    where: tuple[int, int],
    factor: tuple[Place, int, int],
) -> None:
    """Applies a reflection."""
    taus, count, number = factor
    tiles = -(-c.rows // ROWS)
    numbers = c.numbers + struct.pack("<2q", count, where[0])
    numbers += struct.pack("<4i", c.rows, c.columns, tiles, number)
    numbers += struct.pack("<2i", where[1], 0)
    ends = c.place, vector, taus
    _launch(algebra, "reflect_right", tiles * algebra.count, ends, numbers)


def _launch(
    algebra: Algebra,
    function: str,
    blocks: int,
    ends: tuple[Place, ...],
    numbers: bytes,
) -> None:
    unit, grid = text(algebra.dtype), (blocks, 1, 1)
    algebra.launches.append(Launch(unit, function, grid, THREADS, 0, ends, numbers))
