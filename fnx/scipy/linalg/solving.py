"""Equations: general, triangular, Sylvester's; and eigenvalues of three diagonals.

Receives matrices and right sides, gives solutions. Next on the walk: `functions.py`.
"""

from __future__ import annotations

from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, errors
from fnx.api.custom import custom_jvp
from fnx.api.loops import fori_loop
from fnx.core.array import Array
from fnx.numpy.linalg.solving import solved
from fnx.numpy.operands import ArrayLike, cast
from fnx.ops import linalg as ops
from fnx.ops.linalg.algebra import mH, symmetric
from fnx.scipy.linalg.arguments import (
    choice,
    matrices,
    promoted_pair,
    refuse,
    solving,
    vector,
)
from fnx.scipy.linalg.schur import complex_schur


def solve(
    a: ArrayLike,
    b: ArrayLike,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """The solution of `a @ x = b`; NaN where a matrix is singular.

    `assume_a` is "gen", "sym" or "her" (symmetric or Hermitian), or "pos" (Hermitian
    and positive definite, by Cholesky factors): for those, the triangle that `lower`
    says is read.

    >>> import numpy as np
    >>> solve(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([3.0, 5.0]), assume_a="sym")
    Array([1., 1.], dtype=float64)
    """
    choice("solve", "assume_a", assume_a, ("gen", "sym", "her", "pos"))
    choice("solve", "debug", debug, (False,))

    def run(a: Array, right: Array) -> Array:
        if assume_a == "gen":
            return solved(a, right)
        if assume_a != "pos":
            return solved(_mirrored(a, lower, assume_a == "her"), right)
        factor = ops.cholesky(a if lower else mH(a))
        x = ops.triangular_solve(factor, right, lower=True)
        return ops.triangular_solve(
            factor, x, lower=True, transpose_a=True, conjugate_a=True
        )

    return solving("solve", a, b, run)


def _mirrored(a: Array, lower: bool, hermitian: bool) -> Any:
    """The matrix of which one triangle is given."""
    if hermitian:
        return symmetric(a, lower)
    half = fnp.tril(a, -1) if lower else fnp.triu(a, 1)
    middle = fnp.tril(fnp.triu(a))
    return half + fnp.matrix_transpose(half) + middle


def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Array:
    """The solution of `a @ x = b` with a triangular matrix; the rest of it is not read.

    `trans` is 0 or "N", 1 or "T" (for aᵀ), 2 or "C" (for aᴴ). With `unit_diagonal`, the
    diagonal is taken to be 1.

    >>> import numpy as np
    >>> a = np.array([[2.0, 9.0], [1.0, 1.0]])
    >>> solve_triangular(a, np.array([4.0, 3.0]), lower=True)
    Array([2., 1.], dtype=float64)
    """
    choice("solve_triangular", "trans", trans, (0, 1, 2, "N", "T", "C"))
    refuse("solve_triangular", "debug", debug)

    def run(a: Array, right: Array) -> Array:
        return ops.triangular_solve(
            a,
            right,
            lower=lower,
            unit_diagonal=unit_diagonal,
            transpose_a=trans not in (0, "N"),
            conjugate_a=trans in (2, "C"),
        )

    return solving("solve_triangular", a, b, run)


def solve_sylvester(
    A: ArrayLike,
    B: ArrayLike,
    C: ArrayLike,
    *,
    method: str = "schur",
    tol: float = 1e-8,
) -> Array:
    """The solution of Sylvester's equation, `A @ X + X @ B = C`, for one of each.

    `method` is "schur" (Bartels and Stewart) or "eigen" (by eigenvectors, which have to
    be independent). NaN where an eigenvalue of A and one of -B differ by less than
    `tol`.

    >>> import numpy as np
    >>> solve_sylvester(np.eye(2), np.eye(2), np.full((2, 2), 4.0)).round(6)
    Array([[2., 2.],
           [2., 2.]], dtype=float64)
    """
    choice("solve_sylvester", "method", method, ("schur", "eigen"))
    a, c = promoted_pair("solve_sylvester", A, C)
    b, c = promoted_pair("solve_sylvester", B, c)
    a, b = cast(a, c.dtype), b
    for name, x in (("A", a), ("B", b)):
        matrices("solve_sylvester", name, x, square=True)
    if c.ndim != 2 or a.ndim != 2 or c.shape != (a.shape[0], b.shape[0]):
        raise errors.ShapeError(
            errors.explain(
                f"linalg.solve_sylvester: A is {a.type}, B is {b.type}, C is {c.type}",
                "A and B are square, and C has the rows of A and the columns of B",
            )
        )
    return sylvester(a, b, c, method, tol)


def sylvester(a: Array, b: Array, c: Array, method: str, tol: float) -> Array:
    """As `solve_sylvester`, of checked arguments."""
    real = not dtypes.is_complex(c.dtype)

    @custom_jvp
    def solution(a: Any, b: Any, c: Any) -> Any:
        return _by_factors(a, b, c, method, tol)

    @solution.defjvp
    def move(primals: Any, tangents: Any) -> Any:
        (a, b, _), (da, db, dc) = primals, tangents
        x = solution(*primals)
        return x, _by_factors(a, b, dc - da @ x - x @ db, method, tol)

    x: Array = solution(a, b, c)
    assert real == (not dtypes.is_complex(x.dtype))
    return x


def _by_factors(a: Any, b: Any, c: Any, method: str, tol: float) -> Any:
    """The solution; linear in c."""
    wide = dtypes.is_complex(c.dtype)
    dtype = c.dtype if wide else dtypes.complex_dtype(c.dtype)
    if method == "schur":
        (ta, za), (tb, zb) = complex_schur(a), complex_schur(b)
        inner = triangular_sylvester(ta, tb, mH(za) @ cast(c, dtype) @ zb)
        x = za @ inner @ mH(zb)
        values = fnp.diagonal(ta), fnp.diagonal(tb)
    else:
        (wa, va), (wb, vb) = fnp.linalg.eig(a), fnp.linalg.eig(b)
        inner = fnp.linalg.solve(va, cast(c, dtype) @ vb) / (wa[:, None] + wb)
        x = fnp.matrix_transpose(
            fnp.linalg.solve(fnp.matrix_transpose(vb), fnp.matrix_transpose(va @ inner))
        )
        values = wa, wb
    gaps = abs(values[0][:, None] + values[1])
    x = x if wide else x.real
    if not gaps.size:
        return x
    return fnp.where(fnp.less(fnp.min(gaps), tol), fnp.nan, x)


def triangular_sylvester(ta: Any, tb: Any, c: Any) -> Any:
    """The solution for upper triangular matrices: column after column."""
    n = tb.shape[0]
    unit = fnp.eye(ta.shape[0], dtype=ta.dtype)

    def column(j: Any, y: Any) -> Any:
        right = c[:, j] - y @ tb[:, j]
        found = ops.triangular_solve(ta + tb[j, j] * unit, right[:, None])
        return y.at[:, j].set(found[:, 0])

    return fori_loop(0, n, column, fnp.zeros_like(c))


def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: Array | None = None,
) -> Any:
    """Eigenvalues, which ascend, and vectors of a Hermitian matrix of three diagonals.

    `d` is the main one, real, and `e` those beside it. `select` is "a" (all) or "i":
    those with numbers from the first to the last of `select_range`. It is a dense
    matrix to the solver.

    >>> import numpy as np
    >>> eigh_tridiagonal(np.ones(2), np.ones(1), eigvals_only=True).round(3)
    Array([0., 2.], dtype=float64)
    """
    choice("eigh_tridiagonal", "select", select, ("a", "i"))
    refuse("eigh_tridiagonal", "tol", tol)
    refuse("eigh_tridiagonal", "key", key)
    main = vector("eigh_tridiagonal", "d", d, 1)
    beside = vector("eigh_tridiagonal", "e", e)
    n = main.shape[-1]
    if main.ndim != 1 or beside.shape != (n - 1,):
        raise errors.ShapeError(
            errors.explain(
                f"linalg.eigh_tridiagonal: d is {main.type}, e is {beside.type}",
                "they are vectors, and e has one element less",
            )
        )
    main, beside = promoted_pair("eigh_tridiagonal", main, beside)
    matrix = fnp.diag(main) + fnp.diag(beside, -1)
    first, last = 0, n - 1
    if select == "i":
        first, last = _numbers(select_range, n)
    if eigvals_only:
        w = ops.eigh(matrix, lower=True, compute_vectors=False)[0]
        return w[first : last + 1]
    w, v = ops.eigh(matrix, lower=True, compute_vectors=True)
    return w[first : last + 1], v[:, first : last + 1]


def _numbers(select_range: Any, n: int) -> tuple[int, int]:
    if select_range is None:
        raise errors.OptionError(
            "linalg.eigh_tridiagonal: select='i' needs select_range=(first, last)"
        )
    first, last = map(int, select_range)
    if not 0 <= first <= last < n:
        raise errors.OptionError(
            errors.explain(
                f"linalg.eigh_tridiagonal: select_range={select_range}",
                f"both must be from 0 to {n - 1}, the first one not larger",
            )
        )
    return first, last
