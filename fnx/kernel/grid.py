"""Schedules for GPUs: which threads do what, as launches one after the other.

A launch has a group of threads for each value of some loops of the domain: those that
all long folds need. Where the folds and the loops inside walk memory in order, the
threads of a group share their rounds; else each thread is a group of its own, and
neighbours read side by side. Folds that some groups would repeat, or that few groups
would leave the machine idle with, get launches of their own before, whose results lie
in memory of the kernel's own. Receives what a builder holds, gives a `Kernel`. Next on
the walk: `check.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from fnx.dtypes import DType
from fnx.kernel.expr import (
    Buffer,
    Expr,
    Fold,
    IndexExpr,
    Load,
    LoopIndex,
    Op,
    linear_offset,
    stride,
    terms_of,
    walk,
)
from fnx.kernel.ir import (
    Eval,
    Kernel,
    Launch,
    Loop,
    Sort,
    Stmt,
    Store,
    launch_buffers,
    loops,
)
from fnx.kernel.keep import WORTH, Costs, along_rows, kept
from fnx.kernel.local import Locals
from fnx.kernel.loops import Nest, collapsed_loops, section, split_loops
from fnx.kernel.meeting import WARP, Runs, in_any_order, in_sorted_order
from fnx.kernel.printer import structural_key
from fnx.kernel.reshape import (
    one_inner_loop,
    separate_loops,
    single_loops,
    substituted,
)
from fnx.kernel.running import chunked, may_be_chunked
from fnx.kernel.schedule import placed
from fnx.kernel.squares import Squares, in_squares
from fnx.kernel.table import ExprTable
from fnx.kernel.vectorize import scalar_cost

TINY = 16
"""Folds of at most so many values are computed again wherever they are needed."""

LONG_ROW = 16_384
"""The rounds that a group's threads share at most, if more groups would help."""

FEW_GROUPS = 264
"""With fewer groups of several threads a GPU is idle for the most part."""

FEW_THREADS = 65_536
"""With fewer threads that work alone a GPU is idle for the most part."""

LEAST_THREADS = 32_768
"""Threads that work alone do several values each only if there are so many still."""

SERIAL = 256
"""The rounds that a thread does alone at most, if more threads would help."""

SHORT_ROW = 256
"""The threads of one warp share at most so many rounds."""

MOST_THREADS = 512
"""The threads of a group at most."""

SQUARE_THREADS = 256
"""The threads of a group that does a square."""

VECTOR = 16
"""The bytes that a thread reads or writes at once."""

REGISTERS = 256
"""The bytes of a row's values that a thread may keep in registers."""

MOST_CODE = 1200
"""The expressions of all lanes at most."""


def grid_schedule(
    name: str,
    table: ExprTable,
    buffers: tuple[Buffer, ...],
    domain: tuple[LoopIndex, ...],
    stores: tuple[Store, ...],
) -> Kernel:
    """The kernel that does these stores for every index of the domain, on a GPU."""
    nest = split_loops(table, Nest(domain, stores))
    launches = tuple(_Grid(table).launches(nest)) if stores else ()
    kept_in = launch_buffers(launches)
    key = structural_key(buffers + kept_in, (), launches)
    return Kernel(name, buffers, (), kept_in, key, launches)


