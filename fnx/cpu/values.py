"""Names and lanes of expressions while a kernel is printed, and index arithmetic.

A value that depends on the index of the vector loop has a register with lanes, all
others are scalars. An index whose lanes lie at a fixed stride is held as a scalar, its
value in lane 0; only where that is not enough does it become a vector of integers, of
32 bits where its range allows. Receives expressions; next on the walk: `access.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fnx import dtypes
from fnx.cpu.llvm import Numbers, Text, Writer, register_type
from fnx.dtypes import DType
from fnx.kernel.expr import (
    AsIndex,
    Const,
    Expr,
    FloorDiv,
    Fold,
    IndexExpr,
    IndexValue,
    Inside,
    Linear,
    LoopIndex,
    Mod,
    Part,
    Terms,
    split_terms,
    stride,
    terms_of,
)
from fnx.sizes import Size, surely_at_most, surely_below

Key = Expr | tuple[Fold, int] | Terms


@dataclass(slots=True)
class Scope:
    """What has been computed in one loop (or outside of all).

    The values of a fold are kept by the fold and their number, sums without an offset
    also by their terms.
    """

    index: LoopIndex | None = None
    values: dict[Key, str] = field(default_factory=dict)
    broadcasts: dict[tuple[str, str, int], str] = field(default_factory=dict)


class Values(Writer):
    """A writer that knows what the kernel's expressions are called."""

    def __init__(self, module: Text) -> None:
        super().__init__(module)
        self.scopes = [Scope()]
        self.vector: LoopIndex | None = None  # the index that has lanes now
        self.width = 1
        self.numbers = Numbers(module)

    @contextmanager
    def scope(self, index: LoopIndex, name: str) -> Iterator[None]:
        """What is computed inside is forgotten afterwards."""
        self.scopes.append(Scope(index, {index: name}))
        yield
        self.scopes.pop()

    def lanes(self, expr: Expr) -> int:
        """How many lanes an expression has here."""
        return self.width if self.vector in expr.free else 1

    def know(self, expr: Expr, name: str) -> None:
        """Remember what has been computed."""
        values = self.scopes[-1].values
        values[expr] = name
        if isinstance(expr, Linear) and expr.offset == 0:
            values[expr.terms] = name

    def find(self, key: Key) -> str | None:
        """The name of what has been computed, from the innermost loop outwards."""
        for scope in reversed(self.scopes):
            if (value := scope.values.get(key)) is not None:
                return value
        return None

    def use(self, expr: Expr, lanes: int) -> str:
        """A value as an operand with so many lanes."""
        if isinstance(expr, Const):
            return self.constant(expr.value, expr.dtype, lanes)
        value = self.find((expr.fold, expr.number) if isinstance(expr, Part) else expr)
        assert value is not None, f"{expr} has not been computed"
        if lanes > self.lanes(expr):
            return self.spread(value, register_type(expr.dtype), lanes)
        return value

    def spread(self, value: str, type_: str, lanes: int) -> str:
        """A scalar in every lane; done once in a loop."""
        known = self.scopes[-1].broadcasts
        key = value, type_, lanes  # a number may have any type
        if key not in known:
            known[key] = self.broadcast(value, type_, lanes)
        return known[key]

    def resized(self, value: str, source: DType, bits: int, lanes: int) -> str:
        """An integer value with another number of bits."""
        old = source.itemsize * 8
        if old == bits:
            return value
        if value[0] != "%" and lanes == 1:
            return str(int(value) & ((1 << bits) - 1)) if old > bits else value
        extend = "sext" if dtypes.is_signed(source) else "zext"
        how = "trunc" if old > bits else extend
        types = self.integer(old, lanes), self.integer(bits, lanes)
        return self.emit(f"{how} {types[0]} {value} to {types[1]}")

    # -- numbers that may be known only when the program runs

    def size(self, number: int | Size) -> str:
        """A number as an operand."""
        return self.numbers.operand(number)

    def sizes_in_lanes(self, number: int | Size, bits: int) -> str:
        """A number in every lane, as an integer of so many bits."""
        value = self.resized(self.size(number), dtypes.int64, bits, 1)
        return self.spread(value, f"i{bits}", self.width)

    # -- indices as scalars of 64 bits

    def has_lanes(self, index: IndexExpr) -> bool:
        """Whether an index is a vector of integers here: it has no fixed stride."""
        return self.vector is not None and stride(index, self.vector) is None

    def index(self, index: IndexExpr) -> str:
        """An index as a scalar operand, its value in lane 0."""
        if isinstance(index, Linear) and not index.terms:
            return self.size(index.offset)
        return self.find(index) or self.index_scalar(index)

    def index_scalar(self, index: IndexExpr) -> str:
        """Compute an index as a scalar."""
        match index:
            case Linear():
                return self.total(index.terms, index.offset)
            case FloorDiv() | Mod():
                return self.division(index, self.index(index.index), 64, 1)
            case AsIndex():
                value = self.use(index.value, 1)
                return self.resized(value, index.value.dtype, 64, 1)
        raise AssertionError(f"{index} is not set by a loop")

    def total(self, terms: Terms, offset: int) -> str:
        """A sum; what an outer loop has summed up already is taken from there."""
        loops = [scope.index for scope in self.scopes if scope.index is not None]
        outer, inner = split_terms(terms, loops)
        total = self.find(outer)
        for atom, c in terms if total is None else inner:
            term = self.index(atom)
            if c != 1:
                term = self.emit(f"mul i64 {term}, {self.size(c)}")
            total = term if total is None else self.emit(f"add i64 {total}, {term}")
        if total is None or offset == 0:
            return total or self.size(offset)
        return self.emit(f"add i64 {total}, {self.size(offset)}")

    def division(self, expr: FloorDiv | Mod, index: str, bits: int, lanes: int) -> str:
        """Division that rounds down: unsigned, after what makes it not negative."""
        type_ = self.integer(bits, lanes)

        def number(value: int | Size) -> str:
            return self.size(value) if lanes == 1 else self.sizes_in_lanes(value, bits)

        n = expr.divisor
        shift = -(expr.index.lo // n) if expr.index.lo < 0 else 0
        if shift:
            index = self.emit(f"add {type_} {index}, {number(shift * n)}")
        name = "udiv" if isinstance(expr, FloorDiv) else "urem"
        result = self.emit(f"{name} {type_} {index}, {number(n)}")
        if shift and isinstance(expr, FloorDiv):
            result = self.emit(f"sub {type_} {result}, {number(shift)}")
        return result

    # -- indices as vectors

    def index_lanes(self, index: IndexExpr) -> str:
        """Compute an index whose lanes have no fixed stride."""
        bits = index_bits(index)
        match index:
            case FloorDiv() | Mod():
                lanes = self.lanes_of(index.index, bits)
                return self.division(index, lanes, bits, self.width)
            case AsIndex():
                value = self.use(index.value, self.width)
                return self.resized(value, index.value.dtype, bits, self.width)
            case Linear():
                return self.linear_lanes(index, bits)
        raise AssertionError(f"{index} has a fixed stride")

    def linear_lanes(self, linear: Linear, bits: int) -> str:
        """What has a fixed stride is summed up as a scalar, the others as vectors."""
        type_ = self.integer(bits, self.width)
        steady = tuple(term for term in linear.terms if not self.has_lanes(term[0]))
        total = self.steps(steady, linear.offset, bits)
        for atom, c in linear.terms:
            if self.has_lanes(atom):
                lanes = self.lanes_of(atom, bits)
                times = self.sizes_in_lanes(c, bits)
                term = self.emit(f"mul {type_} {lanes}, {times}")
                total = self.emit(f"add {type_} {total}, {term}")
        return total

    def lanes_of(self, index: IndexExpr, bits: int) -> str:
        """An index as a vector of integers, wrapped to so many bits."""
        if not self.has_lanes(index):
            return self.steps(*terms_of(index), bits)
        value = self.find(index) or self.index_lanes(index)
        return self.resized(value, signed_integer(index_bits(index)), bits, self.width)

    def steps(self, terms: Terms, offset: int, bits: int) -> str:
        """A sum with a fixed stride as a vector of integers."""
        assert self.vector is not None
        first = self.resized(self.total(terms, offset), dtypes.int64, bits, 1)
        first = self.spread(first, f"i{bits}", self.width)
        step = sum(c * (stride(atom, self.vector) or 0) for atom, c in terms)
        if step == 0:
            return first
        if isinstance(step, Size):
            type_, each = self.integer(bits, self.width), range(self.width)
            lanes = ", ".join(f"i{bits} {n}" for n in each)
            times = self.sizes_in_lanes(step, bits)
            steps = self.emit(f"mul {type_} {times}, <{lanes}>")
            return self.emit(f"add {type_} {first}, {steps}")
        wrap = (1 << bits) - 1
        each = ", ".join(f"i{bits} {n * step & wrap}" for n in range(self.width))
        return self.emit(f"add {self.integer(bits, self.width)} {first}, <{each}>")

    # -- values made of indices

    def opaque(self, value: str, bits: int) -> str:
        """The same scalar, of which LLVM does not see that a loop counts it.

        It would follow the counter through all integer arithmetic that uses it, which
        takes seconds where that is a hash.
        """
        return self.emit(f"freeze i{bits} {value}") if value[0] == "%" else value

    def inside(self, expr: Inside) -> str:
        """`0 <= index < extent` as one unsigned comparison."""
        lanes = self.lanes(expr)
        if lanes == 1:
            extent = self.size(expr.extent)
            return self.emit(f"icmp ult i64 {self.index(expr.index)}, {extent}")
        bits = index_bits(expr.index)
        index = self.lanes_of(expr.index, bits)
        type_ = self.integer(bits, lanes)
        extent = self.sizes_in_lanes(expr.extent, bits)
        return self.emit(f"icmp ult {type_} {index}, {extent}")

    def index_value(self, expr: IndexValue) -> str:
        """An index as a number."""
        lanes = self.lanes(expr)
        is_float = dtypes.is_float(expr.dtype)
        bits = index_bits(expr.index) if is_float else expr.dtype.itemsize * 8
        if lanes > 1:
            value = self.lanes_of(expr.index, bits)
        else:
            value = self.resized(self.index(expr.index), dtypes.int64, bits, 1)
        if not is_float:
            return value if lanes > 1 else self.opaque(value, bits)
        source, target = self.integer(bits, lanes), self.type(expr.dtype, lanes)
        return self.emit(f"sitofp {source} {value} to {target}")


def index_bits(index: IndexExpr) -> int:
    """32 where an index and all that it is computed from fit, else 64."""
    limit = 1 << 31
    lo, hi = index.range
    if not (surely_at_most(-limit, lo) and surely_below(hi, limit)):
        return 64
    children = [c for c in index.children if isinstance(c, IndexExpr)]
    return max((index_bits(child) for child in children), default=32)


def signed_integer(bits: int) -> DType:
    """The signed integer dtype of 32 or 64 bits."""
    return dtypes.int32 if bits == 32 else dtypes.int64
