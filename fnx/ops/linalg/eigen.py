"""eigh and eig: eigenvalues and eigenvectors.

A derivative of eigenvectors is divided by the differences of eigenvalues. Where two are
equal, to rounding, their vectors are any basis of a space, and how these move within it
is taken to be 0: right for functions of that space, and for those of the values that
treat all alike.
Receives stacks of square matrices; next on the walk: `svd.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.types import ArrayType
from fnx.ops import parts
from fnx.ops.arithmetic import mul, select, sub
from fnx.ops.elementwise import abs, div, eq, le
from fnx.ops.linalg import family
from fnx.ops.linalg.algebra import (
    along_columns,
    along_rows,
    as_dtype,
    conj,
    diagonal,
    is_complex,
    matmul,
    mH,
    product,
    scaled_columns,
    symmetric,
)
from fnx.ops.linalg.family import Stacked, check_matrices, with_last
from fnx.ops.linalg.lu import solve
from fnx.ops.reduce import argmax, reduce_max, reduce_sum
from fnx.ops.shape import broadcast_in_dim, iota


class _Eigh(Stacked):
    """eigh(x, lower, compute_vectors): eigenvalues in ascending order, and vectors.

    The vectors are columns. Of the Hermitian matrix, one triangle is read. Where LAPACK
    finds none (of NaN, there are none) they are NaN.
    """

    multiple = True
    routine = "eigh"

    def infer(
        self, x: ArrayType, *, lower: bool, compute_vectors: bool
    ) -> tuple[ArrayType, ...]:
        """Real numbers, and the operand's type."""
        check_matrices(f"eigh({x})", "x", x, square=True)
        values = with_last(x, x.shape[-1], dtype=family.real_of(x))
        return (values, x) if compute_vectors else (values,)

    def reference(
        self, x: Any, *, lower: bool, compute_vectors: bool
    ) -> tuple[Any, ...]:
        """LAPACK's syevd of the transposed matrices, which are the conjugated ones."""
        syevd = family.lapack("syevd", x.dtype)
        options = {"compute_v": int(compute_vectors), "lower": int(not lower)}

        def one(a: Any) -> Any:
            if not np.isfinite(a).all():
                return None
            w, v, info = syevd(a.T, **options)
            if info:
                return None
            return (w, v.conj()) if compute_vectors else (w,)

        type = ArrayType(x.shape, x.dtype)
        types = self.infer(type, lower=lower, compute_vectors=compute_vectors)
        return family.each(one, [x], types)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        lower: bool,
        compute_vectors: bool,
    ) -> tuple[Any, Any]:
        """Here dw is the diagonal of vᴴ dx v; dv = v X, X divided by differences."""
        (x,), (t,) = primals, tangents
        w, v = self(x, lower=lower, compute_vectors=True)
        inner = product(mH(v), symmetric(t, lower), v)
        own = diagonal(inner)
        dw = parts.real(own) if is_complex(own) else own
        if not compute_vectors:
            return self(x, lower=lower, compute_vectors=False), (dw,)
        return (w, v), (dw, matmul(v, divided(inner, w)))


def divided(x: Any, w: Any) -> Any:
    """x[i, j] / (w[j] - w[i]), and 0 where the two are equal to rounding."""
    if 0 in x.type.shape:
        return x
    gaps = sub(along_columns(w, x), along_rows(w, x))
    inverse = reciprocal(gaps, w)
    return mul(x, as_dtype(inverse, x.type.dtype))


def reciprocal(x: Any, w: Any) -> Any:
    """1 / x, and 0 where x is small to rounding beside the numbers w."""
    eps = float(np.finfo(dtypes.real_dtype(w.type.dtype)).eps)
    largest = reduce_max(abs(w), axes=(w.type.ndim - 1,))
    bound = mul(largest, w.type.shape[-1] * eps)
    dims = tuple(range(bound.type.ndim))
    none = le(abs(x), broadcast_in_dim(bound, shape=x.type.shape, dims=dims))
    return select(none, 0, div(1, select(none, 1, x)))


