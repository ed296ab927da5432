"""Steps from more than the gradient: optimism, Polyak's step, distance over gradients.

Receives hyperparameters, gives transformations. Next on the walk: `linesearch.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import tree
from fnx.core.array import Array
from fnx.errors import ArgumentError, OptionError
from fnx.optim.averages import zeros
from fnx.optim.hyperparameters import (
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    ScalarOrSchedule,
    float_dtype,
)
from fnx.optim.leafwise import Here, leafwise
from fnx.optim.moments import adam_scaling
from fnx.optim.scaling import signed_rate
from fnx.optim.transformation import (
    EmptyState,
    GradientTransformation,
    GradientTransformationExtraArgs,
    OptState,
    Params,
    Updates,
    chain,
    extended,
)
from fnx.optim.updates import Leaf, floating, scaled, squared, wide

# ---------------------------------------------------------------- optimism


class ScaleByOptimisticGradientState(NamedTuple):
    """The number of updates made (int32) and the last gradient."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    previous_gradient: Updates


def scale_by_optimistic_gradient(
    alpha: float | Array = 1.0, beta: float | Array = 1.0
) -> GradientTransformation:
    """Give (alpha + beta) · g - beta · the last g; at first, the last is this one.

    Mokhtari, Ozdaglar and Pattathil, "A Unified Analysis of Extra-gradient and
    Optimistic Gradient Methods for Saddle Point Problems", 2020.

    >>> optimism = scale_by_optimistic_gradient()
    >>> state = optimism.init(fnp.zeros(1))
    >>> for g in (1.0, 3.0):
    ...     updates, state = optimism.update(fnp.array([g]), state)
    ...     print(updates)
    [1.]
    [5.]
    """
    return _optimism("scale_by_optimistic_gradient", alpha, beta)


def optimistic_gradient_descent(
    learning_rate: ScalarOrSchedule,
    alpha: float | Array = 1.0,
    beta: float | Array = 1.0,
) -> GradientTransformation:
    """Gradient descent that expects the gradient to go on changing: for saddle points.

    Mokhtari, Ozdaglar and Pattathil, "A Unified Analysis of Extra-gradient and
    Optimistic Gradient Methods for Saddle Point Problems", 2020.

    >>> optimizer = optimistic_gradient_descent(0.5)
    >>> optimizer.update(fnp.ones(1), optimizer.init(fnp.ones(1)))[0]
    Array([-0.5], dtype=float32)
    """
    return chain(
        _optimism("optimistic_gradient_descent", alpha, beta),
        signed_rate("optimistic_gradient_descent", learning_rate),
    )


def optimistic_adam_v2(
    learning_rate: ScalarOrSchedule,
    *,
    alpha: float | Array = 1.0,
    beta: float | Array = 1.0,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    mu_dtype: Any = None,
    nesterov: bool = True,
) -> GradientTransformation:
    """Adam's steps made optimistic.

    Daskalakis et al., "Training GANs with Optimism", 2018.

    >>> optimizer = optimistic_adam_v2(0.5, nesterov=False)
    >>> optimizer.update(fnp.ones(1), optimizer.init(fnp.ones(1)))[0].round(4)
    Array([-0.5], dtype=float32)
    """
    name = "optimistic_adam_v2"
    return chain(
        adam_scaling(name, b1, b2, eps, eps_root, mu_dtype, nesterov),
        _optimism(name, alpha, beta),
        signed_rate(name, learning_rate),
    )


def _optimism(function: str, alpha: Any, beta: Any) -> GradientTransformation:
    FINITE.check(function, "alpha", alpha)
    FINITE.check(function, "beta", beta)

    def start(p: Leaf) -> tuple[Leaf]:
        return (zeros(p),)

    def rule(here: Here, last: Leaf) -> tuple[Leaf, Leaf]:
        last = fnp.where(here.count == 1, here.g, last)
        return (alpha + beta) * here.g - beta * last, here.g

    return leafwise(function, ScaleByOptimisticGradientState, start, rule)


# ---------------------------------------------------------------- Polyak's step


def scale_by_polyak(
    f_min: float | Array = 0.0,
    max_learning_rate: float | Array = 1.0,
    eps: float | Array = 0.0,
    variant: str = "sps",
) -> GradientTransformationExtraArgs:
    """Multiply the gradient by (value - f_min) / (‖g‖² + eps), at most the given rate.

    `update` needs the loss: `update(grads, state, params, value=loss)`. With `variant`
    "sps+" a value below `f_min` gives 0 rather than a step uphill. Loizou et al.,
    "Stochastic Polyak Step-size for SGD", 2021; Garrigos, Gower and Schaipp, "Function
    Value Learning", 2023.

    >>> polyak = scale_by_polyak(max_learning_rate=10.0)
    >>> polyak.update(fnp.array([0.0, 2.0]), polyak.init(None), value=8.0)[0]
    Array([0., 4.], dtype=float32)
    """
    return _polyak("scale_by_polyak", f_min, max_learning_rate, eps, variant)


