"""One draw that is 1 with probability p, else 0, plus `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> pmf(1, 0.25).item()
0.25
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, eq, mul, neg, select, sub
from fnx.ops.parts import and_, or_
from fnx.scipy.stats.support import (
    arrays,
    shifted,
    within,
)


def _is_share(p: Array) -> Array:
    return and_(ops.ge(p, 0), ops.le(p, 1))


def _of_known(k: Array, p: Array, value: Array) -> Array:
    """The value, but NaN where k is or where p is no probability."""
    return select(and_(_is_share(p), eq(k, k)), value, math.nan)


@becomes_native
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The logarithm of the probability of k."""
    k, p = shifted("bernoulli.logpmf", k, loc, p=p)
    one, zero = eq(k, 1), eq(k, 0)
    value = select(one, ops.log(p), ops.log1p(neg(p)))
    return _of_known(k, p, select(or_(one, zero), value, -math.inf))


@becomes_native
def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of k."""
    k, p = shifted("bernoulli.pmf", k, loc, p=p)
    one, zero = eq(k, 1), eq(k, 0)
    value = select(one, p, sub(1, p))
    return _of_known(k, p, select(or_(one, zero), value, 0.0))


@becomes_native
def cdf(k: ArrayLike, p: ArrayLike) -> Array:
    """The probability of at most k; NaN unless 0 <= p <= 1."""
    k, p = arrays("bernoulli.cdf", k=k, p=p)
    value = select(ops.lt(k, 0), 0, select(ops.lt(k, 1), sub(1, p), 1))
    known = and_(_is_share(p), eq(k, k))
    return within(known, value, math.nan)


@becomes_native
def ppf(q: ArrayLike, p: ArrayLike) -> Array:
    """The quantile: 0 for q <= 1 - p, else 1; NaN unless both are in [0, 1]."""
    q, p = arrays("bernoulli.ppf", q=q, p=p)
    value = select(ops.le(q, sub(1, p)), mul(q, 0), add(mul(q, 0), 1))
    known = and_(_is_share(p), _is_share(q))
    return within(known, value, math.nan)
