"""Call paths of jitted functions: what is called again and again skips Python.

Receives a call that Python has just served and its `Entry`; gives the function one more
path in machine code where the call has a form for that: arrays, NumPy arrays and
numbers in dicts with string keys, lists, tuples, named tuples and None, and static
values that are the same object at every call. Everything else stays in Python, with
the same results. Next on the walk: `fnx/cpu/entry`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import optree

from fnx import tree
from fnx.api.static import Divided
from fnx.config import config
from fnx.core import hooks
from fnx.dtypes import default_bits
from fnx.locks import fork_safe_lock
from fnx.runtime.array import ConcreteArray
from fnx.runtime.backend import (
    CallForm,
    CallPath,
    CallSite,
    Leaf,
    NativeCalls,
    backend,
)
from fnx.tree import PyTreeDef

if TYPE_CHECKING:
    from fnx.api.jit import Entry

# At these calls of a signature through Python a path is made for the form of the call:
# the signature is worth it, and a few forms may share it (`f(x, y=1.0)`, `f(x, y)`).
TURNS = frozenset({2, 8, 32, 128})
# Paths are tried in turn, the newest first.
MOST_PATHS = 16

_lock = fork_safe_lock(rank=0)  # taken before that of LLVM
_makers: dict[Any, NativeCalls | None] = {}


class Calls:
    """What a signature knows of its calls: how many came through Python."""

    __slots__ = ("slow",)

    def __init__(self) -> None:
        self.slow = 0


class Paths:
    """The call paths of one function, and how many calls they have served."""

    __slots__ = ("_gone", "_paths")

    def __init__(self) -> None:
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
        """Puts a path first; gives all of them."""
        self._gone += sum([path.hits for path in self._paths[MOST_PATHS - 1 :]])
        self._paths = [path, *self._paths[: MOST_PATHS - 1]]
        return self._paths


def new_path(
    owner: Any,
    slow: Callable[..., Any],
    disabled: Any,
    entry: Entry,
    divided: Divided,
    treedef: PyTreeDef,
    names: Sequence[str],
) -> tuple[NativeCalls, CallPath] | None:
    """A path for the form of a call; `None` where it can have none.

    `owner` is the class of jitted functions, whose calls become native with the first
    path; `slow` is its Python way, `names` are those of the keyword arguments.
    """
    with _lock:
        form = call_form(entry, divided, treedef, names)
        if form is None:
            return None
        if owner not in _makers:
            _makers[owner] = _maker(owner, slow, disabled)
        maker = _makers[owner]
        path = None if maker is None else entry.executable.call_path(form)
        return None if maker is None or path is None else (maker, path)


def _maker(owner: Any, slow: Callable[..., Any], disabled: Any) -> NativeCalls | None:
    site = CallSite(owner, "_paths", slow, ConcreteArray, hooks.busy, disabled)
    maker = backend("cpu").native_calls(site)
    if maker is not None:
        maker.install()
    return maker


def call_form(
    entry: Entry, divided: Divided, treedef: PyTreeDef, names: Sequence[str]
) -> CallForm | None:
    """The form of a call, if a path could check it."""
    trees = _is_plain(treedef) and _is_plain(entry.out_tree)
    statics = all(_is_fixed(value) for _, value in divided.statics)
    if not trees or not statics or True in entry.donated:
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


def _is_plain(treedef: PyTreeDef) -> bool:
    """Whether a tree consists of containers that a path can walk."""
    if treedef.is_leaf(strict=True):
        return True
    kind = treedef.type
    plain = kind in _CONTAINERS or optree.is_namedtuple_class(kind)
    return plain and all(map(_is_plain, treedef.children()))


def _is_fixed(value: Any) -> bool:
    """Whether a static value that is the same object is the same value."""
    if type(value) is tuple:
        return all(map(_is_fixed, value))
    return isinstance(value, _FIXED)
