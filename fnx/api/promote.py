"""Eager functions whose calls become native: what is called again and again.

Receives a public function (`fnx.numpy.sin`, `x + y`); gives a `Function`, which is
called like it. Once many arrays have been made eagerly (or a jitted function has become
native), calls of `Function`s go through machine code, as those of jitted functions do:
a call that comes repeatedly with the same argument types gets a path there. The path
does what the Python function did, bit for bit: while one such call runs, the primitives
that it applies are written down, and compared with a trace on abstract arrays, which
proves that nothing depends on the values. A function for which this fails stays in
Python. Next on the walk: `native.py`, then `fnx/cpu/entry`.
"""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np

from fnx import tree
from fnx.api import native
from fnx.api.native import Paths, is_plain
from fnx.api.replay import Applied, Replay
from fnx.config import config
from fnx.core import hooks
from fnx.core.trace import trace
from fnx.core.types import ArrayType
from fnx.dtypes import as_dtype, default_bits
from fnx.runtime import array as making
from fnx.runtime.array import ConcreteArray
from fnx.runtime.backend import (
    Argument,
    Called,
    CallForm,
    CallPath,
    Functions,
    Index,
    Leaf,
    Member,
    NativeCalls,
)

F = TypeVar("F", bound=Callable[..., Any])

# Slow calls from one look at the arguments to the next: at first, and at most. It
# doubles with every look that gave no path, or a path in the place of another. A form
# that is seen twice gets a path, which takes as long as some hundred slow calls.
_FIRST_GAP, _MOST_GAP = 16, 1024
# So many forms of call are remembered for a function, and so many may have a path.
_MOST_FORMS, _MOST_PATHS = 64, 32
# So many bytes are kept of what calls without arrays give; more take long to fill.
_MOST_CONSTANT = 1 << 16
# Values that are the same if they are the same object (integers are compared).
_FIXED = (bool, str, bytes, type(None), type(...), float, type, np.dtype)

_every: weakref.WeakSet[Function] = weakref.WeakSet()


class Function(functools.partial[Any]):
    """A function whose repeated calls become native.

    `free` says which Python numbers among the arguments may be others at every call:
    "numbers" that are operands as arrays are, or the integers of an "index".
    Until native calls exist it forwards to the function in C, which `partial` does.
    """

    __slots__ = ("_calls", "_forms", "_free", "_gap", "_paths", "_served", "_turn")

    def __init__(self, function: Callable[..., Any], free: str = "") -> None:
        functools.update_wrapper(self, function)
        self._free = free
        self._forget()
        _every.add(self)

    def __new__(cls, function: Callable[..., Any], free: str = "") -> Function:
        """Only the function is what `partial` wants to know."""
        return super().__new__(cls, function)

    def _forget(self) -> None:
        self._calls = 0
        self._gap = self._turn = _FIRST_GAP
        self._forms: dict[Any, bool] = {}
        self._served = Paths(_MOST_PATHS)
        self._paths: tuple[Any, ...] = ()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        return self.func.__qualname__  # pickled by its name, as functions are

    def __repr__(self) -> str:
        return repr(self.func)

    def _look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call, which may get a path if it came before."""
        formed = _formed(args, kwargs, self._free)
        self._turn = self._calls + self._gap
        if formed is None or self._forms.get(formed.key):
            self._wait()  # it can have no path, or could not be given one
        elif formed.key not in self._forms:
            if len(self._forms) >= _MOST_FORMS:
                self._forms.clear()
                self._wait()
            self._forms[formed.key] = False
        else:
            self._forms[formed.key] = True
            return self._promoted(formed, args, kwargs)
        return self.func(*args, **kwargs)

    def _wait(self) -> None:
        self._gap = min(2 * self._gap, _MOST_GAP)
        self._turn = self._calls + self._gap

    def _promoted(self, formed: _Formed, args: Any, kwargs: Any) -> Any:
        """The result of a call, whose form gets a path if it can have one."""
        maker = native.maker()
        with native.lock:
            if maker is None or hooks.busy:
                return self.func(*args, **kwargs)
            log: list[Applied] = []
            with _recorded(log):
                result = self.func(*args, **kwargs)
            if formed.values:
                path = _tried(maker, self.func, formed, result, log)
            else:
                path = _constant_path(maker, formed, result)
            if path is None and formed.is_free:
                # The numbers as they are, then.
                fixed = _formed(args, kwargs, "")
                if fixed is not None:
                    path = _tried(maker, self.func, fixed, result, log)
            if path is not None:
                self._paths = maker.linked(self._served.add(path))
            if path is None or len(self._paths) > _MOST_PATHS:
                self._wait()
            else:
                self._gap = _FIRST_GAP
            return result


def _tried(
    maker: NativeCalls, function: Any, formed: _Formed, result: Any, log: Any
) -> CallPath | None:
    try:
        return _new_path(maker, function, formed, result, log)
    except Exception:
        # What cannot be traced, or is an error there, stays as it is.
        return None


def _slow(function: Function, /, *args: Any, **kwargs: Any) -> Any:
    """A call that no path serves."""
    function._calls += 1
    if function._calls >= function._turn and not hooks.busy:
        return function._look(args, kwargs)
    return function.func(*args, **kwargs)


def becomes_native(function: F) -> F:
    """Decorates a function of arrays whose repeated calls are to become native.

    It must be pure. Python numbers among its arguments count as a part of its form.
    What it gives without any array is kept, and copied at every call.
    """
    return cast(F, Function(function))


def becomes_native_with_numbers(function: F) -> F:
    """As `becomes_native`, where Python numbers are operands as arrays are.

    A number may be another one at every call: what is done with it never depends on its
    value.
    """
    return cast(F, Function(function, "numbers"))


def member_becomes_native(
    name: str,
    function: Callable[..., Any],
    *,
    free: str = "",
    is_property: bool = False,
) -> None:
    """Notes a method or property of arrays, whose repeated calls are to become native.

    `free` says which Python numbers may be others at every call (see `Function`).
    """
    native.members.append(Member(name, Function(function, free), is_property))


def forget() -> None:
    """Forgets every path, and what was learned of calls."""
    for function in list(_every):
        function._forget()


native.functions["eager"] = Functions(Function, Function(len), _slow, None)


def _awake() -> None:
    native.maker()


making.awake = _awake


# ---------------------------------------------------------------- the form of a call


class _Formed:
    """A call as a tree with leaves, their values and kinds, and a key."""

    __slots__ = ("args", "key", "kinds", "moves", "names", "values")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.args: tuple[Any, ...] = ()
        self.values: list[Any] = []
        self.kinds: list[str] = []
        self.key: Any = None
        self.moves = False  # whether there are integers that may be others

    @property
    def is_free(self) -> bool:
        """Whether there are numbers that may be others."""
        return self.moves or len(self.arrays) < len(self.values)

    @property
    def arrays(self) -> list[int]:
        """Which leaves are arrays, of ours or of NumPy; the others are numbers."""
        return [i for i, kind in enumerate(self.kinds) if kind in ("array", "numpy")]

    def leaf(self, value: Any, kind: str) -> Leaf:
        """Notes a leaf."""
        self.values.append(value)
        self.kinds.append(kind)
        return Leaf(len(self.values) - 1, kind)

    def rebuilt(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments with other values in the place of the leaves."""
        args = [_filled(arg, values) for arg in self.args]
        count = len(args) - len(self.names)
        return args[:count], dict(zip(self.names, args[count:], strict=True))


