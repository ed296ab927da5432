"""Arrays made in machine code: what the Python functions make, and nothing leaks."""

from __future__ import annotations

import pickle
import sys
import threading
import tracemalloc

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import dtypes
from fnx.api import native
from fnx.core.types import ArrayType
from fnx.runtime import array as making
from fnx.runtime.array import ConcreteArray

pytest.importorskip("llvmlite")


@pytest.fixture(autouse=True, scope="module")
def awake():
    if native.maker() is None:
        pytest.skip("this interpreter has no native calls")


def outcome(function, *args, **options):
    """The result of a call, or its error."""
    try:
        return function(*args, **options)
    except Exception as error:
        return type(error), str(error)


def same(found, wanted) -> None:
    """Asserts that two results are equal, bit for bit."""
    if isinstance(wanted, tuple):
        assert found == wanted
        return
    assert type(found) is type(wanted) is ConcreteArray
    assert found.type is wanted.type
    assert found._data.dtype == wanted._data.dtype
    assert found._data.tobytes() == wanted._data.tobytes()
    for x in (found, wanted):
        assert x._data.shape == x.type.shape
        assert type(x._data) is np.ndarray
        assert x._data.flags.c_contiguous and not x._data.flags.writeable


def unaligned(x):
    room = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    room[...] = x
    return room


class Own(np.ndarray):
    """A subclass of NumPy's arrays."""


LAYOUTS = {
    "rows": lambda x: x.copy(),
    "columns": lambda x: x.copy(order="F"),
    "reversed": lambda x: x[::-1] if x.ndim else x.copy(),
    "unaligned": unaligned,
    "other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "unpickled": lambda x: pickle.loads(pickle.dumps(x)),
    "subclass": lambda x: x.copy().view(Own),
    "read-only": lambda x: np.broadcast_to(x.copy(), x.shape),
    "a view": lambda x: np.stack([x, x])[1],
}
SHAPES = [(), (0,), (1,), (6,), (3, 4), (2, 0, 3), (2, 1, 3, 1, 2), (1,) * 6, (2,) * 7]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", dtypes.SUPPORTED, ids=str)
def test_from_numpy_and_own(dtype, layout):
    rng = np.random.default_rng(3)
    for shape in SHAPES:
        x = rng.integers(0, 90, shape).astype(dtype)
        for name in ("from_numpy", "own"):
            for _ in range(3):  # seen for the first time, then known
                data, again = LAYOUTS[layout](x), LAYOUTS[layout](x)
                found = outcome(getattr(making, name), data)
                same(found, outcome(making.MAKERS[name], again))
                if isinstance(found, tuple):  # nobody shares memory in another order
                    assert layout == "other byte order" and name == "from_numpy"
                elif name == "own":
                    assert not np.shares_memory(found._data, data)
                elif type(data) is np.ndarray and data.flags.c_contiguous:
                    assert found._data is data


@pytest.mark.parametrize("dtype", dtypes.SUPPORTED, ids=str)
def test_wrap(dtype):
    for shape in SHAPES:
        x = np.ones(shape, dtype)
        for weak in (False, True):
            type_ = ArrayType(shape, dtype, weak)
            for data in (x.copy(), x.copy(order="F"), x[()], x[...]):
                same(making.wrap(data, type_), making.MAKERS["wrap"](data, type_))


def test_other_arguments():
    x = np.ones(3, "f4")
    for name in making.MAKERS:
        quick, slow = getattr(making, name), making.MAKERS[name]
        assert quick is not slow
        assert quick.__name__ == name and quick.__doc__ == slow.__doc__
        for args in ((), (x, x, x), ("text",), (None,), ([1.0],)):
            assert type(outcome(quick, *args)) is type(outcome(slow, *args))
    same(making.from_numpy(x, True), making.MAKERS["from_numpy"](x, True))
    same(making.from_numpy(x, weak=True), making.MAKERS["from_numpy"](x, weak=True))
    same(making.from_numpy(data=x), making.MAKERS["from_numpy"](x))
    for odd in (np.array(["a"]), np.array([object()]), np.zeros(2, "M8[s]")):
        with pytest.raises(fnx.errors.DTypeError):
            making.own(odd)


def test_more_types_than_are_remembered():
    for _ in range(2):
        for n in range(1500):
            x = np.full((n % 7, n), n, "i4")
            found = making.from_numpy(x)
            assert found.type is ArrayType((n % 7, n), dtypes.int32)
            assert found._data is x


