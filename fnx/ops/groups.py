"""Groups of the replicas along a named axis, within which a collective works.

Receives groups as users write them (lists of replicas' numbers) and arrays with the
replicas' values along axis 0; gives tuples, and arrays with one row for each group and
member. Next on the walk: `fnx/ops/collective.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any

from fnx import errors
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import broadcast_in_dim, full, reshaped

# The replicas' numbers, group by group; None is one group of all in their order.
Groups = tuple[tuple[int, ...], ...] | None


def checked_groups(
    groups: Sequence[Sequence[int]] | None, axis_name: Hashable, axis_size: int
) -> Groups:
    """The groups in the order of their first members; `None` for the whole axis.

    A member's place in its group is its number there. Raises `AxisError` unless each
    replica is in exactly one group and all groups have the same size.
    """
    if groups is None:
        return None
    found = tuple(sorted([tuple([int(i) for i in group]) for group in groups]))
    everyone = sorted([i for group in found for i in group])
    if everyone != list(range(axis_size)) or len({len(group) for group in found}) != 1:
        raise errors.AxisError(
            errors.explain(
                f"axis_index_groups={[list(group) for group in groups]}",
                f"the groups must be of one size and have each replica of {axis_name!r}"
                f", from 0 to {axis_size - 1}, in exactly one of them",
            )
        )
    return None if found == (tuple(range(axis_size)),) else found


def member_count(axis_size: int, groups: Groups) -> int:
    """The number of replicas in a group."""
    return axis_size if groups is None else len(groups[0])


def into_groups(x: Any, groups: tuple[tuple[int, ...], ...]) -> Any:
    """Replicas' values along axis 0 as (groups, members, …)."""
    order = [i for group in groups for i in group]
    rows = rearranged(x, dict(enumerate(order)))
    return reshaped(rows, (len(groups), len(groups[0]), *x.shape[1:]))


def out_of_groups(x: Any, groups: tuple[tuple[int, ...], ...]) -> Any:
    """(groups, members, …) as the replicas' values along axis 0."""
    order = [i for group in groups for i in group]
    rows = reshaped(x, (len(order), *x.shape[2:]))
    return rearranged(rows, {i: place for place, i in enumerate(order)})


def for_members(x: Any, count: int) -> Any:
    """A row of each group for each of its members: (groups, members, …)."""
    shape = (x.shape[0], count, *x.shape[1:])
    return broadcast_in_dim(x, shape=shape, dims=(0, *range(2, len(shape))))


def rearranged(x: Any, source: dict[int, int]) -> Any:
    """The array whose row j is row `source[j]` of x, or zeros where it has none.

    Rows that stay neighbours are moved together: a shift is two slices.
    """
    size = x.shape[0]
    rows = [source.get(j, -1) for j in range(size)]
    cuts = [j for j in range(1, size) if not _follows(rows[j - 1], rows[j])]
    pieces = []
    for start, stop in pairwise([0, *cuts, size]):
        if rows[start] < 0:
            shape = (stop - start, *x.shape[1:])
            pieces.append(full(shape, x.dtype, 0))
        else:
            first = rows[start]
            pieces.append(part_of(x, 0, first, first + stop - start))
    return pieces[0] if len(pieces) == 1 else concatenate(*pieces, axis=0)


def _follows(before: int, row: int) -> bool:
    return before == row == -1 or (before >= 0 and row == before + 1)
