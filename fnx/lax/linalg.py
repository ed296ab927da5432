"""fnx.lax.linalg: decompositions of stacks of matrices, as in `jax.lax.linalg`.

Receives arrays of real or complex numbers of 32 or 64 bits, whose last two axes are
those of matrices; any leading axes are a stack. Nothing is promoted. What LAPACK cannot
do (a matrix that is not positive definite, one with a NaN) gives NaN for that matrix,
and nothing raises. All have derivatives of any order in both modes, but `hessenberg`
and `tridiagonal`. Next on the walk: `fnx/numpy/linalg.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.lax.polar import qdwh
from fnx.numpy.operands import ArrayLike, as_array
from fnx.ops import linalg as ops
from fnx.ops.arithmetic import add, mul, select
from fnx.ops.elementwise import lt
from fnx.ops.linalg.algebra import (
    columns,
    diagonal,
    hermitian_part,
    matmul,
    mT,
    rows,
    scaled_rows,
    triu,
)
from fnx.ops.parts import stop_gradient
from fnx.ops.pieces import concatenate
from fnx.ops.shape import full, reshape

__all__ = [
    "EigImplementation",
    "EighImplementation",
    "SvdAlgorithm",
    "cholesky",
    "cholesky_update",
    "eig",
    "eigh",
    "hessenberg",
    "householder_product",
    "lu",
    "lu_pivots_to_permutation",
    "ormqr",
    "qdwh",
    "qr",
    "schur",
    "svd",
    "symmetric_product",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
]


class EigImplementation(enum.Enum):
    """Who computes eigenvalues: on the CPU there is LAPACK."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """How eigenvalues of Hermitian matrices are computed: by LAPACK's QR iterations."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """How singular values are computed: LAPACK divides and conquers."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


Slice = tuple[int, int] | None


