"""The multinomial distribution: how often each of several outcomes comes in n draws.

Receives counts x and probabilities p along their last axis, and n for the others; gives
an array of those.

>>> import numpy as np
>>> round(pmf(np.array([1, 1]), 2, np.array([0.5, 0.5])).item(), 4)
0.5
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import reductions, shaping
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import add, eq, select, sub
from fnx.ops.parts import and_
from fnx.scipy.stats.support import arrays, log_times, within


@becomes_native
def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """The logarithm of the probability of x; -inf unless the counts add up to n."""
    x, p = arrays("multinomial.logpmf", x=x, p=p)
    total, n = arrays("multinomial.logpmf", x=reductions.sum(x, axis=-1), n=n)
    counts = ops.ge(x, 0)
    k = select(counts, x, 0)
    each = sub(log_times(k, ops.log(p)), special.lgamma(add(k, 1)))
    value = add(
        shaping.broadcast_to(reductions.sum(each, axis=-1), total.shape),
        special.lgamma(add(n, 1)),
    )
    inside = and_(
        eq(total, n),
        shaping.broadcast_to(reductions.all(counts, axis=-1), total.shape),
    )
    return within(inside, value, -math.inf)


@becomes_native
def pmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """The probability of x."""
    return ops.exp(logpmf(x, n, p))
