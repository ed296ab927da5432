"""The logarithm of the gamma function and its derivative: lgamma, digamma.

Positive arguments are moved by the recurrence into a unit interval with a polynomial,
or are large enough for Stirling's series; negative ones are reflected. The polynomials
are ours, by weighted Remez exchange at 50 digits, about the positive zeros, where they
keep relative accuracy; near the zeros between the negative poles only the absolute
error is small.
Receives and gives `Value`s of float32 or float64; next on the walk: `build.py`.
"""

from __future__ import annotations

import math

from fnx import dtypes
from fnx.kernel.math_log import log
from fnx.kernel.math_trig import sin_cos_pi
from fnx.kernel.math_value import (
    Coefficients,
    Value,
    fma,
    parts,
    polynomial,
    select,
)

# lgamma(2 + u)/u, |u| <= 1/2; relative error 2^-25.5,
# 2^-59.5.
_LGAMMA: Coefficients = {
    dtypes.float32: (
        4.227843422e-1,
        3.224669577e-1,
        -6.735323196e-2,
        2.058355446e-2,
        -7.366782284e-3,
        2.863440148e-3,
        -1.311602273e-3,
        6.055114252e-4,
    ),
    dtypes.float64: (
        4.2278433509846714e-1,
        3.22467033424113235e-1,
        -6.7352301053198312e-2,
        2.05808084277805675e-2,
        -7.38555102864972392e-3,
        2.89051033102379226e-3,
        -1.19275391275802133e-3,
        5.09669515674517148e-4,
        -2.23154735171889999e-4,
        9.94576700548942362e-5,
        -4.49265310662896128e-5,
        2.05056172363511589e-5,
        -9.43723712393623787e-6,
        4.38459041021001643e-6,
        -2.04975294637387339e-6,
        9.20313153309671219e-7,
        -4.20045639830401907e-7,
        2.78495962711041209e-7,
        -1.43293052028640311e-7,
    ),
}

# digamma(x)/(x - root) in x - 3/2, 1 <= x <= 2; relative error
# 2^-25.4, 2^-56.
_DIGAMMA: Coefficients = {
    dtypes.float32: (
        9.510558967e-1,
        -4.236274766e-1,
        2.40538386e-1,
        -1.483999775e-1,
        9.511757276e-2,
        -6.203989545e-2,
        3.936072221e-2,
        -2.587272086e-2,
        2.392653915e-2,
        -1.622095306e-2,
    ),
    dtypes.float64: (
        9.51055876031832893e-1,
        -4.23627421281460568e-1,
        2.40542484240773948e-1,
        -1.48404923053890187e-1,
        9.49887244549770855e-2,
        -6.19221332746867807e-2,
        4.07608338105761814e-2,
        -2.69757966915574345e-2,
        1.79072524875847227e-2,
        -1.19082194138020502e-2,
        7.92694392535384761e-3,
        -5.27994631955471163e-3,
        3.51901297437520528e-3,
        -2.34542034643321157e-3,
        1.55659467759726903e-3,
        -1.03684400956122773e-3,
        7.23452931761469452e-4,
        -4.84725493471082144e-4,
        2.26994970450248295e-4,
        -1.46984477584161667e-4,
        2.59875698953702431e-4,
        -1.76559087339152509e-4,
    ),
}

_DIGAMMA_ROOT = "1.46163214496836234126265954232572132846819620400644635129695"

# Stirling's series, B_2k / (2k (2k - 1)) and B_2k / 2k, in 1/x^2; from x = 9.5 and 10
# on the first term left out is below 2^-57 of the sum.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_LGAMMA_SERIES = [b / ((2 * k + 2) * (2 * k + 1)) for k, b in enumerate(_BERNOULLI)]
_DIGAMMA_SERIES = [b / (2 * k + 2) for k, b in enumerate(_BERNOULLI)]
_STIRLING_LGAMMA: Coefficients = {
    dtypes.float32: _LGAMMA_SERIES[:3],
    dtypes.float64: _LGAMMA_SERIES,
}
_STIRLING_DIGAMMA: Coefficients = {
    dtypes.float32: _DIGAMMA_SERIES[:3],
    dtypes.float64: _DIGAMMA_SERIES,
}


