"""Squares for GPUs: where what is written lies across what is read (a transposition).

Threads side by side write side by side, but would read far apart. So a group of them
does a square of elements: it first reads the squares that lie the other way, side by
side as they are in memory, into memory that the group shares, and then takes every
element from there. Rows there are a little longer than squares, so that a column of
them is not in one bank. Squares at the ends may be partly outside; what is outside is
masked. Receives a nest, gives nests; next on the walk: `grid.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from fnx import dtypes
from fnx.dtypes import DType
from fnx.kernel.expr import (
    Buffer,
    Expr,
    IndexExpr,
    Load,
    LoopIndex,
    as_index_expr,
    stride,
    walk,
)
from fnx.kernel.ir import Store
from fnx.kernel.loops import Nest
from fnx.kernel.table import ExprTable
from fnx.records import record

LEAST = 16
"""Shorter loops are not worth it."""

USED = 0.4
"""The share of all squares' elements that must be inside."""

MOST_SHARED = 40 * 1024
"""The bytes that squares may take of the memory that a group shares."""

_BANK = 4

Shared = Callable[[DType, int], Buffer]
"""Gives a new buffer of memory that a group shares."""


@record(eq=False)
class Squares:
    """The loops for groups, and two nests of those and of one loop inside each.

    The first one reads squares, the second one does what the nest did.
    """

    rows: tuple[LoopIndex, ...]
    reads: Nest
    values: Nest


def in_squares(table: ExprTable, nest: Nest, shared: Shared) -> Squares | None:
    """The nest in squares; None where its loads and stores lie the same way."""
    if len(nest.domain) < 2 or nest.folds or nest.scans:
        return None
    *outer, along = nest.domain
    if along.extent < LEAST:
        return None
    if any(stride(store.offset, along) != 1 for store in nest.stores):
        return None
    found = {loop: _crossing(nest, loop, along) for loop in outer}
    across = max(outer, key=lambda loop: len(found[loop]))
    loads = found[across]
    if not loads or across.extent < LEAST:
        return None
    size = _size(nest, across, along)
    taken = [size * _pitch(size, load.dtype) * load.dtype.itemsize for load in loads]
    if not size or sum(taken) > MOST_SHARED:
        return None
    return _Squares(table, nest, (across, along), size).result(loads, shared)


def _crossing(nest: Nest, across: LoopIndex, along: LoopIndex) -> list[Load]:
    """The loads that walk memory along an outer loop, and far apart along the last."""
    loads = [expr for expr in nest.exprs if isinstance(expr, Load)]
    return [
        load
        for load in loads
        if stride(load.offset, across) in (1, -1)
        and abs(stride(load.offset, along) or 0) > 1
        and not any(isinstance(x, Load) for x in walk(load.children))
    ]


