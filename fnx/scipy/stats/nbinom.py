"""The number of failures before n successes of probability p, plus `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> pmf(0, 1, 0.5).item()
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
from fnx.scipy.stats.support import (
    is_whole,
    log_of_density,
    log_times,
    shifted,
    within,
)


def _parts(
    function: str, k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike
) -> tuple[Array, Array, Array, Array]:
    """Whether k is in the support, and k or 0 outside, n and p."""
    k, n, p = shifted(f"nbinom.{function}", k, loc, n=n, p=p)
    is_share = and_(ops.ge(p, 0), ops.le(p, 1))
    k = select(and_(is_share, ops.gt(n, 0)), k, math.nan)  # else there is none
    inside = and_(ops.ge(k, 0), is_whole(k))
    return inside, select(or_(inside, ops.ne(k, k)), k, 0), n, p


def _probability(k: Array, n: Array, p: Array) -> Array:
    """The density of a beta distribution, which does not cancel for large numbers."""
    return ops.div(mul(special.beta_pdf(n, add(k, 1), p), p), add(n, k))


@becomes_native
def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The logarithm of the probability of k."""
    inside, k, n, p = _parts("logpmf", k, n, p, loc)
    logs = add(log_times(n, ops.log(p)), log_times(k, ops.log1p(neg(p))))
    direct = sub(logs, add(special.betaln(n, add(k, 1)), ops.log(add(n, k))))
    value = log_of_density(_probability(k, n, p), direct)
    return within(inside, value, -math.inf)


@becomes_native
def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of k."""
    inside, k, n, p = _parts("pmf", k, n, p, loc)
    return within(inside, _probability(k, n, p), 0.0)
