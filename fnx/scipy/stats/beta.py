"""The beta distribution of shapes a and b, from `loc` to `loc + scale`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> cdf(0.5, 2.0, 2.0).item()
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
    known,
    log_of_density,
    log_of_shares,
    log_times,
    standard,
    within,
)


def _parts(
    function: str,
    x: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    loc: ArrayLike,
    scale: ArrayLike,
    clip: bool = False,
) -> tuple[Array, Array, Array, Array, Array]:
    """Whether x is in the support, (x - loc) / scale or a point inside, the rest."""
    z, scale, a, b = standard(f"beta.{function}", x, loc, scale, a=a, b=b)
    z = known(z, a, b)
    inside = and_(ops.ge(z, 0), ops.le(z, 1))
    if clip:
        return inside, ops.clamp(0, z, 1), a, b, scale
    return inside, select(or_(inside, ops.ne(z, z)), z, 0.5), a, b, scale


def _above(a: Array, b: Array, z: Array) -> Array:
    """The probability of more than z."""
    return special.betainc(b, a, sub(1, z))


@becomes_native
def logpdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the density at x."""
    inside, z, a, b, scale = _parts("logpdf", x, a, b, loc, scale)
    logs = add(
        log_times(sub(a, 1), ops.log(z)), log_times(sub(b, 1), ops.log1p(neg(z)))
    )
    direct = sub(logs, special.betaln(a, b))
    value = log_of_density(special.beta_pdf(a, b, z), direct)
    return within(inside, sub(value, ops.log(scale)), -math.inf)


@becomes_native
def pdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The density at x."""
    inside, z, a, b, scale = _parts("pdf", x, a, b, loc, scale)
    return within(inside, ops.div(special.beta_pdf(a, b, z), scale), 0.0)


@becomes_native
def cdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The probability of at most x."""
    _, z, a, b, _ = _parts("cdf", x, a, b, loc, scale, clip=True)
    return special.betainc(a, b, z)


@becomes_native
def logcdf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the probability of at most x."""
    _, z, a, b, _ = _parts("logcdf", x, a, b, loc, scale, clip=True)
    return log_of_shares(special.betainc, _above, a, b, z)


@becomes_native
def sf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The probability of more than x."""
    _, z, a, b, _ = _parts("sf", x, a, b, loc, scale, clip=True)
    return _above(a, b, z)


@becomes_native
def logsf(
    x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the probability of more than x."""
    _, z, a, b, _ = _parts("logsf", x, a, b, loc, scale, clip=True)
    return log_of_shares(_above, special.betainc, a, b, z)
