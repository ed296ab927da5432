"""The allocator of large arrays: blocks come back, and are not kept without end."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.cpu.entry import memory
from fnx.cpu.entry.memory import LARGE, empty, stats

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such allocator")
F32 = np.dtype("float32")


def handler(x) -> str:
    while isinstance(x.base, np.ndarray):
        x = x.base
    return np._core.multiarray.get_handler_name(x)


@pytest.fixture(autouse=True)
def _collected():
    gc.collect()


@pytest.mark.parametrize("nbytes", [LARGE, LARGE + 1, 3 * LARGE - 4, 9_999_999])
def test_memory_is_aligned_and_writable(nbytes):
    before = stats()
    x = empty((nbytes,), np.dtype("uint8"))
    assert handler(x) == "fnx"
    assert x.ctypes.data % 64 == 0
    x[:] = 7
    assert x[0] == x[-1] == 7
    assert nbytes <= stats().used - before.used <= nbytes * 9 // 8 + 4096
    del x
    assert stats().used == before.used


def test_small_arrays_have_numpys_memory():
    assert handler(empty((LARGE // 4 - 1,), F32)) == "default_allocator"
    assert handler(np.empty(LARGE)) == "default_allocator"  # not what users make


def test_blocks_are_used_again():
    held = empty((LARGE * 8,), F32)  # so that as much may be kept
    x = empty((LARGE,), F32)
    address = x.ctypes.data
    del x
    kept = stats().kept
    assert kept >= 4 * LARGE
    y = empty((LARGE + 100,), F32)  # of the same eighth
    assert y.ctypes.data == address
    assert stats().kept < kept
    del held


def test_what_is_kept_is_bounded():
    sizes = [LARGE * n // 4 for n in range(4, 40)]
    for size in sizes:
        empty((size,), F32)
    assert stats().kept <= max(stats().used, 2**26)


def test_less_is_kept_when_less_is_used():
    large = [empty((LARGE * 4,), F32) for _ in range(3)]
    assert stats().used >= 48 * LARGE
    del large
    for size in (LARGE, LARGE * 2, LARGE * 3):
        empty((size,), F32)
    assert stats().kept <= max(stats().used + 12 * LARGE, 2**26)


def test_numpy_may_resize():
    x = empty((LARGE // 4,), F32)
    x[:] = np.arange(x.size)
    x.resize(LARGE, refcheck=False)
    assert (x[: LARGE // 4] == np.arange(LARGE // 4)).all()
    assert (x[LARGE // 4 :] == 0).all()
    x.resize(10, refcheck=False)
    assert (x == np.arange(10)).all()


@pytest.mark.parametrize("native", [False, True])
def test_calls_leave_nothing_behind(native):
    n = LARGE // 4 + 10

    @fnx.jit
    def f(x, y):
        return x * y + 1, {"sum": x + y}

    x, y = fnp.arange(n, dtype="float32"), fnp.ones(n)
    for _ in range(4 if native else 1):
        f(x, y)
    assert bool(f._paths) == native
    gc.collect()
    before = stats()
    for _ in range(10_000 if native else 100):
        if native:
            out, rest = f(x, y)
        else:
            f._paths = ()
            out, rest = f(x, y)
    np.testing.assert_array_equal(out, np.arange(n, dtype="f4") + 1)
    assert handler(out._numpy()) == handler(rest["sum"]._numpy()) == "fnx"
    del out, rest
    gc.collect()
    after = stats()
    assert after.used == before.used
    assert after.kept <= max(2**26, after.used)


def test_outputs_may_outlive_what_made_them():
    f = fnx.jit(lambda x: x + 1)
    x = fnp.zeros(LARGE)
    views = []
    for _ in range(4):
        views.append(np.asarray(f(x))[::1000])
    del f, x
    fnx.clear_caches()
    gc.collect()
    assert all((view == 1).all() for view in views)


def test_the_handler_is_only_for_outputs():
    x = fnp.ones(LARGE)
    fnx.jit(lambda x: x * 2)(x)
    assert handler(np.empty(LARGE)) == "default_allocator"
    assert memory.handler() is memory.handler()


def loops_in_loops(x):
    """Twice differentiated, they reserve rows of rows of rows of 4096 rounds."""

    def twice(step):
        return lambda x: lax.while_loop(
            lambda s: s[1] < 2, lambda s: (step(s[0]), s[1] + 1), (x, 0)
        )[0]

    inner = twice(lambda y: fnp.sin(y) * 1.25)
    outer = twice(lambda y: inner(y) + 0.5 * y)
    return lax.scan(lambda y, _: (outer(y), None), x, None, length=5)[0].sum()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux reserves without a promise")
def test_a_result_may_be_larger_than_what_there_is():
    x = empty((2**33, 3, 5), np.dtype("float64"))
    assert x.shape == (2**33, 3, 5) and x.flags.c_contiguous and x.nbytes == 15 * 2**36
    x[0, 0] = x[-1, 2] = 7.0
    assert x[0, 0].sum() == x[-1, 2].sum() == 35.0


@pytest.mark.skipif(sys.platform != "linux", reason="Linux reserves without a promise")
@pytest.mark.parametrize("calls", [1, 5])
def test_more_may_be_reserved_than_there_is(calls):
    gradient = fnx.grad(lambda x: (fnx.grad(loops_in_loops)(x) ** 2).sum())
    jitted = fnx.jit(gradient)
    x = np.linspace(-1.0, 1.0, 7)
    text = jitted.lower(x).as_text("plan")
    assert int(text.split("arena ")[1].split()[0]) > 2**35

    def by_hand(x):
        for _ in range(5):
            for _ in range(2):
                y = x
                for _ in range(2):
                    y = fnp.sin(y) * 1.25
                x = y + 0.5 * x
        return x.sum()

    wanted = fnx.grad(lambda x: (fnx.grad(by_hand)(x) ** 2).sum())(x)
    for _ in range(calls):
        np.testing.assert_allclose(jitted(x), wanted, rtol=1e-9)
