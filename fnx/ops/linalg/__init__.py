"""Linear algebra: decompositions of stacks of matrices, and what solves with them.

The walk begins with `algebra.py`.
"""

from fnx.ops.linalg.eigen import eig, eigh
from fnx.ops.linalg.lu import factored_solve, lu, lu_pivots_to_permutation, solve
from fnx.ops.linalg.qr import geqrf, householder_product, ormqr, qr
from fnx.ops.linalg.schur import hessenberg, schur, tridiagonal
from fnx.ops.linalg.svd import svd
from fnx.ops.linalg.triangular import cholesky, triangular_solve, tridiagonal_solve

__all__ = [
    "cholesky",
    "eig",
    "eigh",
    "factored_solve",
    "geqrf",
    "hessenberg",
    "householder_product",
    "lu",
    "lu_pivots_to_permutation",
    "ormqr",
    "qr",
    "schur",
    "solve",
    "svd",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
]
