"""Where values are: the places of a plan, and the one arena that all steps share.

Receives the drafts of a plan's steps, which say what they read and write; gives every
value a place. A value's place in the arena is used again after its last reader, and a
copy of what nobody reads any more takes over its place. Next on the walk: `plan.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.layout import Layout, row_major
from fnx.core.types import ArrayType
from fnx.kernel.ir import Kernel
from fnx.records import record
from fnx.sizes import Size, surely_at_most, usual

if TYPE_CHECKING:
    from fnx.compiler.step import Step

ALIGNMENT = 64


@record
class Place:
    """Where a value's bytes are: input or output number `index`, or an arena offset."""

    role: str
    index: int

    def __str__(self) -> str:
        where = "@" if self.role == "arena" else self.role
        return f"{where}{self.index!r}"


class Value:
    """A stored value while the plan is made: its type, and where its elements lie."""

    __slots__ = ("layout", "type")

    def __init__(self, type: ArrayType, layout: Layout | None = None) -> None:
        self.type = type
        self.layout = layout or row_major(type.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The value's shape."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The value's dtype."""
        return self.type.dtype

    @property
    def nbytes(self) -> int:
        """The value's bytes."""
        return self.type.size * self.type.dtype.itemsize


class View(Value):
    """A value whose elements lie in another's bytes."""

    __slots__ = ("base",)

    def __init__(
        self, base: Value, type: ArrayType, layout: Layout | None = None
    ) -> None:
        super().__init__(type, layout)
        self.base = base


def base_of(value: Value) -> Value:
    """The value whose bytes a value has."""
    return value.base if isinstance(value, View) else value


@record
class Draft:
    """A step over values: what it reads and writes, and how to make it from places.

    `scope` is the name (`fnx.named_scope`) around all that the step computes. A step
    that goes on `aside` does so beside later ones, until one touches what it writes.
    What a backend may join is told: whether the step `multiplies` matrices, and the
    `kernel` of a step with the values behind its buffers.
    """

    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    make: Callable[[Callable[[Value], Place]], Step]
    copies: bool = False
    scope: str = ""
    multiplies: bool = False
    kernel: tuple[Kernel, tuple[Value, ...]] | None = None
    aside: bool = False


def place_in_arena(drafts: Sequence[Draft], places: dict[Value, Place]) -> int:
    """Gives every value without a place one in the arena; the arena's size in bytes."""
    last_use: dict[Value, int] = {}
    for number, draft in enumerate(drafts):
        for value in (*draft.reads, *draft.writes):
            last_use[value] = number
    for number, draft in enumerate(drafts):
        if draft.aside:
            end = _end_of(number, drafts)
            for value in (*draft.reads, *draft.writes):
                last_use[value] = max(last_use[value], end)
    becomes = _renamed(drafts, places, last_use)
    free = _FreeList()
    ending: dict[int, list[Value]] = {}
    for number, draft in enumerate(drafts):
        for value in draft.reads:
            # Nothing writes an array without elements.
            places.setdefault(value, Place("arena", 0))
        for written in draft.writes:
            value = becomes.get(written, written)
            if value not in places:
                places[value] = Place("arena", free.take(_rounded(value.nbytes)))
                ending.setdefault(last_use[value], []).append(value)
            places[written] = places[value]
        for value in ending.pop(number, ()):
            free.give(places[value].index, _rounded(value.nbytes))
    return free.size


def _end_of(number: int, drafts: Sequence[Draft]) -> int:
    """The first step that waits for one that goes on aside; else the last one."""
    made = {*drafts[number].writes}
    for later in range(number + 1, len(drafts)):
        if not made.isdisjoint((*drafts[later].reads, *drafts[later].writes)):
            return later
    return len(drafts) - 1


def takes_over(drafts: Sequence[Draft], source: Value, out: Value) -> bool:
    """Whether a value begins as the copy of another one that nobody reads any more."""
    last_use = {v: n for n, d in enumerate(drafts) for v in (*d.reads, *d.writes)}
    for number, draft in enumerate(drafts):
        if draft.copies and draft.reads == (source,) and last_use[source] == number:
            (copy,) = draft.writes
            becomes = _renamed(drafts, {}, last_use)
            return copy.nbytes == source.nbytes and becomes.get(copy, copy) is out
    return False


def _renamed(
    drafts: Sequence[Draft], places: Mapping[Value, Place], last_use: dict[Value, int]
) -> dict[Value, Value]:
    """The copies of values that nothing reads any more: they take over their places."""
    becomes: dict[Value, Value] = {}
    made: set[Value] = set()
    for number, draft in enumerate(drafts):
        made.update(draft.writes)
        if draft.copies:
            (source,), (out,) = draft.reads, draft.writes
            ends = last_use[source] == number and source.nbytes == out.nbytes
            if ends and source in made and source not in places:
                becomes[source] = out
    for source in reversed(becomes):
        becomes[source] = becomes.get(becomes[source], becomes[source])
    return becomes


def _rounded(nbytes: int) -> int:
    blocks = (nbytes + ALIGNMENT - 1) // ALIGNMENT
    return (
        blocks * ALIGNMENT if isinstance(blocks, Size) else max(blocks, 1) * ALIGNMENT
    )


class _FreeList:
    """The free blocks of a growing arena; the smallest that fits is taken.

    Where sizes are formulas, it has to fit whatever they are.
    """

    def __init__(self) -> None:
        self.size = 0
        self.blocks: list[tuple[int, int]] = []  # (offset, size), by offset

    def take(self, size: int) -> int:
        fitting = [block for block in self.blocks if surely_at_most(size, block[1])]
        if not fitting:
            return self._grow(size)
        offset, room = min(fitting, key=lambda block: usual(block[1]))
        self.blocks.remove((offset, room))
        if room != size:
            self.give(offset + size, room - size)
        return offset

    def _grow(self, size: int) -> int:
        offset = self.size
        at_end = bool(self.blocks) and sum(self.blocks[-1]) == self.size
        # A block that is larger at some sizes stays: else the arena would shrink.
        if at_end and surely_at_most(self.blocks[-1][1], size):
            offset = self.blocks.pop()[0]
        self.size = offset + size
        return offset

    def give(self, offset: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        # What is laid out one after the other is in that order for any size.
        every = [*self.blocks, (offset, size)]
        for block in sorted(every, key=lambda block: usual(block[0])):
            if merged and sum(merged[-1]) == block[0]:
                merged[-1] = (merged[-1][0], merged[-1][1] + block[1])
            else:
                merged.append(block)
        self.blocks = merged
