"""The number of draws up to the first success of probability p, plus `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> pmf(2, 0.5).item()
0.25
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, neg, select, sub
from fnx.ops.parts import and_, or_
from fnx.scipy.stats.support import (
    is_whole,
    log_times,
    shifted,
    within,
)


def _parts(
    function: str, k: ArrayLike, p: ArrayLike, loc: ArrayLike
) -> tuple[Array, Array, Array]:
    """Whether k is in the support, and k or 1 outside, and p."""
    k, p = shifted(f"geom.{function}", k, loc, p=p)
    k = select(and_(ops.ge(p, 0), ops.le(p, 1)), k, math.nan)  # else there is none
    inside = and_(ops.ge(k, 1), is_whole(k))
    return inside, select(or_(inside, ops.ne(k, k)), k, 1), p


@becomes_native
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The logarithm of the probability of k."""
    inside, k, p = _parts("logpmf", k, p, loc)
    value = add(log_times(sub(k, 1), ops.log1p(neg(p))), ops.log(p))
    return within(inside, value, -math.inf)


@becomes_native
def pmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of k."""
    return ops.exp(logpmf(k, p, loc))
