"""Which element of an input an element of an output depends on, as index arrays.

`Links` are pairs of an input's element and an output's element, both numbered in
row-major order; primitives give them (`Primitive.links`). `IndexSets` has a set of
numbers for every element of an array, and follows links.
Receives and gives NumPy arrays; `fnx.transforms.sparsity` follows whole programs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.records import record

Ints = np.ndarray[Any, Any]
Links = tuple[Ints, Ints]

MOST = 2**24
"""Of more pairs than this, nobody keeps a list: everything depends on everything."""

# Numbers that no fill value is taken for, and that a float64 can tell apart.
_FIRST = 2.0**40


@record(eq=False)
class IndexSets:
    """For each element of an array a set of numbers below `universe`.

    Set i is `items[starts[i] : starts[i + 1]]`, in increasing order.
    """

    starts: Ints
    items: Ints
    universe: int

    @staticmethod
    def of(elements: Ints, items: Ints, count: int, universe: int) -> IndexSets:
        """The sets of `count` elements from pairs of an element and a number."""
        keys = np.unique(elements * np.int64(max(universe, 1)) + items)
        elements, items = np.divmod(keys, max(universe, 1))
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(elements, minlength=count), out=starts[1:])
        return IndexSets(starts, items, universe)

    @staticmethod
    def single(count: int) -> IndexSets:
        """The set of itself for each of so many elements."""
        return IndexSets(np.arange(count + 1), np.arange(count), count)

    @property
    def count(self) -> int:
        """How many sets there are."""
        return len(self.starts) - 1

    @property
    def elements(self) -> Ints:
        """The element of each item."""
        return np.repeat(np.arange(self.count), np.diff(self.starts))

    def follow(self, links: Links | None, count: int) -> IndexSets:
        """The sets of `count` elements, joined from those that they are linked to.

        `None` links every element to every other one.
        """
        if links is None:
            items = np.unique(self.items)
            starts = np.arange(count + 1) * len(items)
            return IndexSets(starts, np.tile(items, count), self.universe)
        given, made = links
        first, lengths = self.starts[given], np.diff(self.starts)[given]
        before = np.cumsum(lengths) - lengths
        places = np.arange(lengths.sum()) + np.repeat(first - before, lengths)
        elements = np.repeat(made, lengths)
        return IndexSets.of(elements, self.items[places], count, self.universe)

    def part(self, start: int, stop: int) -> IndexSets:
        """The sets of consecutive elements."""
        starts = self.starts[start : stop + 1]
        items = self.items[starts[0] : starts[-1]]
        return IndexSets(starts - starts[0], items, self.universe)


def joined(sets: Sequence[IndexSets | None]) -> IndexSets | None:
    """The union, element by element; `None` stands for empty sets."""
    found = [s for s in sets if s is not None]
    if len(found) < 2:
        return found[0] if found else None
    elements = np.concatenate([s.elements for s in found])
    items = np.concatenate([s.items for s in found])
    return IndexSets.of(elements, items, found[0].count, found[0].universe)


def stacked_sets(rows: Sequence[IndexSets | None], size: int) -> IndexSets | None:
    """The sets of arrays of so many elements one behind the other."""
    found = [(n * size, s) for n, s in enumerate(rows) if s is not None]
    if not found:
        return None
    elements = np.concatenate([first + s.elements for first, s in found])
    items = np.concatenate([s.items for _, s in found])
    return IndexSets.of(elements, items, len(rows) * size, found[0][1].universe)


def equal(a: IndexSets | None, b: IndexSets | None) -> bool:
    """Whether two arrays have the same sets."""
    if a is None or b is None:
        return a is b
    return np.array_equal(a.starts, b.starts) and np.array_equal(a.items, b.items)


# ---------------------------------------------------------------- links


def numbered(shape: tuple[int, ...]) -> Ints:
    """The number of each element."""
    return np.arange(math.prod(shape)).reshape(shape)


def same(shape: tuple[int, ...]) -> Links:
    """Each element to the one at its place."""
    numbers = np.arange(math.prod(shape))
    return numbers, numbers


def aligned(
    shape: tuple[int, ...],
    out_shape: tuple[int, ...],
    alignment: Sequence[int | None],
) -> Links | None:
    """Links along the output's axes that an input's axes run along.

    An axis that is `None` is folded: each of its elements goes to the same one.
    """
    # The index of an axis of length 1 is 0, whatever it runs along.
    long = [d for d, size in enumerate(shape) if size != 1]
    folded = [d for d in long if alignment[d] is None]
    extents = [*out_shape, *[shape[d] for d in folded]]
    if math.prod(extents) > MOST:
        return None
    behind = {d: len(out_shape) + n for n, d in enumerate(folded)}
    places = [behind.get(d, alignment[d]) for d in long]
    order = sorted(range(len(long)), key=lambda n: places[n] or 0)
    numbers = numbered(tuple([shape[d] for d in long])).transpose(order)
    spread = [1] * len(extents)
    for n in order:
        spread[places[n] or 0] = shape[long[n]]
    made = numbered(out_shape).reshape((*out_shape, *[1] * len(folded)))
    given, made = np.broadcast_arrays(numbers.reshape(spread), made)
    return given.ravel(), made.ravel()


def copied(
    primitive: Any, position: int, known: Sequence[Any], types: Any, params: Any
) -> Links | None:
    """Links of an operation that copies elements, from what it does to their numbers.

    It copies between arrays of inexact dtypes, guided by the others, which must be
    known.
    """
    args: list[Any] = []
    for n, (value, type) in enumerate(zip(known, types, strict=True)):
        if n == position:
            args.append(numbered(type.shape) + _FIRST)
        elif type.dtype == types[position].dtype:
            args.append(np.full(type.shape, -1.0))
        elif value is None:
            return None
        else:
            args.append(value)
    out = np.asarray(primitive.reference(*args, **params)).ravel()
    found = np.flatnonzero((out >= _FIRST) & (out < _FIRST + types[position].size))
    return (out[found] - _FIRST).astype(np.int64), found
