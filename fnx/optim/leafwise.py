"""A transformation from a rule for one leaf: most optimizers are made so.

Receives how a leaf's memory starts and how one update changes it, gives the
transformation of a whole tree; a leaf sees the others only through the step count.
Next on the walk: `scaling.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import tree
from fnx.errors import ArgumentError
from fnx.optim.transformation import (
    GradientTransformation,
    OptState,
    Params,
    Updates,
    transformation,
)
from fnx.optim.updates import Leaf, check_alike, first_count, floating, next_count, wide
from fnx.records import record


@record
class Here:
    """What a rule sees of a leaf, 16-bit arrays as float32.

    `g` is the update so far, `p` the parameter (None unless asked for), `count` the
    number of updates with this one (None unless the state counts).
    """

    g: Leaf
    p: Leaf
    count: Leaf


def leafwise(
    function: str,
    kind: Any,
    start: Callable[[Leaf], tuple[Any, ...]],
    rule: Callable[..., tuple[Any, ...]],
    *,
    like: str | None = None,
    needs_params: str = "",
) -> GradientTransformation:
    """The transformation whose state is a `kind`, a NamedTuple of trees.

    A field called count counts the updates; the others are trees like the parameters,
    or with a tree in the place of each leaf. `start(p)` gives the values of these
    fields for a parameter, `rule(here, *values)` the update and the new values, which
    are kept in the dtypes of the old. The field `like` (the first, if not said; none,
    if "") has the parameters' shapes. `needs_params` says what needs them, if anything
    does.
    """
    fields = [field for field in kind._fields if field != "count"]
    counts = "count" in kind._fields

    def pack(treedef: Any, rows: Sequence[tuple[Any, ...]], count: Leaf) -> OptState:
        columns = {
            field: tree.unflatten(treedef, [row[place] for row in rows])
            for place, field in enumerate(fields)
        }
        return kind(**columns, count=count) if counts else kind(**columns)

    def init(params: Params) -> OptState:
        leaves, treedef = tree.flatten(floating(function, "params", params))
        return pack(treedef, [start(p) for p in leaves], first_count())

    def update(
        updates: Updates, state: OptState, params: Params = None
    ) -> tuple[Updates, OptState]:
        updates = floating(function, "updates", updates)
        if like != "":
            shapes = getattr(state, like or fields[0])
            check_alike(function, "updates", updates, "state", shapes)
        leaves, treedef = tree.flatten(updates)
        beside: Sequence[Any] = [None] * len(leaves)
        if needs_params:
            params = beside_updates(function, needs_params, updates, params)
            beside = [wide(p) for p in tree.leaves(params)]
        memory = [treedef.flatten_up_to(getattr(state, field)) for field in fields]
        count = next_count(state.count) if counts else None
        steps, rows = [], []
        for g, p, *old in zip(leaves, beside, *memory, strict=True):
            step, *new = rule(Here(wide(g), p, count), *tree.map(wide, old))
            steps.append(step.astype(g.dtype))
            rows.append(tuple(tree.map(_kept, new, old)))
        return tree.unflatten(treedef, steps), pack(treedef, rows, count)

    return transformation(init, update)


def by_leaf(
    rule: Callable[..., tuple[Any, ...]],
    updates: Updates,
    read: Sequence[Any],
    memory: Sequence[Any],
) -> list[Any]:
    """The new updates and the new memory, trees, of a rule that also sees the whole.

    `rule(g, *read, *memory)` gives the update of a leaf and its new memory, which is
    kept in the dtypes of the old; 16-bit arrays come as float32. For transformations
    whose numbers about the whole tree `leafwise` cannot hold.
    """
    leaves, treedef = tree.flatten(updates)
    columns = [treedef.flatten_up_to(part) for part in (*read, *memory)]
    rows = []
    for g, *row in zip(leaves, *columns, strict=True):
        step, *new = rule(wide(g), *tree.map(wide, row))
        kept = [_kept(x, old) for x, old in zip(new, row[len(read) :], strict=True)]
        rows.append([step.astype(g.dtype), *kept])
    places = range(1 + len(memory))
    return [tree.unflatten(treedef, [row[place] for row in rows]) for place in places]


def beside_updates(
    function: str, what: str, updates: Updates, params: Params
) -> Params:
    """The parameters as a tree of arrays like the updates; `what` needs them."""
    if params is None:
        raise ArgumentError(
            f"{function}: {what} needs the parameters; call "
            "update(updates, state, params)"
        )
    params = floating(function, "params", params)
    check_alike(function, "updates", updates, "params", params)
    return params


def _kept(new: Leaf, old: Leaf) -> Leaf:
    return new.astype(old.dtype)
