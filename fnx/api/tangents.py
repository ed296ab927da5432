"""Tangents and cotangents beside trees: what a derivative takes and gives.

Every inexact leaf of a tree has a tangent of its own shape and dtype; integer and
boolean leaves have one of dtype float0, which holds nothing. Receives trees from users
and checks them against the leaves they belong to (`read`), and puts flat results back
in trees (`filled`). Next on the walk: `derivatives.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors, tree
from fnx.api.arguments import as_array, leaf_names, with_type
from fnx.core.program import Literal
from fnx.core.types import ArrayType
from fnx.ops.shape import broadcast_in_dim
from fnx.tree import PyTreeDef


def moves(types: Sequence[ArrayType]) -> tuple[bool, ...]:
    """Which leaves have tangents: the inexact ones."""
    return tuple([dtypes.is_inexact(type.dtype) for type in types])


def zeros(type: ArrayType) -> Any:
    """A zero tangent of a leaf: float0 where the leaf is an integer or a bool."""
    if not dtypes.is_inexact(type.dtype):
        return np.zeros(type.shape, dtypes.float0)
    zero = Literal(0, ArrayType((), type.dtype, type.weak))
    return broadcast_in_dim(zero, shape=type.shape, dims=())


def filled(values: Sequence[Any], types: Sequence[ArrayType]) -> list[Any]:
    """Tangents in the types of their leaves; those that are `None` are zeros."""
    rows = zip(values, types, strict=True)
    return [zeros(type) if t is None else with_type(t, type) for t, type in rows]


def read(
    asker: str,
    what: str,
    given: Any,
    treedef: PyTreeDef,
    types: Sequence[ArrayType],
    of: str,
) -> list[Any]:
    """The leaves of a tree of tangents that have a value, after checking all of them.

    `what` names the tree ("the tangents"), `of` what it belongs to ("the primals").
    Raises `TreeError` where the structures differ, and `ShapeError` or `DTypeError`
    naming the leaf.
    """
    leaves, found = tree.flatten(given)
    if found != treedef:
        lines = tree.difference(treedef, found, first=of, second=what)
        raise errors.TreeError(
            f"{asker}: {what} must have the structure of {of}:\n  "
            + lines.replace("\n", "\n  ")
        )
    names = leaf_names([what], [treedef])
    rows = zip(leaves, types, names, strict=True)
    checked = [_checked(asker, t, type, name, of) for t, type, name in rows]
    return [t for t in checked if t is not None]


def _checked(asker: str, t: Any, type: ArrayType, name: str, of: str) -> Any:
    """One tangent in the type of its leaf; `None` for a leaf that has none."""
    if not dtypes.is_inexact(type.dtype):
        return _check_float0(asker, t, type, name, of)
    t = as_array(t, asker, name)
    if t.shape != type.shape:
        raise errors.ShapeError(
            errors.explain(
                f"{asker}: {name} is {t.type}",
                f"{of} there is {type}, and the shapes must be equal",
            )
        )
    if not _fits(t.type, type):
        raise errors.DTypeError(
            errors.explain(
                f"{asker}: {name} is {t.type}",
                f"{of} there is {type}, and the dtypes must be equal",
                f"convert it with .astype({type.dtype.name!r})",
            )
        )
    return with_type(t, type)


def _fits(t: ArrayType, type: ArrayType) -> bool:
    """Whether a tangent has the dtype of its leaf, or one of the two is weak."""
    if not t.weak:
        same_kind = dtypes.is_complex(t.dtype) == dtypes.is_complex(type.dtype)
        inexact = dtypes.is_inexact(t.dtype)
        return t.dtype == type.dtype or (type.weak and same_kind and inexact)
    return dtypes.promote((t.dtype, True), (type.dtype, False))[0] == type.dtype


def _check_float0(asker: str, t: Any, type: ArrayType, name: str, of: str) -> None:
    dtype = getattr(t, "dtype", None)
    if dtype != dtypes.float0 or t.shape != type.shape:
        shown = t.type if hasattr(t, "type") else repr(t)
        raise errors.DTypeError(
            errors.explain(
                f"{asker}: {name} is {shown}",
                f"{of} there is {type}, which has no derivative",
                f"pass numpy.zeros({type.shape}, fnx.float0) there",
            )
        )
