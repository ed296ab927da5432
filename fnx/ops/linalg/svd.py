"""svd: singular values and vectors.

A derivative of singular vectors is divided by sums and differences of singular values.
Where two are equal, or 0, to rounding, their vectors are any basis of a space, and how
these move within it is taken to be 0: right for functions of that space, and for those
of the values that treat all alike. Receives stacks of matrices; next on the walk:
`schur.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.types import ArrayType
from fnx.ops import parts
from fnx.ops.arithmetic import add, mul, neg, sub
from fnx.ops.linalg import family
from fnx.ops.linalg.algebra import (
    along_columns,
    along_rows,
    as_dtype,
    columns,
    diagonal,
    hermitian_part,
    is_complex,
    matmul,
    mH,
    product,
    rows,
    scaled_columns,
    scaled_rows,
    skew_part,
)
from fnx.ops.linalg.eigen import divided, reciprocal
from fnx.ops.linalg.family import Stacked, check_matrices, with_last
from fnx.ops.pieces import concatenate
from fnx.ops.shape import zeros_like


class _Svd(Stacked):
    """svd(x, full_matrices, compute_uv): s, and u and vt with u @ diag(s) @ vt = x.

    The values descend. Without `full_matrices`, u and vt have as many columns and rows
    as there are values. Where LAPACK finds none (of NaN, there are none) they are NaN.
    """

    multiple = True
    routine = "svd"

    def infer(
        self, x: ArrayType, *, full_matrices: bool, compute_uv: bool
    ) -> tuple[ArrayType, ...]:
        """Real numbers, and two matrices."""
        check_matrices(f"svd({x})", "x", x)
        m, n = x.shape[-2:]
        k = min(m, n)
        values = with_last(x, k, dtype=family.real_of(x))
        if not compute_uv:
            return (values,)
        rows, columns = (m, n) if full_matrices else (k, k)
        return values, with_last(x, m, rows), with_last(x, columns, n)

    def reference(
        self, x: Any, *, full_matrices: bool, compute_uv: bool
    ) -> tuple[Any, ...]:
        """LAPACK's gesdd of the transposed matrices, whose factors change places."""
        gesdd = family.lapack("gesdd", x.dtype)
        options = {
            "compute_uv": int(compute_uv),
            "full_matrices": int(full_matrices),
        }

        def one(a: Any) -> Any:
            if not np.isfinite(a).all():
                return None
            u, s, vt, info = gesdd(a.T, **options)
            if info:
                return None
            return (s, vt.T, u.T) if compute_uv else (s,)

        type = ArrayType(x.shape, x.dtype)
        types = self.infer(type, full_matrices=full_matrices, compute_uv=compute_uv)
        outputs = family.each(one, [x], types)
        if compute_uv and 0 in x.shape[-2:]:
            for out in outputs[1:]:
                out[...] = np.eye(*out.shape[-2:], dtype=out.dtype)
        return outputs

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        full_matrices: bool,
        compute_uv: bool,
    ) -> tuple[Any, Any]:
        """Here ds is the diagonal of P = uᴴ dx v; du = u X and dv = v Y, X and Y skew.

        With the Hermitian part H of P and its skew part K, X and Y are
        H / (s[j] - s[i]) ± K / (s[i] + s[j]).
        """
        (x,), (t,) = primals, tangents
        full = full_matrices and compute_uv
        results = self(x, full_matrices=full, compute_uv=True)
        s, u, vt = results
        k = s.type.shape[-1]
        if 0 in x.type.shape:
            moves = [zeros_like(r) for r in results]
            return (results, moves) if compute_uv else ((s,), (moves[0],))
        every = product(mH(u), t, mH(vt))
        inner = rows(columns(every, 0, k), 0, k)
        own = diagonal(inner)
        ds = parts.real(own) if is_complex(own) else own
        if not compute_uv:
            return self(x, full_matrices=full_matrices, compute_uv=False), (ds,)
        even = divided(hermitian_part(inner), s)
        sums = add(along_rows(s, inner), along_columns(s, inner))
        odd = skew_part(inner)
        odd = mul(odd, as_dtype(reciprocal(sums, s), odd.type.dtype))
        left, right = add(even, odd), sub(even, odd)
        inverse = as_dtype(reciprocal(s, s), x.type.dtype)
        below = scaled_columns(
            rows(columns(every, 0, k), k, every.type.shape[-2]), inverse
        )
        beside = scaled_rows(
            columns(rows(every, 0, k), k, every.type.shape[-1]), inverse
        )
        du = matmul(u, _bordered(left, below))
        dv = _bordered(right, mH(beside))
        dvt = matmul(mH(dv), vt)
        if not full:
            v1 = mH(vt)
            outside = sub(matmul(t, v1), matmul(u, inner))
            du = add(du, scaled_columns(outside, inverse))
            outside = sub(matmul(mH(u), t), matmul(inner, vt))
            dvt = add(dvt, scaled_rows(outside, inverse))
        return results, (ds, du, dvt)


def _bordered(skew: Any, below: Any) -> Any:
    """The skew-Hermitian matrix with these blocks, and zeros in its last corner."""
    count, axis = below.type.shape[-2], skew.type.ndim - 2
    if not count:
        return skew
    left = concatenate(skew, below, axis=axis)
    corner = zeros_like(matmul(below, mH(below)))
    right = concatenate(neg(mH(below)), corner, axis=axis)
    return concatenate(left, right, axis=axis + 1)


svd = _Svd("svd")