class _Formless(Exception):
    """A call with something among its arguments that no path can check."""


def _formed(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], free: str
) -> _Formed | None:
    formed = _Formed(tuple(kwargs))
    keys: list[Any] = [formed.names, default_bits(), config.strong_zero]
    numbers = free == "numbers"
    try:
        if free == "index" and len(args) == 2:
            args = args[0], _index(*args)
        leaves = [_leaf(x, formed, keys, numbers) for x in (*args, *kwargs.values())]
    except _Formless:
        return None
    formed.args, formed.key = tuple(leaves), tuple(keys)
    is_constant = not formed.values and not formed.moves
    return formed if formed.arrays or is_constant else None


def _leaf(value: Any, formed: _Formed, keys: list[Any], numbers: bool) -> Any:
    kind = type(value)
    if kind is ConcreteArray:
        keys.append(value.type)
        return formed.leaf(value, "array")
    if kind is np.ndarray:
        keys += [kind, value.dtype, value.shape]
        return formed.leaf(value, "numpy")
    if numbers and kind in (int, float):
        keys.append(kind)
        return formed.leaf(value, kind.__name__)
    if kind is list or kind is tuple:
        keys += [kind, len(value)]
        return kind([_leaf(x, formed, keys, numbers) for x in value])
    if kind is slice:
        keys.append(kind)
        parts = value.start, value.stop, value.step
        return slice(*[_leaf(x, formed, keys, numbers) for x in parts])
    if kind is Index:
        keys.append(kind)
        formed.moves = True
        return value
    if kind is int or isinstance(value, _FIXED):
        keys += [kind, repr(value) if kind is float else value]
        return value
    raise _Formless


def _index(x: Any, index: Any) -> Any:
    """An index of integers and slices whose integers may be others.

    As long as they are in range, x[index] is the same part of x, moved.
    """
    items = index if type(index) is tuple else (index,)
    usual = type(x) is ConcreteArray and {*map(type, items)} <= {int, slice}
    if not usual or len(items) > len(x.shape):
        return index
    found, stride = [], x.nbytes
    for item, size in zip(items, x.shape, strict=False):
        stride //= max(size, 1)
        if type(item) is int:
            if not -size <= item < size:
                raise _Formless  # an error of its own at every call
            item = Index(0, item % size, size, stride)
        found.append(item)
    return tuple(found) if type(index) is tuple else found[0]


