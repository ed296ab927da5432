"""The Dirichlet distribution of shares that add up to 1.

Receives points along the first axis of x, with all coordinates or all but the last, and
the parameters `alpha` along their only axis; gives an array of the other axes of x.

>>> import numpy as np
>>> round(logpdf(np.array([0.5, 0.5]), np.array([1.0, 1.0])).item(), 4)
0.0
"""

from __future__ import annotations

import math

from fnx import errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import joining, reductions, shaping
from fnx.numpy.operands import ArrayLike, promoted, typed
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import select, sub
from fnx.ops.parts import and_
from fnx.scipy.stats.support import log_times, within


@becomes_native
def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """The logarithm of the density at x; -inf outside of the simplex."""
    values, dtype, weak = promoted("dirichlet.logpdf", (x, alpha), inexact=True)
    x, alpha = [
        typed("dirichlet.logpdf", value, dtype, weak, position)
        for position, value in enumerate(values)
    ]
    if alpha.ndim != 1 or x.ndim < 1 or x.shape[0] not in (len(alpha), len(alpha) - 1):
        raise errors.ShapeError(
            "dirichlet: alpha must have one axis, and x along its first as many "
            f"elements or one less, got {alpha.type} and {x.type}"
        )
    if x.shape[0] < len(alpha):
        last = sub(1, reductions.sum(x, axis=0, keepdims=True))
        x = joining.concatenate([x, last], axis=0)
    shape = (len(alpha), *([1] * (x.ndim - 1)))
    powers = shaping.broadcast_to(shaping.reshape(alpha, shape), x.shape)
    close = ops.lt(ops.abs(sub(reductions.sum(x, axis=0), 1)), 1e-6)
    inside = and_(ops.ge(x, 0), ops.le(x, 1))
    logs = log_times(sub(powers, 1), ops.log(select(inside, x, 1)))
    norm = sub(
        reductions.sum(special.lgamma(alpha)), special.lgamma(reductions.sum(alpha))
    )
    total = reductions.sum(logs, axis=0)
    value = sub(total, shaping.broadcast_to(norm, total.shape))
    return within(reductions.all(inside, axis=0) & close, value, -math.inf)


@becomes_native
def pdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """The density at x."""
    return ops.exp(logpdf(x, alpha))
