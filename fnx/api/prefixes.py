"""associative_scan: what the elements up to each place combine to.

Receives an associative function and trees of arrays; applies it to pairs, and to pairs
of pairs, without a loop. Next on the walk: `grad.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx import errors, tree
from fnx.api.arguments import as_array, check_callable, name_of
from fnx.api.held import Operand, check_same_tree, mismatch
from fnx.api.vmap import moved
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import reshape
from fnx.ops.shape import reverse as flip


@errors.api_boundary
def associative_scan(
    fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """What the elements up to each place combine to, by an associative function.

    `elems` is a tree of arrays with one length along `axis`; `fn` takes two such trees
    (of any length along the axis) and gives one of the same shapes and dtypes. About
    2 n applications, in log n steps (Blelloch, "Prefix sums and their applications",
    1990). With `reverse`, the elements from each place on, combined from the end: the
    first argument of `fn` is what comes later.

    Raises `ArgumentError` without an array or where `fn` is no function, `ShapeError`
    where lengths differ, `AxisError` where there is no such axis.

    >>> import fnx, numpy as np
    >>> fnx.lax.associative_scan(lambda a, b: a * b, np.array([1.0, 2.0, 3.0, 4.0]))
    Array([ 1.,  2.,  6., 24.], dtype=float64)
    """
    check_callable("associative_scan", fn)
    given = Operand.of("associative_scan", "elems", elems)
    if not given.leaves:
        raise errors.ArgumentError("associative_scan: elems has no arrays")
    axes = []
    for leaf, name in zip(given.leaves, given.names, strict=True):
        if not -leaf.ndim <= axis < leaf.ndim:
            raise errors.AxisError(
                f"associative_scan: {name} is {leaf.type}, it has no axis {axis}"
            )
        axes.append(axis % leaf.ndim)
    sizes = {x.shape[d] for x, d in zip(given.leaves, axes, strict=True)}
    if len(sizes) > 1:
        rows = zip(given.names, given.leaves, strict=True)
        lines = [f"{name}: {leaf.type}" for name, leaf in rows]
        raise mismatch(f"associative_scan: lengths along axis {axis} differ", lines)
    moved_in = [moved(x, d, 0) for x, d in zip(given.leaves, axes, strict=True)]
    if reverse:
        moved_in = [flip(x, axes=(0,)) for x in moved_in]

    def combine(first: list[Any], second: list[Any]) -> list[Any]:
        pair = [given.treedef.unflatten(leaves) for leaves in (first, second)]
        leaves, found = tree.flatten(fn(*pair))
        given_, returned = "elems", f"the result of {name_of(fn)}"
        check_same_tree("associative_scan", given.treedef, found, given_, returned)
        return [as_array(leaf, "associative_scan", "the result") for leaf in leaves]

    results = _prefixes(combine, moved_in)
    if reverse:
        results = [flip(x, axes=(0,)) for x in results]
    return given.treedef.unflatten(
        [moved(x, 0, d) for x, d in zip(results, axes, strict=True)]
    )


def _prefixes(
    combine: Callable[[list[Any], list[Any]], list[Any]], rows: list[Any]
) -> list[Any]:
    """The prefixes of rows: those of pairs, and between them one more combination."""
    count = rows[0].shape[0]
    if count < 2:
        return rows
    evens = [part_of(x, 0, 0, count - 1, 2) for x in rows]
    odds = [part_of(x, 0, 1, count, 2) for x in rows]
    pairs = _prefixes(combine, combine(evens, odds))
    before = [part_of(x, 0, 0, (count - 1) // 2) for x in pairs]
    rest = [part_of(x, 0, 2, count, 2) for x in rows]
    between = combine(before, rest) if count > 2 else rest
    first = [part_of(x, 0, 0, 1) for x in rows]
    evens = [concatenate(a, b, axis=0) for a, b in zip(first, between, strict=True)]
    return [_alternating(a, b) for a, b in zip(evens, pairs, strict=True)]


def _alternating(evens: Any, odds: Any) -> Any:
    """The rows of two arrays in turns; the first has as many, or one more."""
    count, shape = odds.shape[0], odds.shape[1:]
    both = concatenate(
        reshape(part_of(evens, 0, 0, count), shape=(count, 1, *shape)),
        reshape(odds, shape=(count, 1, *shape)),
        axis=1,
    )
    turns = reshape(both, shape=(2 * count, *shape))
    left = part_of(evens, 0, count, evens.shape[0])
    return concatenate(turns, left, axis=0) if left.shape[0] else turns
