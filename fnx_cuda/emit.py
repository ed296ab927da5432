"""CUDA C of kernels: one function for each launch, header-free.

Receives a scheduled `Kernel`, gives a `Source`: the text of a translation unit, and for
each launch its function, its grid and the buffers whose addresses its parameter struct
holds. The printer goes through the statements and decides nothing. What threads of a
group do together is in `threads.py`; below it `values.py`. Next on the walk:
`lower.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fnx.kernel.expr import Buffer, Expr, Fold, IndexExpr, Load, LoopIndex, Scan
from fnx.kernel.ir import (
    Eval,
    Kernel,
    Launch,
    Loop,
    Recall,
    Stmt,
    Store,
    fold_identity,
    loops,
)
from fnx.records import record
from fnx_cuda.atomics import atomic
from fnx_cuda.runs import Runs
from fnx_cuda.threads import WARP
from fnx_cuda.values import fits_int, literal, memory_type, register_type

BLOCK = 256
"""The threads of a block whose groups are small."""

MOST_BLOCKS = 16_384
"""A grid has at most so many blocks; their threads do several groups then."""

UNROLL = 4
"""Rounds of a loop that reads memory which a thread may have under way at once."""


@record
class Function:
    """A function of a translation unit: how it is launched, and on which buffers.

    Those are numbers among the kernel's buffers, its local ones at the end; addresses
    have to be multiples of `alignment`.
    """

    name: str
    blocks: int
    block: int
    buffers: tuple[int, ...]
    alignment: int


@record
class Source:
    """A translation unit, and its functions: one for each launch, in their order."""

    text: str
    functions: tuple[Function, ...]


def kernel_source(kernel: Kernel) -> Source:
    """The CUDA C of a kernel."""
    helpers: dict[str, str] = {}
    texts, functions = list[str](), list[Function]()
    launches = [each for each in kernel.launches if isinstance(each, Launch)]
    for number, launch in enumerate(launches):
        printer = _Printer(kernel, launch, number)
        texts.append(printer.function())
        functions.append(printer.launched())
        helpers |= printer.helpers
    return Source("\n".join([*helpers.values(), *texts]), tuple(functions))


_OWN = ("row", "shared")
"""The roles of buffers that are no parameters."""


class _Printer(Runs):
    """Prints one launch as a function."""

    def __init__(self, kernel: Kernel, launch: Launch, number: int) -> None:
        word = "int" if fits_int(_ranges(launch)) else "long long"
        super().__init__(word, launch.threads)
        self.launch = launch
        self.label = f"k{number}"
        self.accumulators: dict[Fold | Scan, list[list[str]]] = {}
        self.in_spread = launch.threads == 1  # whether each thread stores its own
        self.declared: list[Buffer] = []
        self.turn = ""  # of a loop that keeps values
        used = _buffers(launch)
        every = (*kernel.buffers, *kernel.locals)
        self.names = {buffer: f"{buffer.role}{n}" for n, buffer in enumerate(every)}
        self.rows = [b for b in every if b in used and b.role == "row"]
        self.buffers = [b for b in every if b in used and b.role not in _OWN]
        self.shared_lines += [
            f"  __shared__ {memory_type(b.dtype)} {self.names[b]}[{b.size}];"
            for b in every
            if b in used and b.role == "shared"
        ]
        self.numbers = tuple(every.index(buffer) for buffer in self.buffers)
        small = BLOCK // 2 if launch.groups < 128 * BLOCK else BLOCK
        shared = launch.threads <= WARP  # a block has several groups
        self.block_size = small if shared else launch.threads

    # -- the function

    def launched(self) -> Function:
        """How the function is launched."""
        blocks = -(-self.launch.groups // self.per_block)
        blocks = min(blocks, MOST_BLOCKS)
        return Function(
            self.label, blocks, self.block_size, self.numbers, self.alignment
        )

    @property
    def per_block(self) -> int:
        """How many groups a block has."""
        return self.block_size // self.launch.threads

    def function(self) -> str:
        """The function's definition, after the struct of its parameters."""
        self.all_groups()
        rows = [self._declaration(buffer) for buffer in self.buffers]
        fields = " ".join(f"{type_}* {name};" for type_, name in rows)
        struct = f"struct P{self.label[1:]} {{ {fields} }};"
        pointers = [
            f"  {type_}* __restrict__ {name} = p.{name};" for type_, name in rows
        ]
        head = (
            f'extern "C" __global__ void __launch_bounds__({self.block_size})\n'
            f"{self.label}(const __grid_constant__ P{self.label[1:]} p) {{"
        )
        return "\n".join(
            [struct, head, *pointers, *self.shared_lines, *self.lines, "}\n"]
        )

    def _declaration(self, buffer: Buffer) -> tuple[str, str]:
        written = buffer in _written(self.launch)
        type_ = memory_type(buffer.dtype)
        return (type_ if written else f"const {type_}"), self.names[buffer]

    def all_groups(self) -> None:
        """The body, for each group that this thread belongs to."""
        launch, word = self.launch, self.word
        if launch.threads > 1:
            own = self.block_size == launch.threads
            thread = "threadIdx.x" if own else f"threadIdx.x % {launch.threads}u"
            self.write(f"const int t = (int)({thread});")
        if not launch.indices:
            # One group: the first of the only block.
            only = "threadIdx.x == 0" if launch.threads == 1 else None
            only = f"threadIdx.x < {launch.threads}" if self.per_block > 1 else only
            with self.block(f"if ({only})" if only else ""):
                self.body(launch.body)
            return
        step = f"({word})gridDim.x"
        first = f"({word})blockIdx.x"
        if self.per_block > 1:
            threads = launch.threads
            number = "threadIdx.x" if threads == 1 else f"(threadIdx.x / {threads}u)"
            first += f" * {self.per_block} + ({word}){number}"
            step += f" * {self.per_block}"
        self.write(f"const {word} groups = {step};")
        head = f"for ({word} g = {first}; g < {launch.groups}; g += groups)"
        with self.block(head), self.several(launch.indices[-1], launch.width):
            self.group_indices()
            self.body(launch.body)

    def group_indices(self) -> None:
        """What the indices of this group are."""
        count = 1
        for index in reversed(self.launch.indices):
            width = self.launch.width if index is self.launch.indices[-1] else 1
            extent = index.extent // width
            text = self._digit(count, extent, index is self.launch.indices[0])
            text += f" * {width}" if width > 1 else ""
            self.know(index, [self.new(self.word, text, "i")])
            count *= extent

    def _digit(self, count: int, extent: int, is_first: bool) -> str:
        """The group's number divided by a count, as a number below the extent."""
        if is_first and count == 1:
            return "g"
        text = f"(unsigned {self.word})g"
        text += f" / {count}{self.ending}" if count > 1 else ""
        text += f" % {extent}{self.ending}" if not is_first else ""
        return f"({self.word})({text})"

    @contextmanager
    def several(self, index: LoopIndex, width: int) -> Iterator[None]:
        """Inside, the index has lanes."""
        if width == 1:
            yield
            return
        self.vector, self.width = index, width
        yield
        self.vector, self.width = None, 1

    # -- statements

    def body(self, body: Sequence[Stmt]) -> None:
        """Print statements in order."""
        for stmt in body:
            match stmt:
                case Eval(Scan() as scan):
                    self.know(scan, self.scan(scan))
                case Eval(expr):
                    self.define(expr)
                case Store():
                    self.store(stmt)
                case Loop(run=run) if run is not None:
                    self.run_loop(stmt, run)
                case Loop(scans=scans) if scans and stmt.spread:
                    self.scanned_loop(stmt)
                case Loop(body=inner) if any(_is_for_group(s) for s in inner):
                    self.write("__syncthreads();")
                    self.loop(stmt)
                    self.write("__syncthreads();")
                case Loop():
                    self.loop(stmt)
                case Recall(expr, buffer, _):
                    texts = [self.kept(buffer, n) for n in range(self.width)]
                    names = self.lane_names(register_type(expr.dtype), texts)
                    self.know(expr, names)

    def store(self, store: Store) -> None:
        """Write a value: each thread its own, or one thread that of the group."""
        if not self.in_spread:
            with self.block("if (t == 0)"):
                self.put(store)
            return
        self.put(store)

    def kept(self, row: Buffer, lane: int) -> str:
        """The element of a row that this thread keeps for its round."""
        at = self.turn if self.width == 1 else f"{self.turn} * {self.width} + {lane}"
        return f"{self.names[row]}[{at}]"

    def put(self, store: Store) -> None:
        """Write a value in each lane."""
        lanes = self.lanes(store.offset)
        if store.buffer.role == "row":
            for lane in range(lanes):
                place = self.kept(store.buffer, lane)
                self.write(f"{place} = {self.use(store.value, lane)};")
            return
        steady = store.mask is None or self.lanes(store.mask) == 1
        plain = store.combine is None and steady
        if lanes > 1 and plain and self.is_vector(store.buffer, store.offset):
            values = [self.use(store.value, lane) for lane in range(lanes)]
            with self.where(store.mask):
                self.store_vector(store.buffer, store.offset, values)
            return
        for lane in range(lanes):
            place = f"{self.names[store.buffer]}[{self.index(store.offset, lane)}]"
            line = f"{place} = {self.stored(store, lane)};"
            if store.atomic:
                line = self.put_atomically(store, place, lane)
            if store.mask is not None:
                line = f"if ({self.use(store.mask, lane)}) {line}"
            self.write(line)

    @contextmanager
    def where(self, mask: Expr | None) -> Iterator[None]:
        """Lines that run where a mask, if there is one, is true in all lanes."""
        if mask is None:
            yield
            return
        with self.block(f"if ({self.use(mask, 0)})"):
            yield

    def stored(self, store: Store, lane: int) -> str:
        """The value that is written, combined with the old one."""
        if store.combine is None:
            return self.use(store.value, lane)
        old = self.element(store.buffer, self.index(store.offset, lane))
        return self.combined(store, old, self.use(store.value, lane))

    def put_atomically(self, store: Store, place: str, lane: int) -> str:
        """The statement that combines an element with a value of one lane."""
        assert store.combine is not None
        value = self.use(store.value, lane)
        return atomic(self, store.combine, store.buffer.dtype, f"&{place}", value)

    # -- loops

    def loop(self, loop: Loop) -> None:
        """A loop, and the folds that begin and end with it."""
        begun = [fold for fold in loop.folds if fold not in self.accumulators]
        started = [scan for scan in loop.scans if scan not in self.accumulators]
        for fold in begun:
            self.begin(fold, loop)
        for scan in started:
            self.begin(scan, loop)
        own = self.in_spread
        self.in_spread = own or loop.spread
        with self.several(loop.index, loop.width):
            self.rounds(loop)
        self.in_spread = own
        for fold in begun:
            self.finish(fold, loop.spread)
        for scan in started:
            del self.accumulators[scan]

    def begin(self, fold: Fold | Scan, loop: Loop) -> None:
        """The accumulators of a fold, as many as it has lanes."""
        lanes = self.lanes(fold)
        if lanes == 1 and isinstance(fold, Fold):
            lanes = loop.width
        values = []
        for number, body in enumerate(fold.bodies):
            identity = fold_identity(fold.combine, number, body.dtype)
            first = literal(identity, body.dtype)
            fold_name = self.name("f")
            names = [f"{fold_name}_{n}" for n in range(lanes)]
            names = names if lanes > 1 else [fold_name]
            for name in names:
                self.write(f"{register_type(body.dtype)} {name} = {first};")
            values.append(names)
        self.accumulators[fold] = values

    def rounds(self, loop: Loop) -> None:
        """The rounds that this thread does."""
        if any(isinstance(stmt, Recall) or _keeps(stmt) for stmt in loop.body):
            self.kept_rounds(loop)
            return
        index = self.name("i")
        start, step = "0", f"{loop.width}"
        if loop.spread:
            start = "t" if loop.width == 1 else f"t * {loop.width}"
            step = f"{self.threads * loop.width}"
        innermost = not any(isinstance(stmt, Loop) for stmt in loop.body)
        if innermost:
            self.write(f"#pragma unroll {UNROLL}")
        head = f"for ({self.word} {index} = {start}; {index} < {loop.extent}; "
        with self.block(f"{head}{index} += {step})"):
            self.one_round(loop, index)

    def one_round(self, loop: Loop, index: str) -> None:
        """The body of a loop, and what its folds take from it."""
        self.know(loop.index, [index])
        self.body(loop.body)
        inner = {f for s in loop.body if isinstance(s, Loop) for f in s.folds}
        for fold in loop.folds:
            if fold not in inner:
                self.update(fold)

    def kept_rounds(self, loop: Loop) -> None:
        """The rounds of a loop that keeps values, all printed one after the other.

        Only so are they in registers: an element that is known when this is compiled.
        """
        at_once = self.threads * loop.width
        turns = -(-loop.extent // at_once)
        for row in self.rows:
            if row.size == loop.extent and row not in self.declared:
                self.declared.append(row)
                type_, size = register_type(row.dtype), turns * loop.width
                self.write(f"{type_} {self.names[row]}[{size}];")
        self.turn = self.name("q")
        self.write("#pragma unroll")
        with self.block(
            f"for (int {self.turn} = 0; {self.turn} < {turns}; ++{self.turn})"
        ):
            thread = f"({self.turn} * {self.threads} + t)"
            width = f" * {loop.width}" if loop.width > 1 else ""
            index = self.new(self.word, f"{thread}{width}", "i")
            if loop.extent % at_once == 0:
                self.one_round(loop, index)
                return
            with self.block(f"if ({index} < {loop.extent})"):
                self.one_round(loop, index)

    def update(self, fold: Fold) -> None:
        """One more value for each accumulator of a fold."""
        state = self.accumulators[fold]
        for lane in range(len(state[0])):
            old = [names[lane] for names in state]
            new = [self.use(body, lane) for body in fold.bodies]
            self.combine(fold, old, new)

    def finish(self, fold: Fold, shared: bool) -> None:
        """Make the values of a fold known: of all lanes, and of all threads."""
        state = self.accumulators.pop(fold)
        if self.lanes(fold) == 1:
            while (count := len(state[0])) > 1:
                half = count // 2
                for lane in range(half):
                    pairs = [(names[lane], names[lane + half]) for names in state]
                    old, new = zip(*pairs, strict=True)
                    self.combine(fold, list(old), list(new))
                state = [names[:half] for names in state]
        if shared:
            self.combine_threads(fold, [names[0] for names in state])
        for number, names in enumerate(state):
            self.know((fold, number), names)

    def scan(self, scan: Scan) -> list[str]:
        """The running value in this round, in each lane."""
        if scan not in self.accumulators:
            return self.scan_threads(scan)
        (state,) = self.accumulators[scan]
        for lane, name in enumerate(state):
            self.combine(scan, [name], [self.use(scan.bodies[0], lane)])
        return self.lane_names(register_type(scan.dtype), state)

    def scanned_loop(self, loop: Loop) -> None:
        """A loop whose running values the threads of a group find together.

        All of them take part in each turn; behind the end they repeat the last round,
        add nothing, and do not store.
        """
        self.begin_carries(loop.scans)
        base = self.name("i")
        head = f"for ({self.word} {base} = 0; {base} < {loop.extent}; "
        rounds = self.threads * loop.width
        own = f"{base} + t" if loop.width == 1 else f"{base} + t * {loop.width}"
        last = loop.extent - loop.width
        with (
            self.block(f"{head}{base} += {rounds})"),
            self.several(loop.index, loop.width),
        ):
            self.write(f"const bool inside = {own} < {loop.extent};")
            self.know(
                loop.index, [self.new(self.word, f"inside ? {own} : {last}", "i")]
            )
            stores = [stmt for stmt in loop.body if isinstance(stmt, Store)]
            self.body([stmt for stmt in loop.body if not isinstance(stmt, Store)])
            with self.block("if (inside)"):
                for store in stores:
                    self.put(store)


# ---------------------------------------------------------------- what a launch uses


def _statements(launch: Launch) -> list[Stmt]:
    inner = (stmt for loop in loops(launch.body) for stmt in loop.body)
    return [*launch.body, *inner]


def _buffers(launch: Launch) -> set[Buffer]:
    exprs = [s.expr for s in _statements(launch) if isinstance(s, Eval)]
    read = {expr.buffer for expr in exprs if isinstance(expr, Load)}
    read |= {loop.run.keys for loop in loops(launch.body) if loop.run is not None}
    return read | _written(launch)


def _keeps(stmt: Stmt) -> bool:
    return isinstance(stmt, Store) and stmt.buffer.role == "row"


def _is_for_group(stmt: Stmt) -> bool:
    return isinstance(stmt, Store) and stmt.buffer.role == "shared"


def _written(launch: Launch) -> set[Buffer]:
    return {s.buffer for s in _statements(launch) if isinstance(s, Store)}


def _ranges(launch: Launch) -> list[tuple[int, int]]:
    """The ranges of all indices, and of the numbers of groups and threads."""
    found: list[Expr] = []
    for stmt in _statements(launch):
        if isinstance(stmt, Eval):
            found += [stmt.expr, *stmt.expr.children]
        elif isinstance(stmt, Store):
            found.append(stmt.offset)
    extents = [(0, loop.extent) for loop in loops(launch.body)]
    indices = [expr.range for expr in found if isinstance(expr, IndexExpr)]
    return [*indices, *extents, (0, launch.groups * max(launch.threads, BLOCK))]
