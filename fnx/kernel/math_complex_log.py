"""Logarithms, powers and inverse functions of complex numbers.

The real part of a logarithm is half of log(re^2 + im^2), with the sum of squares as a
pair of numbers, so that nothing is lost where it is near 1. The inverse functions are
Kahan's formulas, which do not cancel on any side of their cuts. Receives and gives
pairs; next on the walk: `fnx/kernel/build.py`.
"""

from __future__ import annotations

import math

from fnx.kernel import math_log, math_trig
from fnx.kernel.math_complex import (
    INF,
    SQUARES,
    Pair,
    choose,
    div,
    exp,
    is_infinite,
    mul,
    one,
    scaled_for_squares,
    sqrt,
)
from fnx.kernel.math_value import Value, fast_two_sum, fma, select, two_product, two_sum


def _angle(z: Pair) -> Value:
    return math_trig.atan2(z.im, z.re)


def log(z: Pair) -> Pair:
    """Log |z| + i arg z; -inf at 0."""
    scaled, back = scaled_for_squares(z)
    a, b = abs(scaled.re), abs(scaled.im)
    large, small = a.op("max", b), a.op("min", b)
    square, square_low = two_product(large, large)
    other, other_low = two_product(small, small)
    total, total_low = fast_two_sum(square, other)
    low = total_low + (square_low + other_low)
    # Near 1 the logarithm is the distance from 1, of which no bit may be lost.
    rest, rest_low = two_sum(square - 1.0, other)
    near = (total > 0.5) & (total < 2.0)
    u, u_low = two_sum(total.like(1.0), rest)
    u_low = u_low + (rest_low + (square_low + other_low))
    _, down, _, up = SQUARES[z.re.dtype]
    extra = select(back < 1.0, back.like(-2 * math.log2(up)), 0.0)
    extra = select(back > 1.0, -2 * math.log2(down), extra)
    half = math_log.log_of_pair(select(near, u, total), select(near, u_low, low), extra)
    re = math_log.special(large, half * 0.5, 0.0)
    return Pair(select(is_infinite(z.re) | is_infinite(z.im), INF, re), _angle(z))


def log1p(z: Pair) -> Pair:
    """log(1 + z): near 0 from 2 re + re^2 + im^2, summed as a pair."""
    moved = Pair(z.re + 1.0, z.im)
    away = log(moved)
    near = z.size() < 1.0
    x = Pair(select(near, z.re, 0.0), select(near, z.im, 0.0))
    square, square_low = two_product(x.re, x.re)
    other, other_low = two_product(x.im, x.im)
    first, first_low = two_sum(x.re + x.re, square)
    total, total_low = two_sum(first, other)
    low = (total_low + first_low) + (square_low + other_low)
    u, u_low = two_sum(total.like(1.0), total)
    near &= u > 0.25
    half = math_log.log_of_pair(select(near, u, 1.0), u_low + low)
    re = select(near, half * 0.5, away.re)
    tiny = z.size() < 2.0 ** -(z.re.format.fraction_bits + 2)
    return Pair(select(tiny, fma(z.im * 0.5, z.im, z.re), re), away.im)


def pow(x: Pair, p: Pair) -> Pair:
    """e^(p log x); 1 for p = 0, and at x = 0 it is 0 for positive p, else NaN."""
    power = exp(mul(p, log(x)))
    zero = x.re.equals(0.0) & x.im.equals(0.0)
    at_zero = select(p.re > 0.0, p.re.like(0.0), math.nan)
    power = choose(zero, Pair(at_zero, at_zero), power)
    return choose(p.re.equals(0.0) & p.im.equals(0.0), one(x), power)


# ---------------------------------------------------------------- inverse functions


def _cross(x: Pair, y: Pair) -> Value:
    """The imaginary part of conj(x) y."""
    return x.re * y.im - x.im * y.re


