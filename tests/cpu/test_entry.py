"""Native call paths: the same results as through Python, and nothing leaks.

Every case is called until it has a path; a counter of calls through Python tells which
way a call went.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import dtypes
from fnx.api import native
from fnx.api.jit import Jitted
from fnx.core import hooks
from fnx.cpu.entry import layout
from fnx.cpu.entry.layout import Unsupported
from fnx.cpu.entry.table import Table

pytest.importorskip("llvmlite")


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


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_results_are_those_of_the_python_path(case):
    function, args = case
    jitted = fnx.jit(function)
    first = jitted(*args)  # before any path exists
    assert is_native(jitted, *args)
    same(jitted(*args), first)


def test_containers_keep_their_classes_and_order():
    result = warm(fnx.jit(lambda s: {"z": State(s, [s]), "a": (s,)}), x)
    assert list(result) == ["z", "a"]
    assert type(result["z"]) is State
    assert type(result["z"].moments) is list
    assert type(result["a"]) is tuple


def test_results_are_fresh_and_read_only():
    f = fnx.jit(lambda a: (a, a + 1, fnp.array(2.0)))
    one, two = warm(f, x), f(x)
    for a, b in zip(one, two, strict=True):
        assert a is not b
    two[2].delete()
    two[0].delete()
    same(f(x), one)
    assert np.asarray(one[0]).base is None or not np.asarray(one[0]).flags.writeable


# ---------------------------------------------------------------- other calls


OTHERS = {
    "another shape": (x, fnp.ones(3)),
    "another dtype": (x, x.astype("float64")),
    "a weak type": (fnp.array(1.0), 1.0),
    "a tuple for a list": ([x], (x,)),
    "a longer list": ([x], [x, x]),
    "another key": ({"a": x}, {"b": x}),
    "one more key": ({"a": x}, {"a": x, "b": y}),
    "another dict": ({"a": x}, OrderedDict(a=x)),
    "None": (x, None),
    "another named tuple": (State(x, y), (x, y)),
    "another NumPy dtype": (np.ones(3, "f4"), np.ones(3, "f8")),
    "another NumPy shape": (np.ones((2, 3), "f4"), np.ones((3, 2), "f4")),
    "a Fortran array": (np.ones((2, 3), "f4"), np.ones((3, 2), "f4").T),
    "a big-endian array": (np.ones(3, "f4"), np.ones(3, ">f4")),
    "an int for a float": (1.5, 2),
    "a float that overflows": (1.5, 3.5e38),
    "a NumPy number": (1.5, np.float64(2)),
}


@pytest.mark.parametrize("pair", OTHERS.values(), ids=OTHERS)
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_call_that_does_not_fit_goes_through_python(pair):
    def function(tree):
        return fnx.tree.map(lambda leaf: leaf * 2, tree), 1

    f = fnx.jit(function)
    usual, other = pair
    assert is_native(f, usual)
    slow = Slow(f)
    result = f(other)
    assert slow() == 1
    same(result, fnx.jit(function)(other))
    same(f(usual), fnx.jit(function)(usual))


def test_paths_of_several_signatures_are_tried_in_turn():
    f = fnx.jit(lambda a: a + 1)
    shapes = [fnp.zeros(n) for n in range(native.MOST_PATHS + 4)]
    for a in shapes:
        warm(f, a)
    slow = Slow(f)
    for a in shapes:
        same(f(a), a + 1)
    assert slow() == 4


def test_an_integer_that_does_not_fit_raises_as_in_python():
    f = fnx.jit(lambda n: n + 1)
    assert is_native(f, 3)
    assert f(2**31 - 1).item() == -(2**31)
    with pytest.raises(TypeError, match="does not fit"):
        f(2**31)


def test_errors_of_the_slow_path_are_raised():
    f = fnx.jit(lambda a: a + 1)
    assert is_native(f, x)
    with pytest.raises(TypeError):
        f()
    with pytest.raises(TypeError):
        f("text")
    gone = x + 0
    gone.delete()
    with pytest.raises(fnx.errors.ArgumentError, match="deleted"):
        f(gone)


def test_keyword_arguments():
    f = fnx.jit(lambda a, *, b, c=2.0: a + b * c)
    assert is_native(f, x, b=y, c=3.0)
    assert is_native(f, x, c=3.0, b=y)
    assert is_native(f, a=x, b=y)
    same(f(x, b=y, c=3.0), f(x, c=3.0, b=y))
    same(f(a=x, b=y), f(x, b=y))
    slow = Slow(f)
    f(x, b=y)  # without a path: not called often
    assert slow() == 1
    with pytest.raises(TypeError):
        f(x, b=y, d=1.0)


def test_static_arguments_are_compared_by_identity():
    def function(a, n, *, mode):
        return a * n if mode == "mul" else a + n

    f = fnx.jit(function, static_argnums=1, static_argnames="mode")
    assert is_native(f, x, 3, mode="mul")
    assert is_native(f, x, 3, mode="add")
    slow = Slow(f)
    same(f(x, 3, mode="mul"), x * 3)
    same(f(x, 3, mode="add"), x + 3)
    assert slow() == 0
    same(f(x, 4, mode="mul"), x * 4)
    same(f(x, True, mode="mul"), x * True)
    assert slow() == 2


def test_a_mutable_static_stays_in_python():
    class Box:
        def __init__(self, value):
            self.value = value

        def __eq__(self, other):
            return self.value == other.value

        def __hash__(self):
            return hash(self.value)

    f = fnx.jit(lambda a, box: a + box.value, static_argnums=1)
    box = Box(1.0)
    assert not is_native(f, x, box)
    box.value = 2.0
    same(f(x, box), x + 2.0)


def test_donation_stays_in_python():
    f = fnx.jit(lambda a: a + 1, donate_argnums=0)
    for _ in range(5):
        a = x + 0
        same(f(a), x + 1)
        assert a.is_deleted()


def test_captured_arrays():
    w = fnp.arange(4.0)
    f = fnx.jit(lambda a: a @ w)
    assert is_native(f, x)
    same(f(x), x @ w)
    w.delete()
    with pytest.raises(fnx.errors.ArgumentError, match="deleted"):
        f(x)


def test_methods_and_attributes():
    class Model:
        scale = 3.0

        @fnx.jit
        def apply(a, b):
            """Adds."""
            return a + b

    assert Model.apply.__name__ == "apply"
    assert Model.apply.__doc__ == "Adds."
    assert Model.apply.__wrapped__(1, 2) == 3
    assert is_native(Model.apply, x, y)
    assert "add" in Model.apply.lower(x, y).as_text("program")
    bound = fnx.jit(lambda self, a: a * self.scale, static_argnums=0)
    Model.twice = bound
    same(warm(Model().twice, x), x * 3.0)
    same(Jitted.__call__(Model.apply, x, y), x + y)
    with pytest.raises(TypeError):
        Jitted.__call__(None, x)


def test_copies_learn_for_themselves():
    f = fnx.jit(fnp.tanh)
    assert is_native(f, x)
    for other in (copy.copy(f), copy.deepcopy(f), pickle.loads(pickle.dumps(f))):
        assert other._paths == ()
        same(warm(other, x), f(x))
    again = fnx.jit(f)
    assert again._paths == ()
    assert is_native(again, x)


def test_counters():
    f = fnx.jit(lambda a: a + 1)
    for _ in range(10):
        f(x)
    for _ in range(5):
        f(y.sum())
    assert f.cache_info()[:2] == (13, 2)
    assert f.cache_info().currsize == 2
    f.clear_cache()
    assert f.cache_info()[:2] == (0, 0)
    assert f._paths == ()
    same(warm(f, x), x + 1)


def test_a_function_may_forget_its_paths_while_it_runs():
    def forget(a):
        f.clear_cache()
        return a

    f = fnx.jit(_called_back(forget))
    same(warm(f, x), x)
    for _ in range(4):
        same(f(x), x)
        gc.collect()


# ---------------------------------------------------------------- traces and settings


def test_inside_transformations_calls_are_recorded():
    f = fnx.jit(lambda a: fnp.sin(a) * 2)
    assert is_native(f, x)
    constant = fnx.make_jaxpr(lambda a: a + f(x))(x)
    assert "call" in str(constant)
    gradient = fnx.grad(lambda a: f(a).sum())(x)
    np.testing.assert_allclose(gradient, 2 * np.cos(x), rtol=1e-5)
    same(fnx.vmap(f)(x), f(x))
    outer = fnx.jit(lambda a: f(a) + f(x))
    assert is_native(outer, x)
    same(outer(x), f(x) + f(x))
    inner_grad = fnx.jit(fnx.grad(lambda a: f(a).sum()))
    assert is_native(inner_grad, x)
    np.testing.assert_allclose(inner_grad(x), 2 * np.cos(x), rtol=1e-5)
    assert hooks.busy == []


def test_a_leaked_tracer_is_refused():
    f = fnx.jit(lambda a: a + 1)
    assert is_native(f, x)
    kept = []
    fnx.jit(lambda a: kept.append(a) or a)(x)
    with pytest.raises(fnx.errors.LeakedTracerError):
        f(kept[0])


def test_a_failed_trace_leaves_native_calls_on():
    with pytest.raises(ZeroDivisionError):
        fnx.jit(lambda a: 1 // 0)(x)
    assert hooks.busy == []
    assert is_native(fnx.jit(lambda a: a + 1), x)


def test_a_trace_in_another_thread_sends_calls_through_python():
    f = fnx.jit(lambda a: a + 1)
    assert is_native(f, x)
    inside, leave = threading.Event(), threading.Event()

    def wait(a):
        inside.set()
        leave.wait(10)
        return a

    thread = threading.Thread(target=lambda: fnx.make_jaxpr(wait)(x))
    thread.start()
    inside.wait(10)
    slow = Slow(f)
    same(f(x), x + 1)
    assert slow() == 1
    leave.set()
    thread.join()
    f(x)
    assert slow() == 1


def test_disable_jit():
    seen = []
    f = fnx.jit(lambda a: seen.append(type(a)) or a + 1)
    assert is_native(f, x)
    with fnx.disable_jit():
        same(f(x), x + 1)
    assert seen[-1] is type(x)
    assert is_native(f, x)


def test_settings_are_part_of_a_path():
    f = fnx.jit(lambda a: a + fnp.zeros(4))
    assert f(x).dtype == dtypes.float32
    assert is_native(f, x)
    with fnx.default_dtypes(64):
        assert f(x).dtype == dtypes.float64
        assert is_native(f, x)
        assert f(x).dtype == dtypes.float64
    assert f(x).dtype == dtypes.float32

    g = fnx.jit(lambda a: fnx.grad(lambda b: fnp.where(b > 0, fnp.log(b), 0.0))(a))
    zero = fnp.array(0.0)
    assert is_native(g, zero)
    with fnx.config.override(strong_zero=False):
        assert np.isnan(g(zero))
    assert g(zero) == 0


def test_python_numbers_follow_the_default_width():
    f = fnx.jit(lambda s: s + 1)
    assert is_native(f, 0.1)
    with fnx.default_dtypes(64):
        assert is_native(f, 0.1)
        assert f(0.1).item() == 0.1 + 1
        assert f(2**40).item() == 2**40 + 1
    assert f(0.1).dtype == dtypes.float32


# ---------------------------------------------------------------- callbacks


class Callback(fnx.extend.Primitive):
    """Calls a Python function, given as a param, on an array."""

    def infer(self, type, *, function):
        return type

    def reference(self, value, *, function):
        return function(value)


_callback = Callback("test_entry_callback")


def _called_back(function):
    return lambda a: _callback(a, function=function) * 1


def test_an_exception_of_a_callback_is_raised():
    def fail(a):
        if a[0, 0] > 0:
            raise KeyError("from the callback")
        return a

    f = fnx.jit(_called_back(fail))
    assert is_native(f, x)
    for _ in range(3):
        with pytest.raises(KeyError, match="from the callback"):
            f(x + 1)
        same(f(x), x)


def test_a_callback_may_call_the_function_again():
    def again(a):
        return np.asarray(f(fnp.array(a) - 1)) + 2 if a[0, 0] > 0 else a

    f = fnx.jit(_called_back(again))
    assert is_native(f, x)
    same(f(x + 3), x + 6)


# ---------------------------------------------------------------- memory


def _growth(call, rounds: int) -> float:
    """Bytes that each round leaves behind."""
    call(rounds)
    gc.collect()
    tracemalloc.start()
    try:
        call(rounds)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        call(rounds)
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / rounds
    finally:
        tracemalloc.stop()


LEAKS = ["array", "nested", "named tuple", "views", "literal", "numpy", "temporaries"]


@pytest.mark.parametrize("name", LEAKS)
def test_nothing_is_left_behind(name):
    function, args = CASES[name]
    f = fnx.jit(function)
    assert is_native(f, *args)

    def call(rounds):
        for _ in range(rounds):
            f(*args)

    leaves = [leaf for leaf in fnx.tree.leaves(args) if isinstance(leaf, fnx.Array)]
    watched = [*leaves, *[leaf._data for leaf in leaves], *[a.type for a in leaves]]
    gc.collect()
    before = [sys.getrefcount(thing) for thing in watched]
    assert _growth(call, 2000) < 1
    after = [sys.getrefcount(thing) for thing in watched]
    assert after == before


def test_calls_that_do_not_fit_leave_nothing_behind():
    f = fnx.jit(lambda p: p["a"] + p["b"])
    assert is_native(f, {"a": x, "b": y})
    g = fnx.jit(lambda p: p["a"] + 1)
    g._paths = f._paths  # its path holds `a` before it sees that there is no `b`
    before = sys.getrefcount(x._data)
    for _ in range(100):
        g({"a": x, "c": y})
    after = sys.getrefcount(x._data)  # here: `assert` holds what it looks at
    assert after == before


def test_exceptions_leave_nothing_behind():
    def fail(a):
        raise KeyError

    f = fnx.jit(_called_back(lambda a: a if a[0, 0] == 0 else fail(a)))
    assert is_native(f, x)
    bad = x + 1

    def call(rounds):
        for _ in range(rounds):
            with pytest.raises(KeyError):
                f(bad)

    assert _growth(call, 200) < 50
    after = sys.getrefcount(bad._data)
    assert after == 2


def test_an_argument_may_go_away_during_the_call():
    def drop(a):
        held.clear()
        gc.collect()
        return a

    f = fnx.jit(lambda p: _called_back(drop)(p["x"]) + p["x"])
    held = {"x": fnp.full((64, 64), 2.0)}
    for _ in range(4):
        held["x"] = fnp.full((64, 64), 2.0)
        same(f(held), fnp.full((64, 64), 4.0))


def test_functions_and_their_code_can_be_collected():
    def live():
        gc.collect()
        return sum(type(thing) is Table for thing in gc.get_objects())

    def make(n):
        f = fnx.jit(lambda a: a + fnx.numpy.full(3, float(n)))
        warm(f, fnp.ones(3))

    make(-1)
    before = live()
    for n in range(5):
        make(n)
    assert live() == before


# ---------------------------------------------------------------- threads, processes


def test_many_threads():
    f = fnx.jit(lambda p: {"s": fnp.sort(p["a"] * 2).sum(0) + p["b"]})
    arrays = [fnp.full((50, 4), float(n)) for n in range(8)]
    assert is_native(f, {"a": arrays[0], "b": x[0]})
    wrong = []

    def work(n):
        expected = np.full(4, n * 100.0, np.float32) + np.asarray(x[0])
        for _ in range(300):
            found = f({"a": arrays[n], "b": x[0]})["s"]
            if not np.array_equal(np.asarray(found), expected):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_after_a_fork():
    f = fnx.jit(lambda a: (a.T + 1).sum(0) + a.sum(1))
    expected = warm(f, x)
    child = os.fork()
    if child == 0:
        good = all(np.array_equal(f(x), expected) for _ in range(100))
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    same(f(x), expected)


# ---------------------------------------------------------------- the test at start


def test_without_native_calls_results_are_the_same(monkeypatch):
    monkeypatch.setattr(native, "_made", [None])
    f = fnx.jit(CASES["nested"][0])
    assert not is_native(f, *CASES["nested"][1])
    same(f(*CASES["nested"][1]), fnx.jit(CASES["nested"][0])(*CASES["nested"][1]))


_ELSEWHERE = """
import fnx
from fnx.cpu.entry import layout
layout.{name} = {value}
f = fnx.jit(lambda p: [p["a"] + 1])
for _ in range(5):
    assert f({{"a": fnx.numpy.ones(2)}})[0].tolist() == [2.0, 2.0]
assert f._paths == () and f.cache_info().hits == 4
"""


@pytest.mark.parametrize(
    ("name", "value"), [("DATA", 24), ("FLAGS", 56), ("TYPE", 0), ("_OFFSET", 8)]
)
def test_an_unknown_layout_is_noticed(name, value):
    code = _ELSEWHERE.format(name=name, value=value)
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_no_slot_has_no_offset():
    with pytest.raises(Unsupported):
        layout.slot_offset(Jitted, "__call__")
