"""fnx.scipy.optimize: minimize, by BFGS.

Receives a function of a vector and a start, gives what was found. All of it is loops of
the library, so that it compiles, maps and is differentiated. Next on the walk:
`fnx/scipy/special`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

import fnx.numpy as np_
from fnx import dtypes, errors
from fnx.api.arguments import as_array
from fnx.api.grad import value_and_grad
from fnx.api.loops import while_loop
from fnx.core.array import Array

_OPTIONS: dict[str, Any] = {
    "maxiter": None,
    "norm": np.inf,
    "gtol": 1e-5,
    "line_search_maxiter": 10,
}


class OptimizeResults(NamedTuple):
    """What `minimize` has found.

    `x` is the place, `fun` the value there, `jac` the gradient, `hess_inv` an estimate
    of the inverse of the Hessian; `success` says whether the gradient is small enough.
    `status` is 0 then, 1 after too many iterations, 3 where no step made the function
    smaller. `nfev`, `njev` and `nit` count values, gradients and iterations.
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """A local minimum of `fun(x, *args)`, a real function of a vector, near `x0`.

    `method` is "BFGS". `options` are `maxiter` (200 for each number of the vector),
    `gtol` (1e-5, or `tol`) and `norm` (inf): the gradient's norm of that order must be
    below; and `line_search_maxiter` (10), the most values for one step. Steps satisfy
    the strong Wolfe conditions. The dtype is that of `x0`, if that is a float.

    Derivatives are those of the loop; for those of the minimum itself, which need no
    memory of the way, see `fnx.implicit`.

    Raises `OptionError` for other methods and options, `ShapeError` for an `x0` that is
    no vector, `ArgumentError` for `args` that are no tuple.

    Source: J. Nocedal, S. Wright, "Numerical optimization", 1999, algorithms 6.1, 3.5
    and 3.6.

    >>> found = minimize(lambda x: np_.sum((x - 3) ** 2), np.zeros(2), method="BFGS")
    >>> found.x.tolist(), bool(found.success)
    ([3.0, 3.0], True)
    """
    if not isinstance(method, str) or method.lower() != "bfgs":
        raise errors.OptionError(f"minimize: method is 'BFGS', got {method!r}")
    if not isinstance(args, tuple):
        raise errors.ArgumentError(
            f"minimize: args must be a tuple of further arguments, got {args!r}"
        )
    start = as_array(x0, "minimize", "x0")
    if start.ndim != 1:
        raise errors.ShapeError(
            errors.explain(
                f"minimize: x0 is {start.type}",
                "it must be a vector",
                "make one of a tree with fnx.flatten_util.ravel_pytree",
            )
        )
    if not dtypes.is_float(start.dtype):
        start = np_.asarray(start, dtypes.default_float())
    given = dict(options or {})
    unknown = set(given) - set(_OPTIONS)
    if unknown:
        raise errors.OptionError(
            f"minimize: options {sorted(unknown)} are none of {', '.join(_OPTIONS)}"
        )
    if tol is not None:
        given.setdefault("gtol", tol)
    chosen = _OPTIONS | given
    if chosen["maxiter"] is None:
        chosen["maxiter"] = 200 * start.shape[0]

    def both(x: Any) -> Any:
        return value_and_grad(lambda y: fun(y, *args))(x)

    return _bfgs(both, start, chosen)


class _State(NamedTuple):
    """Where the search is; `last` is the value before, to guess the next step by."""

    x: Any
    value: Any
    gradient: Any
    inverse: Any
    last: Any
    converged: Any
    failed: Any
    evaluations: Any
    iterations: Any


def _bfgs(
    both: Callable[[Any], Any], start: Array, options: Mapping[str, Any]
) -> OptimizeResults:
    """Quasi-Newton steps until the gradient is small."""
    eye: Any = np_.eye(start.shape[0], dtype=start.dtype)

    def is_enough(value: Any, gradient: Any) -> Any:
        size: Any = np_.linalg.norm(gradient, ord=options["norm"])
        return (size < options["gtol"]) & np_.isfinite(value)

    def going(state: _State) -> Any:
        left = state.iterations < options["maxiter"]
        return ~state.converged & ~state.failed & left

    def step(state: _State) -> _State:
        direction = -(state.inverse @ state.gradient)
        found = _line_search(both, state, direction, options["line_search_maxiter"])
        s = np_.where(found.size == 0, 0, found.size * direction)
        y = found.gradient - state.gradient
        return _State(
            x=state.x + s,
            value=found.value,
            gradient=found.gradient,
            inverse=_next_inverse(state, s, y, eye),
            last=state.value,
            converged=is_enough(found.value, found.gradient),
            failed=found.failed,
            evaluations=state.evaluations + found.evaluations,
            iterations=state.iterations + 1,
        )

    value, gradient = both(start)
    begin = _State(
        x=start,
        value=value,
        gradient=gradient,
        inverse=eye,
        last=value + np_.linalg.norm(gradient) / 2,
        converged=is_enough(value, gradient),
        failed=np_.asarray(False),
        evaluations=np_.asarray(1),
        iterations=np_.asarray(0),
    )
    end = while_loop(going, step, begin)
    status = np_.where(end.converged, 0, np_.where(end.failed, 3, 1))
    return OptimizeResults(
        x=end.x,
        success=end.converged,
        status=status,
        fun=end.value,
        jac=end.gradient,
        hess_inv=end.inverse,
        nfev=end.evaluations,
        njev=end.evaluations,
        nit=end.iterations,
    )


