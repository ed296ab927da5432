"""How the rows of the scalar table print as LLVM IR.

A printer receives the emitter, the operand texts and dtypes and the number of lanes,
emits instructions and gives the operand text of the result. No fast-math
flag and no `nsw`: floats keep IEEE 754, integers wrap; what would be undefined in LLVM
(division by zero, long shifts) is guarded by selects, and the guards are left out where
the operand is a literal. Used by `scalar.py`; next on the walk: `scalar_cuda.py`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fnx import dtypes

DType = np.dtype[Any]


class Emitter(Protocol):
    """What a row's printer needs of the LLVM emitter (`fnx/cpu/emit.py`)."""

    def emit(self, instruction: str) -> str:
        """Append `%v = instruction` and give the name `%v`."""

    def type(self, dtype: DType, lanes: int) -> str:
        """The register type: `float`, `<8 x i32>`; bool is `i1`, bfloat16 `i16`."""

    def integer(self, bits: int, lanes: int) -> str:
        """The integer type of `bits` bits."""

    def constant(self, value: bool | int | float, dtype: DType, lanes: int) -> str:
        """The operand text of a constant, without its type."""

    def suffix(self, dtype: DType, lanes: int) -> str:
        """The suffix of an overloaded intrinsic: `f32`, `v8f32`."""

    def call(self, function: str, result_type: str, *operands: tuple[str, str]) -> str:
        """Declare an external function once and emit a call of it."""

    block: str
    """The label of the basic block that is being printed."""

    def write(self, instruction: str) -> None:
        """Append an instruction that has no value."""

    def label(self) -> str:
        """A new label of a basic block."""

    def start(self, label: str) -> None:
        """Begin a basic block."""

    def helper(self, name: str, definition: str) -> None:
        """Add the module-level text `definition` once, keyed by `name`."""

    def routine(
        self,
        name: str,
        source: Any,
        print_: Callable[[Any, Any], tuple[str, list[str]]],
    ) -> None:
        """Add a helper function once, as `print_(emitter, source)` prints its body.

        That gives the function's head and the instructions to begin with.
        """


Printer = Callable[[Emitter, list[str], list[DType], DType, int], str]


def binary(float_name: str, integer_name: str) -> Printer:
    """One instruction of two operands of the result's type."""

    def print_(
        e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
    ) -> str:
        name = float_name if dtypes.is_float(result) else integer_name
        return e.emit(f"{name} {e.type(result, lanes)} {args[0]}, {args[1]}")

    return print_


def intrinsic(name: str, *flags: str) -> Printer:
    """A call of `llvm.name` on operands of the result's type, then `i1` flags."""

    def print_(
        e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
    ) -> str:
        type_ = e.type(result, lanes)
        typed = [(type_, arg) for arg in args] + [("i1", flag) for flag in flags]
        return e.call(f"llvm.{name}.{e.suffix(result, lanes)}", type_, *typed)

    return print_


def compare(name: str) -> Printer:
    """`eq ne lt le gt ge`; comparisons with NaN are false, `ne` is true."""

    def print_(
        e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
    ) -> str:
        return _compare(e, name, args[0], args[1], operands[0], lanes)

    return print_


def _compare(e: Emitter, name: str, x: str, y: str, dtype: DType, lanes: int) -> str:
    type_ = e.type(dtype, lanes)
    if dtypes.is_float(dtype):
        return e.emit(f"fcmp {'u' if name == 'ne' else 'o'}{name} {type_} {x}, {y}")
    if name not in ("eq", "ne"):
        name = ("s" if dtypes.is_signed(dtype) else "u") + name
    return e.emit(f"icmp {name} {type_} {x}, {y}")


def _select(
    e: Emitter, condition: str, x: str, y: str, dtype: DType, lanes: int
) -> str:
    type_ = e.type(dtype, lanes)
    flag = e.type(dtypes.bool_, lanes)
    return e.emit(f"select {flag} {condition}, {type_} {x}, {type_} {y}")


def select(
    e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
) -> str:
    """`args[0] ? args[1] : args[2]`."""
    return _select(e, args[0], args[1], args[2], result, lanes)


