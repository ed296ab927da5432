"""The formulas behind elementwise primitives that no library function computes.

Each is written twice: `f` in NumPy for `reference` rules, and `f_element` over the
kernel builder for compiled code, with the same roundings. A few are written in NumPy
only, where the scalar table has the compiled one. 16-bit floats come here widened.
Next on the walk: `parts.py` and `elementwise.py`, which give them names and rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.kernel.complex import Complex
from fnx.kernel.scalar import TABLE
from fnx.kernel.special import evaluate


def row(name: str) -> Callable[..., Any]:
    """The NumPy meaning of a row of the scalar table: it has our integer corners."""
    return TABLE[name].numpy


# ---------------------------------------------------------------- choices and bits


def compared_element(name: str) -> Callable[..., Any]:
    """A comparison of numbers, or of booleans as 0 and 1."""

    def compare(k: Any, x: Any, y: Any) -> Any:
        if dtypes.is_bool(x.dtype):
            x, y = k.convert(x, dtypes.uint8), k.convert(y, dtypes.uint8)
        return k.op(name, x, y)

    return compare


def extremum_element(name: str, logical: str) -> Callable[..., Any]:
    """The larger or smaller of two numbers; of booleans, `or` and `and`."""

    def choose(k: Any, x: Any, y: Any) -> Any:
        return k.op(logical if dtypes.is_bool(x.dtype) else name, x, y)

    return choose


def clamp(low: Any, x: Any, high: Any) -> Any:
    """The operand brought into [low, high]; `high` where the interval is empty."""
    return np.minimum(np.maximum(x, low), high)


def clamp_element(k: Any, low: Any, x: Any, high: Any) -> Any:
    """The same; NaN stays."""
    return k.min(k.max(x, low), high)


def sign_element(k: Any, x: Any) -> Any:
    """The sign as NumPy has it: that of -0.0 is 0, that of NaN is NaN."""
    if dtypes.is_complex(x.dtype):
        return k.op("sign", x)
    zero, one = k.constant(0, x.dtype), k.constant(1, x.dtype)
    positive = k.select(k.gt(x, zero), one, k.select(k.eq(x, zero), zero, x))
    if dtypes.is_unsigned(x.dtype):
        return positive
    return k.select(k.lt(x, zero), k.constant(-1, x.dtype), positive)


def nextafter_element(k: Any, x: Any, y: Any) -> Any:
    """One step up or down in the bits, which order floats of one sign."""
    integer = np.dtype(f"i{x.dtype.itemsize}")
    one, zero = k.constant(1, integer), k.constant(0.0, x.dtype)
    outward = k.eq(k.lt(x, y), k.lt(zero, x))
    step = k.select(outward, one, k.constant(-1, integer))
    moved = k.bitcast(k.add(k.bitcast(x, integer), step), x.dtype)
    smallest = k.bitcast(one, x.dtype)
    smallest = k.select(k.lt(y, zero), k.neg(smallest), smallest)
    moved = k.select(k.eq(x, zero), smallest, moved)
    moved = k.select(k.eq(x, y), y, moved)
    return k.select(k.or_(k.ne(x, x), k.ne(y, y)), k.add(x, y), moved)


def join(x: Any, y: Any) -> Any:
    """The complex number x + iy, part by part: 1j * inf would make a NaN."""
    z = np.empty(np.broadcast_shapes(x.shape, y.shape), dtypes.complex_dtype(x.dtype))
    z.real, z.imag = x, y
    return z


def join_element(k: Any, x: Any, y: Any) -> Any:
    """The same."""
    return Complex(x, y)


def conj_element(k: Any, z: Any) -> Any:
    """The conjugate of a complex number."""
    return Complex(z.re, k.neg(z.im))


# ---------------------------------------------------------------- quotients and powers

_divide_integers = row("div")


def divide(x: Any, y: Any) -> Any:
    """The quotient; of integers truncated toward zero, and 0 where y is 0."""
    if x.dtype.kind == "c":
        return _divide_complex(x, y)
    return np.divide(x, y) if x.dtype.kind == "f" else _divide_integers(x, y)


def _divide_complex(x: Any, y: Any) -> Any:
    """NumPy's, of numbers brought near 1: at the ends of the range it loses bits."""
    sizes = [np.maximum(np.abs(z.real), np.abs(z.imag)) for z in (x, y)]
    up, down = [np.frexp(size)[1] for size in sizes]
    return _scaled(np.divide(_scaled(x, -up), _scaled(y, -down)), up - down)


