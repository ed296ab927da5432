"""Routines as text: a function in LLVM IR, and one in CUDA C.

A kernel that uses a routine calls it, lane by lane, as a helper of its module: LLVM
compiles it once for a process. Functions that `math.py` expands are helpers of their
own here, so that a routine that calls `exp` ten times holds it once. Receives
routines, gives the printers of rows of the scalar table. Next on the walk:
`special.py`, which has the routines.
"""

from __future__ import annotations

import functools
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.kernel import math, scalar, scalar_cuda, scalar_llvm
from fnx.kernel.routine import (
    Block,
    Branch,
    Cell,
    Lookup,
    Loop,
    Number,
    Operand,
    Recorder,
    Routine,
    Step,
)

DType = np.dtype[Any]


@functools.cache
def _expanded(name: str, dtype: DType) -> Routine:
    """A function of `math.py` as a routine."""
    recorder = Recorder()
    arity = scalar.TABLE[name].arity
    inputs = tuple([recorder.cell(dtype) for _ in range(arity)])
    result: Any = getattr(math, name)(recorder, *inputs)
    block = Block(recorder.statements, (result,))
    return Routine(f"{name}_{dtypes.short(dtype)}", inputs, block)


def _table_name(table: tuple[float, ...]) -> str:
    digest = hashlib.sha256(repr(table).encode()).hexdigest()
    return f"fnx_table_{digest[:12]}"


class _Printer(ABC):
    """Prints blocks of statements, each kind by its method."""

    def block(self, block: Block) -> None:
        """Print a block."""
        for statement in block.statements:
            match statement:
                case Step():
                    self.step(statement)
                case Lookup():
                    self.lookup(statement)
                case Branch():
                    self.branch(statement)
                case Loop():
                    self.loop(statement)

    @abstractmethod
    def step(self, step: Step) -> None:
        """Print a row of the table, or a call of what `math.py` expands."""

    @abstractmethod
    def lookup(self, lookup: Lookup) -> None:
        """Print a load from a constant."""

    @abstractmethod
    def branch(self, branch: Branch) -> None:
        """Print both blocks of a branch."""

    @abstractmethod
    def loop(self, loop: Loop) -> None:
        """Print a loop."""


# ---------------------------------------------------------------- LLVM IR


def llvm(routine: Routine) -> scalar_llvm.Printer:
    """The row's printer: a call for each lane."""

    def print_(
        e: scalar_llvm.Emitter,
        args: list[str],
        operands: list[DType],
        result: DType,
        lanes: int,
    ) -> str:
        name = _llvm_helper(e, routine)
        if lanes == 1:
            return _llvm_call(e, name, routine, args)
        vector = e.type(result, lanes)
        value = "poison"
        for lane in range(lanes):
            each = [
                e.emit(f"extractelement {e.type(dtype, lanes)} {arg}, i64 {lane}")
                for arg, dtype in zip(args, operands, strict=True)
            ]
            called = _llvm_call(e, name, routine, each)
            scalar_type = e.type(result, 1)
            value = e.emit(
                f"insertelement {vector} {value}, {scalar_type} {called}, i64 {lane}"
            )
        return value

    return print_


def _llvm_call(
    e: scalar_llvm.Emitter, name: str, routine: Routine, args: Sequence[str]
) -> str:
    types = [e.type(cell.dtype, 1) for cell in routine.inputs]
    given = ", ".join(f"{t} {arg}" for t, arg in zip(types, args, strict=True))
    result = e.type(routine.body.results[0].dtype, 1)
    return e.emit(f"call {result} @{name}({given})")


def _llvm_helper(e: scalar_llvm.Emitter, routine: Routine) -> str:
    """Adds the routine's function to the module; gives its name."""
    name = f"fnx_{routine.name}"
    e.routine(name, routine, _llvm_function)
    return name


def _llvm_function(e: scalar_llvm.Emitter, routine: Routine) -> tuple[str, list[str]]:
    """Prints the body; gives the function's head and the memory that it allocates."""
    names = {cell: f"%x{n}" for n, cell in enumerate(routine.inputs)}
    printer = _LLVM(e, names)
    printer.block(routine.body)
    (result,) = routine.body.results
    type_ = e.type(result.dtype, 1)
    e.write(f"ret {type_} {printer.use(result)}")
    inputs = [f"{e.type(c.dtype, 1)} {names[c]}" for c in routine.inputs]
    head = f"{type_} @fnx_{routine.name}({', '.join(inputs)})"
    return head, printer.memory


