"""The exponential family: exp, exp2, expm1, sinh, cosh, tanh, logistic.

All reduce x = n*ln2 + r, |r| <= ln2/2 (Cody and Waite), take a minimax polynomial of r
and scale by 2^n through the exponent bits. The polynomials are ours: weighted Remez
exchange at 50 digits, coefficients rounded to the format; each table says its interval
and error. Receives and gives `Value`s of float32 or float64; next on the walk:
`math_log.py`.
"""

from __future__ import annotations

from fnx import dtypes
from fnx.kernel.math_value import (
    LN2,
    LOG2_E,
    Coefficients,
    Value,
    at_most,
    clamp,
    fma,
    parts,
    polynomial,
    quotient,
    select,
)

# (expm1(r) - r) / r^2 on |r| <= ln2/2; error relative to expm1(r): 2^-26.2, 2^-55.6.
_EXPM1: Coefficients = {
    dtypes.float32: (
        4.999999812e-1,
        1.666654319e-1,
        4.166720547e-2,
        8.366581502e-3,
        1.388236667e-3,
    ),
    dtypes.float64: (
        5.00000000000000523e-1,
        1.66666666666665886e-1,
        4.16666666665761076e-2,
        8.33333333338996143e-3,
        1.38888889317956737e-3,
        1.98412697183287803e-4,
        2.48015049779348799e-5,
        2.75574078793015913e-6,
        2.76261618150319699e-7,
        2.50537717780417012e-8,
    ),
}

# (2^r - 1) / r on |r| <= 1/2; error relative to 2^r - 1: 2^-29, 2^-58.
_EXP2: Coefficients = {
    dtypes.float32: (
        6.931472063e-1,
        2.402265135e-1,
        5.550327573e-2,
        9.618003024e-3,
        1.3400373e-3,
        1.54765117e-4,
    ),
    dtypes.float64: (
        6.93147180559945308e-1,
        2.40226506959101336e-1,
        5.55041086648217445e-2,
        9.61812910759311898e-3,
        1.33335581463784299e-3,
        1.54035304583931174e-4,
        1.52527338680829608e-5,
        1.32154346422550644e-6,
        1.01780462503684103e-7,
        7.07389288974030716e-9,
        4.4574171192622398e-10,
    ),
}

# Below the first exp is 0, above the second infinite (for exp2: the powers of 2).
_EXP_RANGE = {dtypes.float32: (-104.0, 89.0), dtypes.float64: (-746.0, 710.0)}
EXP2_RANGE = {dtypes.float32: (-151.0, 129.0), dtypes.float64: (-1076.0, 1025.0)}
# From here on sinh and cosh are infinite.
_SINH_LIMIT = {dtypes.float32: 89.5, dtypes.float64: 710.6}


def scale(y: Value, shifted: Value) -> Value:
    """Scale y by 2^n, for any n so that a result may be subnormal or overflow.

    `shifted` is n + `exponent_shifter`: n plus twice the bias sits in its low bits. Two
    factors of about 2^(n/2) are needed, as 2^n itself may not be a normal number.
    """
    f = y.format
    biased = shifted.word()
    half = biased >> 1
    first = (half << f.fraction_bits).as_float(f)
    second = ((biased - half) << f.fraction_bits).as_float(f)
    return (y * first) * second


def exponent_shifter(x: Value) -> float:
    """Adding it rounds to an integer n and prepares n for `scale`."""
    return x.format.shifter + 2 * x.format.bias


def exp_reduce(x: Value, x_low: Value | None = None) -> tuple[Value, Value]:
    """(r, n for `scale`): x + x_low = n*ln2 + r, for x in the range of exponents."""
    shifter = exponent_shifter(x)
    ln2, ln2_low = parts(LN2, x.dtype)
    shifted = fma(x, parts(LOG2_E, x.dtype)[0], shifter)
    n = shifted - shifter
    high = fma(n, -ln2, x)
    if x_low is None:
        return fma(n, -ln2_low, high), shifted
    return high + fma(n, -ln2_low, x_low), shifted


def exp_tail(r: Value) -> Value:
    """e^r - 1 for |r| <= ln2/2, within 2 ulp: to be added to something larger."""
    return r * fma(r, polynomial(r, _EXPM1), 1.0)


def exp_parts(x: Value, low: float, high: float) -> tuple[Value, Value]:
    """(y, n for `scale`): e^x = y * 2^n, for x brought into a range."""
    r, shifted = exp_reduce(clamp(x, low, high))
    return fma(r, fma(r, polynomial(r, _EXPM1), 1.0), 1.0), shifted