def extremum(name: str) -> Printer:
    """The smaller (`lt`) or larger (`gt`) operand; a NaN operand is the result."""

    def print_(
        e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
    ) -> str:
        x, y = args
        limit = _float_literal(y) if dtypes.is_float(result) else None
        if limit is not None and limit == limit:
            # Equal numbers are y: that tells zeros apart. Only x can be NaN.
            beyond = {"lt": "gt", "gt": "lt"} if limit else {"lt": "ge", "gt": "le"}
            over = _compare(e, beyond[name], x, y, result, lanes)
            return _select(e, over, y, x, result, lanes)
        # On x86 the first two lines are one instruction that gives y if either is NaN.
        first = _compare(e, name, x, y, result, lanes)
        chosen = _select(e, first, x, y, result, lanes)
        if not dtypes.is_float(result):
            return chosen
        unordered = e.emit(f"fcmp uno {e.type(result, lanes)} {x}, {x}")
        return _select(e, unordered, x, chosen, result, lanes)

    return print_


def negate(
    e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
) -> str:
    """The negative; changes the sign of zeros and NaNs too."""
    type_ = e.type(result, lanes)
    if dtypes.is_float(result):
        return e.emit(f"fneg {type_} {args[0]}")
    return e.emit(f"sub {type_} {e.constant(0, result, lanes)}, {args[0]}")


def absolute(
    e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
) -> str:
    """The absolute value; of the smallest signed integer it is that integer."""
    if dtypes.is_float(result):
        return intrinsic("fabs")(e, args, operands, result, lanes)
    if dtypes.is_signed(result):
        return intrinsic("abs", "false")(e, args, operands, result, lanes)
    return args[0]


def complement(
    e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
) -> str:
    """Every bit inverted."""
    ones = e.constant(True if dtypes.is_bool(result) else -1, result, lanes)
    return e.emit(f"xor {e.type(result, lanes)} {args[0]}, {ones}")


def is_finite(
    e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
) -> str:
    """Neither infinite nor NaN: |x| is less than infinity."""
    dtype = operands[0]
    size = intrinsic("fabs")(e, args, operands, dtype, lanes)
    infinity = e.constant(float("inf"), dtype, lanes)
    return _compare(e, "lt", size, infinity, dtype, lanes)


# --- integer division and shifts: guarded where LLVM would be undefined -------


def _float_literal(operand: str) -> float | None:
    """The value of a floating literal operand, `None` for anything else."""
    match = re.fullmatch(r"(?:splat \(\w+ )?0x([0-9A-F]{16})\)?", operand)
    return (
        struct.unpack("<d", int(match[1], 16).to_bytes(8, "little"))[0]
        if match
        else None
    )


def _literal(operand: str) -> int | None:
    """The value of an integer literal operand, `None` for anything else."""
    match = re.fullmatch(r"(?:splat \(i\d+ )?(-?\d+)\)?", operand)
    return int(match[1]) if match else None


def _safe_divisor(e: Emitter, y: str, dtype: DType, lanes: int) -> str:
    """`y` with the divisors that trap (0, and -1 of signed types) replaced by 1."""
    one = e.constant(1, dtype, lanes)
    if dtypes.is_signed(dtype):
        # -1 <= y <= 0 as one unsigned comparison.
        type_ = e.type(dtype, lanes)
        shifted = e.emit(f"add {type_} {y}, {one}")
        bad = e.emit(f"icmp ult {type_} {shifted}, {e.constant(2, dtype, lanes)}")
    else:
        bad = _compare(e, "eq", y, e.constant(0, dtype, lanes), dtype, lanes)
    return _select(e, bad, one, y, dtype, lanes)


def divide(
    e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
) -> str:
    """The quotient; integers truncate, wrap and give 0 for a zero divisor."""
    x, y = args
    type_ = e.type(result, lanes)
    if dtypes.is_float(result):
        return e.emit(f"fdiv {type_} {x}, {y}")
    name = "sdiv" if dtypes.is_signed(result) else "udiv"
    if _literal(y) not in (None, 0, -1):
        return e.emit(f"{name} {type_} {x}, {y}")
    zero = e.constant(0, result, lanes)
    quotient = e.emit(f"{name} {type_} {x}, {_safe_divisor(e, y, result, lanes)}")
    if dtypes.is_signed(result):
        negative = e.emit(f"sub {type_} {zero}, {x}")
        is_minus_one = _compare(
            e, "eq", y, e.constant(-1, result, lanes), result, lanes
        )
        quotient = _select(e, is_minus_one, negative, quotient, result, lanes)
    is_zero = _compare(e, "eq", y, zero, result, lanes)
    return _select(e, is_zero, zero, quotient, result, lanes)