class _LLVM(_Printer):
    """Prints statements; `names` are what cells are called."""

    def __init__(self, e: scalar_llvm.Emitter, names: dict[Cell, str]) -> None:
        self.e, self.names = e, names
        self.memory: list[str] = []  # LLVM makes registers of what is allocated first

    def allocate(self, type_: str) -> str:
        """The address of memory that the function has."""
        name = f"%m{len(self.memory)}"
        self.memory.append(f"{name} = alloca {type_}")
        return name

    def use(self, operand: Operand) -> str:
        """The text of an operand."""
        if isinstance(operand, Number):
            return self.e.constant(operand.value, operand.dtype, 1)
        return self.names[operand]

    def step(self, step: Step) -> None:
        """Print a row of the table, or a call of what `math.py` expands."""
        args = [self.use(arg) for arg in step.args]
        row = scalar.TABLE[step.name]
        if row.llvm is None:
            routine = _expanded(step.name, step.result.dtype)
            name = _llvm_helper(self.e, routine)
            self.names[step.result] = _llvm_call(self.e, name, routine, args)
            return
        types = [arg.dtype for arg in step.args]
        self.names[step.result] = row.llvm(self.e, args, types, step.result.dtype, 1)

    def lookup(self, lookup: Lookup) -> None:
        """Print a load from a constant of the module."""
        e, count = self.e, len(lookup.table)
        name = _table_name(lookup.table)
        type_ = f"[{count} x double]"
        values = [
            f"double {e.constant(value, dtypes.float64, 1)}" for value in lookup.table
        ]
        e.helper(name, f"@{name} = private constant {type_} [{', '.join(values)}]")
        index = e.emit(f"fptoui double {self.use(lookup.index)} to i64")
        place = e.emit(f"getelementptr {type_}, ptr @{name}, i64 0, i64 {index}")
        self.names[lookup.result] = e.emit(f"load double, ptr {place}")

    def branch(self, branch: Branch) -> None:
        """Print both blocks; a phi for each result joins them."""
        e = self.e
        then, otherwise, after = e.label(), e.label(), e.label()
        condition = self.use(branch.condition)
        e.write(f"br i1 {condition}, label %{then}, label %{otherwise}")
        sides = []
        for label, block in ((then, branch.then), (otherwise, branch.otherwise)):
            e.start(label)
            self.block(block)
            sides.append((e.block, [self.use(result) for result in block.results]))
            e.write(f"br label %{after}")
        e.start(after)
        for n, cell in enumerate(branch.results):
            pairs = ", ".join(f"[ {values[n]}, %{label} ]" for label, values in sides)
            self.names[cell] = e.emit(f"phi {e.type(cell.dtype, 1)} {pairs}")

    def loop(self, loop: Loop) -> None:
        """Print the rounds: the state is in memory, which LLVM puts into registers."""
        e = self.e
        places = [self.allocate(e.type(cell.dtype, 1)) for cell in loop.state]
        count = self.allocate("i64")
        for place, operand in zip(places, loop.initial, strict=True):
            e.write(f"store {self._typed(operand)}, ptr {place}")
        e.write(f"store i64 {loop.limit}, ptr {count}")
        head, after = e.label(), e.label()
        e.write(f"br label %{head}")
        e.start(head)
        self._load(loop.state, places)
        self.block(loop.body)
        *following, more = loop.body.results
        for place, operand in zip(places, following, strict=True):
            e.write(f"store {self._typed(operand)}, ptr {place}")
        left = e.emit(f"sub i64 {e.emit(f'load i64, ptr {count}')}, 1")
        e.write(f"store i64 {left}, ptr {count}")
        some = e.emit(f"icmp ne i64 {left}, 0")
        again = e.emit(f"and i1 {some}, {self.use(more)}")
        e.write(f"br i1 {again}, label %{head}, label %{after}")
        e.start(after)
        self._load(loop.results, places)

    def _load(self, cells: Sequence[Cell], places: Sequence[str]) -> None:
        for cell, place in zip(cells, places, strict=True):
            type_ = self.e.type(cell.dtype, 1)
            self.names[cell] = self.e.emit(f"load {type_}, ptr {place}")

    def _typed(self, operand: Operand) -> str:
        return f"{self.e.type(operand.dtype, 1)} {self.use(operand)}"


# ---------------------------------------------------------------- CUDA C