def _next_inverse(state: _State, s: Any, y: Any, eye: Any) -> Any:
    """The inverse of the Hessian, after a step s along which the gradient grew by y."""
    curvature = s @ y
    # A step along which the gradient does not grow tells nothing of the Hessian.
    useful = curvature > 0
    rho = 1 / np_.where(useful, curvature, 1)
    # The first step tells how large the inverse is, of which nothing was known.
    scale = curvature / np_.where(useful, y @ y, 1)
    inverse = np_.where(state.iterations == 0, scale * eye, state.inverse)
    turn = eye - rho * s[:, None] * y[None, :]
    updated = turn @ inverse @ turn.T + rho * s[:, None] * s[None, :]
    return np_.where(useful, updated, state.inverse)


# ---------------------------------------------------------------- line search


class _Point(NamedTuple):
    """A place along the direction: how far, value, slope, gradient."""

    size: Any
    value: Any
    slope: Any
    gradient: Any


class _Search(NamedTuple):
    """The line search between rounds.

    Until there is a bracket, `low` is the last point, and steps grow. Then the wanted
    one lies between `low`, the best so far, and `high`.
    """

    low: _Point
    high: _Point
    bracketed: Any
    done: Any
    evaluations: Any


class _Step(NamedTuple):
    size: Any
    value: Any
    gradient: Any
    failed: Any
    evaluations: Any


_DECREASE, _FLATTEN = 1e-4, 0.9
"""The constants of Wolfe's conditions, for the value and for the slope."""


def _line_search(
    both: Callable[[Any], Any], state: _State, direction: Any, most: int
) -> _Step:
    """A step that satisfies the strong Wolfe conditions, or the best one tried."""

    def point(size: Any) -> _Point:
        value, gradient = both(state.x + size * direction)
        return _Point(size, value, gradient @ direction, gradient)

    zero = np_.zeros((), state.x.dtype)
    origin = _Point(zero, state.value, state.gradient @ direction, state.gradient)
    guess = 2.02 * (state.value - state.last) / origin.slope
    first = np_.where((guess > 0) & (guess < 1), guess, 1)

    def going(search: _Search) -> Any:
        return ~search.done & (search.evaluations < most)

    def round(search: _Search) -> _Search:
        low, high = search.low, search.high
        growing = np_.where(search.evaluations == 0, first, 2 * low.size)
        new = point(np_.where(search.bracketed, _between(low, high), growing))
        too_high: Any = new.value > origin.value + _DECREASE * new.size * origin.slope
        too_high = too_high | np_.logical_not(np_.isfinite(new.value))
        too_high = too_high | ((new.value >= low.value) & (search.evaluations > 0))
        flat: Any = ~too_high & (np_.abs(new.slope) <= -_FLATTEN * origin.slope)
        # The minimum lies behind where the slope points back to the low end.
        ahead = np_.where(search.bracketed, high.size - low.size, 1)
        turned = ~too_high & (new.slope * ahead >= 0)
        return _Search(
            low=_either(too_high, low, new),
            high=_either(too_high, new, _either(turned, low, high)),
            bracketed=search.bracketed | too_high | turned,
            done=flat,
            evaluations=search.evaluations + 1,
        )

    no, none = np_.asarray(False), np_.asarray(0)
    end: Any = while_loop(going, round, _Search(origin, origin, no, no, none))
    failed = ~end.done & (end.low.size == 0)
    low = end.low
    return _Step(low.size, low.value, low.gradient, failed, end.evaluations)


def _either(mask: Any, one: _Point, other: _Point) -> _Point:
    return _Point(*[np_.where(mask, x, y) for x, y in zip(one, other, strict=True)])


def _between(low: _Point, high: _Point) -> Any:
    """The minimum of the cubic through both ends, or the middle, if not inside."""
    width = high.size - low.size
    safe = np_.where(width == 0, 1, width)
    mean = 3 * (low.value - high.value) / safe + low.slope + high.slope
    square = mean * mean - low.slope * high.slope
    root = np_.sign(safe) * np_.sqrt(np_.maximum(square, 0))
    bottom = high.slope - low.slope + 2 * root
    part = (high.slope + root - mean) / np_.where(bottom == 0, 1, bottom)
    size = high.size - width * part
    inside = (part > 0.1) & (part < 0.9) & (square >= 0) & (bottom != 0)
    return np_.where(inside, size, (low.size + high.size) / 2)
