"""Concrete arrays: read-only, shared with NumPy, copied, pickled and exported."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fnx.numpy
from fnx import dtypes
from fnx.core.types import ArrayType
from fnx.runtime.array import from_numpy, wrap


def array(dtype: Any = "f4") -> Any:
    return from_numpy(np.arange(6).reshape(2, 3).astype(dtype))


def test_numpy_sees_it_without_a_copy_and_cannot_write() -> None:
    x = array()
    view = np.asarray(x)
    assert np.shares_memory(view, np.asarray(x))
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    copied = np.array(x)
    copied[0, 0] = 7
    assert np.asarray(x)[0, 0] == 0
    assert np.asarray(x, np.float64).dtype == np.float64


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "u8", "bool", "c16"])
def test_dlpack_shares_memory(dtype: str) -> None:
    x = array(dtype)
    view = np.from_dlpack(x)
    assert np.shares_memory(view, np.asarray(x))
    np.testing.assert_array_equal(view, np.asarray(x))
    assert not view.flags.writeable


@pytest.mark.parametrize("dtype", ["f4", ml_dtypes.bfloat16, "c8", "bool"])
def test_pickle_and_copy(dtype: Any) -> None:
    x = array(dtype)
    again = pickle.loads(pickle.dumps(x))
    assert again.type is x.type
    np.testing.assert_array_equal(np.asarray(again), np.asarray(x))
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(again)[0, 0] = 1
    assert copy.copy(x) is x
    assert copy.deepcopy([x])[0] is x


def test_weakness_survives_pickling() -> None:
    x = wrap(np.float32(2.0), ArrayType((), np.dtype("f4"), True))
    assert pickle.loads(pickle.dumps(x)).weak_type


def test_a_type_has_the_canonical_dtype_whoever_comes_first() -> None:
    unpickled = pickle.loads(pickle.dumps(np.ones(23, "f4")))
    tagged = np.dtype("i4", metadata={"unit": "m"})
    for data in (unpickled, np.ones(29, tagged), np.ones(31, "longlong")):
        assert all(data.dtype is not dtype for dtype in dtypes.SUPPORTED)
        assert any(fnx.numpy.array(data).dtype is dtype for dtype in dtypes.SUPPORTED)


def test_repr() -> None:
    assert repr(from_numpy(np.array([1.0, 2.5], "f4"))) == (
        "Array([1. , 2.5], dtype=float32)"
    )
    weak = wrap(np.float32(2.0), ArrayType((), np.dtype("f4"), True))
    assert repr(weak) == "Array(2., dtype=float32, weak_type=True)"
    none = from_numpy(np.zeros((0, 3), "f4"))
    assert repr(none) == "Array([], shape=(0, 3), dtype=float32)"
    assert repr(from_numpy(np.zeros(0, "i4"))) == "Array([], dtype=int32)"


def test_formats() -> None:
    number, row = from_numpy(np.array(2.5, "f4")), from_numpy(np.array([1, 2], "i4"))
    assert (
        f"{number:.3f}|{number:>6}|{row:>8}|{row:^8s}"
        == "2.500|   2.5|   [1 2]| [1 2]  "
    )
    with pytest.raises(
        TypeError, match=r"'.2f' is that of one number, this is i32\[2\]"
    ):
        format(row, ".2f")


def test_bytes() -> None:
    x = np.arange(6, dtype="i2").reshape(2, 3)
    assert from_numpy(x).tobytes() == x.tobytes()
    assert from_numpy(x).tobytes("F") == x.tobytes("F")


def test_python_conversions() -> None:
    three = from_numpy(np.array(3, "i4"))
    assert [10, 20, 30, 40][three] == 40
    assert int(three) == 3
    assert float(from_numpy(np.array(0.5, "f4"))) == 0.5
    assert complex(from_numpy(np.array(1 + 2j, "c8"))) == 1 + 2j
    assert bool(from_numpy(np.array(True)))
    assert f"{from_numpy(np.array(0.125, 'f4')):.2f}" == "0.12"
    assert array().tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(TypeError, match=r"index.*f32\[\]"):
        [1, 2][from_numpy(np.array(1.0, "f4"))]
    with pytest.raises(TypeError, match="rank 0"):
        len(three)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(array())


def test_iteration_and_length() -> None:
    rows = list(array())
    assert len(array()) == 2
    assert [np.asarray(r).tolist() for r in rows] == [[0, 1, 2], [3, 4, 5]]


def test_numpy_defers_to_our_operators() -> None:
    total = np.ones((2, 3), "f4") + array()
    assert isinstance(total, fnx.Array)
    assert isinstance(np.float32(2) * array(), fnx.Array)


def test_it_is_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(array())
