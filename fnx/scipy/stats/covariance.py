"""Covariances of few dimensions: their lower triangular factor, and systems with it.

Entry by entry, in a number of operations that grows with the cube of the dimensions, as
densities have few. Receives and gives arrays with the matrix in the last two axes.
Next on the walk: `multivariate_normal.py`.
"""

from __future__ import annotations

from fnx.core.array import Array
from fnx.numpy.joining import stack
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, mul, sub


def factor(covariance: Array) -> list[list[Array]]:
    """The rows of the factor L, L L^T = covariance: entry by entry, j <= i in row i.

    NaN where the covariance is not positive definite.
    """
    size = covariance.shape[-1]
    rows: list[list[Array]] = []
    for i in range(size):
        row: list[Array] = []
        for j in range(i + 1):
            rest = covariance[..., i, j]
            for k in range(j):
                rest = sub(rest, mul(row[k], (rows[j] if j < i else row)[k]))
            row.append(ops.sqrt(rest) if i == j else ops.div(rest, rows[j][j]))
        rows.append(row)
    return rows


def whitened(rows: list[list[Array]], x: list[Array]) -> list[Array]:
    """The solution of L y = x, coordinate by coordinate."""
    solution: list[Array] = []
    for row, coordinate in zip(rows, x, strict=True):
        rest = coordinate
        for entry, known in zip(row, solution, strict=False):
            rest = rest - entry * known
        solution.append(rest / row[-1])
    return solution


def log_determinant(rows: list[list[Array]]) -> Array:
    """The logarithm of the determinant of L."""
    total = ops.log(rows[0][0])
    for row in rows[1:]:
        total = add(total, ops.log(row[-1]))
    return total


def inverse(rows: list[list[Array]]) -> Array:
    """The inverse of L L^T."""
    size = len(rows)
    one, zero = rows[0][0] * 0 + 1, rows[0][0] * 0
    columns = [
        whitened(rows, [one if i == j else zero for i in range(size)])
        for j in range(size)
    ]
    entries = [
        stack(
            [sum((a * b for a, b in zip(u, v, strict=True)), zero) for v in columns], -1
        )
        for u in columns
    ]
    return stack(entries, -2)
