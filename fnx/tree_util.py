"""`fnx.tree` under the names of `jax.tree_util`: tree_map, tree_leaves, tree_flatten…

Receives and gives what `fnx/tree.py` does; holds no logic but the few functions on
`PyTreeDef`s that only `jax.tree_util` has. Next on the walk: `fnx/core/types.py`.
"""

from __future__ import annotations

import builtins
from collections.abc import Hashable, Iterable
from typing import Any

import optree

from fnx.errors import ArgumentError
from fnx.tree import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    IsLeaf,
    KeyPath,
    Partial,
    PyTreeDef,
    SequenceKey,
    child_keys,
    is_tree_node,
    keystr,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
)
from fnx.tree import all as tree_all
from fnx.tree import broadcast as tree_broadcast
from fnx.tree import flatten as tree_flatten
from fnx.tree import flatten_with_path as tree_flatten_with_path
from fnx.tree import leaves as tree_leaves
from fnx.tree import leaves_with_path as tree_leaves_with_path
from fnx.tree import map as tree_map
from fnx.tree import map_with_path as tree_map_with_path
from fnx.tree import reduce as tree_reduce
from fnx.tree import reduce_associative as tree_reduce_associative
from fnx.tree import structure as tree_structure
from fnx.tree import transpose as tree_transpose
from fnx.tree import unflatten as tree_unflatten
from fnx.tree_nodes import NAMESPACE, KeyEntry

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyEntry",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all_leaves",
    "flatten_one_level",
    "flatten_one_level_with_keys",
    "is_tree_node",
    "keystr",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "tree_all",
    "tree_broadcast",
    "tree_flatten",
    "tree_flatten_with_path",
    "tree_leaves",
    "tree_leaves_with_path",
    "tree_map",
    "tree_map_with_path",
    "tree_reduce",
    "tree_reduce_associative",
    "tree_structure",
    "tree_transpose",
    "tree_unflatten",
    "treedef_children",
    "treedef_is_leaf",
    "treedef_tuple",
]


def all_leaves(iterable: Iterable[Any], is_leaf: IsLeaf = None) -> bool:
    """Whether every element is a leaf.

    >>> all_leaves([1, 2]), all_leaves([1, (2,)])
    (True, False)
    """
    return builtins.all(
        treedef_is_leaf(tree_structure(element, is_leaf)) for element in iterable
    )


def flatten_one_level(tree: Any) -> tuple[list[Any], Hashable]:
    """The children of a node and its static part; `ArgumentError` for a leaf.

    >>> flatten_one_level({"b": 1, "a": [2]})
    ([[2], 1], ['a', 'b'])
    """
    if treedef_is_leaf(tree_structure(tree)):
        raise ArgumentError(
            f"flatten_one_level takes a tree node, got the leaf {tree!r}."
        )
    children, static, *_ = optree.tree_flatten_one_level(tree, namespace=NAMESPACE)
    return children, static


def flatten_one_level_with_keys(tree: Any) -> tuple[list[tuple[Any, Any]], Hashable]:
    """`flatten_one_level` with (key, child) pairs.

    >>> flatten_one_level_with_keys([5])[0]
    [(SequenceKey(idx=0), 5)]
    """
    children, static = flatten_one_level(tree)
    keys = child_keys(tree_structure(tree))
    return list(zip(keys, children, strict=True)), static


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether a structure is that of a single leaf.

    >>> treedef_is_leaf(tree_structure(1)), treedef_is_leaf(tree_structure([1]))
    (True, False)
    """
    return treedef.is_leaf(strict=True)


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of a node's children.

    >>> len(treedef_children(tree_structure([1, (2, 3)])))
    2
    """
    return treedef.children()


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees with these structures.

    >>> treedef_tuple([tree_structure(1)]) == tree_structure((1,))
    True
    """
    return optree.treespec_tuple(treedefs, namespace=NAMESPACE)
