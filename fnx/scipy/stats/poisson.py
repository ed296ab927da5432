"""The Poisson distribution of mean `mu`, plus `loc`.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(pmf(0, 1.0).item(), 4)
0.3679
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
    arrays,
    is_whole,
    log_of_density,
    log_times,
    shifted,
    within,
)


def _parts(
    function: str, k: ArrayLike, mu: ArrayLike, loc: ArrayLike
) -> tuple[Array, Array, Array]:
    """Whether k is in the support, and k or 0 outside, and mu."""
    k, mu = shifted(f"poisson.{function}", k, loc, mu=mu)
    inside = and_(ops.ge(k, 0), is_whole(k))
    return inside, select(or_(inside, ops.ne(k, k)), k, 0), mu


@becomes_native
def logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The logarithm of the probability of k."""
    inside, k, mu = _parts("logpmf", k, mu, loc)
    direct = sub(sub(log_times(k, ops.log(mu)), mu), special.lgamma(add(k, 1)))
    value = log_of_density(special.gamma_pdf(add(k, 1), mu), direct)
    return within(inside, value, -math.inf)


@becomes_native
def pmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of k."""
    inside, k, mu = _parts("pmf", k, mu, loc)
    return within(inside, special.gamma_pdf(add(k, 1), mu), 0.0)


@becomes_native
def cdf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The probability of at most k."""
    k, mu = shifted("poisson.cdf", k, loc, mu=mu)
    inside = ops.ge(k, 0)
    floor = ops.floor(select(or_(inside, ops.ne(k, k)), k, 0))
    return within(inside, special.igammac(add(floor, 1), mu), 0.0)


@becomes_native
def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """The entropy in natural units, whatever `loc` is."""
    mu, _ = arrays("poisson.entropy", mu=mu, loc=loc)
    return special.poisson_entropy(mu, order=0)
