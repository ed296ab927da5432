"""The generalized normal distribution with density proportional to exp(-|x|^p).

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> cdf(0.0, 2.0).item()
0.5
"""

from __future__ import annotations

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import mul, select, sub
from fnx.scipy.stats.support import (
    arrays,
)


@becomes_native
def logpdf(x: ArrayLike, p: ArrayLike) -> Array:
    """The logarithm of the density at x."""
    x, p = arrays("gennorm.logpdf", x=x, p=p)
    norm = sub(ops.log(mul(p, 0.5)), special.lgamma(ops.div(1, p)))
    return sub(norm, ops.pow(ops.abs(x), p))


@becomes_native
def pdf(x: ArrayLike, p: ArrayLike) -> Array:
    """The density at x."""
    return ops.exp(logpdf(x, p))


@becomes_native
def cdf(x: ArrayLike, p: ArrayLike) -> Array:
    """The probability of at most x."""
    x, p = arrays("gennorm.cdf", x=x, p=p)
    upper = special.igammac(ops.div(1, p), ops.pow(ops.abs(x), p))
    half = mul(upper, 0.5)
    return select(ops.lt(x, 0), half, sub(1, half))
