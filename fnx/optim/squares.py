"""AdaGrad, RMSProp, Adadelta: updates divided by the size of past gradients.

Each scaling stands beside the optimizer that is made of it. Receives hyperparameters,
gives transformations. Next on the walk: `adam_variants.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx.core.array import Array
from fnx.errors import OptionError
from fnx.optim.averages import average, correction, zero_squares, zeros
from fnx.optim.decay import optional_decay
from fnx.optim.hyperparameters import (
    NOT_NEGATIVE,
    POSITIVE,
    UNIT,
    ScalarOrSchedule,
)
from fnx.optim.leafwise import Here, leafwise
from fnx.optim.momentum import momentum as momentum_trace
from fnx.optim.scaling import optional_rate, signed_rate
from fnx.optim.transformation import (
    GradientTransformation,
    Updates,
    chain,
    identity,
)
from fnx.optim.updates import Leaf, squared

# ---------------------------------------------------------------- AdaGrad


class ScaleByRssState(NamedTuple):
    """The sum of all squared updates, a tree like the parameters."""

    sum_of_squares: Updates


def scale_by_rss(
    initial_accumulator_value: float = 0.1, eps: float | Array = 1e-7
) -> GradientTransformation:
    """Divide by the root of the sum of all squares so far: g / √(sum + eps).

    The sum starts at `initial_accumulator_value`; where it is 0 the update is 0.
    Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and
    Stochastic Optimization", 2011.

    >>> scaling = scale_by_rss(0.0)
    >>> scaling.update(fnp.array([3.0, 0.0]), scaling.init(fnp.zeros(2)))[0]
    Array([1., 0.], dtype=float32)
    """
    return _rss("scale_by_rss", initial_accumulator_value, eps)


def adagrad(
    learning_rate: ScalarOrSchedule,
    initial_accumulator_value: float = 0.1,
    eps: float | Array = 1e-7,
) -> GradientTransformation:
    """AdaGrad: p ← p - rate · g / √(the sum of all g² + eps).

    Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and
    Stochastic Optimization", 2011.

    >>> optimizer = adagrad(0.5, initial_accumulator_value=0.0)
    >>> optimizer.update(fnp.array([2.0]), optimizer.init(fnp.ones(1)))[0]
    Array([-0.5], dtype=float32)
    """
    return chain(
        _rss("adagrad", initial_accumulator_value, eps),
        signed_rate("adagrad", learning_rate),
    )


def _rss(function: str, initial_value: Any, eps: Any) -> GradientTransformation:
    NOT_NEGATIVE.check(function, "initial_accumulator_value", initial_value)
    NOT_NEGATIVE.check(function, "eps", eps)

    def start(p: Leaf) -> tuple[Leaf]:
        return (zero_squares(p, initial_value),)

    def rule(here: Here, total: Leaf) -> tuple[Leaf, Leaf]:
        total = total + squared(here.g)
        some = total > 0
        factor = 1 / fnp.sqrt(fnp.where(some, total + eps, 1))
        return here.g * fnp.where(some, factor, 0), total

    return leafwise(function, ScaleByRssState, start, rule)


# ---------------------------------------------------------------- RMSProp


class ScaleByRmsState(NamedTuple):
    """The average of squared updates, a tree like the parameters."""

    nu: Updates


class ScaleByRmsWithCountState(NamedTuple):
    """As `ScaleByRmsState`, with the number of updates: the average is corrected."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    nu: Updates


class ScaleByRStdDevState(NamedTuple):
    """The averages of updates and of their squares, trees like the parameters."""

    mu: Updates
    nu: Updates


