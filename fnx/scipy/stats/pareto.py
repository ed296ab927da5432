"""Pareto's distribution with exponent b, from `loc + scale` on.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> sf(2.0, 1.0).item()
0.5
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, mul, neg, select, sub
from fnx.ops.parts import and_, or_
from fnx.scipy.stats.support import (
    arrays,
    known,
    log1m_exp,
    standard,
    within,
)


def _parts(
    function: str, x: ArrayLike, b: ArrayLike, loc: ArrayLike, scale: ArrayLike
) -> tuple[Array, Array, Array, Array]:
    """Whether x is in the support, log((x - loc) / scale) or 0, b and the scale."""
    z, scale, b = standard(f"pareto.{function}", x, loc, scale, b=b)
    z = known(z, b)
    inside = ops.ge(z, 1)
    log = ops.log(select(or_(inside, ops.ne(z, z)), z, 1))
    return inside, log, b, scale


@becomes_native
def logpdf(
    x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the density at x."""
    inside, log, b, scale = _parts("logpdf", x, b, loc, scale)
    value = sub(sub(ops.log(b), mul(add(b, 1), log)), ops.log(scale))
    return within(inside, value, -math.inf)


@becomes_native
def pdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    inside, log, b, scale = _parts("pdf", x, b, loc, scale)
    value = ops.div(mul(b, ops.exp(neg(mul(add(b, 1), log)))), scale)
    return within(inside, value, 0.0)


@becomes_native
def cdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most x."""
    inside, log, b, _ = _parts("cdf", x, b, loc, scale)
    return within(inside, neg(ops.expm1(neg(mul(b, log)))), 0.0)


@becomes_native
def logcdf(
    x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the probability of at most x."""
    inside, log, b, _ = _parts("logcdf", x, b, loc, scale)
    return within(inside, log1m_exp(mul(b, log)), -math.inf)


@becomes_native
def sf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than x."""
    inside, log, b, _ = _parts("sf", x, b, loc, scale)
    return within(inside, ops.exp(neg(mul(b, log))), 1.0)


@becomes_native
def logsf(
    x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the probability of more than x."""
    inside, log, b, _ = _parts("logsf", x, b, loc, scale)
    return within(inside, neg(mul(b, log)), 0.0)


@becomes_native
def ppf(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The quantile: where `cdf` is q."""
    q, b, loc, scale = arrays("pareto.ppf", q=q, b=b, loc=loc, scale=scale)
    value = ops.exp(neg(ops.div(ops.log1p(neg(q)), b)))
    known = and_(ops.ge(q, 0), ops.le(q, 1))
    return within(known, add(mul(value, scale), loc), math.nan)
