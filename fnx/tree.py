"""Trees (pytrees): nested containers of arrays, their structures, paths, differences.

A thin layer over optree with JAX's names and meanings: dicts go in sorted key order,
None is a tree without leaves, own classes are registered in the namespace "fnx".
Receives trees, gives leaves, `PyTreeDef`s and readable differences between structures
(one printer for every structure error of fnx). Next on the walk: `fnx/core/types.py`.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import optree

from fnx.errors import ArgumentError, TreeError
from fnx.records import record
from fnx.tree_nodes import (
    NAMESPACE,
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyPath,
    Partial,
    PyTreeDef,
    SequenceKey,
    is_tree_node,
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
    register_pytree_with_keys,
    register_pytree_with_keys_class,
    register_static,
    static,
)

__all__ = [
    "DictKey",
    "FlattenedIndexKey",
    "GetAttrKey",
    "KeyPath",
    "Partial",
    "PyTreeDef",
    "SequenceKey",
    "all",
    "broadcast",
    "broadcast_prefix",
    "child_keys",
    "difference",
    "flatten",
    "flatten_with_path",
    "is_tree_node",
    "keystr",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "paths",
    "reduce",
    "reduce_associative",
    "register_dataclass",
    "register_pytree_node",
    "register_pytree_node_class",
    "register_pytree_with_keys",
    "register_pytree_with_keys_class",
    "register_static",
    "static",
    "structure",
    "transpose",
    "unflatten",
]

IsLeaf = Callable[[Any], bool] | None
_MISSING: Any = object()


# ---------------------------------------------------------------- leaves and structure


def flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], PyTreeDef]:
    """The leaves of a tree in order, and its structure.

    >>> flatten({"b": 1, "a": [2, None]})[0]
    [2, 1]
    """
    return optree.tree_flatten(tree, is_leaf, namespace=NAMESPACE)


def leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    """The leaves of a tree, in order.

    >>> leaves({"b": 1, "a": (2, 3)})
    [2, 3, 1]
    """
    return optree.tree_leaves(tree, is_leaf, namespace=NAMESPACE)


def structure(tree: Any, is_leaf: IsLeaf = None) -> PyTreeDef:
    """The structure of a tree: hashable, comparable, prints with `*` for leaves.

    >>> structure([1, 2]) == structure([3, 4])
    True
    """
    return optree.tree_structure(tree, is_leaf, namespace=NAMESPACE)


def unflatten(treedef: PyTreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of this structure with these leaves; `TreeError` if the count differs.

    >>> unflatten(structure({"a": 0, "b": 0}), [1, 2])
    {'a': 1, 'b': 2}
    """
    values = list(leaves)
    if len(values) != treedef.num_leaves:
        raise TreeError(
            f"unflatten: {treedef} has {treedef.num_leaves} leaves, got {len(values)}."
        )
    return treedef.unflatten(values)


def map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """Apply `f` to each leaf, and to what the other trees have at the same place.

    `tree` must be a prefix of each tree in `rest`; `TreeError` names the path
    otherwise.

    >>> map(lambda x, y: x + y, {"a": 1, "b": 2}, {"a": 10, "b": 20})
    {'a': 11, 'b': 22}
    """
    values, treedef = flatten(tree, is_leaf)
    if not rest:
        return treedef.unflatten([f(value) for value in values])
    columns = [
        _flatten_up_to(treedef, other, "tree.map", "the first tree", f"tree {n}")
        for n, other in enumerate(rest, 2)
    ]
    rows = zip(values, *columns, strict=True)
    return treedef.unflatten([f(*row) for row in rows])


def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = _MISSING,
    is_leaf: IsLeaf = None,
) -> Any:
    """Fold the leaves from the left with a function of two arguments.

    >>> reduce(lambda total, leaf: total + leaf, {"a": 1, "b": (2, 3)})
    6
    """
    values = leaves(tree, is_leaf)
    if initializer is not _MISSING:
        return functools.reduce(function, values, initializer)
    if not values:
        raise ArgumentError("tree.reduce of a tree without leaves needs `initializer`.")
    return functools.reduce(function, values)


