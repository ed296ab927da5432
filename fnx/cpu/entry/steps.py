"""What a path without a compiled plan runs: NumPy's own inner loops, and copies.

A step is a C function `void f(char **args, long *sizes, long *strides, void *data)`,
which is how NumPy's loops are called; the first three say where the operands lie, how
many elements there are and how far they are apart. `STEPS` is the machine code that
calls steps one after the other; it reads them from words that `words` lays out, so that
a new path costs no compile. Receives the steps that `watch.py` saw; next on the walk:
`walker.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.records import record

# Where an operand lies that is at a fixed address.
FIXED = -1
MOST_OPERANDS = 8
# The functions of this file: the one that runs steps, and those that are steps.
RUN, COPY, SELECT = "run_steps", "copy_blocks", "select_elements"
CONVERT = "convert_elements"
STEP_FUNCTIONS = RUN, COPY, SELECT, CONVERT

# The dtypes between which elements are converted, by how they are read and written.
_NUMBERS = {
    **{"bool": "i8", "uint8": "i8", "uint16": "i16", "uint32": "i32"},
    **{"int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64"},
    **{"float32": "float", "float64": "double"},
}
_CODES = {name: code for code, name in enumerate(_NUMBERS)}


def conversion(source: np.dtype[Any], target: np.dtype[Any]) -> int | None:
    """The data of a `CONVERT` step, if there is one. Floats saturate, NaN becomes 0."""
    names = source.name, target.name
    if not set(names) <= _CODES.keys():
        return None
    if names == ("int64", "float32"):  # it would be rounded twice
        return None
    return _CODES[source.name] + 16 * _CODES[target.name]


# Words of a step before its operands: function, data, sizes, strides, how many.
_HEAD = 5


@record
class Operand:
    """Memory of a call: `offset` bytes into the array number `slot`.

    Inputs come first, then the outputs, then the arena.
    """

    slot: int
    offset: int


@record
class Step:
    """One call of a C function: its address, or its name in `STEPS`."""

    function: int | str
    data: int
    operands: tuple[Operand, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def words(
    steps: Sequence[Step], addresses: Mapping[str, int]
) -> list[np.ndarray[Any, Any]]:
    """The words that `run_steps` reads, and what they point to.

    `addresses` are those of the functions of this file.
    """
    kept: list[np.ndarray[Any, Any]] = []
    laid = [len(steps)]
    for step in steps:
        numbers = [np.array(row, np.int64) for row in (step.sizes, step.strides)]
        kept += numbers
        function = step.function
        laid += [addresses[function] if isinstance(function, str) else function]
        laid.append(step.data)
        laid += [row.ctypes.data for row in numbers]
        laid.append(len(step.operands))
        for operand in step.operands:
            laid += [operand.slot, operand.offset]
    return [np.array(laid, np.int64), *kept]


def _operand(name: str, number: int) -> str:
    """Loads where an operand begins, and its stride."""
    return f"""
  %{name}.arg = getelementptr ptr, ptr %args, i64 {number}
  %{name}.start = load ptr, ptr %{name}.arg
  %{name}.stride.at = getelementptr i64, ptr %strides, i64 {number}
  %{name}.stride = load i64, ptr %{name}.stride.at"""


def _element(name: str) -> str:
    """The place of an operand's element `%number`."""
    return f"""
  %{name}.offset = mul i64 %number, %{name}.stride
  %{name} = getelementptr i8, ptr %{name}.start, i64 %{name}.offset"""


def _reading(name: str) -> str:
    """Reads an element as a 64-bit integer or float."""
    type_ = _NUMBERS[name]
    if type_ in ("float", "double"):
        wide = "%real.double = load double, ptr %x"
        if type_ == "float":
            wide = (
                "%narrow = load float, ptr %x\n"
                "  %real.float = fpext float %narrow to double"
            )
        return f"read.{name}:\n  {wide}\n  br label %float\n"
    extend = "zext" if name[0] in "ub" else "sext"
    wide = f"%{name}.wide = {extend} {type_} %{name} to i64"
    if type_ == "i64":
        wide = f"%{name}.wide = add i64 %{name}, 0"
    return f"""read.{name}:
  %{name} = load {type_}, ptr %x
  {wide}
  br label %integer
"""


