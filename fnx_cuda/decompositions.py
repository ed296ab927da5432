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
from fnx_cuda.instructions import Launch
from fnx_cuda.matrices import Algebra, Matrix, dense
from fnx_cuda.matrices_text import LOWER, UPPER
from fnx_cuda.work import Work

_LONGEST = 1 << 30


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
        if any(type_.size == 0 for type_ in types):
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


_qr_launches = _routine(_qr)


def _qr_without_pivoting(step: HostStep, work: Work) -> list[Launch] | None:
    """With pivoting it runs on the host."""
    return None if step.params["pivoting"] else _qr_launches(step, work)


DECOMPOSITIONS: dict[str, Routine] = {
    "cholesky": _routine(_cholesky),
    "factored_solve": _routine(_factored_solve),
    "geqrf": _routine(_geqrf),
    "householder_product": _routine(_householder_product),
    "lu": _routine(_lu),
    "lu_permutation": _routine(_lu_permutation, own_axes=1),
    "ormqr": _routine(_ormqr),
    "qr": _qr_without_pivoting,
    "solve": _routine(_solve),
    "triangular_solve": _routine(_triangular_solve),
}
"""What there are kernels for, by the names of routines."""
