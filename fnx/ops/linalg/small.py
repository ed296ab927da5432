"""Small matrices, many at once: elimination written out in a kernel over the stack.

Every lane of a vector has a matrix of its own. Rows are exchanged by selections, since
each matrix has other pivots: row after row takes the larger candidate upwards. The
kernels are those of every backend. Used by the `steps` rules of `triangular.py` and
`lu.py`; next on the walk: `triangular.py`.
"""

from __future__ import annotations

import math
from typing import Any

from fnx import dtypes
from fnx.kernel.expr import linear_offset

LARGEST = 8
"""The rows of a small matrix at most."""

MOST_WORK = 600
"""Multiply-adds that are written out at most: more take long to compile."""


TINY, MANY = 4, 64
"""Matrices of more rows than `TINY` pay for what is compiled if there are many."""


def is_small(x: Any, sides: int = 0) -> bool:
    """Whether a kernel does the stack: matrices of real numbers with few rows.

    There may be right sides, too.
    """
    real = x.type.dtype in (dtypes.float32, dtypes.float64)
    n = max(x.type.shape[-2:])
    few = n <= LARGEST and n * n * (n + sides) <= MOST_WORK
    pays = n <= TINY or math.prod(x.type.shape[:-2]) >= MANY
    return real and few and pays and x.type.size > 0


def add_cholesky(plan: Any, x: Any) -> None:
    """The step of `cholesky`."""
    (out,) = plan.outputs
    n = x.type.shape[-1]

    def build(k: Any, index: Any, buffer: Any, pull: Any) -> None:
        a = {(i, j): pull((*index, i, j)) for i in range(n) for j in range(i + 1)}
        zero, nan = [k.constant(value, out.dtype) for value in (0.0, math.nan)]
        fine = None
        for j in range(n):
            for i in range(j, n):
                for m in range(j):
                    a[i, j] = k.sub(a[i, j], k.mul(a[i, m], a[j, m]))
            positive = k.gt(a[j, j], zero)
            fine = positive if fine is None else k.and_(fine, positive)
            a[j, j] = k.sqrt(a[j, j])
            for i in range(j + 1, n):
                a[i, j] = k.div(a[i, j], a[j, j])
        for i in range(n):
            for j in range(n):
                value = k.select(fine, a[i, j], nan) if j <= i else zero
                k.store(buffer, linear_offset((*index, i, j), out.shape), value)

    plan.kernel("cholesky", [x], out, x.type.shape[:-2], build)


def add_solve(plan: Any, a: Any, b: Any, transposed: bool) -> None:
    """The step of `solve`."""
    (out,) = plan.outputs
    n, count = b.type.shape[-2:]

    def build(k: Any, index: Any, buffer: Any, a: Any, b: Any) -> None:
        def entry(i: int, j: int) -> Any:
            return a((*index, j, i) if transposed else (*index, i, j))

        rows = [
            [entry(i, j) for j in range(n)] + [b((*index, i, j)) for j in range(count)]
            for i in range(n)
        ]
        for i, row in enumerate(_eliminated(k, rows, n)):
            for j, value in enumerate(row):
                k.store(buffer, linear_offset((*index, i, j), out.shape), value)

    plan.kernel("solve", [a, b], out, b.type.shape[:-2], build)


