"""Running values of long rows in chunks: so that many threads may find them.

What each chunk comes to is a fold; what the chunks before come to is a running value of
those, of far shorter rows; and a chunk's running values are its own combined with that.
Sums are the more accurate for it: a number is added to few others, not to all that are
before it. Receives a nest with scans, gives nests; next on the walk: `schedule.py`, and
for GPUs `grid.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.dtypes import DType
from fnx.kernel.expr import (
    Buffer,
    Expr,
    Fold,
    IndexExpr,
    LoopIndex,
    Scan,
    linear_offset,
    walk,
)
from fnx.kernel.ir import Store, fold_identity
from fnx.kernel.local import Locals
from fnx.kernel.loops import Nest
from fnx.kernel.table import ExprTable
from fnx.records import record
from fnx.sizes import Size

LEAST = 1024
"""The rounds of a chunk on a CPU are more than that."""

LEAST_TOTALS = 128
"""The rounds of a chunk of what chunks come to."""

UNIT = 16
"""A chunk is an odd number of so many rounds: each lane is in a cache line of its own,
and these are in different sets of the cache."""

FEW_ROWS = 64
"""So many rows have lanes and threads of their own."""

Local = Callable[[DType, int], Buffer]
"""Gives a new buffer of the kernel's own."""


@record(eq=False)
class Chunked:
    """What chunks come to, what those before each come to, and the values themselves.

    There are two nests of these if the last chunk is a shorter one.
    """

    totals: Nest
    running: Nest
    values: tuple[Nest, ...]


def may_be_chunked(nest: Nest) -> bool:
    """Whether all scans of a nest are over its last loop, and none needs another."""
    inner = (expr for scan in nest.scans for expr in walk(scan.bodies))
    alike = all(scan.indices == nest.domain[-1:] for scan in nest.scans)
    return alike and not any(isinstance(expr, Scan) for expr in inner)


def chunked(
    table: ExprTable, nest: Nest, size: int, outermost: bool, local: Local
) -> Chunked:
    """The nest's scans in chunks of so many rounds, which may be the outermost loop."""
    return _Chunks(table, nest, size, outermost, local).result()


def in_chunks(table: ExprTable, nest: Nest, local: Locals) -> tuple[Nest, ...]:
    """The nest alone, or what runs in its place on a CPU if it has few, long sums."""
    return _in_chunks(table, nest, local, LEAST)


