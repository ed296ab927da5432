"""LLVM IR of kernels: vector types and phis, straight-line loop bodies, no passes.

A `Module` collects kernels as internal functions `void name(ptr noalias, …)`, one for
all kernels of the same key, and whatever driver functions a plan adds. The printer goes
through a kernel statement by statement and decides nothing; here are its loops and
folds, below it `access.py` and `values.py`. Next on the walk: `jit.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from fnx import dtypes
from fnx.cpu.access import Access
from fnx.cpu.llvm import Text, register_type
from fnx.dtypes import DType
from fnx.kernel.expr import Fold, IndexExpr, IndexValue, Inside, Load, Op
from fnx.kernel.ir import (
    Eval,
    Kernel,
    Loop,
    Stmt,
    Store,
    fold_identity,
    parallel_loop,
)


class Module(Text):
    """One LLVM module: kernels as internal functions, and functions that call them."""

    def __init__(self) -> None:
        super().__init__()
        self._kernels: dict[Hashable, str] = {}

    def add(self, kernel: Kernel, ranged: bool = False) -> str:
        """The name of a function that runs the kernel; equal kernels share it.

        A ranged one takes `i64 begin, i64 end` after its pointers and runs only these
        rounds of the kernel's `parallel_loop`; `begin` is a multiple of its width.
        """
        key = kernel.key, ranged
        name = self._kernels.get(key)
        if name is None:
            clean = "".join(c if c.isalnum() else "_" for c in kernel.name)
            name = self._kernels[key] = f"k{len(self._kernels)}_{clean}"
            self.define(_Printer(self, kernel).function(name, ranged))
        return name


def call_text(
    name: str, pointers: Sequence[str], bounds: tuple[str, str] | None = None
) -> str:
    """The instruction that runs a kernel's function on its buffers, in their order.

    `bounds` are the operands `begin` and `end` of a ranged one.

    >>> call_text("k0_add", ["%x", "%y"])
    'call void @k0_add(ptr %x, ptr %y)'
    """
    args = [f"ptr {pointer}" for pointer in pointers]
    args += [f"i64 {bound}" for bound in bounds or ()]
    return f"call void @{name}({', '.join(args)})"


def exported(name: str, kernel_name: str, count: int) -> str:
    """A function that calls one kernel and can be looked up from outside."""
    pointers = [f"%b{n}" for n in range(count)]
    parameters = ", ".join(f"ptr {p}" for p in pointers)
    body = f"  {call_text(kernel_name, pointers)}\n  ret void"
    return f"define void @{name}({parameters}) {{\n{body}\n}}"


@dataclass(slots=True)
class _Accumulators:
    """The running values of a fold, each with so many lanes."""

    values: list[str]
    lanes: int


class _Printer(Access):
    """Prints one kernel as a function."""

    def __init__(self, module: Text, kernel: Kernel) -> None:
        super().__init__(module, kernel.buffers)
        self.kernel = kernel
        self.folds: dict[Fold, _Accumulators] = {}

    def function(self, name: str, ranged: bool) -> str:
        """The function's definition."""
        loop = parallel_loop(self.kernel) if ranged else None
        assert not ranged or loop, f"kernel {self.kernel.name} has no parallel loop"
        for stmt in self.kernel.body:
            if isinstance(stmt, Loop) and stmt is loop:
                self.ranged_loop(stmt)
            else:
                self.stmt(stmt)
        parameters = [f"ptr noalias {pointer}" for pointer in self.pointers.values()]
        parameters += ["i64 %begin", "i64 %end"] if ranged else []
        head = f"define internal void @{name}({', '.join(parameters)}) {{\nentry:"
        return "\n".join((head, *self.lines, "  ret void\n}"))

    def stmt(self, stmt: Stmt) -> None:
        """Print one statement."""
        match stmt:
            case Eval(expr):
                match expr:
                    case Op():
                        value = self.op(expr)
                    case Load():
                        value = self.load(expr)
                    case Inside():
                        value = self.inside(expr)
                    case IndexValue():
                        value = self.index_value(expr)
                    case IndexExpr() if self.has_lanes(expr):
                        value = self.index_lanes(expr)
                    case IndexExpr():
                        value = self.index_scalar(expr)
                    case _:
                        raise AssertionError(f"no statement computes {expr}")
                self.know(expr, value)
            case Store():
                self.store(stmt)
            case Loop():
                self.loop(stmt)

    def op(self, op: Op) -> str:
        """Apply a scalar operation."""
        lanes = self.lanes(op)
        args = [self.use(arg, lanes) for arg in op.args]
        return self.row(op.name, args, [arg.dtype for arg in op.args], op.dtype, lanes)

    # -- loops

    def loop(self, loop: Loop) -> None:
        """A loop, and the folds that begin and end with it."""
        begun = [fold for fold in loop.folds if fold not in self.folds]
        for fold in begun:
            self.folds[fold] = self.identities(fold, self.fold_lanes(loop, fold))
        whole = loop.extent - loop.extent % loop.width
        with_lanes = loop.width > 1
        if with_lanes:
            self.vector, self.width = loop.index, loop.width
        self.rounds(loop, 0, whole)
        if with_lanes:
            self.vector, self.width = None, 1
        if whole < loop.extent:
            self.rest(loop, whole)
        for fold in begun:
            self.finish(fold)

    def rest(self, loop: Loop, whole: int) -> None:
        """What vectors leave over, with the first lanes of the folds' accumulators."""
        vectors = {fold: self.first_lanes(fold) for fold in loop.folds}
        self.rounds(loop, whole, loop.extent)
        for fold, vector in vectors.items():
            self.put_first_lanes(fold, vector)

    def ranged_loop(self, loop: Loop) -> None:
        """The rounds of a loop without folds that the function was called for."""
        whole = loop.extent - loop.extent % loop.width
        self.vector, self.width = (loop.index if loop.width > 1 else None), loop.width
        self.guarded(loop, "%begin", self.bound("umin", "%end", whole))
        self.vector, self.width = None, 1
        if whole < loop.extent:
            self.guarded(loop, self.bound("umax", "%begin", whole), "%end")

    def bound(self, name: str, value: str, limit: int) -> str:
        """The smaller or larger of two bounds."""
        return self.call(f"llvm.{name}.i64", "i64", ("i64", value), ("i64", str(limit)))

    def guarded(self, loop: Loop, begin: str, end: str) -> None:
        """The rounds from `begin` to `end`, known at run time: perhaps none."""
        some = self.emit(f"icmp ult i64 {begin}, {end}")
        inside, after = self.label(), self.label()
        self.write(f"br i1 {some}, label %{inside}, label %{after}")
        self.start(inside)
        self.rounds(loop, begin, end)
        self.write(f"br label %{after}")
        self.start(after)

    def rounds(self, loop: Loop, begin: int | str, end: int | str) -> None:
        """At least one round: from `begin` to `end`, by the lanes of its index now."""
        step = self.width if self.vector is loop.index else 1
        if isinstance(begin, int) and end == begin + step:
            self.one_round(loop, str(begin))
            return
        label, after = self.label(), self.label()
        index = f"%i{label[1:]}"
        phis = self.enter(loop, index, label, begin)
        self.one_round(loop, index)
        self.write(f"{index}.next = add i64 {index}, {step}")
        self.write(f"{index}.more = icmp ult i64 {index}.next, {end}")
        self.write(f"br i1 {index}.more, label %{label}, label %{after}")
        carried = [v for fold in loop.folds for v in self.folds[fold].values]
        for place, value in enumerate([f"{index}.next", *carried], phis):
            self.lines[place] += f", [ {value}, %{self.block} ]"
        self.start(after)

    def enter(self, loop: Loop, index: str, label: str, begin: int | str) -> int:
        """Begin a loop's block with its phis; gives the line of the first.

        What they are in later rounds is added when the body has been printed.
        """
        before = self.block
        self.write(f"br label %{label}")
        self.start(label)
        phis = len(self.lines)
        self.write(f"{index} = phi i64 [ {begin}, %{before} ]")
        for fold in loop.folds:
            state = self.folds[fold]
            types = [self.type(body.dtype, state.lanes) for body in fold.bodies]
            state.values = [
                self.emit(f"phi {type_} [ {value}, %{before} ]")
                for type_, value in zip(types, state.values, strict=True)
            ]
        return phis

    def one_round(self, loop: Loop, index: str) -> None:
        """The body of a loop, and the folds that it is the innermost loop of."""
        with self.scope(loop.index, index):
            for stmt in loop.body:
                self.stmt(stmt)
            inner = {f for s in loop.body if isinstance(s, Loop) for f in s.folds}
            for fold in loop.folds:
                if fold not in inner:
                    state = self.folds[fold]
                    values = [self.use(body, state.lanes) for body in fold.bodies]
                    state.values = self.combine(fold, state.values, values, state.lanes)

    # -- folds

    def fold_lanes(self, loop: Loop, fold: Fold) -> int:
        """The lanes of a fold's accumulators: of an outer vector loop or its own."""
        if self.lanes(fold) > 1:
            return self.width
        while loop.width == 1:
            inner = [s for s in loop.body if isinstance(s, Loop) and fold in s.folds]
            if not inner:
                return 1
            loop = inner[0]
        return loop.width

    def identities(self, fold: Fold, lanes: int) -> _Accumulators:
        """The accumulators that a fold begins with."""
        values = []
        for number, body in enumerate(fold.bodies):
            identity = fold_identity(fold.combine, number, body.dtype)
            values.append(self.constant(identity, body.dtype, lanes))
        return _Accumulators(values, lanes)

    def first_lanes(self, fold: Fold) -> _Accumulators:
        """Make a fold's accumulators scalars; gives the vectors they are lane 0 of."""
        vectors = self.folds[fold]
        scalars = [
            self.lane(vector, register_type(body.dtype), vectors.lanes, 0)
            for body, vector in zip(fold.bodies, vectors.values, strict=True)
        ]
        self.folds[fold] = _Accumulators(scalars, 1)
        return vectors

    def put_first_lanes(self, fold: Fold, vectors: _Accumulators) -> None:
        """Make a fold's accumulators vectors again."""
        scalars = self.folds[fold].values
        for n, (body, value) in enumerate(zip(fold.bodies, scalars, strict=True)):
            type_, vector = register_type(body.dtype), vectors.values[n]
            vectors.values[n] = self.with_lane(vector, type_, vectors.lanes, value, 0)
        self.folds[fold] = vectors

    def finish(self, fold: Fold) -> None:
        """Make the values of a fold known, its lanes combined if they are its own."""
        state = self.folds.pop(fold)
        if self.lanes(fold) == 1:
            self.reduce(fold, state)
        for number, value in enumerate(state.values):
            self.scopes[-1].values[fold, number] = value

    def reduce(self, fold: Fold, state: _Accumulators) -> None:
        """Combine the lanes, half with half."""
        types = [register_type(body.dtype) for body in fold.bodies]
        typed = list(zip(state.values, types, strict=True))
        while (lanes := state.lanes) > 1:
            middle = lanes // 2
            low = [self.half(value, type_, lanes, 0) for value, type_ in typed]
            high = [self.half(value, type_, lanes, middle) for value, type_ in typed]
            state.values = self.combine(fold, low, high, middle)
            state.lanes = middle
            typed = list(zip(state.values, types, strict=True))

    def combine(self, fold: Fold, a: list[str], b: list[str], lanes: int) -> list[str]:
        """The fold's accumulators with more values."""
        types = [body.dtype for body in fold.bodies]
        if fold.combine.startswith("arg"):
            return self.better(fold.combine, types, a, b, lanes)
        return [
            self.row(fold.combine, [x, y], [t, t], t, lanes)
            for x, y, t in zip(a, b, types, strict=True)
        ]

    def better(
        self, combine: str, types: list[DType], a: list[str], b: list[str], lanes: int
    ) -> list[str]:
        """The better of two (value, position) pairs: NaN, then the lower position."""
        value, position = types
        flag = dtypes.bool_

        def test(name: str, x: str, y: str, dtype: DType = flag) -> str:
            return self.row(name, [x, y], [dtype, dtype], flag, lanes)

        wins = test("gt" if combine == "argmax" else "lt", b[0], a[0], value)
        ties = test("eq", b[0], a[0], value)
        if dtypes.is_float(value):
            was_nan, is_nan = (test("ne", x[0], x[0], value) for x in (a, b))
            was_none = self.row("not", [was_nan], [flag], flag, lanes)
            wins = test("or", wins, test("and", is_nan, was_none))
            ties = test("or", ties, test("and", was_nan, is_nan))
        earlier = test("lt", b[1], a[1], position)
        takes = test("or", wins, test("and", ties, earlier))
        return [
            self.row("select", [takes, y, x], [flag, t, t], t, lanes)
            for x, y, t in zip(a, b, types, strict=True)
        ]