def remainder(
    e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
) -> str:
    """The remainder with the dividend's sign; of integers 0 for a zero divisor."""
    x, y = args
    type_ = e.type(result, lanes)
    if dtypes.is_float(result):
        # LLVM makes a call of fmod for every lane: exact, though not fast.
        return e.emit(f"frem {type_} {x}, {y}")
    name = "srem" if dtypes.is_signed(result) else "urem"
    if _literal(y) in (None, 0, -1):
        y = _safe_divisor(e, y, result, lanes)  # x rem 1 is 0, as wanted
    return e.emit(f"{name} {type_} {x}, {y}")


def shift(name: str) -> Printer:
    """`shl` or `lshr`: 0 where the (unsigned) distance is the width or more."""

    def print_(
        e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
    ) -> str:
        x, distance = args
        type_ = e.type(result, lanes)
        bits = result.itemsize * 8
        if (literal := _literal(distance)) is not None and 0 <= literal < bits:
            return e.emit(f"{name} {type_} {x}, {distance}")
        zero = e.constant(0, result, lanes)
        width = e.constant(bits, result, lanes)
        inside = e.emit(f"icmp ult {type_} {distance}, {width}")
        distance = _select(e, inside, distance, zero, result, lanes)
        shifted = e.emit(f"{name} {type_} {x}, {distance}")
        return _select(e, inside, shifted, zero, result, lanes)

    return print_


def shr_arithmetic(
    e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
) -> str:
    """Right shift that copies the top bit; long distances leave only copies of it."""
    x, distance = args
    type_ = e.type(result, lanes)
    bits = result.itemsize * 8
    if (literal := _literal(distance)) is None or not 0 <= literal < bits:
        last = e.constant(bits - 1, result, lanes)
        inside = e.emit(f"icmp ult {type_} {distance}, {last}")
        distance = _select(e, inside, distance, last, result, lanes)
    return e.emit(f"ashr {type_} {x}, {distance}")


# --- conversions --------------------------------------------------------------


def convert(
    e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
) -> str:
    """The value as another dtype: the rules of `scalar.py`'s opening lines."""
    (x,), (source,) = args, operands
    if source == result:
        return x
    if source == dtypes.bfloat16:
        x, source = _bfloat16_to_float32(e, x, lanes), dtypes.float32
    elif source == dtypes.float16 and result != dtypes.float32:
        x, source = _cast(e, "fpext", x, source, dtypes.float32, lanes), dtypes.float32
    if source == result:
        return x
    if dtypes.is_bool(result):
        return _compare(e, "ne", x, e.constant(0, source, lanes), source, lanes)
    if dtypes.is_float(source) and dtypes.is_integer(result):
        return _saturate(e, x, source, result, lanes)
    if dtypes.is_integer(result):
        return _resize(e, x, source, result, lanes)
    if dtypes.is_float(source):
        return _float_to_float(e, x, source, result, lanes)
    return _integer_to_float(e, x, source, result, lanes)


def _cast(
    e: Emitter, name: str, x: str, source: DType, result: DType, lanes: int
) -> str:
    return e.emit(f"{name} {e.type(source, lanes)} {x} to {e.type(result, lanes)}")


def _resize(e: Emitter, x: str, source: DType, result: DType, lanes: int) -> str:
    old = 0 if dtypes.is_bool(source) else source.itemsize
    if old == result.itemsize:
        return x
    if old > result.itemsize:
        return _cast(e, "trunc", x, source, result, lanes)
    name = "sext" if dtypes.is_signed(source) else "zext"
    return _cast(e, name, x, source, result, lanes)


def _saturate(e: Emitter, x: str, source: DType, result: DType, lanes: int) -> str:
    name = "fptosi" if dtypes.is_signed(result) else "fptoui"
    # The overload's integer suffix is the one of a type with that many bits.
    suffixes = f"{e.suffix(result, lanes)}.{e.suffix(source, lanes)}"
    return e.call(
        f"llvm.{name}.sat.{suffixes}",
        e.type(result, lanes),
        (e.type(source, lanes), x),
    )