def _in_chunks(
    table: ExprTable, nest: Nest, local: Locals, least: int
) -> tuple[Nest, ...]:
    size = _chunk(nest, least, local.partials // 2) if nest.scans else 0
    if not size:
        return (nest,)
    parts = chunked(table, nest, size, False, local.sums)
    running = _in_chunks(table, parts.running, local, LEAST_TOTALS)
    return (parts.totals, *running, *parts.values)


def _chunk(nest: Nest, least: int, room: int) -> int:
    """How many rounds of a sum a chunk is to have; 0 for a nest of another kind."""
    if any(isinstance(loop.extent, Size) for loop in nest.domain):
        return 0  # nobody knows how much room the sums of chunks would take
    if not may_be_chunked(nest) or {scan.combine for scan in nest.scans} != {"add"}:
        return 0
    # What a fold gives to all of a row would be found for each of its chunks.
    if any(isinstance(expr, Fold) for expr in nest.exprs):
        return 0
    rows, length = (
        math.prod([r.extent for r in nest.domain[:-1]]),
        nest.domain[-1].extent,
    )
    each = 2 * rows * sum([scan.dtype.itemsize for scan in nest.scans])
    size = (max(least, -(-length * each // max(room, 1))) // UNIT | 1) * UNIT
    return size if rows < FEW_ROWS and length >= 2 * size else 0


class _Chunks:
    """Makes the nests; rounds of the last loop are `chunk * size + step`."""

    def __init__(
        self, table: ExprTable, nest: Nest, size: int, outermost: bool, local: Local
    ) -> None:
        self.table, self.nest, self.size = table, nest, size
        *rows, self.index = nest.domain
        self.rows, self.outermost = tuple(rows), outermost
        self.whole, self.rest = divmod(self.index.extent, size)
        chunk = table.loop((self.index.tag, "chunk", size), self.whole)
        assert isinstance(chunk, LoopIndex)
        self.chunk = chunk
        count = self.whole
        for row in rows:
            count *= row.extent
        self.totals = {scan: local(scan.dtype, count) for scan in nest.scans}
        self.before = {scan: local(scan.dtype, count) for scan in nest.scans}

    def result(self) -> Chunked:
        """All nests."""
        values = [self.values(self.chunk, self.size)]
        if self.rest:
            values.append(self.values(self.table.number(self.whole), self.rest))
        return Chunked(self.all_totals(), self.running(), tuple(values))

    def place(self, chunk: IndexExpr) -> IndexExpr:
        """Where what belongs to a row's chunk is kept."""
        loops = (chunk, *self.rows) if self.outermost else (*self.rows, chunk)
        extents = [row.extent for row in self.rows]
        extents.insert(0 if self.outermost else len(extents), self.whole)
        place = linear_offset(loops, extents)
        assert isinstance(place, IndexExpr)
        return place

    def over_chunks(self) -> tuple[LoopIndex, ...]:
        return (self.chunk, *self.rows) if self.outermost else (*self.rows, self.chunk)

    def all_totals(self) -> Nest:
        """What each chunk comes to."""
        table, stores = self.table, list[Store]()
        step = table.loop((self.index.tag, "total", self.size), self.size)
        assert isinstance(step, LoopIndex)
        at: dict[Expr, IndexExpr] = {self.index: self.chunk * self.size + step}
        for scan, buffer in self.totals.items():
            bodies = tuple(table.substitute(scan.bodies, at))
            total = table.part(table.fold(scan.combine, (step,), bodies), 0)
            stores.append(Store(buffer, self.place(self.chunk), total))
        return Nest(self.over_chunks(), tuple(stores))

    def running(self) -> Nest:
        """What the chunks up to each one come to."""
        table, stores = self.table, list[Store]()
        chunk = table.loop((self.index.tag, "chunks", self.size), self.whole)
        assert isinstance(chunk, LoopIndex)
        place = self.place(chunk)
        for scan, buffer in self.before.items():
            total = table.load(self.totals[scan], place, None)
            value = table.scan(scan.combine, (chunk,), total)
            stores.append(Store(buffer, place, value))
        return Nest((*self.rows, chunk), tuple(stores))

    def values(self, chunk: IndexExpr, size: int) -> Nest:
        """What the nest does with the values of chunks of so many rounds."""
        step = self.table.loop((self.index.tag, "step", size), size)
        loops = tuple(loop for loop in (step,) if isinstance(loop, LoopIndex))
        done: dict[Expr, Expr] = {self.index: chunk * self.size + step}
        for expr in self.nest.exprs:
            if expr in done:
                continue
            children = tuple([done[child] for child in expr.children])
            if isinstance(expr, Scan):
                done[expr] = self.value(expr, chunk, loops, children[0])
            elif children == expr.children:
                done[expr] = expr
            else:
                done[expr] = self.table.rebuilt(expr, children)
        outer = self.over_chunks() if chunk is self.chunk else self.rows
        return self.nest.mapped((*outer, *loops), done)

    def value(
        self, scan: Scan, chunk: IndexExpr, loops: tuple[LoopIndex, ...], body: Expr
    ) -> Expr:
        """A running value: that of the chunk, with what is before the chunk."""
        table, dtype = self.table, scan.dtype
        there = table.inside(chunk - 1, 0, self.whole)
        before = table.load(self.before[scan], self.place(chunk - 1), there)
        first = table.constant(fold_identity(scan.combine, 0, dtype), dtype)
        before = table.op("select", (there, before, first), dtype)
        own = table.scan(scan.combine, loops, body) if loops else body
        return table.op(scan.combine, (before, own), dtype)
