"""Logarithms, inverse hyperbolics and powers.

log, log2, log10, log1p, asinh, acosh, atanh, pow, cbrt and rsqrt.

All split x = m * 2^e, m in [sqrt(1/2), sqrt(2)), by integer arithmetic and use
log(m) = 2 atanh(s), s = (m - 1)/(m + 1), an odd series with a minimax polynomial.
log2, log10 and pow carry log(m) as a sum of two numbers, so that exact cases are exact
and a power is right to the last bit or two. Receives and gives `Value`s of float32 or
float64; next on the walk: `math_trig.py`.
"""

from __future__ import annotations

import math

from fnx import dtypes
from fnx.kernel.math_exp import EXP2_RANGE, exp2_of_fraction, exponent_shifter, scale
from fnx.kernel.math_value import (
    LN2,
    LOG2_E,
    LOG10_2,
    LOG10_E,
    TWO_THIRDS,
    Coefficients,
    Value,
    clamp,
    fast_two_sum,
    fma,
    parts,
    polynomial,
    select,
    two_product,
    two_sum,
)

# (2 atanh(s) - 2s) / s^3 in t = s^2, |s| <= 0.1717; error relative to 2s: 2^-29, 2^-58.
_LOG: Coefficients = {
    dtypes.float32: (6.666677671e-1, 3.997749563e-1, 2.987308422e-1),
    dtypes.float64: (
        6.66666666666673472e-1,
        3.99999999994122658e-1,
        2.85714287430104668e-1,
        2.22221985000893115e-1,
        1.81835685981263479e-1,
        1.53139295369838996e-1,
        1.47972727203430905e-1,
    ),
}

# (2 atanh(s) - 2s - 2s^3/3) / s^5 in t = s^2; error relative to 2s: 2^-36, 2^-72.
_LOG_PAIR: Coefficients = {
    dtypes.float32: (4.000015248e-1, 2.854709551e-1, 2.341961027e-1),
    dtypes.float64: (
        3.99999999999999774e-1,
        2.85714285714451654e-1,
        2.2222222217520931e-1,
        1.81818188724665572e-1,
        1.53845567107904516e-1,
        1.33363239922189606e-1,
        1.16746784520562176e-1,
        1.19902238435084567e-1,
    ),
}


def _float_of_integer(word: Value, like: Value) -> Value:
    """A small unsigned integer as a float plus 2^fraction_bits, by setting bits.

    AVX2 has no conversion from 64-bit integers.
    """
    f = like.format
    return (word | ((f.bias + f.fraction_bits) << f.fraction_bits)).as_float(f)


def _split(x: Value) -> tuple[Value, Value, Value]:
    """(m, e, biased exponent word) of a positive normal number, x = m * 2^e."""
    f = x.format
    # The exponent field steps at sqrt(1/2) * 2^k instead of 2^k.
    root = int(f.dtype.type(math.sqrt(0.5)).view(f.word))
    one = f.bias << f.fraction_bits
    moved = x.word() + (one - root)
    biased = moved >> f.fraction_bits
    m = ((moved & ((1 << f.fraction_bits) - 1)) + root).as_float(f)
    return m, _float_of_integer(biased, x) - (2.0**f.fraction_bits + f.bias), biased


def _split_any(x: Value) -> tuple[Value, Value]:
    """(m, e) of a positive number that may be subnormal."""
    f = x.format
    subnormal = x < f.smallest_normal
    m, e, _ = _split(select(subnormal, x * 2.0**f.fraction_bits, x))
    return m, e - select(subnormal, x.like(float(f.fraction_bits)), 0.0)


def special(x: Value, y: Value, pole: float) -> Value:
    """The logarithm `y`, but -inf at the pole, NaN below; infinity and NaN stay."""
    y = select(x < math.inf, y, x)
    y = select(x < pole, math.nan, y)
    return select(x.equals(pole), -math.inf, y)


def _log_of_sum(f: Value, e: Value) -> Value:
    """e*ln2 + log(1 + f): f - s (f - t p(t)), as 2s = f - s f."""
    s = f / (f + 2.0)
    t = s * s
    curved = s * (f - t * polynomial(t, _LOG))
    ln2, ln2_low = parts(LN2, f.dtype)
    return fma(e, ln2, f - fma(e, -ln2_low, curved))


def log(x: Value) -> Value:
    """Natural logarithm, at most 1.5 ulp."""
    m, e = _split_any(x)
    return special(x, _log_of_sum(m - 1.0, e), 0.0)


