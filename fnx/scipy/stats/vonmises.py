"""The von Mises distribution of an angle x, of concentration `kappa`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(pdf(0.0, 0.0).item(), 4)
0.1592
"""

from __future__ import annotations

import math

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import add, mul, neg
from fnx.scipy.stats.support import (
    arrays,
    square_of_half_sine,
)


@becomes_native
def logpdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """The logarithm of the density at x."""
    x, kappa = arrays("vonmises.logpdf", x=x, kappa=kappa)
    norm = ops.log(mul(special.bessel_i0e(kappa), 2 * math.pi))
    return neg(add(mul(kappa, square_of_half_sine(x)), norm))


@becomes_native
def pdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """The density at x."""
    return ops.exp(logpdf(x, kappa))
