"""The normal distribution with mean `loc` and standard deviation `scale`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(cdf(1.0).item(), 4)
0.8413
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import add, mul, neg, sub
from fnx.scipy.special.error import log_of_ndtr
from fnx.scipy.stats.support import (
    arrays,
    standard,
)


@becomes_native
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density at x."""
    z, scale = standard("norm.logpdf", x, loc, scale)
    log = add(ops.log(scale), 0.5 * math.log(2 * math.pi))
    return neg(add(mul(ops.square(z), 0.5), log))


@becomes_native
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    z, scale = standard("norm.pdf", x, loc, scale)
    return ops.div(mul(special.bell(z), 1 / math.sqrt(2 * math.pi)), scale)


@becomes_native
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most x."""
    z, _ = standard("norm.cdf", x, loc, scale)
    return special.ndtr(z)


@becomes_native
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability of at most x."""
    z, _ = standard("norm.logcdf", x, loc, scale)
    return log_of_ndtr(z)


@becomes_native
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than x."""
    z, _ = standard("norm.sf", x, loc, scale)
    return special.ndtr(neg(z))


@becomes_native
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the probability of more than x."""
    z, _ = standard("norm.logsf", x, loc, scale)
    return log_of_ndtr(neg(z))


@becomes_native
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The quantile: where `cdf` is q."""
    q, loc, scale = arrays("norm.ppf", q=q, loc=loc, scale=scale)
    return add(mul(special.ndtri(q), scale), loc)


@becomes_native
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Where `sf` is q."""
    q, loc, scale = arrays("norm.isf", q=q, loc=loc, scale=scale)
    return sub(loc, mul(special.ndtri(q), scale))