def exp(x: Value) -> Value:
    """e^x: 1 + r + r^2 q(r), at most 1 ulp."""
    return scale(*exp_parts(x, *_EXP_RANGE[x.dtype]))


def exp2(x: Value) -> Value:
    """2^x: here r = x - n is exact; at most 1 ulp, exact for integers."""
    shifter = exponent_shifter(x)
    x = clamp(x, *EXP2_RANGE[x.dtype])
    shifted = x + shifter
    return scale(exp2_of_fraction(x - (shifted - shifter)), shifted)


def exp2_of_fraction(r: Value) -> Value:
    """2^r for |r| <= 1/2."""
    return fma(r, polynomial(r, _EXP2), 1.0)


def _expm1_scaled(x: Value, exponent: int) -> Value:
    """(e^x - 1) * 2^exponent for an x where 2^(n + exponent) is a normal number.

    With s = 2^(n + exponent): s*r + (s - 2^exponent) is rounded once, s*(r^2 q(r)) and
    the low part of r come last, so that cancellation (n = 1) costs nothing.
    """
    f = x.format
    shifter = f.shifter + f.bias + exponent
    ln2, ln2_low = parts(LN2, x.dtype)
    shifted = fma(x, parts(LOG2_E, x.dtype)[0], shifter)
    n = shifted - shifter
    high, low = fma(n, -ln2, x), n * -ln2_low
    r = high + low
    curved = fma(r * r, polynomial(r, _EXPM1), low)
    s = (shifted.word() << f.fraction_bits).as_float(f)
    return fma(s, curved, fma(s, high, s - 2.0**exponent))


def _tiny_as_is(x: Value, y: Value) -> Value:
    """`x` where f(x) = x + O(x^2) rounds to x (keeps -0.0 and subnormals), else `y`."""
    return select(abs(x) < 2.0 ** -(x.format.fraction_bits + 2), x, y)


def expm1(x: Value) -> Value:
    """e^x - 1, accurate near 0; at most 1.5 ulp."""
    limit = _EXP_RANGE[x.dtype][1]
    clamped = clamp(x, -limit / 2, limit)
    # Half of it first: 2^n may overflow where the result does not.
    half = _expm1_scaled(clamped, -1)
    return _tiny_as_is(x, half + half)


def sinh(x: Value) -> Value:
    """Hyperbolic sine: (t + t/(t + 1)) / 2 with t = e^|x| - 1; at most 2 ulp."""
    quarter = _expm1_scaled(at_most(abs(x), _SINH_LIMIT[x.dtype]), -2)
    t = 4.0 * quarter
    divisor = t + 1.0
    falling = quotient(quarter, divisor, t - (divisor - 1.0))
    # t/(t + 1) is 1 where t overflows, and so small that it does not count.
    falling = select(t > 2.0**60, 0.0, falling)
    return _tiny_as_is(x, (2.0 * (quarter + falling)).copysign(x))


def cosh(x: Value) -> Value:
    """Hyperbolic cosine: (e^|x| + e^-|x|) / 2; at most 2 ulp."""
    quarter = _expm1_scaled(at_most(abs(x), _SINH_LIMIT[x.dtype]), -2) + 0.25
    return 2.0 * (quarter + 0.0625 / quarter)


def tanh(x: Value) -> Value:
    """Hyperbolic tangent: t / (t + 2), t = e^(2|x|) - 1; at most 2 ulp.

    It is 1 from 10 or 20 on. t is made as in `_expm1_scaled`, but without the low part
    of ln2: n is positive, and the error n * ln2_low of r shrinks by 2/(t + 2).
    """
    f = x.format
    size = at_most(abs(x), 10.0 if x.dtype == dtypes.float32 else 20.0)
    double = size + size
    shifter = f.shifter + f.bias
    shifted = fma(double, parts(LOG2_E, x.dtype)[0], shifter)
    r = fma(shifted - shifter, -parts(LN2, x.dtype)[0], double)
    s = (shifted.word() << f.fraction_bits).as_float(f)
    t = fma(s, (r * r) * polynomial(r, _EXPM1), fma(s, r, s - 1.0))
    divisor = t + 2.0
    return quotient(t, divisor, t - (divisor - 2.0)).copysign(x)


def logistic(x: Value) -> Value:
    """1 / (1 + e^-x), through e^-|x| so that both tails are accurate; at most 2 ulp."""
    falling = exp(-abs(x))
    divisor = falling + 1.0
    top = select(x < 0.0, falling, 1.0)
    return quotient(top, divisor, falling - (divisor - 1.0))
