"""Circular functions and their inverses: sin, cos, tan, asin, acos, atan, atan2.

Angles are reduced to x = n*pi/2 + r, |r| <= pi/4, with pi/2 in three parts and fused
multiply-adds (Cody and Waite); the few that are too huge for that are left to
`math_huge.py`. sin, cos and tan of the same angle share everything but the last step.
The polynomials are ours: weighted Remez exchange at 50 digits. Receives and gives
`Value`s of float32 or float64; next on the walk: `math_special.py`.
"""

from __future__ import annotations

import math

from fnx import dtypes
from fnx.kernel.math_value import (
    HALF_PI,
    PI,
    TWO_OVER_PI,
    Coefficients,
    Value,
    chopped,
    fast_two_sum,
    fma,
    parts,
    polynomial,
    quotient,
    select,
    two_product,
    two_sum,
)

# (sin(r) - r) / r^3 in t = r^2, |r| <= pi/4; error relative to r: 2^-28, 2^-58.
_SIN: Coefficients = {
    dtypes.float32: (-1.666665491e-1, 8.332175824e-3, -1.951696988e-4),
    dtypes.float64: (
        -1.66666666666666319e-1,
        8.33333333332238204e-3,
        -1.98412698297790979e-4,
        2.75573136808647172e-6,
        -2.50507562306806205e-8,
        1.58966784542098252e-10,
    ),
}

# (cos(r) - 1 + r^2/2) / r^4 in t = r^2, |r| <= pi/4; absolute error 2^-33, 2^-64.
_COS: Coefficients = {
    dtypes.float32: (4.166664682e-2, -1.388736479e-3, 2.443810555e-5),
    dtypes.float64: (
        4.16666666666665992e-2,
        -1.38888888888740681e-3,
        2.4801587289444682e-5,
        -2.75573143408214007e-7,
        2.08757216269947695e-9,
        -1.13595587761534406e-11,
    ),
}

# (atan(z) - z) / z^3 in t = z^2, z <= 1; error relative to z: 2^-28.7, 2^-57.7.
_ATAN: Coefficients = {
    dtypes.float32: (
        -3.333330186e-1,
        1.999863855e-1,
        -1.426524502e-1,
        1.095757554e-1,
        -8.419459835e-2,
        5.823459568e-2,
        -3.145577123e-2,
        1.106448787e-2,
        -1.827224977e-3,
    ),
    dtypes.float64: (
        -3.33333333333330927e-1,
        1.99999999999554562e-1,
        -1.42857142828031739e-1,
        1.11111110136739441e-1,
        -9.09090711960725903e-2,
        7.6922811903950808e-2,
        -6.66641502450692337e-2,
        5.88059270454958405e-2,
        -5.25380618942474969e-2,
        4.72329544331801322e-2,
        -4.22172309539091833e-2,
        3.66936306118580385e-2,
        -2.99857271985333742e-2,
        2.20853357530463377e-2,
        -1.39951566337751393e-2,
        7.26347676996245073e-3,
        -2.9194034359079177e-3,
        8.43506575935126962e-4,
        -1.54801884997119283e-4,
        1.34897716002981893e-5,
    ),
}

# (asin(z) - z) / z^3 in t = z^2, z <= 1/2; error relative to z: 2^-31.7, 2^-59.8.
_ASIN: Coefficients = {
    dtypes.float32: (
        1.666665986e-1,
        7.500511541e-2,
        4.451557164e-2,
        3.181910639e-2,
        1.439603163e-2,
        3.757562729e-2,
    ),
    dtypes.float64: (
        1.6666666666666763e-1,
        7.49999999997010637e-2,
        4.46428571752796338e-2,
        3.03819426755559434e-2,
        2.2372215898705251e-2,
        1.73515956225557302e-2,
        1.39810171233618612e-2,
        1.13973042611108873e-2,
        1.07892599177749174e-2,
        3.67241079264889294e-3,
        2.17901109773553729e-2,
        -2.11159784211243154e-2,
        3.27017096067892529e-2,
    ),
}


