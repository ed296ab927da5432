"""Linear algebra on the device: routines as launches of `matrices.py`.

Each function receives a `HostStep` with the routine's arrays and gives launches; `None`
where the step has to run on the host: what has no elements but a result, and matrices
too large to be counted. Used by `routines.py`; next on the walk: `matrices.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from fnx.records import record
from fnx.runtime.plan import HostStep, Place
from fnx_cuda import reductions
from fnx_cuda.instructions import Launch
from fnx_cuda.matrices import Algebra, Matrix, dense
from fnx_cuda.matrices_text import LOWER, UPPER
from fnx_cuda.threads import WARP
from fnx_cuda.work import Work

_LONGEST = 1 << 30

_LONG_SYSTEM = 1 << 14
"""Tridiagonal systems of so many rows are the host's, if there are less than a warp of
them: each of them is one thread."""


@record
class _Given:
    """A step's arrays: `matrix` sees one as matrices, `place` only where it is."""

    step: HostStep
    algebra: Algebra

    def matrix(self, number: int) -> Matrix:
        """An input."""
        rows, columns = self.step.input_types[number].shape[-2:]
        return dense(self.place(number), rows, columns)

    def out(self, number: int) -> Matrix:
        """An output."""
        rows, columns = self.step.output_types[number].shape[-2:]
        return dense(self.step.outputs[number], rows, columns)

    def place(self, number: int) -> Place:
        """Where an input is."""
        found = self.step.inputs[number]
        assert isinstance(found, Place)
        return found


Routine = Callable[[HostStep, Work], list[Launch] | None]


def _routine(make: Callable[[_Given], None], own_axes: int = 2) -> Routine:
    """A routine whose first operand has so many axes that are not the stack's."""

    def launches(step: HostStep, work: Work) -> list[Launch] | None:
        first, *_ = step.input_types
        if all(type_.size == 0 for type_ in step.output_types):
            return []
        types = *step.input_types, *step.output_types
        if any(type_.size == 0 for type_ in step.input_types):
            return None
        if max(size for type_ in types for size in type_.shape) >= _LONGEST:
            return None
        count = prod(first.shape[: first.ndim - own_axes])
        algebra = Algebra(step.output_types[0].dtype, count, work)
        make(_Given(step, algebra))
        return algebra.launches

    return launches


def _cholesky(given: _Given) -> None:
    """The lower factor; NaN where there is none."""
    algebra, out = given.algebra, given.out(0)
    failed = algebra.integers(1)
    algebra.copy(given.matrix(0), out, LOWER)
    algebra.cholesky(out, failed)
    algebra.spoil(out, failed, LOWER)


def _triangular_solve(given: _Given) -> None:
    """Solves op(a)ᵀ @ xᵀ = bᵀ for x @ op(a) = b."""
    algebra, params = given.algebra, given.step.params
    a, x = given.matrix(0), given.out(0)
    algebra.copy(given.matrix(1), x)
    left, upper = params["left_side"], not params["lower"]
    turned = params["transpose_a"] == left
    algebra.solve(
        a.T if turned else a,
        x if left else x.T,
        upper=upper != turned,
        unit=params["unit_diagonal"],
        conjugated=params["conjugate_a"],
    )


def _lu(given: _Given) -> None:
    """The factors in one matrix, the pivots, and the order of the rows."""
    algebra, out = given.algebra, given.out(0)
    pivots, order = given.step.outputs[1:]
    algebra.copy(given.matrix(0), out)
    algebra.lu(out, pivots)
    algebra.order(pivots, min(out.rows, out.columns), order, out.rows)


def _lu_permutation(given: _Given) -> None:
    """The order of the rows."""
    count = given.step.input_types[0].shape[-1]
    length = given.step.params["permutation_size"]
    given.algebra.order(given.place(0), count, given.step.outputs[0], length)


def _solve(given: _Given) -> None:
    """By the factors of a copy."""
    algebra, a = given.algebra, given.matrix(0)
    factors = algebra.room(a.rows, a.columns)
    pivots = algebra.integers(a.rows)
    algebra.copy(a, factors)
    algebra.lu(factors, pivots)
    algebra.copy(given.matrix(1), given.out(0))
    _solve_by(given, factors, pivots)


def _factored_solve(given: _Given) -> None:
    """By factors that are there."""
    given.algebra.copy(given.matrix(3), given.out(0))
    _solve_by(given, given.matrix(1), given.place(2))


def _solve_by(given: _Given, factors: Matrix, pivots: Place) -> None:
    """As p a = l u, aᵀ is uᵀ lᵀ p; NaN where a diagonal element of u is 0."""
    algebra, x, n = given.algebra, given.out(0), factors.rows
    failed = algebra.integers(1)
    if given.step.params["transpose_a"]:
        algebra.solve(factors.T, x)
        algebra.solve(factors.T, x, upper=True, unit=True)
        algebra.exchange(x, pivots, n, (0, n), back=True)
    else:
        algebra.exchange(x, pivots, n, (0, n))
        algebra.solve(factors, x, unit=True)
        algebra.solve(factors, x, upper=True)
    algebra.find_zeros(factors, failed)
    algebra.spoil(x, failed)


