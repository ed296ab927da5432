"""Who holds a tracer: where one is kept that has outlived its trace.

Receives a tracer, or a trace that has ended; asks the garbage collector, and gives the
names that users know: of a global, an attribute, a variable of a closure, or a place in
a container that one of these holds. Next on the walk: `simplify.py`.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from typing import Any

from fnx.errors import is_internal

_DEPTH = 4
"""How many containers may be around a tracer."""


def holders(value: Any) -> list[str]:
    """What holds an object, in the user's words, the longest of them left out."""
    found = list(dict.fromkeys(_holders(value, "", _DEPTH, {id(value)})))
    return found[:4]


def _holders(value: Any, place: str, depth: int, seen: set[int]) -> Iterator[str]:
    """Names for the holders of a value, in which `place` is where the tracer is."""
    for holder in gc.get_referrers(value):
        if id(holder) in seen or isinstance(holder, types.FrameType):
            continue
        if isinstance(holder, dict) and _is_own(holder):
            continue
        seen = seen | {id(holder)}
        if isinstance(holder, types.CellType):
            yield from _closures(holder, place)
        elif isinstance(holder, dict):
            yield from _of_dict(holder, value, place, depth, seen)
        elif isinstance(holder, list | tuple | set | frozenset):
            if depth:
                inner = _place(holder, value) + place
                yield from _holders(holder, inner, depth - 1, seen)
        elif not _is_internal(holder):
            for name in _attributes(holder, value):
                yield f"attribute {name}{place} of {_a(holder)}"


def _of_dict(
    holder: dict[Any, Any], value: Any, place: str, depth: int, seen: set[int]
) -> Iterator[str]:
    """Those of a dictionary, which may be a module's, an object's or the user's."""
    key = next((k for k, x in holder.items() if x is value), None)
    if "__name__" in holder and "__builtins__" in holder:
        yield f"global {key}{place} of module {holder['__name__']}"
        return
    owned = False
    for owner in gc.get_referrers(holder):
        if getattr(owner, "__dict__", None) is holder and not _is_internal(owner):
            owned = True
            yield f"attribute {key}{place} of {_a(owner)}"
    if depth and not owned:
        yield from _holders(holder, f"[{key!r}]{place}", depth - 1, seen)


def _closures(cell: Any, place: str) -> Iterator[str]:
    """The variables of functions that close over a cell."""
    for holder in gc.get_referrers(cell):
        if not isinstance(holder, tuple):
            continue
        for function in gc.get_referrers(holder):
            if not isinstance(function, types.FunctionType):
                continue
            if function.__closure__ is not holder or is_internal(function.__code__):
                continue
            at = [x is cell for x in holder].index(True)
            name = function.__code__.co_freevars[at]
            yield f"variable {name}{place}, which {function.__qualname__} closes over"


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
