"""How the rows of the scalar table print as CUDA C.

A printer receives the emitter, the operand texts and dtypes and gives a C expression.
Operands are names or literals, so that repeating one costs nothing. Signed arithmetic
is done on unsigned types, where wrapping is defined. The text is header-free and also
valid for g++ with the emulator's shim; it must be compiled without contraction of
`a*b + c` (NVRTC: `--fmad=false`). Used by `scalar.py`; next on the walk: `math.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fnx import dtypes

DType = np.dtype[Any]


class Emitter(Protocol):
    """What a row's printer needs of the CUDA emitter (`fnx_cuda/emit.py`)."""

    def type(self, dtype: DType) -> str:
        """The C type of a register; 16-bit floats are held in `unsigned short`."""

    def constant(self, value: bool | int | float, dtype: DType) -> str:
        """The text of a constant."""

    def helper(self, name: str, definition: str) -> None:
        """Add the text of a `__device__` function once, keyed by `name`."""

    def has_helper(self, name: str) -> bool:
        """Whether it has been added."""


Printer = Callable[[Emitter, list[str], list[DType], DType], str]


def _is_double(dtype: DType) -> bool:
    return dtype == dtypes.float64


def _work_type(dtype: DType) -> str:
    """The unsigned type of C's arithmetic on `dtype`, where overflow wraps."""
    return "unsigned long long" if dtype.itemsize == 8 else "unsigned int"


def _bits_type(dtype: DType) -> str:
    """The unsigned type with as many bits as `dtype`."""
    names = {1: "unsigned char", 2: "unsigned short"}
    return names.get(dtype.itemsize) or _work_type(dtype)


def infix(symbol: str) -> Printer:
    """A binary operator that wraps on integers."""

    def print_(
        c: Emitter, args: list[str], operands: list[DType], result: DType
    ) -> str:
        x, y = args
        if not dtypes.is_integer(result):
            return f"({x} {symbol} {y})"
        work = _work_type(result)
        return f"({c.type(result)})(({work}){x} {symbol} ({work}){y})"

    return print_


def call(name: str) -> Printer:
    """A function of CUDA's math library; its float32 form ends in `f`."""

    def print_(
        c: Emitter, args: list[str], operands: list[DType], result: DType
    ) -> str:
        return f"{name}{'' if _is_double(result) else 'f'}({', '.join(args)})"

    return print_


def compare(symbol: str) -> Printer:
    """A comparison operator."""

    def print_(
        c: Emitter, args: list[str], operands: list[DType], result: DType
    ) -> str:
        return f"({args[0]} {symbol} {args[1]})"

    return print_


def select(c: Emitter, args: list[str], operands: list[DType], result: DType) -> str:
    """`args[0] ? args[1] : args[2]`."""
    return f"({args[0]} ? {args[1]} : {args[2]})"


def extremum(symbol: str) -> Printer:
    """The smaller (`<`) or larger (`>`) operand; a NaN operand is the result."""

    def print_(
        c: Emitter, args: list[str], operands: list[DType], result: DType
    ) -> str:
        x, y = args
        nan = f" || {x} != {x}" if dtypes.is_float(result) else ""
        return f"({x} {symbol} {y}{nan} ? {x} : {y})"

    return print_


def negate(c: Emitter, args: list[str], operands: list[DType], result: DType) -> str:
    """The negative."""
    if dtypes.is_float(result):
        return f"(-{args[0]})"
    return f"({c.type(result)})(0u - ({_work_type(result)}){args[0]})"


def absolute(c: Emitter, args: list[str], operands: list[DType], result: DType) -> str:
    """The absolute value, wrapping for the smallest signed integer."""
    (x,) = args
    if dtypes.is_float(result):
        return call("fabs")(c, args, operands, result)
    if not dtypes.is_signed(result):
        return x
    return f"({x} < 0 ? {negate(c, args, operands, result)} : {x})"


def complement(
    c: Emitter, args: list[str], operands: list[DType], result: DType
) -> str:
    """Every bit inverted."""
    return (
        f"(!{args[0]})" if dtypes.is_bool(result) else f"({c.type(result)})(~{args[0]})"
    )


def is_finite(c: Emitter, args: list[str], operands: list[DType], result: DType) -> str:
    """Neither infinite nor NaN: at most the largest finite number."""
    if _is_double(operands[0]):
        return f"(fabs({args[0]}) <= 0x1.fffffffffffffp+1023)"
    return f"(fabsf({args[0]}) <= 0x1.fffffep+127f)"


def divide(c: Emitter, args: list[str], operands: list[DType], result: DType) -> str:
    """The quotient; integers truncate, wrap and give 0 for a zero divisor."""
    x, y = args
    if dtypes.is_float(result):
        return f"({x} / {y})"
    quotient = f"({c.type(result)})({x} / {y})"
    if dtypes.is_signed(result):
        negative = negate(c, [x], operands, result)
        quotient = f"{y} == -1 ? {negative} : {quotient}"
    return f"({y} == 0 ? ({c.type(result)})0 : {quotient})"


