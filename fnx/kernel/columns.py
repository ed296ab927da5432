"""Sums down the columns of a matrix, in blocks of rows: several nests in place of one.

Going down one group of columns after the other uses a few bytes of each row at a time,
and leaves threads nothing to share where a row is short. So the first nest takes some
rows together and keeps the sums of their columns in a local buffer, which the last nest
adds up. Of long rows it takes a few, which memory gives side by side, and a nest in
between adds those of the other groups of a block. Receives a nest, gives the nests that
run in its place, one after the other; next on the walk: `schedule.py`.
"""

from __future__ import annotations

from math import prod

from fnx.kernel.expr import (
    Buffer,
    Expr,
    Fold,
    IndexExpr,
    Load,
    LoopIndex,
    Part,
    linear_offset,
    stride,
    walk,
)
from fnx.kernel.ir import Store
from fnx.kernel.local import Locals
from fnx.kernel.loops import Nest, section
from fnx.kernel.table import ExprTable
from fnx.sizes import Size, lesser, usual

_MEET = ("add", "mul", "max", "min")
"""How stores combine a value with what is there."""

LEAST = 1 << 16
"""Fewer elements than this are summed as they come."""

ROWS = 16
"""The least number of rows of a block."""

BLOCKS = 4, 256
"""The least and the largest number of blocks: enough for threads to share."""

GROUP = 8
"""The rows that are read side by side: the processor foresees so many streams."""

SHORT = 1024
"""The bytes of a row of which a whole block is read side by side."""

FEW = 16
"""So many blocks have rows whose number is known when they are summed: it may be
small."""


def in_blocks_of_rows(table: ExprTable, nest: Nest, local: Locals) -> tuple[Nest, ...]:
    """The nest alone, or cut in two if it sums up long columns."""
    blocks = _blocks(nest, local.partials)
    return _Columns(table, nest, blocks, local).nests() if blocks else (nest,)


