"""The normal distribution between a and b, in units of `scale` from `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(cdf(0.0, -1.0, 1.0).item(), 4)
0.5
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import add, mul, neg, select, sub
from fnx.ops.parts import and_, or_
from fnx.scipy.special.error import log_of_ndtr
from fnx.scipy.stats.support import (
    log1m_exp,
    log_of,
    standard,
    within,
)


def _standard(
    function: str,
    x: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    loc: ArrayLike,
    scale: ArrayLike,
) -> list[Array]:
    return standard(f"truncnorm.{function}", x, loc, scale, a=a, b=b)


def log_mass(a: Array, b: Array) -> Array:
    """The logarithm of the normal probability of a < z < b, by the nearer tail."""
    right = ops.gt(a, 0)
    low, high = select(right, neg(b), a), select(right, neg(a), b)
    tail = ops.le(high, 0)
    # In one tail: log Q(high) + log(1 - Q(low) / Q(high)).
    far_low, far_high = select(tail, low, -2), select(tail, high, -1)
    top = log_of_ndtr(far_high)
    in_tail = add(top, log1m_exp(sub(top, log_of_ndtr(far_low))))
    # About 0: the logarithm of a sum of two sizes, or of 1 minus both tails.
    near_low, near_high = select(tail, -1, low), select(tail, 1, high)
    root = math.sqrt(0.5)
    sizes = sub(ops.erf(mul(near_high, root)), ops.erf(mul(near_low, root)))
    outside = add(special.ndtr(near_low), special.ndtr(neg(near_high)))
    return select(tail, in_tail, log_of(mul(sizes, 0.5), outside))


def _log_share(a: Array, z: Array, b: Array, below: bool) -> Array:
    """The logarithm of the share of the mass below z, or above."""
    inside = and_(ops.gt(z, a), ops.lt(z, b))
    middle = select(or_(inside, ops.ne(z, z)), z, mul(add(a, b), 0.5))
    whole = log_mass(a, b)
    share = sub(log_mass(a, middle), whole)
    rest = sub(log_mass(middle, b), whole)
    one, other = (share, rest) if below else (rest, share)
    # Near 1 the smaller share says more.
    small = ops.lt(other, math.log(0.5))
    value = select(small, ops.log1p(neg(ops.exp(select(small, other, -1)))), one)
    nothing = ops.le(z, a) if below else ops.ge(z, b)
    all_ = ops.ge(z, b) if below else ops.le(z, a)
    return select(nothing, -math.inf, select(all_, 0, value))


@becomes_native
def logpdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the density at x."""
    z, scale, a, b = _standard("logpdf", x, a, b, loc, scale)
    log = add(ops.log(scale), 0.5 * math.log(2 * math.pi))
    log = add(log, log_mass(a, b))
    inside = and_(ops.ge(z, a), ops.le(z, b))
    value = neg(add(mul(ops.square(z), 0.5), log))
    return within(inside, value, -math.inf)


@becomes_native
def pdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The density at x."""
    return ops.exp(logpdf(x, a, b, loc, scale))


@becomes_native
def logcdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the probability of at most x."""
    z, _, a, b = _standard("logcdf", x, a, b, loc, scale)
    return _log_share(a, z, b, below=True)


@becomes_native
def cdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The probability of at most x."""
    return ops.exp(logcdf(x, a, b, loc, scale))


@becomes_native
def logsf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the probability of more than x."""
    z, _, a, b = _standard("logsf", x, a, b, loc, scale)
    return _log_share(a, z, b, below=False)


@becomes_native
def sf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The probability of more than x."""
    return ops.exp(logsf(x, a, b, loc, scale))
