"""Later relatives of Adam: ACProp, ADOPT, AdEMAMix, MADGRAD.

Receives updates, gives updates. Part of `contrib`; next on the walk: `watching.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import tree
from fnx.core.array import Array
from fnx.optim.adam_variants import ScaleByBeliefState
from fnx.optim.averages import average, correction, zero_squares, zeros
from fnx.optim.decay import optional_decay
from fnx.optim.hyperparameters import (
    DECAY,
    NOT_NEGATIVE,
    POSITIVE,
    ScalarOrSchedule,
    float_dtype,
)
from fnx.optim.leafwise import Here, by_leaf, leafwise
from fnx.optim.moments import ScaleByAdamState, check_adam
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
from fnx.optim.updates import Leaf, first_count, floating, next_count, squared

# ---------------------------------------------------------------- ACProp


def scale_by_acprop(
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-16,
    eps_root: float | Array = 1e-16,
) -> GradientTransformation:
    """Divide updates by how far earlier ones were from their average.

    nu averages (g - mu)², of mu before g; the update is divided by the corrected root
    of nu before g, the first one by 1. Zhuang et al., "Momentum Centering and
    Asynchronous Update for Adaptive Gradient Methods", 2021.

    >>> acprop = scale_by_acprop()
    >>> acprop.update(fnp.array([2.0]), acprop.init(fnp.zeros(1)))[0]
    Array([2.], dtype=float32)
    """
    check_adam("scale_by_acprop", b1, b2, eps, eps_root)

    def start(p: Leaf) -> tuple[Leaf, Leaf]:
        return zeros(p), zero_squares(p)

    def rule(here: Here, mu: Leaf, nu: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        before = here.count - 1
        known = correction(b2, fnp.maximum(before, 1), nu.dtype)
        spread = fnp.where(before > 0, nu / known, 1)
        step = here.g / (fnp.sqrt(spread) + eps)
        nu = average(nu, squared(here.g - mu), b2) + eps_root
        return step, average(mu, here.g, b1), nu

    return leafwise("scale_by_acprop", ScaleByBeliefState, start, rule)


def acprop(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-16,
    eps_root: float | Array = 1e-16,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: Any = None,
) -> GradientTransformationExtraArgs:
    """`scale_by_acprop` with a learning rate, and decay as in AdamW.

    >>> optimizer = acprop(0.1)
    >>> optimizer.update(fnp.array([2.0]), optimizer.init(fnp.zeros(1)))[0]
    Array([-0.2], dtype=float32)
    """
    return chain(
        scale_by_acprop(b1, b2, eps, eps_root),
        optional_decay("acprop", weight_decay, mask),
        signed_rate("acprop", learning_rate),
    )


# ---------------------------------------------------------------- ADOPT


def _fourth_root(count: Leaf) -> Leaf:
    return count**0.25


def scale_by_adopt(
    b1: float | Array = 0.9,
    b2: float | Array = 0.9999,
    eps: float | Array = 1e-6,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
    use_clipping: bool = True,
    clip_value_fn: Callable[[Any], Any] = _fourth_root,
) -> GradientTransformation:
    """Average updates divided by the root mean square of those before them.

    The first update only begins the average of squares. With `use_clipping` the
    quotients are clipped to ± `clip_value_fn(updates made)`. Taniguchi et al., "ADOPT:
    Modified Adam Can Converge with Any β2 with the Optimal Rate", 2024.

    >>> adopt = scale_by_adopt()
    >>> _, state = adopt.update(fnp.array([2.0]), adopt.init(fnp.zeros(1)))
    >>> adopt.update(fnp.array([1.0]), state)[0].round(4)
    Array([0.05], dtype=float32)
    """
    return _adopt(
        "scale_by_adopt", b1, b2, eps, mu_dtype, nesterov, use_clipping, clip_value_fn
    )


def _adopt(
    function: str,
    b1: Any,
    b2: Any,
    eps: Any,
    mu_dtype: Any,
    nesterov: bool,
    use_clipping: bool,
    clip_value_fn: Callable[[Any], Any],
) -> GradientTransformation:
    DECAY.check(function, "b1", b1)
    DECAY.check(function, "b2", b2)
    POSITIVE.check(function, "eps", eps)
    dtype = float_dtype(function, "mu_dtype", mu_dtype)

    def start(p: Leaf) -> tuple[Leaf, Leaf]:
        return zeros(p, dtype), zero_squares(p)

    def rule(here: Here, mu: Leaf, nu: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        before = here.count - 1
        begun = before > 0
        step = here.g / fnp.maximum(fnp.sqrt(nu), eps)
        if use_clipping:
            most = fnp.asarray(clip_value_fn(before.astype(nu.dtype)), nu.dtype)
            step = fnp.clip(step, -most, most)
        nu = fnp.where(begun, average(nu, squared(here.g), b2), squared(here.g))
        mu = fnp.where(begun, average(mu, step, b1), mu)
        ahead = fnp.where(begun, average(mu, step, b1), mu) if nesterov else mu
        return ahead, mu, nu

    return leafwise(function, ScaleByAdamState, start, rule)


def adopt(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.9999,
    eps: float | Array = 1e-6,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
    use_clipping: bool = True,
    clip_value_fn: Callable[[Any], Any] = _fourth_root,
) -> GradientTransformationExtraArgs:
    """`scale_by_adopt` with a learning rate.

    >>> optimizer = adopt(0.1)
    >>> optimizer.update(fnp.array([2.0]), optimizer.init(fnp.zeros(1)))[0]
    Array([-0.], dtype=float32)
    """
    return chain(
        _adopt("adopt", b1, b2, eps, mu_dtype, nesterov, use_clipping, clip_value_fn),
        signed_rate("adopt", learning_rate),
    )


# ---------------------------------------------------------------- AdEMAMix


class ScaleByAdemamixState(NamedTuple):
    """Counts, the fast and the slow average of updates, that of their squares."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    count_m2: Array
    m1: Updates
    m2: Updates
    nu: Updates


