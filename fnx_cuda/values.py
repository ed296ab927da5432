"""Names of expressions while a kernel is printed as CUDA C, and index arithmetic.

Registers have C types; 16-bit floats are held in `unsigned short`, bools in `bool`,
which memory keeps as bytes. A value that depends on the loop whose rounds a thread does
several at once has one name for each of them (its lanes). Receives expressions, gives
their texts; next on the walk: `emit.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from fnx import dtypes
from fnx.dtypes import DType
from fnx.kernel import scalar
from fnx.kernel.expr import (
    AsIndex,
    Buffer,
    Const,
    Expr,
    FloorDiv,
    Fold,
    IndexExpr,
    IndexValue,
    Inside,
    Linear,
    Load,
    LoopIndex,
    Mod,
    Op,
    Part,
    stride,
)
from fnx_cuda.preamble import PREAMBLE

_TYPES: dict[DType, str] = {
    dtypes.bool_: "bool",
    dtypes.int8: "signed char",
    dtypes.int16: "short",
    dtypes.int32: "int",
    dtypes.int64: "long long",
    dtypes.uint8: "unsigned char",
    dtypes.uint16: "unsigned short",
    dtypes.uint32: "unsigned int",
    dtypes.uint64: "unsigned long long",
    dtypes.float16: "unsigned short",
    dtypes.bfloat16: "unsigned short",
    dtypes.float32: "float",
    dtypes.float64: "double",
}


INFINITY: dict[DType, int] = {
    dtypes.float16: 0x7C00,
    dtypes.bfloat16: 0x7F80,
    dtypes.float32: 0x7F80_0000,
    dtypes.float64: 0x7FF0_0000_0000_0000,
}
"""The bits of infinity; those of NaNs are larger but for their sign."""


def register_type(dtype: DType) -> str:
    """The C type of a value."""
    return _TYPES[dtype]


def memory_type(dtype: DType) -> str:
    """The C type of a value in memory."""
    return "unsigned char" if dtype == dtypes.bool_ else _TYPES[dtype]


def literal(value: bool | int | float, dtype: DType) -> str:
    """A constant in C; all bits of a float are kept."""
    if dtype == dtypes.bool_:
        return "true" if value else "false"
    if dtype in (dtypes.float16, dtypes.bfloat16):
        return f"(unsigned short){np.array(value, dtype).view(np.uint16):#x}"
    if dtypes.is_float(dtype):
        return _float(float(value), dtype)
    number = int(value)
    if dtype.itemsize < 4:
        return f"({_TYPES[dtype]}){number}" if number >= 0 else f"(short)({number})"
    suffix = ("" if dtypes.is_signed(dtype) else "u") + "ll" * (dtype.itemsize == 8)
    lowest = -(1 << (dtype.itemsize * 8 - 1))
    if number == lowest:  # it has no literal of its own type
        return f"({number + 1}{suffix} - 1)"
    return f"{number}{suffix}" if number >= 0 else f"({number}{suffix})"


def _float(value: float, dtype: DType) -> str:
    if np.isfinite(value):
        text = _HEX_ZEROS.sub("p", value.hex()) + "f" * (dtype == dtypes.float32)
        return text if text[0] != "-" else f"({text})"
    if dtype == dtypes.float32:
        return f"__int_as_float({int(np.float32(value).view(np.int32)):#x})"
    return f"__longlong_as_double({int(np.float64(value).view(np.int64)):#x}ll)"


_HEX_ZEROS = re.compile(r"\.?0+p")

Key = Expr | tuple[Fold, int]


class Values:
    """Lines of C, and what the expressions computed so far are called in them.

    It is the emitter of the scalar table's CUDA printers: `helpers` are the functions
    that they need. Indices have the type `word`.
    """

    def __init__(self, word: str) -> None:
        self.word = word
        self.ending = "u" if word == "int" else "ull"  # of unsigned numbers
        self.lines: list[str] = []
        self.names: dict[Buffer, str] = {}
        self.helpers: dict[str, str] = {}
        self.depth = 1
        self.count = 0
        self.scopes: list[dict[Key, list[str]]] = [{}]
        self.vector: LoopIndex | None = None  # the index that has lanes now
        self.width = 1
        self.alignment = 1  # of all memory, for reads and writes of several elements

    # -- what the printers of the scalar table need

    def type(self, dtype: DType) -> str:
        """The C type of a value."""
        return register_type(dtype)

    def constant(self, value: bool | int | float, dtype: DType) -> str:
        """The text of a constant."""
        return literal(value, dtype)

    def helper(self, name: str, definition: str) -> None:
        """A function that the text must define."""
        self.helpers[name] = definition

    def has_helper(self, name: str) -> bool:
        """Whether the text defines a function already."""
        return name in self.helpers

    # -- lines and names

    def write(self, line: str) -> None:
        """One more line."""
        self.lines.append("  " * self.depth + line)

    def name(self, kind: str = "v") -> str:
        """A new name."""
        self.count += 1
        return f"{kind}{self.count - 1}"

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines in braces; what they compute is not known behind them."""
        self.write(f"{head} {{".lstrip())
        self.depth += 1
        self.scopes.append({})
        yield
        self.scopes.pop()
        self.depth -= 1
        self.write("}")

    def know(self, key: Key, names: list[str]) -> None:
        """Remember what something is called, in each lane."""
        self.scopes[-1][key] = names

    def find(self, key: Key) -> list[str] | None:
        """What has been computed is called, from the innermost block outwards."""
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        return None

    def lanes(self, expr: Expr) -> int:
        """How many values an expression has here."""
        return self.width if self.vector in expr.free else 1

    # -- operands

    def use(self, expr: Expr, lane: int) -> str:
        """A value as an operand, in one lane."""
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype)
        if isinstance(expr, IndexExpr):
            return self.index(expr, lane)
        names = self.find((expr.fold, expr.number) if isinstance(expr, Part) else expr)
        assert names is not None, f"{expr} has not been computed"
        return names[lane if len(names) > 1 else 0]

    def index(self, index: IndexExpr, lane: int) -> str:
        """An index as an operand, in one lane."""
        names = self.find(index)
        if names is None:
            return self.index_text(index, lane)
        if len(names) == 1 and lane and self.vector in index.free:
            step = stride(index, self.vector) if self.vector else None
            assert step is not None
            return f"({names[0]} + {lane * step})"
        return names[lane if len(names) > 1 else 0]

    def index_text(self, index: IndexExpr, lane: int) -> str:
        """How an index is computed, in one lane."""
        match index:
            case Linear():
                terms = [self._term(atom, c, lane) for atom, c in index.terms]
                if index.offset or not terms:
                    terms.append(
                        f"({index.offset})" if index.offset < 0 else f"{index.offset}"
                    )
                return " + ".join(terms)
            case FloorDiv() | Mod():
                return self._division(index, self._operand(index.index, lane))
            case AsIndex():
                return f"({self.word})({self.use(index.value, lane)})"
        raise AssertionError(f"{index} is not set by a loop")

    def _operand(self, index: IndexExpr, lane: int) -> str:
        """An index as an operand of what binds closer than a sum."""
        text = self.index(index, lane)
        return f"({text})" if " " in text and text[0] != "(" else text

    def _term(self, atom: IndexExpr, c: int, lane: int) -> str:
        text = self._operand(atom, lane)
        if c == 1:
            return text
        return f"{text} * {c}" if c > 0 else f"{text} * ({c})"

    def _division(self, expr: FloorDiv | Mod, index: str) -> str:
        """Division that rounds down: unsigned, after what makes it not negative."""
        n = expr.divisor
        shift = -(expr.index.lo // n) if expr.index.lo < 0 else 0
        if shift:
            index = f"({index} + {shift * n})"
        symbol = "/" if isinstance(expr, FloorDiv) else "%"
        unsigned = f"unsigned {self.word}"
        result = f"({self.word})(({unsigned}){index} {symbol} {n}{self.ending})"
        if shift and symbol == "/":
            return f"({result} - {shift})"
        return result

    # -- definitions

    def define(self, expr: Expr) -> None:
        """The lines that compute a value, in each of its lanes."""
        match expr:
            case Linear():
                pass  # a sum is written where it is used
            case IndexExpr():
                lanes = 1 if self.is_steady(expr) else self.width
                texts = [self.index_text(expr, lane) for lane in range(lanes)]
                self.know(expr, self.lane_names(self.word, texts, "i"))
            case Load():
                self.know(expr, self.load(expr))
            case _:
                texts = [self.text(expr, n) for n in range(self.lanes(expr))]
                self.know(expr, self.lane_names(register_type(expr.dtype), texts))

    def is_steady(self, index: IndexExpr) -> bool:
        """Whether an index has the same stride from lane to lane."""
        return self.vector is None or stride(index, self.vector) is not None

    def lane_names(self, type_: str, texts: list[str], kind: str = "v") -> list[str]:
        """New constants of a type, one for each lane."""
        name = self.name(kind)
        names = [f"{name}_{n}" for n in range(len(texts))] if texts[1:] else [name]
        for each, text in zip(names, texts, strict=True):
            self.write(f"const {type_} {each} = {text};")
        return names

    def new(self, type_: str, text: str, kind: str = "v") -> str:
        """A new constant of a type; gives its name."""
        name = self.name(kind)
        self.write(f"const {type_} {name} = {text};")
        return name

    def text(self, expr: Expr, lane: int) -> str:
        """How a value is computed from its operands, in one lane."""
        match expr:
            case Op():
                args = [self.use(arg, lane) for arg in expr.args]
                types = [arg.dtype for arg in expr.args]
                return self.row(expr.name, args, types, expr.dtype)
            case Inside():
                index = self._operand(expr.index, lane)
                return f"(unsigned {self.word}){index} < {expr.extent}{self.ending}"
            case IndexValue():
                index = self._operand(expr.index, lane)
                return f"({register_type(expr.dtype)}){index}"
        raise AssertionError(f"no statement computes {expr}")

    def row(self, name: str, args: list[str], types: list[DType], result: DType) -> str:
        """Print a row of the scalar table."""
        printer = scalar.TABLE[name].cuda
        assert printer is not None, f"math.py should have expanded {name}"
        text = printer(self, args, types, result)
        if name == "convert":
            for helper, definition in PREAMBLE.items():
                if f"{helper}(" in text:
                    self.helper(helper, definition)
        return text

    # -- memory

    def load(self, load: Load) -> list[str]:
        """The elements that a load reads, one for each lane."""
        steady = load.mask is None or self.lanes(load.mask) == 1
        if steady and self.is_vector(load.buffer, load.offset):
            return self.load_vector(load)
        texts = [self._loaded(load, lane) for lane in range(self.lanes(load))]
        return self.lane_names(register_type(load.dtype), texts)

    def _loaded(self, load: Load, lane: int) -> str:
        value = self.element(load.buffer, self.index(load.offset, lane))
        if load.mask is None:
            return value
        return f"{self.use(load.mask, lane)} ? {value} : {literal(0, load.dtype)}"

    def element(self, buffer: Buffer, offset: str) -> str:
        """An element as it is read."""
        text = f"{self.names[buffer]}[{offset}]"
        return f"({text} != 0)" if buffer.dtype == dtypes.bool_ else text

    def is_vector(self, buffer: Buffer, offset: IndexExpr) -> bool:
        """Whether the lanes' elements lie side by side, as many as a vector has."""
        if self.vector is None or stride(offset, self.vector) != 1:
            return False
        return self.width * buffer.dtype.itemsize in (2, 4, 8, 16)

    def load_vector(self, load: Load) -> list[str]:
        """One read for all lanes; 0 in each where the mask, if any, is false."""
        buffer = load.buffer
        type_, name = self.vector_type(buffer.dtype), self.name("w")
        address = f"&{self.names[buffer]}[{self.index(load.offset, 0)}]"
        value = f"*(const {type_}*)({address})"
        if load.mask is None:
            self.write(f"const {type_} {name} = {value};")
        else:
            self.write(f"{type_} {name} = {{}};")
            self.write(f"if ({self.use(load.mask, 0)}) {name} = {value};")
        test = " != 0" if buffer.dtype == dtypes.bool_ else ""
        texts = [f"{name}.at[{lane}]{test}" for lane in range(self.width)]
        return self.lane_names(register_type(buffer.dtype), texts)

    def store_vector(
        self, buffer: Buffer, offset: IndexExpr, values: list[str]
    ) -> None:
        """One write for all lanes."""
        type_, name = self.vector_type(buffer.dtype), self.name("w")
        self.write(f"{type_} {name};")
        for lane, value in enumerate(values):
            self.write(f"{name}.at[{lane}] = {value};")
        self.write(
            f"*({type_}*)(&{self.names[buffer]}[{self.index(offset, 0)}]) = {name};"
        )

    def vector_type(self, dtype: DType) -> str:
        """The name of a struct of as many elements as there are lanes."""
        element = memory_type(dtype)
        name = f"{element.replace(' ', '_')}_x{self.width}"
        size = self.width * dtype.itemsize
        self.alignment = max(self.alignment, size)
        body = f"struct __align__({size}) {name} {{ {element} at[{self.width}]; }};"
        self.helper(name, body)
        return name


def fits_int(bounds: list[tuple[int, int]]) -> bool:
    """Whether indices of these ranges can be computed with 32 bits."""
    limit = 1 << 30
    return all(-limit < lo and hi < limit for lo, hi in bounds)
