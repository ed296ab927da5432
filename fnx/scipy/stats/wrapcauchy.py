"""The wrapped Cauchy distribution of an angle x from 0 to 2 pi, with 0 < c < 1.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(pdf(0.0, 0.5).item(), 4)
0.4775
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, mul, sub
from fnx.ops.parts import and_
from fnx.scipy.stats.support import (
    arrays,
    square_of_half_sine,
    within,
)


def _inside(x: Array) -> Array:
    return and_(ops.ge(x, 0), ops.le(x, 2 * math.pi))


def _density(x: Array, c: Array) -> Array:
    # 1 + c^2 - 2c cos(x) is a sum of squares
    rise = add(ops.square(sub(1, c)), mul(mul(c, 2), square_of_half_sine(x)))
    top = mul(sub(1, c), add(1, c))
    value = ops.div(top, mul(rise, 2 * math.pi))
    known = and_(ops.gt(c, 0), ops.lt(c, 1))
    return within(known, value, math.nan)


@becomes_native
def logpdf(x: ArrayLike, c: ArrayLike) -> Array:
    """The logarithm of the density at x."""
    x, c = arrays("wrapcauchy.logpdf", x=x, c=c)
    return within(_inside(x), ops.log(_density(x, c)), -math.inf)


@becomes_native
def pdf(x: ArrayLike, c: ArrayLike) -> Array:
    """The density at x."""
    x, c = arrays("wrapcauchy.pdf", x=x, c=c)
    return within(_inside(x), _density(x, c), 0.0)
