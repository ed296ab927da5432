"""schur, hessenberg and tridiagonal: matrices brought to few entries by unitary ones.

Receives stacks of square matrices. This is the end of the walk through linear algebra;
next: `../collective.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add, neg, select, sub
from fnx.ops.elementwise import eq, lt, ne
from fnx.ops.linalg import family
from fnx.ops.linalg.algebra import (
    along_columns,
    along_rows,
    band,
    diagonal,
    matmul,
    mH,
    mT,
    on_diagonal,
    product,
    tril,
    triu,
)
from fnx.ops.linalg.eigen import divided, reciprocal
from fnx.ops.linalg.family import Stacked, check_matrices, with_last
from fnx.ops.linalg.qr import skew_of
from fnx.ops.linalg.triangular import triangular_solve
from fnx.ops.reduce import reduce_or
from fnx.ops.shape import broadcast_in_dim, iota, reshape, zeros_like


class _Schur(Stacked):
    """schur(x, compute_vectors): t, and z with z @ t @ zᴴ = x and z unitary.

    t is upper triangular; of a real matrix it has 2 by 2 blocks on its diagonal, one
    for each pair of complex eigenvalues.
    """

    multiple = True
    routine = "schur"

    def infer(self, x: ArrayType, *, compute_vectors: bool) -> tuple[ArrayType, ...]:
        """The operand's type, once or twice."""
        check_matrices(f"schur({x})", "x", x, square=True)
        return (x, x) if compute_vectors else (x,)

    def reference(self, x: Any, *, compute_vectors: bool) -> tuple[Any, ...]:
        """LAPACK's gees."""
        gees = family.lapack("gees", x.dtype)
        size = family.workspace(x.dtype, x.shape[-1])

        def one(a: Any) -> Any:
            if not np.isfinite(a).all():
                return None
            t, *_, z, _, info = gees(
                _no_order, a, compute_v=int(compute_vectors), sort_t=0, **size
            )
            if info:
                return None
            return (t, z) if compute_vectors else (t,)

        types = self.infer(ArrayType(x.shape, x.dtype), compute_vectors=compute_vectors)
        return family.each(one, [x], types)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        compute_vectors: bool,
    ) -> tuple[Any, Any]:
        """Here dz = z X and dt = zᴴ dx z + t X - X t, with X skew so that it is upper.

        X is that of z as the unitary factor of the eigenvectors: z @ r, where r has
        those of t. NaN where t has a 2 by 2 block: no rule is known for those.
        """
        (x,), (change,) = primals, tangents
        t, z = self(x, compute_vectors=True)
        if 0 in x.type.shape:
            return ((t, z), (change, change)) if compute_vectors else ((t,), (change,))
        inner = product(mH(z), change, z)
        r = _triangular_eigenvectors(t)
        turned = triangular_solve(r, matmul(inner, r))
        w = triangular_solve(
            r, matmul(r, divided(turned, diagonal(t))), left_side=False
        )
        skew = skew_of(tril(w, -1))
        dt = triu(add(inner, sub(matmul(t, skew), matmul(skew, t))))
        moves = [_without_blocks(t, move) for move in (dt, matmul(z, skew))]
        if compute_vectors:
            return (t, z), tuple(moves)
        return self(x, compute_vectors=False), (moves[0],)


def _no_order(*_: Any) -> None:
    """LAPACK's choice among eigenvalues, which is not asked for."""


