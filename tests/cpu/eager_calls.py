"""Calls of eager functions, made often enough for a native path.

What Python gives is computed while native calls are off. A counter of slow calls tells
which way a call went. Used by `test_eager_paths.py` and `test_eager_fallbacks.py`, with
the fixture `awake`.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx import dtypes
from fnx.api import native
from fnx.api.promote import Function
from fnx.core import hooks
from fnx.cpu.entry.loops import samples
from fnx.numpy import ufuncs

MEMBERS = {member.name: member.function for member in native.members}


@contextmanager
def in_python():
    """While it lasts every call goes through Python."""
    hooks.busy.append(None)
    try:
        yield
    finally:
        hooks.busy.pop()


def function_of(call):
    return call if isinstance(call, Function) else MEMBERS[call]


def warm(call, *args, **options):
    """The result of a call that has been made often enough for a path."""
    for _ in range(6):
        result = function_of(call)(*args, **options)
    return result


def is_native(call, *args, **options) -> bool:
    """Whether such a call is made without Python, once it has been made often."""
    function = function_of(call)
    function._forget()
    warm(call, *args, **options)
    before = function._calls
    function(*args, **options)
    return function._calls == before


def same(a, b) -> None:
    """Asserts that two results are equal, bit for bit."""
    assert fnx.tree.structure(a) == fnx.tree.structure(b)
    for x, y in zip(fnx.tree.leaves(a), fnx.tree.leaves(b), strict=True):
        assert type(x) is type(y)
        assert x.type is y.type
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
        assert np.asarray(x).dtype is np.asarray(y).dtype
        assert not x._numpy().flags.writeable
        assert x._numpy().flags.c_contiguous


def outcome(function, *args, **options):
    """The result of a call, or its error."""
    try:
        return function(*args, **options)
    except Exception as error:
        return type(error), str(error)


def agrees(call, *args, **options) -> None:
    """Asserts that calls give the same before and after they have a path."""
    function = function_of(call)
    function._forget()
    with in_python():
        wanted = outcome(function, *args, **options)
    for _ in range(6):
        found = outcome(function, *args, **options)
    if isinstance(wanted, tuple) and wanted and isinstance(wanted[0], type):
        assert found == wanted
    else:
        same(found, wanted)


def array(shape, dtype, kind=0):
    type_ = fnx.ShapeDtypeStruct(shape, dtype)
    return fnp.array(samples([type_], kind)[0])


SHORT = "float32 float64 int32 int64 uint8 bool float16 bfloat16 complex64".split()
DTYPES = [getattr(dtypes, "bool_" if name == "bool" else name) for name in SHORT]
SHAPES = [(), (0,), (1,), (7,), (3, 5)]
TABLE = {n: f for n, f in vars(ufuncs).items() if isinstance(f, Function)}
BINARY = {n: f for n, f in TABLE.items() if len(inspect.signature(f).parameters) == 2}
UNARY = {n: f for n, f in TABLE.items() if n not in BINARY}
f32 = array((10,), dtypes.float32, 1)
