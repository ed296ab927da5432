"""Eager functions with native paths: what stays in Python, and what is kept.

Errors, settings and transformations are as without paths; paths come and go; programs
that are watched get none where they ask for values.
"""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import dtypes
from fnx.api import promote
from fnx.cpu.entry.loops import KINDS, samples
from fnx.cpu.entry.watch import Unwatched, watch
from tests.cpu.eager_calls import (
    agrees,
    array,
    f32,
    in_python,
    is_native,
    outcome,
    same,
    warm,
)

pytest.importorskip("llvmlite")

pytestmark = pytest.mark.usefixtures("awake")

# ---------------------------------------------------------------- what stays in Python


def test_indices_that_are_arrays_are_checked():
    places = fnp.array([1, 2])
    warm("__getitem__", f32, places)
    agrees("__getitem__", f32, fnp.array([1, 20]))
    warm("__getitem__", f32, fnp.array(3))
    with pytest.raises(IndexError):
        f32[fnp.array(30)]
    for n in (2, 5, 7):
        same(f32[fnp.array(n)], f32[n])
        mask = fnp.arange(10) < n
        assert f32[mask].shape == (n,)


def test_other_arguments_go_through_python():
    for other in (
        *(np.ones(10, "f4"), np.float32(2), 1j, [1.0], "text", None, object()),
        *(fnp.ones(3), fnp.ones(10, "float64"), fnp.ones((2, 10)), fnp.float32),
    ):
        warm("__add__", f32, 1)
        warm("__add__", f32, f32)
        with in_python():
            wanted = outcome(lambda other=other: f32 + other)
        found = outcome(lambda other=other: f32 + other)
        if isinstance(wanted, tuple):
            assert found == wanted
        else:
            same(found, wanted)


def test_errors_are_those_of_python():
    warm("__add__", f32, f32)
    warm(fnp.reshape, f32, (2, 5))
    warm(fnp.concatenate, [f32, f32])
    with pytest.raises(fnx.errors.ShapeError, match="cannot be broadcast"):
        f32 + fnp.ones(3)
    with pytest.raises(fnx.errors.ShapeError, match="10 elements"):
        fnp.reshape(f32, (3, 5))
    with pytest.raises(fnx.errors.ArgumentError):
        fnp.concatenate([])
    with pytest.raises(TypeError):
        fnp.sin()
    with pytest.raises(TypeError):
        fnp.sin(f32, f32)
    gone = f32 + 1
    gone.delete()
    with pytest.raises(fnx.errors.ArgumentError, match="deleted"):
        gone + f32


def test_settings_are_part_of_a_path():
    one = fnp.array([1, 2, 3])
    warm(fnp.sin, one)
    with dtypes.default_dtypes(64):
        agrees(fnp.sin, one)
        agrees("__truediv__", one, 2)
    assert warm(fnp.sin, one).dtype == dtypes.float32
    with fnx.config.override(strong_zero=False):
        agrees("__mul__", f32, f32)


def test_transformations_still_trace():
    warm(fnp.sin, f32)
    warm("__mul__", f32, f32)
    warm("sum", f32)

    def f(x):
        return (fnp.sin(x) * x).sum()

    program = str(fnx.make_jaxpr(f)(f32))
    assert all(name in program for name in ("sin", "mul", "reduce_sum"))
    same(fnx.jit(f)(f32), fnx.jit(lambda x: f(x))(f32))
    slope = fnx.grad(f)(f32)
    x = np.asarray(f32)
    np.testing.assert_allclose(slope, np.sin(x) + x * np.cos(x), rtol=1e-4)
    m = fnp.stack([f32, f32])
    with in_python():
        wanted = fnp.sin(m)
    np.testing.assert_allclose(fnx.vmap(fnp.sin)(m), wanted, rtol=1e-6)
    # Values that Python asks for while it traces, too.
    assert fnx.grad(lambda x: x.sum() if x[0] * 1 > -9 else 0 * x.sum())(f32)[0] == 1


def test_disable_jit_changes_nothing():
    with fnx.disable_jit():
        assert is_native("__add__", f32, 2)


def test_no_warnings():
    x = fnp.array([0.0, -1.0, np.inf, np.nan, 1e38])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("__truediv__", "__mul__", "__pow__"):
            warm(name, x, x)
        for function in (fnp.log, fnp.sqrt, fnp.sin, fnp.exp, fnp.mean, fnp.arccosh):
            warm(function, x)
        warm("__floordiv__", fnp.array([1, 2]), fnp.array([0, 0]))
        with np.errstate(all="raise"):  # what a loop raised is not seen later
            warm(fnp.log, x)
            np.add(np.float32(1), np.float32(2))
            np.ones(3, "f4") * np.ones(3, "f4")


# ---------------------------------------------------------------- functions as objects


def test_functions_look_like_functions():
    assert fnp.sin.__name__ == fnp.sin.__qualname__ == "sin"
    assert fnp.sin.__module__ == "fnx.numpy.ufuncs"
    assert "sine" in fnp.sin.__doc__
    assert list(inspect.signature(fnp.sin).parameters) == ["x"]
    assert list(inspect.signature(fnp.sum).parameters)[:2] == ["a", "axis"]
    assert callable(fnp.sin.__wrapped__)
    assert "sin" in repr(fnp.sin)
    for f in (fnp.sin, fnp.reshape, fnp.add):
        assert pickle.loads(pickle.dumps(f)) is f
        assert copy.copy(f) is f
        assert copy.deepcopy(f) is f
    assert fnp.ndarray.sum.__name__ == "sum"
    assert "sum" in fnp.ndarray.sum.__doc__.lower()
    assert f32.sum.__self__ is f32


