"""The exponential distribution from `loc` on, with mean `scale` beyond it.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(sf(1.0).item(), 4)
0.3679
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
    log1m_exp,
    standard,
    within,
)


def _positive(z: Array) -> Array:
    """Z, or 0 below the support."""
    return select(ops.lt(z, 0), 0, z)


@becomes_native
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density at x."""
    z, scale = standard("expon.logpdf", x, loc, scale)
    return within(ops.ge(z, 0), neg(add(z, ops.log(scale))), -math.inf)


@becomes_native
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    z, scale = standard("expon.pdf", x, loc, scale)
    inside = ops.ge(z, 0)
    value = ops.div(ops.exp(neg(select(inside, z, 0))), scale)
    return within(inside, select(ops.ne(z, z), z, value), 0.0)


@becomes_native
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most x."""
    z, _ = standard("expon.cdf", x, loc, scale)
    return neg(ops.expm1(neg(_positive(z))))


@becomes_native
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability of at most x."""
    z, _ = standard("expon.logcdf", x, loc, scale)
    return within(ops.ge(z, 0), log1m_exp(_positive(z)), -math.inf)


@becomes_native
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than x."""
    z, _ = standard("expon.sf", x, loc, scale)
    return ops.exp(neg(_positive(z)))


@becomes_native
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability of more than x."""
    z, _ = standard("expon.logsf", x, loc, scale)
    return neg(_positive(z))


@becomes_native
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The quantile: where `cdf` is q."""
    q, loc, scale = arrays("expon.ppf", q=q, loc=loc, scale=scale)
    value = sub(loc, mul(ops.log1p(neg(q)), scale))
    known = and_(ops.ge(q, 0), ops.le(q, 1))
    return within(known, value, math.nan)