def _odd_term(z: Value, coefficients: Coefficients) -> Value:
    """z^2 p(z^2), what an odd series z + z^3 p(z^2) adds relative to z.

    Made as t*p + 0: a zero z must not meet a correction of the other sign.
    """
    t = z * z
    return fma(t, polynomial(t, coefficients), 0.0)


def _odd_series(z: Value, coefficients: Coefficients) -> Value:
    """The sum z + z^3 p(z^2); a zero keeps its sign."""
    return fma(z, _odd_term(z, coefficients), z)


# --- sin, cos, tan ------------------------------------------------------------


def _reduce(x: Value) -> tuple[Value, Value]:
    """(r, q): x = n*pi/2 + r, r within an ulp, n in the low bits of the word q."""
    n, first, quadrant = _cut(x)
    _, b, c = chopped(HALF_PI, x.dtype, 3)
    return fma(n, -c, fma(n, -b, first)), quadrant


def _reduce_pair(x: Value) -> tuple[Value, Value, Value]:
    """(r, r_low, q) as of `_reduce`, with what rounding loses of r."""
    n, first, quadrant = _cut(x)
    _, b, c = chopped(HALF_PI, x.dtype, 3)
    product, product_low = two_product(n, b)
    r, r_low = two_sum(first, -product)
    r, r_low = two_sum(r, fma(n, -c, r_low - product_low))
    return r, r_low, quadrant


def _cut(x: Value) -> tuple[Value, Value, Value]:
    """(n, x - n*a exactly, q) with a the first part of pi/2.

    All parts are positive, so that a zero keeps its sign through n = +0.
    """
    f = x.format
    shifted = fma(x, parts(TWO_OVER_PI, x.dtype)[0], f.shifter)
    n = shifted - f.shifter
    return n, fma(n, -chopped(HALF_PI, x.dtype, 3)[0], x), shifted.word()


def _sin_cos(r: Value) -> tuple[Value, Value]:
    """Sine and cosine on [-pi/4, pi/4]."""
    t = r * r
    cos = fma(t * t, polynomial(t, _COS), fma(t, -0.5, 1.0))
    return _odd_series(r, _SIN), cos


def _at_quadrant(r: Value, quadrant: Value) -> Value:
    """sin(r + quadrant * pi/2): swap by the first bit, negate by the second."""
    f = r.format
    sin, cos = _sin_cos(r)
    size = select((quadrant & 1).differs(0), cos, sin)
    sign = (quadrant & 2) << (f.bits - 2)
    return (size.word() ^ sign).as_float(f)


def sin(x: Value) -> Value:
    """Sine, at most 2 ulp for every angle."""
    r, quadrant = _reduce(x)
    return x.op("sin_if_huge", _at_quadrant(r, quadrant))


def cos(x: Value) -> Value:
    """Cosine, the sine a quadrant on; at most 2 ulp for every angle."""
    r, quadrant = _reduce(x)
    return x.op("cos_if_huge", _at_quadrant(r, quadrant + 1))


def tan(x: Value) -> Value:
    """sin/cos, or -cos/sin in odd quadrants, both as pairs; at most 1.5 ulp."""
    f = x.format
    r, r_low, quadrant = _reduce_pair(x)
    t, t_low = two_product(r, r)
    tail = fma(r * t, polynomial(t, _SIN), r_low)
    sin, sin_low = fast_two_sum(r, tail)
    drop_low = fma(r, r_low, 0.5 * t_low)
    drop = fma(t * t, polynomial(t, _COS), fma(t, -0.5, -drop_low))
    cos, cos_low = fast_two_sum(r.like(1.0), drop)
    odd = (quadrant & 1).differs(0)
    top, bottom = select(odd, cos, sin), select(odd, sin, cos)
    top_low, bottom_low = select(odd, cos_low, sin_low), select(odd, sin_low, cos_low)
    size = quotient(top, bottom, bottom_low, top_low)
    sign = (quadrant & 1) << (f.bits - 1)
    y = x.op("tan_if_huge", (size.word() ^ sign).as_float(f))
    return select(abs(x) < 2.0 ** -(f.fraction_bits + 2), x, y)


