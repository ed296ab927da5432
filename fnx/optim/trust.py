"""Steps in proportion to the size of a layer: LARS, LAMB, Fromage.

Receives updates and parameters, gives updates. Next on the walk: `factored.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fnx.numpy as fnp
from fnx import tree
from fnx.core.array import Array
from fnx.optim.decay import weight_decaying
from fnx.optim.hyperparameters import NOT_NEGATIVE, ScalarOrSchedule
from fnx.optim.leafwise import beside_updates
from fnx.optim.masking import masked
from fnx.optim.moments import adam_scaling
from fnx.optim.momentum import momentum as momentum_trace
from fnx.optim.scaling import scaling_by, signed_rate
from fnx.optim.transformation import (
    GradientTransformation,
    Params,
    Updates,
    chain,
    stateless,
)
from fnx.optim.updates import Leaf, floating, root_mean_square, safe_norm, scaled, wide


def scale_by_trust_ratio(
    min_norm: float | Array = 0.0,
    trust_coefficient: float | Array = 1.0,
    eps: float | Array = 0.0,
) -> GradientTransformation:
    """Multiply each leaf's update u by trust_coefficient · ‖p‖ / (‖u‖ + eps).

    Norms below `min_norm` count as that; where one is 0 the update stays. `update`
    needs the parameters. You, Gitman and Ginsburg, "Large Batch Training of
    Convolutional Networks", 2017.

    >>> params = fnp.array([3.0, 4.0])
    >>> scale_by_trust_ratio().update(fnp.array([0.0, 2.0]), (), params)[0]
    Array([0., 5.], dtype=float32)
    """
    return trust_ratio("scale_by_trust_ratio", min_norm, trust_coefficient, eps)


def trust_ratio(
    function: str, min_norm: Any, trust_coefficient: Any, eps: Any
) -> GradientTransformation:
    """`scale_by_trust_ratio` on behalf of an algorithm that its errors name."""
    NOT_NEGATIVE.check(function, "min_norm", min_norm)
    NOT_NEGATIVE.check(function, "trust_coefficient", trust_coefficient)
    NOT_NEGATIVE.check(function, "eps", eps)

    def factor(u: Leaf, p: Leaf) -> Leaf:
        size, step = safe_norm(p, min_norm), safe_norm(u, min_norm)
        known = (size > 0) & (step > 0)
        ratio = trust_coefficient * size / (fnp.where(known, step, 1) + eps)
        return fnp.where(known, ratio, 1)

    return _by_parameter(function, "the trust ratio", factor)


def scale_by_param_block_norm(
    min_scale: float | Array = 1e-3,
) -> GradientTransformation:
    """Multiply each leaf's update by the norm of its parameter, at least `min_scale`.

    `update` needs the parameters.

    >>> params = fnp.array([3.0, 4.0])
    >>> scale_by_param_block_norm().update(fnp.array([0.0, 2.0]), (), params)[0]
    Array([ 0., 10.], dtype=float32)
    """
    NOT_NEGATIVE.check("scale_by_param_block_norm", "min_scale", min_scale)
    return _by_parameter(
        "scale_by_param_block_norm", "the scale", lambda u, p: safe_norm(p, min_scale)
    )


def scale_by_param_block_rms(
    min_scale: float | Array = 1e-3,
) -> GradientTransformation:
    """Multiply each leaf's update by its parameter's root mean square.

    It counts as `min_scale` where it is less. `update` needs the parameters. Shazeer
    and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018,
    section 8.

    >>> params = fnp.array([1.0, 7.0])
    >>> scale_by_param_block_rms().update(fnp.array([0.0, 2.0]), (), params)[0]
    Array([ 0., 10.], dtype=float32)
    """
    return param_block_rms("scale_by_param_block_rms", min_scale)


def param_block_rms(function: str, min_scale: Any) -> GradientTransformation:
    """`scale_by_param_block_rms` on behalf of an algorithm that its errors name."""
    NOT_NEGATIVE.check(function, "min_scale", min_scale)
    return _by_parameter(
        function, "the scale", lambda u, p: root_mean_square(p, min_scale)
    )


def _by_parameter(
    function: str, what: str, factor: Callable[[Leaf, Leaf], Leaf]
) -> GradientTransformation:
    """Multiply each update by a number that `what` makes of it and its parameter."""

    def scale(updates: Updates, params: Params) -> Updates:
        updates = floating(function, "updates", updates)
        params = beside_updates(function, what, updates, params)
        return tree.map(
            lambda u, p: scaled(u, factor(wide(u), wide(p))), updates, params
        )

    return stateless(scale)


# ---------------------------------------------------------------- optimizers


def lamb(
    learning_rate: ScalarOrSchedule,
    b1: float | Array = 0.9,
    b2: float | Array = 0.999,
    eps: float | Array = 1e-6,
    eps_root: float | Array = 0.0,
    weight_decay: ScalarOrSchedule = 0.0,
    mask: Any = None,
) -> GradientTransformation:
    """LAMB: Adam's steps with weight decay, each layer's as long as its parameter.

    `mask` says which parameters decay, as in `add_decayed_weights`; `update` needs the
    parameters. You et al., "Large Batch Optimization for Deep Learning: Training BERT
    in 76 minutes", 2020.

    >>> optimizer, params = lamb(0.5), fnp.array([3.0, 4.0])
    >>> optimizer.update(fnp.array([0.0, 2.0]), optimizer.init(params), params)[0]
    Array([-0. , -2.5], dtype=float32)
    """
    return chain(
        adam_scaling("lamb", b1, b2, eps, eps_root, None, False),
        weight_decaying("lamb", weight_decay, mask),
        trust_ratio("lamb", 0.0, 1.0, 0.0),
        signed_rate("lamb", learning_rate),
    )


def lars(
    learning_rate: ScalarOrSchedule,
    weight_decay: ScalarOrSchedule = 0.0,
    weight_decay_mask: Any = True,
    trust_coefficient: float | Array = 0.001,
    eps: float | Array = 0.0,
    trust_ratio_mask: Any = True,
    momentum: float | Array = 0.9,
    nesterov: bool = False,
) -> GradientTransformation:
    """LARS: momentum over gradients as long as a part of each layer's parameter.

    The masks say which parameters decay and which are rescaled; `update` needs the
    parameters. You, Gitman and Ginsburg, "Large Batch Training of Convolutional
    Networks", 2017.

    >>> optimizer, params = lars(1.0, trust_coefficient=0.5), fnp.array([3.0, 4.0])
    >>> optimizer.update(fnp.array([0.0, 2.0]), optimizer.init(params), params)[0]
    Array([ 0. , -2.5], dtype=float32)
    """
    return chain(
        weight_decaying("lars", weight_decay, weight_decay_mask),
        masked(trust_ratio("lars", 0.0, trust_coefficient, eps), trust_ratio_mask),
        signed_rate("lars", learning_rate),
        momentum_trace("lars", "momentum", momentum, nesterov, None),
    )


def fromage(
    learning_rate: float | Array, min_norm: float | Array = 1e-6
) -> GradientTransformation:
    """Fromage: p ← (p - rate · g ‖p‖/‖g‖) / √(1 + rate²), layer by layer.

    `update` needs the parameters. Bernstein et al., "On the distance between two neural
    networks and the stability of learning", 2020.

    >>> optimizer, params = fromage(0.75), fnp.array([3.0, 4.0])
    >>> optimizer.update(fnp.array([0.0, 2.0]), optimizer.init(params), params)[0]
    Array([-0.6, -3.8], dtype=float32)
    """
    NOT_NEGATIVE.check("fromage", "learning_rate", learning_rate)
    rate: Any = learning_rate
    shrink = 1 / (1 + rate**2) ** 0.5

    def shrunk(updates: Updates, params: Params) -> Updates:
        params = floating("fromage", "params", params)
        return tree.map(
            lambda u, p: (wide(u) + (shrink - 1) * wide(p)).astype(u.dtype),
            updates,
            params,
        )

    return chain(
        trust_ratio("fromage", min_norm, 1.0, 0.0),
        scaling_by("fromage", -rate * shrink),
        stateless(shrunk),
    )