def _filled(form: Any, values: Sequence[Any]) -> Any:
    kind = type(form)
    if kind is Leaf:
        return values[form.index]
    if kind is Index:
        return form.value
    if kind is list or kind is tuple:
        return kind([_filled(x, values) for x in form])
    if kind is slice:
        parts = form.start, form.stop, form.step
        return slice(*[_filled(x, values) for x in parts])
    return form


# ---------------------------------------------------------------- what a call does


@contextmanager
def _recorded(log: list[Applied]) -> Iterator[None]:
    """A context in which the primitives that this thread applies are written down."""
    before, mine = hooks.evaluate, threading.get_ident()

    def evaluate(primitive: Any, args: Any, params: Mapping[str, Any]) -> Any:
        if threading.get_ident() == mine:
            log.append((primitive, params))
        return before(primitive, args, params)

    # While calls are native, nothing of them could be written down.
    hooks.busy.append(None)
    hooks.evaluate = evaluate
    try:
        yield
    finally:
        hooks.evaluate = before
        hooks.busy.pop()


def _new_path(
    maker: NativeCalls,
    function: Callable[..., Any],
    formed: _Formed,
    result: Any,
    log: Sequence[Applied],
) -> CallPath | None:
    """A path for calls of a form, of which one gave `result`; `None` if it has none."""
    out_tree: Any = None
    arrays = formed.arrays
    types = [_type(formed.values[i]) for i in arrays]

    def run(*tracers: Any) -> list[Any]:
        nonlocal out_tree
        values = list(formed.values)
        for i, tracer in zip(arrays, tracers, strict=True):
            values[i] = tracer
        args, kwargs = formed.rebuilt(values)
        leaves, out_tree = tree.flatten(function(*args, **kwargs))
        return leaves

    traced = trace(run, types)
    leaves, tree_now = tree.flatten(result)
    if tree_now != out_tree or not is_plain(out_tree) or traced.captured:
        return None
    if any(type(x) is not ConcreteArray for x in leaves):
        return None
    if tuple([x.type for x in leaves]) != traced.program.output_types:
        return None
    replay = Replay.of(traced.program, log, arrays, formed.values)
    return None if replay is None else _path(maker, formed, replay, leaves, out_tree)


def _constant_path(maker: NativeCalls, formed: _Formed, result: Any) -> CallPath | None:
    """A path for calls without an array or a number that may be another one.

    What such a call gives is always the same; arrays are copied, since their memory
    may be donated.
    """
    leaves, out_tree = tree.flatten(result)
    if not is_plain(out_tree) or any(type(x) is not ConcreteArray for x in leaves):
        return None
    if sum([x.nbytes for x in leaves]) > _MOST_CONSTANT:
        return None
    kept = [(x._numpy().copy(), x.type) for x in leaves]

    def made() -> Any:
        arrays = [making.wrap(data.copy(), type_) for data, type_ in kept]
        return arrays[0] if single else out_tree.unflatten(arrays)

    single = out_tree.is_leaf()
    return maker.calling_path(_call_form(formed, Called(made, ())), ())


def _type(array: Any) -> ArrayType:
    if isinstance(array, ConcreteArray):
        return array.type
    return ArrayType(array.shape, as_dtype(array.dtype))


def _call_form(formed: _Formed, result: Any) -> CallForm:
    settings = default_bits(), config.strong_zero
    return CallForm(formed.args, formed.names, result, (), *settings)


def _path(
    maker: NativeCalls,
    formed: _Formed,
    replay: Replay,
    leaves: Sequence[ConcreteArray],
    out_tree: Any,
) -> CallPath | None:
    form = functools.partial(_call_form, formed)
    if not replay.calls:  # the arguments themselves
        given = [Argument(i) for i in replay.results]
        if any(leaves[n] is not formed.values[a.index] for n, a in enumerate(given)):
            return None
        return maker.calling_path(form(out_tree.unflatten(given)), replay.inputs)
    if any(i < len(replay.inputs) for i in replay.results):
        return None
    if not replay.gives(formed.values, leaves):
        return None
    result = out_tree.unflatten([Leaf(n) for n in range(len(leaves))])
    path = maker.eager_path(form(result), replay.inputs, replay.outputs, replay.run)
    # Only that way it is sure that no result lies in the memory of a NumPy array.
    if path is None and not formed.moves and set(formed.kinds) == {"array"}:
        called = Called(replay.function(out_tree), tuple(range(len(replay.inputs))))
        path = maker.calling_path(form(called), replay.inputs)
    return path
