"""Numbers by their digits: gcd, lcm, frexp, spacing, packbits, unpackbits.

Receives arrays of integers or floats, gives arrays of the same shape (packed bits: an
eighth of an axis). Loaded when it is first used. Next on the walk: `polynomials.py`.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.loops import while_loop
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import on_numpy, ufuncs
from fnx.numpy.choices import choose_where
from fnx.numpy.creation import arange, full
from fnx.numpy.mathematics import (
    absolute,
    copysign,
    floor_divide,
    ldexp,
    remainder,
    right_shift,
)
from fnx.numpy.operands import (
    ArrayLike,
    as_array,
    axis_index,
    broadcast,
    cast,
    common_shape,
    inexact_dtype,
    promoted,
    typed,
)
from fnx.numpy.reductions import any, sum
from fnx.numpy.shaping import moveaxis, ravel, reshape
from fnx.ops import parts
from fnx.ops.pieces import padded_along, part_of

# ---------------------------------------------------------------- divisors


@at_once(on_numpy.gcd)
def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The greatest common divisor of integers, not negative; 0 of two zeros.

    >>> gcd(12, -18).item()
    6
    """
    x, y = _integers("gcd", x1, x2)
    # Once one of a pair is 0 the other is the divisor: the loop ends where all are.
    a, b = while_loop(_goes_on, _step_of_euclid, (absolute(x), absolute(y)))
    return absolute(parts.or_(a, b))  # -1 after the least integer, which has no |x|


def _goes_on(pair: tuple[Array, Array]) -> Array:
    return any(parts.not_(_has_ended(*pair)))


def _has_ended(a: Array, b: Array) -> Array:
    return parts.or_(ufuncs.equal(a, 0), ufuncs.equal(b, 0))


def _step_of_euclid(pair: tuple[Array, Array]) -> tuple[Array, Array]:
    """(a, b) becomes (b, a mod b), except where the divisor has been found."""
    a, b = pair
    ended = _has_ended(a, b)
    return choose_where(ended, a, b), choose_where(ended, b, remainder(a, b))


@at_once(on_numpy.lcm)
def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The least common multiple of integers, not negative; 0 if one of them is 0.

    >>> lcm(4, -6).item()
    12
    """
    x, y = _integers("lcm", x1, x2)
    divisor = gcd(x, y)
    # Divided first, so that only the result itself can overflow.
    return absolute(ufuncs.multiply(floor_divide(x, divisor), y))


def _integers(function: str, x1: ArrayLike, x2: ArrayLike) -> list[Array]:
    """Two integers of one dtype and shape."""
    values, dtype, weak = promoted(function, (x1, x2))
    if not dtypes.is_integer(dtype):
        shown = " and ".join([str(as_array(function, x).type) for x in values])
        raise errors.DTypeError(f"{function} takes integers, got {shown}")
    shape = common_shape(function, values)
    return [broadcast(typed(function, x, dtype, weak), shape) for x in values]


# ---------------------------------------------------------------- floats


@at_once(on_numpy.frexp)
def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Mantissa in ±[0.5, 1) and exponent (int32): x is mantissa * 2**exponent.

    0, infinities and NaN have the exponent 0. The exponent is constant, so that the
    derivative of the mantissa is 2**-exponent.

    >>> [part.item() for part in frexp(6.0)]
    [0.75, 3]
    """
    value = _real("frexp", x)
    info = ml_dtypes.finfo(value.dtype)
    # Subnormals are brought among the normal numbers first.
    lift = info.nmant + 1
    small = ufuncs.less(absolute(value), float(info.smallest_normal))
    lifted = choose_where(small, ufuncs.multiply(value, 2.0**lift), value)
    bits = parts.bitcast(lifted, dtype=np.dtype(f"uint{8 * value.dtype.itemsize}"))
    field = ufuncs.bitwise_and(right_shift(bits, info.nmant), (1 << (info.nexp)) - 1)
    biased = cast(field, dtypes.int32)
    exponent = ufuncs.add(biased, choose_where(small, info.minexp - lift, info.minexp))
    # minexp is the exponent of the field 1, for a mantissa in [1, 2).
    whole = parts.and_(ufuncs.isfinite(value), ufuncs.not_equal(value, 0))
    exponent = choose_where(whole, exponent, 0)
    return ldexp(value, ufuncs.negative(exponent)), exponent