class _Grid:
    """Makes the launches of one kernel; `count` is how many local buffers there are."""

    def __init__(self, table: ExprTable) -> None:
        self.table = table
        self.count = 0

    def launches(self, nest: Nest) -> Iterator[Launch | Sort]:
        """The launches that together do what the nest does."""
        if any(store.may_meet(nest.domain) for store in nest.stores):
            yield from self.met(nest)
            return
        nest = collapsed_loops(self.table, nest)
        yield from self.scanned(nest) if nest.scans else self.folded(nest)

    def met(self, nest: Nest) -> Iterator[Launch | Sort]:
        """Stores that may meet at one element.

        Loops that lie in a row are still apart here: some may be those of windows.
        """
        free = in_any_order(nest)
        if free is not None:
            yield from self.folded(collapsed_loops(self.table, free))
            return
        while heavy := _heavy(nest):
            over = tuple(loop for loop in nest.domain if loop in heavy[0].free)
            alike = [fold for fold in heavy if fold.free == heavy[0].free]
            before, nest = self.cut(nest, over, alike)
            yield from self.folded(collapsed_loops(self.table, before))
        found = in_sorted_order(self.table, nest, self.local)
        if found is None:
            yield self.in_order(collapsed_loops(self.table, nest))
            return
        yield from self.folded(collapsed_loops(self.table, found.offsets))
        yield found.sort
        if isinstance(found.stores, Nest):
            yield from self.folded(collapsed_loops(self.table, found.stores))
        else:
            for runs in found.stores:
                yield self.in_runs(runs)

    # ---------------------------------------------------------------- folds

    def folded(self, nest: Nest) -> Iterator[Launch]:
        """Launches of a nest whose rounds may run in any order."""
        nest = single_loops(self.table, nest)
        while (far := _far_folds(nest)) is not None:
            before, nest = self.cut(nest, *far)
            yield from self.folded(before)
        while folds := _split_folds(nest):
            parts, nest = self.split(nest, folds)
            for part in parts:
                yield self.launch(part)
        yield self.launch(nest)

    def cut(
        self, nest: Nest, loops: tuple[LoopIndex, ...], folds: Sequence[Fold]
    ) -> tuple[Nest, Nest]:
        """A nest that stores the values of folds over some loops, and what is left."""
        stores = list[Store]()
        values: dict[Expr, Expr] = {}
        for fold in folds:
            for number, body in enumerate(fold.bodies):
                part = self.table.part(fold, number)
                buffer = self.local(body.dtype, _groups(loops))
                offset = self.offset(loops)
                stores.append(Store(buffer, offset, part))
                values[part] = self.table.load(buffer, offset, None)
        return Nest(loops, tuple(stores)), substituted(self.table, nest, values)

    def split(self, nest: Nest, folds: Sequence[Fold]) -> tuple[list[Nest], Nest]:
        """Nests that store what chunks of folds come to, and the nest that goes on.

        The last chunk may be a shorter one, which has a nest of its own.
        """
        rows, length = _rows(nest), _length(folds[0])
        size = _chunk(nest, length)
        whole, rest = divmod(length, size)
        chunk = self.table.loop((folds[0].indices, "chunk", size), whole)
        count = whole + bool(rest)
        stores, last = list[Store](), list[Store]()
        values: dict[Expr, Expr] = {}
        for fold in folds:
            parts = section(self.table, fold, chunk * size, size)
            start = self.table.number(whole * size)
            end = section(self.table, fold, start, rest) if rest else parts
            loads = list[Expr]()
            each = self.table.loop((fold.indices, "chunks", count), count)
            for part, remainder in zip(parts, end, strict=True):
                buffer = self.local(part.dtype, _groups(rows) * count)
                first = self.offset(rows) * count
                stores.append(Store(buffer, first + chunk, part))
                last.append(Store(buffer, first + whole, remainder))
                loads.append(self.table.load(buffer, first + each, None))
            assert isinstance(each, LoopIndex)
            total = self.table.fold(fold.combine, (each,), tuple(loads))
            for number in range(len(parts)):
                part = self.table.part(fold, number)
                values[part] = self.table.part(total, number)
        loops = (chunk,) if isinstance(chunk, LoopIndex) else ()
        # Chunks are the outer groups where threads side by side read side by side.
        inner = (*loops, *rows) if _walks_rows(nest) else (*rows, *loops)
        nests = [Nest(inner, tuple(stores))]
        if rest:
            nests.append(Nest(rows, tuple(last)))
        return nests, substituted(self.table, nest, values)

    def local(self, dtype: DType, size: int) -> Buffer:
        """A new buffer of the kernel's own."""
        self.count += 1
        return Buffer(f"part{self.count - 1}", dtype, size, "local")

    def of_group(self, dtype: DType, size: int) -> Buffer:
        """A new buffer of memory that a group shares."""
        return replace(self.local(dtype, size), role="shared")

    def offset(self, loops: tuple[LoopIndex, ...]) -> IndexExpr:
        """Where the element of these indices is in a local buffer."""
        offset = linear_offset(loops, [loop.extent for loop in loops])
        return self.table.number(offset) if isinstance(offset, int) else offset

    # ---------------------------------------------------------------- one launch

    def launch(self, nest: Nest) -> Launch:
        """One launch for a nest without folds that should run before."""
        if not _heavy(nest):
            squares = in_squares(self.table, nest, self.of_group)
            if squares is not None:
                return self.squared(squares)
            return self.alone(nest, nest.domain)
        if _walks_rows(nest) or _work(nest) <= TINY:
            return self.alone(nest, _rows(nest))
        return self.shared(nest, _rows(nest))

    def alone(self, nest: Nest, rows: tuple[LoopIndex, ...]) -> Launch:
        """Threads that each do one combination of the rows' indices by themselves."""
        inner = tuple(loop for loop in nest.domain if loop not in rows)
        body = _inside(placed(self.table, nest, (*rows, *inner)), len(rows))
        width = 1
        if rows and not inner:
            width = lanes(body, rows[-1])
            while width > 1 and _groups(rows) < width * LEAST_THREADS:
                width //= 2
        return Launch(rows, body, 1, width)

    def shared(self, nest: Nest, rows: tuple[LoopIndex, ...]) -> Launch:
        """Groups of threads that share the rounds of folds and of the inner loops."""
        nest = along_rows(self.table, one_inner_loop(self.table, nest, rows))
        threads = _threads(_work(nest), _groups(rows))
        body = _inside(placed(self.table, nest, nest.domain), len(rows))
        body = kept(body, self.registers(threads), _COSTS)
        return Launch(rows, _spread(body, threads), threads)

    def squared(self, squares: Squares) -> Launch:
        """Groups that read squares, and then write across them."""
        depth, found = len(squares.rows), dict[Stmt, None]()
        for nest in (squares.reads, squares.values):
            *outer, loop = _inside(placed(self.table, nest, nest.domain), depth)
            known = {stmt.expr for stmt in found if isinstance(stmt, Eval)}
            new = (s for s in outer if not isinstance(s, Eval) or s.expr not in known)
            assert isinstance(loop, Loop)
            found |= dict.fromkeys((*new, replace(loop, spread=True)))
        return Launch(squares.rows, tuple(found), SQUARE_THREADS)

    def registers(self, threads: int) -> Locals:
        """The room for values of a row in the registers of so many threads."""
        return Locals(threads * REGISTERS, role="row")

    def in_order(self, nest: Nest) -> Launch:
        """Stores that may meet at one element, done in the order of the domain.

        Threads share the loops of which every value stores elsewhere.
        """
        rows = separate_loops(nest)
        inner = tuple(loop for loop in nest.domain if loop not in rows)
        return Launch(
            rows, _inside(placed(self.table, nest, (*rows, *inner)), len(rows))
        )

    def in_runs(self, runs: Runs) -> Launch:
        """Threads that go through a run of sorted updates each, or warps that do."""
        nest = runs.nest if runs.warps else collapsed_loops(self.table, runs.nest)
        rows = nest.domain[: -2 if runs.warps else -1]
        launch = self.alone(nest, rows)
        *before, loop = launch.body
        assert isinstance(loop, Loop)
        if runs.warps:
            *inner, last = loop.body
            assert isinstance(last, Loop)
            each = replace(last, run=runs.run, spread=True)
            body = (*before, replace(loop, body=(*inner, each)))
            return replace(launch, body=body, threads=WARP)
        return replace(launch, body=(*before, replace(loop, run=runs.run)))

    def scanned(self, nest: Nest) -> Iterator[Launch]:
        """Running values: long rows in chunks, if there are few."""
        side_by_side = _scans_side_by_side(nest)
        size = _scan_chunk(nest, side_by_side)
        if not size:
            yield self.running(nest, side_by_side)
            return
        parts = chunked(self.table, nest, size, side_by_side, self.local)
        yield from self.folded(parts.totals)
        yield from self.scanned(parts.running)
        for part in parts.values:
            if part.scans:
                yield self.running(part, side_by_side)
            else:
                yield self.alone(part, part.domain)

    def running(self, nest: Nest, side_by_side: bool) -> Launch:
        """Running values, one row after the other: by one thread, or by a block."""
        (loops,) = {scan.indices for scan in nest.scans}
        rows = nest.domain[: -len(loops)]
        if side_by_side and _groups(rows) >= FEW_GROUPS:
            return self.alone(nest, rows)
        nest = one_inner_loop(self.table, single_loops(self.table, nest), rows)
        body = _inside(placed(self.table, nest, nest.domain), len(rows))
        threads = _threads(nest.domain[-1].extent, _groups(rows))
        return Launch(rows, _spread(body, threads), threads)


