"""Elementwise functions made of several primitives: powers, remainders, parts, choices.

Receives arrays and scalars, promotes and broadcasts them as `ufuncs.py` does, gives
arrays. Derivatives follow from the primitives; where a formula would lose them
(`hypot` at 0, `logaddexp` at ties, `sinc` at 0) it is written so that it does not.
Next on the walk: `choices.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import ufuncs
from fnx.numpy.operands import (
    ArrayLike,
    as_array,
    cast,
    inexact_dtype,
    operands,
    refuse,
)
from fnx.ops import elementwise as ops
from fnx.ops import parts
from fnx.ops.arithmetic import add, eq, mul, neg, select, sub
from fnx.ops.shape import full
from fnx.ops.special import bessel_i

# ---------------------------------------------------------------- powers and products


@becomes_native
def absolute(x: ArrayLike, /) -> Array:
    """|x|, real also of complex numbers; the gradient at 0 is 0.

    >>> absolute(-3)
    Array(3, dtype=int32, weak_type=True)
    """
    array = as_array("absolute", x)
    flat = dtypes.is_bool(array.dtype) or dtypes.is_unsigned(array.dtype)
    return array if flat else ops.abs(array)


abs = absolute


@becomes_native
def fabs(x: ArrayLike, /) -> Array:
    """|x| in floating point, of real numbers."""
    array = _inexact("fabs", x)
    if dtypes.is_complex(array.dtype):
        raise errors.DTypeError(f"fabs takes real numbers, got {array.type}; use abs")
    return absolute(array)


@becomes_native
def positive(x: ArrayLike, /) -> Array:
    """+x: the array itself."""
    return as_array("positive", x)


@becomes_native
def square(x: ArrayLike, /) -> Array:
    """X * x; booleans count as integers.

    >>> square(3.0)
    Array(9., dtype=float32, weak_type=True)
    """
    array = as_array("square", x)
    if dtypes.is_bool(array.dtype):
        return cast(array, dtypes.default_int())
    return ops.square(array)


@becomes_native
def reciprocal(x: ArrayLike, /) -> Array:
    """1 / x in floating point."""
    array = _inexact("reciprocal", x)
    return ops.integer_pow(array, y=-1)


@becomes_native
def power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 to the power x2; 0 to the power 0 is 1.

    A Python integer as exponent gives a product, with polynomial gradients of every
    order; integers cannot be raised to a negative one. Other powers of integers wrap;
    those with a negative exponent are 1 / x**-p, rounded toward zero, and 0 for x = 0.

    >>> power(2.0, 3)
    Array(8., dtype=float32, weak_type=True)
    """
    if x2.__class__ is int or (x2.__class__ is float and x2 == 2):
        exponent = int(x2)
        base = as_array("power", x1)
        dtype = dtypes.promote((base.dtype, base.weak_type), _weak(x2))[0]
        base = cast(base, dtype, base.weak_type or dtype is not base.dtype)
        return ops.integer_pow(base, y=exponent)
    a, b = operands("power", x1, x2)
    if dtypes.is_bool(a.type.dtype):
        a, b = operands("power", cast(as_array("power", x1), dtypes.int32), x2)
    if dtypes.is_integer(a.type.dtype):
        return ops.wrapped_pow(a, b)
    return ops.pow(a, b)


pow = power


def _weak(x: Any) -> tuple[np.dtype[Any], bool]:
    return dtypes.scalar_dtype(x), True