def _log_of_one_plus(
    x: Value, x_low: Value | float, extra: Value | float = 0.0
) -> Value:
    """log((1 + x + x_low) * 2^extra) for x > -1, |x_low| <= ulp(x)."""
    u, u_low = two_sum(x.like(1.0), x)
    return log_of_pair(u, u_low + x_low, extra)


def log_of_pair(u: Value, u_low: Value, extra: Value | float = 0.0) -> Value:
    """log((u + u_low) * 2^extra) for a normal u > 0, |u_low| <= a few ulp(u)."""
    f = u.format
    m, e, biased = _split(u)
    # What rounding lost enters at m's scale. Twice 2^-e is a number (or 0) for every e.
    inverse = (((2 * f.bias + 1) - biased) << f.fraction_bits).as_float(f)
    return _log_of_sum(fma(u_low * inverse, 0.5, m - 1.0), e + extra)


def log1p(x: Value) -> Value:
    """log(1 + x), accurate near 0; at most 1.5 ulp."""
    y = special(x, _log_of_one_plus(x, 0.0), -1.0)
    return select(x.equals(0.0), x, y)


# --- inverse hyperbolics: arguments of log1p as sums of two numbers -----------


def _large(x: Value) -> Value:
    """Is x + 1 so close to x that the logarithm may take x?"""
    return x > 2.0 ** (x.format.fraction_bits + 2)


def asinh(x: Value) -> Value:
    """log1p(a + a^2 / (1 + sqrt(1 + a^2))) with a = |x|; at most 2 ulp."""
    a = abs(x)
    large = _large(a)
    square = a * a
    w, w_low = fast_two_sum(a, square / ((square + 1.0).op("sqrt") + 1.0))
    extra = select(large, x.like(1.0), 0.0)
    y = _log_of_one_plus(select(large, a, w), select(large, 0.0, w_low), extra)
    return select(a < math.inf, y, a).copysign(x)


def acosh(x: Value) -> Value:
    """log1p(t + sqrt(2t + t^2)) with t = x - 1; at most 2 ulp."""
    large = _large(x)
    t = x - 1.0
    square = fma(t, t, t + t)
    root = square.op("sqrt")
    root_low = select(root > 0.0, fma(-root, root, square) * (0.5 / root), 0.0)
    w, w_low = fast_two_sum(root, t)
    w_low = w_low + root_low
    extra = select(large, x.like(1.0), 0.0)
    y = _log_of_one_plus(select(large, x, w), select(large, 0.0, w_low), extra)
    return select(x < 1.0, math.nan, select(x < math.inf, y, x))


def atanh(x: Value) -> Value:
    """log1p(2a / (1 - a)) / 2 with a = |x|; at most 2 ulp."""
    a = abs(x)
    divisor = 1.0 - a
    divisor_low = (1.0 - divisor) - a
    reciprocal = 1.0 / divisor
    w = (a + a) * reciprocal
    rest = fma(-w, divisor_low, fma(-w, divisor, a + a))
    y = 0.5 * _log_of_one_plus(w, rest * reciprocal)
    y = select(a < 1.0, y, select(a.equals(1.0), x.like(math.inf), math.nan))
    return y.copysign(x)


# --- logarithms as sums of two numbers ----------------------------------------


def _log_pair(m: Value) -> tuple[Value, Value]:
    """log(m) for m in [sqrt(1/2), sqrt(2)) to twice the precision, less a few bits.

    s as a pair by one division and its remainder; of the series 2s + 2s^3/3 + s^5 p(t)
    the last term is small enough for one number.
    """
    f = m - 1.0
    d, d_low = fast_two_sum(m.like(1.0), m)
    reciprocal = 1.0 / d
    s = f * reciprocal
    s_low = fma(-s, d_low, fma(-s, d, f)) * reciprocal
    t, t_low = two_product(s, s)
    t_low = fma(s + s, s_low, t_low)
    third, third_low = parts(TWO_THIRDS, m.dtype)
    p, p_low = fast_two_sum(m.like(third), fma(t, polynomial(t, _LOG_PAIR), third_low))
    cube, cube_low = two_product(s, t)
    cube_low = fma(s, t_low, fma(s_low, t, cube_low))
    v, v_low = two_product(cube, p)
    v_low = fma(cube, p_low, fma(cube_low, p, v_low))
    high, low = fast_two_sum(s + s, v)
    return fast_two_sum(high, low + (s_low + s_low + v_low))


def _times(high: Value, low: Value, digits: str) -> tuple[Value, Value]:
    """A pair times a number of 60 digits."""
    c, c_low = parts(digits, high.dtype)
    product, rest = two_product(high, c)
    return product, fma(high, c_low, fma(low, c, rest))


