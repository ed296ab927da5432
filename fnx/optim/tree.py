"""Arithmetic of trees, under the names of `optax.tree`.

Receives trees of arrays of one structure, gives trees or one array. The general
functions on trees are in `fnx.tree`. Next on the walk: `algorithms.py`.

>>> add({"w": fnp.array([1.0])}, {"w": fnp.array([2.0])})
{'w': Array([3.], dtype=float32)}
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from typing import Any

import fnx.numpy as fnp
from fnx import random
from fnx import tree as _tree
from fnx.errors import ArgumentError
from fnx.optim.averages import (
    bias_correction,
    update_infinity_moment,
    update_moment,
    update_moment_per_elem_norm,
)
from fnx.optim.updates import Leaf, safe_root, wide
from fnx.optim.updates import squared as _squared

__all__ = [
    "add",
    "add_scale",
    "allclose",
    "bias_correction",
    "cast",
    "cast_like",
    "clip",
    "conj",
    "div",
    "dtype",
    "full_like",
    "get",
    "get_all_with_path",
    "max",
    "min",
    "mul",
    "norm",
    "ones_like",
    "random_like",
    "real",
    "scale",
    "set",
    "size",
    "split_key_like",
    "sub",
    "sum",
    "update_infinity_moment",
    "update_moment",
    "update_moment_per_elem_norm",
    "vdot",
    "where",
    "zeros_like",
]

Tree = Any
Filter = Callable[[Any, Any], bool] | None

# ---------------------------------------------------------------- element by element


def add(tree_x: Tree, tree_y: Tree, *other_trees: Tree) -> Tree:
    """The sum of trees, leaf by leaf."""
    return _tree.map(
        lambda *xs: functools.reduce(fnp.add, xs), tree_x, tree_y, *other_trees
    )


def sub(tree_x: Tree, tree_y: Tree) -> Tree:
    """The difference of two trees, leaf by leaf."""
    return _tree.map(fnp.subtract, tree_x, tree_y)


def mul(tree_x: Tree, tree_y: Tree) -> Tree:
    """The product of two trees, leaf by leaf."""
    return _tree.map(fnp.multiply, tree_x, tree_y)


def div(tree_x: Tree, tree_y: Tree) -> Tree:
    """The quotient of two trees, leaf by leaf."""
    return _tree.map(fnp.divide, tree_x, tree_y)


def scale(scalar: Any, tree: Tree) -> Tree:
    """A number times a tree.

    >>> scale(2.0, [fnp.float32(3.0)])
    [Array(6., dtype=float32)]
    """
    return _tree.map(lambda x: scalar * fnp.asarray(x), tree)


def add_scale(tree_x: Tree, scalar: Any, tree_y: Tree) -> Tree:
    """X + scalar · y, in the dtypes of x.

    >>> add_scale([fnp.ones(1)], 0.5, [fnp.array([4.0])])
    [Array([3.], dtype=float32)]
    """

    def combined(x: Leaf, y: Leaf) -> Leaf:
        x = fnp.asarray(x)
        return (x + scalar * fnp.asarray(y)).astype(x.dtype)

    return _tree.map(combined, tree_x, tree_y)


def where(condition: Any, tree_x: Tree, tree_y: Tree) -> Tree:
    """The leaves of the first tree where the condition holds, else of the second."""
    return _tree.map(lambda x, y: fnp.where(condition, x, y), tree_x, tree_y)


def clip(tree: Tree, min_value: Any = None, max_value: Any = None) -> Tree:
    """Each element limited to a range; None is no limit."""
    return _tree.map(lambda x: fnp.clip(x, min_value, max_value), tree)


def conj(tree: Tree) -> Tree:
    """The complex conjugate."""
    return _tree.map(fnp.conj, tree)


def real(tree: Tree) -> Tree:
    """The real parts."""
    return _tree.map(fnp.real, tree)


# ---------------------------------------------------------------- dtypes and filling


def cast(tree: Tree, dtype: Any) -> Tree:
    """Every leaf in a dtype; with None as they are."""
    if dtype is None:
        return tree
    return _tree.map(lambda x: _array(x).astype(dtype), tree)


def cast_like(tree: Tree, other_tree: Tree) -> Tree:
    """Every leaf in the dtype of the other tree's."""
    return _tree.map(lambda x, y: _array(x).astype(_array(y).dtype), tree, other_tree)


