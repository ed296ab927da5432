"""Native call paths: nothing is left behind, in threads, in forks and without paths."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx.api import native
from fnx.api.jit import Jitted
from fnx.cpu.entry import layout
from fnx.cpu.entry.layout import Unsupported
from fnx.cpu.entry.table import Table
from tests.cpu.entry_calls import CASES, called_back, is_native, same, warm, x, y

pytest.importorskip("llvmlite")


# ---------------------------------------------------------------- memory


def _growth(call, rounds: int) -> float:
    """Bytes that each round leaves behind, every time.

    Other threads allocate now and then, such as the one that is told the next tests.
    """
    call(rounds)
    return min(_grown(call, rounds) for _ in range(3))


def _grown(call, rounds: int) -> float:
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

    f = fnx.jit(called_back(lambda a: a if a[0, 0] == 0 else fail(a)))
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

    f = fnx.jit(lambda p: called_back(drop)(p["x"]) + p["x"])
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
