"""A body that may be repeated: traced until its carry has the same types as it began.

Receives a function of a carry (and of a row), gives its program, the first carry in the
types that stay, and the structures of what it returns (`Step`). Next on the walk:
`loops.py`, which makes scans and while loops of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors, tree
from fnx.api.arguments import kind_of, leaf_names
from fnx.api.held import (
    Held,
    Operand,
    argument_names,
    cast_to,
    check_same_tree,
    common_type,
    hold,
    mismatch,
    tuple_tree,
)
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.tree import PyTreeDef

Types = tuple[ArrayType, ...]


@record
class Step:
    """A traced body whose carry has the same types before and after a round.

    `start` are the leaves of the first carry, in those types. The program takes what
    `held` captured, the carry and a row; it gives the carry and the leaves of a row.
    """

    held: Held
    start: tuple[Any, ...]
    carry_tree: PyTreeDef
    rows_tree: PyTreeDef


def steady(
    asker: str,
    function: Callable[..., Any],
    init: Operand,
    *,
    rows: Operand | None = None,
    pairs: bool = False,
    roots: Sequence[str] | None = None,
) -> Step:
    """Traces a body until its carry has the types that it is given.

    A weak type gives way to what a round makes of it, so this takes two rounds or
    three; `pairs` says that the body returns a pair of the carry and a row, `roots` are
    the user's names of what the body takes, or of the parts of its one tuple.
    """
    types = init.types
    operands = [init] if rows is None else [init, rows]
    row_types = [] if rows is None else [x.with_shape(x.shape[1:]) for x in rows.types]
    trees = [operand.treedef for operand in operands]
    in_tree = tuple_tree(trees)
    if roots is None:
        names = argument_names(function, operands)
    else:
        names = leaf_names(roots, init.treedef.children() if rows is None else trees)
    while True:
        held = hold(asker, function, [*types, *row_types], in_tree, names)
        carry_tree, rows_tree = _result_trees(asker, held, pairs)
        given, returned = "the carry that it is given", "the carry that it returns"
        where = f"{asker}: {held.name}"
        check_same_tree(where, init.treedef, carry_tree, given, returned)
        found = held.types[: len(types)]
        joint = _joint(where, init, types, found)
        if joint == types:
            break
        types = joint
    held = held.converted((*types, *held.types[len(types) :]))
    pairs_of = zip(init.leaves, types, strict=True)
    start = tuple([cast_to(x, type) for x, type in pairs_of])
    return Step(held, start, carry_tree, rows_tree)


def _result_trees(asker: str, held: Held, pairs: bool) -> tuple[PyTreeDef, PyTreeDef]:
    """The structures of the carry and of a row that a body returns."""
    if not pairs:
        return held.out_tree, tree.structure(())
    shown = held.out_tree.unflatten(list(held.types))
    if not isinstance(shown, tuple | list) or len(shown) != 2:
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: {held.name} must return a pair (carry, y)",
                f"it returned {kind_of(shown)}",
                "return (carry, None) where there is nothing to stack",
            )
        )
    return tree.structure(shown[0]), tree.structure(shown[1])


def _joint(where: str, init: Operand, given: Types, found: Types) -> Types:
    """The types that the carry must have, so that it can be passed on."""
    joint, lines = [], []
    for path, one, two in zip(init.names, given, found, strict=True):
        common = common_type(one, two)
        if common is None or (common != one and not one.weak):
            lines.append(f"{path}: it is given {one}, it returns {two}")
        joint.append(common or one)
    if lines:
        raise mismatch(
            f"{where}: the carry must keep its shapes and dtypes",
            lines,
            "convert what it returns, or begin with the type that it becomes",
        )
    return tuple(joint)
