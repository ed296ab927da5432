"""Equations, inverses and powers of matrices, and least squares.

Receives stacks of matrices. Systems of few unknowns are eliminated in a kernel, many at
once; others by LU factors, which derivatives use again. Next on the walk: `tensors.py`.
"""

from __future__ import annotations

import operator
from typing import Any

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.custom import custom_jvp
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import on_numpy, reductions
from fnx.numpy.choices import logical_and, logical_not
from fnx.numpy.contractions import matmul
from fnx.numpy.counting import where
from fnx.numpy.linalg.decompositions import svd, svdvals
from fnx.numpy.linalg.norms import norm
from fnx.numpy.linalg.operands import (
    apply,
    check,
    epsilon,
    identity,
    matrices,
    promoted_pair,
    same_stack,
)
from fnx.numpy.operands import ArrayLike, as_array, cast
from fnx.numpy.reductions import any as any_of
from fnx.numpy.shaping import expand_dims, reshape
from fnx.numpy.ufuncs import isnan
from fnx.ops import linalg as ops
from fnx.ops.linalg.algebra import mH
from fnx.ops.parts import stop_gradient
from fnx.ops.shape import full, zeros_like


@becomes_native
def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """The solution x of `a @ x = b`; b is a vector if it has one axis, else matrices.

    Leading axes are broadcast. Where a matrix is singular, its solution is NaN, and
    others are not touched.

    >>> import numpy as np
    >>> solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 4.0]))
    Array([1., 1.], dtype=float64)
    """
    a, b = promoted_pair("solve", a, b)
    check("solve", "a", a, square=True)
    is_vector = b.ndim == 1
    right = expand_dims(b, -1) if is_vector else b
    if not right.ndim or right.shape[-2] != a.shape[-1]:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.solve: a is {a.type}, b is {b.type}",
                f"b must have {a.shape[-1]} rows",
            )
        )
    x = solved(*same_stack("solve", a, right))
    return x[..., 0] if is_vector else x


_UNSHARED = 128
"""Up to so many rows, factors that a derivative uses again cost more than new ones."""


def solved(a: Array, b: Array, transpose: bool = False) -> Array:
    """The solution for stacks of matrices of the same dtype and leading axes."""
    if a.shape[-1] <= _UNSHARED:
        return apply(ops.solve, a, b, transpose_a=transpose)
    factors, pivots, _ = apply(ops.lu, stop_gradient(a))
    return apply(ops.factored_solve, a, factors, pivots, b, transpose_a=transpose)


@becomes_native
def inv(a: ArrayLike) -> Array:
    """The inverse; NaN where a matrix is singular.

    >>> import numpy as np
    >>> inv(np.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float64)
    """
    x = matrices("inv", "a", a, square=True)
    return solved(x, identity(x))


def matrix_power(a: ArrayLike, n: int) -> Array:
    """The product of n factors `a`; of its inverse where n is negative.

    >>> import numpy as np
    >>> matrix_power(np.array([[1.0, 1.0], [0.0, 1.0]]), 5)
    Array([[1., 5.],
           [0., 1.]], dtype=float64)
    """
    x = as_array("matrix_power", a)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.matrix_power: a is {x.type}", "it takes square matrices"
            )
        )
    try:
        n = operator.index(n)
    except TypeError:
        raise errors.ArgumentError(
            errors.explain(f"linalg.matrix_power: n={n!r}", "it must be an integer")
        ) from None
    if n == 0:
        return identity(x)
    if n < 0:
        x, n = inv(x), -n
    result = None
    while n:
        if n % 2:
            result = x if result is None else matmul(result, x)
        n //= 2
        if n:
            x = matmul(x, x)
    assert result is not None
    return result


def pinv(
    a: ArrayLike,
    rtol: ArrayLike | None = None,
    hermitian: bool = False,
    *,
    rcond: ArrayLike | None = None,
) -> Array:
    """The pseudoinverse (Moore and Penrose).

    Singular values up to `rtol` (or `rcond`) times the largest one count as 0: by
    default 10 times the precision times the larger side. The derivative is that at
    constant rank.

    >>> import numpy as np
    >>> pinv(np.array([[2.0, 0.0], [0.0, 0.0]]))
    Array([[0.5, 0. ],
           [0. , 0. ]], dtype=float64)
    """
    x = matrices("pinv", "a", a, square=hermitian)
    if rtol is not None and rcond is not None:
        raise errors.OptionError("linalg.pinv: pass rtol or rcond, not both")
    bound = rcond if rtol is None else rtol
    if bound is None:
        bound = 10 * max(x.shape[-2:]) * epsilon(x)
    return _pinv(x, bound, hermitian)


