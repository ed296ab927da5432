"""LLVM IR of kernels: vector types and phis, straight-line loop bodies, no passes.

A `Module` collects kernels as internal functions `void name(ptr noalias, …)`, one for
all kernels of the same key, and whatever driver functions a plan adds. The printer goes
through a kernel statement by statement and decides nothing; here are its loops and
folds, below it `positions.py`, `access.py` and `values.py`. Next on the walk: `jit.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fnx.cpu.effort import is_little, work
from fnx.cpu.grain import Share
from fnx.cpu.llvm import Text, Writer, memory_type, register_type
from fnx.cpu.positions import Positions
from fnx.cpu.values import Key
from fnx.dtypes import DType
from fnx.kernel.expr import (
    Buffer,
    Expr,
    Fold,
    IndexExpr,
    IndexValue,
    Inside,
    Load,
    Op,
    Part,
    Scan,
)
from fnx.kernel.ir import (
    Eval,
    Kernel,
    Loop,
    Recall,
    Stmt,
    Store,
    fold_identity,
    interleaved,
    loops,
)
from fnx.sizes import Size, surely_below

"""The symbol of the thread pool's function, which kernels with `shares` call."""

UNROLLED = 64
"""Inner loops of at most so many statements, over all of their rounds, are unrolled."""


class Module(Text):
    """One LLVM module: kernels as internal functions, and functions that call them."""

    def __init__(self) -> None:
        super().__init__()
        self._kernels: dict[Hashable, str] = {}

    def add(
        self,
        kernel: Kernel,
        shares: Mapping[Loop, Share] | None = None,
        once: bool = False,
    ) -> str:
        """The name of a function that runs the kernel; equal kernels share it.

        The thread pool runs the loops that have `shares`. A call of the plan runs the
        kernel `once`, or perhaps often.
        """
        brief = _is_shared(kernel, shares or {}) or (once and is_little(kernel))
        key = kernel.key, bool(shares), brief
        name = self._kernels.get(key)
        if name is None:
            clean = "".join(c if c.isalnum() else "_" for c in kernel.name)
            name = self._kernels[key] = f"k{len(self._kernels)}_{clean}"
            text = _Printer(self, kernel).function(name, shares or {})
            self.define(text, brief)
        return name


def _is_shared(kernel: Kernel, shares: Mapping[Loop, Share]) -> bool:
    """Whether the function of a kernel has the thread pool do all of it."""
    return all(
        isinstance(stmt, Loop) and stmt in shares and not stmt.folds
        for stmt in kernel.body
    )


def call_text(name: str, pointers: Sequence[str]) -> str:
    """The instruction that runs a kernel's function on its buffers, in their order.

    >>> call_text("k0_add", ["%x", "%y"])
    'call void @k0_add(ptr %x, ptr %y)'
    """
    args = ", ".join(f"ptr {pointer}" for pointer in pointers)
    return f"call void @{name}({args})"


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