def test_what_is_shared_and_what_is_copied():
    x = np.arange(6.0, dtype="f4")
    for _ in range(3):
        copied, shared = fnp.array(x), fnp.from_dlpack(x)
        assert np.shares_memory(shared._data, x)
        assert x.flags.writeable
        x[0] += 1
        assert copied[0] == x[0] - 1 and shared[0] == x[0]
    assert fnp.from_dlpack(shared).tolist() == x.tolist()
    assert fnp.from_dlpack(np.ones((2, 3), "i2").T).tolist() == [[1, 1]] * 3


def test_references():
    x = np.arange(6.0, dtype="f4")
    whole = making.from_numpy(x.copy())
    held = x, x.dtype, whole.type, whole._data, None
    calls = [
        lambda: making.from_numpy(x),
        lambda: making.own(x),
        lambda: making.wrap(whole._data, whole.type),
        lambda: fnp.array(x),
        lambda: fnp.array([1.0, 2.0]),
        lambda: making.from_numpy(np.ones(9, np.dtype("f4", metadata={"a": 1}))),
        lambda: outcome(making.own, "text"),
    ]
    for call in calls:
        call()
    counts = [sys.getrefcount(value) for value in held]
    tracemalloc.start()
    try:
        for call in calls:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(5000):
                call()
            assert tracemalloc.get_traced_memory()[0] - before < 5000
    finally:
        tracemalloc.stop()
    after = [sys.getrefcount(value) for value in held]
    assert all(abs(a - b) < 50 for a, b in zip(counts, after, strict=True))


def test_threads():
    wrong = []

    def work(n):
        for size in range(n, 3000, 6):
            x = np.full(size, n, "f4")
            if (
                making.own(x).type.shape != (size,)
                or making.own(x)._data.sum() != x.sum()
            ):
                wrong.append(size)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# ---------------------------------------------------------------- lists

LISTS = {
    "floats": [1.5, 2.0],
    "ints": [1, 2, 3],
    "bools": [True, False],
    "complex": [1j, 2j],
    "ints and floats": [1, 2.5],
    "bools and ints": [True, 2],
    "all kinds": [True, 2, 2.5, 1j],
    "nothing": [],
    "nothing in lists": [[], []],
    "nested": [[1, 2], [3, 4]],
    "deeply nested": [[[[1.0]]], [[[2.0]]]],
    "tuples in lists": [(1, 2), (3, 4)],
    "lists and tuples": [(1, 2), [3, 4]],
    "nested kinds": [[1, 2.5], [True, 3]],
    "a tuple": (1, 2.0),
    "NumPy numbers": [np.float64(1), 2.0],
    "NumPy numbers alone": [np.int8(1), np.int8(2)],
    "NumPy arrays": [np.ones(2, "f8"), np.ones(2, "f4")],
    "arrays and numbers": [fnp.ones(2), [1, 2]],
    "a list beside a number": [1, [2, 3]],
    "ragged": [[1, 2], [3]],
    "too large": [2**40],
    "text": ["a"],
    "None": [None],
}
# What JAX's lattice makes of the kinds, 32 bits wide.
EXPECTED = {
    **{"floats": "float32", "ints": "int32", "bools": "bool", "complex": "complex64"},
    **{"ints and floats": "float32", "bools and ints": "int32"},
    **{"all kinds": "complex64", "nothing": "float32", "nothing in lists": "float32"},
    **{"nested": "int32", "deeply nested": "float32", "tuples in lists": "int32"},
    **{"lists and tuples": "int32", "nested kinds": "float32", "a tuple": "float32"},
    **{"NumPy numbers": "float64", "NumPy numbers alone": "int8"},
    **{"NumPy arrays": "float64", "arrays and numbers": "float32"},
}


@pytest.mark.parametrize("name", LISTS)
def test_lists(name):
    value, expected = LISTS[name], EXPECTED.get(name)
    if expected is None:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            fnp.array(value)
        return
    plain = [np.asarray(x) for x in value]
    for wanted in (expected, "float64", "int16"):
        if "complex" in expected and wanted is not expected:
            continue
        found = fnp.array(value, None if wanted is expected else wanted)
        assert found.dtype is dtypes.as_dtype(wanted)
        np.testing.assert_array_equal(found, np.array(plain, wanted))
        assert not found._data.flags.writeable
    if expected.endswith("32") and "arrays" not in name:
        with dtypes.default_dtypes(64):
            assert fnp.array(value).dtype.itemsize == 8


def test_lists_while_tracing():
    jitted = fnx.jit(
        lambda x: (fnp.array([x, 1.0]), fnp.array([1, 2]), fnp.array([2.0]))
    )
    stacked, ints, floats = jitted(3.0)
    assert stacked.tolist() == [3.0, 1.0]
    assert ints.dtype == dtypes.int32 and floats.dtype == dtypes.float32
    assert fnx.jit(lambda x: fnp.array([[x, 2]], "int8"))(1.0).dtype == dtypes.int8
