"""cholesky, triangular_solve and tridiagonal_solve: where few entries count.

Receives stacks of matrices; next on the walk: `lu.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.core.primitive import is_linear
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add, mul, neg, sub
from fnx.ops.linalg import family, small
from fnx.ops.linalg.algebra import (
    along_rows,
    conj,
    diagonal,
    matmul,
    mH,
    mT,
    symmetric,
    tril,
    triu,
    with_diagonal,
)
from fnx.ops.linalg.family import Solving, Stacked, check_matrices, check_same
from fnx.ops.pieces import padded_along, part_of


class _Cholesky(Stacked):
    """cholesky(x): the lower triangular l with l @ lᴴ = x, of which the lower triangle
    is read.

    Where a matrix is not positive definite, the triangle is NaN.
    """

    routine = "cholesky"

    def infer(self, x: ArrayType) -> ArrayType:
        """The operand's type."""
        check_matrices(f"cholesky({x})", "x", x, square=True)
        return x

    def reference(self, x: Any) -> Any:
        """LAPACK's potrf of the transposed x, of which lᵀ is a factor."""
        potrf = family.lapack("potrf", x.dtype)

        def one(a: Any) -> Any:
            upper, info = potrf(a.T, lower=0)
            return (
                upper.T if info == 0 else np.tril(np.full_like(a, family.nan(a.dtype))),
            )

        return family.each(one, [x], [ArrayType(x.shape, x.dtype)])[0]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Here dl = l Φ(l⁻¹ dx l⁻ᴴ), where Φ halves the diagonal of the lower triangle.

        Source: S. F. Walter, Structured higher-order algorithmic differentiation, 2011.
        """
        (x,), (t,) = primals, tangents
        factor = self(x)
        inner = triangular_solve(factor, symmetric(t, lower=True), lower=True)
        inner = triangular_solve(
            factor,
            inner,
            left_side=False,
            lower=True,
            transpose_a=True,
            conjugate_a=True,
        )
        half = tril(with_diagonal(inner, mul(diagonal(inner), 0.5)))
        return factor, matmul(factor, half)

    def steps(self, plan: Any, x: Any) -> None:
        """Small matrices in a kernel, many at once; LAPACK for others."""
        if small.is_small(x):
            small.add_cholesky(plan, x)
        else:
            plan.host()


class _TriangularSolve(Solving):
    """triangular_solve(a, b): x with op(a) @ x = b, or x @ op(a) = b.

    `op` transposes, conjugates, or both. Of `a`, the triangle that `lower` says is
    read, with ones on the diagonal if `unit_diagonal`.
    """

    linear = True
    routine = "triangular_solve"

    def __call__(
        self,
        a: Any,
        b: Any,
        *,
        left_side: bool = True,
        lower: bool = False,
        transpose_a: bool = False,
        conjugate_a: bool = False,
        unit_diagonal: bool = False,
    ) -> Any:
        params = {
            "left_side": left_side,
            "lower": lower,
            "transpose_a": transpose_a,
            "conjugate_a": conjugate_a,
            "unit_diagonal": unit_diagonal,
        }
        if conjugate_a and not transpose_a:
            a, params["conjugate_a"] = conj(a), False
        return bind(self, (a, b), params)

    def infer(
        self,
        a: ArrayType,
        b: ArrayType,
        *,
        left_side: bool = True,
        lower: bool = False,
        transpose_a: bool = False,
        conjugate_a: bool = False,
        unit_diagonal: bool = False,
    ) -> ArrayType:
        """The type of b."""
        asked = f"triangular_solve({a}, {b}, left_side={left_side})"
        check_matrices(asked, "a", a, square=True)
        check_matrices(asked, "b", b)
        check_same(asked, ("a", "b"), (a, b))
        side = -2 if left_side else -1
        if a.shape[-1] != b.shape[side]:
            raise errors.ShapeError(
                errors.explain(
                    asked,
                    f"a has {a.shape[-1]} rows, and b {b.shape[side]} "
                    f"{'rows' if left_side else 'columns'}",
                )
            )
        return ArrayType(b.shape, b.dtype, a.weak and b.weak)

    def reference(
        self,
        a: Any,
        b: Any,
        *,
        left_side: bool = True,
        lower: bool = False,
        transpose_a: bool = False,
        conjugate_a: bool = False,
        unit_diagonal: bool = False,
    ) -> Any:
        """BLAS's trsm of the transposed equation."""
        trsm = family.blas("trsm", a.dtype)
        if conjugate_a and not transpose_a:
            a, conjugate_a = a.conj(), False
        options = {
            "side": int(left_side),
            "lower": int(not lower),
            "trans_a": (2 if conjugate_a else 1) if transpose_a else 0,
            "diag": int(unit_diagonal),
        }

        def one(a: Any, b: Any) -> Any:
            return (trsm(1, a.T, b.T, **options).T,)

        return family.each(one, [a, b], [ArrayType(b.shape, b.dtype)])[0]

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """op(a) dx = db - op(da) x."""
        (a, b), (da, db) = primals, tangents
        x = self(a, b, **params)
        right = db
        if da is not None:
            offset = int(params["unit_diagonal"])
            moved = tril(da, -offset) if params["lower"] else triu(da, offset)
            if params["transpose_a"]:
                moved = mH(moved) if params["conjugate_a"] else mT(moved)
            shift = matmul(moved, x) if params["left_side"] else matmul(x, moved)
            right = neg(shift) if db is None else sub(db, shift)
        return x, self(a, right, **params)

    def transpose(
        self, ct: Any, a: Any, b: Any, *, transpose_a: bool, **params: Any
    ) -> Sequence[Any]:
        """The solution with the transposed matrix, where only b is linear."""
        if is_linear(a):
            raise errors.ArgumentError("triangular_solve: it is not linear in a")
        if params["conjugate_a"]:
            a, params = conj(a), {**params, "conjugate_a": False}
        return None, self(a, ct, transpose_a=not transpose_a, **params)


