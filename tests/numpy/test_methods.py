"""Operators and methods of arrays, concrete and traced."""

from __future__ import annotations

import math
import operator
import pickle

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors

X = np.array([[1.5, -2.0, 3.0], [4.0, 5.5, -6.0]], "f4")
I = np.array([[7, -2, 3], [4, 5, -6]], "i4")  # noqa: E741

OPERATORS = "add sub mul truediv floordiv mod eq ne lt le gt ge".split()


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("data", [X, I], ids=["f4", "i4"])
def test_binary_operators(name, data):
    f = getattr(operator, name)
    x = fnp.array(data)
    for other in (2, data[0], np.int32(2)):
        np.testing.assert_allclose(f(x, other), f(data, other), rtol=1e-6)
        np.testing.assert_allclose(f(other, x), f(other, data), rtol=1e-6)
        traced = fnx.jit(lambda x, other=other: f(x, other))(x)
        np.testing.assert_allclose(traced, f(data, other), rtol=1e-6)


def test_other_operators():
    x, i = fnp.array(X), fnp.array(I)
    np.testing.assert_array_equal(-x, -X)
    np.testing.assert_array_equal(+x, X)
    np.testing.assert_array_equal(abs(x), abs(X))
    np.testing.assert_array_equal(~i, ~I)
    np.testing.assert_array_equal(i & 3, I & 3)
    np.testing.assert_array_equal(3 | i, 3 | I)
    np.testing.assert_array_equal(i ^ i, I ^ I)
    np.testing.assert_array_equal(i << 1, I << 1)
    np.testing.assert_array_equal(i >> 1, I >> 1)
    np.testing.assert_array_equal(x**2, X**2)
    np.testing.assert_allclose(2**x, 2**X, rtol=1e-6)
    np.testing.assert_allclose(x @ x.T, X @ X.T)
    quotient, rest = divmod(i, 4)
    np.testing.assert_array_equal(quotient, I // 4)
    np.testing.assert_array_equal(rest, I % 4)
    assert round(fnp.float32(2.346), 2) == fnp.float32(2.35)
    assert 5.5 in x
    assert 99 not in x


METHODS = [
    ("sum", ()),
    ("sum", (0,)),
    ("prod", ()),
    ("mean", (1,)),
    ("var", ()),
    ("std", (0,)),
    ("min", ()),
    ("max", (1,)),
    ("ptp", ()),
    ("any", ()),
    ("all", (0,)),
    ("argmax", (1,)),
    ("argmin", ()),
    ("cumsum", (0,)),
    ("cumprod", (1,)),
    ("argsort", (1,)),
    ("clip", (-1, 2)),
    ("conj", ()),
    ("copy", ()),
    ("diagonal", ()),
    ("dot", (X.T,)),
    ("flatten", ()),
    ("ravel", ()),
    ("repeat", (2, 0)),
    ("reshape", (3, 2)),
    ("reshape", ((3, -1),)),
    ("round", ()),
    ("squeeze", ()),
    ("swapaxes", (0, 1)),
    ("take", (np.array([1, 0]),)),
    ("transpose", ()),
    ("transpose", (1, 0)),
    ("transpose", ((1, 0),)),
    ("trace", ()),
    ("astype", ("int32",)),
    ("nonzero", ()),
]


@pytest.mark.parametrize(("name", "args"), METHODS, ids=lambda x: str(x)[:20])
def test_methods(name, args):
    source = np if name == "ptp" else None
    want = source.ptp(X) if source else getattr(X, name)(*args)
    got = getattr(fnp.array(X), name)(*args)
    for g, w in zip(
        got if isinstance(got, tuple) else [got],
        want if isinstance(want, tuple) else [want],
        strict=True,
    ):
        np.testing.assert_allclose(g, w, rtol=1e-5)


def test_properties():
    x = fnp.array(X)
    assert x.T.shape == (3, 2)
    assert x[None].mT.shape == (1, 3, 2)
    assert x.real is x
    assert x.imag.tolist() == [[0.0] * 3] * 2
    assert (x * 1j).imag.tolist() == X.tolist()
    assert (x.shape, x.ndim, x.size, x.nbytes, len(x)) == ((2, 3), 2, 6, 24, 2)
    assert x.at[0, 0].set(9.0)[0, 0] == 9
    assert fnp.sort(x).tolist() == np.sort(X).tolist()
    assert x.sort().tolist() == np.sort(X).tolist()


def test_view_reads_bits():
    x = fnp.array([1.0])
    assert x.view("int32").tolist() == [1065353216]
    assert x.view("uint8").tolist() == [0, 0, 128, 63]
    assert fnx.jit(lambda x: x.view("int32"))(x).tolist() == [1065353216]
    table = np.array([[1.5, -np.pi], [np.nan, -0.0]])
    for dtype in ("uint8", "int16", "uint32", "float16", "float32", "complex64"):
        viewed = fnp.array(table).view(dtype)
        assert viewed.dtype == dtype
        assert np.asarray(viewed).tobytes() == table.view(dtype).tobytes()
        assert viewed.view("float64").shape == (2, 2)
        if dtype != "complex64":
            traced = fnx.jit(lambda x, dtype=dtype: x.view(dtype).view("float64"))
            assert np.asarray(traced(table)).tobytes() == table.tobytes()
    with pytest.raises(errors.ShapeError, match="no whole number of float64"):
        fnp.zeros((2, 3), "int32").view("float64")
    with pytest.raises(errors.ShapeError, match="no axis"):
        fnp.float32(1).view("uint8")


def test_iteration_and_conversion():
    x = fnp.array(X)
    assert [row.tolist() for row in x] == X.tolist()
    a, b = fnx.jit(lambda x: tuple(x))(x)
    assert [a.tolist(), b.tolist()] == X.tolist()
    assert float(x[0, 0]) == 1.5
    assert x.tolist() == X.tolist()
    assert x.item(0) == 1.5
    assert f"{x[0, 0]:.2f}" == "1.50"
    assert list(range(fnp.array(3))) == [0, 1, 2]
    assert pickle.loads(pickle.dumps(x)).tolist() == X.tolist()
    assert math.isclose(x.sum(), X.sum())
    with pytest.raises(TypeError):
        hash(x)


def test_tracers_have_the_same_members():
    seen = {}

    def f(x):
        seen["ready"] = x.block_until_ready() is x
        seen["mean"] = x.mean(axis=0)
        return (x.T @ x).sum() + x.at[0].get().sum()

    assert np.isclose(fnx.jit(f)(fnp.array(X)), (X.T @ X).sum() + X[0].sum())
    assert seen["ready"]


def test_unknown_operands_are_left_to_others():
    class Other:
        def __radd__(self, other):
            return "mine"

    assert fnp.ones(2) + Other() == "mine"
    with pytest.raises(TypeError):
        fnp.ones(2) + "text"
    assert (fnp.ones(2) == None) is False  # noqa: E711
    with pytest.raises(errors.ArgumentError, match="rank 0"):
        iter(fnp.float32(1))