@becomes_native
def float_power(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 to the power x2 in floating point, also of integers."""
    return ops.pow(*operands("float_power", x1, x2, inexact=True))


def _inexact(function: str, x: ArrayLike) -> Array:
    array = as_array(function, x)
    weak = array.weak_type
    return cast(array, inexact_dtype(array.dtype, weak), weak)


# ---------------------------------------------------------------- division


@becomes_native
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The quotient rounded towards minus infinity; of integers 0 where x2 is 0.

    >>> floor_divide(-7, 2)
    Array(-4, dtype=int32, weak_type=True)
    """
    return divmod(x1, x2)[0]


@becomes_native
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 - x2 * floor_divide(x1, x2), with the sign of x2; of integers 0 where x2 is 0.

    >>> remainder(-7, 2)
    Array(1, dtype=int32, weak_type=True)
    """
    a, b = _division("remainder", x1, x2)
    rest = ops.rem(a, b)
    return _with_sign_of(b, rest)[0]


mod = remainder


@becomes_native
def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The remainder with the sign of x1.

    >>> fmod(-7, 2)
    Array(-1, dtype=int32, weak_type=True)
    """
    return ops.rem(*_division("fmod", x1, x2))


@becomes_native
def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """`floor_divide` and `remainder`.

    >>> [int(part) for part in divmod(-7, 2)]
    [-4, 1]
    """
    a, b = _division("floor_divide", x1, x2)
    rest = ops.rem(a, b)
    right, wrong = _with_sign_of(b, rest)
    if dtypes.is_integer(rest.dtype):
        return select(wrong, sub(ops.div(a, b), 1), ops.div(a, b)), right
    # As NumPy: the exact quotient is whole, its rounded value is nearly.
    whole = ops.round(ops.div(sub(a, rest), b))
    whole = select(wrong, sub(whole, 1), whole)
    signed = select(eq(whole, 0), ops.copysign(whole, ops.div(a, b)), whole)
    return select(_is_equal(b, 0, rest), ops.div(a, b), signed), right


def _is_equal(x: Any, value: float, like: Array) -> Any:
    """Whether x, maybe a literal, is equal to a value; in the shape of `like`."""
    if isinstance(x, Array):
        return eq(x, value)
    return full(like.shape, dtypes.bool_, bool(x.value == value))


def _division(function: str, x1: ArrayLike, x2: ArrayLike) -> list[Any]:
    """The operands, booleans as integers."""
    a, b = operands(function, x1, x2)
    if not dtypes.is_bool(a.type.dtype):
        return [a, b]
    one = cast(as_array(function, x1), dtypes.int32)
    return operands(function, one, cast(as_array(function, x2), dtypes.int32))


def _with_sign_of(divisor: Any, rest: Array) -> tuple[Array, Array]:
    """A remainder moved to the side of its divisor, and where that was needed."""
    wrong = parts.and_(ops.ne(rest, 0), ops.ne(ops.lt(rest, 0), _is_negative(divisor)))
    if dtypes.is_unsigned(rest.dtype):
        return rest, wrong
    moved = select(wrong, add(rest, divisor), rest)
    if dtypes.is_float(rest.dtype):
        # The sign of a zero is the divisor's; its derivative stays that of the rest.
        value = parts.stop_gradient(moved)
        zero = sub(ops.copysign(value, divisor), sub(value, moved))
        moved = select(eq(rest, 0), zero, moved)
    return moved, wrong


def _is_negative(x: Any) -> Any:
    if isinstance(x, Array):
        return ops.lt(x, 0)
    return bool(x.value < 0)


@becomes_native
def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    """The fractional and the whole part, both with the sign of x.

    >>> [float(part) for part in modf(-1.5)]
    [-0.5, -1.0]
    """
    refuse("modf", out=out)
    array = _inexact("modf", x)
    whole = ops.trunc(array)
    rest = select(eq(ufuncs.isinf(array), True), 0, sub(array, whole))
    return ops.copysign(rest, array), whole


# ---------------------------------------------------------------- exponentials


@becomes_native
def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """log(exp(x1) + exp(x2)) without overflow.

    Value and derivatives keep their relative precision where one term is far below the
    other; of twice -inf it is -inf, with gradient 0. Of complex numbers the imaginary
    part is in [-π, π).

    >>> logaddexp(1000.0, -1000.0)
    Array(1000., dtype=float32, weak_type=True)
    """
    a, b = _two_arrays("logaddexp", x1, x2)
    if not dtypes.is_complex(a.dtype):
        return _log_of_sum(a, b, ops.exp, ops.log1p)
    value = _log_of_sum(a, b, ops.exp, ops.log1p)
    turn = sub(remainder(add(parts.imag(value), math.pi), 2 * math.pi), math.pi)
    return parts.complex_(parts.real(value), turn)


def _log_of_sum(
    a: Array, b: Array, power: Callable[[Any], Any], log1p: Callable[[Any], Any]
) -> Array:
    """The logarithm of power(a) + power(b), where `log1p` is that of 1 + x."""
    first = ops.gt(
        *[parts.real(x) if dtypes.is_complex(x.dtype) else x for x in (a, b)]
    )
    top = select(first, a, b)
    # Infinities that are equal have no difference; finite ties must keep theirs, which
    # carries the derivative.
    same = parts.and_(eq(a, b), eq(ops.abs(a), math.inf))
    gap = select(same, 0, sub(a, b))
    value = add(top, log1p(power(select(first, neg(gap), gap))))
    nothing = parts.and_(eq(a, b), eq(a, -math.inf))
    return select(nothing, -math.inf, value)


@becomes_native
def logaddexp2(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """log2(2**x1 + 2**x2) without overflow.

    >>> logaddexp2(3.0, 3.0)
    Array(4., dtype=float32, weak_type=True)
    """

    def log1p(x: Any) -> Any:
        return ops.div(ops.log1p(x), math.log(2))

    a, b = _two_arrays("logaddexp2", x1, x2)
    return _log_of_sum(a, b, ops.exp2, log1p)


def _two_arrays(function: str, x1: ArrayLike, x2: ArrayLike) -> list[Array]:
    """The operands in floating point, both as arrays of the common shape."""
    a, b = operands(function, x1, x2, inexact=True)
    like = a if isinstance(a, Array) else b
    return [
        x if isinstance(x, Array) else full(like.shape, like.dtype, x.value.item())
        for x in (a, b)
    ]


@becomes_native
def sinc(x: ArrayLike, /) -> Array:
    """sin(πx) / (πx), and 1 at 0, where all derivatives are right to second order.

    >>> sinc(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    array = _inexact("sinc", x)
    angle = mul(array, math.pi)
    at_zero = eq(array, 0)
    safe = select(at_zero, 1, angle)
    series = sub(1, ops.div(ops.square(angle), 6))
    return select(at_zero, series, ops.div(ops.sin(safe), safe))


@becomes_native
def i0(x: ArrayLike) -> Array:
    """The modified Bessel function of the first kind of order 0.

    >>> i0(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return bessel_i(_inexact("i0", x), order=0)


@becomes_native
def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """sqrt(x1² + x2²) without overflow; the gradient at (0, 0) is 0.

    >>> hypot(3.0, 4.0)
    Array(5., dtype=float32, weak_type=True)
    """
    a, b = _two_arrays("hypot", x1, x2)
    # Any constant scale gives the same function, so it needs no derivative.
    largest = parts.stop_gradient(ops.max(ops.abs(a), ops.abs(b)))
    ordinary = parts.and_(ops.gt(largest, 0), ops.lt(largest, math.inf))
    scale = select(ordinary, largest, 1)
    total = add(ops.square(ops.div(a, scale)), ops.square(ops.div(b, scale)))
    value = mul(root(total), scale)
    infinite = parts.or_(eq(ops.abs(a), math.inf), eq(ops.abs(b), math.inf))
    return select(infinite, math.inf, value)


def root(x: Array) -> Array:
    """sqrt(x) with derivative 0 at 0: what norms and deviations are made of."""
    zero = eq(x, 0)
    return select(zero, 0, ops.sqrt(select(zero, 1, x)))


# ---------------------------------------------------------------- angles and signs


@becomes_native
def degrees(x: ArrayLike, /) -> Array:
    """Radians as degrees.

    >>> degrees(math.pi)
    Array(180., dtype=float32, weak_type=True)
    """
    return mul(_inexact("degrees", x), 180 / math.pi)


@becomes_native
def radians(x: ArrayLike, /) -> Array:
    """Degrees as radians."""
    return mul(_inexact("radians", x), math.pi / 180)


rad2deg, deg2rad = degrees, radians


@becomes_native
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """|x1| with the sign of x2, the sign of zero included.

    >>> copysign(2.0, -0.0)
    Array(-2., dtype=float32, weak_type=True)
    """
    return ops.copysign(*operands("copysign", x1, x2, inexact=True))


@becomes_native
def signbit(x: ArrayLike, /) -> Array:
    """Whether the sign bit is set: also of -0.0. Raises `DTypeError` if x is complex.

    >>> signbit(-0.0)
    Array(True, dtype=bool)
    """
    array = as_array("signbit", x)
    if dtypes.is_complex(array.dtype):
        raise errors.DTypeError(
            f"signbit: {array.type} has no sign; take its real or imaginary part."
        )
    if dtypes.is_float(array.dtype):
        return ops.lt(ops.copysign(full(array.shape, array.dtype, 1), array), 0)
    if dtypes.is_signed(array.dtype):
        return ops.lt(array, 0)
    return full(array.shape, dtypes.bool_, False)


@becomes_native
def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """0 below 0, 1 above, and x2 at 0.

    >>> heaviside(0.0, 0.5)
    Array(0.5, dtype=float32, weak_type=True)
    """
    a, b = _two_arrays("heaviside", x1, x2)
    step = select(ops.lt(a, 0), 0, select(ops.gt(a, 0), 1, b))
    return select(ops.ne(a, a), a, step)


@becomes_native
def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The floating-point number beside x1 in the direction of x2."""
    return parts.nextafter(*operands("nextafter", x1, x2, inexact=True))


@becomes_native
def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 * 2**x2; x2 is an integer.

    >>> ldexp(1.5, 2)
    Array(6., dtype=float32, weak_type=True)
    """
    exponent = as_array("ldexp", x2, 1)
    if not dtypes.is_integer(exponent.dtype):
        raise errors.DTypeError(f"ldexp: x2 must be an integer, got {exponent.type}")
    x = _inexact("ldexp", x1)
    info = ml_dtypes.finfo(x.dtype)
    # 2**x2 may not be a number of the dtype where the result is one. So there are three
    # steps of at most 2**most; the largest come last, so that only the last one rounds.
    most = -info.minexp
    exponent = _within(exponent, info.maxexp - info.minexp + info.nmant + 2)
    last = _within(exponent, most)
    rest = sub(exponent, last)
    second = _within(rest, most)
    for step in (sub(rest, second), second, last):
        x = ufuncs.multiply(x, ops.exp2(cast(step, x.dtype, True)))
    return x


def _within(x: Array, most: int) -> Array:
    """Integers, those beyond `most` on either side moved there."""
    info = np.iinfo(x.dtype)
    low, high = max(-most, int(info.min)), min(most, int(info.max))
    ends = full(x.shape, x.dtype, low), full(x.shape, x.dtype, high)
    return ops.clamp(ends[0], x, ends[1])


# ---------------------------------------------------------------- complex numbers


@becomes_native
def real(val: ArrayLike, /) -> Array:
    """The real part; a real array itself."""
    array = as_array("real", val)
    return parts.real(array) if dtypes.is_complex(array.dtype) else array


@becomes_native
def imag(val: ArrayLike, /) -> Array:
    """The imaginary part; zeros of a real array."""
    array = as_array("imag", val)
    if dtypes.is_complex(array.dtype):
        return parts.imag(array)
    return full(array.shape, array.dtype, 0)


@becomes_native
def conjugate(x: ArrayLike, /) -> Array:
    """The complex conjugate; a real array itself.

    >>> conjugate(1 + 2j).item()
    (1-2j)
    """
    array = as_array("conjugate", x)
    return parts.conj(array) if dtypes.is_complex(array.dtype) else array


conj = conjugate


@becomes_native
def angle(z: ArrayLike, deg: bool = False) -> Array:
    """The angle of a complex number in (-π, π], in degrees if `deg`.

    >>> angle(1j, deg=True).item()
    90.0
    """
    array = _inexact("angle", z)
    value = ops.atan2(imag(array), real(array))
    return degrees(value) if deg else value


# ---------------------------------------------------------------- rounding and bits


@becomes_native
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """To so many decimals, halves to even; integers stay.

    >>> round(2.346, 2).item().__format__(".2f")
    '2.35'
    """
    refuse("round", out=out)
    x = as_array("round", a)
    if not dtypes.is_inexact(x.dtype):
        if decimals < 0:
            raise errors.OptionError("round: integers take no negative decimals")
        return x
    if dtypes.is_complex(x.dtype):
        return parts.complex_(
            round(parts.real(x), decimals), round(parts.imag(x), decimals)
        )
    if decimals == 0:
        return ops.round(x)
    factor = 10.0**decimals
    scaled = ops.round(mul(x, factor))
    return select(ufuncs.isfinite(x), ops.div(scaled, factor), x)


around = round


@becomes_native
def fix(x: ArrayLike, out: None = None) -> Array:
    """The integer part, towards zero: `trunc`."""
    refuse("fix", out=out)
    return ufuncs.trunc(x)


@becomes_native
def right_shift(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 shifted x2 bits to the right; the sign of a signed integer fills in.

    >>> right_shift(-8, 1)
    Array(-4, dtype=int32, weak_type=True)
    """
    a, b = operands("right_shift", x1, x2)
    if dtypes.is_unsigned(a.type.dtype):
        return parts.shift_right_logical(a, b)
    return parts.shift_right_arithmetic(a, b)


bitwise_right_shift = right_shift