def polyak_sgd(
    max_learning_rate: float | Array = 1.0,
    scaling: ScalarOrSchedule = 1.0,
    f_min: float | Array = 0.0,
    eps: float | Array = 0.0,
    variant: str = "sps",
) -> GradientTransformationExtraArgs:
    """Gradient descent whose step is as long as the loss asks for.

    `update` needs the loss, see `scale_by_polyak`; `scaling` is a factor of the steps.
    Loizou et al., "Stochastic Polyak Step-size for SGD", 2021.

    >>> optimizer = polyak_sgd(max_learning_rate=10.0)
    >>> state = optimizer.init(None)
    >>> optimizer.update(fnp.array([0.0, 2.0]), state, None, value=8.0)[0]
    Array([-0., -4.], dtype=float32)
    """
    return chain(
        signed_rate("polyak_sgd", scaling),
        _polyak("polyak_sgd", f_min, max_learning_rate, eps, variant),
    )


def _polyak(
    function: str, f_min: Any, most: Any, eps: Any, variant: str
) -> GradientTransformationExtraArgs:
    FINITE.check(function, "f_min", f_min)
    POSITIVE.check(function, "max_learning_rate", most)
    NOT_NEGATIVE.check(function, "eps", eps)
    if variant not in ("sps", "sps+"):
        raise OptionError(f"{function}: variant must be sps or sps+, got {variant!r}")

    def init(params: Params) -> OptState:
        return EmptyState()

    def update(
        updates: Updates,
        state: OptState,
        params: Params = None,
        *,
        value: Any = None,
        **extra_args: Any,
    ) -> tuple[Updates, OptState]:
        if value is None:
            raise ArgumentError(
                f"{function}: the step needs the loss; call "
                "update(updates, state, params, value=loss)"
            )
        updates = floating(function, "updates", updates)
        squares = [fnp.sum(squared(wide(x))) for x in tree.leaves(updates)]
        total = tree.reduce(fnp.add, squares, fnp.zeros((), "float32")) + eps
        gap = fnp.asarray(value) - f_min
        if variant == "sps+":
            gap = fnp.maximum(gap, 0)
        some = total > 0
        rate = fnp.where(some, gap / fnp.where(some, total, 1), 0)
        rate = fnp.minimum(rate, most)
        return tree.map(lambda g: scaled(g, rate), updates), state

    return extended(init, update)


# ------------------------------------------------------- distance over gradients


class ScaleByDistanceOverGradientsState(NamedTuple):
    """For each leaf: the greatest distance from its start, the squares, its start."""

    max_dist: Updates
    grad_sum_of_squares: Updates
    init_params: Params


def scale_by_distance_over_gradients(
    reps_rel: float | Array = 1e-6,
    eps: float | Array = 1e-8,
    param_dtype: Any = "float32",
    global_scale: float | Array = 1.0,
) -> GradientTransformation:
    """Multiply each leaf by its distance from the start over the norm of gradients.

    The distance is the greatest so far, at first `reps_rel` · (1 + ‖start‖); the norm
    is the root of all squared gradients so far plus `eps`. The start is kept in
    `param_dtype`; `update` needs the parameters. Ivgi, Hinder and Carmon, "DoG is SGD's
    Best Friend: A Parameter-Free Dynamic Step Size Schedule", 2023.

    >>> scaling, params = scale_by_distance_over_gradients(0.5), fnp.array([3.0])
    >>> scaling.update(fnp.array([10.0]), scaling.init(params), params)[0].round(4)
    Array([2.], dtype=float32)
    """
    name = "scale_by_distance_over_gradients"
    POSITIVE.check(name, "reps_rel", reps_rel)
    POSITIVE.check(name, "eps", eps)
    FINITE.check(name, "global_scale", global_scale)
    dtype = float_dtype(name, "param_dtype", param_dtype)

    def start(p: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        wider = wide(p)
        first = reps_rel * (1 + fnp.linalg.norm(fnp.ravel(wider)))
        return first, fnp.zeros_like(first), p.astype(dtype)

    def rule(here: Here, far: Leaf, total: Leaf, origin: Leaf) -> tuple[Leaf, ...]:
        moved = squared(here.p - origin.astype(here.p.dtype))
        far = fnp.maximum(far, fnp.sqrt(fnp.sum(moved)))
        total = total + fnp.sum(squared(here.g))
        step = global_scale * here.g * (far / fnp.sqrt(total + eps))
        return step, far, total, origin

    return leafwise(
        name,
        ScaleByDistanceOverGradientsState,
        start,
        rule,
        like="init_params",
        needs_params="the distance",
    )
