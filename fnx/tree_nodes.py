"""Which classes are tree nodes, and the keys that lead to their children.

Receives classes with a way to take them apart and to rebuild them, and registers them
with optree in the namespace "fnx"; gives `Partial` and the key classes of paths. Users
find all of it in `fnx.tree` and `fnx.tree_util`; next on the walk: `fnx/tree.py`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import optree

from fnx.errors import ArgumentError
from fnx.records import record

C = TypeVar("C", bound=type)
PyTreeDef = optree.PyTreeSpec

NAMESPACE = "fnx"


# ---------------------------------------------------------------- keys of a path


@record
class SequenceKey:
    """A step of a path: element `idx` of a list or tuple."""

    idx: int

    def __str__(self) -> str:
        """As Python writes it: `[0]`."""
        return f"[{self.idx!r}]"


@record
class DictKey:
    """A step of a path: entry `key` of a dict."""

    key: Hashable

    def __str__(self) -> str:
        """As Python writes it: `['a']`."""
        return f"[{self.key!r}]"


@record
class GetAttrKey:
    """A step of a path: attribute `name` of a dataclass or named tuple."""

    name: str

    def __str__(self) -> str:
        """As Python writes it: `.name`."""
        return f".{self.name}"


@record
class FlattenedIndexKey:
    """A step of a path: child `key` of a registered class that names no keys."""

    key: int

    def __str__(self) -> str:
        """The index, marked as one of flattened children."""
        return f"[<flat index {self.key}>]"


KeyEntry = SequenceKey | DictKey | GetAttrKey | FlattenedIndexKey
KeyPath = tuple[Any, ...]


# ---------------------------------------------------------------- own classes


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Iterable[Any]], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """Make a class a tree node.

    `flatten_func(node)` gives (children, static part), `unflatten_func(static,
    children)` rebuilds the node; `flatten_with_keys_func` gives ((key, child) pairs,
    static part).
    """
    if flatten_with_keys_func is None:
        flatten_node = functools.partial(_flatten_indexed, flatten_func)
    else:
        flatten_node = functools.partial(_flatten_keyed, flatten_with_keys_func)
    _register(nodetype, flatten_node, unflatten_func)


def _flatten_indexed(function: Callable[[Any], Any], node: Any) -> tuple[Any, Any, Any]:
    children, static = function(node)
    children = tuple(children)
    return (
        children,
        static,
        tuple(map(FlattenedIndexKey, range(len(children)))),
    )


def _flatten_keyed(function: Callable[[Any], Any], node: Any) -> tuple[Any, Any, Any]:
    pairs, static_part = function(node)
    pairs = tuple(pairs)
    children = tuple(child for _, child in pairs)
    return children, static_part, tuple(key for key, _ in pairs)


def _register(
    nodetype: type,
    flatten_node: Callable[[Any], tuple[Any, Any, Any]],
    unflatten_func: Callable[[Any, Any], Any],
) -> None:
    try:
        optree.register_pytree_node(
            nodetype,
            flatten_node,
            unflatten_func,
            path_entry_type=optree.FlattenedEntry,
            namespace=NAMESPACE,
        )
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"cannot register {nodetype!r} as a tree: {error}"
        ) from None


def register_pytree_node_class(cls: C) -> C:
    """Class decorator: the methods `tree_flatten` and `tree_unflatten` (a classmethod).

    >>> @register_pytree_node_class
    ... class Pair:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    ...
    ...     def tree_flatten(self):
    ...         return (self.x, self.y), None
    ...
    ...     @classmethod
    ...     def tree_unflatten(cls, static, children):
    ...         return cls(*children)
    >>> optree.tree_leaves(Pair(1, [2, 3]), namespace="fnx")
    [1, 2, 3]
    """
    with_keys = getattr(cls, "tree_flatten_with_keys", None)
    node: Any = cls
    register_pytree_node(cls, node.tree_flatten, node.tree_unflatten, with_keys)
    return cls


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_func: Callable[[Any, Iterable[Any]], Any],
    flatten_func: Callable[[Any], tuple[Iterable[Any], Any]] | None = None,
) -> None:
    """`register_pytree_node` for a class whose children have keys.

    `flatten_func`, where given, must give the same children: one of the two is called.
    """
    register_pytree_node(
        nodetype, flatten_func or flatten_with_keys, unflatten_func, flatten_with_keys
    )


def register_pytree_with_keys_class(cls: C) -> C:
    """Class decorator: the methods `tree_flatten_with_keys` and `tree_unflatten`."""
    node: Any = cls
    register_pytree_with_keys(cls, node.tree_flatten_with_keys, node.tree_unflatten)
    return cls


def register_static(cls: C) -> C:
    """Class decorator: instances are trees without leaves, compared by `==`."""
    _register(cls, lambda node: ((), node, ()), lambda node, _: node)
    return cls


def static(**options: Any) -> Any:
    """A dataclass field that `register_dataclass` keeps out of the leaves."""
    metadata = {**options.pop("metadata", {}), "static": True}
    return dataclasses.field(metadata=metadata, **options)


def register_dataclass(
    nodetype: Any = None,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> Any:
    """Make a dataclass a tree node; also a decorator, with or without arguments.

    `data_fields` are subtrees, `meta_fields` (hashable) are part of the structure.
    Fields that neither names are data, unless made with `static()` (metadata
    `static=True`). `drop_fields` are left to their defaults.

    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Layer:
    ...     w: float
    ...     activation: str = static(default="relu")
    >>> optree.tree_map(lambda x: 2 * x, Layer(1.5), namespace="fnx")
    Layer(w=3.0, activation='relu')
    """
    if nodetype is None:
        return functools.partial(
            register_dataclass,
            data_fields=data_fields,
            meta_fields=meta_fields,
            drop_fields=drop_fields,
        )
    data, meta = _divide_fields(nodetype, data_fields, meta_fields, drop_fields)
    keys = tuple(GetAttrKey(name) for name in data)

    def flatten_node(node: Any) -> tuple[Any, Any, Any]:
        children = tuple(getattr(node, name) for name in data)
        return children, tuple(getattr(node, name) for name in meta), keys

    def unflatten_node(static_part: Any, children: Any) -> Any:
        fields = dict(zip(meta, static_part, strict=True))
        return nodetype(**dict(zip(data, children, strict=True)), **fields)

    _register(nodetype, flatten_node, unflatten_node)
    return nodetype


def _divide_fields(
    nodetype: type,
    data: Sequence[str] | None,
    meta: Sequence[str] | None,
    drop: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The data and the meta fields of a dataclass: each field in exactly one list."""
    if not dataclasses.is_dataclass(nodetype):
        if data is None or meta is None:
            raise ArgumentError(
                f"register_dataclass: {nodetype!r} is no dataclass; decorate it with "
                "@dataclasses.dataclass, or name data_fields and meta_fields."
            )
        return tuple(data), tuple(meta)
    name = nodetype.__name__
    fields = {field.name: field for field in dataclasses.fields(nodetype) if field.init}
    named = {*(data or ()), *(meta or ()), *drop}
    if unknown := named - fields.keys():
        raise ArgumentError(
            f"register_dataclass: {name} has no field (of its __init__) "
            f"named {', '.join(sorted(unknown))}; it has {', '.join(fields)}."
        )
    free = [name for name in fields if name not in named]
    if free and data is not None and meta is not None:
        raise ArgumentError(
            f"register_dataclass: {name} has fields in no list: "
            f"{', '.join(free)}; name them in data_fields, meta_fields or drop_fields."
        )
    marked = [n for n in free if fields[n].metadata.get("static") and meta is None]
    unmarked = [name for name in free if name not in marked]
    if data is not None:  # the rest of an explicit list is the other list
        return tuple(data), (*(meta or ()), *free)
    return tuple(unmarked), (*(meta or ()), *marked)


def is_tree_node(nodetype: type) -> bool:
    """Whether instances of a class are containers rather than leaves."""
    if optree.is_namedtuple_class(nodetype):
        return True
    registry: Any = optree.register_pytree_node
    return nodetype in registry.get(namespace=NAMESPACE)


class Partial(functools.partial[Any]):
    """`functools.partial` as a tree: bound arguments are leaves, the function is not.

    >>> optree.tree_leaves(Partial(pow, 2), namespace="fnx")
    [2]
    """

    def __new__(
        cls, function: Callable[..., Any], *args: Any, **keywords: Any
    ) -> Partial:
        """Bind arguments; those that a plain functools.partial holds stay static."""
        if isinstance(function, functools.partial) and not isinstance(
            function, Partial
        ):
            function = _Static(function)
        return super().__new__(cls, function, *args, **keywords)


@record
class _Static:
    """Keeps functools.partial from merging the arguments of a partial into its own."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.function(*args, **keywords)


_register(
    Partial,
    lambda bound: (
        (bound.args, bound.keywords),
        bound.func,
        (GetAttrKey("args"), GetAttrKey("keywords")),
    ),
    lambda function, children: Partial(function, *children[0], **children[1]),
)