def test_a_function_may_be_a_static_argument():
    f = fnx.jit(lambda x, function: function(x), static_argnums=1)
    for _ in range(9):
        same(f(f32, fnp.tanh), fnx.jit(fnp.tanh)(f32))
    assert f._native.hits > 0


def test_a_function_may_be_a_method():
    class Model:
        activate = fnp.sin

    with pytest.raises(TypeError):
        Model().activate(f32)  # of two arguments
    same(Model.activate(f32), fnp.sin(f32))


def test_operators_of_other_classes():
    class Other:
        def __radd__(self, other):
            return "mine"

        __array_ufunc__ = None

    warm("__add__", f32, 1)
    assert f32 + Other() == "mine"
    assert (np.ones(10, "f4") + f32).type is f32.type


# ---------------------------------------------------------------- bookkeeping


def test_clear_caches_forgets():
    assert is_native(fnp.cos, f32)
    fnx.clear_caches()
    assert fnp.cos._paths == ()
    assert is_native(fnp.cos, f32)


def test_paths_are_bounded_and_those_that_serve_stay():
    function = fnp.tanh
    function._forget()
    warm(function, f32)
    for _ in range(50):
        function(f32)
    for n in range(100):
        warm(function, fnp.ones(n + 1))
    assert len(function._paths) <= promote._MOST_PATHS + 1
    before = function._calls
    function(f32)
    assert function._calls == before


def test_a_function_without_paths_is_looked_at_less_and_less():
    function = fnp.arctan
    function._forget()
    for _ in range(200):
        function(np.float32(2))  # what no path can check
    assert function._gap >= 128


def test_references():
    x, y, number, index = array((10,), dtypes.float32), f32 + 1, 1234.5, 777
    wide = array((1000,), dtypes.float32)
    held = x, y, number, index, wide, None, True, x.type, x.dtype, x._numpy(), ()
    calls = [
        lambda: x + number,
        lambda: x + y,
        lambda: fnp.sin(x),
        lambda: x @ y,
        lambda: wide[index],
        lambda: wide[1:index],
        lambda: fnp.concatenate([x, y]),
        lambda: x.reshape(2, 5),
        lambda: fnp.split(x, 2),
        lambda: x.argmax(),
        lambda: x.T,
        lambda: x.sum(),
        lambda: outcome(lambda: x + wide),
        lambda: outcome(lambda: x + "text"),
    ]
    for call in calls:
        for _ in range(8):
            call()
    counts = [sys.getrefcount(value) for value in held]
    for call in calls[:-2]:
        for _ in range(10_000):
            call()
    for call in calls[-2:]:
        for _ in range(300):
            call()
    after = [sys.getrefcount(value) for value in held]
    assert all(abs(a - b) < 50 for a, b in zip(counts, after, strict=True))


def test_threads():
    arrays = [array((n + 1,), dtypes.float32, 1) for n in range(6)]
    with in_python():
        wanted = [(a * 2 + a).sum() for a in arrays]
    wrong = []

    def work(n):
        for _ in range(400):
            found = (arrays[n] * 2 + arrays[n]).sum()
            if found.item() != wanted[n].item():
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


_ALONE = """
import sys
import fnx.numpy as fnp
from fnx.runtime import array
x = fnp.arange(3.0)
y = x + 1
assert "llvmlite" not in sys.modules
for _ in range(array._asleep + 100):
    y = x + 1
assert "llvmlite" in sys.modules
assert y.tolist() == [1.0, 2.0, 3.0]
from fnx.api import native
add = next(m.function for m in native.members if m.name == "__add__")
assert add._paths[1].hits > 0
"""


def test_many_operations_awake_native_calls():
    subprocess.run([sys.executable, "-c", _ALONE], check=True)


# ---------------------------------------------------------------- watching


def watched(function, *types):
    inputs = samples([fnx.ShapeDtypeStruct(*type_) for type_ in types], 1)
    return watch(lambda watcher, *xs: [watcher.settle(function(*xs))], inputs)


REFUSED = {
    "a value": lambda x: x * float(x[0]),
    "a branch": lambda x: x if x.sum() else -x,
    "a write": lambda x: np.add(x, 1, out=x),
    "an item": lambda x: x + x.item(0),
    "an element": lambda x: x[0] + x,
    "an unknown function": lambda x: np.sort(x) + 0,
    "a conversion": lambda x: x.astype("i4") + 1,
    "a mask": lambda x: x[x > 0],
    "a place": lambda x: x + x.argmax(0).astype("f4"),
}


@pytest.mark.parametrize("function", REFUSED.values(), ids=REFUSED)
def test_what_asks_for_values_is_refused(function):
    with pytest.raises(Unwatched):
        watched(function, ((4,), dtypes.float32))


def test_steps_are_calls_of_loops():
    seen, found = watched(lambda x: np.sin(x) * 2, ((4,), dtypes.float32))
    assert len(seen.calls) == 2
    assert found[0].kind == "made" and found[0].whole
    seen, found = watched(lambda x: x[2:], ((4,), dtypes.float32))
    assert not seen.calls
    assert found[0].kind == "input" and found[0].offset == 8


def test_samples_are_different_and_repeatable():
    type_ = fnx.ShapeDtypeStruct((50,), dtypes.bool_)
    means = [samples([type_], kind)[0].mean() for kind in range(KINDS)]
    assert min(means) < 0.1 and max(means) > 0.9
    again = [samples([type_], kind)[0].mean() for kind in range(KINDS)]
    assert means == again