def _inside(body: tuple[Stmt, ...], depth: int) -> tuple[Stmt, ...]:
    """The statements of so many nested loops of the domain, the loops left away."""
    stmts = list[Stmt]()
    for _ in range(depth):
        *before, loop = body
        assert isinstance(loop, Loop)
        stmts += before
        body = loop.body
    return (*stmts, *body)


def _spread(body: tuple[Stmt, ...], threads: int) -> tuple[Stmt, ...]:
    """The statements, with loops whose rounds a group shares.

    A thread does several rounds at once where memory allows, and as many of each loop
    over the same index: it keeps values from one to the next.
    """
    widths: dict[LoopIndex, int] = {}
    for loop in (stmt for stmt in body if isinstance(stmt, Loop)):
        width = lanes(loop.body, loop.index)
        while width > 1 and width * threads > loop.extent:
            width //= 2
        widths[loop.index] = min(width, widths.get(loop.index, width))
    return tuple(
        replace(stmt, spread=True, width=widths[stmt.index])
        if isinstance(stmt, Loop)
        else stmt
        for stmt in body
    )


def _cost(expr: Expr) -> float:
    """What an operation costs where reading memory again costs most."""
    return 2 * WORTH if isinstance(expr, Load) else scalar_cost(expr)


_COSTS = Costs(_cost, (Op, Load))


