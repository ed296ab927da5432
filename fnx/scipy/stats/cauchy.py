"""The Cauchy distribution about `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> cdf(0.0).item()
0.5
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, mul, neg, select, sub
from fnx.ops.parts import and_
from fnx.scipy.stats.support import (
    arrays,
    log1p_square,
    log_of,
    standard,
    within,
)


def _below(z: Array) -> Array:
    """The probability of at most z: the angle of (-z, 1), precise in the left tail."""
    return mul(ops.atan2(1, neg(z)), 1 / math.pi)


def _quantile(q: Array) -> Array:
    """tan(pi (q - 1/2)): by the cotangent of the nearer end's distance in the tails."""
    low = ops.lt(q, 0.5)
    end = select(low, q, sub(1, q))
    middle = ops.gt(end, 0.25)
    near = ops.tan(mul(sub(select(middle, q, 0.5), 0.5), math.pi))
    angle = mul(select(middle, 0.25, end), math.pi)
    far = ops.div(1, ops.tan(angle))
    value = select(middle, near, select(low, neg(far), far))
    return within(and_(ops.ge(q, 0), ops.le(q, 1)), value, math.nan)


@becomes_native
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density at x."""
    z, scale = standard("cauchy.logpdf", x, loc, scale)
    return neg(add(log1p_square(z), ops.log(mul(scale, math.pi))))


@becomes_native
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    z, scale = standard("cauchy.pdf", x, loc, scale)
    # 1 / (1 + z^2) without an overflow of the square
    root = ops.rsqrt_one_plus_square(z)
    return ops.div(ops.square(root), mul(scale, math.pi))


@becomes_native
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most x."""
    z, _ = standard("cauchy.cdf", x, loc, scale)
    return _below(z)


@becomes_native
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability of at most x."""
    z, _ = standard("cauchy.logcdf", x, loc, scale)
    return log_of(_below(z), _below(neg(z)))


@becomes_native
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than x."""
    z, _ = standard("cauchy.sf", x, loc, scale)
    return _below(neg(z))


@becomes_native
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability of more than x."""
    z, _ = standard("cauchy.logsf", x, loc, scale)
    return log_of(_below(neg(z)), _below(z))


@becomes_native
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The quantile: where `cdf` is q."""
    q, loc, scale = arrays("cauchy.ppf", q=q, loc=loc, scale=scale)
    return add(mul(_quantile(q), scale), loc)


@becomes_native
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Where `sf` is q."""
    q, loc, scale = arrays("cauchy.isf", q=q, loc=loc, scale=scale)
    return sub(loc, mul(_quantile(q), scale))
