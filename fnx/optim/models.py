"""Optimizers with a model of the loss, which bounds their step: MoMo and MoMo-Adam.

They need the loss: `update(grads, state, params, value=loss)`. Receives updates,
parameters and the loss, gives updates. Part of `contrib`; next on the walk:
`orthogonal.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import tree
from fnx.core.array import Array
from fnx.errors import ArgumentError
from fnx.optim.averages import average, correction, zero_squares, zeros
from fnx.optim.hyperparameters import (
    DECAY,
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    ScalarOrSchedule,
)
from fnx.optim.leafwise import beside_updates, by_leaf
from fnx.optim.transformation import (
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    extended,
)
from fnx.optim.updates import (
    Leaf,
    first_count,
    floating,
    inner,
    next_count,
    number_dtype,
    squared,
    wide,
)


class MomoState(NamedTuple):
    """The average of gradients, of losses, of ⟨g, p⟩; the lower bound, and counts."""

    exp_avg: Updates
    barf: Array
    gamma: Array
    lb: Array
    count: Array  # type: ignore[assignment]  # tuple.count is not missed


class MomoAdamState(NamedTuple):
    """As `MomoState`, with the average of squared gradients."""

    exp_avg: Updates
    exp_avg_sq: Updates
    barf: Array
    gamma: Array
    lb: Array
    count: Array  # type: ignore[assignment]  # tuple.count is not missed


def momo(
    learning_rate: ScalarOrSchedule = 1.0,
    beta: float | Array = 0.9,
    lower_bound: float | Array = 0.0,
    weight_decay: float | Array = 0.0,
    adapt_lower_bound: bool = False,
) -> GradientTransformationExtraArgs:
    """SGD with momentum, whose step ends where a model of the loss reaches its bound.

    The model is the average of the losses' tangents, which lies above `lower_bound`;
    `learning_rate` is the longest step. `adapt_lower_bound` raises the bound where the
    losses allow it. `update` needs the parameters and the loss, `value=`. Schaipp et
    al., "MoMo: Momentum Models for Adaptive Learning Rates", 2023.

    >>> optimizer, params = momo(), fnp.array([1.0])
    >>> state = optimizer.init(params)
    >>> optimizer.update(fnp.array([4.0]), state, params, value=2.0)[0]
    Array([-0.5], dtype=float32)
    """
    _check("momo", learning_rate, lower_bound, weight_decay)
    DECAY.check("momo", "beta", beta)

    def init(params: Params) -> OptState:
        params = floating("momo", "params", params)
        means = tree.map(zeros, params)
        return MomoState(means, *_numbers(params, lower_bound), first_count())

    def update(
        updates: Updates,
        state: OptState,
        params: Params = None,
        *,
        value: Any = None,
        **extra_args: Any,
    ) -> tuple[Updates, OptState]:
        updates, params, loss = _operands("momo", updates, state, params, value)
        decay = fnp.where(state.count == 0, 0, fnp.asarray(beta, loss.dtype))

        def gather(g: Leaf, mean: Leaf) -> tuple[Leaf, Leaf]:
            return g, average(mean, g, decay)

        _, mean = by_leaf(gather, updates, [], [state.exp_avg])
        model = _Model(
            loss=average(state.barf, loss, decay),
            gamma=average(state.gamma, inner(updates, params, loss.dtype), decay),
            slope=inner(mean, params, loss.dtype),
            square=inner(mean, mean, loss.dtype),
            lasts=fnp.ones((), loss.dtype),
            shrink=weight_decay * _rate(learning_rate, state.count),
        )
        bound = _bound(model, state.lb, lower_bound, adapt_lower_bound)
        tau = _length(model, bound, _rate(learning_rate, state.count))

        def step(g: Leaf, p: Leaf, mean: Leaf) -> tuple[Leaf]:
            return (-model.shrink / (1 + model.shrink) * p - tau * mean,)

        (given,) = by_leaf(step, updates, [params, mean], [])
        lower = _next_bound(model, state.lb, tau, lower_bound, adapt_lower_bound)
        return given, MomoState(
            mean, model.loss, model.gamma, lower, next_count(state.count)
        )

    return extended(init, update)


def momo_adam(
    learning_rate: ScalarOrSchedule = 1e-2,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    lower_bound: float | Array = 0.0,
    weight_decay: float | Array = 0.0,
    adapt_lower_bound: bool = False,
) -> GradientTransformationExtraArgs:
    """As `momo`, in the scale of Adam's root mean squares.

    Schaipp et al., "MoMo: Momentum Models for Adaptive Learning Rates", 2023.

    >>> optimizer, params = momo_adam(1.0), fnp.array([1.0])
    >>> state = optimizer.init(params)
    >>> optimizer.update(fnp.array([4.0]), state, params, value=2.0)[0].round(4)
    Array([-0.5], dtype=float32)
    """
    _check("momo_adam", learning_rate, lower_bound, weight_decay)
    DECAY.check("momo_adam", "b1", b1)
    DECAY.check("momo_adam", "b2", b2)
    POSITIVE.check("momo_adam", "eps", eps)

    def init(params: Params) -> OptState:
        params = floating("momo_adam", "params", params)
        means = tree.map(zeros, params), tree.map(zero_squares, params)
        return MomoAdamState(*means, *_numbers(params, lower_bound), first_count())

    def update(
        updates: Updates,
        state: OptState,
        params: Params = None,
        *,
        value: Any = None,
        **extra_args: Any,
    ) -> tuple[Updates, OptState]:
        updates, params, loss = _operands("momo_adam", updates, state, params, value)
        count = next_count(state.count)

        def gather(g: Leaf, mean: Leaf, square: Leaf) -> tuple[Leaf, ...]:
            return g, average(mean, g, b1), average(square, squared(g), b2)

        _, mean, square = by_leaf(gather, updates, [], state[:2])

        def divided(m: Leaf, v: Leaf) -> Leaf:
            wider = wide(v)
            root = fnp.sqrt(wider / correction(b2, count, wider.dtype))
            return wide(m) / (eps + root)

        move = tree.map(divided, mean, square)
        model = _Model(
            loss=average(state.barf, loss, b1),
            gamma=average(state.gamma, inner(updates, params, loss.dtype), b1),
            slope=inner(mean, params, loss.dtype),
            square=inner(mean, move, loss.dtype),
            lasts=correction(b1, count, loss.dtype),
            shrink=weight_decay * _rate(learning_rate, state.count),
        )
        bound = _bound(model, state.lb, lower_bound, adapt_lower_bound)
        tau = _length(model, bound, _rate(learning_rate, state.count) / model.lasts)

        def step(g: Leaf, p: Leaf, move: Leaf) -> tuple[Leaf]:
            return (-model.shrink / (1 + model.shrink) * p - tau * move,)

        (given,) = by_leaf(step, updates, [params, move], [])
        lower = _next_bound(model, state.lb, tau, lower_bound, adapt_lower_bound)
        return given, MomoAdamState(mean, square, model.loss, model.gamma, lower, count)

    return extended(init, update)


class _Model(NamedTuple):
    """The average of the losses' tangents, in numbers.

    The averages of losses and of ⟨g, p⟩, the average gradient's product with the
    parameters and its square, what the averages' weights sum to, rate times decay.
    """

    loss: Leaf
    gamma: Leaf
    slope: Leaf
    square: Leaf
    lasts: Leaf
    shrink: Any


def _bound(model: _Model, lower: Leaf, least: Any, adapts: bool) -> Leaf:
    """The lower bound, lowered where the model lies below it."""
    if not adapts:
        return lower
    longer = 1 + model.shrink
    cap = longer * (model.loss - model.gamma) + model.slope
    lowered = fnp.maximum(cap / (2 * longer * model.lasts), least)
    return fnp.where(cap < longer * model.lasts * lower, lowered, lower)


def _length(model: _Model, bound: Leaf, most: Any) -> Leaf:
    """How far the model falls to its bound, at most so far."""
    above = (1 + model.shrink) * (model.loss - model.lasts * bound - model.gamma)
    above = fnp.maximum(above + model.slope, 0)
    some = model.square > 0
    found = fnp.where(some, above / fnp.where(some, model.square, 1), 0)
    return fnp.minimum(most, found)


def _next_bound(model: _Model, lower: Leaf, tau: Leaf, least: Any, adapts: bool) -> Any:
    if not adapts:
        return lower
    reached = model.loss + model.slope - model.gamma - tau * model.square / 2
    return fnp.asarray(fnp.maximum(reached / model.lasts, least), lower.dtype)


def _check(function: str, rate: Any, lower_bound: Any, weight_decay: Any) -> None:
    NOT_NEGATIVE.check_or_schedule(function, "learning_rate", rate)
    FINITE.check(function, "lower_bound", lower_bound)
    NOT_NEGATIVE.check(function, "weight_decay", weight_decay)


def _numbers(params: Params, lower_bound: Any) -> tuple[Leaf, Leaf, Leaf]:
    dtype = number_dtype(params)
    zero = fnp.zeros((), dtype)
    return zero, zero, fnp.asarray(lower_bound, dtype)


def _rate(rate: Any, count: Leaf) -> Any:
    return rate(count) if callable(rate) else rate


def _operands(
    function: str, updates: Updates, state: Any, params: Params, value: Any
) -> tuple[Updates, Params, Leaf]:
    if value is None:
        raise ArgumentError(
            f"{function}: the model needs the loss; call "
            "update(updates, state, params, value=loss)"
        )
    updates = floating(function, "updates", updates)
    params = beside_updates(function, "the model", updates, params)
    return updates, params, fnp.asarray(value, state.barf.dtype)
