"""Optimizers that follow the signs of gradients: sign SGD, Signum, Lion, Rprop.

Receives hyperparameters, gives transformations. Next on the walk: `trust.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import fnx.numpy as fnp
from fnx import tree
from fnx.core.array import Array
from fnx.errors import OptionError
from fnx.optim.averages import average, zeros
from fnx.optim.decay import optional_decay
from fnx.optim.hyperparameters import POSITIVE, UNIT, ScalarOrSchedule, float_dtype
from fnx.optim.leafwise import Here, leafwise
from fnx.optim.scaling import signed_rate
from fnx.optim.smoothing import smoothing
from fnx.optim.transformation import (
    GradientTransformation,
    Params,
    Updates,
    chain,
    stateless,
)
from fnx.optim.updates import Leaf, floating

# ---------------------------------------------------------------- signs alone


def scale_by_sign() -> GradientTransformation:
    """Replace each element by its sign.

    >>> scale_by_sign().update(fnp.array([-3.0, 0.0, 0.5]), ())[0]
    Array([-1.,  0.,  1.], dtype=float32)
    """

    def signs(updates: Updates, params: Params) -> Updates:
        return tree.map(fnp.sign, floating("scale_by_sign", "updates", updates))

    return stateless(signs)


def sign_sgd(learning_rate: ScalarOrSchedule) -> GradientTransformation:
    """Steps of one size: p ← p - rate · sign(g).

    Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems", 2018.

    >>> optimizer = sign_sgd(0.5)
    >>> optimizer.update(fnp.array([3.0]), optimizer.init(fnp.ones(1)))[0]
    Array([-0.5], dtype=float32)
    """
    return chain(scale_by_sign(), signed_rate("sign_sgd", learning_rate))


def signum(
    learning_rate: ScalarOrSchedule,
    beta: float | Array = 0.9,
    accumulator_dtype: Any = None,
) -> GradientTransformation:
    """As `sign_sgd`, of the running average of gradients.

    Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems", 2018.

    >>> optimizer = signum(0.5)
    >>> optimizer.update(fnp.array([3.0]), optimizer.init(fnp.ones(1)))[0]
    Array([-0.5], dtype=float32)
    """
    return chain(
        smoothing("signum", "beta", beta, False, accumulator_dtype),
        scale_by_sign(),
        signed_rate("signum", learning_rate),
    )


# ---------------------------------------------------------------- Lion


class ScaleByLionState(NamedTuple):
    """The number of updates made (int32) and the average of gradients."""

    count: Array  # type: ignore[assignment]  # tuple.count is not missed
    mu: Updates


_LION_MODES = {
    "hard": lambda x, beta: fnp.sign(x),
    "smooth": lambda x, beta: fnp.tanh(beta * x),
    "refined": lambda x, beta: fnp.clip(x, -1, 1),
}


def scale_by_lion(
    b1: float | Array = 0.9,
    b2: float | Array = 0.99,
    mu_dtype: Any = None,
    *,
    mode: str = "hard",
    smooth_beta: float | Array = 1.0,
) -> GradientTransformation:
    """Give the sign of b1 mu + (1 - b1) g, then mu ← b2 mu + (1 - b2) g.

    `mode` "hard" is that; "smooth" has tanh(smooth_beta · x) in the place of the sign,
    "refined" x limited to [-1, 1]. Chen et al., "Symbolic Discovery of Optimization
    Algorithms", 2023.

    >>> scaling = scale_by_lion()
    >>> scaling.update(fnp.array([5.0, -0.1]), scaling.init(fnp.zeros(2)))[0]
    Array([ 1., -1.], dtype=float32)
    """
    return _lion("scale_by_lion", b1, b2, mu_dtype, mode, smooth_beta)


def lion(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.99,
    mu_dtype: Any = None,
    weight_decay: ScalarOrSchedule = 1e-3,
    mask: Any = None,
) -> GradientTransformation:
    """Lion: signs of an average of gradients, and decoupled weight decay.

    `mask` says which parameters decay, as in `add_decayed_weights`; `update` needs the
    parameters unless `weight_decay` is 0. Chen et al., "Symbolic Discovery of
    Optimization Algorithms", 2023.

    >>> optimizer, params = lion(0.5, weight_decay=1.0), fnp.array([2.0])
    >>> optimizer.update(fnp.array([5.0]), optimizer.init(params), params)[0]
    Array([-1.5], dtype=float32)
    """
    return chain(
        _lion("lion", b1, b2, mu_dtype, "hard", 1.0),
        optional_decay("lion", weight_decay, mask),
        signed_rate("lion", learning_rate),
    )


def _lion(
    function: str, b1: Any, b2: Any, mu_dtype: Any, mode: str, smooth_beta: Any
) -> GradientTransformation:
    UNIT.check(function, "b1", b1)
    UNIT.check(function, "b2", b2)
    POSITIVE.check(function, "smooth_beta", smooth_beta)
    mu_dtype = float_dtype(function, "mu_dtype", mu_dtype)
    if mode not in _LION_MODES:
        raise OptionError(
            f"{function}: mode must be one of {', '.join(_LION_MODES)}, got {mode!r}"
        )
    sign = _LION_MODES[mode]

    def start(p: Leaf) -> tuple[Leaf]:
        return (zeros(p, mu_dtype),)

    def rule(here: Here, mu: Leaf) -> tuple[Leaf, Leaf]:
        step = sign(average(mu, here.g, b1), smooth_beta)
        return step, average(mu, here.g, b2)

    return leafwise(function, ScaleByLionState, start, rule)


# ---------------------------------------------------------------- Rprop


class ScaleByRpropState(NamedTuple):
    """The size of each element's step, and the last steps."""

    step_sizes: Updates
    prev_updates: Updates


