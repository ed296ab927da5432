"""Stores that may meet at one element, for GPUs: in any order, or sorted by element.

What combines to the same in any order is done atomically, by all threads at once. For
other stores the elements' offsets are computed first and sorted, and equal ones stay in
the order of the domain: then the last of several that set an element does so, or one
thread combines an element with all that is meant for it, in that order. Few updates
are left as they are, to run one after the other.
Receives a nest, gives nests and what is to be sorted between them; next on the walk:
`grid.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd, prod

from fnx import dtypes
from fnx.dtypes import DType
from fnx.kernel.expr import (
    Buffer,
    Expr,
    IndexExpr,
    Load,
    LoopIndex,
    as_index_expr,
    linear_offset,
    terms_of,
    unravel,
)
from fnx.kernel.ir import Run, Sort, Store
from fnx.kernel.loops import Nest
from fnx.kernel.reshape import separate_loops
from fnx.kernel.table import ExprTable
from fnx.records import record

FEW = 64
"""Fewer updates run one after the other."""

LONG = 64
"""Longer runs of updates of one element are for a warp."""

WARP = 32

_MOST = 1 << 31

Local = Callable[[DType, int], Buffer]
"""Gives a new buffer of the kernel's own."""


@record(eq=False)
class Runs:
    """A nest whose last loop has the rounds of a run.

    With `warps`, the last but one goes over the places that a warp begins runs at.
    """

    nest: Nest
    run: Run
    warps: bool = False


@record(eq=False)
class Sorted:
    """The offsets of updates, how they are sorted, and what is stored in that order."""

    offsets: Nest
    sort: Sort
    stores: Nest | tuple[Runs, ...]


def in_any_order(nest: Nest) -> Nest | None:
    """The nest with stores that may run in any order; None where the order decides."""
    if any(_is_read(nest, store.buffer) for store in nest.stores):
        return None
    # Of one store, offsets may tell all rounds apart.
    alone = len(nest.stores) == 1 and separate_loops(nest) == nest.domain
    stores = list[Store]()
    for store in nest.stores:
        if alone or not store.may_meet(nest.domain):
            stores.append(replace(store, apart=True))
        elif _commutes(store):
            stores.append(replace(store, atomic=True))
        else:
            return None
    return Nest(nest.domain, tuple(stores))


def _commutes(store: Store) -> bool:
    """Whether the order in which values are combined does not matter, to the bit.

    Single bytes are not combined atomically: they have neighbours in their word.
    """
    if store.buffer.dtype.itemsize == 1:
        return False
    if store.combine in ("max", "min"):
        return True
    return store.combine == "add" and dtypes.is_integer(store.buffer.dtype)


def _is_read(nest: Nest, buffer: Buffer) -> bool:
    return any(isinstance(x, Load) and x.buffer is buffer for x in nest.exprs)


def in_sorted_order(table: ExprTable, nest: Nest, local: Local) -> Sorted | None:
    """The stores of a nest sorted by element; None where they should run in order."""
    if len(nest.stores) > 1 or nest.scans:
        return None
    (store,) = nest.stores
    window = _window(nest, store)
    updates = tuple(loop for loop in nest.domain if loop not in window)
    if not FEW <= _count(updates) < _MOST or _is_read(nest, store.buffer):
        return None
    return _Sorting(table, nest, store, updates, local).result()


def _count(loops: tuple[LoopIndex, ...]) -> int:
    return prod(loop.extent for loop in loops)


def _window(nest: Nest, store: Store) -> tuple[LoopIndex, ...]:
    """The loops that tell elements of each update apart, alike in all updates."""
    atoms = [atom for atom, _ in terms_of(store.offset)[0]]
    others = [atom for atom in atoms if not isinstance(atom, LoopIndex)]
    mixed = {loop for x in (*others, store.mask) if x is not None for loop in x.free}
    return tuple(
        loop
        for loop in separate_loops(nest)
        if loop in store.offset.free and loop not in mixed
    )


