"""lu: triangular factors of matrices whose rows are exchanged; and what solves by it.

Receives stacks of matrices; next on the walk: `qr.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.primitive import is_linear
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add, neg, select, sub
from fnx.ops.elementwise import ge
from fnx.ops.linalg import family, small
from fnx.ops.linalg.algebra import (
    along_rows,
    columns,
    extended,
    matmul,
    mT,
    on_diagonal,
    rows,
    tril,
    triu,
)
from fnx.ops.linalg.family import Solving, Stacked, check_matrices, check_same
from fnx.ops.linalg.triangular import triangular_solve
from fnx.ops.shape import iota
from fnx.ops.sort import take_along


class _Lu(Stacked):
    """lu(x): factors in one matrix, pivots and permutation, with x[permutation] = l u.

    `l` is the part below the diagonal, beside ones on it. Pivot i is the row that row i
    was exchanged with, after the ones before it.
    """

    multiple = True
    routine = "lu"

    def infer(self, x: ArrayType) -> tuple[ArrayType, ...]:
        """The operand's type, and int32."""
        check_matrices(f"lu({x})", "x", x)
        m, n = x.shape[-2:]
        stack = x.shape[:-2]
        pivots = ArrayType((*stack, min(m, n)), dtypes.int32)
        return x, pivots, ArrayType((*stack, m), dtypes.int32)

    def reference(self, x: Any) -> tuple[Any, ...]:
        """LAPACK's getrf. Of a singular matrix it gives the factors, too."""
        getrf = family.lapack("getrf", x.dtype)
        m, n = x.shape[-2:]

        def one(a: Any) -> Any:
            factors, pivots, _ = getrf(a)
            return factors, pivots, exchanged(pivots, m)

        outputs = family.each(one, [x], self.infer(ArrayType(x.shape, x.dtype)))
        if 0 in (m, n):
            outputs[2][...] = np.arange(m)
        return outputs

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Here dl = l strictly_lower(l⁻¹ dx u⁻¹) and du = upper(l⁻¹ dx u⁻¹) u.

        Rectangular factors are made square, with those of the unit matrix.
        """
        (x,), (t,) = primals, tangents
        m, n = x.type.shape[-2:]
        k = min(m, n)
        factors, pivots, permutation = self(x)
        lower = _with_ones(tril(extended(columns(factors, 0, k), m, m), -1), 0)
        upper = _with_ones(triu(extended(rows(factors, 0, k), n, n)), k)
        moved = take_along(t, along_rows(permutation, t), t.type.ndim - 2)
        inner = triangular_solve(lower, moved, lower=True, unit_diagonal=True)
        inner = triangular_solve(upper, inner, left_side=False)
        dl, du = matmul(lower, tril(inner, -1)), matmul(triu(inner), upper)
        return (factors, pivots, permutation), (add(dl, du), None, None)

    def steps(self, plan: Any, x: Any) -> None:
        """Small matrices in a kernel, many at once; LAPACK for others."""
        if small.is_small(x, 2 * x.type.shape[-1]):  # as three kernels
            small.add_lu(plan, x)
        else:
            plan.host()


def _with_ones(x: Any, begin: int) -> Any:
    """Square matrices with ones on the diagonal from a place on."""
    shape, ndim = x.type.shape, x.type.ndim
    row = iota(shape=shape, dtype=dtypes.int32, axis=ndim - 2)
    return select(ge(row, begin), select(on_diagonal(x), 1, x), x)


class _Permutation(Stacked):
    """lu_pivots_to_permutation(pivots, permutation_size): the order of the rows."""

    routine = "lu_permutation"
    own_axes = 1

    def infer(self, pivots: ArrayType, *, permutation_size: int) -> ArrayType:
        """int32, as many as there are rows."""
        asked = f"lu_pivots_to_permutation({pivots}, {permutation_size})"
        if pivots.dtype != dtypes.int32:
            raise errors.DTypeError(errors.explain(asked, "pivots must be int32"))
        if pivots.ndim < 1 or pivots.shape[-1] > permutation_size:
            raise errors.ShapeError(
                errors.explain(
                    asked, "there must be a last axis of so many pivots at most"
                )
            )
        return ArrayType((*pivots.shape[:-1], permutation_size), dtypes.int32)

    def reference(self, pivots: Any, *, permutation_size: int) -> Any:
        """The exchanges in order."""
        out = np.empty((*pivots.shape[:-1], permutation_size), np.int32)
        for place in np.ndindex(pivots.shape[:-1]):
            out[place] = exchanged(pivots[place], permutation_size)
        return out

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Integers have no derivative."""
        return self(*primals, **params), None


def exchanged(pivots: Any, count: int) -> Any:
    """The numbers below `count` after the exchanges of each place with its pivot."""
    order = list(range(count))  # quicker than an array, element by element
    for place, pivot in enumerate(pivots.tolist()):
        order[place], order[pivot] = order[pivot], order[place]
    return np.array(order, np.int32)


