"""What densities need of a covariance: its lower triangular factor and what that gives.

Receives matrices in the last two axes and points by their coordinates, gives arrays.
16-bit numbers are factored and solved with in 32 bits. Next on the walk:
`multivariate_normal.py`.
"""

from __future__ import annotations

import operator
from functools import reduce

from fnx import dtypes
from fnx.core.array import Array
from fnx.numpy import contractions, joining, linalg, reductions, shaping, ufuncs
from fnx.numpy.linalg.operands import identity, same_stack
from fnx.numpy.operands import cast
from fnx.ops.linalg import triangular_solve
from fnx.ops.linalg.algebra import diagonal, mT

FEW = 8
"""Of so many coordinates at most, equations are solved by what is written out."""


def factor(covariance: Array) -> Array:
    """The lower triangular L with L Lᵀ = covariance; NaN where it is not definite."""
    return cast(linalg.cholesky(_wide(covariance)), covariance.dtype)


def squared_length(factor: Array, x: list[Array]) -> Array:
    """xᵀ (L Lᵀ)⁻¹ x of points x, given as arrays of each coordinate."""
    white = _few_whitened(factor, x) if len(x) <= FEW else _whitened(factor, x)
    return reduce(operator.add, [y * y for y in white])


def _few_whitened(factor: Array, x: list[Array]) -> list[Array]:
    """The solution of L y = x: one kernel makes x, solves and uses what it found."""
    white: list[Array] = []
    for i, rest in enumerate(x):
        for j, known in enumerate(white):
            rest = rest - factor[..., i, j] * known
        white.append(rest / factor[..., i, i])
    return white


def _whitened(factor: Array, x: list[Array]) -> list[Array]:
    """The solution of L y = x by the library."""
    if factor.ndim > 2:
        white = _solved(factor, shaping.expand_dims(joining.stack(x, -1), -1))
        return [white[..., i, 0] for i in range(len(x))]
    # One matrix has all points as its right sides.
    columns = shaping.reshape(joining.stack(x), (len(x), -1))
    return [shaping.reshape(y, x[0].shape) for y in _solved(factor, columns)]


def log_determinant(factor: Array) -> Array:
    """The logarithm of the determinant of L."""
    return reductions.sum(ufuncs.log(diagonal(factor)), -1)


def inverse(factor: Array) -> Array:
    """The inverse of L Lᵀ."""
    white = _solved(factor, identity(factor))
    return contractions.matmul(mT(white), white)


def _solved(factor: Array, columns: Array) -> Array:
    matrix, right = same_stack("whitened", _wide(factor), _wide(columns))
    return cast(triangular_solve(matrix, right, lower=True), columns.dtype)


def _wide(x: Array) -> Array:
    return cast(x, dtypes.compute_dtype(x.dtype))