def _log2_pair(x: Value) -> tuple[Value, Value]:
    """log2 of a positive finite number."""
    m, e = _split_any(x)
    high, low = _times(*_log_pair(m), LOG2_E)
    high, rest = fast_two_sum(e, high)
    return high, rest + low


def log2(x: Value) -> Value:
    """Binary logarithm, at most 0.6 ulp, exact for powers of 2."""
    high, low = _log2_pair(x)
    return special(x, high + low, 0.0)


def log10(x: Value) -> Value:
    """Decimal logarithm, at most 0.6 ulp, exact for powers of 10."""
    m, e = _split_any(x)
    high, low = _times(*_log_pair(m), LOG10_E)
    scaled, scaled_low = _times(e, x.like(0.0), LOG10_2)
    total, rest = two_sum(scaled, high)
    return special(x, total + (rest + (low + scaled_low)), 0.0)


# --- powers -------------------------------------------------------------------

# |y| beyond which |x|^y is 0, 1 or infinite for every x.
_POW_EXPONENT = {dtypes.float32: 2.0**40, dtypes.float64: 2.0**70}


def pow(x: Value, y: Value) -> Value:
    """x^y = 2^(y log2 |x|) with the product as a pair; at most 1.5 ulp.

    Signs and special values are those of IEEE 754: 1 for y = 0 and for x = 1 whatever
    the other is, NaN for negative x and fractional y, the sign of x for odd y.
    """
    size = abs(x)
    high, low = _log2_pair(size)
    finite = size < math.inf
    high = select(size.equals(0.0), -math.inf, select(finite, high, size))
    limit = _POW_EXPONENT[x.dtype]
    exponent = clamp(y, -limit, limit)
    product, rest = two_product(exponent, high)
    clamped = clamp(product, *EXP2_RANGE[x.dtype])
    rest = select(clamped.equals(product), fma(exponent, low, rest), 0.0)
    shifter = exponent_shifter(x)
    shifted = clamped + shifter
    fraction = (clamped - (shifted - shifter)) + rest
    power = scale(exp2_of_fraction(fraction), shifted)
    return _pow_special(x, y, finite, power)


def _pow_special(x: Value, y: Value, finite: Value, power: Value) -> Value:
    integral = y.op("trunc").equals(y)
    half = y * 0.5
    odd = integral & half.op("trunc").differs(half)
    power = select(odd, power.copysign(x), power)
    no_power = (x < 0.0) & finite & ~integral
    power = select(no_power, math.nan, power)
    return select(y.equals(0.0) | x.equals(1.0), 1.0, power)


# x^(-1/3) on [2^-1.5, 2^1.5], relative error 2^-5.9: the start of Newton's method.
_CBRT_START = (1.749482644, -1.188691069, 5.18934484e-1, -8.146369373e-2)
_CBRT: Coefficients = {dtypes.float32: _CBRT_START, dtypes.float64: _CBRT_START}


def cbrt(x: Value) -> Value:
    """Cube root by Newton's method for r^(-1/3); at most 1 ulp, exact for cubes.

    |x| = r * 2^(3q); h = 1 - r y^3 is y's error, and y (1 + h/3 + 2h^2/9 + 14h^3/81)
    has the error h^4. The last step corrects c = r y^2 by its own remainder.
    """
    f = x.format
    a = abs(x)
    m, e = _split_any(a)
    shifted = fma(e, 1.0 / 3.0, f.shifter + f.bias)
    left = fma(shifted - (f.shifter + f.bias), -3.0, e)
    r = m * select(left > 0.5, 2.0, select(left < -0.5, x.like(0.5), 1.0))
    y = polynomial(r, _CBRT)
    for _ in range(1 if x.dtype == dtypes.float32 else 2):
        h = fma(-(r * y), y * y, 1.0)
        y = fma(y * h, fma(h, fma(h, 14.0 / 81.0, 2.0 / 9.0), 1.0 / 3.0), y)
    c = r * (y * y)
    square, square_low = two_product(c, c)
    rest = fma(-c, square_low, fma(-square, c, r))
    root = fma(rest * (y * y), 1.0 / 3.0, c)
    root = root * (shifted.word() << f.fraction_bits).as_float(f)
    root = select(a < math.inf, root, a)
    return select(x.equals(0.0), x, root.copysign(x))


def rsqrt(x: Value) -> Value:
    """1 / sqrt(x): two roundings, at most 1.5 ulp."""
    return 1.0 / x.op("sqrt")
