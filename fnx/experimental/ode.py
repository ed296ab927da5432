"""fnx.experimental.ode: odeint, for differential equations that are not stiff.

Receives a function, a start and times, gives the solution at the times: steps of
Dormand and Prince's method, whose size follows an estimate of the error, and between
their ends a polynomial. One loop makes a step in a round or gives a result, so that
derivatives of every order and mode are those of the loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import fnx.numpy as np_
from fnx import dtypes, errors, lax, tree
from fnx.api.arguments import as_array
from fnx.api.vmap import vmap
from fnx.flatten_util import ravel_pytree

# J. Dormand, P. Prince, "A family of embedded Runge-Kutta formulae", 1980.
_TIMES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (
    35 / 384 - 5179 / 57600,
    0.0,
    500 / 1113 - 7571 / 16695,
    125 / 192 - 393 / 640,
    -2187 / 6784 + 92097 / 339200,
    11 / 84 - 187 / 2100,
    -1 / 40,
)
# L. Shampine, "Some practical Runge-Kutta formulas", 1986: the solution in the middle.
_MIDDLE = (
    6025192743 / 30085553152 / 2,
    0.0,
    51252292925 / 65400821598 / 2,
    -2691868925 / 45128329728 / 2,
    187940372067 / 1594534317056 / 2,
    -1776094331 / 19743644256 / 2,
    11237099 / 235043384 / 2,
)
_ORDER = 5


def odeint(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *args: Any,
    rtol: float = 1.4e-8,
    atol: float = 1.4e-8,
    mxstep: float = math.inf,
    hmax: float = math.inf,
) -> Any:
    """The solution of dy/dt = func(y, t, *args) that is `y0` at the first time.

    `y0` is a tree of arrays, and `func` gives one of that structure. `t` is a vector of
    floats that rise strictly. The result has the structure of `y0`, and in every leaf a
    leading axis along the times. A step's error is kept below `atol + rtol * |y|` (root
    mean square over all elements); its size is at most `hmax`. After `mxstep` steps
    since the last time, or where steps become too small to go on, the solution is NaN
    from there on.

    Derivatives, of all orders, by `y0`, `t`, `args` and what `func` closes over are
    those of the steps that were made, their sizes held fixed: as exact as the solution.
    (JAX integrates an adjoint equation backwards, in less memory; its gradients have
    the errors of that integration, and there are none in forward mode.) Reverse mode
    keeps the stages of every step.

    Raises `ShapeError`, `DTypeError`, `TreeError`, by the argument's name.

    >>> import numpy as np
    >>> y = odeint(lambda y, t: -y, 1.0, np.array([0.0, 1.0], "float32"))
    >>> round(float(y[1]), 4)
    0.3679
    """
    times = as_array(t, "odeint", "t")
    if times.ndim != 1 or not times.shape[0]:
        raise errors.ShapeError(
            f"odeint: t must be a vector of at least one time, got {times.type}"
        )
    if not dtypes.is_float(times.dtype):
        raise errors.DTypeError(f"odeint: t must be floats, got {times.type}")
    leaves, structure = tree.flatten(y0)
    starts = [_moving(as_array(leaf, "odeint", "y0"), times.dtype) for leaf in leaves]
    start, unravel = ravel_pytree(structure.unflatten(starts))

    def flow(y: Any, time: Any) -> Any:
        slope = func(unravel(y), time, *args)
        if tree.structure(slope) != structure:
            raise errors.TreeError(
                errors.explain(
                    f"odeint: func gives {tree.structure(slope)}",
                    f"y0 is {structure}",
                    "give the derivative of every leaf",
                )
            )
        flat = ravel_pytree(slope)[0]
        if flat.shape != y.shape:
            raise errors.ShapeError(
                f"odeint: func gives {flat.shape[0]} numbers, y0 has {y.shape[0]}"
            )
        return np_.asarray(flat, y.dtype)

    limits = _Limits(rtol, atol, mxstep, hmax)
    return vmap(unravel)(_solved(flow, start, times, limits))


def _moving(x: Any, dtype: Any) -> Any:
    """A start in floating point: Python numbers and integers in the dtype of time."""
    if dtypes.is_inexact(x.dtype) and not x.type.weak:
        return x
    wanted = np_.result_type(dtype, complex) if dtypes.is_complex(x.dtype) else dtype
    return np_.asarray(x, wanted)


class _Limits(NamedTuple):
    rtol: float
    atol: float
    steps: float
    size: float


class _State(NamedTuple):
    """The solution up to a time, and the last step, from `begin` to `time`.

    `slope` is the derivative at the time, `size` that of the next step to try,
    `coefficients` those of the polynomial over the last step. `given` results are
    written, `steps` made since the last of them.
    """

    y: Any
    slope: Any
    time: Any
    size: Any
    begin: Any
    coefficients: Any
    given: Any
    steps: Any
    results: Any


def _solved(
    flow: Callable[[Any, Any], Any], start: Any, times: Any, limits: _Limits
) -> Any:
    """The solution at all times, as rows."""
    count, first = times.shape[0], times[0]
    slope = flow(start, first)
    size = lax.stop_gradient(_first_size(flow, start, first, slope, limits))
    rows: Any = np_.full((count, *start.shape), np_.nan, start.dtype)
    begin = _State(
        y=start,
        slope=slope,
        time=first,
        size=np_.asarray(np_.minimum(size, limits.size), times.dtype),
        begin=first,
        coefficients=np_.stack([np_.zeros_like(start)] * 4 + [start]),
        given=np_.asarray(1, "int32"),
        steps=np_.asarray(0, "int32"),
        results=rows.at[0].set(start),
    )

    def wanted(state: _State) -> Any:
        return times[np_.minimum(state.given, count - 1)]

    def going(state: _State) -> Any:
        # A size that is NaN, or too small to move the time, ends it.
        able = (state.steps < limits.steps) & (state.time + state.size > state.time)
        return (state.given < count) & (able | (wanted(state) <= state.time))

    def round(state: _State) -> _State:
        return lax.cond(wanted(state) <= state.time, give, step, state)

    def give(state: _State) -> _State:
        target = wanted(state)
        part = (target - state.begin) / (state.time - state.begin)
        value = np_.polyval(state.coefficients, np_.asarray(part, start.dtype))
        return state._replace(
            results=state.results.at[state.given].set(value),
            given=state.given + 1,
            steps=np_.zeros_like(state.steps),
        )

    def step(state: _State) -> _State:
        y, slope, error, coefficients = _step(flow, state)
        ratio = lax.stop_gradient(_error_ratio(error, state.y, y, limits))
        good = ratio <= 1
        size = np_.minimum(state.size * _factor(ratio), limits.size)
        after = state._replace(
            y=y,
            slope=slope,
            time=state.time + state.size,
            begin=state.time,
            coefficients=coefficients,
        )
        kept = tree.map(lambda new, old: np_.where(good, new, old), after, state)
        return kept._replace(size=np_.asarray(size, times.dtype), steps=state.steps + 1)

    return lax.while_loop(going, round, begin).results


def _step(flow: Callable[[Any, Any], Any], state: _State) -> tuple[Any, Any, Any, Any]:
    """A step: value and slope at its end, the error, the polynomial's coefficients."""
    y, size = state.y, state.size
    scale = np_.asarray(size, y.dtype)
    slopes = [state.slope]
    end = y
    for part, weights in zip(_TIMES, _STAGES, strict=True):
        end = y + scale * _combined(weights, slopes)
        slopes.append(flow(end, state.time + part * size))
    error = scale * _combined(_ERROR, slopes)
    middle = y + scale * _combined(_MIDDLE, slopes)
    first, last = scale * slopes[0], scale * slopes[-1]
    coefficients = [
        -2 * first + 2 * last - 8 * y - 8 * end + 16 * middle,
        5 * first - 3 * last + 18 * y + 14 * end - 32 * middle,
        -4 * first + last - 11 * y - 5 * end + 16 * middle,
        first,
        y,
    ]
    return end, slopes[-1], error, np_.stack(coefficients)


