"""A solver for linear systems that are known by what they do to a vector.

Receives a linear function of trees and a right side; gives the solution. Small systems
become matrices and are eliminated; large ones are solved in Krylov spaces, by products
with the matrix alone. What is no solution becomes NaN, so that nobody takes it for one.
Next on the walk: `solutions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, errors, lax, tree
from fnx.api.vmap import vmap

_DENSE = 100
"""Systems of at most so many unknowns are eliminated."""

_DIRECTIONS = 32
"""How many directions of a Krylov space are kept, until it begins anew."""

Linear = Callable[[Any], Any]


@errors.api_boundary
def linear_solve(matvec: Linear, b: Any) -> Any:
    """The solution x of `matvec(x) = b`, for a linear function of trees like `b`.

    Up to 100 unknowns: Gauss-Jordan elimination with pivots of the matrix whose columns
    are `matvec` of the unit vectors. Beyond: restarted GMRES (in the simpler form of
    Walker and Zhou, 1994), until the residual is as small as roundings let it be; where
    it stays large, since the matrix is singular or too badly conditioned, x is NaN.
    It is not meant to be differentiated: use it in `fnx.lax.custom_linear_solve`.

    Raises what `matvec` raises, and `DTypeError` for leaves that are not inexact.

    >>> import fnx, numpy as np
    >>> a = np.array([[2.0, 1.0], [0.0, 4.0]])
    >>> fnx.implicit.linear_solve(lambda x: a @ x, np.array([3.0, 4.0]))
    Array([1., 1.], dtype=float64)
    """
    leaves, treedef = tree.flatten(tree.map(fnp.asarray, b))
    dtype = fnp.result_type(*[leaf.dtype for leaf in leaves])
    if not dtypes.is_inexact(dtype):
        raise errors.DTypeError(f"linear_solve: b must be real or complex, not {dtype}")

    def joined(x: Any) -> Any:
        parts = [leaf.reshape(-1).astype(dtype) for leaf in tree.leaves(x)]
        return fnp.concatenate(parts)

    def parted(vector: Any) -> Any:
        parts, start = [], 0
        for leaf in leaves:
            part = vector[start : start + leaf.size]
            parts.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        return treedef.unflatten(parts)

    def product(vector: Any) -> Any:
        return joined(matvec(parted(vector)))

    right = joined(b)
    solve = eliminated if right.size <= _DENSE else gmres
    return parted(solve(product, right))


def eliminated(matvec: Linear, b: Any) -> Any:
    """The solution by elimination, for a function of vectors.

    Row after row, the largest entry left in the column becomes the pivot, and the
    column is cleared above and below. NaN or infinite where the matrix is singular.
    """
    n = b.size
    if n == 0:
        return b
    columns = vmap(matvec)(fnp.eye(n, dtype=b.dtype))
    matrix = fnp.concatenate([columns.T, b[:, None]], axis=1)
    rows = fnp.arange(n)

    def clear(k: Any, m: Any) -> Any:
        column = m[:, k]
        pivot = fnp.where(rows < k, -1.0, abs(column)).argmax()
        row = m[pivot] / column[pivot]
        m = m.at[pivot].set(m[k])
        factors = m[:, k].at[k].set(0)
        return (m - factors[:, None] * row).at[k].set(row)

    return lax.fori_loop(0, n, clear, matrix)[:, n]


def gmres(matvec: Linear, b: Any, directions: int = _DIRECTIONS) -> Any:
    """The solution in Krylov spaces of so many directions, for a function of vectors.

    Each cycle begins at the residual and minimises it over its space. Cycles go on as
    long as they help.
    """
    eps = float(fnp.finfo(b.dtype).eps)
    count = min(directions, b.size)
    target = 10 * eps * _norm(b)

    def goes_on(state: Any) -> Any:
        _, r, before, _ = state
        return (_norm(r) > target) & (_norm(r) < 0.99 * before)

    def cycle(state: Any) -> Any:
        x, r, _, scale = state
        x, scale = _minimised(matvec, x, r, scale, count, target, eps)
        return x, b - matvec(x), _norm(r), scale

    start = (fnp.zeros_like(b), b, math.inf * _norm(b), 0 * _norm(b))
    x, r, _, scale = lax.while_loop(goes_on, cycle, start)
    # a residual of that size is what the solution of a system close by would have
    tolerable = math.sqrt(eps) * (_norm(b) + scale * _norm(x))
    return fnp.where(_norm(r) <= tolerable, x, math.nan)


def _minimised(
    matvec: Linear, x: Any, r: Any, scale: Any, count: int, target: Any, eps: float
) -> tuple[Any, Any]:
    """Moves x to where the residual is least; and the largest stretch that was seen.

    The images q of the directions p are orthonormal, so that each one takes its own
    part of the residual away.
    """
    size = _norm(r)
    empty = fnp.zeros((count, r.size), r.dtype)

    def goes_on(state: Any) -> Any:
        k, _, r, *_ = state
        return (k < count) & (_norm(r) > target)

    def step(state: Any) -> Any:
        k, x, r, unit, ps, qs, scale = state
        p, q = unit, matvec(unit)
        stretch = _norm(q)
        for _ in range(2):  # once more, for what roundings have left
            parts = qs.conj() @ q
            q, p = q - parts @ qs, p - parts @ ps
        # nothing but roundings is left of q: the space holds no further direction
        gone = _norm(q) <= 10 * eps * stretch
        factor = fnp.where(gone, 0.0, 1 / fnp.where(gone, 1.0, _norm(q)))
        factor = factor.astype(r.dtype)
        p, q = factor * p, factor * q
        part = fnp.vdot(q, r)
        scale = fnp.maximum(scale, stretch)
        ps, qs = ps.at[k].set(p), qs.at[k].set(q)
        return k + 1, x + part * p, r - part * q, q, ps, qs, scale

    unit = r / size.astype(r.dtype)
    found = lax.while_loop(goes_on, step, (0, x, r, unit, empty, empty, scale))
    return found[1], found[-1]


def _norm(x: Any) -> Any:
    return fnp.sqrt(fnp.real(fnp.vdot(x, x)))