def dtype(tree: Tree, mixed_dtype_handler: str | None = None) -> Any:
    """The dtype of all leaves.

    Where they differ `mixed_dtype_handler` decides: "promote" gives the dtype of their
    sum, "highest" and "lowest" the largest and the smallest; with None it is an
    `ArgumentError`.

    >>> dtype([fnp.zeros(1), fnp.zeros(1, "float64")], "promote")
    dtype('float64')
    """
    found = list(dict.fromkeys(_array(x).dtype for x in _tree.leaves(tree)))
    if len(found) == 1:
        return found[0]
    by_size = sorted(found, key=lambda d: d.itemsize)
    match mixed_dtype_handler:
        case _ if not found:
            raise ArgumentError("tree.dtype: the tree has no leaves")
        case "promote":
            return fnp.result_type(*found)
        case "highest":
            return by_size[-1]
        case "lowest":
            return by_size[0]
        case None:
            raise ArgumentError(
                f"tree.dtype: the leaves have the dtypes {', '.join(map(str, found))}; "
                'say which, with mixed_dtype_handler="promote", for example'
            )
    raise ArgumentError(
        "tree.dtype: mixed_dtype_handler must be promote, highest, lowest or None, got "
        f"{mixed_dtype_handler!r}"
    )


def full_like(tree: Tree, fill_value: Any, dtype: Any = None) -> Tree:
    """A tree of the same shapes, of one value."""
    return _tree.map(lambda x: fnp.full_like(x, fill_value, dtype=dtype), tree)


def zeros_like(tree: Tree, dtype: Any = None) -> Tree:
    """A tree of the same shapes, of zeros."""
    return _tree.map(lambda x: fnp.zeros_like(x, dtype=dtype), tree)


def ones_like(tree: Tree, dtype: Any = None) -> Tree:
    """A tree of the same shapes, of ones."""
    return _tree.map(lambda x: fnp.ones_like(x, dtype=dtype), tree)


# ---------------------------------------------------------------- random numbers


def split_key_like(rng_key: Any, target_tree: Tree) -> Tree:
    """A tree of keys, a new one for each leaf."""
    treedef = _tree.structure(target_tree)
    return _tree.unflatten(treedef, list(random.split(rng_key, treedef.num_leaves)))


def random_like(
    rng_key: Any,
    target_tree: Tree,
    sampler: Callable[..., Any] = random.normal,
    dtype: Any = None,
) -> Tree:
    """A tree of the same shapes and dtypes, of random numbers from `sampler`.

    It is called with a key, a shape and a dtype.

    >>> drawn = random_like(random.key(0), {"w": fnp.zeros((2, 3))})
    >>> drawn["w"].shape
    (2, 3)
    """
    leaves, treedef = _tree.flatten(target_tree)
    keys = random.split(rng_key, len(leaves))
    drawn = [
        sampler(key, _array(x).shape, dtype or _array(x).dtype)
        for key, x in zip(keys, leaves, strict=True)
    ]
    return _tree.unflatten(treedef, drawn)


# ---------------------------------------------------------------- one number


def sum(tree: Tree, associative_reduction: bool = False) -> Leaf:
    """The sum of all elements of all leaves.

    With `associative_reduction` the leaves' sums are added in pairs, pairs of pairs…

    >>> sum({"w": fnp.ones((2, 2)), "b": fnp.ones(1)})
    Array(5., dtype=float32)
    """
    sums = [fnp.sum(_array(x)) for x in _tree.leaves(tree)]
    if associative_reduction and sums:
        return _tree.reduce_associative(fnp.add, sums)
    return functools.reduce(fnp.add, sums) if sums else fnp.zeros(())


def max(tree: Tree) -> Leaf:
    """The largest element of all leaves; -inf for none."""
    tops = [fnp.max(_array(x)) for x in _tree.leaves(tree) if _array(x).size]
    return functools.reduce(fnp.maximum, tops) if tops else fnp.asarray(-math.inf)


def min(tree: Tree) -> Leaf:
    """The smallest element of all leaves; inf for none."""
    lows = [fnp.min(_array(x)) for x in _tree.leaves(tree) if _array(x).size]
    return functools.reduce(fnp.minimum, lows) if lows else fnp.asarray(math.inf)


def size(tree: Tree) -> int:
    """The number of elements of all leaves."""
    return builtins.sum([_array(x).size for x in _tree.leaves(tree)])


def vdot(tree_x: Tree, tree_y: Tree) -> Leaf:
    """The inner product of all elements, the first tree conjugated.

    >>> vdot([fnp.array([1.0, 2.0])], [fnp.array([3.0, 4.0])])
    Array(11., dtype=float32)
    """
    return sum(_tree.map(lambda x, y: fnp.vdot(x, y), tree_x, tree_y))


