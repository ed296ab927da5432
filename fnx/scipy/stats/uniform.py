"""The uniform distribution from `loc` to `loc + scale`, both included.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> cdf(0.25).item()
0.25
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, mul, neg
from fnx.ops.parts import and_
from fnx.scipy.stats.support import (
    arrays,
    standard,
    within,
)


def _inside(z: Array) -> Array:
    return and_(ops.ge(z, 0), ops.le(z, 1))


@becomes_native
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density at x."""
    z, scale = standard("uniform.logpdf", x, loc, scale)
    value = add(mul(z, 0), neg(ops.log(scale)))
    return within(_inside(z), value, -math.inf)


@becomes_native
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    z, scale = standard("uniform.pdf", x, loc, scale)
    return within(_inside(z), add(mul(z, 0), ops.div(1, scale)), 0.0)


@becomes_native
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most x."""
    z, _ = standard("uniform.cdf", x, loc, scale)
    return ops.clamp(0, z, 1)


@becomes_native
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The quantile: where `cdf` is q."""
    q, loc, scale = arrays("uniform.ppf", q=q, loc=loc, scale=scale)
    value = add(mul(q, scale), loc)
    return within(_inside(q), value, math.nan)
