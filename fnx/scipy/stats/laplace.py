"""The Laplace distribution about `loc`, with exponential tails of mean `scale`.

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
from fnx.ops.arithmetic import add, mul, neg, select, sub
from fnx.scipy.stats.support import (
    standard,
)


@becomes_native
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The logarithm of the density at x."""
    z, scale = standard("laplace.logpdf", x, loc, scale)
    return neg(add(ops.abs(z), ops.log(mul(scale, 2))))


@becomes_native
def pdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    z, scale = standard("laplace.pdf", x, loc, scale)
    return ops.div(ops.exp(neg(ops.abs(z))), mul(scale, 2))


@becomes_native
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most x."""
    z, _ = standard("laplace.cdf", x, loc, scale)
    half = mul(ops.exp(neg(ops.abs(z))), 0.5)
    return select(ops.le(z, 0), half, sub(1, half))