def _roots(z: Pair) -> tuple[Pair, Pair]:
    """sqrt(1 - z) and sqrt(1 + z)."""
    below = Pair(1.0 - z.re, -z.im)
    return sqrt(below), sqrt(Pair(1.0 + z.re, z.im))


def _is_endless(z: Pair) -> Value:
    """Whether a part is infinite, also beside a NaN."""
    return is_infinite(z.re) | is_infinite(z.im)


def _near(z: Pair) -> tuple[Pair, Value]:
    """A number of which twice the modulus is a number, and what that takes from log."""
    huge = z.size() > 2.0 ** (z.re.format.bias - 2)
    scaled = z.times(select(huge, z.re.like(1 / 16), 1.0))
    return scaled, select(huge, z.re.like(math.log(16)), 0.0)


def _is_tiny(z: Pair) -> Value:
    """Whether z^2 does not count beside 1."""
    return z.size() < 2.0 ** -(z.re.format.fraction_bits // 2 + 2)


def asin(z: Pair) -> Pair:
    """The arc sine; cut along the reals beyond -1 and 1."""
    scaled, left = _near(z)
    minus, plus = _roots(scaled)
    endless = _is_endless(z)
    run = minus.re * plus.re - minus.im * plus.im
    re = math_trig.atan2(scaled.re, select(endless, abs(z.im), run))
    im = math_log.asinh(_cross(minus, plus))
    im = select(endless, z.im.like(INF), abs(im) + left).copysign(z.im)
    return Pair(select(z.re.equals(0.0), z.re, re), select(_is_tiny(z), z.im, im))


def acos(z: Pair) -> Pair:
    """The arc cosine; cut as the arc sine."""
    scaled, left = _near(z)
    minus, plus = _roots(scaled)
    endless = _is_endless(z)
    rise, run = select(endless, abs(z.im), minus.re), select(endless, z.re, plus.re)
    re = math_trig.atan2(rise, run) * select(endless, z.re.like(1.0), 2.0)
    im = math_log.asinh(_cross(plus, minus))
    im = select(endless, z.im.like(INF), abs(im) + left).copysign(-z.im)
    re = select(z.re.equals(0.0), math.pi / 2, re)
    return Pair(re, select(_is_tiny(z), -z.im, im))


def acosh(z: Pair) -> Pair:
    """The inverse of cosh with a real part of at least 0; cut along the reals below 1.

    It is the arc cosine, turned by a quarter to one side or the other.
    """
    other = acos(z)
    re = select(other.im.differs(other.im), other.im, abs(other.im))
    return Pair(re, other.re.copysign(z.im))


def asinh(z: Pair) -> Pair:
    """-i asin(iz)."""
    return asin(z.turned()).turned_back()


def atanh(z: Pair) -> Pair:
    """log((1 + z) / (1 - z)) / 2; cut along the reals beyond -1 and 1."""
    x, y = abs(z.re), abs(z.im)
    endless = _is_endless(z)
    far = endless | (z.size() > 2.0 ** (z.re.format.bias // 4))
    a, b = select(far, 0.0, x), select(far, 0.0, y)
    below = 1.0 - a
    distance = fma(below, below, b * b)
    # Beside the pole the square vanishes: there log1p(4 / b^2) / 4 is log(2 / b) / 2.
    beside = below.equals(0.0) & (b > 0.0) & (b < 2.0**-30)
    re = math_log.log1p(4.0 * a / distance) * 0.25
    re = select(beside, (math.log(2) - math_log.log(b)) * 0.5, re)
    angle = math_trig.atan2(b + b, fma(below, 1.0 + a, -(b * b))) * 0.5
    inverse = div(one(z), Pair(x, y))
    re = select(far, select(endless, 0.0, inverse.re), re)
    angle = select(far, select(y.equals(y), math.pi / 2, y), angle)
    re = select(x.equals(0.0), 0.0, re)
    return Pair(re.copysign(z.re), angle.copysign(z.im))


def atan(z: Pair) -> Pair:
    """-i atanh(iz)."""
    return atanh(z.turned()).turned_back()
