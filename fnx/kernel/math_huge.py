"""sin, cos and tan of huge angles: three rows of the scalar table that call a library.

Where |x| is so large that `math_trig.py`'s argument reduction fails, the bits of 2/pi
that matter depend on x's exponent (Payne and Hanek 1983). No vector unit does that well
and hardly any program needs it, so the rows `sin_if_huge(x, y)` and so on give `y`
unless x is huge, and call the C library's double-precision function for the lanes that
are. Used by `scalar.py`; next on the walk: `math_trig.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.kernel import scalar_cuda, scalar_llvm

DType = np.dtype[Any]
Array = np.ndarray[Any, DType]

HUGE = {dtypes.float32: 2.0**17, dtypes.float64: 2.0**40}
"""The smallest huge angle. Below, `math_trig.py`'s three-part reduction is exact
enough: its error, n * 2^-74 or n * 2^-161, stays under 2^-25 or 2^-54 of the smallest
remainder that any number of the format leaves (2^-30 and 2^-62). In float32 x * 2/pi
must also be off by less than 0.005, or the remainder outgrows its polynomial."""


def meaning(name: str) -> Callable[[Array, Array], Array]:
    """The row in NumPy."""
    function = getattr(np, name)

    def if_huge(x: Array, y: Array) -> Array:
        x, y = np.asarray(x), np.asarray(y)
        # NumPy's own float64 loops are less accurate than the C library.
        result = function(x.astype(np.longdouble)).astype(x.dtype)
        return np.where(np.abs(x) < HUGE[x.dtype], y, result)

    return if_huge


# The lanes that are huge, one after the other; called where there are any.
_LLVM = """
define internal {vector} @{name}({vector} %x, {vector} %y) noinline {{
entry:
  %angles = alloca {vector}
  %results = alloca {vector}
  %bits = bitcast {vector} %x to {word}
  %size = and {word} %bits, {mask}
  %huge = icmp uge {word} %size, {threshold}
  %flags = bitcast <{lanes} x i1> %huge to i{lanes}
  store {vector} %x, ptr %angles
  store {vector} %y, ptr %results
  br label %lane
lane:
  %i = phi i{bits} [ 0, %entry ], [ %next, %done ]
  %rest = phi i{lanes} [ %flags, %entry ], [ %shifted, %done ]
  %this = trunc i{lanes} %rest to i1
  br i1 %this, label %call, label %done
call:
  %from = getelementptr {scalar}, ptr %angles, i{bits} %i
  %angle = load {scalar}, ptr %from
  {widen}
  %result = call double @{function}(double %wide)
  {narrow}
  %to = getelementptr {scalar}, ptr %results, i{bits} %i
  store {scalar} %value, ptr %to
  br label %done
done:
  %next = add i{bits} %i, 1
  %shifted = lshr i{lanes} %rest, 1
  %more = icmp ult i{bits} %next, {lanes}
  br i1 %more, label %lane, label %all
all:
  %merged = load {vector}, ptr %results
  ret {vector} %merged
}}
"""


def llvm(name: str) -> scalar_llvm.Printer:
    """The row's printer: a call with the whole vector where any lane is huge."""

    def print_(
        e: scalar_llvm.Emitter,
        args: list[str],
        operands: list[DType],
        result: DType,
        lanes: int,
    ) -> str:
        x, y = args
        some, after, before = e.label(), e.label(), e.block
        any_ = _any_huge(e, x, result, lanes)
        e.write(f"br i1 {any_}, label %{some}, label %{after}")
        e.start(some)
        called = _called(e, name, x, y, result, lanes)
        e.write(f"br label %{after}")
        e.start(after)
        type_ = e.type(result, lanes)
        return e.emit(f"phi {type_} [ {called}, %{some} ], [ {y}, %{before} ]")

    return print_


def _any_huge(e: scalar_llvm.Emitter, x: str, dtype: DType, lanes: int) -> str:
    """Whether any lane is huge or no number at all: its exponent is a large one."""
    bits = dtype.itemsize * 8
    word, unsigned = e.integer(bits, lanes), np.dtype(f"u{dtype.itemsize}")
    most = e.constant(2 ** (bits - 1) - 1, unsigned, lanes)
    threshold = e.constant(_huge_bits(dtype) - 1, unsigned, lanes)
    pattern = e.emit(f"bitcast {e.type(dtype, lanes)} {x} to {word}")
    size = e.emit(f"and {word} {pattern}, {most}")
    huge = e.emit(f"icmp ugt {word} {size}, {threshold}")
    if lanes == 1:
        return huge
    flags = e.emit(f"bitcast <{lanes} x i1> {huge} to i{lanes}")
    return e.emit(f"icmp ne i{lanes} {flags}, 0")


def _huge_bits(dtype: DType) -> int:
    return int(np.array(HUGE[dtype], dtype).view(f"u{dtype.itemsize}"))


def _called(
    e: scalar_llvm.Emitter, name: str, x: str, y: str, dtype: DType, lanes: int
) -> str:
    """A call of the helper for a vector; a lone scalar is the first of two lanes."""
    wide = max(lanes, 2)
    helper = f"fnx_{name}_if_huge_v{wide}{dtypes.short(dtype)}"
    e.helper(name, f"declare double @{name}(double)")
    e.helper(helper, _llvm_text(e, helper, name, wide, dtype))
    vector, scalar = e.type(dtype, wide), e.type(dtype, 1)
    if lanes == 1:
        place = f"insertelement {vector} zeroinitializer, {scalar}"
        x, y = e.emit(f"{place} {x}, i32 0"), e.emit(f"{place} {y}, i32 0")
    # What stands around a cold call is laid out and given registers as such.
    called = e.emit(f"call {vector} @{helper}({vector} {x}, {vector} {y}) cold")
    if lanes > 1:
        return called
    return e.emit(f"extractelement {vector} {called}, i32 0")


def _llvm_text(
    e: scalar_llvm.Emitter, name: str, function: str, lanes: int, dtype: DType
) -> str:
    bits = dtype.itemsize * 8
    if dtype == dtypes.float32:
        widen = "%wide = fpext float %angle to double"
        narrow = "%value = fptrunc double %result to float"
    else:
        widen = "%wide = fadd double %angle, 0.0"
        narrow = "%value = fadd double %result, 0.0"
    return _LLVM.format(
        name=name,
        function=function,
        bits=bits,
        lanes=lanes,
        scalar=e.type(dtype, 1),
        vector=e.type(dtype, lanes),
        word=e.integer(bits, lanes),
        mask=f"splat (i{bits} {2 ** (bits - 1) - 1})",
        threshold=f"splat (i{bits} {_huge_bits(dtype)})",
        widen=widen,
        narrow=narrow,
    )


def cuda(name: str) -> scalar_cuda.Printer:
    """The row's printer: a call behind a test."""

    def print_(
        c: scalar_cuda.Emitter, args: list[str], operands: list[DType], result: DType
    ) -> str:
        x, y = args
        size = scalar_cuda.call("fabs")(c, [x], operands, result)
        call = f"({c.type(result)}){name}((double){x})"
        return f"({size} < {HUGE[result]:.1f} ? {y} : {call})"

    return print_
