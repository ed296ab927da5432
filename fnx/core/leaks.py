"""Who holds a tracer: where one is kept that has outlived its trace.

Receives a tracer, or a trace that has ended; asks the garbage collector, and gives the
names that users know: of a global, an attribute, a variable of a closure, or a place in
a container that one of these holds. Next on the walk: `simplify.py`.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator, Sequence
from typing import Any

from fnx.errors import is_internal
from fnx.records import record

_LEVELS = 6
"""How far from a tracer a name may be: so many times are all objects looked through."""
_MOST_NODES = 100
"""How many containers are followed at each distance."""
_MOST_NAMES = 4
_MOST_PLACES = 4
"""How many places of a container are followed."""


@record(eq=False)
class _Node:
    """An object on the way from a tracer outwards, and where in it the tracer is.

    `place` is written behind a name of the object; `key` is the one of a dictionary,
    which may be an object's attributes; `cell` is that of a closure's tuple.
    """

    held: Any
    place: str = ""
    key: Any = None
    cell: Any = None

    def path(self) -> str:
        """The place, with the key if it is one of a dictionary."""
        if not isinstance(self.held, dict):
            return self.place
        return f"[{self.key!r}]{self.place}"


def holders(value: Any) -> list[str]:
    """What holds an object, in the user's words, the nearest first.

    Each distance costs one look through all objects that there are, which takes tenths
    of a second where there are a million: the number of distances is what bounds it.
    """
    names: dict[str, None] = {}
    level, seen = [_Node(value)], {id(value)}
    for _ in range(_LEVELS):
        level = _outwards(level, seen, names)
        if not level or len(names) >= _MOST_NAMES:
            break
    return list(names)[:_MOST_NAMES]


def _outwards(
    level: Sequence[_Node], seen: set[int], names: dict[str, None]
) -> list[_Node]:
    """What holds the objects of a level and has no name yet; names go into `names`."""
    by_id = {id(node.held): node for node in level}
    found: list[_Node] = []
    for holder in gc.get_referrers(*[node.held for node in level]):
        if id(holder) in seen or isinstance(holder, types.FrameType | _Node):
            continue
        if isinstance(holder, dict) and _is_own(holder):
            continue
        inside = {id(x) for x in gc.get_referents(holder)}
        reached = [node for here, node in by_id.items() if here in inside]
        for node in reached[:_MOST_PLACES]:
            found += _named_or_followed(holder, node, names)
    seen.update(id(node.held) for node in found)
    return found[:_MOST_NODES]


def _named_or_followed(
    holder: Any, node: _Node, names: dict[str, None]
) -> Iterator[_Node]:
    """The holder as a node, if it is a container; or else its names for the tracer."""
    if isinstance(holder, types.CellType):
        yield _Node(holder, node.path(), cell=holder)
    elif isinstance(node.cell, types.CellType):
        yield from _closures(holder, node, names)
    elif isinstance(holder, dict):
        key = next((k for k, x in holder.items() if x is node.held), None)
        if "__name__" in holder and "__builtins__" in holder:
            names[f"global {key}{node.path()} of module {holder['__name__']}"] = None
        else:
            yield _Node(holder, node.path(), key)
    elif isinstance(holder, list | tuple | set | frozenset):
        yield _Node(holder, _place(holder, node.held) + node.path())
    elif not _is_internal(holder):
        if getattr(holder, "__dict__", None) is node.held:
            names[f"attribute {node.key}{node.place} of {_a(holder)}"] = None
        for name in _attributes(holder, node.held):
            names[f"attribute {name}{node.path()} of {_a(holder)}"] = None


def _closures(holder: Any, node: _Node, names: dict[str, None]) -> Iterator[_Node]:
    """The tuple of a closure as a node, or the name of a variable of its function."""
    if isinstance(holder, tuple):
        yield _Node(holder, node.place, cell=node.cell)
    elif isinstance(holder, types.FunctionType) and not is_internal(holder.__code__):
        for name, cell in zip(
            holder.__code__.co_freevars, holder.__closure__ or (), strict=True
        ):
            if cell is node.cell:
                function = holder.__qualname__
                text = f"variable {name}{node.place}, which {function} closes over"
                names[text] = None


def _place(holder: Any, value: Any) -> str:
    """Where a value is in a sequence."""
    if isinstance(holder, list | tuple):
        return f"[{[x is value for x in holder].index(True)}]"
    return " (in a set)"


def _attributes(holder: Any, value: Any) -> Iterator[str]:
    """The attributes of an object that are a value."""
    names = list(getattr(holder, "__dict__", None) or ())
    for kind in type(holder).__mro__:
        slots = getattr(kind, "__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    for name in names:
        if getattr(holder, name, None) is value:
            yield name


def _is_internal(holder: Any) -> bool:
    """Whether an object is fnx's own, or the interpreter's."""
    if isinstance(holder, types.ModuleType | type | types.FunctionType):
        return True
    return type(holder).__module__.partition(".")[0] in ("fnx", "builtins")


def _is_own(holder: dict[Any, Any]) -> bool:
    """Whether a dictionary is a module's of fnx."""
    name = holder.get("__name__")
    return isinstance(name, str) and name.startswith("fnx.")


def _a(owner: Any) -> str:
    """An object by its type."""
    kind = type(owner)
    return f"a {kind.__qualname__} ({kind.__module__})"
