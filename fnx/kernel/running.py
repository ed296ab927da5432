"""Running values of long rows in chunks, for GPUs: so that many threads may find them.

What each chunk comes to is a fold; what the chunks before come to is a running value of
those, of far shorter rows; and a chunk's running values are its own combined with that.
Receives a nest with scans, gives nests; next on the walk: `grid.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.dtypes import DType
from fnx.kernel.expr import (
    Buffer,
    Expr,
    IndexExpr,
    LoopIndex,
    Scan,
    linear_offset,
    walk,
)
from fnx.kernel.ir import Store, fold_identity
from fnx.kernel.loops import Nest
from fnx.kernel.table import ExprTable
from fnx.records import record

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
