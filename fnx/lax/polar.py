"""qdwh: the polar decomposition by QR decompositions, which are dynamically weighted.

Receives a matrix, gives a factor with orthonormal columns and a Hermitian one. The
iteration is that of Y. Nakatsukasa, Z. Bai and F. Gygi, Optimizing Halley's iteration
for computing the matrix polar decomposition, 2010. Next on the walk: `linalg.py`.
"""

from __future__ import annotations

import math
from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, errors
from fnx.api.loops import while_loop
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike, as_array, cast
from fnx.ops import linalg as ops
from fnx.ops.linalg.algebra import hermitian_part, mH

_MOST = 10


@errors.api_boundary
def qdwh(
    x: ArrayLike,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """The polar factors u and h of `x = u @ h`, the rounds, and whether they sufficed.

    x is a matrix of at least as many rows as columns; u has orthonormal columns and h
    is Hermitian with eigenvalues that are not negative. Where x `is_hermitian`, so is
    u. There are 10 rounds at most, or `max_iterations`; `eps` is the precision, that of
    the dtype by default.

    >>> import numpy as np
    >>> u, h, rounds, converged = qdwh(np.array([[0.0, -2.0], [3.0, 0.0]]))
    >>> abs(u - np.array([[0.0, -1.0], [1.0, 0.0]])).max() < 1e-14, converged.item()
    (Array(True, dtype=bool), True)
    """
    x = as_array("qdwh", x)
    if dynamic_shape is not None:
        raise errors.OptionError(
            f"qdwh(dynamic_shape={dynamic_shape}): shapes are known"
        )
    if x.ndim != 2 or x.shape[0] < x.shape[1]:
        raise errors.ShapeError(
            errors.explain(
                f"qdwh({x.type})",
                "x must be a matrix of at least as many rows as columns",
                "decompose its conjugated transposed",
            )
        )
    real = dtypes.real_dtype(x.dtype)
    eps = float(fnp.finfo(real).eps) if eps is None else float(eps)
    most = _MOST if max_iterations is None else max_iterations
    bound = fnp.sqrt(fnp.linalg.norm(x, 1) * fnp.linalg.norm(x, fnp.inf))
    start = x / fnp.where(bound == 0, 1, bound).astype(x.dtype)

    def goes_on(state: Any) -> Any:
        _, low, change, rounds = state
        moves = (change > (4 * eps) ** (1 / 3)) | (abs(1 - low) > 10 * eps)
        return moves & (rounds < most)

    def step(state: Any) -> Any:
        u, low, _, rounds = state
        after, low = _improved(u, low)
        change = fnp.linalg.norm(after - u) / fnp.linalg.norm(after)
        return after, low, change, rounds + 1

    first = start, fnp.asarray(eps, real), fnp.asarray(math.inf, real), 0
    u: Any
    u, low, change, rounds = while_loop(goes_on, step, first)
    converged = (change <= (4 * eps) ** (1 / 3)) & (abs(1 - low) <= 10 * eps)
    if is_hermitian:
        u = hermitian_part(u)
    return u, hermitian_part(fnp.matmul(mH(u), x)), rounds, converged


def _improved(u: Any, low: Any) -> tuple[Any, Any]:
    """One round: the next u, and the bound below its singular values."""
    square = low * low
    d = fnp.cbrt(4 * (1 - square) / (square * square))
    root = fnp.sqrt(1 + d)
    a = root + 0.5 * fnp.sqrt(8 - 4 * d + 8 * (2 - square) / (square * root))
    b = (a - 1) ** 2 / 4
    c = a + b - 1
    m, n = u.shape
    dtype = u.dtype
    scaled = cast(fnp.sqrt(c), dtype) * u
    stacked = fnp.concatenate([scaled, fnp.eye(n, dtype=dtype)])
    q, _ = ops.qr(stacked, pivoting=False, full_matrices=False)
    weight = ((a - b / c) / fnp.sqrt(c)).astype(dtype)
    after = (b / c).astype(dtype) * u + weight * fnp.matmul(q[:m], mH(q[m:]))
    return after, low * (a + b * square) / (1 + c * square)