def _scaled(z: Any, exponent: Any) -> Any:
    """A complex number times a power of two."""
    return join(np.ldexp(z.real, exponent), np.ldexp(z.imag, exponent))


def integer_pow(x: Any, y: int) -> Any:
    """A power by repeated squaring; within |y|/2 ulp, or |y| ulp for negative y."""
    if y < 0:  # the power of 1/x: that of x might overflow where this is a number
        x, y = divide(np.ones_like(x), x), -y
    return _by_squaring(x, y, np.ones_like(x), np.multiply)


def integer_pow_element(k: Any, x: Any, y: int) -> Any:
    """The same products."""
    one = k.constant(1, x.dtype)
    if y < 0:
        x, y = k.div(one, x), -y
    return _by_squaring(x, y, one, k.mul)


def _by_squaring(x: Any, y: int, one: Any, multiply: Callable[..., Any]) -> Any:
    power = one
    for digit in reversed(f"{y:b}"):
        if digit == "1":
            power = x if power is one else multiply(power, x)
        x = multiply(x, x)
    return power


def wrapped_pow(x: Any, y: Any) -> Any:
    """An integer to integer powers; 1 / x^|y| toward zero for negative ones."""
    with np.errstate(over="ignore"):
        power = np.power(x, np.maximum(y, 0))
    if dtypes.is_unsigned(x.dtype):
        return power
    inverse = np.where(x == -1, 1 - 2 * (y & 1), x == 1)
    return np.where(y < 0, inverse, power).astype(x.dtype)


def wrapped_pow_element(k: Any, x: Any, y: Any) -> Any:
    """By repeated squaring over all bits of the exponent."""
    zero, one = k.constant(0, x.dtype), k.constant(1, x.dtype)
    power, square, bits = one, x, y
    for _ in range(8 * x.dtype.itemsize - (not dtypes.is_unsigned(x.dtype))):
        is_odd = k.ne(k.op("and", bits, one), zero)
        power = k.select(is_odd, k.mul(power, square), power)
        square, bits = k.mul(square, square), k.shr_logical(bits, one)
    if dtypes.is_unsigned(x.dtype):
        return power
    # Those of 1 and -1 are right without the sign bit of the exponent, too.
    is_unit = k.or_(k.eq(x, one), k.eq(x, k.constant(-1, x.dtype)))
    none = k.op("and", k.lt(y, zero), k.not_(is_unit))
    return k.select(none, zero, power)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return 1 / np.sqrt(x)


# ---------------------------------------------------------------- tails


def sech_squared(x: Any) -> Any:
    """1 / cosh(x)**2, accurate where 1 - tanh(x)**2 is not."""
    e = np.exp(-2 * np.abs(x))
    return 4 * e / ((1 + e) * (1 + e))


def sech_squared_element(k: Any, x: Any) -> Any:
    """The same."""
    one = k.constant(1, x.dtype)
    e = k.op("exp", k.mul(k.constant(-2, x.dtype), k.abs(x)))
    root = k.add(one, e)
    return k.div(k.mul(k.constant(4, x.dtype), e), k.mul(root, root))


def one_minus_square(x: Any) -> Any:
    """1 - x**2, accurate near 1."""
    return (1 - x) * (1 + x)


def one_minus_square_element(k: Any, x: Any) -> Any:
    """The same."""
    one = k.constant(1, x.dtype)
    return k.mul(k.sub(one, x), k.add(one, x))


