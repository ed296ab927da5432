"""What the transformations share: trees checked against each other, numbers of a leaf.

Sixteen-bit arrays compute in float32 and are rounded once, as everywhere in fnx; an
update keeps the dtype of its gradient, a parameter its own. Receives trees, gives
trees. Next on the walk: `hyperparameters.py`.
"""

from __future__ import annotations

from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, tree
from fnx.errors import DTypeError, ShapeError, TreeError, api_boundary
from fnx.optim.transformation import Params, Updates

Leaf = Any
"""An array; its operators are installed at run time, so that types cannot tell."""
_MOST_STEPS = 2**31 - 1


@api_boundary
def apply_updates(params: Params, updates: Updates) -> Params:
    """The parameters plus the updates, leaf by leaf; each keeps the parameter's dtype.

    Raises `TreeError` where the structures differ and `ShapeError` where shapes do,
    naming the place: an update is never broadcast over its parameter.

    >>> apply_updates({"w": fnp.array([1.0, 2.0])}, {"w": fnp.array([0.5, -0.5])})
    {'w': Array([1.5, 1.5], dtype=float32)}
    """
    params = floating("apply_updates", "params", params)
    updates = floating("apply_updates", "updates", updates)
    check_alike("apply_updates", "params", params, "updates", updates)
    return tree.map(lambda p, u: (wide(p) + wide(u)).astype(p.dtype), params, updates)


@api_boundary
def global_norm(updates: Updates) -> Leaf:
    """The Euclidean norm of all elements of a tree, as one array of rank 0.

    float32, or float64 if a leaf is; 0 for a tree without leaves. Where the norm is 0
    its gradient is 0, not NaN.

    >>> global_norm({"w": fnp.array([3.0]), "b": fnp.array([4.0])})
    Array(5., dtype=float32)
    """
    leaves = tree.leaves(floating("global_norm", "updates", updates))
    squares = [fnp.sum(squared(wide(x))) for x in leaves]
    total = tree.reduce(fnp.add, squares, fnp.zeros((), "float32"))
    positive = total > 0
    return fnp.where(positive, fnp.sqrt(fnp.where(positive, total, 1)), 0)


# ---------------------------------------------------------------- one leaf


def wide(x: Leaf) -> Leaf:
    """The array in the dtype that its elements are computed in: float32 for 16 bit."""
    return x.astype(dtypes.compute_dtype(x.dtype))


def scaled(x: Leaf, factor: Any) -> Leaf:
    """The array times a number, in the array's dtype."""
    x_wide = wide(x)
    return (x_wide * fnp.asarray(factor, x_wide.dtype)).astype(x.dtype)


def squared(x: Leaf) -> Leaf:
    """The squared magnitude of each element: real also for complex arrays."""
    if dtypes.is_complex(x.dtype):
        return fnp.add(fnp.square(fnp.real(x)), fnp.square(fnp.imag(x)))
    return fnp.square(x)


def first_count() -> Leaf:
    """The number of updates before the first one."""
    return fnp.zeros((), "int32")


def next_count(count: Leaf) -> Leaf:
    """One more; it stays at the largest int32 rather than become negative."""
    return fnp.add(fnp.minimum(count, _MOST_STEPS - 1), 1)


# ---------------------------------------------------------------- trees


def floating(function: str, name: str, values: Any) -> Any:
    """The tree with every leaf as an array; `DTypeError` if one is no float."""
    leaves, treedef = tree.flatten(values)
    arrays = [fnp.asarray(leaf) for leaf in leaves]
    for place, x in enumerate(arrays):
        if not dtypes.is_inexact(x.dtype):
            path = tree.keystr(tree.paths(treedef)[place])
            raise DTypeError(
                f"{function}: {name}{path} is {x.type}; an optimizer works on "
                "floating-point arrays. Keep other values out of the parameters"
            )
    return tree.unflatten(treedef, arrays)


def check_alike(function: str, first: str, a: Any, second: str, b: Any) -> None:
    """Raise unless two trees of arrays have the same structure and the same shapes."""
    difference = tree.difference(a, b, first=first, second=second)
    if difference:
        raise TreeError(
            f"{function}: {first} and {second} differ in structure\n{difference}"
        )
    shapes = [
        [x.shape for x in tree.leaves(a)],
        [x.shape for x in tree.leaves(b)],
    ]
    if shapes[0] != shapes[1]:
        difference = tree.difference(
            a, b, first=first, second=second, describe=_describe
        )
        raise ShapeError(f"{function}: {first} and {second} differ\n{difference}")


def _describe(x: Leaf) -> str:
    return f"shape {x.shape}"
