"""qr, geqrf, householder_product and ormqr: orthogonal factors, and reflections.

A reflection is I - τ v vᴴ; the vectors v are below the diagonal of a matrix, with ones
on it. The product of the first k of them is I - V T Vᴴ with an upper triangular T (the
compact form of Schreiber and Van Loan, 1989), by which it is differentiated.
Receives stacks of matrices; next on the walk: `eigen.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.primitive import is_linear
from fnx.core.types import ArrayType
from fnx.ops import parts
from fnx.ops.arithmetic import add, neg, plus, select, sub
from fnx.ops.elementwise import eq
from fnx.ops.linalg import family
from fnx.ops.linalg.algebra import (
    along_columns,
    columns,
    conj,
    diagonal,
    extended,
    is_complex,
    matmul,
    mH,
    on_diagonal,
    product,
    rows,
    scaled_rows,
    tril,
    triu,
    with_diagonal,
)
from fnx.ops.linalg.family import Stacked, check_matrices, check_same, with_last
from fnx.ops.linalg.triangular import triangular_solve
from fnx.ops.pieces import concatenate
from fnx.ops.shape import zeros_like
from fnx.ops.sort import take_along


class _Qr(Stacked):
    """qr(x, pivoting, full_matrices): q and r with q @ r = x, and r upper triangular.

    With `pivoting`, q @ r = x[:, p], where p is the third result and the diagonal of r
    does not grow. With `full_matrices`, q is square.
    """

    multiple = True
    routine = "qr"

    def infer(
        self, x: ArrayType, *, pivoting: bool, full_matrices: bool
    ) -> tuple[ArrayType, ...]:
        """The factors, and int32."""
        check_matrices(f"qr({x})", "x", x)
        m, n = x.shape[-2:]
        k = m if full_matrices else min(m, n)
        factors = with_last(x, m, k), with_last(x, k, n)
        order = ArrayType((*x.shape[:-2], n), dtypes.int32)
        return (*factors, order) if pivoting else factors

    def reference(
        self, x: Any, *, pivoting: bool, full_matrices: bool
    ) -> tuple[Any, ...]:
        """LAPACK's geqrf or geqp3, and orgqr."""
        m, n = x.shape[-2:]
        k = m if full_matrices else min(m, n)
        types = self.infer(
            ArrayType(x.shape, x.dtype), pivoting=pivoting, full_matrices=full_matrices
        )
        geqrf = family.lapack("geqp3" if pivoting else "geqrf", x.dtype)
        orgqr = family.lapack("orgqr", x.dtype)
        size = family.workspace(x.dtype, max(m, n))

        def one(a: Any) -> Any:
            packed, *order, taus, _, _ = geqrf(a, **size)
            reflections = np.zeros((m, k), x.dtype, order="F")
            reflections[:, : min(n, k)] = packed[:, : min(n, k)]
            q = orgqr(reflections, taus, **size)[0]
            return q, np.triu(packed[:k]), *[p - 1 for p in order]

        outputs = family.each(one, [x], types)
        if 0 in (m, n):
            outputs[0][...] = np.eye(m, k, dtype=x.dtype)
            if pivoting:
                outputs[2][...] = range(n)
        return outputs

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        pivoting: bool,
        full_matrices: bool,
    ) -> tuple[Any, Any]:
        """Here dq = q X and dr = qᴴ dx - X r, with X skew so that dr is triangular.

        What dq may be beside the columns of r's rank (of a square q of a tall matrix)
        is chosen as 0: only the space that they span counts.
        """
        (x,), (t,) = primals, tangents
        results = self(x, pivoting=pivoting, full_matrices=full_matrices)
        q, r, *order = results
        if order:
            t = take_along(t, along_columns(order[0], t), t.type.ndim - 1)
        m, n = x.type.shape[-2:]
        k = min(m, n)
        inner = matmul(mH(q), t)
        r1 = rows(columns(r, 0, k), 0, k)
        moved = triangular_solve(r1, columns(t, 0, k), left_side=False)
        w = matmul(mH(q), moved)
        skew = skew_of(rows(w, 0, k))
        if full_matrices and m > k:
            below = rows(w, k, m)
            left = concatenate(skew, below, axis=skew.type.ndim - 2)
            right = extended(neg(mH(below)), m, m - k)
            skew = concatenate(left, right, axis=skew.type.ndim - 1)
            dq = matmul(q, skew)
        else:
            dq = matmul(q, skew)
            if m > k:
                dq = add(dq, sub(moved, matmul(q, w)))
        dr = triu(sub(inner, matmul(skew, r)))
        return results, (dq, dr, *[None for _ in order])