def _pinv(x: Array, rtol: Any, hermitian: bool) -> Array:
    """The pseudoinverse, by singular values that are larger than the bound."""

    @custom_jvp
    def inverse(x: Array) -> Array:
        u, s, vh = svd(x, full_matrices=False, hermitian=hermitian)
        if not s.shape[-1]:
            return mH(zeros_like(x))
        limit = expand_dims(as_array("pinv", rtol), -1) * s[..., :1]
        kept = s > limit
        factors = where(kept, 1 / where(kept, s, 1), 0).astype(x.dtype)
        return matmul(mH(vh) * expand_dims(factors, -2), mH(u))

    @inverse.defjvp
    def move(primals: Any, tangents: Any) -> Any:
        # G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses, 1973.
        (x,), (t,) = primals, tangents
        p, ph, th = inverse(x), mH(inverse(x)), mH(t)
        outside = th - matmul(matmul(th, x), p)
        inside = th - matmul(p, matmul(x, th))
        moved = matmul(matmul(p, ph), outside) + matmul(inside, matmul(ph, p))
        return p, moved - matmul(p, matmul(t, p))

    result: Array = inverse(x)
    return result


@at_once(on_numpy.lstsq)
def lstsq(
    a: ArrayLike,
    b: ArrayLike,
    rcond: float | None = None,
    *,
    numpy_resid: bool = False,
) -> tuple[Array, Array, Array, Array]:
    """Least squares: the x that makes the norm of `a @ x - b` least, and is smallest.

    `a` is one matrix, b a vector or a matrix. Also gives the squared norms of the
    residuals, one for each column of b, the rank, and the singular values. Those up to
    `rcond` times the largest one count as 0: by default the precision times the larger
    side. With `numpy_resid` there are no residuals where the rank is not that of all
    columns, or there are no more rows than columns, as in NumPy (not under `jit`).

    >>> import numpy as np
    >>> x, residuals, rank, s = lstsq(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]))
    >>> x.round(3), residuals.round(3), rank.item()
    (Array([2.], dtype=float64), Array([2.], dtype=float64), 1)
    """
    a, b = promoted_pair("lstsq", a, b)
    check("lstsq", "a", a)
    if a.ndim != 2 or b.ndim not in (1, 2) or b.shape[0] != a.shape[0]:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.lstsq: a is {a.type}, b is {b.type}",
                "a must be one matrix, and b a vector or matrix of as many rows",
            )
        )
    m, n = a.shape
    bound = max(m, n) * epsilon(a) if rcond is None else rcond
    s = svdvals(a)
    right = reshape(b, (m, 1)) if b.ndim == 1 else b
    x = matmul(_pinv(a, bound, False), right)
    rank = full((), dtypes.default_int(), 0)
    if s.size:
        rank = cast(reductions.sum(s > bound * s[0]), dtypes.default_int())
    residuals = norm(right - matmul(a, x), axis=0) ** 2
    if numpy_resid and (m <= n or int(rank) < n):
        residuals = full((0,), s.dtype, 0)
    return (x[:, 0] if b.ndim == 1 else x), residuals, rank, s


def matrix_rank(
    M: ArrayLike,
    rtol: ArrayLike | None = None,
    *,
    hermitian: bool = False,
    tol: ArrayLike | None = None,
) -> Array:
    """How many singular values are larger than a bound.

    That is `tol`, or `rtol` times the largest one: by default the precision times the
    larger side. A matrix is `hermitian` if said so.

    >>> import numpy as np
    >>> matrix_rank(np.ones((3, 2)))
    Array(1, dtype=int32)
    """
    x = as_array("matrix_rank", M)
    if x.ndim < 2:
        return cast(any_of(x != 0), dtypes.default_int())
    if rtol is not None and tol is not None:
        raise errors.OptionError("linalg.matrix_rank: pass rtol or tol, not both")
    x = matrices("matrix_rank", "M", M, square=hermitian)
    s = svd(x, compute_uv=False, hermitian=hermitian)
    if not s.shape[-1]:
        return full(s.shape[:-1], dtypes.default_int(), 0)
    if tol is None:
        bound = max(x.shape[-2:]) * epsilon(x) if rtol is None else rtol
        tol = reductions.max(s, -1) * as_array("matrix_rank", bound)
    limit = expand_dims(as_array("matrix_rank", tol), -1)
    return cast(reductions.sum(s > limit, -1), dtypes.default_int())


def cond(x: ArrayLike, p: Any = None) -> Array:
    """The condition number: the norm of matrices times that of their inverses.

    `p` is an order of `norm`; `None` or 2 is the ratio of the largest singular value to
    the smallest one, -2 that of the smallest to the largest. Infinite where a matrix is
    singular.

    >>> import numpy as np
    >>> cond(np.diag(np.array([1.0, 4.0])))
    Array(4., dtype=float64)
    """
    array = matrices("cond", "x", x, square=p not in (None, 2, -2))
    if 0 in array.shape[-2:]:
        raise errors.ShapeError(
            errors.explain(f"linalg.cond: x is {array.type}", "it has no elements")
        )
    if p in (None, 2, -2):
        s = svdvals(array)
        largest, smallest = s[..., 0], s[..., -1]
        ratio = smallest / largest if p == -2 else largest / smallest
    else:
        ratio = norm(array, p, (-2, -1)) * norm(inv(array), p, (-2, -1))
    given = any_of(isnan(array), (-2, -1))
    return where(logical_and(isnan(ratio), logical_not(given)), float("inf"), ratio)