def lanes(body: tuple[Stmt, ...], index: LoopIndex) -> int:
    """How many values of an index a thread may do at once: whole vectors of memory."""
    flat = [*body, *(stmt for loop in loops(body) for stmt in loop.body)]
    if any(isinstance(s, Store) and index not in s.offset.free for s in flat):
        return 1
    places = [(s.buffer, s.offset) for s in flat if isinstance(s, Store)]
    exprs = [stmt.expr for stmt in flat if isinstance(stmt, Eval)]
    places += [(e.buffer, e.offset) for e in exprs if isinstance(e, Load)]
    in_a_row = [place for place in places if stride(place[1], index) == 1]
    if not in_a_row:
        return 1
    width = VECTOR // max(buffer.dtype.itemsize for buffer, _ in in_a_row)
    while width > 1 and not (
        index.extent % width == 0
        and width * len(flat) <= MOST_CODE
        and all(_is_aligned(offset, index, width) for _, offset in in_a_row)
    ):
        width //= 2
    return max(width, 1)


def _is_aligned(offset: IndexExpr, index: LoopIndex, width: int) -> bool:
    """Whether an offset is a multiple of the width wherever the index is."""
    terms, first = terms_of(offset)
    return first % width == 0 and all(
        c % width == 0 for atom, c in terms if atom is not index
    )


# ---------------------------------------------------------------- what a nest is like


def _groups(rows: Sequence[LoopIndex]) -> int:
    return prod(loop.extent for loop in rows)


def _length(fold: Fold) -> int:
    return prod(index.extent for index in fold.indices)


def _heavy(nest: Nest) -> list[Fold]:
    """The folds that depend on the domain only and take more than a few rounds."""
    domain = set(nest.domain)
    return [f for f in nest.folds if f.free <= domain and _length(f) > TINY]


def _rows(nest: Nest) -> tuple[LoopIndex, ...]:
    """The loops that the launch has groups for: what its last long fold depends on."""
    last = _heavy(nest)[-1]
    return tuple(loop for loop in nest.domain if loop in last.free)