def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular l with `l @ lᴴ = x`, for Hermitian positive definite x.

    With `symmetrize_input`, x is replaced by the mean of x and xᴴ; without, the lower
    triangle alone is read. NaN where x is not positive definite.

    >>> import numpy as np
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 10.0]]))
    Array([[2., 0.],
           [1., 3.]], dtype=float64)
    """
    x = as_array("cholesky", x)
    return ops.cholesky(_hermitian(x) if symmetrize_input else x)


def _hermitian(x: Array) -> Any:
    return hermitian_part(x) if _is_square(x) else x


def _is_square(x: Array) -> bool:
    return x.ndim >= 2 and x.shape[-1] == x.shape[-2] and dtypes.is_inexact(x.dtype)


def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """The upper triangular factor of `rᵀ r + w wᵀ`, for real r and a vector w.

    It is that of the rows of r and w, by orthogonal transformations: nothing is
    squared.

    >>> import numpy as np
    >>> cholesky_update(np.eye(2), np.array([0.0, 1.0])).round(3)
    Array([[1.   , 0.   ],
           [0.   , 1.414]], dtype=float64)
    """
    r = as_array("cholesky_update", r_matrix)
    w = as_array("cholesky_update", w_vector, 1)
    if r.ndim < 2 or w.shape != r.shape[:-1] or w.dtype != r.dtype:
        raise errors.ShapeError(
            errors.explain(
                f"cholesky_update({r.type}, {w.type})",
                "w_vector must have the dtype of r_matrix, and the shape of its rows",
            )
        )
    if dtypes.is_complex(r.dtype):
        raise errors.DTypeError("cholesky_update: r_matrix must be real")
    row = reshape(w, shape=(*w.shape[:-1], 1, w.shape[-1]))
    stacked = concatenate(r, row, axis=r.ndim - 2)
    _, updated = ops.qr(stacked, pivoting=False, full_matrices=False)
    own = diagonal(updated)
    signs = select(lt(own, 0), full(own.shape, own.dtype, -1), 1)
    return triu(scaled_rows(updated, signs))


def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = True,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """Eigenvalues, and left and right eigenvectors (columns) where asked: complex.

    Vectors have length 1, and their largest element is real; what keeps that is their
    derivative. `enable_eigvec_derivs=False` is a promise not to ask for it.

    >>> import numpy as np
    >>> w, left, right = eig(np.array([[0.0, 1.0], [-1.0, 0.0]]))
    >>> w
    Array([0.+1.j, 0.-1.j], dtype=complex128)
    """
    _refuse("eig", "implementation", implementation, EigImplementation.LAPACK)
    _refuse("eig", "use_magma", use_magma, False)
    x = as_array("eig", x)
    left, right = compute_left_eigenvectors, compute_right_eigenvectors
    found = list(ops.eig(x, left=left, right=right))
    if enable_eigvec_derivs:
        return found
    return [found[0], *[stop_gradient(v) for v in found[1:]]]


def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: Slice = None,
    implementation: EighImplementation | None = None,
) -> tuple[Array, Array]:
    """Eigenvectors (columns) and eigenvalues, in that order, of Hermitian matrices.

    The values ascend, sorted or not. `symmetrize_input` is as in `cholesky`; without
    it, the triangle that `lower` says is read. `subset_by_index=(begin, end)` gives
    some of them. Of equal eigenvalues, any basis of their vectors is given; which
    derivatives are right then, `fnx.numpy.linalg.eigh` says.

    >>> import numpy as np
    >>> eigh(np.diag(np.array([2.0, 1.0])))[1]
    Array([1., 2.], dtype=float64)
    """
    _refuse("eigh", "implementation", implementation, EighImplementation.QR)
    del sort_eigenvalues  # either is what LAPACK gives
    x = as_array("eigh", x)
    x = _hermitian(x) if symmetrize_input else x
    w, v = ops.eigh(x, lower=lower, compute_vectors=True)
    begin, end = _subset("eigh", subset_by_index, w.shape[-1])
    if (begin, end) == (0, w.shape[-1]):
        return v, w
    return columns(v, begin, end), columns(w, begin, end)


def hessenberg(a: ArrayLike) -> tuple[Array, Array]:
    """LAPACK's gehrd: a Hessenberg matrix, with reflections below it, and their τ.

    >>> import numpy as np
    >>> h, taus = hessenberg(np.ones((3, 3)))
    >>> h.shape, taus.shape
    ((3, 3), (2,))
    """
    return ops.hessenberg(as_array("hessenberg", a))


def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """The product of reflections `I - τ v vᴴ`, as many columns of it as `a` has.

    The vectors are below the diagonal of `a`, with ones on it.

    >>> import numpy as np
    >>> householder_product(np.zeros((2, 2)), np.array([2.0])).diagonal()
    Array([-1.,  1.], dtype=float64)
    """
    a = as_array("householder_product", a)
    return ops.householder_product(a, as_array("householder_product", taus, 1))


def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """Triangular factors in one matrix, pivots and permutation: `x[p] = l @ u`.

    >>> import numpy as np
    >>> factors, pivots, permutation = lu(np.array([[0.0, 2.0], [4.0, 1.0]]))
    >>> factors, permutation
    (Array([[4., 1.],
           [0., 2.]], dtype=float64), Array([1, 0], dtype=int32))
    """
    return ops.lu(as_array("lu", x))


def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """The order of so many rows after the exchanges that pivots (int32) say.

    >>> import numpy as np
    >>> lu_pivots_to_permutation(np.array([2, 2, 2], np.int32), 3)
    Array([2, 0, 1], dtype=int32)
    """
    pivots = as_array("lu_pivots_to_permutation", pivots)
    size = int(permutation_size)
    return ops.lu_pivots_to_permutation(pivots, permutation_size=size)


def ormqr(
    a: ArrayLike,
    taus: ArrayLike,
    c: ArrayLike,
    *,
    left: bool = True,
    transpose: bool = False,
) -> Array:
    """The product q of reflections (see `householder_product`) times c.

    That is `q @ c`, or `c @ q` unless `left`; of qᴴ with `transpose`. q is square.

    >>> import numpy as np
    >>> ormqr(np.zeros((2, 1)), np.array([2.0]), np.ones((2, 1)))
    Array([[-1.],
           [ 1.]], dtype=float64)
    """
    operands = [as_array("ormqr", x, n) for n, x in enumerate((a, taus, c))]
    return ops.ormqr(*operands, left=left, transpose=transpose)


def qr(
    x: ArrayLike,
    *,
    pivoting: bool = False,
    full_matrices: bool = True,
    use_magma: bool | None = None,
) -> tuple[Array, ...]:
    """The factors q, with orthonormal columns, and r, upper triangular: `q @ r = x`.

    With `pivoting` there is a third result, p, and `q @ r = x[:, p]`. With
    `full_matrices`, q is square.

    >>> import numpy as np
    >>> q, r = qr(np.array([[3.0], [4.0]]), full_matrices=False)
    >>> r
    Array([[-5.]], dtype=float64)
    """
    _refuse("qr", "use_magma", use_magma, False)
    x = as_array("qr", x)
    return ops.qr(x, pivoting=pivoting, full_matrices=full_matrices)


def schur(
    x: ArrayLike,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> tuple[Array, ...]:
    """The triangular t and the unitary z with `z @ t @ zᴴ = x`.

    Of real matrices, t has a block of 2 by 2 for each pair of complex eigenvalues; its
    derivative is NaN then.

    >>> import numpy as np
    >>> schur(np.array([[1.0, 2.0], [0.0, 3.0]]))[0]
    Array([[1., 2.],
           [0., 3.]], dtype=float64)
    """
    _refuse("schur", "sort_eig_vals", sort_eig_vals or None)
    _refuse("schur", "select_callable", select_callable)
    return ops.schur(as_array("schur", x), compute_vectors=compute_schur_vectors)


def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: Slice = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """The factors u, s, vt with `u @ diag(s) @ vt = x`; s alone unless `compute_uv`.

    The singular values descend. With `full_matrices`, u and vt are square.
    `subset_by_index=(begin, end)` gives some values and their vectors. Of equal values,
    any basis of their vectors is given, as in `eigh`.

    >>> import numpy as np
    >>> svd(np.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False)
    Array([4., 3.], dtype=float64)
    """
    if algorithm is not SvdAlgorithm.DEFAULT:
        _refuse("svd", "algorithm", algorithm, SvdAlgorithm.DIVIDE_AND_CONQUER)
    x = as_array("svd", x)
    if subset_by_index is not None and full_matrices and compute_uv:
        raise errors.OptionError(
            errors.explain(
                f"svd({x.type}, subset_by_index={subset_by_index})",
                "some vectors are no square matrix",
                "pass full_matrices=False",
            )
        )
    s, *vectors = ops.svd(x, full_matrices=full_matrices, compute_uv=compute_uv)
    begin, end = _subset("svd", subset_by_index, s.shape[-1])
    if (begin, end) != (0, s.shape[-1]):
        s = columns(s, begin, end)
        if compute_uv:
            u, vt = vectors
            vectors = [columns(u, begin, end), rows(vt, begin, end)]
    return (vectors[0], s, vectors[1]) if compute_uv else s


def symmetric_product(
    a_matrix: ArrayLike,
    c_matrix: ArrayLike,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Array:
    """The matrix `alpha * a @ aᵀ + beta * c`, for symmetric c.

    With `symmetrize_output`, it is replaced by the mean of itself and its transposed.

    >>> import numpy as np
    >>> symmetric_product(np.array([[1.0], [2.0]]), np.eye(2), beta=1.0)
    Array([[2., 2.],
           [2., 5.]], dtype=float64)
    """
    a = as_array("symmetric_product", a_matrix)
    c = as_array("symmetric_product", c_matrix, 1)
    if a.ndim < 2 or c.shape != (*a.shape[:-1], a.shape[-2]):
        raise errors.ShapeError(
            errors.explain(
                f"symmetric_product({a.type}, {c.type})",
                "c_matrix must be as large as a_matrix @ a_matrixᵀ",
            )
        )
    total = add(mul(matmul(a, mT(a)), alpha), mul(c, beta))
    return mul(add(total, mT(total)), 0.5) if symmetrize_output else total


def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """The solution of `op(a) @ x = b` if `left_side`, else of `x @ op(a) = b`.

    The other triangle of `a` is not read, and its diagonal is taken to be 1 with
    `unit_diagonal`. `op` transposes or conjugates, or both.

    >>> import numpy as np
    >>> a = np.array([[2.0, 9.0], [1.0, 1.0]])
    >>> triangular_solve(a, np.array([[4.0], [3.0]]), left_side=True, lower=True)
    Array([[2.],
           [1.]], dtype=float64)
    """
    a, b = as_array("triangular_solve", a), as_array("triangular_solve", b, 1)
    is_vector = b.ndim == a.ndim - 1
    if is_vector:
        last = (*b.shape, 1) if left_side else (*b.shape[:-1], 1, b.shape[-1])
        b = reshape(b, shape=last)
    x = ops.triangular_solve(
        a,
        b,
        left_side=left_side,
        lower=lower,
        transpose_a=transpose_a,
        conjugate_a=conjugate_a,
        unit_diagonal=unit_diagonal,
    )
    return reshape(x, shape=a.shape[:-1]) if is_vector else x


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Array, ...]:
    """LAPACK's sytrd: reflections, both diagonals, and the τ of the reflections.

    >>> import numpy as np
    >>> tridiagonal(np.diag(np.array([2.0, 1.0])))[1]
    Array([2., 1.], dtype=float64)
    """
    return ops.tridiagonal(as_array("tridiagonal", a), lower=lower)


def tridiagonal_solve(
    dl: ArrayLike,
    d: ArrayLike,
    du: ArrayLike,
    b: ArrayLike,
    *,
    perturb_singular: bool = False,
) -> Array:
    """The solution of equations with three diagonals: the lower one, `dl[..., 1:]`,
    the main one, and the upper one, `du[..., :-1]`. NaN where they are singular.

    >>> import numpy as np
    >>> dl, d, du = np.array([0.0, 1.0]), np.array([2.0, 2.0]), np.array([1.0, 0.0])
    >>> tridiagonal_solve(dl, d, du, np.array([[3.0], [3.0]]))
    Array([[1.],
           [1.]], dtype=float64)
    """
    _refuse("tridiagonal_solve", "perturb_singular", perturb_singular or None)
    given = [as_array("tridiagonal_solve", x, n) for n, x in enumerate((dl, d, du, b))]
    return ops.tridiagonal_solve(*given)


# ---------------------------------------------------------------- options


def _refuse(function: str, option: str, value: Any, known: Any = None) -> None:
    """Raises for a value of an option that there is no code for."""
    if value is None or value == known:
        return
    raise errors.OptionError(
        errors.explain(
            f"{function}({option}={value!r})",
            "there is nothing of that kind here",
            f"leave {option} out",
        )
    )


def _subset(function: str, subset: Slice, count: int) -> tuple[int, int]:
    """From which value up to which one, of so many."""
    if subset is None:
        return 0, count
    begin, end = subset
    if not 0 <= begin <= end <= count:
        raise errors.OptionError(
            errors.explain(
                f"{function}(subset_by_index={subset})",
                f"both must be from 0 to {count}, the first one not larger",
            )
        )
    return begin, end
