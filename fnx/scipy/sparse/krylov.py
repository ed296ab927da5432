"""Solvers in Krylov spaces, on vectors: conjugate gradients, BiCGSTAB, GMRES.

Receives functions of vectors (the matrix, the preconditioner), gives vectors. Sources:
Y. Saad, Iterative methods for sparse linear systems, 2003: algorithms 9.1, 7.7 (with
a preconditioner) and 6.9. Used by `linalg.py`; next on the walk: `fnx/optim`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, lax
from fnx.ops import linalg as ops
from fnx.records import record

Linear = Callable[[Any], Any]


@record
class Options:
    """When to end, and how many steps GMRES makes until it begins anew.

    Unless `early`, it makes them all.
    """

    tol: float
    atol: float
    maxiter: int | None
    restart: int = 20
    early: bool = False

    def rounds(self, unknowns: int) -> int:
        """So many rounds at most."""
        return 10 * unknowns if self.maxiter is None else self.maxiter


def norm(x: Any) -> Any:
    """The Euclidean norm."""
    return fnp.sqrt(fnp.real(fnp.vdot(x, x)))


def _bound(b: Any, options: Options) -> Any:
    return fnp.maximum(options.tol * norm(b), options.atol)


def _quotient(x: Any, y: Any) -> Any:
    """The quotient, and 0 where y is 0: then there is nothing left to do."""
    return fnp.where(y == 0, 0, x / fnp.where(y == 0, 1, y))


def cg(matvec: Linear, b: Any, x: Any, precondition: Linear, options: Options) -> Any:
    """Conjugate gradients."""
    bound, most = _bound(b, options), options.rounds(b.size)

    def goes_on(state: Any) -> Any:
        _, r, *_, k = state
        return (norm(r) > bound) & (k < most)

    def step(state: Any) -> Any:
        x, r, p, gamma, k = state
        image = matvec(p)
        alpha = _quotient(gamma, fnp.vdot(p, image))
        x, r = x + alpha * p, r - alpha * image
        z = precondition(r)
        after = fnp.vdot(r, z)
        return x, r, z + _quotient(after, gamma) * p, after, k + 1

    r = b - matvec(x)
    z = precondition(r)
    return lax.while_loop(goes_on, step, (x, r, z, fnp.vdot(r, z), 0))[0]


def bicgstab(
    matvec: Linear, b: Any, x: Any, precondition: Linear, options: Options
) -> Any:
    """Stabilised biconjugate gradients; ends where a step is divided by 0."""
    bound, most = _bound(b, options), options.rounds(b.size)

    def goes_on(state: Any) -> Any:
        _, r, *_, broken, k = state
        return (norm(r) > bound) & (k < most) & ~broken

    def step(state: Any) -> Any:
        x, r, p, image, rho, alpha, omega, _, k = state
        after = fnp.vdot(shadow, r)
        beta = _quotient(after, rho) * _quotient(alpha, omega)
        p = r + beta * (p - omega * image)
        direction = precondition(p)
        image = matvec(direction)
        alpha = _quotient(after, fnp.vdot(shadow, image))
        half = r - alpha * image
        second = precondition(half)
        turned = matvec(second)
        omega = _quotient(fnp.vdot(turned, half), fnp.vdot(turned, turned))
        x = x + alpha * direction + omega * second
        r = half - omega * turned
        broken = (after == 0) | (alpha == 0) | (omega == 0)
        return x, r, p, image, after, alpha, omega, broken, k + 1

    shadow = r = b - matvec(x)
    one = fnp.ones((), b.dtype)
    zeros = fnp.zeros_like(b)
    start = x, r, zeros, zeros, one, one, one, fnp.array(False), 0
    return lax.while_loop(goes_on, step, start)[0]


def gmres(
    matvec: Linear, b: Any, x: Any, precondition: Linear, options: Options
) -> Any:
    """Generalized minimal residuals, of the preconditioned equation."""
    most, count = options.rounds(b.size), min(options.restart, b.size)
    size = norm(b)
    relative = fnp.maximum(options.tol, options.atol / fnp.where(size == 0, 1, size))
    bound = norm(precondition(b)) * relative

    def goes_on(state: Any) -> Any:
        _, r, before, k = state
        return (norm(r) > bound) & (k < most) & (norm(r) < before)

    def cycle(state: Any) -> Any:
        x, r, _, k = state
        x = x + _least(matvec, precondition, r, count, bound, options.early)
        return x, precondition(b - matvec(x)), norm(r), k + 1

    if not count:
        return x
    r = precondition(b - matvec(x))
    infinite = fnp.full((), math.inf, norm(r).dtype)
    return lax.while_loop(goes_on, cycle, (x, r, infinite, 0))[0]


def _least(
    matvec: Linear, precondition: Linear, r: Any, count: int, bound: Any, early: bool
) -> Any:
    """What is to be added: the residual's best approximation in a space.

    The rows of `basis` are orthonormal; rotations keep the image of the space upper
    triangular, so that the last element of `right` is the residual that is left.
    """
    size, dtype = norm(r), r.dtype
    basis: Any = fnp.zeros((count + 1, r.size), dtype)
    basis = basis.at[0].set(r / _as(size, dtype))
    right: Any = fnp.zeros(count + 1, dtype)
    right = right.at[0].set(_as(size, dtype))
    upper = fnp.eye(count + 1, count, dtype=dtype)
    turns = fnp.eye(count + 1, dtype=dtype)

    def goes_on(state: Any) -> Any:
        k, *_, right = state
        left = abs(right[k])
        return (k < count) & ((left > bound) if early else (left > 0))

    def step(state: Any) -> Any:
        k, basis, upper, turns, right = state
        image = precondition(matvec(basis[k]))
        basis, column = _extended(basis, image, k)
        turn = _rotation(turns @ column, k)
        turns = turn @ turns
        upper = upper.at[:, k].set(turns @ column)
        return k + 1, basis, upper, turns, turn @ right

    _, basis, upper, _, right = lax.while_loop(
        goes_on, step, (0, basis, upper, turns, right)
    )
    square = upper[:count]
    own = fnp.diagonal(square)
    gone = fnp.logical_and(fnp.eye(count, dtype=bool), own == 0)
    filled = fnp.where(gone, 1, square)
    weights = ops.triangular_solve(filled, right[:count, None])[:, 0]
    return fnp.where(own == 0, 0, weights) @ basis[:count]


def _extended(basis: Any, image: Any, k: Any) -> tuple[Any, Any]:
    """The basis with the image's new direction, and the image in it.

    Where roundings alone are left of the image, it has none.
    """
    eps = float(fnp.finfo(dtypes.real_dtype(image.dtype)).eps)
    size, rest = norm(image), image
    column: Any = fnp.zeros(basis.shape[0], image.dtype)
    for _ in range(2):  # once more, for what roundings have left
        parts = basis.conj() @ rest
        rest, column = rest - parts @ basis, column + parts
    length = norm(rest)
    length = fnp.where(length <= 10 * eps * size, 0, length)
    row = _quotient(rest, _as(length, image.dtype))
    column = column.at[k + 1].set(_as(length, image.dtype))
    return basis.at[k + 1].set(row), column


def _rotation(column: Any, k: Any) -> Any:
    """The unitary matrix that clears element k + 1 by element k."""
    x, y = column[k], column[k + 1]
    length = fnp.sqrt(abs(x) ** 2 + abs(y) ** 2)
    none = length == 0
    safe = _as(fnp.where(none, 1, length), column.dtype)
    cosine = fnp.where(none, 1, x / safe)
    sine = fnp.where(none, 0, y / safe)
    turn: Any = fnp.eye(column.size, dtype=column.dtype)
    turn = turn.at[k, k].set(cosine.conj()).at[k, k + 1].set(sine.conj())
    return turn.at[k + 1, k].set(-sine).at[k + 1, k + 1].set(cosine)


def _as(x: Any, dtype: Any) -> Any:
    return x.astype(dtype)