def _geqrf(given: _Given) -> None:
    """Reflections and their factors."""
    out = given.out(0)
    given.algebra.copy(given.matrix(0), out)
    given.algebra.qr(out, given.step.outputs[1])


def _householder_product(given: _Given) -> None:
    """The first columns of the product of reflections."""
    algebra, a, out = given.algebra, given.matrix(0), given.out(0)
    count = given.step.input_types[1].shape[-1]
    triangles = algebra.triangles(a, given.place(1), count)
    algebra.identity(out)
    algebra.reflect(a, triangles, count, out, fresh=True)


def _ormqr(given: _Given) -> None:
    """The product c @ Q is (Qᵀ @ cᵀ)ᵀ, and Qᵀ is the adjoint of the conjugated Q."""
    algebra, params = given.algebra, given.step.params
    a, c, out = given.matrix(0), given.matrix(2), given.out(0)
    count, left = given.step.input_types[1].shape[-1], params["left"]
    triangles = algebra.triangles(a, given.place(1), count)
    algebra.copy(c, out)
    algebra.reflect(
        a,
        triangles,
        count,
        out if left else out.T,
        adjoint=params["transpose"] == left,
        conjugated=not left,
    )


def _qr(given: _Given) -> None:
    """The factors, by reflections in a copy."""
    algebra, x = given.algebra, given.matrix(0)
    q, r = given.out(0), given.out(1)
    count = min(x.rows, x.columns)
    packed = algebra.room(x.rows, x.columns)
    taus = algebra.room(1, count)
    algebra.copy(x, packed)
    triangles = algebra.qr(packed, taus.place)
    algebra.copy(packed, r, UPPER)
    algebra.identity(q)
    algebra.reflect(packed, triangles, count, q, fresh=True)


def _pivoted_qr(given: _Given) -> None:
    """The factors of the ordered columns, by reflections in a copy."""
    algebra, x = given.algebra, given.matrix(0)
    q, r, order = given.out(0), given.out(1), given.step.outputs[2]
    count = min(x.rows, x.columns)
    packed = algebra.room(x.rows, x.columns)
    taus = algebra.room(1, count).place
    algebra.copy(x, packed)
    reductions.pivoted_qr(algebra, packed, taus, order)
    algebra.copy(packed, r, UPPER)
    algebra.identity(q)
    triangles = algebra.triangles(packed, taus, count)
    algebra.reflect(packed, triangles, count, q, fresh=True)


def _qr_of_either(step: HostStep, work: Work) -> list[Launch] | None:
    """With pivoting it goes column by column."""
    if not step.params["pivoting"]:
        return _routine(_qr)(step, work)
    return _by_columns(_pivoted_qr)(step, work)


def _by_columns(make: Callable[[_Given], None]) -> Routine:
    """A routine that is not for matrices with very many columns."""

    def launches(step: HostStep, work: Work) -> list[Launch] | None:
        if min(step.input_types[0].shape[-2:]) > reductions.MOST_COLUMNS:
            return None
        return _routine(make)(step, work)

    return launches


def _hessenberg(given: _Given) -> None:
    """In a copy."""
    algebra, out = given.algebra, given.out(0)
    algebra.copy(given.matrix(0), out)
    reductions.hessenberg(algebra, out, given.step.outputs[1])


def _tridiagonal(given: _Given) -> None:
    """An upper triangle is a lower one that is seen from its end."""
    algebra, a, out = given.algebra, given.matrix(0), given.out(0)
    algebra.copy(a, out)
    _, diagonal, beside, taus = given.step.outputs
    if not given.step.params["lower"]:
        a, out = a.reversed, out.reversed
    reductions.tridiagonal(algebra, a, out, (diagonal, beside, taus))


def _tridiagonal_solve(given: _Given) -> None:
    """By factors; NaN where the matrix is singular."""
    algebra, x = given.algebra, given.out(0)
    below, diagonal, above = [given.place(number) for number in range(3)]
    failed = algebra.integers(1)
    algebra.copy(given.matrix(3), x)
    reductions.tridiagonal_solve(algebra, (below, diagonal, above), x, failed)
    algebra.spoil(x, failed)


def _some_systems(step: HostStep, work: Work) -> list[Launch] | None:
    """A few systems that are very long have too few threads here."""
    type_ = step.output_types[0]
    n = type_.shape[-2]
    if n > _LONG_SYSTEM and type_.size // n < WARP:
        return None
    return _routine(_tridiagonal_solve, own_axes=1)(step, work)


DECOMPOSITIONS: dict[str, Routine] = {
    "cholesky": _routine(_cholesky),
    "factored_solve": _routine(_factored_solve),
    "geqrf": _routine(_geqrf),
    "hessenberg": _by_columns(_hessenberg),
    "householder_product": _routine(_householder_product),
    "lu": _routine(_lu),
    "lu_permutation": _routine(_lu_permutation, own_axes=1),
    "ormqr": _routine(_ormqr),
    "qr": _qr_of_either,
    "solve": _routine(_solve),
    "triangular_solve": _routine(_triangular_solve),
    "tridiagonal": _by_columns(_tridiagonal),
    "tridiagonal_solve": _some_systems,
}
"""What there are kernels for, by the names of routines."""
