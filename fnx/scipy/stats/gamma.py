"""The gamma distribution of shape a from `loc` on.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(cdf(1.0, 1.0).item(), 4)
0.6321
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import select, sub
from fnx.ops.parts import or_
from fnx.scipy.stats.support import (
    known,
    log_of_density,
    log_of_shares,
    log_times,
    standard,
    within,
)


def _parts(
    function: str, x: ArrayLike, a: ArrayLike, loc: ArrayLike, scale: ArrayLike
) -> tuple[Array, Array, Array, Array]:
    """Whether x is in the support, (x - loc) / scale or 1 outside, a and the scale."""
    z, scale, a = standard(f"gamma.{function}", x, loc, scale, a=a)
    z = known(z, a)
    inside = ops.ge(z, 0)
    return inside, select(or_(inside, ops.ne(z, z)), z, 1), a, scale


@becomes_native
def logpdf(
    x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the density at x."""
    inside, z, a, scale = _parts("logpdf", x, a, loc, scale)
    direct = sub(sub(log_times(sub(a, 1), ops.log(z)), z), special.lgamma(a))
    value = log_of_density(special.gamma_pdf(a, z), direct)
    return within(inside, sub(value, ops.log(scale)), -math.inf)


@becomes_native
def pdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    inside, z, a, scale = _parts("pdf", x, a, loc, scale)
    return within(inside, ops.div(special.gamma_pdf(a, z), scale), 0.0)


@becomes_native
def cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most x."""
    inside, z, a, _ = _parts("cdf", x, a, loc, scale)
    return within(inside, special.igamma(a, z), 0.0)


@becomes_native
def logcdf(
    x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the probability of at most x."""
    inside, z, a, _ = _parts("logcdf", x, a, loc, scale)
    value = log_of_shares(special.igamma, special.igammac, a, z)
    return within(inside, value, -math.inf)


@becomes_native
def sf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than x."""
    inside, z, a, _ = _parts("sf", x, a, loc, scale)
    return within(inside, special.igammac(a, z), 1.0)


@becomes_native
def logsf(
    x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the probability of more than x."""
    inside, z, a, _ = _parts("logsf", x, a, loc, scale)
    value = log_of_shares(special.igammac, special.igamma, a, z)
    return within(inside, value, 0.0)