def add_lu(plan: Any, x: Any) -> None:
    """The steps of `lu`: a kernel for each of its results, which all eliminate."""
    m, n = x.type.shape[-2:]

    def factors(k: Any, rows: Any) -> Any:
        _exchanged(k, rows, n)
        return [((i, j), rows[i][j]) for i in range(m) for j in range(n)]

    def pivots(k: Any, rows: Any) -> Any:
        return [((i,), place) for i, place in enumerate(_exchanged(k, rows, n))]

    def permutation(k: Any, rows: Any) -> Any:
        numbers = [[k.constant(i, dtypes.int32)] for i in range(m)]
        for c, place in enumerate(_exchanged(k, rows, n)):
            _exchange(k, numbers, c, place)
        return [((i,), number) for i, (number,) in enumerate(numbers)]

    results = zip(plan.outputs, (factors, pivots, permutation), strict=True)
    for out, elements in results:

        def build(
            k: Any,
            index: Any,
            buffer: Any,
            pull: Any,
            elements: Any = elements,
            out: Any = out,
        ) -> None:
            rows = [[pull((*index, i, j)) for j in range(n)] for i in range(m)]
            for place, value in elements(k, rows):
                k.store(buffer, linear_offset((*index, *place), out.shape), value)

        plan.kernel("lu", [x], out, x.type.shape[:-2], build)


def _exchanged(k: Any, rows: list[list[Any]], n: int) -> list[Any]:
    """Replaces rows by their factors; gives the row that each is exchanged with.

    Where all candidates are 0, as LAPACK does, nothing is divided.
    """
    dtype, places = rows[0][0].dtype, []
    zero, one = [k.constant(value, dtype) for value in (0.0, 1.0)]
    for c in range(min(len(rows), n)):
        best, place = k.abs(rows[c][c]), k.constant(c, dtypes.int32)
        for r in range(c + 1, len(rows)):
            size = k.abs(rows[r][c])
            larger = k.gt(size, best)
            best = k.select(larger, size, best)
            place = k.select(larger, k.constant(r, dtypes.int32), place)
        places.append(place)
        _exchange(k, rows, c, place)
        pivot = rows[c][c]
        inverse = k.div(one, k.select(k.eq(pivot, zero), one, pivot))
        for r in range(c + 1, len(rows)):
            rows[r][c] = factor = k.mul(rows[r][c], inverse)
            for j in range(c + 1, n):
                rows[r][j] = k.sub(rows[r][j], k.mul(factor, rows[c][j]))
    return places


def _exchange(k: Any, rows: list[list[Any]], c: int, place: Any) -> None:
    """Exchanges row c with the one at a place after it."""
    own = rows[c]
    for r in range(c + 1, len(rows)):
        here = k.eq(place, k.constant(r, dtypes.int32))
        pairs = list(zip(rows[c], rows[r], own, strict=True))
        rows[c] = [k.select(here, y, x) for x, y, _ in pairs]
        rows[r] = [k.select(here, z, y) for _, y, z in pairs]


def _eliminated(k: Any, rows: list[list[Any]], n: int) -> list[list[Any]]:
    """The right sides, which stand behind n columns, after elimination.

    All of a solution is NaN where a pivot is 0: it makes the last row NaN, and that one
    the others.
    """
    dtype = rows[0][0].dtype
    zero, nan = [k.constant(value, dtype) for value in (0.0, math.nan)]
    for c in range(n):
        for r in range(c + 1, n):
            larger = k.gt(k.abs(rows[r][c]), k.abs(rows[c][c]))
            pairs = list(zip(rows[c][c:], rows[r][c:], strict=True))
            rows[c][c:] = [k.select(larger, y, x) for x, y in pairs]
            rows[r][c:] = [k.select(larger, x, y) for x, y in pairs]
        pivot = rows[c][c]
        inverse = k.div(k.constant(1.0, dtype), k.select(k.eq(pivot, zero), nan, pivot))
        rows[c][c] = inverse
        for r in range(c + 1, n):
            factor = k.mul(rows[r][c], inverse)
            for j in range(c + 1, len(rows[r])):
                rows[r][j] = k.sub(rows[r][j], k.mul(factor, rows[c][j]))
    for c in reversed(range(n)):
        for j in range(n, len(rows[c])):
            value = rows[c][j]
            for r in range(c + 1, n):
                value = k.sub(value, k.mul(rows[c][r], rows[r][j]))
            rows[c][j] = k.mul(value, rows[c][c])
    return [row[n:] for row in rows]
