"""Successes in n draws whose probability is beta-distributed, plus `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(pmf(1, 2, 1.0, 1.0).item(), 4)
0.3333
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import add, select, sub
from fnx.ops.parts import and_, or_
from fnx.scipy.stats.support import (
    is_whole,
    shifted,
    within,
)


@becomes_native
def logpmf(
    k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0
) -> Array:
    """The logarithm of the probability of k."""
    k, n, a, b = shifted("betabinom.logpmf", k, loc, n=n, a=a, b=b)
    inside = and_(and_(ops.ge(k, 0), ops.le(k, n)), is_whole(k))
    k = select(or_(inside, ops.ne(k, k)), k, 0)
    rest = sub(n, k)
    choices = add(special.betaln(add(rest, 1), add(k, 1)), ops.log1p(n))
    betas = sub(special.betaln(add(k, a), add(rest, b)), special.betaln(a, b))
    return within(inside, sub(betas, choices), -math.inf)


@becomes_native
def pmf(
    k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0
) -> Array:
    """The probability of k."""
    return ops.exp(logpmf(k, n, a, b, loc))