def cuda(routine: Routine) -> scalar_cuda.Printer:
    """The row's printer: a call."""

    def print_(
        c: scalar_cuda.Emitter, args: list[str], operands: list[DType], result: DType
    ) -> str:
        return f"{_cuda_helper(c, routine)}({', '.join(args)})"

    return print_


def _cuda_helper(c: scalar_cuda.Emitter, routine: Routine) -> str:
    """Adds the text of the routine's function, after those it calls."""
    name = f"fnx_{routine.name}"
    if c.has_helper(name):
        return name
    printer = _CUDA(c)
    inputs = []
    for n, cell in enumerate(routine.inputs):
        printer.names[cell] = f"x{n}"
        inputs.append(f"{c.type(cell.dtype)} x{n}")
    printer.block(routine.body)
    (result,) = routine.body.results
    head = f"__device__ static {c.type(result.dtype)} {name}({', '.join(inputs)})"
    printer.write(f"return {printer.use(result)};")
    body = "\n".join(printer.lines)
    c.helper(name, f"{head} {{\n{body}\n}}\n")
    return name


class _CUDA(_Printer):
    """Prints statements; `names` are what cells are called."""

    def __init__(self, c: scalar_cuda.Emitter) -> None:
        self.c = c
        self.names: dict[Cell, str] = {}
        self.lines: list[str] = []
        self.depth = 1

    def write(self, line: str) -> None:
        """One more line."""
        self.lines.append("  " * self.depth + line)

    def use(self, operand: Operand) -> str:
        """The text of an operand."""
        if isinstance(operand, Number):
            return self.c.constant(operand.value, operand.dtype)
        return self.names[operand]

    def step(self, step: Step) -> None:
        """Print a row of the table, or a call of what `math.py` expands."""
        args = [self.use(arg) for arg in step.args]
        row = scalar.TABLE[step.name]
        if row.cuda is None:
            name = _cuda_helper(self.c, _expanded(step.name, step.result.dtype))
            text = f"{name}({', '.join(args)})"
        else:
            types = [arg.dtype for arg in step.args]
            text = row.cuda(self.c, args, types, step.result.dtype)
        self.declare(step.result, text, "const ")

    def declare(self, cell: Cell, text: str, qualifier: str = "") -> None:
        """A variable for a cell, with its value if there is one yet."""
        name = self.names[cell] = f"v{cell.number}"
        value = f" = {text}" if text else ""
        self.write(f"{qualifier}{self.c.type(cell.dtype)} {name}{value};")

    def lookup(self, lookup: Lookup) -> None:
        """Print a read of a constant array."""
        c, name = self.c, _table_name(lookup.table)
        values = [c.constant(value, dtypes.float64) for value in lookup.table]
        head = f"__device__ static const double {name}[{len(values)}]"
        c.helper(name, f"{head} = {{{', '.join(values)}}};\n")
        self.declare(lookup.result, f"{name}[(int){self.use(lookup.index)}]", "const ")

    def branch(self, branch: Branch) -> None:
        """Print an if; both blocks assign to the results."""
        for cell in branch.results:
            self.declare(cell, "")
        heads = f"if ({self.use(branch.condition)}) {{", "} else {"
        for head, block in zip(heads, (branch.then, branch.otherwise), strict=True):
            self.write(head)
            self.depth += 1
            self.block(block)
            self.assign(branch.results, block.results)
            self.depth -= 1
        self.write("}")

    def loop(self, loop: Loop) -> None:
        """Print a for; what the round gives is complete before the state changes."""
        for cell, operand in zip(loop.results, loop.initial, strict=True):
            self.declare(cell, self.use(operand))
        count = f"n{loop.results[0].number}"
        self.write(f"for (int {count} = 0; {count} < {loop.limit}; ++{count}) {{")
        self.depth += 1
        for cell, result in zip(loop.state, loop.results, strict=True):
            self.declare(cell, self.names[result], "const ")
        self.block(loop.body)
        *following, more = loop.body.results
        self.assign(loop.results, following)
        self.write(f"if (!{self.use(more)}) break;")
        self.depth -= 1
        self.write("}")

    def assign(self, cells: Sequence[Cell], operands: Sequence[Operand]) -> None:
        """Assign operands to variables; none of them is such a variable itself."""
        for cell, operand in zip(cells, operands, strict=True):
            self.write(f"{self.names[cell]} = {self.use(operand)};")