def scale_by_ademamix(
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    b3: ScalarOrSchedule = 0.9999,
    alpha: ScalarOrSchedule = 6.0,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    mu_dtype: Any = None,
) -> GradientTransformation:
    """Adam with a second, slower average of updates, `alpha` times which is added.

    The slow one decays by `b3` and is not corrected for its start at 0; both may be
    schedules. Pagliardini, Ablin and Grangier, "The AdEMAMix Optimizer: Better, Faster,
    Older", 2024.

    >>> mix = scale_by_ademamix(b3=0.5, alpha=2.0)
    >>> mix.update(fnp.array([4.0]), mix.init(fnp.zeros(1)))[0].round(4)
    Array([2.], dtype=float32)
    """
    return _ademamix("scale_by_ademamix", b1, b2, b3, alpha, eps, eps_root, mu_dtype)


def _ademamix(
    function: str,
    b1: Any,
    b2: Any,
    b3: Any,
    alpha: Any,
    eps: Any,
    eps_root: Any,
    mu_dtype: Any,
) -> GradientTransformation:
    check_adam(function, b1, b2, eps, eps_root)
    DECAY.check_or_schedule(function, "b3", b3)
    NOT_NEGATIVE.check_or_schedule(function, "alpha", alpha)
    dtype = float_dtype(function, "mu_dtype", mu_dtype)

    def init(params: Params) -> OptState:
        params = floating(function, "params", params)
        first = tree.map(lambda p: zeros(p, dtype), params)
        squares = tree.map(zero_squares, params)
        return ScaleByAdemamixState(first_count(), first_count(), first, first, squares)

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        updates = floating(function, "updates", updates)
        made, slow = next_count(state.count), state.count_m2
        decay = b3(slow) if callable(b3) else b3
        weight = alpha(slow) if callable(alpha) else alpha

        def rule(g: Leaf, m1: Leaf, m2: Leaf, nu: Leaf) -> tuple[Leaf, ...]:
            m1, m2 = average(m1, g, b1), average(m2, g, decay)
            nu = average(nu, squared(g), b2)
            mean = m1 / correction(b1, made, nu.dtype) + weight * m2
            root = fnp.sqrt(nu / correction(b2, made, nu.dtype) + eps_root)
            return mean / (root + eps), m1, m2, nu

        given, *memory = by_leaf(rule, updates, [], state[2:])
        return given, ScaleByAdemamixState(made, next_count(slow), *memory)

    return transformation(init, update)


def ademamix(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    b3: ScalarOrSchedule = 0.9999,
    alpha: ScalarOrSchedule = 5.0,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: Any = None,
) -> GradientTransformationExtraArgs:
    """`scale_by_ademamix` with a learning rate, and decay as in AdamW.

    >>> optimizer = ademamix(0.1, b3=0.5, alpha=2.0)
    >>> optimizer.update(fnp.array([4.0]), optimizer.init(fnp.zeros(1)))[0].round(4)
    Array([-0.2], dtype=float32)
    """
    return chain(
        _ademamix("ademamix", b1, b2, b3, alpha, eps, eps_root, mu_dtype),
        optional_decay("ademamix", weight_decay, mask),
        signed_rate("ademamix", learning_rate),
    )


class ScaleBySimplifiedAdEMAMixState(NamedTuple):
    """Counts, the decaying sum of updates, the average of their squares."""

    t: Array
    m: Updates
    n: Updates


def scale_by_simplified_ademamix(
    b1: float | Array = 0.99,
    b2: float | Array = 0.95,
    alpha: ScalarOrSchedule = 0.0,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
) -> GradientTransformation:
    """AdEMAMix with one sum: (m + alpha g) / root mean square, m ← b1 m + g.

    Morwani, Vyas and Kakade, "Connections between Schedule-Free Optimizers, AdEMAMix,
    and Accelerated SGD Variants", 2025.

    >>> mix = scale_by_simplified_ademamix(alpha=1.0)
    >>> mix.update(fnp.array([4.0]), mix.init(fnp.zeros(1)))[0].round(4)
    Array([2.], dtype=float32)
    """
    return _simplified("scale_by_simplified_ademamix", b1, b2, alpha, eps, eps_root)