def rsqrt_one_plus_square(x: Any) -> Any:
    """1 / sqrt(1 + x**2) without an overflow of x**2."""
    size = np.abs(x)
    big = size > 1
    ratio = np.where(big, 1 / size, size)
    value = 1 / np.sqrt(1 + ratio * ratio)
    return np.where(big, ratio * value, value)


def rsqrt_one_plus_square_element(k: Any, x: Any) -> Any:
    """The same."""
    one = k.constant(1, x.dtype)
    size = k.abs(x)
    big = k.gt(size, one)
    ratio = k.select(big, k.div(one, size), size)
    value = k.div(one, k.sqrt(k.add(one, k.mul(ratio, ratio))))
    return k.select(big, k.mul(ratio, value), value)


_FAR = 40.0  # from here on exp(-x*x) is 0 in every dtype


def exp_neg_square(x: Any) -> Any:
    """exp(-x**2) with x = high + low, where high has 24 bits: its square is exact."""
    x = np.minimum(np.abs(x), _FAR).astype(np.float64)
    high = x.astype(np.float32).astype(np.float64)
    return np.exp(-high * high) * np.exp(-(x + high) * (x - high))


def exp_neg_square_element(k: Any, x: Any) -> Any:
    """exp(-s) (1 - r), where s is x**2 rounded and r the rest of it."""
    x = k.min(k.abs(x), k.constant(_FAR, x.dtype))
    square = k.mul(x, x)
    rest = k.fma(x, x, k.neg(square))
    return k.mul(k.op("exp", k.neg(square)), k.sub(k.constant(1, x.dtype), rest))


def expm1(x: Any) -> Any:
    """exp(x) - 1; NumPy's is NaN in places for complex numbers that are not finite."""
    value = np.expm1(x)
    if x.dtype.kind != "c":
        return value
    return np.where(np.isfinite(value), value, np.exp(x) - 1)


def log1p(x: Any) -> Any:
    """log(1 + x); NumPy's loses the real part of a small complex number."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    rounded = join(1 + x.real, x.imag)  # 1 + x would lose the sign of a zero
    same = rounded == 1
    value = np.log(rounded)
    # Kahan: the rounding of 1 + x is in both factors, and cancels. The angle needs no
    # such care, and would lose the sign of a zero in the product.
    exact = (value * (x / np.where(same, 1, rounded - 1))).real
    real = np.where(np.isfinite(exact), exact, value.real)
    return np.where(same, x, join(real, value.imag))


def logistic(x: Any) -> Any:
    """1 / (1 + exp(-x)), without an overflow."""
    left = x.real < 0
    e = np.exp(np.where(left, x, -x))
    top = np.where(left, e, 1)
    return divide(top, 1 + e) if x.dtype.kind == "c" else top / (1 + e)


def erfc(x: Any) -> Any:
    """1 - erf(x); SciPy's own loses digits in the tail."""
    from scipy.special import erfc, erfcx  # lazy: SciPy is slow to load

    return np.where(x > 1, erfcx(x) * exp_neg_square(x), erfc(x))


_erf_inv = row("erf_inv")


def erf_inv(x: Any) -> Any:
    """The inverse of erf; SciPy's loses the sign of zero."""
    return np.copysign(_erf_inv(x), x)


def bessel_i(x: Any, order: int, scaled: str = "") -> Any:
    """I_n(x), or that times exp(-|x|): SciPy's for n = 0 and 1, which is at once."""
    if order > 1:
        return evaluate(f"bessel_i{scaled}", x, order)
    from scipy import special  # lazy: SciPy is slow to load

    wide = x.astype(np.float64)
    found = getattr(special, f"i{order}{scaled}")(wide)
    # SciPy's are NaN at infinities.
    ends = np.zeros_like(wide) if scaled else np.abs(wide)
    ends = np.copysign(ends, wide) if order else ends
    return np.where(np.isinf(wide), ends, found).astype(x.dtype)
