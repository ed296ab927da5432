"""ppermute and pshuffle, along one named axis or several together.

Receives trees of arrays, names, and who sends to whom; gives what each replica
receives. Along several axes a permutation is made of some that move along one axis
after the other, of which each replica takes the one that is for it.
Next on the walk: `fnx/nn`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from fnx import errors, tree
from fnx.core.array import Array
from fnx.core.axes import axis_size
from fnx.lax.elementwise import select
from fnx.lax.parallel import axis_index, names_of
from fnx.numpy.creation import zeros_like
from fnx.numpy.indexing import get
from fnx.numpy.operands import as_array, broadcast
from fnx.ops import sending
from fnx.records import record

Pairs = Sequence[tuple[int, int]]


@record(eq=False)
class Round:
    """Where replicas send to along each axis, and which of them receive it at last."""

    moves: Sequence[dict[int, int]]
    receives: np.ndarray[Any, Any]


def ppermute(x: Any, axis_name: Any, perm: Pairs) -> Any:
    """Each replica's value sent on by (source, destination) pairs; others get 0.

    Along several axes replicas have numbers in row-major order, as `axis_index`. A ring
    takes one round for each axis; what is not regular takes more.
    """
    names = names_of(axis_name)
    pairs = [(int(a), int(b)) for a, b in perm]
    if len(names) == 1:
        return _each(x, lambda array: _along(array, names[0], pairs))
    sizes = [axis_size(name) for name in names]
    _check(names, pairs, math.prod(sizes))
    rounds = _rounds(pairs, sizes)

    def sent(array: Array) -> Array:
        found = zeros_like(array)
        for step in rounds:
            moved = array
            for name, move in zip(names, step.moves, strict=True):
                if any(a != b for a, b in move.items()):
                    moved = _along(moved, name, list(move.items()))
            flags = as_array("ppermute", step.receives.reshape(-1))
            mine = get(flags, axis_index(names))
            found = select(broadcast(mine, array.shape), moved, found)
        return found

    return _each(x, sent)


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Replica i gets the value of replica `perm[i]`."""
    return ppermute(x, axis_name, [(int(a), i) for i, a in enumerate(perm)])


def _each(x: Any, sent: Any) -> Any:
    return tree.map(lambda leaf: sent(as_array("ppermute", leaf)), x)


def _along(x: Array, name: Hashable, pairs: Pairs) -> Array:
    return sending.ppermute(x, axis_name=name, perm=pairs)


def _check(names: Sequence[Hashable], pairs: Pairs, count: int) -> None:
    """Raises where a replica that is not there sends or receives, or one does twice."""
    for ends in zip(*pairs, strict=True):
        if len({*ends}) != len(ends) or not all(0 <= n < count for n in ends):
            raise errors.AxisError(
                errors.explain(
                    f"ppermute(axis_name={tuple(names)}, perm={list(pairs)})",
                    f"replicas are numbered from 0 to {count - 1}, and each may send "
                    "once and receive once",
                )
            )


def _rounds(pairs: Pairs, sizes: Sequence[int]) -> list[Round]:
    """The moves of each round; a pair joins the first one that can move it, too."""
    rounds: list[Round] = []
    for pair in pairs:
        source, end = [tuple(map(int, np.unravel_index(n, sizes))) for n in pair]
        fitting = [r for r in rounds if all(map(_fits, r.moves, source, end))]
        if not fitting:
            fitting = [Round([{} for _ in sizes], np.zeros(sizes, bool))]
            rounds += fitting
        for move, a, b in zip(fitting[0].moves, source, end, strict=True):
            move[a] = b
        fitting[0].receives[end] = True
    return rounds


def _fits(move: dict[int, int], source: int, end: int) -> bool:
    """Whether a replica along an axis may send to another besides what others do."""
    return move[source] == end if source in move else end not in move.values()