def _writing(name: str) -> str:
    """Writes an element."""
    type_, value = _NUMBERS[name], f"%{name}.out"
    if name == "bool":
        made = (
            "%bool.bit = fcmp une double %real, 0.0\n"
            f"  {value} = zext i1 %bool.bit to i8"
        )
    elif type_ == "double":
        made, value = "", "%real"
    elif type_ == "float":
        made = f"{value} = fptrunc double %real to float"
    elif type_ == "i64":
        made, value = "", "%whole"
    else:
        made = f"{value} = trunc i64 %whole to {type_}"
    return f"""write.{name}:
  {made}
  store {type_} {value}, ptr %to
  br label %next
"""


def _labels(prefix: str) -> str:
    return " ".join(f"i64 {n}, label %{prefix}.{name}" for name, n in _CODES.items())


_INTEGERS = [name for name, type_ in _NUMBERS.items() if type_[0] == "i"]


def _ends(which: str) -> str:
    """The least or greatest number of each integer dtype; floats have none."""
    rows = []
    for name in _NUMBERS:
        integer = name in _INTEGERS and name != "bool"
        rows.append(f"i64 {getattr(np.iinfo(name), which) if integer else 0}")
    return f"[{len(rows)} x i64] [{', '.join(rows)}]"


_CONVERT = f"""
@least = internal constant {_ends("min")}
@greatest = internal constant {_ends("max")}
declare i64 @llvm.fptosi.sat.i64.f64(double)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

; A step: sizes[0] numbers of one dtype become numbers of another; the codes of both are
; in the data. Integers go by way of 64 bits, and to floats by way of double precision;
; floats that are no integer of a dtype become the nearest one, NaN becomes 0.
define void @{CONVERT}(ptr %args, ptr %sizes, ptr %strides, ptr %data) {{
entry:
  %count = load i64, ptr %sizes
  %codes = ptrtoint ptr %data to i64
  %from.code = and i64 %codes, 15
  %to.code = lshr i64 %codes, 4
  %least.at = getelementptr i64, ptr @least, i64 %to.code
  %least = load i64, ptr %least.at
  %greatest.at = getelementptr i64, ptr @greatest, i64 %to.code
  %greatest = load i64, ptr %greatest.at
{_operand("x", 0)}{_operand("to", 1)}
  br label %start
start:
  br label %round
next:
  %after = add i64 %number, 1
  br label %round
round:
  %number = phi i64 [ 0, %start ], [ %after, %next ]
  %done = icmp eq i64 %number, %count
  br i1 %done, label %all, label %one
one:
{_element("x")}{_element("to")}
  switch i64 %from.code, label %all [ {_labels("read")} ]
{"".join(map(_reading, _NUMBERS))}
integer:
  %integer.value = phi i64 {
    ", ".join(f"[ %{name}.wide, %read.{name} ]" for name in _INTEGERS)
}
  %integer.real = sitofp i64 %integer.value to double
  br label %write
float:
  %float.value = phi double [ %real.float, %read.float32 ],
    [ %real.double, %read.float64 ]
  %float.whole = call i64 @llvm.fptosi.sat.i64.f64(double %float.value)
  %float.capped = call i64 @llvm.smin.i64(i64 %float.whole, i64 %greatest)
  %float.bounded = call i64 @llvm.smax.i64(i64 %float.capped, i64 %least)
  br label %write
write:
  %whole = phi i64 [ %integer.value, %integer ], [ %float.bounded, %float ]
  %real = phi double [ %integer.real, %integer ], [ %float.value, %float ]
  switch i64 %to.code, label %all [ {_labels("write")} ]
{"".join(map(_writing, _NUMBERS))}
all:
  ret void
}}
"""

