"""The arithmetic and the functions of complex numbers, as arithmetic of real ones.

Each function gets pairs of `Value`s and gives a pair, or a `Value` where the result is
real. Products are the textbook's, as NumPy's are; quotients, absolute values and roots
are scaled by powers of two, so that no square on the way overflows or vanishes; branch
cuts, signed zeros, infinities and NaN are those of C99's annex G. Results are accurate
relative to their modulus, within a few ulp. `complex.py` calls this file by the names
of the scalar table; next on the walk: `math_complex_log.py`.

Source: W. Kahan, "Branch cuts for complex elementary functions" (1987).
"""

from __future__ import annotations

import math

from fnx import dtypes
from fnx.kernel import math_exp, math_trig
from fnx.kernel.math_value import LN2, Value, fma, parts, select, two_product
from fnx.records import record

INF = math.inf


@record(eq=False)
class Pair:
    """A complex number: its real and its imaginary part."""

    re: Value
    im: Value

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.re - other.re, self.im - other.im)

    def __neg__(self) -> Pair:
        return Pair(-self.re, -self.im)

    def times(self, factor: Value | float) -> Pair:
        """Both parts times a real number."""
        return Pair(self.re * factor, self.im * factor)

    def turned(self) -> Pair:
        """The product with i, exactly."""
        return Pair(-self.im, self.re)

    def turned_back(self) -> Pair:
        """The product with -i, exactly."""
        return Pair(self.im, -self.re)

    def size(self) -> Value:
        """The larger one of the parts' absolute values."""
        return abs(self.re).op("max", abs(self.im))


def is_infinite(x: Value) -> Value:
    """Whether a real number is inf or -inf."""
    return abs(x).equals(INF)


def is_finite(x: Value) -> Value:
    """Whether a real number is neither infinite nor NaN."""
    return abs(x) < INF


def choose(condition: Value, x: Pair, y: Pair) -> Pair:
    """`x` where the condition holds, else `y`."""
    return Pair(select(condition, x.re, y.re), select(condition, x.im, y.im))


# ---------------------------------------------------------------- arithmetic


def add(x: Pair, y: Pair) -> Pair:
    """The sum."""
    return x + y


def sub(x: Pair, y: Pair) -> Pair:
    """The difference."""
    return x - y


def neg(x: Pair) -> Pair:
    """The negative."""
    return -x


