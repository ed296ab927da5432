"""Native call paths: the same results as through Python, and nothing leaks.

Every case is called until it has a path; a counter of calls through Python tells which
way a call went.
"""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections import OrderedDict

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import dtypes
from fnx.api import native
from fnx.api.jit import Jitted
from fnx.core import hooks
from tests.cpu.entry_calls import (
    CASES,
    Slow,
    State,
    called_back,
    is_native,
    same,
    warm,
    x,
    y,
)

pytest.importorskip("llvmlite")


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

    f = fnx.jit(called_back(forget))
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


def test_an_exception_of_a_callback_is_raised():
    def fail(a):
        if a[0, 0] > 0:
            raise KeyError("from the callback")
        return a

    f = fnx.jit(called_back(fail))
    assert is_native(f, x)
    for _ in range(3):
        with pytest.raises(KeyError, match="from the callback"):
            f(x + 1)
        same(f(x), x)


def test_a_callback_may_call_the_function_again():
    def again(a):
        return np.asarray(f(fnp.array(a) - 1)) + 2 if a[0, 0] > 0 else a

    f = fnx.jit(called_back(again))
    assert is_native(f, x)
    same(f(x + 3), x + 6)