def skew_of(w: Any) -> Any:
    """The skew-Hermitian matrix that has w's lower triangle.

    Its diagonal is the imaginary part: that of r is real.
    """
    lower = tril(w, -1)
    skew = sub(lower, mH(lower))
    if is_complex(w):
        imaginary = parts.complex_(0.0, parts.imag(diagonal(w)))
        skew = with_diagonal(skew, imaginary)
    return skew


class _Geqrf(Stacked):
    """geqrf(x): r in the upper triangle, reflections below it, and the τ of those."""

    multiple = True
    routine = "geqrf"

    def infer(self, x: ArrayType) -> tuple[ArrayType, ...]:
        """The operand's type, and one number for each reflection."""
        check_matrices(f"geqrf({x})", "x", x)
        return x, with_last(x, min(x.shape[-2:]))

    def reference(self, x: Any) -> tuple[Any, ...]:
        """LAPACK's geqrf."""
        geqrf = family.lapack("geqrf", x.dtype)
        size = family.workspace(x.dtype, max(x.shape[-2:]))

        def one(a: Any) -> Any:
            return geqrf(a, **size)[:2]

        return family.each(one, [x], self.infer(ArrayType(x.shape, x.dtype)))

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The reflections of q are factors of I - q, without exchanges of rows.

        Source: G. Ballard and others, Reconstructing Householder vectors from tall-
        skinny QR, 2014.
        """
        (x,), (t,) = primals, tangents
        packed, taus = self(x)
        m, n = x.type.shape[-2:]
        k = min(m, n)
        v = reflectors(columns(packed, 0, k))
        triangle = _triangle(v, taus)
        v1 = rows(v, 0, k)
        upper = matmul(triangle, mH(v1))
        q = sub(_unit(v), matmul(v, upper))
        r = triu(rows(packed, 0, k))
        r1 = columns(r, 0, k)
        moved = triangular_solve(r1, columns(t, 0, k), left_side=False)
        w = matmul(mH(q), moved)
        skew = skew_of(w)
        dr = triu(sub(matmul(mH(q), t), matmul(skew, r)))
        dm = neg(add(matmul(q, skew), sub(moved, matmul(q, w))))
        own = diagonal(upper)
        filled = with_diagonal(upper, select(eq(own, 0), 1, own))
        inner = triangular_solve(v1, rows(dm, 0, k), lower=True, unit_diagonal=True)
        low = tril(triangular_solve(filled, inner, left_side=False), -1)
        dupper = triu(sub(inner, matmul(low, upper)))
        dv = matmul(v1, low)
        if m > k:
            rest = sub(rows(dm, k, m), matmul(rows(v, k, m), dupper))
            rest = triangular_solve(filled, rest, left_side=False)
            dv = concatenate(dv, rest, axis=dv.type.ndim - 2)
        dpacked = add(extended(tril(dv, -1), m, n), extended(dr, m, n))
        return (packed, taus), (dpacked, diagonal(dupper))


class _HouseholderProduct(Stacked):
    """householder_product(a, taus): the columns of a product of reflections.

    They are as many as those of `a`, whose part below the diagonal has the vectors.
    """

    routine = "householder_product"

    def infer(self, a: ArrayType, taus: ArrayType) -> ArrayType:
        """The type of a."""
        asked = f"householder_product({a}, {taus})"
        check_matrices(asked, "a", a)
        _check_taus(asked, a, taus)
        m, n = a.shape[-2:]
        if n > m:
            raise errors.ShapeError(
                errors.explain(asked, "a must not have more columns than rows")
            )
        return ArrayType(a.shape, a.dtype, a.weak and taus.weak)

    def reference(self, a: Any, taus: Any) -> Any:
        """LAPACK's orgqr."""
        orgqr = family.lapack("orgqr", a.dtype)
        size = family.workspace(a.dtype, max(a.shape[-2:]))
        if 0 in taus.shape:
            return a * 0 + np.eye(*a.shape[-2:], dtype=a.dtype)

        def one(a: Any, taus: Any) -> Any:
            return (orgqr(a, taus, **size)[0],)

        return family.each(one, [a, taus], [ArrayType(a.shape, a.dtype)], [2, 1])[0]

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """That of the unit matrix's columns less V T Vᴴ."""
        (a, taus), (da, dtaus) = primals, tangents
        n, count = a.type.shape[-1], taus.type.shape[-1]
        v, dv = _moving(a, da, count)
        triangle = _triangle(v, taus)
        dtriangle = _moved_triangle(v, taus, triangle, dv, dtaus)
        head, dhead = mH(rows(v, 0, n)), None if dv is None else mH(rows(dv, 0, n))
        total = product(v, dtriangle, head)
        if dv is not None:
            total = add(total, product(dv, triangle, head))
            total = add(total, product(v, triangle, dhead))
        return self(a, taus), neg(total)


