"""Gumbel's distribution of the largest of many, about its mode `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(cdf(0.0).item(), 4)
0.3679
"""

from __future__ import annotations

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, mul, neg, sub
from fnx.scipy.stats.support import (
    arrays,
    log1m_exp_exp,
    standard,
)


@becomes_native
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density at x."""
    z, scale = standard("gumbel_r.logpdf", x, loc, scale)
    z = neg(z)
    return sub(sub(z, ops.exp(z)), ops.log(scale))


@becomes_native
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    return ops.exp(logpdf(x, loc, scale))


@becomes_native
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most x."""
    z, _ = standard("gumbel_r.cdf", x, loc, scale)
    return ops.exp(neg(ops.exp(neg(z))))


@becomes_native
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability of at most x."""
    z, _ = standard("gumbel_r.logcdf", x, loc, scale)
    return neg(ops.exp(neg(z)))


@becomes_native
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than x."""
    z, _ = standard("gumbel_r.sf", x, loc, scale)
    return neg(ops.expm1(neg(ops.exp(neg(z)))))


@becomes_native
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability of more than x."""
    z, _ = standard("gumbel_r.logsf", x, loc, scale)
    return log1m_exp_exp(neg(z))


@becomes_native
def ppf(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The quantile: where `cdf` is q."""
    q, loc, scale = arrays("gumbel_r.ppf", p=p, loc=loc, scale=scale)
    return add(mul(neg(ops.log(neg(ops.log(q)))), scale), loc)
