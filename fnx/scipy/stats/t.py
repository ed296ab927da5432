"""Student's distribution of `df` degrees of freedom about `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(pdf(0.0, 1.0).item(), 4)
0.3183
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import add, mul, sub
from fnx.scipy.stats.support import (
    known,
    log1p_square,
    standard,
)


@becomes_native
def logpdf(
    x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the density at x."""
    z, scale, df = standard("t.logpdf", x, loc, scale, df=df)
    z = known(z, df)
    half = mul(df, 0.5)
    norm = special.lgamma_difference(half, add(mul(half, 0), 0.5))
    norm = sub(norm, add(mul(ops.log(mul(df, math.pi)), 0.5), ops.log(scale)))
    return sub(norm, mul(add(half, 0.5), log1p_square(ops.div(z, ops.sqrt(df)))))


@becomes_native
def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    return ops.exp(logpdf(x, df, loc, scale))