def reduce_associative(
    operation: Callable[[Any, Any], Any],
    tree: Any,
    *,
    identity: Any = _MISSING,
    is_leaf: IsLeaf = None,
) -> Any:
    """Combine the leaves pairwise in a balanced tree; `operation` must be associative.

    >>> reduce_associative(lambda x, y: x + y, [1, 2, 3, 4])
    10
    """
    values = leaves(tree, is_leaf)
    if not values:
        if identity is _MISSING:
            raise ArgumentError("reduce_associative of no leaves needs `identity`.")
        return identity
    while len(values) > 1:
        odd = values[len(values) // 2 * 2 :]
        pairs = zip(values[::2], values[1::2], strict=False)
        values = [operation(x, y) for x, y in pairs] + odd
    return values[0]


def all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether every leaf is true.

    >>> all({"a": True, "b": [1, 0]})
    False
    """
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer: PyTreeDef, inner: PyTreeDef | None, tree: Any) -> Any:
    """Turn a tree of trees inside out: `outer` of `inner` becomes `inner` of `outer`.

    With `inner=None` the structure of the first subtree is taken.

    >>> transpose(structure([0, 0]), None, [{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    {'a': [1, 3], 'b': [2, 4]}
    """
    rows = _flatten_up_to(outer, tree, "tree.transpose", "the outer structure")
    if inner is None:
        inner = structure(rows[0]) if rows else structure(None)
    inner_leaves = [
        _flatten_up_to(inner, row, "tree.transpose", "the inner structure")
        for row in rows
    ]
    columns = zip(*inner_leaves, strict=True) if rows else [()] * inner.num_leaves
    return inner.unflatten([outer.unflatten(column) for column in columns])


def _flatten_up_to(
    treedef: PyTreeDef, tree: Any, asker: str, first: str, second: str = "the tree"
) -> list[Any]:
    """The subtrees where `treedef` has leaves; the names are for the error."""
    try:
        return treedef.flatten_up_to(tree)
    except (ValueError, TypeError):
        none_is_leaf = treedef.none_is_leaf
        found = optree.tree_structure(
            tree, none_is_leaf=none_is_leaf, namespace=NAMESPACE
        )
        lines = _difference_lines(treedef, found, first, second, prefix=True)
        reason = f"{asker}: {second} does not have the structure of {first}"
        raise TreeError(_with_lines(reason, lines)) from None


# ---------------------------------------------------------------- prefixes


def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """Repeat each leaf of a prefix over the subtree of `full_tree` that it stands for.

    >>> broadcast({"a": 0, "b": 1}, {"a": [7, 8], "b": 9})
    {'a': [0, 0], 'b': 1}
    """
    values, treedef = flatten(prefix_tree, is_leaf)
    parts = _flatten_up_to(treedef, full_tree, "tree.broadcast", "the prefix")
    filled = [
        map(lambda _, value=value: value, part)
        for value, part in zip(values, parts, strict=True)
    ]
    return treedef.unflatten(filled)


def broadcast_prefix(
    prefix_tree: Any, full_tree: Any, what: str, is_leaf: IsLeaf = None
) -> list[Any]:
    """For each leaf of `full_tree` (a tree or `PyTreeDef`), the value of its prefix.

    None in the prefix is a value like any other (an axis that is not mapped, a sharding
    left open). `what` names the argument in the `TreeError` for a prefix that does not
    fit.

    >>> broadcast_prefix((0, None), ({"a": 1, "b": 2}, 3), "in_axes")
    [0, 0, None]
    """
    if isinstance(full_tree, PyTreeDef):
        full_tree = full_tree.unflatten(range(full_tree.num_leaves))
    values, treedef = optree.tree_flatten(
        prefix_tree, is_leaf, none_is_leaf=True, namespace=NAMESPACE
    )
    parts = _flatten_up_to(treedef, full_tree, "prefix of a tree", what)
    pairs = zip(values, parts, strict=True)
    return [value for value, part in pairs for _ in leaves(part)]


# ---------------------------------------------------------------- paths


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """A path as text; `simple` leaves the brackets out and takes a separator.

    >>> path = flatten_with_path({"a": [1, 2]})[0][1][0]
    >>> keystr(path), keystr(path, simple=True, separator="/")
    ("['a'][1]", 'a/1')
    """
    if not simple:
        return separator.join(str(key) for key in keys)
    return separator.join(str(_bare(key)) for key in keys)


def _bare(key: Any) -> Any:
    match key:
        case SequenceKey(idx=bare) | DictKey(key=bare) | GetAttrKey(name=bare):
            return bare
        case FlattenedIndexKey(key=bare):
            return bare
    return key


def flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """The leaves of a tree, each with its path, and the structure.

    >>> [(keystr(path), leaf) for path, leaf in flatten_with_path({"a": (1, 2)})[0]]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    values, treedef = flatten(tree, is_leaf)
    return list(zip(paths(treedef), values, strict=True)), treedef


def leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    """The leaves of a tree, each with its path.

    >>> leaves_with_path([7])
    [((SequenceKey(idx=0),), 7)]
    """
    return flatten_with_path(tree, is_leaf)[0]


def map_with_path(
    f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: IsLeaf = None
) -> Any:
    """`map` with the path as first argument of `f`.

    >>> map_with_path(lambda path, x: keystr(path) + "=" + str(x), {"a": 1})
    {'a': "['a']=1"}
    """
    treedef = structure(tree, is_leaf)
    places = treedef.unflatten([_Place(path) for path in paths(treedef)])
    return map(lambda place, *xs: f(place.path, *xs), places, tree, *rest)


@record
class _Place:
    """A path as a leaf: a bare tuple would be a tree."""

    path: KeyPath


def paths(treedef: PyTreeDef) -> list[KeyPath]:
    """The path of every leaf of a structure, in order."""
    return list(_paths(treedef, ()))


def _paths(treedef: PyTreeDef, here: KeyPath) -> Iterator[KeyPath]:
    if treedef.is_leaf(strict=True):
        yield here
        return
    for key, child in zip(child_keys(treedef), treedef.children(), strict=True):
        yield from _paths(child, (*here, key))


def child_keys(treedef: PyTreeDef) -> list[Any]:
    """The keys that lead from a node to its children, as paths hold them."""
    entries, node = treedef.entries(), treedef.type
    if node is None or node is type(None):
        return []
    if optree.is_namedtuple_class(node):
        return [GetAttrKey(name) for name in optree.namedtuple_fields(node)]
    if issubclass(node, dict):
        return [DictKey(entry) for entry in entries]
    if treedef.kind == optree.PyTreeKind.CUSTOM:
        return entries
    return [SequenceKey(index) for index in range(len(entries))]


# ---------------------------------------------------------------- differences


def difference(
    a: Any,
    b: Any,
    *,
    first: str = "the first",
    second: str = "the second",
    describe: Callable[[Any], str] | None = None,
) -> str:
    """How two trees (or `PyTreeDef`s) differ, a line for each place; '' if they do not.

    `first` and `second` name the two in the text. With `describe`, leaves are compared
    too, by the text that it gives for each (`f32[3]` against `f32[4]`).

    >>> print(difference({"w": (1, 2)}, {"w": [1, 2]}, first="carry", second="output"))
    at ['w']: carry has a tuple of length 2, output has a list of length 2
    >>> print(difference({"a": 1}, {"a": 1, "b": 2}))
    at ['b']: only in the second
    """
    lines = list(_difference_lines(_treedef(a), _treedef(b), first, second))
    if not lines and describe is not None:
        lines = list(_leaf_lines(a, b, first, second, describe))
    return "\n".join(_shortened(lines))


def _treedef(tree: Any) -> PyTreeDef:
    return tree if isinstance(tree, PyTreeDef) else structure(tree)


def _leaf_lines(
    a: Any, b: Any, first: str, second: str, describe: Callable[[Any], str]
) -> Iterator[str]:
    for (path, x), y in zip(leaves_with_path(a), leaves(b), strict=True):
        if (left := describe(x)) != (right := describe(y)):
            yield f"{_at(path)}: {first} has {left}, {second} has {right}"


def _difference_lines(
    a: PyTreeDef,
    b: PyTreeDef,
    first: str,
    second: str,
    path: KeyPath = (),
    prefix: bool = False,
) -> Iterator[str]:
    """Walk two structures together; with `prefix`, a leaf of `a` fits any subtree."""
    if a == b or (prefix and a.is_leaf(strict=True)):
        return
    if a.type is not b.type or (a.num_children != b.num_children and not _is_dict(a)):
        yield f"{_at(path)}: {first} has {_node(a)}, {second} has {_node(b)}"
        return
    left = dict(zip(child_keys(a), a.children(), strict=True))
    right = dict(zip(child_keys(b), b.children(), strict=True))
    yield from (f"{_at((*path, k))}: only in {first}" for k in left if k not in right)
    yield from (f"{_at((*path, k))}: only in {second}" for k in right if k not in left)
    if left.keys() == right.keys() and a.one_level() != b.one_level():
        yield (
            f"{_at(path)}: the static parts of {_node(a)} differ: {first} has "
            f"{a.one_level()}, {second} has {b.one_level()}"
        )
    for key in left:
        if key in right:
            pair, deeper = (left[key], right[key]), (*path, key)
            yield from _difference_lines(*pair, first, second, deeper, prefix)


def _is_dict(treedef: PyTreeDef) -> bool:
    return treedef.type is not None and issubclass(treedef.type, dict)


def _node(treedef: PyTreeDef) -> str:
    """A node in words."""
    node, size = treedef.type, treedef.num_children
    if node is None:
        return "a leaf"
    if node is type(None):
        return "None"
    if _is_dict(treedef):
        keys = ", ".join(repr(entry) for entry in treedef.entries())
        return (
            f"a {node.__name__} with keys {keys}"
            if keys
            else f"an empty {node.__name__}"
        )
    if node in (list, tuple):
        return f"a {node.__name__} of length {size}"
    return f"a {node.__name__} with {size} children"


def _at(path: KeyPath) -> str:
    return f"at {keystr(path)}" if path else "at the root"


def _shortened(lines: Iterable[str], most: int = 10) -> list[str]:
    lines = list(lines)
    more = len(lines) - most
    return lines if more <= 0 else [*lines[:most], f"and {more} more"]


def _with_lines(text: str, lines: Iterable[str]) -> str:
    shown = _shortened(lines) or ["the containers are of different kinds"]
    return "\n  ".join([f"{text}:", *shown])
