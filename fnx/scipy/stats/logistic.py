"""The logistic distribution about `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> cdf(0.0).item()
0.5
"""

from __future__ import annotations

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, mul, neg, sub
from fnx.scipy.special.logarithms import log_odds
from fnx.scipy.stats.support import (
    arrays,
    standard,
)


@becomes_native
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density at x."""
    z, scale = standard("logistic.logpdf", x, loc, scale)
    size = ops.abs(z)
    return neg(add(add(size, mul(ops.log1p(ops.exp(neg(size))), 2)), ops.log(scale)))


@becomes_native
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    z, scale = standard("logistic.pdf", x, loc, scale)
    return ops.div(mul(ops.sech_squared(mul(z, 0.5)), 0.25), scale)


@becomes_native
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most x."""
    z, _ = standard("logistic.cdf", x, loc, scale)
    return ops.logistic(z)


@becomes_native
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than x."""
    z, _ = standard("logistic.sf", x, loc, scale)
    return ops.logistic(neg(z))


@becomes_native
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The quantile: where `cdf` is q."""
    q, loc, scale = arrays("logistic.ppf", q=q, loc=loc, scale=scale)
    return add(mul(log_odds(q), scale), loc)


@becomes_native
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Where `sf` is q."""
    q, loc, scale = arrays("logistic.isf", q=q, loc=loc, scale=scale)
    return sub(loc, mul(log_odds(q), scale))