def lgamma(x: Value) -> Value:
    """Logarithm of |gamma(x)|, at most 6 ulp for x > 0; infinite at 0, -1, -2, ..."""
    a = abs(x)
    negative = x < 0.0
    y = _lgamma_positive(select(negative, a + 1.0, a))
    sin, _ = sin_cos_pi(a)
    # gamma(-a) gamma(a + 1) = -pi / sin(pi a)
    reflected = -log(abs(sin) * (1 / math.pi)) - y
    y = select(negative, reflected, y)
    pole = (x <= 0.0) & x.op("trunc").equals(x)
    return select(pole, math.inf, y)


def _lgamma_positive(x: Value) -> Value:
    """By (t - 2) p(t - 2), t in [1.5, 2.5], plus or minus the log of a product.

    x < 1.5 moves up by 1 or 2, 2.5 < x < 9.5 moves down; beyond is Stirling's series.
    """
    one = x.like(1.0)
    low, lowest, large = x < 1.5, x < 0.5, x >= 9.5
    t, product = x, one
    for _ in range(7):
        step = t > 2.5
        t = select(step, t - 1.0, t)
        product = select(step, product * t, product)
    # Upwards u = t - 2 is x - 1 or x: exact, which x + 1 might not be.
    u = select(lowest, x, select(low, x - 1.0, t - 2.0))
    product = select(lowest, fma(x, x, x), select(low, x, product))
    logarithm = log(select(large, x, product))
    near = fma(u, polynomial(u, _LGAMMA), select(low, -logarithm, logarithm))
    inverse = 1.0 / x
    series = inverse * polynomial(inverse * inverse, _STIRLING_LGAMMA)
    # log(2 pi)/2 - 1/2
    series = series + 0.41893853320467274178
    far = fma(x - 0.5, logarithm - 1.0, series)
    return select(x < math.inf, select(large, far, near), x)


def digamma(x: Value) -> Value:
    """The derivative of lgamma, at most 8 ulp for x > 0; NaN at -1, -2, ..."""
    a = abs(x)
    negative = x < 0.0
    y = _digamma_positive(select(negative, a + 1.0, a))
    sin, cos = sin_cos_pi(a)
    # digamma(-a) = digamma(1 + a) + pi cot(pi a)
    y = select(negative, y + math.pi * (cos / sin), y)
    pole = negative & x.op("trunc").equals(x)
    y = select(pole, math.nan, y)
    # The limits from either side of 0.
    return select(x.equals(0.0), (-x.like(math.inf)).copysign(-x), y)


def _digamma_positive(x: Value) -> Value:
    """By a polynomial about its root on [1, 2], extended to (0, 3) by one step of
    digamma(x + 1) = digamma(x) + 1/x, else ten steps up to the asymptotic series.
    """
    below, above = x < 1.0, x > 2.0
    t = select(below, x + 1.0, select(above, x - 1.0, x))
    root, root_low = parts(_DIGAMMA_ROOT, x.dtype)
    near = ((t - root) - root_low) * polynomial(t - 1.5, _DIGAMMA)
    step = 1.0 / select(below, x, t)
    near = near + select(below, -step, select(above, step, 0.0))
    # top/bottom = 1/x + ... + 1/(x + 9)
    top, bottom = x.like(1.0), x
    for i in range(1, 10):
        factor = x + float(i)
        top, bottom = fma(top, factor, bottom), bottom * factor
    shift = x < 10.0
    far = select(shift, x + 10.0, x)
    inverse = 1.0 / far
    square = inverse * inverse
    series = fma(square, polynomial(square, _STIRLING_DIGAMMA), 0.5 * inverse)
    far = log(far) - (series + select(shift, top / bottom, 0.0))
    return select(x < 3.0, near, far)