def scale_by_rprop(
    learning_rate: float | Array,
    eta_minus: float | Array = 0.5,
    eta_plus: float | Array = 1.2,
    min_step_size: float | Array = 1e-6,
    max_step_size: float | Array = 50.0,
) -> GradientTransformation:
    """Give each element's sign times a step size of its own.

    The size starts at `learning_rate`, is multiplied by `eta_plus` where the gradient
    keeps its sign, and by `eta_minus` where it changes, with no step there; it stays
    within the two limits. Riedmiller and Braun, "A Direct Adaptive Method for Faster
    Backpropagation Learning: The RPROP Algorithm", 1993; Igel and Hüsken, "Improving
    the Rprop Learning Algorithm", 2000 (iRprop-).

    >>> scaling = scale_by_rprop(0.5)
    >>> state = scaling.init(fnp.zeros(2))
    >>> for grads in ([1.0, 1.0], [3.0, -1.0]):
    ...     updates, state = scaling.update(fnp.array(grads), state)
    ...     print(updates)
    [0.5 0.5]
    [0.6 0. ]
    """
    etas = eta_minus, eta_plus
    return _rprop("scale_by_rprop", learning_rate, etas, min_step_size, max_step_size)


def rprop(
    learning_rate: float | Array,
    eta_minus: float | Array = 0.5,
    eta_plus: float | Array = 1.2,
    min_step_size: float | Array = 1e-6,
    max_step_size: float | Array = 50.0,
) -> GradientTransformation:
    """Rprop: steps by the signs of gradients, of a size that each element adapts.

    For gradients of the whole data, not of batches. Riedmiller and Braun, "A Direct
    Adaptive Method for Faster Backpropagation Learning: The RPROP Algorithm", 1993.

    >>> optimizer = rprop(0.5)
    >>> optimizer.update(fnp.array([-7.0]), optimizer.init(fnp.ones(1)))[0]
    Array([0.5], dtype=float32)
    """
    etas = eta_minus, eta_plus
    return chain(
        _rprop("rprop", learning_rate, etas, min_step_size, max_step_size),
        signed_rate("rprop", 1.0),
    )


def _rprop(
    function: str, rate: Any, etas: tuple[Any, Any], least: Any, most: Any
) -> GradientTransformation:
    eta_minus, eta_plus = etas
    POSITIVE.check(function, "learning_rate", rate)
    UNIT.check(function, "eta_minus", eta_minus)
    POSITIVE.check(function, "eta_plus", eta_plus)
    POSITIVE.check(function, "min_step_size", least)
    POSITIVE.check(function, "max_step_size", most)

    def start(p: Leaf) -> tuple[Leaf, Leaf]:
        return fnp.full(p.shape, rate, p.dtype), zeros(p)

    def rule(here: Here, size: Leaf, last: Leaf) -> tuple[Leaf, Leaf, Leaf]:
        agreement = fnp.sign(here.g) * fnp.sign(last)
        grown = fnp.where(agreement > 0, size * eta_plus, size * eta_minus)
        size = fnp.where(agreement == 0, size, fnp.clip(grown, least, most))
        step = fnp.where(agreement < 0, 0, fnp.sign(here.g) * size)
        return step, size, step

    return leafwise(function, ScaleByRpropState, start, rule)