@becomes_native
def spacing(x: ArrayLike, /) -> Array:
    """The distance to the next number of the dtype, away from 0 and with the sign of x.

    >>> spacing(1.0).item() == 2.0**-23
    True
    """
    value = parts.stop_gradient(_real("spacing", x))
    away = copysign(full(value.shape, np.inf, value.dtype), value)
    return ufuncs.subtract(parts.nextafter(value, away), value)


def _real(function: str, x: ArrayLike) -> Array:
    value = as_array(function, x)
    weak = value.type.weak
    value = cast(value, inexact_dtype(value.dtype, weak), weak)
    if dtypes.is_complex(value.dtype):
        raise errors.DTypeError(f"{function} takes real numbers, got {value.type}")
    return value


# ---------------------------------------------------------------- bits


@at_once(on_numpy.packbits)
def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight truth values in one uint8, along an axis (or flattened); 0 fills the last.

    The first is the highest bit, or the lowest with `bitorder="little"`.

    >>> packbits(np.array([1, 0, 0, 0, 0, 0, 1, 1, 1])).tolist()
    [131, 128]
    """
    x = as_array("packbits", a)
    if dtypes.is_inexact(x.dtype):
        raise errors.DTypeError(f"packbits takes integers or booleans, got {x.type}")
    x, place = (
        (ravel(x), 0) if axis is None else (x, axis_index("packbits", axis, x.ndim))
    )
    bits = moveaxis(cast(ufuncs.not_equal(x, 0), dtypes.uint8), place, -1)
    bits = padded_along(bits, bits.ndim - 1, 0, -bits.shape[-1] % 8)
    groups = reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    shifted = ufuncs.left_shift(groups, _shifts(bitorder, "packbits"))
    return moveaxis(sum(shifted, -1, dtypes.uint8), -1, place)


@at_once(on_numpy.unpackbits)
def unpackbits(
    a: ArrayLike,
    axis: int | None = None,
    count: int | None = None,
    bitorder: str = "big",
) -> Array:
    """The bits of uint8 numbers as 0 and 1, along an axis (or flattened).

    `count` is how many there are along the axis: more are 0, negative ones leave so
    many off the end.

    >>> unpackbits(np.array([131], "uint8"), count=4).tolist()
    [1, 0, 0, 0]
    """
    x = as_array("unpackbits", a)
    if x.dtype != dtypes.uint8:
        raise errors.DTypeError(f"unpackbits takes uint8, got {x.type}")
    x, place = (
        (ravel(x), 0) if axis is None else (x, axis_index("unpackbits", axis, x.ndim))
    )
    last = reshape(moveaxis(x, place, -1), (*_moved(x.shape, place), 1))
    bits = ufuncs.bitwise_and(right_shift(last, _shifts(bitorder, "unpackbits")), 1)
    size = 8 * x.shape[place]
    bits = reshape(bits, (*bits.shape[:-2], size))
    if count is not None:
        kept = count if count >= 0 else max(size + count, 0)
        bits = part_of(bits, bits.ndim - 1, 0, min(kept, size))
        bits = padded_along(bits, bits.ndim - 1, 0, max(kept - size, 0))
    return moveaxis(bits, -1, place)


def _moved(shape: tuple[int, ...], place: int) -> tuple[int, ...]:
    return (*shape[:place], *shape[place + 1 :], shape[place])


def _shifts(bitorder: str, function: str) -> Array:
    if bitorder not in ("big", "little"):
        raise errors.OptionError(
            f"{function}: bitorder is 'big' or 'little', not {bitorder!r}"
        )
    order = (7, -1, -1) if bitorder == "big" else (0, 8, 1)
    return arange(*order, dtype=dtypes.uint8)