def _size(nest: Nest, across: LoopIndex, along: LoopIndex) -> int:
    """The rows of a square: as many elements as a warp has threads, or two each.

    0 if too much of the squares would be outside.
    """
    stored = [store.buffer.dtype.itemsize for store in nest.stores]
    read = [expr.dtype.itemsize for expr in nest.exprs if isinstance(expr, Load)]
    sizes = (32,) if max(*stored, *read) >= _BANK else (32, 64)
    inside = across.extent * along.extent
    used = {
        size: inside / prod(-(-loop.extent // size) * size for loop in (across, along))
        for size in sizes
    }
    best = max(sizes, key=lambda size: (used[size], size))
    return best if used[best] >= USED else 0


def _pitch(size: int, dtype: DType) -> int:
    """How far apart rows of a square are in shared memory: one more word."""
    return size + max(_BANK // dtype.itemsize, 1)


class _Squares:
    """Makes the nests: the two loops become numbers of squares and steps in them."""

    def __init__(
        self,
        table: ExprTable,
        nest: Nest,
        pair: tuple[LoopIndex, LoopIndex],
        size: int,
    ) -> None:
        self.table, self.nest, self.size = table, nest, size
        self.pair = pair
        self.squares = [
            table.loop((loop.tag, "square", size), -(-loop.extent // size))
            for loop in pair
        ]

    def result(self, loads: list[Load], shared: Shared) -> Squares:
        """Both nests."""
        table, size = self.table, self.size
        number = table.loop((self.pair, "read", size), size * size)
        assert isinstance(number, LoopIndex)
        # Neighbours read along the outer loop, and write along the inner one.
        read = number % size, number // size
        known, inside = self.steps(read)
        stores, places = list[Store](), dict[Load, Buffer]()
        for load in loads:
            given = load.children if load.mask is None else load.children[:1]
            offset, *_ = table.substitute(given, known)
            mask = inside
            if load.mask is not None:
                mask = self.both(inside, table.substitute((load.mask,), known)[0])
            value = table.load(load.buffer, as_index_expr(offset), mask)
            buffer = shared(load.dtype, size * _pitch(size, load.dtype))
            places[load] = buffer
            stores.append(Store(buffer, self.place(read, load.dtype), value))
        rows = self.rows()
        values = self.values(places, rows)
        return Squares(rows, Nest((*rows, number), tuple(stores)), values)

    def rows(self) -> tuple[LoopIndex, ...]:
        """The loops for groups, those over squares in the place of the two."""
        instead = dict(zip(self.pair, self.squares, strict=True))
        loops = [instead.get(loop, loop) for loop in self.nest.domain]
        return tuple(loop for loop in loops if isinstance(loop, LoopIndex))

    def steps(
        self, steps: tuple[IndexExpr, IndexExpr]
    ) -> tuple[dict[Expr, IndexExpr], Expr]:
        """What the two loops' indices are, and whether both are inside."""
        known: dict[Expr, IndexExpr] = {}
        mask: Expr = self.table.constant(True, dtypes.bool_)
        for loop, square, step in zip(self.pair, self.squares, steps, strict=True):
            known[loop] = square * self.size + step
            mask = self.both(mask, self.table.inside(known[loop], 0, loop.extent))
        return known, mask

    def both(self, x: Expr, y: Expr) -> Expr:
        """Whether two conditions hold; constants are left away."""
        true = self.table.constant(True, dtypes.bool_)
        if x is true:
            return y
        return x if y is true else self.table.op("and", (x, y), dtypes.bool_)

    def place(self, steps: tuple[IndexExpr, IndexExpr], dtype: DType) -> IndexExpr:
        """Where an element of a square is in shared memory."""
        across, along = steps
        return along * _pitch(self.size, dtype) + across

    def values(self, places: dict[Load, Buffer], rows: tuple[LoopIndex, ...]) -> Nest:
        """What the nest did, with the loads of squares from shared memory."""
        table, size = self.table, self.size
        number = table.loop((self.pair, "element", size), size * size)
        assert isinstance(number, LoopIndex)
        steps = number // size, number % size
        known, inside = self.steps(steps)
        true = table.constant(True, dtypes.bool_)
        done: dict[Expr, Expr] = {**known}
        for expr in self.nest.exprs:
            if expr in done:
                continue
            children = tuple([done[child] for child in expr.children])
            if isinstance(expr, Load) and expr in places:
                place = self.place(steps, expr.dtype)
                done[expr] = table.load(places[expr], place, None)
            elif isinstance(expr, Load) and not expr.free.isdisjoint(self.pair):
                offset, *masks = children
                mask = self.both(inside, masks[0] if masks else true)
                done[expr] = table.load(expr.buffer, as_index_expr(offset), mask)
            elif children == expr.children:
                done[expr] = expr
            else:
                done[expr] = table.rebuilt(expr, children)
        stores = tuple(
            Store(
                store.buffer,
                as_index_expr(done[store.offset]),
                done[store.value],
                store.combine,
                self.mask(inside, store.mask and done[store.mask]),
                store.apart,
                store.atomic,
            )
            for store in self.nest.stores
        )
        return Nest((*rows, number), stores)

    def mask(self, inside: Expr, own: Expr | None) -> Expr | None:
        """The mask of a store, if it has one."""
        true = self.table.constant(True, dtypes.bool_)
        mask = self.both(inside, true if own is None else own)
        return None if mask is true else mask
