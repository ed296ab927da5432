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
from fnx.ops.arithmetic import add, eq, mul, select, sub
from fnx.scipy.stats.support import (
    arrays,
)


def _power(x: Array, p: Array) -> Array:
    """|x|^p, with derivative 0 at 0 whatever p is."""
    zero = eq(x, 0)
    return select(zero, 0, ops.pow(ops.abs(select(zero, 1, x)), p))


@becomes_native
def logpdf(x: ArrayLike, p: ArrayLike) -> Array:
    """The logarithm of the density at x."""
    x, p = arrays("gennorm.logpdf", x=x, p=p)
    norm = sub(ops.log(mul(p, 0.5)), special.lgamma(ops.div(1, p)))
    return sub(norm, _power(x, p))


@becomes_native
def pdf(x: ArrayLike, p: ArrayLike) -> Array:
    """The density at x."""
    return ops.exp(logpdf(x, p))


@becomes_native
def cdf(x: ArrayLike, p: ArrayLike) -> Array:
    """The probability of at most x."""
    x, p = arrays("gennorm.cdf", x=x, p=p)
    upper = special.igammac(ops.div(1, p), _power(x, p))
    half = mul(upper, 0.5)
    value = select(ops.lt(x, 0), half, sub(1, half))
    # At 0 the power has lost the slope, which is the density.
    density = ops.exp(sub(ops.log(mul(p, 0.5)), special.lgamma(ops.div(1, p))))
    return select(eq(x, 0), add(mul(x, density), 0.5), value)