def mul(x: Pair, y: Pair) -> Pair:
    """The product; an infinite operand beside zeros makes NaN, as in NumPy."""
    return Pair(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


def eq(x: Pair, y: Pair) -> Value:
    """Whether both parts are equal."""
    return x.re.equals(y.re) & x.im.equals(y.im)


def ne(x: Pair, y: Pair) -> Value:
    """Whether a part differs."""
    return x.re.differs(y.re) | x.im.differs(y.im)


# Beyond the first and below the third number Smith's quotient could overflow or lose
# bits; the second and fourth are the powers of two that bring numbers back from there.
_QUOTIENT = {
    dtypes.float32: (2.0**126, 2.0**-2, 2.0**-100, 2.0**40),
    dtypes.float64: (2.0**1022, 2.0**-2, 2.0**-900, 2.0**120),
}


def _factor(
    size: Value, big: float, down: float, small: float, up: float
) -> tuple[Value, Value]:
    """The power of two to scale numbers of this size by, and its reciprocal."""
    is_big, is_small = size > big, size < small
    factor = select(is_big, down, select(is_small, size.like(up), 1.0))
    return factor, select(is_big, 1 / down, select(is_small, size.like(1 / up), 1.0))


def div(x: Pair, y: Pair) -> Pair:
    """The quotient by Smith's method, of operands that are scaled where it would fail.

    A divisor of 0 divides both parts, by +0.
    """
    limits = _QUOTIENT[y.re.dtype]
    up, back = _factor(x.size(), *limits)
    down, _ = _factor(y.size(), *limits)
    x, y = x.times(up), y.times(down)
    wide = abs(y.re) >= abs(y.im)
    large, small = select(wide, y.re, y.im), select(wide, y.im, y.re)
    u, v = select(wide, x.re, x.im), select(wide, x.im, x.re)
    zero = large.equals(0.0)
    ratio = select(zero, 0.0, small / large)
    divisor = select(zero, abs(large), large + small * ratio)
    re = select(zero, u, u + v * ratio)
    im = select(wide, v, u * ratio) - select(wide, u * ratio, v)
    im = select(zero, v, im)
    return Pair(re / divisor, im / divisor).times(back * down)


# ---------------------------------------------------------------- sizes and roots

# As above, but even, and for numbers whose squares are added up.
SQUARES = {
    dtypes.float32: (2.0**60, 2.0**-66, 2.0**-60, 2.0**90),
    dtypes.float64: (2.0**500, 2.0**-600, 2.0**-500, 2.0**600),
}


def scaled_for_squares(z: Pair) -> tuple[Pair, Value]:
    """Z times a power of four, and what undoes that."""
    factor, back = _factor(z.size(), *SQUARES[z.re.dtype])
    return z.times(factor), back


def _modulus(z: Pair) -> Value:
    """The absolute value of a number whose squares are numbers."""
    a, b = abs(z.re), abs(z.im)
    large, small = a.op("max", b), a.op("min", b)
    root = fma(large, large, small * small).op("sqrt")
    return select(a.equals(INF) | b.equals(INF), INF, root)


def abs_(z: Pair) -> Value:
    """The absolute value, at most 1 ulp; infinite if a part is, also beside a NaN."""
    scaled, back = scaled_for_squares(z)
    return _modulus(scaled) * back


def sign(z: Pair) -> Pair:
    """Z / |z|, 0 at 0; where one part is infinite, that one's sign."""
    size = abs_(z)
    zero = z.re.like(0.0)
    none = size.equals(0.0)  # of either sign
    divisor = select(none, 1.0, size)
    re_ends, im_ends = is_infinite(z.re), is_infinite(z.im)
    re = select(im_ends, zero, z.re / divisor)
    im = select(re_ends, zero, z.im / divisor)
    re = select(re_ends, select(im_ends, math.nan, z.re.like(1.0).copysign(z.re)), re)
    im = select(im_ends, select(re_ends, math.nan, z.im.like(1.0).copysign(z.im)), im)
    return choose(none, Pair(zero, zero), Pair(re, im))


def sqrt(z: Pair) -> Pair:
    """The root in the right half-plane; the cut, the negative reals, as the zero of im
    has it.
    """
    scaled, back = scaled_for_squares(z)
    a, b = abs(scaled.re), abs(scaled.im)
    root = ((a + _modulus(scaled)) * 0.5).op("sqrt")
    other = select(root.equals(0.0), 0.0, b / (root + root))
    right = ~(z.re < 0.0)
    unscale = back.op("sqrt")
    re = select(right, root, other) * unscale
    im = select(right, other, root) * unscale
    endless = is_infinite(z.im)
    return Pair(select(endless, INF, re), select(endless, b, im).copysign(z.im))


def rsqrt(z: Pair) -> Pair:
    """1 / sqrt(z)."""
    return div(one(z), sqrt(z))


def one(z: Pair) -> Pair:
    """The number 1 in the dtype of another."""
    return Pair(z.re.like(1.0), z.re.like(0.0))


# ---------------------------------------------------------------- exponentials

# e^x times a sine is 0 below, infinite above, whatever the sine is (but for 0).
_WIDE = {dtypes.float32: 170.0, dtypes.float64: 1400.0}
# From here on sinh and cosh overflow, and are e^|x|/2.
_LARGE = {dtypes.float32: 88.0, dtypes.float64: 709.0}


def _exp_times(x: Value, c: Value, s: Value, share: float = 1.0) -> tuple[Value, Value]:
    """C e^x and s e^x, or a share of them, where e^x itself may overflow."""
    limit = _WIDE[x.dtype]
    y, shifted = math_exp.exp_parts(x, -limit, limit)
    y = select(x > limit, INF, y * share)
    return math_exp.scale(y * c, shifted), math_exp.scale(y * s, shifted)


def _cos_sin(x: Value) -> tuple[Value, Value]:
    return math_trig.cos(x), math_trig.sin(x)


def exp(z: Pair) -> Pair:
    """e^re (cos im + i sin im)."""
    re, im = _exp_times(z.re, *_cos_sin(z.im))
    lost = ~is_finite(z.im)  # where the angle is
    none, all_ = lost & z.re.equals(-INF), lost & z.re.equals(INF)
    re = select(none, 0.0, select(all_, INF, re))
    im = select(none, 0.0, im)
    return Pair(re, select(z.im.equals(0.0), z.im, im))


def exp2(z: Pair) -> Pair:
    """2^z = e^(z ln 2)."""
    power = math_exp.exp2(z.re)
    ln2, ln2_low = parts(LN2, z.re.dtype)
    angle, rest = two_product(z.im, ln2)
    cos, sin = _cos_sin(angle)
    rest = fma(z.im, ln2_low, rest)
    cos, sin = fma(-rest, sin, cos), fma(rest, cos, sin)
    lost = ~is_finite(z.im)
    none, all_ = lost & z.re.equals(-INF), lost & z.re.equals(INF)
    re = select(none, 0.0, select(all_, INF, power * cos))
    im = select(none, 0.0, power * sin)
    return Pair(re, select(z.im.equals(0.0), z.im, im))


def expm1(z: Pair) -> Pair:
    """One less than e^z: near 0 from expm1 of the real part and sin(im/2)^2."""
    whole = exp(z)
    half = math_trig.sin(z.im * 0.5)
    cos = math_trig.cos(z.im)
    near = fma(math_exp.expm1(z.re), cos, -2.0 * half * half)
    return Pair(select(abs(z.re) < 1.0, near, whole.re - 1.0), whole.im)


def logistic(z: Pair) -> Pair:
    """1 / (1 + e^-z), through e^z in the left half-plane, where e^-z may overflow."""
    left = z.re < 0.0
    falling = exp(choose(left, z, -z))
    return div(choose(left, falling, one(z)), one(z) + falling)


# ---------------------------------------------------------------- circles, hyperbolas


def _cosh_sinh(x: Value) -> tuple[Value, Value]:
    return math_exp.cosh(x), math_exp.sinh(x)


def sinh(z: Pair) -> Pair:
    """Sinh re cos im + i cosh re sin im."""
    (high, wide), (cos, sin) = _cosh_sinh(z.re), _cos_sin(z.im)
    far, (re, im) = _far_out(z, cos, sin)
    re = select(far, select(z.re < 0.0, -re, re), wide * cos)
    im = select(far, im, high * sin)
    kept = is_infinite(z.re) | z.re.equals(0.0)
    re = select(kept & ~is_finite(z.im), z.re, re)
    return Pair(re, select(z.im.equals(0.0), z.im, im))


def cosh(z: Pair) -> Pair:
    """Cosh re cos im + i sinh re sin im."""
    (high, wide), (cos, sin) = _cosh_sinh(z.re), _cos_sin(z.im)
    far, (re, im) = _far_out(z, cos, sin)
    re = select(far, re, high * cos)
    im = select(far, select(z.re < 0.0, -im, im), wide * sin)
    endless = is_infinite(z.re) & ~is_finite(z.im)
    flat = z.re.equals(0.0) | z.im.equals(0.0)
    level = z.re.like(0.0).copysign(z.re) * z.re.like(1.0).copysign(sin)
    return Pair(select(endless, INF, re), select(flat, level, im))


def _far_out(z: Pair, cos: Value, sin: Value) -> tuple[Value, tuple[Value, Value]]:
    """Whether sinh and cosh may overflow, and e^|re|/2 times a cosine and a sine."""
    both = _exp_times(abs(z.re), cos, sin, 0.5)
    return abs(z.re) > _LARGE[z.re.dtype], both


# From here on tanh is 1.
_FLAT = {dtypes.float32: 10.0, dtypes.float64: 20.0}


def tanh(z: Pair) -> Pair:
    """(sinh re cosh re + i sin im cos im) / (sinh(re)^2 + cos(im)^2).

    Far out, where the squares overflow, it is 1 and 4 sin im cos im e^(-2 re).
    """
    flat = _FLAT[z.re.dtype]
    size = abs(z.re)
    high, wide = _cosh_sinh(select(size > flat, flat, size))
    cos, sin = _cos_sin(z.im)
    divisor = fma(wide, wide, cos * cos)
    known = is_finite(z.im) | is_infinite(z.re)
    falls = (math_exp.exp(size * -2.0) * 4.0) * (sin * cos)
    falls = select(is_finite(z.im), falls, z.im.like(0.0).copysign(z.im))
    far = (size > flat) & known
    re = select(far, 1.0, high * wide / divisor).copysign(z.re)
    im = select(far, falls, sin * cos / divisor)
    re = select(z.re.equals(0.0), z.re, re)
    return Pair(re, select(z.im.equals(0.0), z.im, im))


def sin(z: Pair) -> Pair:
    """-i sinh(iz)."""
    return sinh(z.turned()).turned_back()


def cos(z: Pair) -> Pair:
    """cosh(iz)."""
    return cosh(z.turned())


def tan(z: Pair) -> Pair:
    """-i tanh(iz)."""
    return tanh(z.turned()).turned_back()