class _Ormqr(Stacked):
    """ormqr(a, taus, c, left, transpose): the product of reflections, times c.

    It stands to the left or to the right of c, and is conjugated and transposed first
    where asked.
    """

    linear = True
    routine = "ormqr"

    def infer(
        self,
        a: ArrayType,
        taus: ArrayType,
        c: ArrayType,
        *,
        left: bool,
        transpose: bool,
    ) -> ArrayType:
        """The type of c."""
        asked = f"ormqr({a}, {taus}, {c}, left={left})"
        check_matrices(asked, "a", a)
        check_matrices(asked, "c", c)
        check_same(asked, ("a", "c"), (a, c))
        _check_taus(asked, a, taus)
        side = -2 if left else -1
        if c.shape[side] != a.shape[-2]:
            raise errors.ShapeError(
                errors.explain(
                    asked,
                    f"a has {a.shape[-2]} rows, and c {c.shape[side]} "
                    f"{'rows' if left else 'columns'}",
                )
            )
        return ArrayType(c.shape, c.dtype, a.weak and taus.weak and c.weak)

    def reference(
        self, a: Any, taus: Any, c: Any, *, left: bool, transpose: bool
    ) -> Any:
        """LAPACK's ormqr."""
        ormqr = family.lapack("ormqr", a.dtype)
        side = "L" if left else "R"
        trans = "N" if not transpose else "C" if dtypes.is_complex(a.dtype) else "T"
        count = taus.shape[-1]
        if count == 0:
            return c.copy()

        def one(a: Any, taus: Any, c: Any) -> Any:
            lwork = 64 * (max(*c.shape, count) + 65)
            return (ormqr(side, trans, a[:, :count], taus, c, lwork)[0],)

        type = ArrayType(c.shape, c.dtype)
        return family.each(one, [a, taus, c], [type], [2, 1, 2])[0]

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        left: bool,
        transpose: bool,
    ) -> tuple[Any, Any]:
        """That of c less V T Vᴴ c."""
        (a, taus, c), (da, dtaus, dc) = primals, tangents

        def apply(x: Any) -> Any:
            return self(a, taus, x, left=left, transpose=transpose)

        moved = None if dc is None else apply(dc)
        if da is not None or dtaus is not None:
            v, dv = _moving(a, da, taus.type.shape[-1])
            triangle = _triangle(v, taus)
            dtriangle = _moved_triangle(v, taus, triangle, dv, dtaus)
            terms = [(v, dtriangle, mH(v))]
            if dv is not None:
                terms += [(dv, triangle, mH(v)), (v, triangle, mH(dv))]
            for factors in terms:
                if transpose:
                    factors = tuple([mH(x) for x in reversed(factors)])
                term = _from_right(*factors, c) if left else product(c, *factors)
                moved = neg(term) if moved is None else sub(moved, term)
        return apply(c), moved

    def transpose(
        self, ct: Any, a: Any, taus: Any, c: Any, *, left: bool, transpose: bool
    ) -> Sequence[Any]:
        """The transposed product, which is the conjugate of the inverse one."""
        if is_linear(a) or is_linear(taus):
            raise errors.ArgumentError("ormqr: it is linear in c alone")
        turned = self(a, taus, conj(ct), left=left, transpose=not transpose)
        return None, None, conj(turned)


