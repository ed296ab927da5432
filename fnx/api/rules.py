"""Checks of what the user's derivative rules return, for `custom.py`.

Receives a rule's result and the structure and types that it must have; gives its leaves
in exactly those types, or raises an error that names the function, the rule and the
place that differs. Next on the walk: `custom.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import optree

from fnx import dtypes, errors, tree
from fnx.api.arguments import as_array, kind_of, leaf_names, with_type
from fnx.api.tangents import read, zeros
from fnx.core.types import ArrayType
from fnx.tree import PyTreeDef
from fnx.tree_nodes import NAMESPACE


def check_pair(asker: str, rule: str, result: Any) -> tuple[Any, Any]:
    """The two parts of what a rule returned."""
    second = "tangent" if "jvp" in rule else "residuals"
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: {rule} must return a pair (output, {second})",
                f"it returned {kind_of(result)}",
            )
        )
    return result[0], result[1]


def check_results(
    asker: str, rule: str, output: Any, treedef: PyTreeDef, types: Sequence[ArrayType]
) -> list[Any]:
    """The leaves of the output that a rule gives beside its tangent or residuals."""
    leaves, found = tree.flatten(output)
    if found != treedef:
        lines = tree.difference(treedef, found, first="the function", second=rule)
        raise errors.TreeError(
            f"{asker}: the output of {rule} has not the structure of the function's:\n"
            f"  {lines}"
        )
    names = leaf_names([f"the output of {rule}"], [treedef])
    rows = zip(leaves, types, names, strict=True)
    return [_result(asker, x, type, name) for x, type, name in rows]


def _result(asker: str, x: Any, type: ArrayType, name: str) -> Any:
    x = as_array(x, asker, name)
    if (x.shape, x.dtype) != (type.shape, type.dtype):
        raise errors.ShapeError(
            errors.explain(
                f"{asker}: {name} is {x.type}",
                f"the function itself gives {type}",
            )
        )
    return with_type(x, type)


def tangent_leaves(
    asker: str, tangent: Any, treedef: PyTreeDef, types: Sequence[ArrayType]
) -> list[Any]:
    """The tangents of the inexact outputs that a jvp rule gave."""
    what = "the tangent that the jvp rule returns"
    return read(asker, what, tangent, treedef, types, "the output")


def cotangent_leaves(
    asker: str, result: Any, primals: tuple[Any, ...], types: Sequence[ArrayType]
) -> list[Any]:
    """The cotangents of the inexact leaves of the arguments that a vjp rule gave."""
    if not isinstance(result, tuple | list) or len(result) != len(primals):
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: the backward rule must return a tuple with a cotangent for "
                f"each of the {len(primals)} arguments",
                f"it returned {kind_of(result)}",
                "return None in the place of an argument whose cotangent is zero, and "
                "a tuple of one for a single argument",
            )
        )
    given: list[Any] = []
    for i, (ct, primal) in enumerate(zip(result, primals, strict=True)):
        given += _spread(asker, f"the cotangent of argument {i}", ct, primal)
    names = leaf_names(
        [f"the cotangent of argument {i}" for i in range(len(primals))], primals
    )
    rows = zip(given, types, names, strict=True)
    found = [_cotangent(asker, ct, type, name) for ct, type, name in rows]
    return [ct for ct in found if ct is not None]


def _spread(asker: str, what: str, ct: Any, primal: Any) -> list[Any]:
    """A cotangent for each leaf of an argument; `None` stands for a whole subtree."""
    treedef = tree.structure(primal)
    values = tree.broadcast_prefix(ct, primal, f"{asker}: {what}")
    paths, given, _ = optree.tree_flatten_with_path(
        ct, none_is_leaf=True, namespace=NAMESPACE
    )
    places = set(treedef.paths())
    rows = zip(given, paths, strict=True)
    if any(x is not None and path not in places for x, path in rows):
        lines = tree.difference(
            treedef, ct, first="the argument", second="the cotangent"
        )
        raise errors.TreeError(f"{asker}: {what} has another structure:\n  {lines}")
    return values


def _cotangent(asker: str, ct: Any, type: ArrayType, name: str) -> Any:
    """One cotangent in the type of its leaf; `None` for a leaf that has none."""
    if ct is None:
        return zeros(type) if dtypes.is_inexact(type.dtype) else None
    leaf = tree.structure(0)
    found = read(asker, name, ct, leaf, [type], "the argument")
    return found[0] if found else None
