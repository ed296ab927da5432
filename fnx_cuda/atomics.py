"""Atomic stores: CUDA C that combines an element with a value, in any order.

Integers have instructions for it. So have the extremes of floats, whose bits are in the
order of integers: upwards where the sign is clear, downwards where it is set. A NaN
wins, and of two zeros the one that the order of the bits tells, whoever comes first.
What is smaller than a word is read, combined, and exchanged if nobody else has been
faster. Used by `emit.py`; below it `values.py`.
"""

from __future__ import annotations

import numpy as np

from fnx import dtypes
from fnx.dtypes import DType
from fnx.dtypes import short as short_name
from fnx_cuda.values import INFINITY, Values, register_type

_SIGNED = {2: "short", 4: "int", 8: "long long"}
_UNSIGNED = {2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}
_BITS = {2: "value", 4: "__float_as_int(value)", 8: "__double_as_longlong(value)"}
_ACTIONS = {"add": "Add", "max": "Max", "min": "Min"}


def atomic(
    printer: Values, combine: str, dtype: DType, address: str, value: str
) -> str:
    """The statement that combines the element at an address with a value."""
    if dtypes.is_float(dtype):
        name = _float_extreme(printer, combine, dtype)
    else:
        name = _integer(printer, combine, dtype)
    return f"{name}({address}, {value});"


def _integer(printer: Values, combine: str, dtype: DType) -> str:
    """The name of a function for integers; its text is among the printer's helpers."""
    if dtype.itemsize == 2:
        return _exchanging(printer, combine, dtype)
    if dtype.itemsize == 4:
        return f"atomic{_ACTIONS[combine]}"
    type_ = register_type(dtype)
    # Sums have one instruction for both kinds of integers.
    word = "unsigned long long" if combine == "add" else type_
    return _defined(
        printer,
        f"atomic_{combine}_{short_name(dtype)}",
        type_,
        f"  atomic{_ACTIONS[combine]}(({word}*)at, ({word})value);",
    )


def _exchanging(printer: Values, combine: str, dtype: DType) -> str:
    """Elements of two bytes: exchanged, unless another thread has been faster."""
    type_ = register_type(dtype)
    new = printer.row(combine, ["old", "value"], [dtype, dtype], dtype)
    return _defined(
        printer,
        f"atomic_{combine}_{short_name(dtype)}",
        type_,
        f"""\
  unsigned short* word = (unsigned short*)at;
  unsigned short now = *(volatile unsigned short*)word, seen, next;
  do {{
    seen = now;
    const {type_} old = ({type_})seen;
    next = (unsigned short)({new});
    if (next == seen) return;
    now = atomicCAS(word, seen, next);
  }} while (now != seen);""",
    )


def _float_extreme(printer: Values, combine: str, dtype: DType) -> str:
    """The larger or smaller float, by the order of its bits as an integer.

    The one NaN that is stored is the last in that order; another one that is there
    already stays.
    """
    size, type_ = dtype.itemsize, register_type(dtype)
    sign = 1 << (size * 8 - 1)
    infinity = INFINITY[dtype]
    quiet = infinity | (infinity & -infinity) >> 1
    nan = quiet if combine == "max" else quiet | sign
    ending = {2: "u", 4: "u", 8: "ull"}[size]
    signed, unsigned = _SIGNED[size], _UNSIGNED[size]
    upwards, downwards = combine, "min" if combine == "max" else "max"
    clear = _integer(printer, upwards, np.dtype(f"i{size}"))
    set_ = _integer(printer, downwards, np.dtype(f"u{size}"))
    read = _BITS[size]
    size_of = f"{sign - 1:#x}{ending}"
    return _defined(
        printer,
        f"atomic_{combine}_{short_name(dtype)}",
        type_,
        f"""\
  const {unsigned} there = *(volatile {unsigned}*)at;
  if ((there & {size_of}) > {infinity:#x}{ending}) return;
  {unsigned} bits = ({unsigned}){read};
  if ((bits & {size_of}) > {infinity:#x}{ending}) bits = {nan:#x}{ending};
  if (bits & {sign:#x}{ending}) {set_}(({unsigned}*)at, bits);
  else {clear}(({signed}*)at, ({signed})bits);""",
    )


def _defined(printer: Values, name: str, type_: str, body: str) -> str:
    printer.helper(
        name,
        f"__device__ __forceinline__ void {name}({type_}* at, {type_} value) {{\n"
        f"{body}\n}}\n",
    )
    return name
