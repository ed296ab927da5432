"""The digest of a program: a name for its structure that means the same everywhere.

Receives a `Program`; gives a text that equal programs share, in this process and in
later ones, so that what was compiled can be found again on disk. Its hash in Python is
no such name: it differs from process to process. Next on the walk: `cache.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from fnx.core.primitive import Primitive
from fnx.core.program import Literal, Program
from fnx.core.types import ArrayType
from fnx.sizes import Size


class _Nameless(Exception):
    """A program holds what has no name outside of its process, such as a function."""


def program_digest(program: Program) -> str | None:
    """The digest of a program; `None` if it holds what only this process knows."""
    if program.personal:
        return None
    try:
        return _digest(program, {})
    except _Nameless:
        return None


def _digest(program: Program, known: dict[int, str]) -> str:
    """The digest; `known` has those of programs that were met before."""
    found = known.get(id(program))
    if found is None:
        text = repr(_plain(program.key, known))
        found = known[id(program)] = hashlib.sha256(text.encode()).hexdigest()
    return found


def _plain(value: Any, known: dict[int, str]) -> Any:
    """The same structure made of what `repr` shows exactly."""
    kind = value.__class__
    if kind is tuple:
        return tuple([_plain(item, known) for item in value])
    if kind in _EXACT:
        return value
    if kind is Size:
        return _Text(repr(value))
    if kind is ArrayType or isinstance(value, Primitive | np.dtype):
        return _Text(f"<{value}>")
    if kind is Literal:
        return "literal", value.value.tobytes(), _Text(f"<{value.type}>")
    if kind is Program:
        return _Text(f"<{_digest(value, known)}>")
    if isinstance(value, np.generic):
        return "scalar", str(value.dtype), value.tobytes()
    if isinstance(value, tuple):  # a named tuple
        return (kind.__qualname__, *[_plain(item, known) for item in value])
    if isinstance(value, Mapping):
        return "mapping", tuple([_plain(item, known) for item in value.items()])
    if is_dataclass(value) and not isinstance(value, type):
        parts = [_plain(getattr(value, field.name), known) for field in fields(value)]
        return (kind.__qualname__, *parts)
    raise _Nameless


class _Text(str):
    """A text that is shown as it is, so that no string is mistaken for it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_EXACT = frozenset({bool, int, float, complex, str, bytes, type(None), type(...)})