def _blocks(nest: Nest, room: int) -> int:
    """How many blocks of rows there are to be; 0 for a nest of another kind."""
    if not nest.domain or not nest.folds or not _is_pure(nest):
        return 0
    fold = nest.folds[0]
    width = prod(index.extent for index in nest.domain)
    if isinstance(width, Size):
        return 0  # nobody knows how much room they would take
    if len(fold.indices) > 1 or usual(fold.indices[0].extent) * width < LEAST:
        return 0
    if not all(_goes_down(other, fold.indices, nest.domain) for other in nest.folds):
        return 0
    row = sum(b.dtype.itemsize for f in nest.folds for b in f.bodies) * width
    least, most = BLOCKS
    rows = fold.indices[0].extent
    if isinstance(rows, Size):
        return FEW if FEW * row <= room else 0
    blocks = min(room // row, most, rows // ROWS)
    return blocks if blocks >= least else 0


def _is_pure(nest: Nest) -> bool:
    """Whether nothing is read that is written, so that folds may run before stores."""
    written = {store.buffer for store in nest.stores}
    return not any(isinstance(e, Load) and e.buffer in written for e in nest.exprs)


def _goes_down(
    fold: Fold, rows: tuple[LoopIndex, ...], domain: tuple[LoopIndex, ...]
) -> bool:
    """Whether a fold over these rows reads memory by rows, all of the domain long."""
    if fold.indices != rows or fold.joint:
        return False
    if fold.free != set(domain) or any(isinstance(e, Part) for e in _inside(fold)):
        return False
    loads = [e.offset for e in _inside(fold) if isinstance(e, Load)]
    steps = [(stride(at, domain[-1]), stride(at, rows[0])) for at in loads]
    by_rows = any(along == 1 and down not in (None, 0, 1) for along, down in steps)
    return by_rows and not any(along and down in (1, -1) for along, down in steps)


def _inside(fold: Fold) -> list[Expr]:
    return walk(fold.bodies)


class _Columns:
    """The two nests for one: the sums of blocks, and the sums of those."""

    def __init__(
        self, table: ExprTable, nest: Nest, blocks: int, local: Locals
    ) -> None:
        self.table, self.nest, self.local = table, nest, local
        (rows,) = nest.folds[0].indices
        width = prod(index.extent for index in nest.domain)
        self.size, self.blocks, self.rest = _cut(rows.extent, blocks, width)
        block = table.loop((rows.tag, "rows", self.size), self.blocks)
        assert isinstance(block, LoopIndex)
        self.block = block
        self.stores: list[Store] = []  # of a block's first rows
        self.more: list[Store] = []  # of its other groups of rows, which are added
        self.group = self._groups()

    def _groups(self) -> IndexExpr | None:
        """The groups of a block but for the first; none where rows are not grouped."""
        folds = self.nest.folds
        if isinstance(self.size, Size) or self.size % GROUP:
            return None
        if any(fold.combine not in _MEET for fold in folds):
            return None
        (rows,) = folds[0].indices
        width = prod(index.extent for index in self.nest.domain)
        if width * max(b.dtype.itemsize for f in folds for b in f.bodies) <= SHORT:
            return None
        count = self.size // GROUP - 1
        return self.table.loop((rows.tag, "group", count), count) if count else None

    def nests(self) -> tuple[Nest, ...]:
        """The nest that keeps the sums of blocks, and the one that uses them."""
        done: dict[Expr, Expr] = {}
        for expr in self.nest.exprs:
            children = tuple(done[child] for child in expr.children)
            if isinstance(expr, Part):
                done[expr] = self.total(expr.fold, expr.number)
            elif children == expr.children:
                done[expr] = expr
            else:
                done[expr] = self.table.rebuilt(expr, children)
        nests = [Nest((self.block, *self.nest.domain), tuple(self.stores))]
        if self.group is not None:
            groups = (self.group,) if isinstance(self.group, LoopIndex) else ()
            over = (self.block, *groups, *self.nest.domain)
            nests.append(Nest(over, tuple(self.more)))
        return *nests, self.nest.mapped(self.nest.domain, done)

    def total(self, fold: Fold, number: int) -> Expr:
        """One value of a fold: of all blocks, and of the rows that remain."""
        kept = self.table.load(*self.keep(fold, number), None)
        total = self.table.part(
            self.table.fold(fold.combine, (self.block,), (kept,)), 0
        )
        if self.rest == 0:
            return total
        start = self.table.number(self.blocks * self.size)
        remainder = section(self.table, fold, start, self.rest, "row")[number]
        return self.table.op(fold.combine, (total, remainder), total.dtype)

    def keep(self, fold: Fold, number: int) -> tuple[Buffer, IndexExpr]:
        """Have the first nests store a value of all blocks; gives where."""
        start, size = self.block * self.size, self.size
        if self.group is not None:
            size = GROUP
        value = section(self.table, fold, start, size, "row")[number]
        index = (self.block, *self.nest.domain)
        extents = [loop.extent for loop in index]
        buffer = self.local.sums(value.dtype, prod(extents))
        offset = linear_offset(index, extents)
        assert isinstance(offset, IndexExpr)
        self.stores.append(Store(buffer, offset, value))
        if self.group is not None:
            start += (self.group + 1) * GROUP
            more = section(self.table, fold, start, GROUP, "row")[number]
            self.more.append(Store(buffer, offset, more, fold.combine))
        return buffer, offset


def _cut(
    rows: int | Size, blocks: int, width: int
) -> tuple[int | Size, int, int | Size]:
    """How many rows a block has, how many blocks there are, and the rows left.

    Where rows are counted when they are summed, blocks of few of them are empty.
    """
    if isinstance(rows, Size):
        long = lesser(rows // max(LEAST // width, 1), 1)
        size = rows // blocks * long
        return size, blocks, rows - size * blocks
    even = _even(rows, blocks)
    return even, *divmod(rows, even)


def _even(rows: int, blocks: int) -> int:
    """How many rows a block has: a divisor if one is near, else as many as it takes.

    They are whole groups, where blocks are as long; there are two blocks at least.
    """
    step = GROUP if rows // blocks >= GROUP else 1
    least = -(-rows // (blocks * step)) * step
    divisors = (n for n in range(least, 2 * least, step) if rows % n == 0)
    return min(next(divisors, least), rows // 2)
