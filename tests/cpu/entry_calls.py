"""Jitted functions, called often enough for a native path, and how results compare.

Used by `test_entry.py` and `test_entry_memory.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import fnx
import fnx.numpy as fnp
from fnx.api.jit import Jitted


class State(NamedTuple):
    count: Any
    moments: Any


class Slow:
    """How many calls of a function went through Python."""

    def __init__(self, function: Jitted) -> None:
        self.function = function
        self.before = self.now()

    def now(self) -> int:
        return self.function._hits + self.function._misses

    def __call__(self) -> int:
        return self.now() - self.before


def warm(function, *args, **kwargs):
    """The result of a call that has been made often enough for a path."""
    for _ in range(9):  # two forms of one signature get their paths
        result = function(*args, **kwargs)
    return result


def is_native(function, *args, **kwargs) -> bool:
    """Whether such a call is made without Python, once it has been made often."""
    warm(function, *args, **kwargs)
    slow = Slow(function)
    function(*args, **kwargs)
    return slow() == 0


def same(a, b) -> None:
    """Asserts that two results are equal: trees, types and values."""
    assert fnx.tree.structure(a) == fnx.tree.structure(b)
    for x, y in zip(fnx.tree.leaves(a), fnx.tree.leaves(b), strict=True):
        assert type(x) is type(y)
        assert x.type is y.type
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
        assert not np.asarray(x).flags.writeable


x = fnp.arange(12.0).reshape(3, 4)
y = fnp.ones((3, 4))
half = fnp.arange(5, dtype=fnp.bfloat16)
flags = fnp.array([True, False, True])

CASES = {
    "array": (lambda a: a + 1, (x,)),
    "two": (lambda a, b: a * b + a, (x, y)),
    "bfloat16": (lambda a: a * 2, (half,)),
    "bool": (lambda a: ~a, (flags,)),
    "complex": (lambda a: a * 2, (fnp.array([1 + 2j, 3j]),)),
    "int8": (lambda a: a + a, (fnp.array([1, -3], "int8"),)),
    "rank 0": (lambda a: a - 1, (fnp.array(2.5),)),
    "zero size": (lambda a: a + 1, (fnp.zeros((0, 3)),)),
    "dict": (lambda p: {"s": p["b"] + p["a"], "a": p["a"]}, ({"b": x, "a": y},)),
    "key order": (lambda p: {"z": p["a"], "a": p["z"] + 1}, ({"z": x, "a": y},)),
    "nested": (
        lambda p, q: [{"u": (p["l"][0] * 2, None)}, q, ()],
        ({"l": [x, (y, None)], "e": {}}, (x, [None])),
    ),
    "named tuple": (lambda s: State(s.count + 1, (s.moments,)), (State(y, [x]),)),
    "none": (lambda a, b: (a + 1, b), (x, None)),
    "nothing": (lambda a: {}, (x,)),
    "passed through": (lambda a, b: (b, a, a), (x, y)),
    "views": (lambda a: (a.reshape(-1), a.reshape(2, 6), a), (x,)),
    "views of a result": (lambda a: ((a + 1).reshape(-1), a + 1), (x,)),
    "literal": (lambda a: (fnp.array(3.0), a + 1, 2), (x,)),
    "float": (lambda a, s: a * s, (x, 0.1)),
    "float alone": (lambda s: s * 3, (0.1,)),
    "huge float": (lambda a, s: a * s, (x, float("inf"))),
    "not a number": (lambda a, s: a * s, (x, float("nan"))),
    "int": (lambda a, n: a + n, (x, -7)),
    "boolean": (lambda a, c: fnp.where(c, a, 0), (x, True)),
    "numpy": (lambda a, b: a + b, (x, np.ones((3, 4), np.float32))),
    "numpy rank 0": (lambda a: a + 1, (np.array(2, np.int32),)),
    "temporaries": (lambda a: fnp.sort(a.T + 1, axis=0).sum(0) @ a, (x,)),
    "long": (lambda a: fnp.sin(a) + fnp.sort(a), (fnp.ones(100_000),)),
}


class Callback(fnx.extend.Primitive):
    """Calls a Python function, given as a param, on an array."""

    def infer(self, type, *, function):
        return type

    def reference(self, value, *, function):
        return function(value)


callback = Callback("test_entry_callback")


def called_back(function):
    """A function of an array that a Python function computes."""
    return lambda a: callback(a, function=function) * 1
