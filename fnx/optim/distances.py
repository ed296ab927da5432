"""Optimizers whose rate is how far the parameters have come: DoG, DoWG, COCOB.

They need no learning rate of the user; 1 is right. Receives updates and parameters,
gives updates. Part of `contrib`; next on the walk: `adaptation.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import tree
from fnx.core.array import Array
from fnx.errors import OptionError
from fnx.optim.averages import zeros
from fnx.optim.decay import optional_decay
from fnx.optim.hyperparameters import (
    NOT_NEGATIVE,
    POSITIVE,
    ScalarOrSchedule,
)
from fnx.optim.leafwise import Here, beside_updates, leafwise
from fnx.optim.scaling import signed_rate
from fnx.optim.transformation import (
    GradientTransformation,
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    chain,
    transformation,
)
from fnx.optim.updates import Leaf, floating, inner, number_dtype, scaled, wide

# ---------------------------------------------------------------- DoG


class DoGState(NamedTuple):
    """Whether no update was made, the start, the greatest distance, the squares."""

    is_init_step: Array
    init_params: Params
    max_dist: Array
    sum_sq_norm_grads: Array


def dog(
    learning_rate: ScalarOrSchedule = 1.0,
    init_step: tuple[str, float | Array] = ("heuristic", 1e-6),
    eps: float | Array = 1e-8,
    weight_decay: ScalarOrSchedule | None = None,
    mask: Any = None,
) -> GradientTransformationExtraArgs:
    """Descent by distance over gradients: the rate is r̄ / √(Σ ‖g‖² + eps).

    r̄ is the greatest distance of the parameters from their start so far. At first it is
    `init_step`: ("distance", r), ("heuristic", a) for a (1 + ‖start‖), or
    ("learning_rate", η), which gives the rate of the first step instead. `update` needs
    the parameters. Ivgi, Hinder and Carmon, "DoG is SGD's Best Friend: A Parameter-Free
    Dynamic Step Size Schedule", 2023.

    >>> optimizer, params = dog(init_step=("distance", 0.5)), fnp.array([3.0])
    >>> optimizer.update(fnp.array([10.0]), optimizer.init(params), params)[0]
    Array([-0.5], dtype=float32)
    """
    return chain(
        optional_decay("dog", weight_decay or 0.0, mask),
        _scale_by_dog(init_step, eps),
        signed_rate("dog", learning_rate),
    )


def _scale_by_dog(init_step: Any, eps: Any) -> GradientTransformation:
    NOT_NEGATIVE.check("dog", "eps", eps)
    kinds = ("distance", "heuristic", "learning_rate")
    pair = isinstance(init_step, tuple | list) and len(init_step) == 2
    if not pair or init_step[0] not in kinds:
        raise OptionError(
            f"dog: init_step is a pair of one of {', '.join(kinds)} and a number, got "
            f"{init_step!r}"
        )
    kind, first = init_step
    POSITIVE.check("dog", "init_step[1]", first)

    def init(params: Params) -> OptState:
        params = floating("dog", "params", params)
        dtype = number_dtype(params)
        far: Leaf = fnp.asarray(0.0 if kind == "learning_rate" else first, dtype)
        if kind == "heuristic":
            far = far * (1 + fnp.sqrt(inner(params, params, dtype)))
        return DoGState(
            fnp.asarray(True), params, far.astype(dtype), fnp.zeros((), dtype)
        )

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        updates = floating("dog", "updates", updates)
        params = beside_updates("dog", "the distance", updates, params)
        dtype = state.max_dist.dtype
        far = fnp.maximum(state.max_dist, fnp.sqrt(_way(state, params, dtype)))
        total = state.sum_sq_norm_grads + inner(updates, updates, dtype)
        rate = _ratio(far, fnp.sqrt(total + eps))
        if kind == "learning_rate":
            rate = fnp.where(state.is_init_step, first, rate)
        steps = tree.map(lambda g: scaled(g, rate), updates)
        return steps, DoGState(fnp.asarray(False), state.init_params, far, total)

    return transformation(init, update)


def _way(state: Any, params: Params, dtype: Any) -> Leaf:
    """The squared distance from the start."""
    moved = tree.map(lambda p0, p: wide(p) - wide(p0), state.init_params, params)
    return inner(moved, moved, dtype)


def _ratio(x: Leaf, y: Leaf) -> Leaf:
    """X / y, and 0 where y is 0: no gradient, no step."""
    some = y > 0
    return fnp.where(some, x / fnp.where(some, y, 1), 0)


class DoWGState(NamedTuple):
    """The start, the weighted sum of squared gradients, the squared distance."""

    init_params: Params
    weighted_sq_norm_grads: Array
    estim_sq_dist: Array


def dowg(
    learning_rate: ScalarOrSchedule = 1.0,
    init_estim_sq_dist: float | Array | None = None,
    eps: float | Array = 1e-4,
    weight_decay: ScalarOrSchedule | None = None,
    mask: Any = None,
) -> GradientTransformationExtraArgs:
    """Descent by distance over weighted gradients: the rate is r̄² / (√v + eps).

    r̄² is the greatest squared distance from the start so far, at first
    `init_estim_sq_dist` (`eps` by default), and v the sum of r̄² ‖g‖². `update` needs
    the parameters. Khaled, Mishchenko and Jin, "DoWG Unleashed: An Efficient Universal
    Parameter-Free Gradient Descent Method", 2023.

    >>> optimizer, params = dowg(init_estim_sq_dist=0.25, eps=0.0), fnp.array([3.0])
    >>> optimizer.update(fnp.array([10.0]), optimizer.init(params), params)[0]
    Array([-0.5], dtype=float32)
    """
    NOT_NEGATIVE.check("dowg", "eps", eps)
    first = eps if init_estim_sq_dist is None else init_estim_sq_dist
    POSITIVE.check("dowg", "init_estim_sq_dist", first)

    def init(params: Params) -> OptState:
        params = floating("dowg", "params", params)
        dtype = number_dtype(params)
        return DoWGState(params, fnp.zeros((), dtype), fnp.asarray(first, dtype))

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        updates = floating("dowg", "updates", updates)
        params = beside_updates("dowg", "the distance", updates, params)
        dtype = state.estim_sq_dist.dtype
        far = fnp.maximum(state.estim_sq_dist, _way(state, params, dtype))
        total = state.weighted_sq_norm_grads + far * inner(updates, updates, dtype)
        rate = _ratio(far, fnp.sqrt(total) + eps)
        steps = tree.map(lambda g: scaled(g, rate), updates)
        return steps, DoWGState(state.init_params, total, far)

    return chain(
        optional_decay("dowg", weight_decay or 0.0, mask),
        transformation(init, update),
        signed_rate("dowg", learning_rate),
    )


# ---------------------------------------------------------------- COCOB


class COCOBState(NamedTuple):
    """Trees like the parameters: the start, and what was won and lost since."""

    init_particles: Params
    cumulative_gradients: Updates
    scale: Updates
    subgradients: Updates
    reward: Updates


def cocob(
    learning_rate: ScalarOrSchedule = 1.0,
    alpha: float | Array = 100.0,
    eps: float | Array = 1e-8,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: Any = None,
) -> GradientTransformationExtraArgs:
    """Continuous coin betting: each element bets a part of what it has won.

    `learning_rate` multiplies the gradients, `alpha` holds the first steps back.
    `update` needs the parameters. Orabona and Tommasi, "Training Deep Networks without
    Learning Rates Through Coin Betting", 2017.

    >>> optimizer, params = cocob(alpha=1.0), fnp.array([3.0])
    >>> optimizer.update(fnp.array([10.0]), optimizer.init(params), params)[0]
    Array([-0.5], dtype=float32)
    """
    return chain(
        optional_decay("cocob", weight_decay, mask),
        signed_rate("cocob", learning_rate, False),
        scale_by_cocob(alpha, eps),
    )


def scale_by_cocob(
    alpha: float | Array = 100.0, eps: float | Array = 1e-8
) -> GradientTransformation:
    """The steps of `cocob` for gradients; they are steps, with their sign.

    >>> scaling, params = scale_by_cocob(alpha=1.0), fnp.array([3.0])
    >>> scaling.update(fnp.array([10.0]), scaling.init(params), params)[0]
    Array([-0.5], dtype=float32)
    """
    POSITIVE.check("scale_by_cocob", "alpha", alpha)
    POSITIVE.check("scale_by_cocob", "eps", eps)

    def start(p: Leaf) -> tuple[Leaf, ...]:
        return p, zeros(p), fnp.full(p.shape, eps, p.dtype), zeros(p), zeros(p)

    def rule(
        here: Here, origin: Leaf, sums: Leaf, most: Leaf, sizes: Leaf, reward: Leaf
    ) -> tuple[Leaf, ...]:
        g, p = here.g, here.p
        size = fnp.abs(g)
        most, sizes = fnp.maximum(most, size), sizes + size
        reward = fnp.maximum(reward - g * (p - origin), 0)
        sums = sums - g
        share = sums / (most * fnp.maximum(sizes + most, alpha * most))
        step = origin + share * (most + reward) - p
        return step, origin, sums, most, sizes, reward

    return leafwise(
        "scale_by_cocob", COCOBState, start, rule, needs_params="the distance"
    )