def remainder(c: Emitter, args: list[str], operands: list[DType], result: DType) -> str:
    """The remainder with the dividend's sign; of integers 0 for a zero divisor."""
    x, y = args
    if dtypes.is_float(result):
        return call("fmod")(c, args, operands, result)
    bad = f"{y} == 0 || {y} == -1" if dtypes.is_signed(result) else f"{y} == 0"
    return f"({bad} ? ({c.type(result)})0 : ({c.type(result)})({x} % {y}))"


def _shift(symbol: str, c: Emitter, args: list[str], result: DType) -> str:
    x, distance = args
    bits = _bits_type(result)
    number = distance.rstrip("ul")
    if number.isdigit() and int(number) < 8 * result.itemsize >= 32:
        return f"({c.type(result)})(({bits}){x} {symbol} {number})"
    shifted = f"({_work_type(result)})({bits}){x} {symbol} ({bits}){distance}"
    inside = f"({bits}){distance} < {result.itemsize * 8}"
    return f"({inside} ? ({c.type(result)})({shifted}) : ({c.type(result)})0)"


def shl(c: Emitter, args: list[str], operands: list[DType], result: DType) -> str:
    """Left shift; 0 where the (unsigned) distance is the width or more."""
    return _shift("<<", c, args, result)


def shr_logical(
    c: Emitter, args: list[str], operands: list[DType], result: DType
) -> str:
    """Right shift that fills with 0; 0 where the distance is the width or more."""
    return _shift(">>", c, args, result)


def shr_arithmetic(
    c: Emitter, args: list[str], operands: list[DType], result: DType
) -> str:
    """Right shift that copies the top bit; long distances leave only copies of it."""
    x, distance = args
    bits, last = _bits_type(result), result.itemsize * 8 - 1
    signed = {1: "signed char", 2: "short", 4: "int", 8: "long long"}[result.itemsize]
    capped = f"(({bits}){distance} < {last} ? ({bits}){distance} : {last})"
    return f"({c.type(result)})(({signed}){x} >> {capped})"


def population_count(
    c: Emitter, args: list[str], operands: list[DType], result: DType
) -> str:
    """The number of 1 bits."""
    name = "__popcll" if result.itemsize == 8 else "__popc"
    return f"({c.type(result)}){name}(({_bits_type(result)}){args[0]})"


def clz(c: Emitter, args: list[str], operands: list[DType], result: DType) -> str:
    """The number of 0 bits above the highest 1 bit."""
    name = "__clzll" if result.itemsize == 8 else "__clz"
    count = f"{name}(({_bits_type(result)}){args[0]})"
    excess = max(0, 32 - result.itemsize * 8)
    return f"({c.type(result)})({count} - {excess})"


def convert(c: Emitter, args: list[str], operands: list[DType], result: DType) -> str:
    """The value as another dtype: the rules of `scalar.py`'s opening lines.

    The conversions of 16-bit floats are functions of the emitter's preamble.
    """
    (x,), (source,) = args, operands
    if source == result:
        return x
    if source in (dtypes.float16, dtypes.bfloat16):
        name = "half" if source == dtypes.float16 else "bfloat16"
        x, source = f"{name}_to_float({x})", dtypes.float32
    if dtypes.is_bool(result):
        return f"({x} != 0)"
    if dtypes.is_float(source) and dtypes.is_integer(result):
        return _saturate(c, x, result)
    if result == dtypes.float16 and _is_double(source):
        return f"double_to_half({x})"
    if result in (dtypes.float16, dtypes.bfloat16):
        name = "half" if result == dtypes.float16 else "bfloat16"
        return f"float_to_{name}((float){x})"
    return x if source == result else f"({c.type(result)}){x}"


def _saturate(c: Emitter, x: str, result: DType) -> str:
    """Float to integer. A cast leaves what does not fit undefined in C."""
    type_ = c.type(result)
    low, high = int(np.iinfo(result).min), int(np.iinfo(result).max)
    unsigned = "" if dtypes.is_signed(result) else "u"
    suffix = unsigned + ("ll" if result.itemsize == 8 else "")
    # The smallest integer has no literal of its own type.
    lowest = f"({type_})(-{high}{suffix} - 1)" if low else f"({type_})0"
    # float(high) may round up to high + 1, which is still the right threshold.
    top, bottom = float(high).hex(), float(low).hex()
    return (
        f"({x} != {x} ? ({type_})0 : {x} >= {top} ? ({type_}){high}{suffix} "
        f": {x} <= {bottom} ? {lowest} : ({type_}){x})"
    )


def bitcast(c: Emitter, args: list[str], operands: list[DType], result: DType) -> str:
    """The same bits under another dtype of the same size."""
    (x,), (source,) = args, operands
    if result in (dtypes.float32, dtypes.float64):
        if source == result:
            return x
        if _is_double(result):
            return f"__longlong_as_double((long long){x})"
        return f"__int_as_float((int){x})"
    if source == dtypes.float64:
        return f"({c.type(result)})__double_as_longlong({x})"
    if source == dtypes.float32:
        return f"({c.type(result)})__float_as_int({x})"
    return f"({c.type(result)}){x}"