def _from_right(x: Any, y: Any, z: Any, c: Any) -> Any:
    """The product x @ y @ z @ c, from the right."""
    return matmul(x, matmul(y, matmul(z, c)))


def _check_taus(asked: str, a: ArrayType, taus: ArrayType) -> None:
    if taus.dtype != a.dtype:
        raise errors.DTypeError(errors.explain(asked, "a and taus differ in dtype"))
    stack, count = taus.shape[:-1], taus.shape[-1:]
    if stack != a.shape[:-2] or not count or count[0] > min(a.shape[-2:]):
        raise errors.ShapeError(
            errors.explain(
                asked,
                "taus must have one number for each reflection, of which there are "
                f"{min(a.shape[-2:])} at most, along its last axis",
            )
        )


def reflectors(a: Any) -> Any:
    """The vectors of reflections, as columns: ones on the diagonal, zeros above it."""
    return select(on_diagonal(a), 1, tril(a, -1))


def _unit(x: Any) -> Any:
    return select(on_diagonal(x), 1, zeros_like(x))


def _moving(a: Any, da: Any, count: int) -> tuple[Any, Any]:
    """The vectors of so many reflections, and how they move."""
    v = reflectors(columns(a, 0, count))
    return v, None if da is None else tril(columns(da, 0, count), -1)


def _mixing(v: Any, taus: Any) -> Any:
    """I + D S, of the factors τ and the products of the vectors above the diagonal."""
    overlaps = scaled_rows(triu(matmul(mH(v), v), 1), taus)
    return add(overlaps, _unit(overlaps))


def _triangle(v: Any, taus: Any) -> Any:
    """T = (I + D S)⁻¹ D."""
    mixing = _mixing(v, taus)
    return triangular_solve(
        mixing, with_diagonal(zeros_like(mixing), taus), unit_diagonal=True
    )


def _moved_triangle(v: Any, taus: Any, triangle: Any, dv: Any, dtaus: Any) -> Any:
    """DT = (I + D S)⁻¹ (dD - (dD S + D dS) T)."""
    right = None
    if dtaus is not None:
        overlaps = triu(matmul(mH(v), v), 1)
        right = with_diagonal(zeros_like(triangle), dtaus)
        right = sub(right, matmul(scaled_rows(overlaps, dtaus), triangle))
    if dv is not None:
        moves = add(matmul(mH(dv), v), matmul(mH(v), dv))
        shift = matmul(scaled_rows(triu(moves, 1), taus), triangle)
        right = plus(right, neg(shift))
    return triangular_solve(_mixing(v, taus), right, unit_diagonal=True)


qr = _Qr("qr")
geqrf = _Geqrf("geqrf")
householder_product = _HouseholderProduct("householder_product")
ormqr = _Ormqr("ormqr")