def _combined(weights: tuple[float, ...], slopes: list[Any]) -> Any:
    terms = [w * k for w, k in zip(weights, slopes, strict=True) if w]
    return sum(terms[1:], terms[0])


def _error_ratio(error: Any, before: Any, after: Any, limits: _Limits) -> Any:
    """The error over what is allowed: root mean square of all elements."""
    size = np_.maximum(np_.abs(before), np_.abs(after))
    ratio = np_.abs(error) / (limits.atol + limits.rtol * size)
    return np_.sqrt(np_.sum(ratio * ratio) / max(error.size, 1))


def _factor(ratio: Any) -> Any:
    """By how much the next step is larger, or the one to repeat smaller."""
    safe = np_.where(ratio > 0, ratio, 1)
    least = np_.where(ratio < 1, 1.0, 0.2)
    factor = np_.clip(0.9 * safe ** (-1 / _ORDER), least, 10)
    return np_.where(ratio == 0, 10, factor)


def _first_size(
    flow: Callable[[Any, Any], Any], y: Any, time: Any, slope: Any, limits: _Limits
) -> Any:
    """E. Hairer et al., "Solving ordinary differential equations I", II.4."""
    scale = limits.atol + np_.abs(y) * limits.rtol
    sizes: Any = [np_.linalg.norm(x / scale) for x in (y, slope)]
    d0, d1 = sizes
    tiny = (d0 < 1e-5) | (d1 < 1e-5)
    h0 = np_.where(tiny, 1e-6, 0.01 * d0 / np_.where(tiny, 1, d1))
    moved = flow(y + np_.asarray(h0, y.dtype) * slope, time + h0)
    d2 = np_.linalg.norm((moved - slope) / scale) / h0
    largest: Any = np_.maximum(d1, d2)
    still = largest <= 1e-15
    h1 = (0.01 / np_.where(still, 1, largest)) ** (1 / _ORDER)
    h1 = np_.where(still, np_.maximum(1e-6, h0 * 1e-3), h1)
    return np_.minimum(100 * h0, h1)
