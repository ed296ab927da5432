"""Factors of matrices: Cholesky, LU, QR, singular values, eigenvalues, Hessenberg.

Receives stacks of matrices, gives their factors in SciPy's forms. Next on the walk:
`schur.py`.
"""

from __future__ import annotations

from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy.contractions import matmul
from fnx.numpy.counting import where
from fnx.numpy.joining import concatenate
from fnx.numpy.linalg import decompositions
from fnx.numpy.linalg.determinants import det as _det
from fnx.numpy.linalg.solving import inv as _inv
from fnx.numpy.mathematics import conj
from fnx.numpy.operands import ArrayLike, cast
from fnx.numpy.shaping import expand_dims, squeeze
from fnx.numpy.ufuncs import equal
from fnx.ops import linalg as ops
from fnx.ops.linalg.algebra import (
    columns,
    extended,
    hermitian_part,
    mH,
    mT,
    on_diagonal,
    rows,
    symmetric,
    tril,
    triu,
)
from fnx.ops.shape import iota
from fnx.scipy.linalg.arguments import (
    choice,
    matrices,
    promoted_pair,
    refuse,
    solving,
)


def cholesky(
    a: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> Array:
    """The upper triangular u with `uᴴ @ u = a`; with `lower`, uᴴ.

    The mean of `a` and aᴴ is taken. NaN where it is not positive definite.

    >>> import numpy as np
    >>> cholesky(np.array([[4.0, 2.0], [2.0, 10.0]]))
    Array([[2., 1.],
           [0., 3.]], dtype=float64)
    """
    x = matrices("cholesky", "a", a, square=True)
    factor = ops.cholesky(hermitian_part(x))
    return factor if lower else mH(factor)


def cho_factor(
    a: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> tuple[Array, bool]:
    """A Cholesky factor for `cho_solve`, and whether it is the lower one.

    The triangle of `a` that `lower` says is read.

    >>> import numpy as np
    >>> cho_factor(np.array([[4.0, 2.0], [2.0, 10.0]]))[1]
    False
    """
    x = matrices("cho_factor", "a", a, square=True)
    factor = ops.cholesky(x if lower else mH(x))
    return (factor if lower else mH(factor)), lower


def cho_solve(
    c_and_lower: tuple[ArrayLike, bool],
    b: ArrayLike,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The solution of `a @ x = b` by what `cho_factor(a)` gave.

    >>> import numpy as np
    >>> a = np.array([[4.0, 2.0], [2.0, 10.0]])
    >>> cho_solve(cho_factor(a), np.array([6.0, 12.0]))
    Array([1., 1.], dtype=float64)
    """
    factor, lower = c_and_lower

    def solve(c: Array, right: Array) -> Array:
        for turned in (not lower, lower):
            right = ops.triangular_solve(
                c, right, lower=lower, transpose_a=turned, conjugate_a=turned
            )
        return right

    return solving("cho_solve", factor, b, solve)


def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinant; see `fnx.numpy.linalg.det`.

    >>> import numpy as np
    >>> det(np.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float64)
    """
    return _det(a)


def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverse; NaN where a matrix is singular.

    >>> import numpy as np
    >>> inv(np.array([[2.0]]))
    Array([[0.5]], dtype=float64)
    """
    return _inv(a)


def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Eigenvalues, which ascend, and eigenvectors of Hermitian matrices.

    With `b`, which is positive definite, those of `a @ v = w * b @ v` (of `type` 1).
    The triangle that `lower` says is read.

    >>> import numpy as np
    >>> eigh(np.array([[2.0, 0.0], [1.0, 2.0]]), eigvals_only=True).round(3)
    Array([1., 3.], dtype=float64)
    """
    choice("eigh", "turbo", turbo, (True,))
    choice("eigh", "type", type, (1,))
    refuse("eigh", "eigvals", eigvals)
    if b is None:
        x, factor = matrices("eigh", "a", a, square=True), None
    else:
        x, factor = promoted_pair("eigh", a, b)
        x = matrices("eigh", "a", x, square=True)
        factor = matrices("eigh", "b", factor, square=True)
        if factor.shape != x.shape:
            raise errors.ShapeError(
                errors.explain(
                    f"linalg.eigh: a is {x.type}, b is {factor.type}",
                    "their shapes must be the same",
                )
            )
        # With b = l lᴴ these are the eigenvalues of l⁻¹ a l⁻ᴴ, the vectors times l⁻ᴴ.
        factor = ops.cholesky(symmetric(factor, lower))
        x = ops.triangular_solve(factor, symmetric(x, lower), lower=True)
        x = ops.triangular_solve(factor, mH(x), lower=True)
        x, lower = hermitian_part(x), True
    w, *vectors = ops.eigh(x, lower=lower, compute_vectors=not eigvals_only)
    if eigvals_only:
        return w
    (v,) = vectors
    if factor is not None:
        v = ops.triangular_solve(
            factor, v, lower=True, transpose_a=True, conjugate_a=True
        )
    return w, v


def hessenberg(
    a: ArrayLike,
    *,
    calc_q: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> Any:
    """The Hessenberg form h, zero below the first diagonal under the main one.

    With `calc_q` also the unitary q with `q @ h @ qᴴ = a`. It has no derivative.

    >>> import numpy as np
    >>> hessenberg(np.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([[1., 2.],
           [3., 4.]], dtype=float64)
    """
    x = matrices("hessenberg", "a", a, square=True)
    packed, taus = ops.hessenberg(x)
    h = triu(packed, -1)
    if not calc_q:
        return h
    n = x.shape[-1]
    unit = where(on_diagonal(x), 1, x * 0)
    if n < 2:
        return h, unit
    inner = ops.householder_product(columns(rows(packed, 1, n), 0, n - 1), taus)
    first = concatenate([columns(rows(unit, 0, 1), 1, n), inner], -2)
    return h, concatenate([columns(unit, 0, 1), first], -1)


def lu(
    a: ArrayLike,
    permute_l: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    """The factors p, l, u with `p @ l @ u = a`; `p @ l` and u with `permute_l`.

    >>> import numpy as np
    >>> p, l, u = lu(np.array([[0.0, 2.0], [4.0, 1.0]]))
    >>> u
    Array([[4., 1.],
           [0., 2.]], dtype=float64)
    """
    x = matrices("lu", "a", a)
    m, n = x.shape[-2:]
    k = min(m, n)
    factors, _, order = ops.lu(x)
    low = columns(factors, 0, k)
    low = where(on_diagonal(low), 1, tril(low, -1))
    up = triu(rows(factors, 0, k))
    numbers = iota(shape=(*order.shape[:-1], m, m), dtype=dtypes.int32, axis=x.ndim - 2)
    p = cast(equal(numbers, expand_dims(order, -2)), dtypes.real_dtype(x.dtype))
    return (matmul(p, low), up) if permute_l else (p, low, up)


def lu_factor(
    a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]:
    """LU factors in one matrix, and pivots, for `lu_solve`.

    >>> import numpy as np
    >>> lu_factor(np.array([[0.0, 2.0], [4.0, 1.0]]))[1]
    Array([1, 1], dtype=int32)
    """
    return ops.lu(matrices("lu_factor", "a", a))[:2]


def lu_solve(
    lu_and_piv: tuple[ArrayLike, ArrayLike],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The solution of `a @ x = b` by what `lu_factor(a)` gave.

    With `trans` 1 or 2 that of `aᵀ @ x = b` or `aᴴ @ x = b`.

    >>> import numpy as np
    >>> lu_solve(lu_factor(np.array([[0.0, 2.0], [4.0, 1.0]])), np.array([2.0, 5.0]))
    Array([1., 1.], dtype=float64)
    """
    choice("lu_solve", "trans", trans, (0, 1, 2))
    given, pivots = lu_and_piv

    def solve(factors: Array, right: Array) -> Array:
        n = factors.shape[-1]
        order = ops.lu_pivots_to_permutation(pivots, permutation_size=n)
        numbers = iota(shape=(*order.shape, n), dtype=dtypes.int32, axis=order.ndim)
        exchange = cast(equal(numbers, expand_dims(order, -1)), factors.dtype)
        if trans == 0:
            right = matmul(exchange, right)
        for lower in (trans == 0, trans != 0):
            right = ops.triangular_solve(
                factors,
                right,
                lower=lower,
                unit_diagonal=lower,
                transpose_a=trans > 0,
                conjugate_a=trans == 2,
            )
        return matmul(mT(exchange), right) if trans else right

    return solving("lu_solve", given, b, solve)


def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Array, ...]:
    """The factors q and r with `q @ r = a`; with `pivoting`, p and `q @ r = a[:, p]`.

    `mode` is "full" (q is square), "economic", or "r": without q.

    >>> import numpy as np
    >>> qr(np.array([[3.0], [4.0]]), mode="economic")[1]
    Array([[-5.]], dtype=float64)
    """
    choice("qr", "mode", mode, ("full", "economic", "r"))
    refuse("qr", "lwork", lwork)
    x = matrices("qr", "a", a)
    found = ops.qr(x, pivoting=pivoting, full_matrices=mode != "economic")
    return tuple(found[1:] if mode == "r" else found)


def qr_multiply(
    a: ArrayLike,
    c: ArrayLike,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Array, ...]:
    """The product `c @ q`, or with `mode="left"` `q @ c`, and r, of `q @ r = a`.

    q has as many columns as r has rows; it is never made. With `conjugate` it is
    conjugated. With `pivoting` the order p is the third result. c may be a vector.

    >>> import numpy as np
    >>> qr_multiply(np.array([[3.0], [4.0]]), np.array([1.0, 0.0]))[0].round(3)
    Array([-0.6], dtype=float64)
    """
    choice("qr_multiply", "mode", mode, ("left", "right"))
    a, c = promoted_pair("qr_multiply", a, c)
    x = matrices("qr_multiply", "a", a)
    is_vector = c.ndim == 1
    left = mode == "left"
    factor = expand_dims(c, -1 if left else 0) if is_vector else c
    m, n = x.shape[-2:]
    k = min(m, n)
    order: tuple[Array, ...] = ()
    if pivoting:
        q, r, *found = ops.qr(x, pivoting=True, full_matrices=False)
        order = tuple(found)
        x = matmul(q, r)
    packed, taus = ops.geqrf(x)
    sizes = (k, m) if left else (m,)
    if factor.ndim != x.ndim or factor.shape[-2 if left else -1] not in sizes:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.qr_multiply: a is {x.type}, c is {c.type}",
                f"c must have {m} {'rows' if left else 'columns'}",
            )
        )
    if left:
        factor = extended(factor, m, factor.shape[-1])
    factor = conj(factor) if conjugate else factor
    product = ops.ormqr(packed, taus, factor, left=left, transpose=False)
    product = conj(product) if conjugate else product
    product = product if left else columns(product, 0, k)
    if is_vector:
        product = squeeze(product, -1 if left else -2)
    return product, triu(rows(packed, 0, k)), *order


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """The factors u, s, vh with `u @ diag(s) @ vh = a`; s alone unless `compute_uv`.

    >>> import numpy as np
    >>> svd(np.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False)
    Array([4., 3.], dtype=float64)
    """
    choice("svd", "lapack_driver", lapack_driver, ("gesdd",))
    found = decompositions.svd(a, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found
