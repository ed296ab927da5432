"""The number of successes in n draws of probability p, plus `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> pmf(1, 2, 0.5).item()
0.5
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import add, neg, select, sub
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
    k, n, p = shifted(f"binom.{function}", k, loc, n=n, p=p)
    is_share = and_(ops.ge(p, 0), ops.le(p, 1))
    k = select(and_(is_share, ops.ge(n, 0)), k, math.nan)  # else there is none
    inside = and_(and_(ops.ge(k, 0), ops.le(k, n)), is_whole(k))
    return inside, select(or_(inside, ops.ne(k, k)), k, 0), n, p


def _probability(k: Array, n: Array, p: Array) -> Array:
    """The density of a beta distribution, which does not cancel for a large n."""
    return ops.div(special.beta_pdf(add(k, 1), add(sub(n, k), 1), p), add(n, 1))


@becomes_native
def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The logarithm of the probability of k."""
    inside, k, n, p = _parts("logpmf", k, n, p, loc)
    rest = sub(n, k)
    logs = add(log_times(k, ops.log(p)), log_times(rest, ops.log1p(neg(p))))
    direct = sub(logs, special.betaln(add(rest, 1), add(k, 1)))
    direct = sub(direct, ops.log1p(n))
    value = log_of_density(_probability(k, n, p), direct)
    return within(inside, value, -math.inf)


@becomes_native
def pmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of k."""
    inside, k, n, p = _parts("pmf", k, n, p, loc)
    return within(inside, _probability(k, n, p), 0.0)