class _Solve(Solving):
    """solve(a, b, transpose_a): x with a @ x = b, or aᵀ @ x = b, by elimination.

    Where a matrix is singular, elements of x are infinite or NaN.
    """

    linear = True
    routine = "solve"

    def __call__(self, a: Any, b: Any, *, transpose_a: bool = False) -> Any:
        return bind(self, (a, b), {"transpose_a": transpose_a})

    def infer(self, a: ArrayType, b: ArrayType, *, transpose_a: bool) -> ArrayType:
        """The type of b."""
        asked = f"solve({a}, {b})"
        check_matrices(asked, "a", a, square=True)
        check_matrices(asked, "b", b)
        check_same(asked, ("a", "b"), (a, b))
        if a.shape[-1] != b.shape[-2]:
            raise errors.ShapeError(
                errors.explain(
                    asked, f"a has {a.shape[-1]} rows, and b has {b.shape[-2]}"
                )
            )
        return ArrayType(b.shape, b.dtype, a.weak and b.weak)

    def reference(self, a: Any, b: Any, *, transpose_a: bool) -> Any:
        """LAPACK's getrf and getrs."""
        getrf = family.lapack("getrf", a.dtype)
        getrs = family.lapack("getrs", a.dtype)

        def one(a: Any, b: Any) -> Any:
            factors, pivots, info = getrf(a)
            if info:
                return None
            return (getrs(factors, pivots, b, trans=int(transpose_a))[0],)

        return family.each(one, [a, b], [ArrayType(b.shape, b.dtype)])[0]

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, transpose_a: bool
    ) -> tuple[Any, Any]:
        """Here a dx = db - da x."""
        (a, b), (da, db) = primals, tangents
        x = self(a, b, transpose_a=transpose_a)
        right = db
        if da is not None:
            shift = matmul(mT(da) if transpose_a else da, x)
            right = neg(shift) if db is None else sub(db, shift)
        return x, self(a, right, transpose_a=transpose_a)

    def transpose(self, ct: Any, a: Any, b: Any, *, transpose_a: bool) -> Sequence[Any]:
        """The solution with the transposed matrix."""
        if is_linear(a):
            raise errors.ArgumentError("solve: it is not linear in a")
        return None, self(a, ct, transpose_a=not transpose_a)

    def steps(self, plan: Any, a: Any, b: Any, *, transpose_a: bool) -> None:
        """Small matrices in a kernel, many at once; LAPACK for others."""
        if small.is_small(a, b.type.shape[-1]):
            small.add_solve(plan, a, b, transpose_a)
        else:
            plan.host()


class _FactoredSolve(Solving):
    """factored_solve(a, factors, pivots, b, transpose_a): as `solve`, by what `lu(a)`
    gave.

    It is a function of `a` and `b`: that of the factors is never differentiated.
    """

    linear = True
    routine = "factored_solve"

    def infer(
        self,
        a: ArrayType,
        factors: ArrayType,
        pivots: ArrayType,
        b: ArrayType,
        *,
        transpose_a: bool,
    ) -> ArrayType:
        """The type of b."""
        if factors.shape != a.shape or pivots.shape != a.shape[:-1]:
            asked = f"factored_solve({a}, {factors}, {pivots}, {b})"
            raise errors.ShapeError(
                errors.explain(asked, "factors and pivots must be those of a")
            )
        return solve.infer(a, b, transpose_a=transpose_a)

    def reference(
        self, a: Any, factors: Any, pivots: Any, b: Any, *, transpose_a: bool
    ) -> Any:
        """LAPACK's getrs."""
        getrs = family.lapack("getrs", a.dtype)

        def one(factors: Any, pivots: Any, b: Any) -> Any:
            if (factors.diagonal() == 0).any():
                return None
            return (getrs(factors, pivots, b, trans=int(transpose_a))[0],)

        type = ArrayType(b.shape, b.dtype)
        return family.each(one, [factors, pivots, b], [type], [2, 1, 2])[0]

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, transpose_a: bool
    ) -> tuple[Any, Any]:
        """Here a dx = db - da x, by the same factors."""
        a, factors, pivots, b = primals
        da, _, _, db = tangents
        x = self(a, factors, pivots, b, transpose_a=transpose_a)
        if da is None and db is None:
            return x, None
        right = db
        if da is not None:
            shift = matmul(mT(da) if transpose_a else da, x)
            right = neg(shift) if db is None else sub(db, shift)
        return x, self(a, factors, pivots, right, transpose_a=transpose_a)

    def transpose(
        self,
        ct: Any,
        a: Any,
        factors: Any,
        pivots: Any,
        b: Any,
        *,
        transpose_a: bool,
    ) -> Sequence[Any]:
        """The solution with the transposed matrix."""
        if is_linear(a):
            raise errors.ArgumentError("factored_solve: it is not linear in a")
        found = self(a, factors, pivots, ct, transpose_a=not transpose_a)
        return None, None, None, found


lu = _Lu("lu")
lu_pivots_to_permutation = _Permutation("lu_pivots_to_permutation")
solve = _Solve("solve")
factored_solve = _FactoredSolve("factored_solve")
