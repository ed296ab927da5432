"""ravel_pytree and fnx.dlpack."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.flatten_util import ravel_pytree

TREE = {"w": np.arange(6.0).reshape(2, 3), "b": [np.float64(7), np.zeros((0, 2))]}


def test_a_tree_and_back():
    flat, back = ravel_pytree(TREE)
    assert flat.dtype == np.float64 and flat.tolist() == [7, 0, 1, 2, 3, 4, 5]
    again = back(flat)
    assert fnx.tree.structure(again) == fnx.tree.structure(TREE)
    for x, y in zip(fnx.tree.leaves(again), fnx.tree.leaves(TREE), strict=True):
        assert x.shape == np.shape(y)
        np.testing.assert_array_equal(x, y)
    # one dtype for all: the vector's is passed on
    assert back(fnp.asarray(flat, "float16"))["w"].dtype == np.float16


def test_several_dtypes():
    tree = {"i": np.arange(3), "f": np.ones(2, "f4"), "c": np.complex64(1j)}
    flat, back = ravel_pytree(tree)
    assert flat.dtype == np.complex64
    again = back(2 * flat)
    assert [again[k].dtype for k in "ifc"] == [np.int64, np.float32, np.complex64]
    assert again["i"].tolist() == [0, 2, 4] and again["c"] == 2j
    with pytest.raises(errors.DTypeError, match=r"vector is f32\[6\].*c64\[6\]"):
        back(fnp.ones(6))


def test_no_leaves_and_scalars():
    flat, back = ravel_pytree({})
    assert flat.shape == (0,) and flat.dtype == np.float32 and back(flat) == {}
    flat, back = ravel_pytree(2.0)
    assert flat.tolist() == [2.0] and back(flat).shape == ()
    with pytest.raises(errors.ShapeError, match=r"shape \(1,\), got f32\[2\]"):
        back(fnp.ones(2))
    with pytest.raises(errors.ArgumentError, match="pytree"):
        ravel_pytree({"x": "text"})


def test_transformations():
    flat, back = ravel_pytree(TREE)

    def loss(vector):
        tree = back(vector)
        return fnp.sum(tree["w"] ** 2) + tree["b"][0] ** 3

    want = [3 * 49, 0, 2, 4, 6, 8, 10]
    assert fnx.grad(loss)(flat).tolist() == want
    assert fnx.jit(fnx.grad(loss))(flat).tolist() == want
    many = fnx.vmap(back)(fnp.stack([flat, flat]))
    assert many["w"].shape == (2, 2, 3)
    gradient = fnx.grad(lambda tree: fnp.sum(ravel_pytree(tree)[0] ** 2))(TREE)
    np.testing.assert_array_equal(gradient["w"], 2 * TREE["w"])
    vectors = fnx.vmap(lambda tree: ravel_pytree(tree)[0])(many)
    assert vectors.shape == (2, 7)


def test_dlpack():
    x = fnx.dlpack.from_dlpack(np.arange(3.0))
    assert isinstance(x, fnx.Array) and x.tolist() == [0, 1, 2]
    assert np.from_dlpack(x).tolist() == [0, 1, 2]
    data = np.arange(3.0)
    mine = fnx.dlpack.from_dlpack(data, None, True)
    data[0] = 7
    assert mine.tolist() == [0, 1, 2]
    for dtype in ("bool", "int8", "uint64", "float16", "complex64", ml_dtypes.bfloat16):
        assert fnx.dlpack.is_supported_dtype(dtype)
    for dtype in ("datetime64[s]", "U3", object):
        assert not fnx.dlpack.is_supported_dtype(dtype)
    with pytest.raises(errors.DTypeError, match="None"):
        fnx.dlpack.is_supported_dtype(None)


@pytest.mark.oracle
def test_a_tensor_of_torch():
    torch = pytest.importorskip("torch")
    tensor = torch.arange(4, dtype=torch.float32)
    x = fnx.dlpack.from_dlpack(tensor)
    assert (x * 2).tolist() == [0, 2, 4, 6]