STEPS = f"""{_CONVERT}
; Runs the steps that the words at %data say.
define i32 @{RUN}(ptr %pointers, ptr %data) {{
entry:
  %args = alloca ptr, i64 {MOST_OPERANDS}
  %count = load i64, ptr %data
  %first = getelementptr i64, ptr %data, i64 1
  br label %next
next:
  %number = phi i64 [ 0, %entry ], [ %number.next, %run ]
  %step = phi ptr [ %first, %entry ], [ %place, %run ]
  %done = icmp eq i64 %number, %count
  br i1 %done, label %all, label %one
one:
  %number.next = add i64 %number, 1
  %function = load ptr, ptr %step
  %more.at = getelementptr i64, ptr %step, i64 1
  %more = load ptr, ptr %more.at
  %sizes.at = getelementptr i64, ptr %step, i64 2
  %sizes = load ptr, ptr %sizes.at
  %strides.at = getelementptr i64, ptr %step, i64 3
  %strides = load ptr, ptr %strides.at
  %operands.at = getelementptr i64, ptr %step, i64 4
  %operands = load i64, ptr %operands.at
  %operand.first = getelementptr i64, ptr %step, i64 {_HEAD}
  br label %operand
operand:
  %n = phi i64 [ 0, %one ], [ %n.next, %operand.put ]
  %place = phi ptr [ %operand.first, %one ], [ %place.next, %operand.put ]
  %ready = icmp eq i64 %n, %operands
  br i1 %ready, label %run, label %operand.find
operand.find:
  %slot = load i64, ptr %place
  %fixed = icmp slt i64 %slot, 0
  br i1 %fixed, label %operand.put, label %operand.load
operand.load:
  %base.at = getelementptr ptr, ptr %pointers, i64 %slot
  %base = load ptr, ptr %base.at
  br label %operand.put
operand.put:
  %start = phi ptr [ null, %operand.find ], [ %base, %operand.load ]
  %offset.at = getelementptr i64, ptr %place, i64 1
  %offset = load i64, ptr %offset.at
  %memory = getelementptr i8, ptr %start, i64 %offset
  %arg = getelementptr ptr, ptr %args, i64 %n
  store ptr %memory, ptr %arg
  %n.next = add i64 %n, 1
  %place.next = getelementptr i64, ptr %place, i64 2
  br label %operand
run:
  call void %function(ptr %args, ptr %sizes, ptr %strides, ptr %more)
  br label %next
all:
  ret i32 0
}}

; A step: sizes[0] times sizes[1] bytes, from the second operand where the first one is
; true, else from the third one.
define void @{SELECT}(ptr %args, ptr %sizes, ptr %strides, ptr %data) {{
entry:
  %count = load i64, ptr %sizes
  %nbytes.at = getelementptr i64, ptr %sizes, i64 1
  %nbytes = load i64, ptr %nbytes.at
{_operand("condition", 0)}{_operand("x", 1)}{_operand("y", 2)}{_operand("to", 3)}
  br label %next
next:
  %number = phi i64 [ 0, %entry ], [ %after, %one ]
  %done = icmp eq i64 %number, %count
  br i1 %done, label %all, label %one
one:
{_element("condition")}{_element("x")}{_element("y")}{_element("to")}
  %chosen = load i8, ptr %condition
  %holds = icmp ne i8 %chosen, 0
  %from = select i1 %holds, ptr %x, ptr %y
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %nbytes, i1 false)
  %after = add i64 %number, 1
  br label %next
all:
  ret void
}}

; A step: sizes[0] blocks of sizes[1] bytes, each pair strides apart.
define void @{COPY}(ptr %args, ptr %sizes, ptr %strides, ptr %data) {{
entry:
  %from.first = load ptr, ptr %args
  %to.at = getelementptr ptr, ptr %args, i64 1
  %to.first = load ptr, ptr %to.at
  %count = load i64, ptr %sizes
  %nbytes.at = getelementptr i64, ptr %sizes, i64 1
  %nbytes = load i64, ptr %nbytes.at
  %from.stride = load i64, ptr %strides
  %to.stride.at = getelementptr i64, ptr %strides, i64 1
  %to.stride = load i64, ptr %to.stride.at
  br label %next
next:
  %number = phi i64 [ 0, %entry ], [ %after, %one ]
  %from = phi ptr [ %from.first, %entry ], [ %from.next, %one ]
  %to = phi ptr [ %to.first, %entry ], [ %to.next, %one ]
  %done = icmp eq i64 %number, %count
  br i1 %done, label %all, label %one
one:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %nbytes, i1 false)
  %after = add i64 %number, 1
  %from.next = getelementptr i8, ptr %from, i64 %from.stride
  %to.next = getelementptr i8, ptr %to, i64 %to.stride
  br label %next
all:
  ret void
}}
"""
