"""The chi-squared distribution of `df` degrees of freedom.

Receives arrays or scalars, which are promoted to floating point and broadcast with the
parameters; gives an array.

>>> round(sf(2.0, 2.0).item(), 4)
0.3679
"""

from __future__ import annotations

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops.arithmetic import mul
from fnx.scipy.stats import gamma
from fnx.scipy.stats.support import arrays


def _as_gamma(
    function: str, df: ArrayLike, loc: ArrayLike, scale: ArrayLike
) -> tuple[ArrayLike, ...]:
    """It is a gamma distribution of shape df / 2, `loc`, and twice the scale."""
    df, scale = arrays(f"chi2.{function}", df=df, scale=scale)
    return mul(df, 0.5), loc, mul(scale, 2)


@becomes_native
def logpdf(
    x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the density at x."""
    return gamma.logpdf(x, *_as_gamma("logpdf", df, loc, scale))


@becomes_native
def pdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The density at x."""
    return gamma.pdf(x, *_as_gamma("pdf", df, loc, scale))


@becomes_native
def cdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of at most x."""
    return gamma.cdf(x, *_as_gamma("cdf", df, loc, scale))


@becomes_native
def logcdf(
    x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the probability of at most x."""
    return gamma.logcdf(x, *_as_gamma("logcdf", df, loc, scale))


@becomes_native
def sf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The probability of more than x."""
    return gamma.sf(x, *_as_gamma("sf", df, loc, scale))


@becomes_native
def logsf(
    x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1
) -> Array:
    """The logarithm of the probability of more than x."""
    return gamma.logsf(x, *_as_gamma("logsf", df, loc, scale))