def _integer_to_float(
    e: Emitter, x: str, source: DType, result: DType, lanes: int
) -> str:
    name = "sitofp" if dtypes.is_signed(source) else "uitofp"
    if result.itemsize > 2:
        return _cast(e, name, x, source, result, lanes)
    single = _cast(e, name, x, source, dtypes.float32, lanes)
    return _float_to_float(e, single, dtypes.float32, result, lanes)


def _float_to_float(
    e: Emitter, x: str, source: DType, result: DType, lanes: int
) -> str:
    if result == dtypes.float64:
        return _cast(e, "fpext", x, source, result, lanes)
    if source == dtypes.float64 and result == dtypes.float16:
        x, source = _round_to_odd(e, x, lanes), dtypes.float32
    if source == dtypes.float64:
        # As ml_dtypes does it, bfloat16 is rounded from float32.
        x, source = (
            _cast(e, "fptrunc", x, source, dtypes.float32, lanes),
            dtypes.float32,
        )
    if source == result:
        return x
    if result == dtypes.bfloat16:
        return _float32_to_bfloat16(e, x, lanes)
    name = "fptrunc" if result == dtypes.float16 else "fpext"
    return _cast(e, name, x, source, result, lanes)


def _round_to_odd(e: Emitter, x: str, lanes: int) -> str:
    """float64 to float32 so that rounding once more, to float16, is right.

    An inexact value is truncated and its last bit set (Boldo, Melquiond 2008). Direct
    conversion would be a call into a run-time library.
    """
    single, double, bits = dtypes.float32, dtypes.float64, dtypes.uint32
    word = e.type(bits, lanes)
    near = _cast(e, "fptrunc", x, double, single, lanes)
    back = _cast(e, "fpext", near, single, double, lanes)
    size = intrinsic("fabs")(e, [x], [double], double, lanes)
    size_back = intrinsic("fabs")(e, [back], [double], double, lanes)
    pattern = _cast(e, "bitcast", near, single, bits, lanes)
    above = _compare(e, "gt", size_back, size, double, lanes)
    step = e.emit(f"zext {e.type(dtypes.bool_, lanes)} {above} to {word}")
    truncated = e.emit(f"sub {word} {pattern}, {step}")
    inexact = _compare(e, "ne", back, x, double, lanes)
    sticky = e.emit(f"zext {e.type(dtypes.bool_, lanes)} {inexact} to {word}")
    odd = e.emit(f"or {word} {truncated}, {sticky}")
    return _cast(e, "bitcast", odd, bits, single, lanes)


def _bfloat16_to_float32(e: Emitter, x: str, lanes: int) -> str:
    word = e.integer(32, lanes)
    wide = e.emit(f"zext {e.integer(16, lanes)} {x} to {word}")
    shifted = e.emit(f"shl {word} {wide}, {e.constant(16, dtypes.uint32, lanes)}")
    return e.emit(f"bitcast {word} {shifted} to {e.type(dtypes.float32, lanes)}")


def _float32_to_bfloat16(e: Emitter, x: str, lanes: int) -> str:
    """Round to nearest even by integer addition; NaN stays a (quiet) NaN."""

    def constant(value: int) -> str:
        return e.constant(value, dtypes.uint32, lanes)

    word = e.integer(32, lanes)
    bits = _cast(e, "bitcast", x, dtypes.float32, dtypes.uint32, lanes)
    high = e.emit(f"lshr {word} {bits}, {constant(16)}")
    odd = e.emit(f"and {word} {high}, {constant(1)}")
    biased = e.emit(f"add {word} {bits}, {constant(0x7FFF)}")
    rounded = e.emit(f"add {word} {biased}, {odd}")
    near = e.emit(f"lshr {word} {rounded}, {constant(16)}")
    sign = e.emit(f"and {word} {high}, {constant(0x8000)}")
    quiet = e.emit(f"or {word} {sign}, {constant(0x7FC0)}")
    type_ = e.type(dtypes.float32, lanes)
    unordered = e.emit(f"fcmp uno {type_} {x}, {x}")
    chosen = _select(e, unordered, quiet, near, dtypes.uint32, lanes)
    return e.emit(f"trunc {word} {chosen} to {e.integer(16, lanes)}")


def bitcast(
    e: Emitter, args: list[str], operands: list[DType], result: DType, lanes: int
) -> str:
    """The same bits under another dtype of the same size."""
    old, new = e.type(operands[0], lanes), e.type(result, lanes)
    if old == new:
        return args[0]
    return e.emit(f"bitcast {old} {args[0]} to {new}")