class _Sorting:
    """What is made of one store: `updates` are the loops that its window has not."""

    def __init__(
        self,
        table: ExprTable,
        nest: Nest,
        store: Store,
        updates: tuple[LoopIndex, ...],
        local: Local,
    ) -> None:
        self.table, self.nest, self.store, self.updates = table, nest, store, updates
        inside = [loop for loop in nest.domain if loop not in updates]
        start: dict[Expr, IndexExpr] = {loop: table.number(0) for loop in inside}
        (first,) = table.substitute((store.offset,), start)
        self.first = as_index_expr(first)  # the offset of an update's first element
        terms, self.base = terms_of(self.first)
        self.step = gcd(*(c for _, c in terms)) or 1
        self.key = (self.first - self.base) // self.step
        self.end = self.key.hi + 1
        self.count = _count(updates)
        self.dtype = dtypes.uint32 if self.end < 1 << 32 else dtypes.uint64
        self.ordered = local(self.dtype, self.count)
        self.places = local(dtypes.uint32, self.count)
        self.keys = local(self.dtype, self.count)

    def result(self) -> Sorted:
        """The nests and what is between them."""
        highest = self.end if self.store.mask is not None else self.end - 1
        bits = max(highest.bit_length(), 1)
        sort = Sort(self.keys, self.ordered, self.places, bits)
        number = self.table.loop((self.updates, "sorted"), self.count)
        assert isinstance(number, LoopIndex)
        if self.store.combine is None:
            return Sorted(self.offsets(), sort, self.last(number))
        return Sorted(self.offsets(), sort, self.runs(number))

    def offsets(self) -> Nest:
        """Stores the number of each update's element; of the masked ones, the end."""
        table, mask = self.table, self.store.mask
        value: Expr = table.index_value(self.key, self.dtype)
        if mask is not None:
            nowhere = table.constant(self.end, self.dtype)
            value = table.op("select", (mask, value, nowhere), self.dtype)
        place = linear_offset(self.updates, [loop.extent for loop in self.updates])
        assert isinstance(place, IndexExpr)
        return Nest(self.updates, (Store(self.keys, place, value),))

    def last(self, number: LoopIndex) -> Nest:
        """Stores of the last update of each element, of all that set it."""
        table = self.table
        this = table.load(self.ordered, number, None)
        more = table.inside(number + 1, 0, self.count)
        following = table.load(self.ordered, number + 1, more)
        alone = table.op("not", (more,), dtypes.bool_)
        other = table.op("ne", (following, this), dtypes.bool_)
        mask = table.op("or", (alone, other), dtypes.bool_)
        if self.store.mask is not None:
            nowhere = table.constant(self.end, self.dtype)
            somewhere = table.op("ne", (this, nowhere), dtypes.bool_)
            mask = table.op("and", (mask, somewhere), dtypes.bool_)
        offset, value = self.offset(number), self.value(number)
        store = Store(self.store.buffer, offset, value, None, mask, apart=True)
        return Nest(self.domain(number), (store,))

    def runs(self, number: LoopIndex) -> tuple[Runs, ...]:
        """Combines elements with their updates, over which the last loops go.

        A thread does so for each element of a window. Where windows are small, a long
        run is for a warp, whose threads read its updates together.
        """
        domain = self.domain(number)
        window = tuple(loop for loop in domain if loop is not number)
        run = Run(self.ordered, number, self.end)
        if _count(window) >= WARP or self.count <= LONG:
            return (Runs(self.combined(domain, number), run),)
        table = self.table
        group = table.loop((self.updates, "group"), -(-self.count // WARP))
        step = table.loop((self.updates, "start"), WARP)
        assert isinstance(group, LoopIndex)
        assert isinstance(step, LoopIndex)
        start = group * WARP + step
        loops = *window, group, step
        return (
            Runs(self.combined(domain, number), replace(run, most=LONG)),
            Runs(
                self.combined(loops, start),
                replace(run, start=start, least=LONG + 1),
                warps=True,
            ),
        )

    def combined(self, loops: tuple[LoopIndex, ...], start: IndexExpr) -> Nest:
        """Combines the element that the key at the start of a run tells."""
        each = self.table.loop((self.updates, "run"), self.count)
        assert isinstance(each, LoopIndex)
        offset, value = self.offset(start), self.value(each)
        store = Store(self.store.buffer, offset, value, self.store.combine, apart=True)
        return Nest((*loops, each), (store,))

    def domain(self, number: LoopIndex) -> tuple[LoopIndex, ...]:
        """The loops of the window, and one over sorted updates in place of theirs."""
        *others, last = self.updates
        loops = (number if loop is last else loop for loop in self.nest.domain)
        return tuple(loop for loop in loops if loop not in others)

    def offset(self, number: IndexExpr) -> IndexExpr:
        """The element that a sorted update is meant for."""
        there = self.table.inside(number, 0, self.count)
        key = self.table.load(self.ordered, number, there)
        first = self.table.as_index(key, 0, self.end - 1) * self.step + self.base
        return first + (self.store.offset - self.first)

    def value(self, number: LoopIndex) -> Expr:
        """The value of a sorted update."""
        place = self.table.load(self.places, number, None)
        update = self.table.as_index(place, 0, self.count - 1)
        indices = unravel(update, [loop.extent for loop in self.updates])
        mapping: dict[Expr, IndexExpr] = dict(zip(self.updates, indices, strict=True))
        (value,) = self.table.substitute((self.store.value,), mapping)
        return value