def sin_cos_pi(x: Value) -> tuple[Value, Value]:
    """sin(pi x) up to sign and cos(pi x) with the same sign change; zeros are exact."""
    half = x - x.op("round")
    quadrant = (half * 2.0).op("round")
    sin, cos = _sin_cos(fma(quadrant, -0.5, half) * math.pi)
    turned = quadrant.differs(0.0)
    # A quarter turn either way: (sin, cos) becomes (q cos, -q sin).
    return (
        select(turned, quadrant * cos, sin),
        select(turned, -(quadrant * sin), cos),
    )


# --- inverses -----------------------------------------------------------------


def _asin_reduced(x: Value) -> tuple[Value, Value, Value]:
    """(z, term, was reduced): asin(z) = z + z * term.

    z = |x| up to 1/2, else sqrt((1 - |x|) / 2), as asin(a) = pi/2 - 2 asin(z) there;
    1 - a is exact.
    """
    a = abs(x)
    reduced = a > 0.5
    z = select(reduced, ((1.0 - a) * 0.5).op("sqrt"), a)
    return z, _odd_term(z, _ASIN), reduced


def asin(x: Value) -> Value:
    """Arc sine, at most 1.5 ulp; NaN outside [-1, 1]."""
    z, term, reduced = _asin_reduced(x)
    half_pi, half_pi_low = parts(HALF_PI, x.dtype)
    double = z + z
    far, far_low = fast_two_sum(x.like(half_pi), -double)
    far = far - fma(double, term, -half_pi_low - far_low)
    return select(reduced, far, fma(z, term, z)).copysign(x)


def acos(x: Value) -> Value:
    """Arc cosine, at most 1.5 ulp; NaN outside [-1, 1]."""
    z, term, reduced = _asin_reduced(x)
    y = fma(z, term, z)
    half_pi, half_pi_low = parts(HALF_PI, x.dtype)
    pi, pi_low = parts(PI, x.dtype)
    near = half_pi - (y.copysign(x) - half_pi_low)
    double = y + y
    far = select(x < 0.0, pi - (double - pi_low), double)
    return select(reduced, far, near)


def atan(x: Value) -> Value:
    """Arc tangent, by that of 1/|x| for |x| > 1; at most 2 ulp."""
    a = abs(x)
    steep = a > 1.0
    y = _odd_series(select(steep, 1.0 / a, a), _ATAN)
    half_pi, half_pi_low = parts(HALF_PI, x.dtype)
    return select(steep, half_pi - (y - half_pi_low), y).copysign(x)


def atan2(y: Value, x: Value) -> Value:
    """The angle of the point (x, y), in [-pi, pi]; at most 2 ulp.

    Zeros count with their signs and two infinities as equal, as in C.
    """
    rise, run = abs(y), abs(x)
    steep = rise > run
    small, large = select(steep, run, rise), select(steep, rise, run)
    z = select(large.equals(0.0), 0.0, small / large)
    z = select(small.equals(math.inf), 1.0, z)
    angle = _odd_series(z, _ATAN)
    half_pi, half_pi_low = parts(HALF_PI, x.dtype)
    angle = select(steep, half_pi - (angle - half_pi_low), angle)
    pi, pi_low = parts(PI, x.dtype)
    # The sign of x decides, also that of a zero.
    left = x.like(1.0).copysign(x) < 0.0
    angle = select(left, pi - (angle - pi_low), angle)
    nan = x.differs(x) | y.differs(y)
    return select(nan, math.nan, angle.copysign(y))
