"""Which routines a library may do for all matrices of a stack at once.

Eigenvalues and singular values of many matrices have no other place on the device.
Where we have kernels, both are timed. Receives a `HostStep`, gives stages; `None` for
what is one matrix, or few large ones. Used by `served.py`; next on the walk:
`stacks.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.runtime.plan import HostStep, Place
from fnx_cuda import stacks
from fnx_cuda.cusolver import LOWER, UPPER
from fnx_cuda.matrices import Matrix
from fnx_cuda.matrices_text import LOWER as LOWER_PART
from fnx_cuda.matrices_text import UPPER as UPPER_PART
from fnx_cuda.served_matrices import Matrices, ServedBy, Stages
from fnx_cuda.stacks import Stack
from fnx_cuda.work import Work

LARGE = 256
"""The rows of a matrix that our kernels leave to a library, where there is one."""

MOST_CALLS = 16
"""Matrices of a stack at most that are a call each."""

_MOST = 1 << 30  # elements of a stack, which a library counts in 32 bits


def _stack(
    make: Callable[[Matrices], None], fits: Callable[[Matrices], bool]
) -> ServedBy:
    """A routine for stacks of matrices that fit."""

    def served(step: HostStep, work: Work) -> Stages | None:
        made = Matrices(step, work, [])
        if made.count < 2 or step.input_types[0].size > _MOST or not fits(made):
            return None
        make(made)
        return tuple(made.found)

    return served


def _are_many(made: Matrices) -> bool:
    """Not a few large ones, which are better off one by one."""
    return made.count > MOST_CALLS or min(made.x.rows, made.x.columns) < LARGE


def _are_many_and_square(made: Matrices) -> bool:
    return made.x.rows == made.x.columns and _are_many(made)


def _are_many_or_small(made: Matrices) -> bool:
    return made.count > MOST_CALLS or made.x.rows <= stacks.JACOBI


def _are_small(made: Matrices) -> bool:
    return max(made.x.rows, made.x.columns) <= stacks.JACOBI


def _cholesky(made: Matrices) -> None:
    """The upper factor of the transposed matrix is the transposed lower one."""
    out, n, failed = made.out(0), made.x.rows, made.integers(1)
    made.launch(lambda algebra: algebra.copy(made.x, out))
    listed = made.listed(out.place, n * n * made.itemsize)
    stack = Stack("potrf", made.dtype, n, n, made.count, UPPER)
    made.stack(stack, listed, failed)
    made.launch(lambda algebra: algebra.copy(out, out, LOWER_PART))
    made.launch(lambda algebra: algebra.spoil(out, failed, LOWER_PART))


def _eigh(made: Matrices) -> None:
    """The transposed matrix is the conjugated one, with conjugated vectors."""
    params, n = made.step.params, made.x.rows
    copy, failed = made.room(n, n), made.integers(1)
    wanted = params["compute_vectors"]
    made.launch(lambda algebra: algebra.copy(made.x, copy))
    triangle = UPPER if params["lower"] else LOWER
    stack = Stack("syevj", made.dtype, n, n, made.count, triangle, wanted)
    made.stack(stack, copy.place, made.out(0).place, failed)
    if wanted:
        vectors = made.out(1)
        made.launch(lambda algebra: algebra.copy(copy.T, vectors, conjugated=True))
    made.spoil(failed)


def _svd(made: Matrices) -> None:
    """Of xᵀ = u s vᴴ, where x is conj(v) s uᵀ; it makes all vectors or none."""
    params, (m, n) = made.step.params, (made.x.rows, made.x.columns)
    copy, failed = made.room(m, n), made.integers(1)
    wanted = params["compute_uv"]
    made.launch(lambda algebra: algebra.copy(made.x, copy))
    sides = [made.room(n, n), made.room(m, m)] if wanted else []
    stack = Stack("gesvdj", made.dtype, n, m, made.count, vectors=wanted)
    vectors = [side.place for side in sides]
    made.stack(stack, copy.place, made.out(0).place, *vectors, failed)
    if wanted:
        u, vt = made.out(1), made.out(2)
        made.launch(lambda algebra: algebra.copy(sides[0], vt))
        left = sides[1].T
        made.launch(lambda algebra: algebra.copy(left, u, conjugated=True))
    made.spoil(failed)


def _factored(made: Matrices) -> tuple[Matrix, Place, Place]:
    """LU factors of transposed copies, their pivots counted from 1, and addresses."""
    n = made.x.rows
    copy = made.room(n, n)
    pivots, failed = made.integers(n), made.integers(1)
    made.launch(lambda algebra: algebra.copy(made.x, copy.T))
    listed = made.listed(copy.place, n * n * made.itemsize)
    made.stack(Stack("getrf", made.dtype, n, n, made.count), listed, pivots, failed)
    return copy.T, pivots, listed


def _lu(made: Matrices) -> None:
    """The factors, and pivots counted from 0."""
    n, (_, zero, order) = made.x.rows, made.step.outputs
    factors, pivots, _ = _factored(made)
    made.launch(lambda algebra: algebra.copy(factors, made.out(0)))
    made.launch(lambda algebra: algebra.count_from_0(pivots, n, zero))
    made.launch(lambda algebra: algebra.order(zero, n, order, n))


def _solve(made: Matrices) -> None:
    """By factors; NaN where a diagonal element of u is 0."""
    factors, pivots, listed = _factored(made)
    b, out, failed = made.input(1), made.out(0), made.integers(1)
    n, columns = b.rows, b.columns
    copy = made.room(columns, n)
    made.launch(lambda algebra: algebra.copy(b, copy.T))
    right = made.listed(copy.place, n * columns * made.itemsize)
    turned = made.step.params["transpose_a"]
    stack = Stack(
        "getrs", made.dtype, n, n, made.count, columns=columns, transposed=turned
    )
    made.stack(stack, listed, pivots, right)
    made.launch(lambda algebra: algebra.copy(copy.T, out))
    made.launch(lambda algebra: algebra.find_zeros(factors, failed))
    made.launch(lambda algebra: algebra.spoil(out, failed))


def _geqrf(made: Matrices) -> None:
    """By way of transposed copies."""
    packed = _reflected(made, made.step.outputs[1])
    made.launch(lambda algebra: algebra.copy(packed, made.out(0)))


def _qr(made: Matrices) -> None:
    """The library makes reflections, and we their product."""
    q, r, count = made.out(0), made.out(1), min(made.x.rows, made.x.columns)
    taus = made.room(1, count).place
    packed = _reflected(made, taus)
    made.launch(lambda algebra: algebra.copy(packed, r, UPPER_PART))
    made.launch(lambda algebra: algebra.identity(q))
    made.launch(
        lambda algebra: algebra.reflect(
            packed, algebra.triangles(packed, taus, count), count, q, fresh=True
        )
    )


def _reflected(made: Matrices, taus: Place) -> Matrix:
    """The reflections of transposed copies, as they are seen untransposed."""
    m, n = made.x.rows, made.x.columns
    copy = made.room(n, m)
    made.launch(lambda algebra: algebra.copy(made.x, copy.T))
    listed = made.listed(copy.place, m * n * made.itemsize)
    factors = made.listed(taus, min(m, n) * made.itemsize)
    made.stack(Stack("geqrf", made.dtype, m, n, made.count), listed, factors)
    return copy.T


_qr_stages = _stack(_qr, _are_many)


def _qr_without_pivoting(step: HostStep, work: Work) -> Stages | None:
    """The library has none with pivoting."""
    return None if step.params["pivoting"] else _qr_stages(step, work)


STACKS: dict[str, ServedBy] = {
    "cholesky": _stack(_cholesky, _are_many_and_square),
    "eigh": _stack(_eigh, _are_many_or_small),
    "geqrf": _stack(_geqrf, _are_many),
    "lu": _stack(_lu, _are_many_and_square),
    "qr": _qr_without_pivoting,
    "solve": _stack(_solve, _are_many_and_square),
    "svd": _stack(_svd, _are_small),
}
"""What libraries do for stacks, by the names of routines."""
