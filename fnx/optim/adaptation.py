"""Optimizers that estimate the distance to the solution: Prodigy and its relatives.

The estimate only grows, from a very small one, and multiplies the rate, for which 1 is
right. Receives updates and parameters, gives updates. Part of `contrib`; next on the
walk: `models.py`.
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
    NOT_NEGATIVE,
    POSITIVE,
    ScalarOrSchedule,
    steps,
)
from fnx.optim.leafwise import beside_updates, by_leaf
from fnx.optim.transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    check_transformation,
    extended,
    with_extra_args_support,
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


def _start(params: Params) -> tuple[Updates, Updates, Updates]:
    """Where the averages of gradients, of squares, and the sum of gradients begin."""
    return (
        tree.map(zeros, params),
        tree.map(zero_squares, params),
        tree.map(zeros, params),
    )


def _absolute_sum(values: Updates, dtype: Any) -> Leaf:
    sums = [fnp.asarray(fnp.sum(fnp.abs(wide(x))), dtype) for x in tree.leaves(values)]
    return tree.reduce(fnp.add, sums, fnp.zeros((), dtype))


def _grown(old: Leaf, above: Leaf, below: Leaf) -> Leaf:
    """The estimate above / below where it is more; no gradient estimates nothing."""
    some = below > 0
    return fnp.maximum(old, fnp.where(some, above / fnp.where(some, below, 1), 0))


def _betas(function: str, betas: Any) -> tuple[Any, Any]:
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise ArgumentError(f"{function}: betas must be a pair, got {betas!r}")
    DECAY.check(function, "betas[0]", betas[0])
    DECAY.check(function, "betas[1]", betas[1])
    return betas[0], betas[1]


def _rate_of_adam(state: Any, learning_rate: Any, betas: Any, count: Leaf) -> Leaf:
    """The estimate times the rate, corrected for averages that began at 0."""
    rate = learning_rate(state.count) if callable(learning_rate) else learning_rate
    dtype = state.estim_lr.dtype
    root = fnp.sqrt(correction(betas[1], count, dtype))
    found: Leaf = state.estim_lr * rate * root / correction(betas[0], count, dtype)
    return found.astype(dtype)


# ---------------------------------------------------------------- Prodigy


class ProdigyState(NamedTuple):
    """Averages of the updates and of their squares, what the estimate needs, counts."""

    exp_avg: Updates
    exp_avg_sq: Updates
    grad_sum: Updates
    params0: Params
    estim_lr: Array
    numerator_weighted: Array
    count: Array  # type: ignore[assignment]  # tuple.count is not missed


def prodigy(
    learning_rate: ScalarOrSchedule = 1.0,
    betas: tuple[float | Array, float | Array] = (0.9, 0.999),
    beta3: float | Array | None = None,
    eps: float | Array = 1e-8,
    estim_lr0: float | Array = 1e-6,
    estim_lr_coef: float | Array = 1.0,
    weight_decay: float | Array = 0.0,
    safeguard_warmup: bool = False,
) -> GradientTransformationExtraArgs:
    """AdamW whose rate is multiplied by an estimate d of the distance to the solution.

    d starts at `estim_lr0` and becomes `estim_lr_coef` times the weighted sum of
    ⟨g, start - p⟩ over the absolute sum of the weighted gradients, where that is more;
    both decay by `beta3`, √betas[1] by default. `safeguard_warmup` leaves the rate out
    of the weights below, for schedules that begin with a warm-up. `update` needs the
    parameters. Mishchenko and Defazio, "Prodigy: An Expeditiously Adaptive
    Parameter-Free Learner", 2023.

    >>> from fnx.optim import apply_updates
    >>> optimizer, params = prodigy(estim_lr0=0.1), fnp.array([3.0])
    >>> state = optimizer.init(params)
    >>> for _ in range(60):
    ...     updates, state = optimizer.update(params, state, params)
    ...     params = apply_updates(params, updates)
    >>> bool(abs(params[0]) < 0.1)
    True
    """
    pair = _betas("prodigy", betas)
    NOT_NEGATIVE.check_or_schedule("prodigy", "learning_rate", learning_rate)
    decay = pair[1] ** 0.5 if beta3 is None else DECAY.check("prodigy", "beta3", beta3)
    NOT_NEGATIVE.check("prodigy", "eps", eps)
    POSITIVE.check("prodigy", "estim_lr0", estim_lr0)
    POSITIVE.check("prodigy", "estim_lr_coef", estim_lr_coef)
    NOT_NEGATIVE.check("prodigy", "weight_decay", weight_decay)

    def init(params: Params) -> OptState:
        params = floating("prodigy", "params", params)
        dtype = number_dtype(params)
        first, zero = fnp.asarray(estim_lr0, dtype), fnp.zeros((), dtype)
        return ProdigyState(*_start(params), params, first, zero, first_count())

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        updates = floating("prodigy", "updates", updates)
        params = beside_updates("prodigy", "the estimate", updates, params)
        count, d = next_count(state.count), state.estim_lr
        rate = _rate_of_adam(state, learning_rate, pair, count)
        weight = d * (d if safeguard_warmup else rate) / estim_lr0
        way = tree.map(lambda p0, p: wide(p0) - wide(p), state.params0, params)

        def gather(g: Leaf, mean: Leaf, square: Leaf, total: Leaf) -> tuple[Leaf, ...]:
            mean = average(mean, d * g, pair[0])
            square = average(square, squared(d * g), pair[1])
            return g, mean, square, decay * total + weight * g

        _, mean, square, total = by_leaf(gather, updates, [], state[:3])
        above = decay * state.numerator_weighted
        above = above + d / estim_lr0 * rate * inner(updates, way, d.dtype)
        grown = _grown(d, estim_lr_coef * above, _absolute_sum(total, d.dtype))

        def step(g: Leaf, p: Leaf, mean: Leaf, square: Leaf) -> tuple[Leaf]:
            root = fnp.sqrt(square) + grown * eps
            some = root > 0
            move = fnp.where(some, mean / fnp.where(some, root, 1), 0)
            return (-rate * (weight_decay * p + move),)

        (given,) = by_leaf(step, updates, [params, mean, square], [])
        return given, ProdigyState(
            mean, square, total, state.params0, grown, above, count
        )

    return extended(init, update)


# ---------------------------------------------------------------- D-adaptation


class DAdaptAdamWState(NamedTuple):
    """Averages of the updates and of their squares, what the estimate needs, counts."""

    exp_avg: Updates
    exp_avg_sq: Updates
    grad_sum: Updates
    estim_lr: Array
    numerator_weighted: Array
    count: Array  # type: ignore[assignment]  # tuple.count is not missed


def dadapt_adamw(
    learning_rate: ScalarOrSchedule = 1.0,
    betas: tuple[float | Array, float | Array] = (0.9, 0.999),
    eps: float | Array = 1e-8,
    estim_lr0: float | Array = 1e-6,
    weight_decay: float | Array = 0.0,
) -> GradientTransformationExtraArgs:
    """AdamW by D-adaptation: the rate is multiplied by an estimate of the distance.

    The estimate starts at `estim_lr0`; it is the weighted sum of ⟨g, s⟩, s the sum of
    gradients so far over their root mean squares, over the absolute sum of gradients,
    where that is more. `update` needs the parameters. Defazio and Mishchenko,
    "Learning-Rate-Free Learning by D-Adaptation", 2023.

    >>> from fnx.optim import apply_updates
    >>> optimizer, params = dadapt_adamw(estim_lr0=0.1), fnp.array([3.0])
    >>> state = optimizer.init(params)
    >>> for _ in range(60):
    ...     updates, state = optimizer.update(params, state, params)
    ...     params = apply_updates(params, updates)
    >>> bool(abs(params[0]) < 1.0)
    True
    """
    name = "dadapt_adamw"
    pair = _betas(name, betas)
    NOT_NEGATIVE.check_or_schedule(name, "learning_rate", learning_rate)
    POSITIVE.check(name, "eps", eps)
    POSITIVE.check(name, "estim_lr0", estim_lr0)
    NOT_NEGATIVE.check(name, "weight_decay", weight_decay)
    decay = pair[1] ** 0.5

    def init(params: Params) -> OptState:
        params = floating(name, "params", params)
        dtype = number_dtype(params)
        first, zero = fnp.asarray(estim_lr0, dtype), fnp.zeros((), dtype)
        return DAdaptAdamWState(*_start(params), first, zero, first_count())

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        updates = floating(name, "updates", updates)
        params = beside_updates(name, "weight decay", updates, params)
        count, d = next_count(state.count), state.estim_lr
        rate = _rate_of_adam(state, learning_rate, pair, count)
        sums = tree.map(
            lambda s, v: wide(s) / (fnp.sqrt(wide(v)) + eps),
            state.grad_sum,
            state.exp_avg_sq,
        )
        gain = (1 - decay) * rate * inner(updates, sums, d.dtype)

        def step(
            g: Leaf, p: Leaf, mean: Leaf, square: Leaf, total: Leaf
        ) -> tuple[Leaf, ...]:
            mean = average(mean, rate * g, pair[0])
            square = average(square, squared(g), pair[1])
            move = rate * weight_decay * p + mean / (fnp.sqrt(square) + eps)
            return -move, mean, square, average(total, rate * g, decay)

        given, mean, square, total = by_leaf(step, updates, [params], state[:3])
        above = decay * state.numerator_weighted + gain
        below = (1 - decay) * _absolute_sum(total, d.dtype)
        grown = _grown(d, above, below)
        return given, DAdaptAdamWState(mean, square, total, grown, above, count)

    return extended(init, update)


# ---------------------------------------------------------------- Mechanic


class MechanicState(NamedTuple):
    """The base's state, counts, and for each decay what its scale s is made of.

    `x0` has the parameters at the start.
    """

    base_optimizer_state: OptState
    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    r: Array
    m: Array
    v: Array
    s: Array
    x0: Params


def mechanize(
    base_optimizer: GradientTransformation,
    weight_decay: float | Array = 0.01,
    eps: float | Array = 1e-8,
    s_init: float | Array = 1e-6,
    num_betas: int = 6,
) -> GradientTransformationExtraArgs:
    """Another optimizer, whose way from the start is scaled by what it has won.

    The parameters are at start + s Δ, Δ the sum of the base's updates. s is the sum of
    `num_betas` scales with decays 0.9, 0.99, …, each a bet on ⟨g, Δ⟩ that starts with
    `s_init`. `weight_decay` is relative to the norms of gradients and parameters.
    `update` needs the parameters. Cutkosky, Defazio and Mehta, "Mechanic: A Learning
    Rate Tuner", 2023.

    >>> from fnx.optim import apply_updates, sgd
    >>> optimizer, params = mechanize(sgd(0.1), s_init=0.1), fnp.array([3.0])
    >>> state = optimizer.init(params)
    >>> for _ in range(60):
    ...     updates, state = optimizer.update(params, state, params)
    ...     params = apply_updates(params, updates)
    >>> bool(abs(params[0]) < 1.0)
    True
    """
    name = "mechanize"
    check_transformation(name, "base_optimizer", base_optimizer)
    NOT_NEGATIVE.check(name, "weight_decay", weight_decay)
    POSITIVE.check(name, "eps", eps)
    POSITIVE.check(name, "s_init", s_init)
    many = steps(name, "num_betas", num_betas)
    base = with_extra_args_support(base_optimizer)

    def init(params: Params) -> OptState:
        params = floating(name, "params", params)
        zero = fnp.zeros(many, number_dtype(params))
        first = fnp.full_like(zero, s_init)
        inside = base.init(params)
        return MechanicState(inside, first_count(), zero, zero, zero, first, params)

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        updates = floating(name, "updates", updates)
        params = beside_updates(name, "the way back", updates, params)
        moves, inside = base.update(
            updates, state.base_optimizer_state, params, **extra_args
        )
        dtype = state.s.dtype
        scale = fnp.sum(state.s)
        way = tree.map(
            lambda p, p0: (wide(p0) - wide(p)) / (scale + eps), params, state.x0
        )
        slopes = _decayed(updates, params, weight_decay * scale, eps, dtype)
        h = inner(slopes, way, dtype)
        betas = fnp.asarray([1 - 0.1**k for k in range(1, many + 1)], dtype)
        most = fnp.maximum(betas * state.m, fnp.abs(h) + eps)
        squares = betas**2 * state.v + h**2
        won = betas * state.r + fnp.clip(h, -state.m, state.m) * state.s
        wealth = s_init / many * most + fnp.maximum(won, 0)
        scales = wealth / (fnp.sqrt(squares) + eps)
        total = fnp.sum(scales)

        def step(g: Leaf, p: Leaf, p0: Leaf, behind: Leaf, move: Leaf) -> tuple[Leaf]:
            return (p0 - total * (behind - move) - p,)

        (given,) = by_leaf(step, updates, [params, state.x0, way, moves], [])
        count = next_count(state.count)
        return given, MechanicState(inside, count, won, most, squares, scales, state.x0)

    return extended(init, update)


def _decayed(
    updates: Updates, params: Params, decay: Leaf, eps: Any, dtype: Any
) -> Updates:
    """The gradients plus a part of the parameters of the gradients' norm."""
    size = fnp.sqrt(inner(updates, updates, dtype))
    factor = decay * size / (fnp.sqrt(inner(params, params, dtype)) + eps)
    return tree.map(lambda g, p: wide(g) + factor * wide(p), updates, params)