def _simplified(
    function: str, b1: Any, b2: Any, alpha: Any, eps: Any, eps_root: Any
) -> GradientTransformation:
    check_adam(function, b1, b2, eps, eps_root)
    NOT_NEGATIVE.check_or_schedule(function, "alpha", alpha)

    def init(params: Params) -> OptState:
        params = floating(function, "params", params)
        return ScaleBySimplifiedAdEMAMixState(
            first_count(), tree.map(zeros, params), tree.map(zero_squares, params)
        )

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        updates = floating(function, "updates", updates)
        made = next_count(state.t)
        weight = alpha(state.t) if callable(alpha) else alpha

        def rule(g: Leaf, total: Leaf, square: Leaf) -> tuple[Leaf, ...]:
            total = b1 * total + g
            square = average(square, squared(g), b2)
            root = fnp.sqrt(square / correction(b2, made, square.dtype) + eps_root)
            return (total + weight * g) / (root + eps), total, square

        given, *memory = by_leaf(rule, updates, [], state[1:])
        return given, ScaleBySimplifiedAdEMAMixState(made, *memory)

    return transformation(init, update)


def simplified_ademamix(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.99,
    b2: float | Array = 0.95,
    alpha: ScalarOrSchedule = 0.0,
    eps: float | Array = 1e-8,
    eps_root: float | Array = 0.0,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: Any = None,
) -> GradientTransformationExtraArgs:
    """`scale_by_simplified_ademamix` with a learning rate, and decay as in AdamW.

    >>> optimizer = simplified_ademamix(0.1, alpha=1.0)
    >>> optimizer.update(fnp.array([4.0]), optimizer.init(fnp.zeros(1)))[0].round(4)
    Array([-0.2], dtype=float32)
    """
    return chain(
        _simplified("simplified_ademamix", b1, b2, alpha, eps, eps_root),
        optional_decay("simplified_ademamix", weight_decay, mask),
        signed_rate("simplified_ademamix", learning_rate),
    )


# ---------------------------------------------------------------- MADGRAD


class MadgradState(NamedTuple):
    """Counts, the weighted sums of squares and of updates, and the start."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    grad_sum_sq: Updates
    s: Updates
    x0: Params


def scale_by_madgrad(
    learning_rate: ScalarOrSchedule,
    momentum: float | Array = 0.9,
    eps: float | Array = 1e-6,
) -> GradientTransformation:
    """The steps of `madgrad` for gradients; they are steps, with their sign.

    >>> scaling, params = scale_by_madgrad(1.0, momentum=0.5), fnp.array([3.0])
    >>> scaling.update(fnp.array([8.0]), scaling.init(params), params)[0].round(4)
    Array([-1.], dtype=float32)
    """
    return _madgrad("scale_by_madgrad", learning_rate, momentum, eps)


def madgrad(
    learning_rate: ScalarOrSchedule,
    momentum: float | Array = 0.9,
    weight_decay: ScalarOrSchedule = 0.0,
    eps: float | Array = 1e-6,
) -> GradientTransformationExtraArgs:
    """Dual averaging with the cube root of the sum of squares, and momentum.

    With the weights λ = (rate + eps) √t, the parameters go a part 1 - `momentum` of the
    way to start - Σ λ g / (∛(Σ λ g²) + eps). `update` needs the parameters. Defazio and
    Jelassi, "Adaptivity without Compromise: A Momentumized, Adaptive, Dual Averaged
    Gradient Method for Stochastic Optimization", 2021.

    >>> optimizer, params = madgrad(1.0, momentum=0.5), fnp.array([3.0])
    >>> optimizer.update(fnp.array([8.0]), optimizer.init(params), params)[0].round(4)
    Array([-1.], dtype=float32)
    """
    return chain(
        optional_decay("madgrad", weight_decay, None),
        _madgrad("madgrad", learning_rate, momentum, eps),
    )


def _madgrad(
    function: str, learning_rate: Any, momentum: Any, eps: Any
) -> GradientTransformation:
    NOT_NEGATIVE.check_or_schedule(function, "learning_rate", learning_rate)
    DECAY.check(function, "momentum", momentum)
    POSITIVE.check(function, "eps", eps)

    def start(p: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        return zero_squares(p), zeros(p), p

    def rule(here: Here, squares: Leaf, sums: Leaf, origin: Leaf) -> tuple[Leaf, ...]:
        before = here.count - 1
        rate = learning_rate(before) if callable(learning_rate) else learning_rate
        weight = (rate + eps) * fnp.sqrt(here.count.astype(squares.dtype))
        squares = squares + weight * squared(here.g)
        sums = sums + weight * here.g
        goal = origin - sums / (fnp.cbrt(squares) + eps)
        return (1 - momentum) * (goal - here.p), squares, sums, origin

    return leafwise(function, MadgradState, start, rule, needs_params="the way")
