"""Numbers of 8 bits and fewer: kernels hold their bits, and convert them.

An array of such a dtype is a buffer of uint8 to a kernel. The builder (`build.py`)
hands rules a `Stored` where an operand is one, and comes here to convert it: nothing
else can be done with it but to choose, read and write it. The formats are those of
`ml_dtypes`: a sign, an exponent and a mantissa; they differ in what stands for infinity
and NaN. Integers lie in the lowest bits of their byte. Next on the walk: `schedule.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fnx import dtypes
from fnx.dtypes import DType
from fnx.errors import InternalError
from fnx.kernel.expr import Buffer, Expr
from fnx.records import record

if TYPE_CHECKING:  # build.py imports this file
    from fnx.kernel.build import KernelBuilder


@record
class Stored:
    """A number of a storage dtype by its bits, an expression of uint8."""

    bits: Expr
    dtype: DType


@record(eq=False)
class StoredBuffer:
    """A buffer of such numbers: one of uint8."""

    bits: Buffer
    dtype: DType


@record
class _Format:
    """How a number lies in its bits.

    `codes` is the largest code of a finite number, without sign; `infinite` the code of
    infinity and `nan` one of NaN, if there are some. `above` is what is too large: a
    code. With `unsigned_zero` the code of -0 is that of NaN.
    """

    mantissa: int
    bias: int
    codes: int
    infinite: int | None
    nan: int | None
    above: int
    width: int
    unsigned_zero: bool = False


# Mantissa, bias, largest finite code, infinity, NaN, what overflows, bits in all.
_FORMATS = {
    "float8_e3m4": _Format(4, 3, 0x6F, 0x70, 0x78, 0x70, 8),
    "float8_e4m3": _Format(3, 7, 0x77, 0x78, 0x7C, 0x78, 8),
    "float8_e4m3fn": _Format(3, 7, 0x7E, None, 0x7F, 0x7F, 8),
    "float8_e5m2": _Format(2, 15, 0x7B, 0x7C, 0x7E, 0x7C, 8),
    "float8_e4m3b11fnuz": _Format(3, 11, 0x7F, None, 0x80, 0x80, 8, True),
    "float8_e4m3fnuz": _Format(3, 8, 0x7F, None, 0x80, 0x80, 8, True),
    "float8_e5m2fnuz": _Format(2, 16, 0x7F, None, 0x80, 0x80, 8, True),
    "float6_e2m3fn": _Format(3, 1, 0x1F, None, None, 0x1F, 6),
    "float6_e3m2fn": _Format(2, 3, 0x1F, None, None, 0x1F, 6),
    "float4_e2m1fn": _Format(1, 1, 0x07, None, None, 0x07, 4),
}


def constant(k: KernelBuilder, value: Any, dtype: DType) -> Stored:
    """A number that is known."""
    bits = np.asarray(value, dtype).view(np.uint8)
    return Stored(k.constant(int(bits), dtypes.uint8), dtype)


def select(k: KernelBuilder, name: str, args: tuple[Any, ...]) -> Stored:
    """One of two numbers; there is no other operation."""
    if name != "select":
        raise InternalError(f"{args[-1].dtype.name} has no scalar operation {name}")
    cond, x, y = args
    return Stored(k.op("select", cond, x.bits, y.bits), x.dtype)


def convert(k: KernelBuilder, x: Expr | Stored, dtype: DType) -> Any:
    """To or from a storage dtype; between two of them by way of float32."""
    if isinstance(x, Stored):
        is_integer = dtypes.is_stored_integer(x.dtype)
        return k.convert(_integer(k, x) if is_integer else _decoded(k, x), dtype)
    if dtypes.is_stored_integer(dtype):
        return Stored(_integer_code(k, x, dtype), dtype)
    # Rounded to float32 first, as ml_dtypes does, and then computed in 64 bits.
    wide = k.convert(k.convert(x, dtypes.float32), dtypes.float64)
    return Stored(k.convert(_encoded(k, wide, dtype), dtypes.uint8), dtype)


def _integer(k: KernelBuilder, x: Stored) -> Any:
    """The integer in int32; the sign is its highest bit."""
    unused = _int(k, 32 - dtypes.limits(x.dtype).bits)
    top = k.op("shl", k.convert(x.bits, dtypes.int32), unused)
    if dtypes.limits(x.dtype).min < 0:
        return k.op("shr_arithmetic", top, unused)
    return k.op("shr_logical", top, unused)


def _integer_code(k: KernelBuilder, x: Expr, dtype: DType) -> Any:
    """The lowest bits of an integer, or those of a float that was moved inside."""
    limits = dtypes.limits(dtype)
    whole = k.convert(x, dtypes.int32)
    if dtypes.is_float(x.dtype):
        whole = k.op("max", whole, _int(k, limits.min))
        whole = k.op("min", whole, _int(k, limits.max))
    code = k.op("and", whole, _int(k, (1 << limits.bits) - 1))
    return k.convert(code, dtypes.uint8)


def _decoded(k: KernelBuilder, x: Stored) -> Any:
    """The number in float32, which has all of them."""
    whole = k.convert(x.bits, dtypes.int32)
    if x.dtype == dtypes.float8_e8m0fnu:
        return _power_of_two(k, whole)
    form = _FORMATS[x.dtype.name]
    sign_bit = 1 << (form.width - 1)
    code = k.op("and", whole, _int(k, sign_bit - 1))
    mantissa = k.op("and", code, _int(k, (1 << form.mantissa) - 1))
    # The exponent and the mantissa moved to their places in float32.
    moved = k.op("shl", code, _int(k, 23 - form.mantissa))
    normal = k.op("add", moved, _int(k, (127 - form.bias) << 23))
    step = 2.0 ** (1 - form.bias - form.mantissa)
    small = k.op(
        "mul", k.convert(mantissa, dtypes.float32), k.constant(step, dtypes.float32)
    )
    is_small = k.op("lt", code, _int(k, 1 << form.mantissa))
    value = k.op("select", is_small, small, k.bitcast(normal, dtypes.float32))
    if form.infinite is not None:
        infinite = k.constant(np.inf, dtypes.float32)
        at = k.op("eq", code, _int(k, form.infinite))
        value = k.op("select", at, infinite, value)
    negative = k.op("ne", k.op("and", whole, _int(k, sign_bit)), _int(k, 0))
    value = k.op("select", negative, k.op("neg", value), value)
    if form.nan is None:
        return value
    if form.unsigned_zero:
        is_nan = k.op("eq", whole, _int(k, form.nan))
    else:
        last = form.codes if form.infinite is None else form.infinite
        is_nan = k.op("gt", code, _int(k, last))
    return k.op("select", is_nan, k.constant(np.nan, dtypes.float32), value)


def _power_of_two(k: KernelBuilder, code: Expr) -> Any:
    """2**(code - 127); of 255 NaN. The smallest is subnormal in float32."""
    normal = k.op("shl", code, _int(k, 23))
    first = k.op("eq", code, _int(k, 0))
    bits = k.op("select", first, _int(k, 1 << 22), normal)
    is_nan = k.op("eq", code, _int(k, 255))
    value = k.bitcast(bits, dtypes.float32)
    return k.op("select", is_nan, k.constant(np.nan, dtypes.float32), value)


def _encoded(k: KernelBuilder, x: Expr, dtype: DType) -> Any:
    """The code of the nearest number (ties to even) of a float64, in int64."""
    if dtype == dtypes.float8_e8m0fnu:
        return _exponent_code(k, x)
    form = _FORMATS[dtype.name]
    size = k.op("abs", x)
    bits = k.bitcast(size, dtypes.int64)
    least = 1 - form.bias  # the exponent of the smallest normal number
    exponent = k.op(
        "max", k.op("shr_logical", bits, _long(k, 52)), _long(k, 1023 + least)
    )
    # What is added has the wanted last place as its own: the sum is rounded there.
    lift = k.op("add", exponent, _long(k, 52 - form.mantissa))
    shifted = k.bitcast(k.op("shl", lift, _long(k, 52)), dtypes.float64)
    rounded = k.op("sub", k.op("add", size, shifted), shifted)
    found = k.bitcast(rounded, dtypes.int64)
    normal = k.op(
        "sub",
        k.op("shr_logical", found, _long(k, 52 - form.mantissa)),
        _long(k, (1023 - form.bias) << form.mantissa),
    )
    steps = k.op("mul", rounded, _double(k, 2.0 ** (form.mantissa - least)))
    is_small = k.op("lt", rounded, _double(k, 2.0**least))
    code = k.op("select", is_small, k.convert(steps, dtypes.int64), normal)
    too_large = k.op("gt", code, _long(k, form.codes))
    code = k.op("select", too_large, _long(k, form.above), code)
    sign = k.op(
        "shr_logical", k.bitcast(x, dtypes.uint64), k.constant(63, dtypes.uint64)
    )
    place = k.constant(form.width - 1, dtypes.uint64)
    signed = k.convert(k.op("shl", sign, place), dtypes.int64)
    if form.unsigned_zero:
        signed = k.op("select", k.op("eq", code, _long(k, 0)), code, signed)
    code = k.op("or", code, signed)
    # Where NaN has no code it becomes -0, as in ml_dtypes.
    nan = 1 << (form.width - 1) if form.nan is None else form.nan
    return k.op("select", k.op("ne", x, x), _long(k, nan), code)


def _exponent_code(k: KernelBuilder, x: Expr) -> Any:
    """The code of the nearest power of two (halfway the larger); else NaN, 255."""
    bits = k.bitcast(x, dtypes.int64)
    exponent = k.op("shr_logical", bits, _long(k, 52))
    rest = k.op("and", bits, _long(k, (1 << 52) - 1))
    up = k.op("ge", rest, _long(k, 1 << 51))
    code = k.op("add", exponent, k.convert(up, dtypes.int64))
    code = k.op("sub", code, _long(k, 1023 - 127))
    code = k.op("max", code, _long(k, 0))
    inside = k.op(
        "and", k.op("gt", x, _double(k, 0.0)), k.op("lt", code, _long(k, 255))
    )
    return k.op("select", inside, code, _long(k, 255))


def _int(k: KernelBuilder, value: int) -> Any:
    return k.constant(value, dtypes.int32)


def _long(k: KernelBuilder, value: int) -> Any:
    return k.constant(value, dtypes.int64)


def _double(k: KernelBuilder, value: float) -> Any:
    return k.constant(value, dtypes.float64)
