"""Line searches: how far to go along the updates, by values of the function.

The last link of a chain: what comes in is the whole step, sign included, what goes out
is that times a rate for which the function has decreased enough. `update` needs the
parameters and, by name, `value`, `grad` and `value_fn`; further arguments go to the
function. Receives updates, gives updates. Next on the walk: `quasi_newton.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import debug, lax, tree
from fnx.api.grad import value_and_grad
from fnx.core.array import Array
from fnx.errors import ArgumentError, OptionError
from fnx.optim.hyperparameters import DECAY, NOT_NEGATIVE, POSITIVE, UNIT, Range, steps
from fnx.optim.leafwise import beside_updates
from fnx.optim.transformation import (
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    extended,
)
from fnx.optim.updates import Leaf, floating, inner, number_dtype, scaled, wide
from fnx.records import record

_AT_LEAST_ONE = Range("1 or more", lambda x: x >= 1)


class Point(NamedTuple):
    """A place on the line: its rate, the value there, the slope, the gradient."""

    rate: Leaf
    value: Leaf
    slope: Leaf
    grad: Updates


class _Line(NamedTuple):
    """The function along the updates: its start, and how to go to another place."""

    start: Point
    at: Callable[[Leaf], Point]


def _line(
    function: str,
    updates: Updates,
    params: Params,
    value: Leaf,
    grad: Any,
    value_fn: Any,
    extra_args: dict[str, Any],
) -> _Line:
    for name, given in (("value", value), ("grad", grad), ("value_fn", value_fn)):
        if given is None:
            raise ArgumentError(
                f"{function}: the search needs {name}; call update(updates, state, "
                "params, value=loss, grad=grads, value_fn=function)"
            )
    params = beside_updates(function, "the search", updates, params)
    gradient = value_and_grad(value_fn)
    value = fnp.asarray(value)

    def at(rate: Leaf) -> Point:
        there = tree.map(
            lambda p, u: (wide(p) + rate.astype(wide(u).dtype) * wide(u)).astype(
                p.dtype
            ),
            params,
            updates,
        )
        found, slopes = gradient(there, **extra_args)
        found = found.astype(value.dtype)
        return Point(rate, found, inner(slopes, updates, value.dtype), slopes)

    slope = inner(grad, updates, value.dtype)
    return _Line(Point(fnp.zeros((), value.dtype), value, slope, grad), at)


def _chosen(here: Leaf, a: Any, b: Any) -> Any:
    return tree.map(lambda x, y: fnp.where(here, x, y), a, b)


# ---------------------------------------------------------------- backtracking


class BacktrackingLinesearchInfo(NamedTuple):
    """How many rates were tried beyond the first, and by how much the last failed."""

    num_linesearch_steps: Array
    decrease_error: Array


class ScaleByBacktrackingLinesearchState(NamedTuple):
    """The rate that was found, and the value and the gradient there (if stored)."""

    learning_rate: Array
    value: Array
    grad: Updates | None
    info: BacktrackingLinesearchInfo


def scale_by_backtracking_linesearch(
    max_backtracking_steps: int,
    slope_rtol: float = 1e-4,
    decrease_factor: float = 0.8,
    increase_factor: float = 1.5,
    max_learning_rate: float | None = 1.0,
    atol: float = 0.0,
    rtol: float = 0.0,
    store_grad: bool = False,
    verbose: bool = False,
) -> GradientTransformationExtraArgs:
    """Shorten the step until the value is below a line (the condition of Armijo).

    The first rate is the last one found times `increase_factor`, at most
    `max_learning_rate`; it is multiplied by `decrease_factor` until
    f(rate) ≤ (1 + rtol) f(0) + rate · slope_rtol · slope + atol, or
    `max_backtracking_steps` times. A rate whose value is not finite becomes 0.
    `store_grad` keeps the gradient there for `value_and_grad_from_state`; `verbose`
    prints a search that fails. Armijo, "Minimization of functions having Lipschitz
    continuous first partial derivatives", 1966.

    >>> f = lambda x: (x**2).sum()
    >>> search, x = scale_by_backtracking_linesearch(15), fnp.array([2.0])
    >>> grad = fnp.array([4.0])
    >>> search.update(-grad, search.init(x), x, value=f(x), grad=grad, value_fn=f)[0]
    Array([-3.2], dtype=float32)
    """
    name = "scale_by_backtracking_linesearch"
    most = steps(name, "max_backtracking_steps", max_backtracking_steps, least=0)
    UNIT.check(name, "slope_rtol", slope_rtol)
    DECAY.check(name, "decrease_factor", decrease_factor)
    NOT_NEGATIVE.check(name, "atol", atol)
    NOT_NEGATIVE.check(name, "rtol", rtol)
    if max_learning_rate is not None:
        POSITIVE.check(name, "max_learning_rate", max_learning_rate)

    def init(params: Params) -> OptState:
        params = floating(name, "params", params)
        dtype = number_dtype(params)
        grad = tree.map(fnp.zeros_like, params) if store_grad else None
        info = BacktrackingLinesearchInfo(fnp.zeros((), "int32"), fnp.zeros((), dtype))
        return ScaleByBacktrackingLinesearchState(
            fnp.ones((), dtype), fnp.full((), fnp.inf, dtype), grad, info
        )

    def update(
        updates: Updates,
        state: OptState,
        params: Params = None,
        *,
        value: Any = None,
        grad: Any = None,
        value_fn: Any = None,
        **extra_args: Any,
    ) -> tuple[Updates, OptState]:
        updates = floating(name, "updates", updates)
        line = _line(name, updates, params, value, grad, value_fn, extra_args)
        start = line.start

        def error(point: Point) -> Leaf:
            limit = (1 + rtol) * start.value + atol
            limit = limit + slope_rtol * point.rate * start.slope
            excess = fnp.maximum(point.value - limit, 0)
            return fnp.where(fnp.isfinite(point.value), excess, fnp.inf)

        def fails(carry: Any) -> Leaf:
            tried, point = carry
            return (tried < most) & (error(point) > 0)

        def shorten(carry: Any) -> Any:
            tried, point = carry
            return tried + 1, line.at(decrease_factor * point.rate)

        first = increase_factor * state.learning_rate.astype(start.value.dtype)
        if max_learning_rate is not None:
            first = fnp.minimum(first, max_learning_rate)
        begun = fnp.zeros((), "int32"), line.at(first)
        tried, point = lax.while_loop(fails, shorten, begun)
        failed = error(point)
        point = _chosen(fnp.isfinite(point.value), point, start)
        if verbose:
            _report(name, failed > 0, point)
        info = BacktrackingLinesearchInfo(
            tried, failed.astype(state.info.decrease_error.dtype)
        )
        new = ScaleByBacktrackingLinesearchState(
            point.rate.astype(state.learning_rate.dtype),
            point.value.astype(state.value.dtype),
            point.grad if store_grad else None,
            info,
        )
        return tree.map(lambda u: scaled(u, point.rate), updates), new

    return extended(init, update)


def _report(function: str, failed: Leaf, point: Point) -> None:
    text = function + ": no rate is good enough; the last is {} with the value {}"
    lax.cond(
        failed,
        lambda: debug.print(text, point.rate, point.value),
        lambda: None,
    )


# ---------------------------------------------------------------- zoom


class ZoomLinesearchInfo(NamedTuple):
    """How many rates were tried, and by how much each condition fails."""

    num_linesearch_steps: Array
    decrease_error: Array
    curvature_error: Array


class ScaleByZoomLinesearchState(NamedTuple):
    """The rate that was found, and the value and the gradient there."""

    learning_rate: Array
    value: Array
    grad: Updates
    info: ZoomLinesearchInfo


class _Search(NamedTuple):
    """Where a search stands: the best end of the interval, the other, the trial."""

    tried: Leaf
    zooming: Leaf
    done: Leaf
    low: Point
    high: Point
    trial: Leaf


@record
class _Zoom:
    """The search itself, by the options of `scale_by_zoom_linesearch`."""

    most: int
    max_learning_rate: float | None
    tol: float
    increase_factor: float
    slope_rtol: float
    curv_rtol: float
    approx_dec_rtol: float | None
    stepsize_precision: float

    def search(self, line: _Line, guess: Leaf) -> _Search:
        """Rates from a first one on, until one is good or so many have been tried."""
        start, no = line.start, fnp.zeros((), "bool")
        none = fnp.zeros((), "int32")
        return lax.while_loop(
            lambda search: ~search.done & (search.tried < self.most),
            lambda search: self._advance(line, search),
            _Search(none, no, no, start, start, self._limited(guess)),
        )

    def errors(self, start: Point, point: Point) -> tuple[Leaf, Leaf]:
        """By how much a point fails the two conditions."""
        limit = start.value + self.slope_rtol * point.rate * start.slope + self.tol
        decrease = fnp.maximum(point.value - limit, 0)
        if self.approx_dec_rtol is not None:
            flat = point.value <= start.value + self.approx_dec_rtol * abs(start.value)
            steep = point.slope - (2 * self.slope_rtol - 1) * start.slope - self.tol
            decrease = fnp.where(
                flat, fnp.minimum(decrease, fnp.maximum(steep, 0)), decrease
            )
        decrease = fnp.where(fnp.isfinite(point.value), decrease, fnp.inf)
        curvature = abs(point.slope) - self.curv_rtol * abs(start.slope) - self.tol
        return decrease, fnp.maximum(curvature, 0)

    def _advance(self, line: _Line, search: _Search) -> _Search:
        """One more rate: widen the interval while there is none, then shrink it."""
        low, high = search.low, search.high
        point = line.at(search.trial)
        decrease, curvature = self.errors(line.start, point)
        worse = (decrease > 0) | ((point.value >= low.value) & (low.rate > 0))
        good = ~worse & (curvature <= 0)
        # the side of the trial on which the value still falls
        beyond = point.slope * fnp.where(search.zooming, high.rate - low.rate, 1) >= 0
        other = _chosen(worse, point, _chosen(beyond, low, high))
        best = _chosen(worse, low, point)
        zooming = search.zooming | worse | beyond
        narrow = abs(other.rate - best.rate) <= self.stepsize_precision
        wider = self._limited(self.increase_factor * point.rate)
        at_limit = ~zooming & (wider <= point.rate)
        done = good | (zooming & narrow & (best.rate > 0)) | at_limit
        trial = fnp.where(zooming, _between(best, other), wider)
        return _Search(search.tried + 1, zooming, done, best, other, trial)

    def _limited(self, rate: Leaf) -> Leaf:
        most = self.max_learning_rate
        return rate if most is None else fnp.minimum(rate, most)


def scale_by_zoom_linesearch(
    max_linesearch_steps: int,
    max_learning_rate: float | None = None,
    tol: float = 0.0,
    increase_factor: float = 2.0,
    slope_rtol: float = 1e-4,
    curv_rtol: float = 0.9,
    approx_dec_rtol: float | None = 1e-6,
    stepsize_precision: float = 1e-5,
    initial_guess_strategy: str = "keep",
    verbose: bool = False,
) -> GradientTransformationExtraArgs:
    """A rate that decreases the value enough and where the slope has become small.

    The conditions of Wolfe: f(rate) ≤ f(0) + slope_rtol · rate · slope(0) + tol and
    |slope(rate)| ≤ curv_rtol · |slope(0)| + tol. Where the value changes by less than
    `approx_dec_rtol` of itself, slope(rate) ≤ (2 slope_rtol - 1) · slope(0) does for
    the first. The rate grows by `increase_factor` until an interval has such a rate in
    it, which then shrinks; one shorter than `stepsize_precision` is enough. The first
    rate is the last one found ("keep") or 1 ("one"). When `max_linesearch_steps` are
    over, the best rate so far is taken; `verbose` prints that. Nocedal and Wright,
    "Numerical Optimization", 2006, algorithms 3.5 and 3.6; Hager and Zhang, "Algorithm
    851: CG_DESCENT", 2006.

    >>> f = lambda x: (x**2).sum()
    >>> search, x = scale_by_zoom_linesearch(15), fnp.array([2.0])
    >>> grad = fnp.array([4.0])
    >>> search.update(-grad, search.init(x), x, value=f(x), grad=grad, value_fn=f)[0]
    Array([-2.], dtype=float32)
    """
    name = "scale_by_zoom_linesearch"
    most = steps(name, "max_linesearch_steps", max_linesearch_steps)
    if max_learning_rate is not None:
        POSITIVE.check(name, "max_learning_rate", max_learning_rate)
    if approx_dec_rtol is not None:
        NOT_NEGATIVE.check(name, "approx_dec_rtol", approx_dec_rtol)
    NOT_NEGATIVE.check(name, "tol", tol)
    _AT_LEAST_ONE.check(name, "increase_factor", increase_factor)
    UNIT.check(name, "slope_rtol", slope_rtol)
    UNIT.check(name, "curv_rtol", curv_rtol)
    NOT_NEGATIVE.check(name, "stepsize_precision", stepsize_precision)
    if initial_guess_strategy not in ("one", "keep"):
        raise OptionError(
            f"{name}: initial_guess_strategy must be one or keep, got "
            f"{initial_guess_strategy!r}"
        )

    zoom = _Zoom(
        most,
        max_learning_rate,
        tol,
        increase_factor,
        slope_rtol,
        curv_rtol,
        approx_dec_rtol,
        stepsize_precision,
    )

    def init(params: Params) -> OptState:
        params = floating(name, "params", params)
        dtype = number_dtype(params)
        zero = fnp.zeros((), dtype)
        return ScaleByZoomLinesearchState(
            fnp.ones((), dtype),
            fnp.full((), fnp.inf, dtype),
            tree.map(fnp.zeros_like, params),
            ZoomLinesearchInfo(fnp.zeros((), "int32"), zero, zero),
        )

    def update(
        updates: Updates,
        state: OptState,
        params: Params = None,
        *,
        value: Any = None,
        grad: Any = None,
        value_fn: Any = None,
        **extra_args: Any,
    ) -> tuple[Updates, OptState]:
        updates = floating(name, "updates", updates)
        line = _line(name, updates, params, value, grad, value_fn, extra_args)
        guess = state.learning_rate.astype(line.start.value.dtype)
        if initial_guess_strategy == "one":
            guess = fnp.ones_like(guess)
        search = zoom.search(line, guess)
        point = search.low
        decrease, curvature = zoom.errors(line.start, point)
        if verbose:
            _report(name, ~search.done, point)
        dtype = state.value.dtype
        info = ZoomLinesearchInfo(
            search.tried, decrease.astype(dtype), curvature.astype(dtype)
        )
        # a rate of 0 would be the first guess of the next search
        kept = fnp.where(point.rate > 0, point.rate, 1)
        new = ScaleByZoomLinesearchState(
            kept.astype(state.learning_rate.dtype),
            point.value.astype(dtype),
            tree.map(lambda g, old: g.astype(old.dtype), point.grad, state.grad),
            info,
        )
        return tree.map(lambda u: scaled(u, point.rate), updates), new

    return extended(init, update)


def _between(low: Point, high: Point) -> Leaf:
    """Where the cubic through both ends is least, or the middle if that is no help.

    Nocedal and Wright, "Numerical Optimization", 2006, equation 3.59.
    """
    width = high.rate - low.rate
    middle = low.rate + width / 2
    safe = fnp.where(width == 0, 1, width)
    first = low.slope + high.slope - 3 * (high.value - low.value) / safe
    square = first**2 - low.slope * high.slope
    second = fnp.sign(width) * fnp.sqrt(fnp.where(square > 0, square, 1))
    below = high.slope - low.slope + 2 * second
    part = (high.slope + second - first) / fnp.where(below == 0, 1, below)
    rate = high.rate - width * part
    inside = (rate - low.rate) / safe
    helps = (square > 0) & (below != 0) & (inside > 0.1) & (inside < 0.9)
    return fnp.where(helps & fnp.isfinite(rate), rate, middle)


# ---------------------------------------------------------------- what is known already


def value_and_grad_from_state(value_fn: Callable[..., Any]) -> Callable[..., Any]:
    """As `fnx.value_and_grad`, with what the last line search has found, if anything.

    `f(params, *args, state=state)`; the state has one line search in it that stores
    the gradient, or it is an `ArgumentError`. What it found was at these parameters, if
    they are those that its updates led to.

    >>> from fnx.optim import lbfgs
    >>> f = value_and_grad_from_state(lambda x: (x**2).sum())
    >>> x = fnp.array([1.0, 2.0])
    >>> f(x, state=lbfgs().init(x))[0]
    Array(5., dtype=float32)
    """
    compute = value_and_grad(value_fn)

    def known_or_computed(
        params: Params, *args: Any, state: OptState, **kwargs: Any
    ) -> tuple[Any, Any]:
        kinds = ScaleByZoomLinesearchState | ScaleByBacktrackingLinesearchState
        nodes = tree.leaves(state, is_leaf=lambda x: isinstance(x, kinds))
        found = [node for node in nodes if isinstance(node, kinds)]
        if len(found) != 1 or found[0].grad is None:
            reason = (
                "does not store its gradient (store_grad=True does)"
                if len(found) == 1
                else f"is there {len(found)} times"
            )
            raise ArgumentError(
                f"value_and_grad_from_state: the line search of the state {reason}"
            )
        (search,) = found

        def computed() -> tuple[Any, Any]:
            value, grad = compute(params, *args, **kwargs)
            return value.astype(search.value.dtype), grad

        return lax.cond(
            fnp.isfinite(search.value), lambda: (search.value, search.grad), computed
        )

    return known_or_computed