class ScaleByRStdDevWithCountState(NamedTuple):
    """As `ScaleByRStdDevState`, with the number of updates."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    mu: Updates
    nu: Updates


def scale_by_rms(
    decay: float | Array = 0.9,
    eps: float | Array = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformation:
    """Divide by the root of a running average of squares, g / √(nu + eps).

    `eps` is added outside of the root if not `eps_in_sqrt`. The average starts at
    `initial_scale`; `bias_correction` divides it by 1 - decayᵗ. Hinton, "Neural
    Networks for Machine Learning", lecture 6, 2012.

    >>> scaling = scale_by_rms(decay=0.75)
    >>> scaling.update(fnp.array([8.0]), scaling.init(fnp.zeros(1)))[0]
    Array([2.], dtype=float32)
    """
    return _rms(
        "scale_by_rms", decay, eps, initial_scale, eps_in_sqrt, False, bias_correction
    )


def scale_by_stddev(
    decay: float | Array = 0.9,
    eps: float | Array = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    bias_correction: bool = False,
) -> GradientTransformation:
    """Divide by the running standard deviation, g / √(nu - mu² + eps).

    As `scale_by_rms`, of the average of squares less the square of the average, which
    rounding is kept from making negative. Graves, "Generating Sequences With Recurrent
    Neural Networks", 2013.

    >>> scaling = scale_by_stddev(decay=0.5)
    >>> scaling.update(fnp.array([8.0]), scaling.init(fnp.zeros(1)))[0]
    Array([2.], dtype=float32)
    """
    return _rms(
        "scale_by_stddev", decay, eps, initial_scale, eps_in_sqrt, True, bias_correction
    )


def rmsprop(
    learning_rate: ScalarOrSchedule,
    decay: float | Array = 0.9,
    eps: float | Array = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: float | Array | None = None,
    nesterov: bool = False,
    bias_correction: bool = False,
) -> GradientTransformation:
    """RMSProp: p ← p - rate · g / √(nu + eps), nu the running average of g².

    `centered` subtracts the square of the average gradient from nu. A `momentum` sums
    the steps after the learning rate; `nesterov` needs one. Hinton, "Neural Networks
    for Machine Learning", lecture 6, 2012.

    >>> optimizer = rmsprop(0.5, decay=0.75)
    >>> optimizer.update(fnp.array([8.0]), optimizer.init(fnp.ones(1)))[0]
    Array([-1.], dtype=float32)
    """
    if nesterov and momentum is None:
        raise OptionError(
            "rmsprop: nesterov has a meaning only with momentum, which is None; give a "
            "momentum such as 0.9"
        )
    return chain(
        _rms(
            "rmsprop", decay, eps, initial_scale, eps_in_sqrt, centered, bias_correction
        ),
        signed_rate("rmsprop", learning_rate),
        identity()
        if momentum is None
        else momentum_trace("rmsprop", "momentum", momentum, nesterov, None),
    )


def _rms(
    function: str,
    decay: Any,
    eps: Any,
    initial_scale: Any,
    eps_in_sqrt: bool,
    centered: bool,
    corrects: bool,
) -> GradientTransformation:
    UNIT.check(function, "decay", decay)
    NOT_NEGATIVE.check(function, "initial_scale", initial_scale)
    # a zero gradient must not be divided by zero
    POSITIVE.check(function, "eps", eps)

    def start(p: Leaf) -> tuple[Leaf, ...]:
        nu = zero_squares(p, initial_scale)
        return (zeros(p), nu) if centered else (nu,)

    def rule(here: Here, *averages: Leaf) -> tuple[Leaf, ...]:
        g, nu = here.g, averages[-1]
        nu = average(nu, squared(g), decay)
        divisor = correction(decay, here.count, nu.dtype) if corrects else 1
        variance: Leaf = nu / divisor
        if not centered:
            return g / _root(variance, eps, eps_in_sqrt), nu
        mu = average(averages[0], g, decay)
        variance = fnp.maximum(variance - squared(mu / divisor), 0)
        return g / _root(variance, eps, eps_in_sqrt), mu, nu

    plain, counting = (
        (ScaleByRStdDevState, ScaleByRStdDevWithCountState)
        if centered
        else (ScaleByRmsState, ScaleByRmsWithCountState)
    )
    return leafwise(function, counting if corrects else plain, start, rule)


def _root(square: Leaf, eps: Any, inside: bool) -> Leaf:
    return fnp.sqrt(square + eps) if inside else fnp.sqrt(square) + eps


# ---------------------------------------------------------------- Adadelta


class ScaleByAdaDeltaState(NamedTuple):
    """The averages of squared gradients and of squared steps."""

    e_g: Updates
    e_x: Updates


def scale_by_adadelta(
    rho: float | Array = 0.9, eps: float | Array = 1e-6
) -> GradientTransformation:
    """Multiply by the size of past steps over that of past gradients.

    e_g ← rho e_g + (1 - rho) g², x = g · √(e_x + eps) / √(e_g + eps), then
    e_x ← rho e_x + (1 - rho) x². Zeiler, "ADADELTA: An Adaptive Learning Rate Method",
    2012.

    >>> scaling = scale_by_adadelta(rho=0.75, eps=1.0)
    >>> scaling.update(fnp.array([4.0]), scaling.init(fnp.zeros(1)))[0].round(4)
    Array([1.7889], dtype=float32)
    """
    return _adadelta("scale_by_adadelta", rho, eps)


def adadelta(
    learning_rate: ScalarOrSchedule | None = None,
    rho: float | Array = 0.9,
    eps: float | Array = 1e-6,
    weight_decay: ScalarOrSchedule = 0.0,
    weight_decay_mask: Any = None,
) -> GradientTransformation:
    """Adadelta: steps as large as past steps were for gradients of this size.

    The weight decay is added to the gradient; only with one does `update` need the
    parameters. Without `learning_rate` the steps keep their size *and their sign*, as
    in optax: they point uphill, for a chain that ends in `scale(-1.0)`. Zeiler,
    "ADADELTA: An Adaptive Learning Rate Method", 2012.

    >>> optimizer = adadelta(1.0, rho=0.75, eps=1.0)
    >>> optimizer.update(fnp.array([4.0]), optimizer.init(fnp.ones(1)))[0].round(4)
    Array([-1.7889], dtype=float32)
    """
    return chain(
        optional_decay("adadelta", weight_decay, weight_decay_mask),
        _adadelta("adadelta", rho, eps),
        optional_rate("adadelta", learning_rate),
    )


def _adadelta(function: str, rho: Any, eps: Any) -> GradientTransformation:
    UNIT.check(function, "rho", rho)
    POSITIVE.check(function, "eps", eps)

    def start(p: Leaf) -> tuple[Leaf, Leaf]:
        return zero_squares(p), zero_squares(p)

    def rule(here: Here, e_g: Leaf, e_x: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        e_g = average(e_g, squared(here.g), rho)
        step = here.g * fnp.sqrt((e_x + eps) / (e_g + eps))
        return step, e_g, average(e_x, squared(step), rho)

    return leafwise(function, ScaleByAdaDeltaState, start, rule)