class _TridiagonalSolve(Stacked):
    """tridiagonal_solve(dl, d, du, b): x with A @ x = b.

    A has the diagonals dl (whose first element is not read), d and du (whose last one
    is not).
    """

    linear = True
    own_axes = 1
    routine = "tridiagonal_solve"

    def infer(
        self, dl: ArrayType, d: ArrayType, du: ArrayType, b: ArrayType
    ) -> ArrayType:
        """The type of b."""
        asked = f"tridiagonal_solve({dl}, {d}, {du}, {b})"
        check_matrices(asked, "b", b)
        for name, x in (("dl", dl), ("d", d), ("du", du)):
            if x.dtype != b.dtype:
                raise errors.DTypeError(
                    errors.explain(asked, f"{name} and b differ in dtype")
                )
            if x.shape != b.shape[:-1]:
                raise errors.ShapeError(
                    errors.explain(
                        asked, f"{name} must have the shape of a column of b"
                    )
                )
        weak = all(x.weak for x in (dl, d, du, b))
        return ArrayType(b.shape, b.dtype, weak)

    def reference(self, dl: Any, d: Any, du: Any, b: Any) -> Any:
        """LAPACK's gtsv; NaN where A is singular."""
        gtsv = family.lapack("gtsv", b.dtype)

        def one(dl: Any, d: Any, du: Any, b: Any) -> Any:
            if len(d) == 1:
                return (b / d[0],)
            *_, x, info = gtsv(dl[1:], d, du[:-1], b)
            return None if info else (x,)

        type = ArrayType(b.shape, b.dtype)
        return family.each(one, [dl, d, du, b], [type], [1, 1, 1, 2])[0]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Here a dx = db - da x."""
        diagonals = primals[:3]
        *moves, db = tangents
        x = self(*primals)
        right = db
        for move, by in zip(moves, (-1, 0, 1), strict=True):
            if move is not None:
                shift = neg(mul(along_rows(move, x), _shifted(x, by)))
                right = shift if right is None else add(right, shift)
        return x, self(*diagonals, right)

    def transpose(self, ct: Any, dl: Any, d: Any, du: Any, b: Any) -> Sequence[Any]:
        """The solution with the transposed matrix: dl and du change places."""
        if any(map(is_linear, (dl, d, du))):
            raise errors.ArgumentError("tridiagonal_solve: it is linear in b alone")
        below, above = _moved(du, 1), _moved(dl, -1)
        return None, None, None, self(below, d, above, ct)


def _shifted(x: Any, by: int) -> Any:
    """For each row the one so far below it, or zeros: rows of neighbours."""
    n, axis = x.type.shape[-2], x.type.ndim - 2
    if by == 0:
        return x
    if by > 0:
        return padded_along(part_of(x, axis, min(by, n), n), axis, 0, min(by, n))
    return padded_along(part_of(x, axis, 0, max(n + by, 0)), axis, min(-by, n), 0)


def _moved(d: Any, by: int) -> Any:
    """A diagonal's elements so many places further on, and zeros."""
    n, axis = d.type.shape[-1], d.type.ndim - 1
    if by > 0:
        return padded_along(part_of(d, axis, 0, max(n - by, 0)), axis, min(by, n), 0)
    return padded_along(part_of(d, axis, min(-by, n), n), axis, 0, min(-by, n))


cholesky = _Cholesky("cholesky")
triangular_solve = _TriangularSolve("triangular_solve")
tridiagonal_solve = _TridiagonalSolve("tridiagonal_solve")
