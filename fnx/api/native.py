"""Call paths: what is called again and again skips Python.

Receives a call that Python has just served and its `Entry`; gives a jitted function a
path in machine code where the call has a form for that: arrays, NumPy arrays and
numbers in dicts with string keys, lists, tuples, named tuples and None, and static
values that are the same object at every call. Everything else stays in Python, with
the same results. Next on the walk: `fnx/cpu/entry`.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import optree

from fnx import tree
from fnx.api.static import Divided
from fnx.config import config
from fnx.core import hooks
from fnx.core.array import Array
from fnx.core.types import ArrayType
from fnx.dtypes import default_bits
from fnx.locks import fork_safe_lock
from fnx.runtime import array as making
from fnx.runtime.array import ConcreteArray
from fnx.runtime.backend import (
    CallForm,
    CallPath,
    CallSite,
    Functions,
    Leaf,
    Member,
    NativeCalls,
    native_calls,
)
from fnx.tree import PyTreeDef

if TYPE_CHECKING:
    from fnx.api.entry import Entry

# At these calls of a signature through Python a path is made for the form of the call:
# the signature is worth it, and a few forms may share it (`f(x, y=1.0)`, `f(x, y)`).
TURNS = frozenset({2, 8, 32, 128})
# Paths are tried in turn, the newest first. A jitted function has so many at most.
MOST_PATHS = 16

# Held while a path is made.
lock = fork_safe_lock(rank=0)  # taken before that of LLVM

# What can become native, noted by the modules that define it: the classes "jitted" and
# "eager" of functions, and the methods of arrays.
functions: dict[str, Functions] = {}
members: list[Member] = []


class Calls:
    """What a signature knows of its calls: how many came through Python."""

    __slots__ = ("slow",)

    def __init__(self) -> None:
        self.slow = 0


class Paths:
    """The call paths of one function, and how many calls they have served."""

    __slots__ = ("_gone", "_most", "_paths")

    def __init__(self, most: int = MOST_PATHS) -> None:
        self._most = most
        self._paths: list[CallPath] = []
        self._gone = 0

    @property
    def hits(self) -> int:
        """How many calls were served, also by paths that are gone."""
        return self._gone + sum([path.hits for path in self._paths])

    def clear(self) -> None:
        """Forgets everything."""
        self._paths, self._gone = [], 0

    def add(self, path: CallPath) -> list[CallPath]:
        """Puts a path first, before those that served most; gives all of them."""
        old = sorted(self._paths, key=lambda path: -path.hits)
        self._gone += sum([path.hits for path in old[self._most - 1 :]])
        self._paths = [path, *old[: self._most - 1]]
        return self._paths


_made: list[NativeCalls | None] = []


def maker() -> NativeCalls | None:
    """What makes calls native, from now on all of them; `None` where nothing can."""
    with lock:
        if not _made:
            _made.append(None)  # for who asks while it is made
            site = CallSite(
                jitted=functions["jitted"],
                eager=functions["eager"],
                owner=Array,
                members=tuple(members),
                array=ConcreteArray,
                type=ArrayType,
                arrays=making,
                makers=making.MAKERS,
                busy=hooks.busy,
            )
            _made[0] = native_calls(site)
            if _made[0] is not None:
                _made[0].install()
        return _made[0]


def new_path(
    entry: Entry,
    divided: Divided,
    treedef: PyTreeDef,
    names: Sequence[str],
) -> tuple[NativeCalls, CallPath] | None:
    """A path for the form of a call; `None` where it can have none.

    `names` are those of the keyword arguments.
    """
    with lock:
        form = call_form(entry, divided, treedef, names)
        calls = None if form is None else maker()
        if form is None or calls is None:
            return None
        path = entry.executable.call_path(form)
        return None if path is None else (calls, path)


def call_form(
    entry: Entry, divided: Divided, treedef: PyTreeDef, names: Sequence[str]
) -> CallForm | None:
    """The form of a call, if a path could check it."""
    trees = is_plain(treedef) and is_plain(entry.out_tree)
    statics = all(_is_fixed(value) for _, value in divided.statics)
    here = entry.placement is None
    if not trees or not statics or not here or True in entry.donated:
        return None
    kinds = [_kind(leaf) for leaf in tree.leaves(divided[:2])]
    if None in kinds or any(type(x) is not ConcreteArray for x in entry.captured):
        return None
    leaves = [
        Leaf(number, kind or "")
        for number, kind in enumerate(kinds, len(entry.captured))
    ]
    args, named = divided.joined(*treedef.unflatten(leaves))
    outputs = map(Leaf, range(entry.out_tree.num_leaves))
    return CallForm(
        args=(*args, *[named[name] for name in names]),
        names=tuple(names),
        result=entry.out_tree.unflatten(outputs),
        captured=entry.captured,
        bits=default_bits(),
        strong_zero=config.strong_zero,
    )


_CONTAINERS = (dict, list, tuple, type(None))
_KINDS: Mapping[type, str] = {
    ConcreteArray: "array",
    np.ndarray: "numpy",
    float: "float",
    int: "int",
    bool: "bool",
}
_FIXED = (
    *(int, float, bool, str, bytes, type(None)),
    *(type, types.FunctionType, types.BuiltinFunctionType, np.dtype),
)


def _kind(leaf: Any) -> str | None:
    return _KINDS.get(type(leaf))


def is_plain(treedef: PyTreeDef) -> bool:
    """Whether a tree consists of containers that a path can walk."""
    if treedef.is_leaf(strict=True):
        return True
    kind = treedef.type
    plain = kind in _CONTAINERS or optree.is_namedtuple_class(kind)
    return plain and all(map(is_plain, treedef.children()))


def _is_fixed(value: Any) -> bool:
    """Whether a static value that is the same object is the same value."""
    if type(value) is tuple:
        return all(map(_is_fixed, value))
    return isinstance(value, (*_FIXED, functions["eager"].owner))