def _triangular_eigenvectors(t: Any) -> Any:
    """The eigenvectors of upper triangular matrices, with ones on the diagonal.

    Vector j solves the first j equations: there are as many systems as vectors, one
    beside the other, with the rows of the unit matrix in place of the others. Of equal
    eigenvalues, the vectors are taken to be independent.
    """
    shape, ndim = t.type.shape, t.type.ndim
    n, stack = shape[-1], tuple(range(ndim - 2))
    large = (*shape[:-2], n, n, n)
    number, row, column = [
        iota(shape=large, dtype=dtypes.int32, axis=ndim - 2 + d) for d in range(3)
    ]
    every = broadcast_in_dim(t, shape=large, dims=(*stack, ndim - 1, ndim))
    own = diagonal(t)
    gaps = sub(along_columns(own, t), along_rows(own, t))  # of vector j and row i
    gaps = select(eq(reciprocal(gaps, own), 0), 1, gaps)
    gaps = broadcast_in_dim(gaps, shape=large, dims=(*stack, ndim - 2, ndim - 1))
    on = eq(row, column)
    inside = select(lt(column, number), every, zeros_like(every))
    matrix = select(on, 1, inside)
    matrix = select(lt(row, number), select(on, gaps, inside), matrix)
    right = select(band(t), zeros_like(t), neg(t))
    right = mT(select(on_diagonal(t), 1, right))
    found = triangular_solve(matrix, reshape(right, shape=(*right.type.shape, 1)))
    return mT(reshape(found, shape=shape))


def _without_blocks(t: Any, move: Any) -> Any:
    """A motion; NaN for the matrices t that have an element below the diagonal."""
    axes = (t.type.ndim - 2, t.type.ndim - 1)
    has = reduce_or(ne(tril(t, -1), 0), axes=axes)
    dims = tuple(range(t.type.ndim - 2))
    has = broadcast_in_dim(has, shape=t.type.shape, dims=dims)
    return select(has, math.nan, move)


class _Underived(Stacked):
    """What has no derivative here: reflections that depend on one another."""

    multiple = True

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """There is none."""
        raise errors.ArgumentError(
            errors.explain(
                f"the derivative of {self.name}",
                "no rule is known for it",
                "differentiate what you compute by it as a function of the matrix: "
                "eigh, schur and qr have derivatives",
            )
        )


class _Hessenberg(_Underived):
    """hessenberg(a): h in the upper triangle and the diagonal below it; reflections
    further down, and their τ.
    """

    routine = "hessenberg"

    def infer(self, a: ArrayType) -> tuple[ArrayType, ...]:
        """The operand's type, and one number for each reflection."""
        check_matrices(f"hessenberg({a})", "a", a, square=True)
        return a, with_last(a, max(a.shape[-1] - 1, 0))

    def reference(self, a: Any) -> tuple[Any, ...]:
        """LAPACK's gehrd."""
        gehrd = family.lapack("gehrd", a.dtype)
        size = family.workspace(a.dtype, a.shape[-1])

        def one(a: Any) -> Any:
            return (a, 0) if len(a) == 1 else gehrd(a, **size)[:2]

        return family.each(one, [a], self.infer(ArrayType(a.shape, a.dtype)))


class _Tridiagonal(_Underived):
    """tridiagonal(a, lower): reflections of a Hermitian matrix, of which one triangle
    is read; the diagonal, the one beside it, and the τ of the reflections.
    """

    routine = "tridiagonal"

    def infer(self, a: ArrayType, *, lower: bool) -> tuple[ArrayType, ...]:
        """The operand's type, real diagonals, and one number for each reflection."""
        check_matrices(f"tridiagonal({a})", "a", a, square=True)
        n, real = a.shape[-1], family.real_of(a)
        beside = max(n - 1, 0)
        return (
            a,
            with_last(a, n, dtype=real),
            with_last(a, beside, dtype=real),
            with_last(a, beside),
        )

    def reference(self, a: Any, *, lower: bool) -> tuple[Any, ...]:
        """LAPACK's sytrd."""
        sytrd = family.lapack("sytrd", a.dtype)
        size = family.workspace(a.dtype, a.shape[-1])

        def one(a: Any) -> Any:
            if len(a) == 1:
                return a, a[0].real, 0, 0
            return sytrd(a, lower=int(lower), **size)[:4]

        types = self.infer(ArrayType(a.shape, a.dtype), lower=lower)
        return family.each(one, [a], types)


schur = _Schur("schur")
hessenberg = _Hessenberg("hessenberg")
tridiagonal = _Tridiagonal("tridiagonal")