class _Printer(Positions):
    """Prints one kernel as a function."""

    def __init__(self, module: Text, kernel: Kernel) -> None:
        super().__init__(module, kernel.buffers)
        self.kernel = kernel
        self.folds: dict[Fold | Scan, _Accumulators] = {}
        self.partials: dict[Fold, list[Buffer]] = {}
        self.taken: str | None = None  # the lanes that folds take of the last vector

    def function(self, name: str, shares: Mapping[Loop, Share]) -> str:
        """The function's definition."""
        for buffer in self.common():
            self.pointer(buffer)
        for stmt in self.kernel.body:
            share = shares.get(stmt) if isinstance(stmt, Loop) else None
            if isinstance(stmt, Loop) and share is not None:
                self.shared_loop(stmt, share, f"{name}_part{len(self.memory)}")
            else:
                self.stmt(stmt)
        pointers = [self.pointers[buffer] for buffer in self.kernel.buffers]
        return self.definition(name, [f"ptr noalias {pointer}" for pointer in pointers])

    def common(self) -> set[Buffer]:
        """The local buffers that several statements outside of all loops use."""
        found: list[Buffer] = []
        for stmt in self.kernel.body if self.kernel.locals else ():
            inner = loops((stmt,)) if isinstance(stmt, Loop) else ()
            stmts = [stmt, *(s for loop in inner for s in loop.body)]
            places = [s.expr if isinstance(s, Eval) else s for s in stmts]
            used = [p.buffer for p in places if isinstance(p, Load | Store | Recall)]
            found += {buffer for buffer in used if buffer.role == "local"}
        return {buffer for buffer in found if found.count(buffer) > 1}

    def definition(self, name: str, parameters: Sequence[str]) -> str:
        """A function of what has been printed."""
        inlined = " alwaysinline" if self.module.is_tight else ""
        head = f"define internal void @{name}({', '.join(parameters)}){inlined} {{"
        first = *self.memory, *self.numbers.lines
        return "\n".join((head, "entry:", *first, *self.lines, "  ret void\n}"))

    # -- loops that threads share

    def shared_loop(self, loop: Loop, share: Share, name: str) -> None:
        """Have the thread pool run a loop; what its folds combine is kept meanwhile."""
        for fold in loop.folds:
            each = [Buffer("", b.dtype, loop.extent, "out") for b in fold.bodies]
            self.partials[fold] = each
            for buffer in each:
                type_ = f"[{buffer.size} x {memory_type(buffer.dtype)}]"
                self.pointers[buffer] = self.allocate(type_)
        known = self.scopes[0].values
        values = [("ptr", pointer) for pointer in self.pointers.values()]
        values += [(_key_type(key), value) for key, value in known.items()]
        context = self.allocate(f"[{len(values)} x i64]")
        for n, (type_, value) in enumerate(values):
            address = self.emit(f"getelementptr i64, ptr {context}, i64 {n}")
            self.write(f"store {type_} {value}, ptr {address}")
        self.part(loop, name)
        ends = f"i64 {self.size(share.rounds)}, i64 {self.size(share.chunk)}"
        args = f"ptr @{name}, ptr {context}, {ends}"
        run = share.run
        self.module.declare(run, f"declare void @{run}(ptr, ptr, i64, i64)")
        self.write(f"call void @{run}({args})")
        if loop.folds:
            self.loop(Loop(loop.index, (), loop.folds))

    def know_partials(self, fold: Fold, index: str) -> None:
        """Make known what a fold combines in a round that threads have run before."""
        for body, buffer in zip(fold.bodies, self.partials[fold], strict=True):
            key = (body.fold, body.number) if isinstance(body, Part) else body
            value = self.to_register(self.get(buffer, index), body.dtype, 1)
            self.scopes[-1].values[key] = value

    def part(self, loop: Loop, name: str) -> None:
        """Define `void name(ptr context, i64 begin, i64 end)`: some rounds of a loop.

        It reads the buffers' addresses and what is known so far from the context, and
        calls another function with them, whose parameters say what does not overlap.
        """
        part = _Printer(self.module, self.kernel)
        part.pointers = {b: f"%b{n}" for n, b in enumerate(self.pointers)}
        known = self.scopes[0].values
        part.scopes[0].values = {key: f"%c{n}" for n, key in enumerate(known)}
        kept = tuple(
            Store(buffer, loop.index, body)
            for fold in loop.folds
            for buffer, body in zip(self.partials[fold], fold.bodies, strict=True)
        )
        pointers = [("ptr", pointer) for pointer in part.pointers.values()]
        values = [(_key_type(key), v) for key, v in part.scopes[0].values.items()]
        part.ranged_loop(replace(loop, body=loop.body + kept, folds=()))
        bounds = [("i64", "%begin"), ("i64", "%end")]
        parameters = [f"ptr noalias {pointer}" for _, pointer in pointers]
        parameters += [f"{type_} {value}" for type_, value in values + bounds]
        self.module.define(part.definition(f"{name}_rounds", parameters))

        caller = Writer(self.module)
        args = [f"{type_} {value}" for type_, value in bounds]
        for n, (type_, _) in reversed(list(enumerate(pointers + values))):
            address = caller.emit(f"getelementptr i64, ptr %context, i64 {n}")
            args.insert(0, f"{type_} {caller.emit(f'load {type_}, ptr {address}')}")
        caller.write(f"call void @{name}_rounds({', '.join(args)})")
        self.module.define(
            f"define internal void @{name}(ptr %context, i64 %begin, i64 %end) {{\n"
            + "\n".join([*caller.lines, "  ret void\n}"]),
            brief=True,
        )

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
                    case Scan():
                        value = self.scan(expr)
                    case IndexExpr() if self.has_lanes(expr):
                        value = self.index_lanes(expr)
                    case IndexExpr():
                        value = self.index_scalar(expr)
                    case _:
                        raise AssertionError(f"no statement computes {expr}")
                self.know(expr, value)
            case Recall():
                self.know(stmt.expr, self.recall(stmt))
            case Store():
                self.store(stmt)
            case Loop() if stmt.across and self.makes_squares(stmt):
                self.square(stmt)
            case Loop():
                self.loop(stmt)

    def op(self, op: Op) -> str:
        """Apply a scalar operation."""
        lanes = self.lanes(op)
        args = [self.use(arg, lanes) for arg in op.args]
        return self.row(op.name, args, [arg.dtype for arg in op.args], op.dtype, lanes)

    # -- loops

    def makes_squares(self, loop: Loop) -> bool:
        """Whether the rounds of a loop across the lanes are a multiple of them."""
        return self.vector is not None and loop.extent % self.width == 0

    def square(self, loop: Loop) -> None:
        """The rounds of a loop across the lanes, one printed after the other."""
        self.across, self.columns = loop.index, {}
        for number in range(loop.extent):
            self.round = number
            self.one_round(loop, str(number))
        self.across = None

    def loop(self, loop: Loop) -> None:
        """A loop, and the folds that begin and end with it."""
        begun = [fold for fold in loop.folds if fold not in self.folds]
        for fold in begun:
            self.folds[fold] = self.identities(fold, self.fold_lanes(loop, fold))
            if self.rises(fold):
                state = self.folds[fold]
                state.values[1] = self.first_position(fold, loop, state.lanes)
        started = [scan for scan in loop.scans if scan not in self.folds]
        for scan in started:
            self.folds[scan] = self.identities(scan, self.lanes(scan))
        if isinstance(loop.extent, Size):
            self.rounds_of_any(loop)
        else:
            self.rounds_of(loop)
        for fold in begun:
            self.finish(fold)
        for scan in started:
            del self.folds[scan]

    def rounds_of(self, loop: Loop) -> None:
        """The rounds of a loop of which it is known how many there are."""
        whole = loop.extent - loop.extent % loop.width
        overlaps = loop.overlaps and (bool(loop.folds) or not self.module.is_tight)
        with self.lanes_of_loop(loop):
            if overlaps and not loop.folds:
                self.rounds(loop, 0, loop.extent)
            else:
                self.rounds(loop, 0, whole)
                if overlaps and whole < loop.extent:
                    self.last_round(loop, whole)
        if not overlaps and whole < loop.extent:
            self.rounds(loop, whole, loop.extent)

    def rounds_of_any(self, loop: Loop) -> None:
        """The rounds of a loop whose extent is known when it runs: perhaps none.

        What is left beside whole vectors runs one by one; folds of the loop's own lanes
        go on as scalars.
        """
        whole, end = loop.extent // loop.width * loop.width, self.size(loop.extent)
        if loop.width > 1:
            with self.lanes_of_loop(loop):
                self.guarded(loop, "0", self.size(whole))
            for fold in loop.folds:
                if self.lanes(fold) == 1:
                    self.reduce(fold, self.folds[fold])
        if loop.width == 1 and surely_below(0, loop.extent):
            self.rounds(loop, "0", end)
        elif loop.width == 1 or whole != loop.extent:
            begin = "0" if loop.width == 1 else self.size(whole)
            self.guarded(loop, begin, end)

    @contextmanager
    def lanes_of_loop(self, loop: Loop) -> Iterator[None]:
        """Inside, the index of a vector loop has lanes."""
        if loop.width == 1:
            yield
            return
        self.vector, self.width = loop.index, loop.width
        yield
        self.vector, self.width = None, 1

    def last_round(self, loop: Loop, whole: int) -> None:
        """The vector that ends at the extent; folds take its lanes from `whole` on."""
        first = loop.extent - loop.width
        flags = (str(first + n >= whole).lower() for n in range(loop.width))
        self.taken = f"<{', '.join(f'i1 {flag}' for flag in flags)}>"
        self.one_round(loop, str(first))
        self.taken = None

    def ranged_loop(self, loop: Loop) -> None:
        """The rounds of a loop without folds that the function is called for."""
        if isinstance(loop.extent, Size):
            self.ranged_loop_of_any(loop)
            return
        whole = loop.extent - loop.extent % loop.width
        if loop.overlaps or whole == loop.extent:
            with self.lanes_of_loop(loop):
                self.guarded(loop, "%begin", "%end")
            return
        with self.lanes_of_loop(loop):
            self.guarded(loop, "%begin", self.bound("umin", "%end", whole))
        self.guarded(loop, self.bound("umax", "%begin", whole), "%end")

    def ranged_loop_of_any(self, loop: Loop) -> None:
        """The same, of a loop whose extent is known when it runs."""
        whole = loop.extent // loop.width * loop.width
        if whole == loop.extent:
            with self.lanes_of_loop(loop):
                self.guarded(loop, "%begin", "%end")
            return
        with self.lanes_of_loop(loop):
            self.guarded(loop, "%begin", self.bound("umin", "%end", whole))
        self.guarded(loop, self.bound("umax", "%begin", whole), "%end")

    def bound(self, name: str, value: str, limit: int | Size) -> str:
        """The smaller or larger of two bounds."""
        limits = ("i64", value), ("i64", self.size(limit))
        return self.call(f"llvm.{name}.i64", "i64", *limits)

    def guarded(self, loop: Loop, begin: str, end: str) -> None:
        """The rounds from `begin` to `end`, known at run time: perhaps none."""
        some = self.emit(f"icmp ult i64 {begin}, {end}")
        inside, after = self.label(), self.label()
        self.write(f"br i1 {some}, label %{inside}, label %{after}")
        before, known = self.block, self.running(loop)
        self.start(inside)
        self.rounds(loop, begin, end)
        last, values = self.block, self.running(loop)
        self.write(f"br label %{after}")
        self.start(after)
        for carried in loop.carried:
            state = self.folds[carried]
            state.values = [
                self.emit(
                    f"phi {self.type(body.dtype, state.lanes)} "
                    f"[ {a}, %{before} ], [ {b}, %{last} ]"
                )
                for body, a, b in zip(
                    carried.bodies, known[carried], values[carried], strict=True
                )
            ]

    def running(self, loop: Loop) -> dict[Fold | Scan, list[str]]:
        """What a loop's folds and scans have come to."""
        return {carried: self.folds[carried].values for carried in loop.carried}

    def rounds(self, loop: Loop, begin: int | str, end: int | str) -> None:
        """At least one round: from `begin` to `end`, by the lanes of its index now.

        A vector that would reach beyond the extent begins earlier.
        """
        step = self.width if self.vector is loop.index else 1
        if isinstance(begin, int) and isinstance(end, int):
            starts = range(begin, end, step)
            if len(starts) == 1 or self.unrolls(loop, len(starts)):
                for start in starts:
                    self.one_round(loop, str(min(start, loop.extent - step)))
                return
        label, after = self.label(), self.label()
        index = f"%i{label[1:]}"
        phis = self.enter(loop, index, label, begin)
        first = index
        known = not isinstance(loop.extent, Size)
        if known and loop.extent % step and end in (loop.extent, "%end"):
            first = self.bound("umin", index, loop.extent - step)
        self.one_round(loop, first)
        self.write(f"{index}.next = add i64 {index}, {step}")
        self.write(f"{index}.more = icmp ult i64 {index}.next, {end}")
        self.write(f"br i1 {index}.more, label %{label}, label %{after}")
        carried = [v for fold in loop.carried for v in self.folds[fold].values]
        for place, value in enumerate([f"{index}.next", *carried], phis):
            self.lines[place] += f", [ {value}, %{self.block} ]"
        self.start(after)

    def unrolls(self, loop: Loop, rounds: int) -> bool:
        """Whether a short loop over a row is printed round by round.

        The processor guesses wrongly where it ends, once a row.
        """
        if self.module.is_tight:
            return rounds * work(loop.body) <= UNROLLED
        inner = any(isinstance(stmt, Loop) for stmt in loop.body)
        few = rounds <= 8 and rounds * len(loop.body) <= UNROLLED
        return self.width > 1 and len(self.scopes) > 1 and few and not inner

    def enter(self, loop: Loop, index: str, label: str, begin: int | str) -> int:
        """Begin a loop's block with its phis; gives the line of the first.

        What they are in later rounds is added when the body has been printed.
        """
        before = self.block
        self.write(f"br label %{label}")
        self.start(label)
        phis = len(self.lines)
        self.write(f"{index} = phi i64 [ {begin}, %{before} ]")
        for fold in loop.carried:
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
            vector = self.vector
            groups = [] if vector is None else interleaved(loop.body, vector)
            together = {store for group in groups for store in group}
            for stmt in loop.body:
                if stmt not in together:
                    self.stmt(stmt)
            for group in groups:
                self.store_interleaved(group)
            inner = {f for s in loop.body if isinstance(s, Loop) for f in s.folds}
            for fold in loop.folds:
                if fold in self.partials:
                    self.know_partials(fold, index)
                if fold not in inner:
                    state = self.folds[fold]
                    values = [self.use(body, state.lanes) for body in fold.bodies]
                    if self.taken and self.vector in fold.indices:
                        values = self.or_identities(fold, values)
                    state.values = self.combine(
                        fold, state.values, values, state.lanes, self.rises(fold)
                    )

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

    def identities(self, fold: Fold | Scan, lanes: int) -> _Accumulators:
        """The accumulators that a fold begins with."""
        values = []
        for number, body in enumerate(fold.bodies):
            identity = fold_identity(fold.combine, number, body.dtype)
            values.append(self.constant(identity, body.dtype, lanes))
        return _Accumulators(values, lanes)

    def or_identities(self, fold: Fold, values: list[str]) -> list[str]:
        """The values of a fold's bodies, replaced in the lanes that are not taken."""
        chosen = []
        identities = self.identities(fold, self.width).values
        for body, value, identity in zip(fold.bodies, values, identities, strict=True):
            type_ = self.type(body.dtype, self.width)
            mask = f"<{self.width} x i1> {self.taken}"
            chosen.append(
                self.emit(f"select {mask}, {type_} {value}, {type_} {identity}")
            )
        return chosen

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

    def scan(self, scan: Scan) -> str:
        """The running value of a reduction in this round."""
        state = self.folds[scan]
        values = [self.use(body, state.lanes) for body in scan.bodies]
        state.values = self.combine(scan, state.values, values, state.lanes)
        return state.values[0]

    def combine(
        self,
        fold: Fold | Scan,
        a: list[str],
        b: list[str],
        lanes: int,
        rises: bool = False,
    ) -> list[str]:
        """The fold's accumulators with more values."""
        types = [body.dtype for body in fold.bodies]
        if fold.combine.startswith("arg"):
            choose = self.later if rises else self.better
            return choose(fold.combine, types, a, b, lanes)
        if fold.combine == "complex_mul":
            return self.complex_product(types, a, b, lanes)
        return [
            self.row(fold.combine, [x, y], [t, t], t, lanes)
            for x, y, t in zip(a, b, types, strict=True)
        ]

    def complex_product(
        self, types: list[DType], a: list[str], b: list[str], lanes: int
    ) -> list[str]:
        """The product of two complex numbers, each given as its two parts."""

        def row(name: str, x: str, y: str) -> str:
            return self.row(name, [x, y], types, types[0], lanes)

        re = row("sub", row("mul", a[0], b[0]), row("mul", a[1], b[1]))
        im = row("add", row("mul", a[0], b[1]), row("mul", a[1], b[0]))
        return [re, im]


def _key_type(key: Key) -> str:
    """The type of a value that is known by a key, outside of all loops."""
    match key:
        case Expr():
            return register_type(key.dtype)
        case (Fold() as fold, int(number)):
            return register_type(fold.bodies[number].dtype)
    return "i64"
