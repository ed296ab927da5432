"""Schur forms, and polar factors.

Receives square matrices (a stack of them, but in `rsf2csf` and `polar`), gives factors
in SciPy's forms. Next on the walk: `solving.py`.
"""

from __future__ import annotations

from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, errors
from fnx.api.loops import fori_loop
from fnx.core.array import Array
from fnx.lax.polar import qdwh
from fnx.numpy.linalg.decompositions import svd
from fnx.numpy.operands import ArrayLike, cast
from fnx.ops import linalg as ops
from fnx.ops.linalg.algebra import hermitian_part, mH
from fnx.scipy.linalg.arguments import choice, matrices, promoted_pair, refuse


def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """The triangular t and the unitary z with `z @ t @ zᴴ = a`.

    `output` is "real", where a real matrix has 2 by 2 blocks in t for its complex
    eigenvalues (and no derivative then: NaN), or "complex".

    >>> import numpy as np
    >>> schur(np.array([[1.0, 2.0], [0.0, 3.0]]))[0]
    Array([[1., 2.],
           [0., 3.]], dtype=float64)
    """
    choice("schur", "output", output, ("real", "complex"))
    x = matrices("schur", "a", a, square=True)
    return (
        complex_schur(x) if output == "complex" else ops.schur(x, compute_vectors=True)
    )


def complex_schur(x: Array) -> tuple[Array, Array]:
    """The factors with a t that is upper triangular, whatever x is."""
    if not dtypes.is_complex(x.dtype):
        x = cast(x, dtypes.complex_dtype(x.dtype))
    found: tuple[Array, Array] = ops.schur(x, compute_vectors=True)
    return found


def rsf2csf(
    T: ArrayLike, Z: ArrayLike, check_finite: bool = True
) -> tuple[Array, Array]:
    """A real Schur form as a complex one, which is upper triangular.

    >>> import numpy as np
    >>> T, Z = rsf2csf(np.array([[0.0, 1.0], [-1.0, 0.0]]), np.eye(2))
    >>> T.diagonal().round(3) * T.diagonal().conj().round(3)
    Array([1.+0.j, 1.+0.j], dtype=complex128)
    """
    t, z = promoted_pair("rsf2csf", T, Z)
    t, z = [matrices("rsf2csf", n, x, square=True) for n, x in (("T", t), ("Z", z))]
    if t.ndim != 2 or t.shape != z.shape:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.rsf2csf: T is {t.type}, Z is {z.type}",
                "they are two matrices of the same shape",
            )
        )
    if dtypes.is_complex(t.dtype):
        return t, z
    n, dtype = t.shape[0], dtypes.complex_dtype(t.dtype)

    def turn(step: Any, state: Any) -> Any:
        return _turned(n - 1 - step, *state)

    start = cast(t, dtype), cast(z, dtype)
    found: tuple[Array, Array] = fori_loop(0, max(n - 1, 0), turn, start)
    return found


def _turned(m: Any, t: Any, z: Any) -> tuple[Any, Any]:
    """Turns rows and columns m - 1 and m, so that the element between them is 0."""
    pair = fnp.stack([m - 1, m])
    a, b, c, d = [t[i, j] for i in (m - 1, m) for j in (m - 1, m)]
    # An eigenvalue of the block, less its last element, and the rotation it asks for.
    half = (a - d) / 2
    mu = half + fnp.sqrt(half * half + b * c)
    length = fnp.hypot(abs(mu), abs(c))
    none = abs(c) == 0
    safe = fnp.where(none, 1, length)
    cosine, sine = fnp.where(none, 1, mu / safe), fnp.where(none, 0, c / safe)
    turn = fnp.stack([fnp.stack([cosine.conj(), sine]), fnp.stack([-sine, cosine])])
    t = t.at[pair].set(turn @ t[pair])
    t = t.at[:, pair].set(t[:, pair] @ mH(turn))
    z = z.at[:, pair].set(z[:, pair] @ mH(turn))
    return t.at[m, m - 1].set(0), z


def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """The unitary u and the Hermitian p with `u @ p = a`, or on the left `p @ u = a`.

    `method` is "qdwh" (products and QR decompositions, at most `max_iterations` rounds
    to the precision `eps`; for as many rows as columns or more on the right, or fewer
    on the left) or "svd", which takes matrices of any shape.

    >>> import numpy as np
    >>> u, p = polar(np.array([[0.0, -2.0], [3.0, 0.0]]))
    >>> p.round(3)
    Array([[3., 0.],
           [0., 2.]], dtype=float64)
    """
    choice("polar", "side", side, ("right", "left"))
    choice("polar", "method", method, ("qdwh", "svd"))
    x = matrices("polar", "a", a)
    if x.ndim != 2:
        raise errors.ShapeError(
            errors.explain(f"linalg.polar: a is {x.type}", "it takes one matrix")
        )
    if method == "svd":
        refuse("polar", "eps", eps)
        refuse("polar", "max_iterations", max_iterations)
        left, _, right = svd(x, full_matrices=False)
        unitary = fnp.matmul(left, right)
        # Not by the singular values: equal ones would hide how the factor moves.
        pair = (mH(unitary), x) if side == "right" else (x, mH(unitary))
        return unitary, hermitian_part(fnp.matmul(*pair))
    m, n = x.shape
    if (m < n) if side == "right" else (m > n):
        raise errors.ShapeError(
            errors.explain(
                f"linalg.polar: a is {x.type}, side={side!r}",
                "qdwh needs columns, or on the left rows, that can be orthonormal",
                "pass method='svd'",
            )
        )
    given = x if side == "right" else mH(x)
    u, h, _, _ = qdwh(given, eps=eps, max_iterations=max_iterations)
    return (u, h) if side == "right" else (mH(u), h)
