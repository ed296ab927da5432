"""LLVM IR as text: types, literals, instructions, and the module that collects them.

`Text` holds the functions, declarations and helpers of one module; a `Writer` prints
the instructions of one function and is what the rows of the scalar table print with.
Neither knows kernels; next on the walk: `values.py`, which gives expressions names.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.dtypes import DType
from fnx.sizes import Size

_TYPES: dict[DType, str] = {
    dtypes.bool_: "i1",
    dtypes.float16: "half",
    dtypes.bfloat16: "i16",  # its bits: LLVM would call a library to convert bfloat
    dtypes.float32: "float",
    dtypes.float64: "double",
    **{t: f"i{t.itemsize * 8}" for t in dtypes.SUPPORTED if dtypes.is_integer(t)},
}
_SUFFIXES = {dtypes.float16: "f16", dtypes.float32: "f32", dtypes.float64: "f64"}


def register_type(dtype: DType, lanes: int = 1) -> str:
    """The type of a value in registers: a bool is one bit."""
    name = _TYPES[dtype]
    return name if lanes == 1 else f"<{lanes} x {name}>"


def memory_type(dtype: DType, lanes: int = 1) -> str:
    """The type of elements in memory: a bool is a byte, 0 or 1."""
    name = "i8" if dtype is dtypes.bool_ else _TYPES[dtype]
    return name if lanes == 1 else f"<{lanes} x {name}>"


def integer_type(bits: int, lanes: int = 1) -> str:
    """An integer type of so many bits."""
    return f"i{bits}" if lanes == 1 else f"<{lanes} x i{bits}>"


def overload(dtype: DType, lanes: int, of_memory: bool = False) -> str:
    """The suffix by which an intrinsic tells its overloads apart: `f32`, `v8i32`."""
    name = _SUFFIXES.get(dtype) or (memory_type if of_memory else register_type)(dtype)
    return name if lanes == 1 else f"v{lanes}{name}"


def literal(value: bool | int | float, dtype: DType) -> str:
    """A number as LLVM reads it; floats by their bits, so that nothing is rounded."""
    if dtype is dtypes.bool_:
        return "true" if value else "false"
    if dtype is dtypes.float16:
        return f"0xH{np.float16(value).view(np.uint16):04X}"
    if dtype is dtypes.bfloat16:
        return str(np.array(value, dtype).view(np.uint16))
    if dtypes.is_float(dtype):
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return str(value)


SIZES = "fnx_sizes"
"""The symbol of the numbers that are known when a program runs, of 64 bits each."""

_WORTH = 2_000  # characters of a module whose own overhead is worth it

HELPERS = "; helpers of the scalar table, compiled once and linked\n"
"""The line that stands between a module's own text and its helpers'."""


class Text:
    """The text of one module: functions, declarations, and the scalar table's helpers.

    >>> module = Text()
    >>> module.define("define void @f() { ret void }")
    >>> print(module.text(), end="")
    define void @f() { ret void }
    """

    def __init__(self) -> None:
        self._functions: dict[str, list[tuple[str, str]]] = {}  # texts, and their heads
        self._brief: set[str] = set()
        self._declared: dict[str, str] = {}
        self._helpers: dict[str, str] = {}
        self._called: set[str] = set()  # the helpers that are declared here
        self.sizes: dict[Size, int] = {}  # what is in `SIZES`, and where
        self._tight: list[Text] = []
        self.is_tight = False

    def add_tight(self, part: Text) -> None:
        """Add a module apart, whose functions LLVM's passes are to make one.

        That is worth its time for a loop of few instructions, which would else spend it
        on calls, and on memory for what could be in registers.
        """
        part._helpers, part.sizes, part.is_tight = self._helpers, self.sizes, True
        self._tight.append(part)

    def define(self, text: str, brief: bool = False) -> None:
        """Add a function (or globals) as text.

        One that is `brief` only calls others, which take far longer than it does: LLVM
        need not make good code of it.
        """
        self._functions[text] = _heads(text)
        if brief:
            self._brief.add(text)

    def declare(self, name: str, text: str) -> None:
        """Add the declaration of an external function, once for each name."""
        self._declared.setdefault(name, text)

    def size(self, size: Size) -> int:
        """The place in `SIZES` of a number that is known when the program runs."""
        self.declare(SIZES, f"@{SIZES} = external global [0 x i64]")
        return self.sizes.setdefault(size, len(self.sizes))

    def helper(self, name: str, definition: str) -> None:
        """Add functions that the scalar table calls: declared here, defined apart."""
        if name not in self._called:
            self._called.add(name)
            self._helpers[name] = definition.replace("define internal", "define")
            for head in re.findall(r"^define internal (.*\))", definition, re.M):
                self.declare(head, f"declare {head}")

    def needs(self) -> list[tuple[str, str]]:
        """What the module's functions need of another: declarations and helpers."""
        helpers = [
            (name, re.sub("^define ", "define internal ", text, flags=re.M))
            for name, text in self._helpers.items()
        ]
        heads = [
            head
            for _, text in helpers
            for head in re.findall(r"^define internal (.*\))", text, re.M)
        ]
        declared = [item for item in self._declared.items() if item[0] not in heads]
        return [*declared, *helpers]

    def text(self) -> str:
        """All of the text, as it is shown; the helpers, if any, follow `HELPERS`."""
        texts = "".join([self.own(), *self.tight_texts()])
        return texts + HELPERS + self.helpers() if self._helpers else texts

    def own(self) -> str:
        """The module without its helpers, and without the tight modules."""
        return "\n".join((*self._functions, *self._declared.values())) + "\n"

    def tight_texts(self) -> list[str]:
        """The modules that are to be optimised."""
        return [part.own() for part in self._tight]

    def helpers(self) -> str:
        """The module of the helpers; empty if there are none."""
        return "".join(f"{text}\n" for text in self._helpers.values())

    def cut(self, count: int, least: int = 1) -> list[str]:
        """What is not brief as at most so many modules of about the same length.

        The `least` length is worth one more. Every module declares what the others
        define, to be linked with them.
        """
        brief = self._own_brief()
        longer = [text for text in self._functions if text not in brief]
        count = max(min(count, sum(map(len, longer)) // least), 1)
        parts: list[list[str]] = [[] for _ in range(count)]
        for function in sorted(longer, key=len, reverse=True):
            min(parts, key=lambda part: sum(map(len, part))).append(function)
        return [self._part(part) for part in parts if part]

    def brief(self) -> list[str]:
        """The module of what is brief, if there is any, to be linked with those."""
        brief = self._own_brief()
        functions = [text for text in self._functions if text in brief]
        return [self._part(functions)] if functions else []

    def _own_brief(self) -> set[str]:
        """The brief functions, if together they are worth a module of their own."""
        return self._brief if sum(map(len, self._brief)) >= _WORTH else set()

    def _part(self, functions: Sequence[str]) -> str:
        heads = dict(head for found in self._functions.values() for head in found)
        for function in functions:
            for name, _ in self._functions[function]:
                del heads[name]
        declared = [f"declare {head}" for head in heads.values()]
        text = "\n".join((*functions, *declared, *self._declared.values()))
        return text.replace("define internal", "define hidden") + "\n"


class Numbers:
    """The numbers of one function that are known when it runs: loaded at its start.

    `lines` are its first instructions.
    """

    def __init__(self, module: Text) -> None:
        self.module = module
        self.lines: list[str] = []
        self._names: dict[Size, str] = {}

    def operand(self, number: int | Size) -> str:
        """A number as an operand of 64 bits."""
        if not isinstance(number, Size):
            return str(number)
        name = self._names.get(number)
        if name is None:
            name = self._names[number] = f"%n{len(self._names)}"
            self.lines.append(f"  {name} = load i64, ptr {self.address(number)}")
        return name

    def address(self, number: Size) -> str:
        """Where a number is in memory; its first 32 bits are there, too."""
        place = self.module.size(number)
        return f"getelementptr (i64, ptr @{SIZES}, i64 {place})"


def _heads(text: str) -> list[tuple[str, str]]:
    """Name and head of each function that a text defines."""
    found = re.findall(r"^define (?:internal )?(.*?@(\w+)\(.*?\)) *\{", text, re.M)
    return [(name, re.sub(r" %[\w.]+", "", head)) for head, name in found]


class Writer:
    """Prints the instructions of one function."""

    def __init__(self, module: Text) -> None:
        self.module = module
        self.lines: list[str] = []
        self.block = "entry"  # the label of the basic block that is being printed
        self._names = self._labels = 0

    def emit(self, instruction: str) -> str:
        """Append an instruction and give the name of its value."""
        name = f"%v{self._names}"
        self._names += 1
        self.lines.append(f"  {name} = {instruction}")
        return name

    def write(self, instruction: str) -> None:
        """Append an instruction that has no value."""
        self.lines.append(f"  {instruction}")

    def label(self) -> str:
        """A new label."""
        self._labels += 1
        return f"L{self._labels}"

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.block = label

    def type(self, dtype: DType, lanes: int) -> str:
        """The type of a value in registers."""
        return register_type(dtype, lanes)

    def integer(self, bits: int, lanes: int) -> str:
        """An integer type."""
        return integer_type(bits, lanes)

    def constant(self, value: bool | int | float, dtype: DType, lanes: int) -> str:
        """The text of a constant operand."""
        text = literal(value, dtype)
        return text if lanes == 1 else f"splat ({_TYPES[dtype]} {text})"

    def suffix(self, dtype: DType, lanes: int) -> str:
        """The suffix by which an intrinsic tells its overloads apart."""
        return overload(dtype, lanes)

    def call(self, function: str, result: str, *operands: tuple[str, str]) -> str:
        """Call an external function or an intrinsic, given (type, operand) pairs."""
        return self.emit(self._call_text(function, result, operands))

    def call_void(self, function: str, *operands: tuple[str, str]) -> None:
        """Call an external function that gives nothing."""
        self.write(self._call_text(function, "void", operands))

    def _call_text(
        self, function: str, result: str, operands: Sequence[tuple[str, str]]
    ) -> str:
        types = ", ".join(type_ for type_, _ in operands)
        self.module.declare(function, f"declare {result} @{function}({types})")
        args = ", ".join(f"{type_} {operand}" for type_, operand in operands)
        return f"call {result} @{function}({args})"

    def helper(self, name: str, definition: str) -> None:
        """Add a helper function to the module once."""
        self.module.helper(name, definition)

    def routine(self, name: str, source: Any, print_: Printer) -> None:
        """Add a helper function to the module once, with those that it calls."""
        for helper, definition in _function(name, source, print_):
            self.module.helper(helper, definition)

    # -- lanes

    def broadcast(self, value: str, type_: str, lanes: int) -> str:
        """A scalar in every lane."""
        if value[0] != "%":
            return f"splat ({type_} {value})"
        vector = f"<{lanes} x {type_}>"
        first = self.emit(f"insertelement {vector} poison, {type_} {value}, i64 0")
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.emit(f"shufflevector {vector} {first}, {vector} poison, {zeros}")

    def shuffle(self, value: str, type_: str, lanes: int, chosen: Sequence[int]) -> str:
        """The chosen lanes of a vector, as a vector."""
        vector = f"<{lanes} x {type_}>"
        mask = ", ".join(f"i32 {lane}" for lane in chosen)
        mask = f"<{len(chosen)} x i32> <{mask}>"
        return self.emit(f"shufflevector {vector} {value}, {vector} poison, {mask}")

    def lane(self, value: str, type_: str, lanes: int, number: int) -> str:
        """One lane of a vector, as a scalar."""
        return self.emit(f"extractelement <{lanes} x {type_}> {value}, i64 {number}")

    def with_lane(
        self, vector: str, type_: str, lanes: int, value: str, number: int
    ) -> str:
        """The vector with a scalar in one of its lanes."""
        place = f"<{lanes} x {type_}> {vector}"
        return self.emit(f"insertelement {place}, {type_} {value}, i64 {number}")

    def half(self, value: str, type_: str, lanes: int, first: int) -> str:
        """Half of a vector's lanes, from `first` on; of two lanes, a scalar."""
        if lanes == 2:
            return self.lane(value, type_, 2, first)
        return self.shuffle(value, type_, lanes, range(first, first + lanes // 2))


Printer = Callable[[Writer, Any], tuple[str, list[str]]]


@functools.cache
def _function(name: str, source: Any, print_: Printer) -> tuple[tuple[str, str], ...]:
    """A helper function as text, after the helpers and intrinsics that it needs."""
    module = Text()
    writer = Writer(module)
    head, first = print_(writer, source)
    lines = [*(f"  {line}" for line in first), *writer.lines]
    body = "\n".join([f"define internal {head} noinline {{", "entry:", *lines, "}"])
    return *module.needs(), (name, body)