class _Eig(Stacked):
    """eig(x, left, right): eigenvalues, and left and right eigenvectors where asked.

    Vectors are columns of length 1, whose largest element is real. They and the values
    are complex.
    """

    multiple = True
    routine = "eig"

    def infer(self, x: ArrayType, *, left: bool, right: bool) -> tuple[ArrayType, ...]:
        """Complex numbers and matrices."""
        check_matrices(f"eig({x})", "x", x, square=True)
        dtype = x.dtype if dtypes.is_complex(x.dtype) else dtypes.complex_dtype(x.dtype)
        vectors = with_last(x, *x.shape[-2:], dtype=dtype)
        values = with_last(x, x.shape[-1], dtype=dtype)
        return (values, *[vectors for asked in (left, right) if asked])

    def reference(self, x: Any, *, left: bool, right: bool) -> tuple[Any, ...]:
        """LAPACK's geev."""
        geev = family.lapack("geev", x.dtype)
        options = {"compute_vl": int(left), "compute_vr": int(right)}

        def one(a: Any) -> Any:
            if not np.isfinite(a).all():
                return None
            *w, vl, vr, info = geev(a, **options)
            if info:
                return None
            values = w[0] if len(w) == 1 else w[0] + 1j * w[1]
            found = [(vl, left), (vr, right)]
            vectors = [v for v, asked in found if asked]
            if len(w) == 2:
                vectors = [paired(v, w[1]) for v in vectors]
            return (values, *vectors)

        types = self.infer(ArrayType(x.shape, x.dtype), left=left, right=right)
        return family.each(one, [x], types)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        left: bool,
        right: bool,
    ) -> tuple[Any, Any]:
        """Here dw is the diagonal of v⁻¹ dx v; dv = v X, kept at its length and phase.

        Left vectors are right ones of xᴴ, with conjugated eigenvalues.
        """
        (x,), (t,) = primals, tangents
        results = self(x, left=left, right=True)
        w, v = results[0], results[-1]
        t = as_dtype(t, v.type.dtype)
        inner = solve(v, matmul(t, v))
        moved = [diagonal(inner)]
        if left:
            u = results[1]
            turned = solve(u, matmul(mH(t), u))
            moved.append(_normalised(u, matmul(u, divided(turned, conj(w)))))
        if right:
            moved.append(_normalised(v, matmul(v, divided(inner, w))))
        if not right:
            results = self(x, left=left, right=False)
        return results, tuple(moved)


def paired(v: Any, imaginary: Any) -> Any:
    """Complex vectors from LAPACK's columns, of which pairs are real and imaginary."""
    out = v.astype(np.result_type(v.dtype, np.complex64))
    for j in np.flatnonzero(imaginary > 0):
        out[:, j] = v[:, j] + 1j * v[:, j + 1]
        out[:, j + 1] = out[:, j].conj()
    return out


def _normalised(v: Any, dv: Any) -> Any:
    """The motion of vectors that neither changes their length nor their phase.

    The phase is that of the largest element, which stays real.
    """
    if 0 in v.type.shape:
        return dv
    axis = v.type.ndim - 2
    place = argmax(abs(v), axis=axis, index_dtype=dtypes.int32)
    numbers = iota(shape=v.type.shape, dtype=dtypes.int32, axis=axis)
    first = eq(numbers, along_columns(place, v))
    picked = reduce_sum(select(first, v, 0), axes=(axis,))
    turning = reduce_sum(select(first, dv, 0), axes=(axis,))
    phase = div(parts.imag(turning), parts.real(picked))
    along = parts.real(reduce_sum(mul(conj(v), dv), axes=(axis,)))
    return sub(dv, scaled_columns(v, parts.complex_(along, phase)))


eigh = _Eigh("eigh")
eig = _Eig("eig")