def _work(nest: Nest) -> int:
    """The rounds that a group's threads share: of a fold, or of the inner loops."""
    rows = _rows(nest)
    inner = _groups([loop for loop in nest.domain if loop not in rows])
    return max(inner, *(_length(fold) for fold in _heavy(nest)))


def _walks_rows(nest: Nest) -> bool:
    """Whether groups side by side read memory side by side, and rounds do not."""
    return _walks(nest, _rows(nest), _heavy(nest)[-1].indices[-1])


def _walks(nest: Nest, rows: tuple[LoopIndex, ...], inner: LoopIndex) -> bool:
    """Whether more loads are in order along the last of the rows than along a loop."""
    if not rows:
        return False
    loads = [expr.offset for expr in nest.exprs if isinstance(expr, Load)]
    across = sum(stride(at, rows[-1]) in (1, -1) for at in loads)
    along = sum(stride(at, inner) in (1, -1) for at in loads)
    return across > along


def _far_folds(nest: Nest) -> tuple[tuple[LoopIndex, ...], list[Fold]] | None:
    """Folds that should be over before the launch, and the loops they depend on.

    Those that several groups would compute, or all, where few groups would leave most
    of the machine idle while they do what is left.
    """
    heavy = _heavy(nest)
    if not heavy:
        return None
    rows = _rows(nest)
    far = next((fold for fold in heavy if not fold.free.issuperset(rows)), None)
    if far is None and len(rows) < len(nest.domain):
        few, long = _limits(nest)
        if _groups(rows) < few and _work(nest) > long:
            far = heavy[-1]
    if far is None:
        return None
    loops = tuple(loop for loop in nest.domain if loop in far.free)
    return loops, [fold for fold in heavy if fold.free == far.free]


def _split_folds(nest: Nest) -> list[Fold]:
    """The next folds to be split in chunks, so that more groups may share them.

    They need none that is to be split too.
    """
    heavy = _heavy(nest)
    if not heavy:
        return []
    few, most = _limits(nest)
    if _groups(_rows(nest)) >= few:
        return []
    long = [fold for fold in heavy if _length(fold) > most]
    ready = [fold for fold in long if not set(long) & set(walk(fold.bodies))]
    return [fold for fold in ready if fold.indices == ready[0].indices]


def _limits(nest: Nest) -> tuple[int, int]:
    """Below how many groups a GPU is idle, and the rounds that each of them may do."""
    return (FEW_THREADS, SERIAL) if _walks_rows(nest) else (FEW_GROUPS, LONG_ROW)


def _scans_side_by_side(nest: Nest) -> bool:
    """Whether threads that each have a row of a scan read side by side."""
    (loops,) = {scan.indices for scan in nest.scans}
    rows = nest.domain[: -len(loops)]
    return _walks(nest, rows, loops[-1]) and rows[-1].extent >= TINY


def _scan_chunk(nest: Nest, side_by_side: bool) -> int:
    """How many rounds of a scan a chunk has, if more groups would help; else 0."""
    rows, length = _groups(nest.domain[:-1]), nest.domain[-1].extent
    total = rows * length
    if rows >= (FEW_THREADS if side_by_side else FEW_GROUPS):
        return 0
    if not may_be_chunked(nest) or _heavy(nest):
        return 0
    if side_by_side:
        size = max(32, total // FEW_THREADS, length // 1024)
    else:
        size = min(LONG_ROW, max(2048, total // (4 * FEW_GROUPS)))
        size = -(-size // MOST_THREADS) * MOST_THREADS
    return size if length > (SERIAL if side_by_side else LONG_ROW) else 0


def _chunk(nest: Nest, length: int) -> int:
    """How many rounds of a fold a chunk has."""
    total = length * _groups(_rows(nest))
    if _walks_rows(nest):
        return max(32, total // FEW_THREADS, length // 1024)
    return min(LONG_ROW, max(2048, total // (4 * FEW_GROUPS)))


def _threads(work: int, groups: int) -> int:
    """How many threads share a row: about eight rounds are for each."""
    if work <= SHORT_ROW or (work <= 4 * SHORT_ROW and groups >= 8 * FEW_GROUPS):
        return 32
    threads = 64
    while threads < MOST_THREADS and threads * 8 < work:
        threads *= 2
    return threads
