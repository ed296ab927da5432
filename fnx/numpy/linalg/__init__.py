"""fnx.numpy.linalg: linear algebra, with the names and meaning of `jax.numpy.linalg`.

Matrices are the last two axes; leading axes are a stack. Integers become floats; floats
of 16 bits are refused. What has no result (a matrix that is singular, not positive
definite, or has a NaN) is NaN for that matrix alone, and nothing raises. Derivatives
are there in both modes and of any order. The walk begins with `operands.py`.
"""

from fnx.numpy.contractions import matmul, tensordot, vecdot
from fnx.numpy.linalg.decompositions import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from fnx.numpy.linalg.determinants import det, slogdet
from fnx.numpy.linalg.norms import matrix_norm, norm, vector_norm
from fnx.numpy.linalg.products import cross, diagonal, outer, trace
from fnx.numpy.linalg.solving import (
    cond,
    inv,
    lstsq,
    matrix_power,
    matrix_rank,
    pinv,
    solve,
)
from fnx.numpy.linalg.tensors import multi_dot, tensorinv, tensorsolve
from fnx.numpy.shaping import matrix_transpose

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]