def norm(tree: Tree, ord: Any = None, squared: bool = False) -> Leaf:
    """The norm of all elements as one vector: Euclidean, or of order 1, 2 or inf.

    `squared` gives its square. The gradient of the Euclidean norm is 0 at 0.

    >>> norm([fnp.array(3.0), fnp.array([4.0])])
    Array(5., dtype=float32)
    """
    leaves = [wide(_array(x)) for x in _tree.leaves(tree)]
    if ord in (None, 2):
        square = sum([_squared(x) for x in leaves])
        return square if squared else safe_root(square)
    if ord == 1:
        value = sum([fnp.abs(x) for x in leaves])
    elif ord == math.inf:
        value = max([fnp.abs(x) for x in leaves]) if leaves else fnp.zeros(())
    else:
        raise ArgumentError(f"tree.norm: ord must be 1, 2, inf or None, got {ord!r}")
    return value**2 if squared else value


def allclose(
    a: Tree, b: Tree, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Leaf:
    """Whether all elements of two trees are close."""
    close = _tree.map(lambda x, y: fnp.allclose(x, y, rtol, atol, equal_nan), a, b)
    return functools.reduce(fnp.logical_and, _tree.leaves(close), fnp.asarray(True))


# ---------------------------------------------------------------- values by name


def get_all_with_path(
    tree: Tree, key: Any, filtering: Filter = None
) -> list[tuple[Any, Any]]:
    """All values under a name in a tree, such as a state, each with its path.

    A name is a dict's key or the field of a NamedTuple; `filtering(path, value)` says
    which to take.

    >>> from fnx.optim import adam
    >>> state = adam(0.1).init(fnp.zeros(1))
    >>> [value for path, value in get_all_with_path(state, "count")]
    [Array(0, dtype=int32)]
    """
    return list(_found(tree, key, filtering, ()))


def _found(tree: Any, key: Any, filtering: Filter, path: tuple[Any, ...]) -> Any:
    for name, child in _children(tree):
        here = (*path, name)
        if name == key and (filtering is None or filtering(here, child)):
            yield here, child
        yield from _found(child, key, filtering, here)


def _children(tree: Any) -> list[tuple[Any, Any]]:
    if isinstance(tree, dict):
        return list(tree.items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return list(zip(tree._fields, tree, strict=True))
    return list(enumerate(tree)) if isinstance(tree, tuple | list) else []


def get(tree: Tree, key: Any, default: Any = None, filtering: Filter = None) -> Any:
    """The value under a name in a tree, such as a state; `default` where there is none.

    Raises `ArgumentError` where there are several.

    >>> from fnx.optim import adam
    >>> get(adam(0.1).init(fnp.zeros(1)), "count")
    Array(0, dtype=int32)
    """
    found = get_all_with_path(tree, key, filtering)
    if len(found) > 1:
        places = ", ".join("/".join(map(str, path)) for path, _ in found)
        raise ArgumentError(
            f"tree.get: {key!r} is there {len(found)} times, at {places}; choose with "
            "filtering=lambda path, value: ..."
        )
    return found[0][1] if found else default


def set(tree: Tree, filtering: Filter = None, **kwargs: Any) -> Tree:
    """The tree with other values under some names; the structure is kept.

    Raises `ArgumentError` for a name that is not there.

    >>> from fnx.optim import adam
    >>> state = set(adam(0.1).init(fnp.zeros(1)), count=fnp.array(7, "int32"))
    >>> get(state, "count")
    Array(7, dtype=int32)
    """
    for key in kwargs:
        if not get_all_with_path(tree, key, filtering):
            raise ArgumentError(f"tree.set: there is no {key!r} in the tree")
    return _replaced(tree, kwargs, filtering, ())


def _replaced(
    tree: Any, values: dict[str, Any], filtering: Filter, path: tuple[Any, ...]
) -> Any:
    def child(name: Any, old: Any) -> Any:
        here = (*path, name)
        if name in values and (filtering is None or filtering(here, old)):
            return values[name]
        return _replaced(old, values, filtering, here)

    new = {name: child(name, old) for name, old in _children(tree)}
    if isinstance(tree, dict):
        return type(tree)(new)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(**new)
    return type(tree)(new.values()) if isinstance(tree, tuple | list) else tree


def _array(x: Any) -> Leaf:
    return fnp.asarray(x)
