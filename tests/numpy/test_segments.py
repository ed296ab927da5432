"""fnx.ops.segment_sum and its kin: against NumPy loops, gradients, options, errors."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.testing.gradients import check_grads

KINDS = {
    "segment_sum": (np.add, 0),
    "segment_prod": (np.multiply, 1),
    "segment_max": (np.maximum, None),
    "segment_min": (np.minimum, None),
}
IDS = np.array([2, 0, 0, 5, -1, 2, 2, 3])
kinds = pytest.mark.parametrize("name", KINDS)


def identity(name, dtype):
    if KINDS[name][1] is not None:
        return KINDS[name][1]
    sign = -1 if name == "segment_max" else 1
    if np.dtype(dtype).kind == "f":
        return sign * np.inf
    info = np.iinfo(dtype)
    return info.min if sign < 0 else info.max


def combined(name, data, ids, count):
    out = np.full((count, *data.shape[1:]), identity(name, data.dtype), data.dtype)
    for row, number in zip(data, ids, strict=True):
        if 0 <= number < count:
            out[number] = KINDS[name][0](out[number], row)
    return out


@kinds
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "float16"])
@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 2, 0)], ids=str)
def test_segments(name, dtype, shape):
    data = np.random.default_rng(0).integers(1, 5, shape).astype(dtype)
    function = getattr(fnx.ops, name)
    for count in (0, 1, 4, 7):
        want = combined(name, data, IDS, count)
        for size in (None, 1, 3, 100):
            got = function(data, IDS, count, bucket_size=size)
            assert got.dtype == dtype and got.shape == want.shape
            np.testing.assert_array_equal(got, want)
    got = function(data, IDS)  # as many as the largest number asks for
    np.testing.assert_array_equal(got, combined(name, data, IDS, 6))
    jitted = fnx.jit(function, static_argnums=2)(data, IDS, 7)
    np.testing.assert_array_equal(jitted, combined(name, data, IDS, 7))


@kinds
def test_options(name):
    data = np.arange(1.0, 9.0)
    function = getattr(fnx.ops, name)
    clipped = combined(name, data, np.clip(IDS, 0, 3), 4)
    np.testing.assert_array_equal(function(data, IDS, 4, mode="clip"), clipped)
    np.testing.assert_array_equal(
        function(data, IDS, 4, mode="drop"), combined(name, data, IDS, 4)
    )
    once = np.array([3, 1, 0, 2, 7, 6, 5, 4])
    got = function(data, once, 9, unique_indices=True)
    np.testing.assert_array_equal(got, combined(name, data, once, 9))
    got = function(data, np.sort(IDS), 6, indices_are_sorted=True)
    np.testing.assert_array_equal(got, combined(name, data, np.sort(IDS), 6))


@kinds
def test_empty(name):
    function = getattr(fnx.ops, name)
    none = np.zeros(0, np.int32)
    assert function(np.zeros((0, 3)), none).shape == (0, 3)
    want = combined(name, np.zeros((0, 3)), none, 2)
    np.testing.assert_array_equal(function(np.zeros((0, 3)), none, 2), want)


@kinds
@pytest.mark.parametrize("size", [None, 3])
def test_derivatives(name, size):
    data = np.random.default_rng(1).standard_normal((8, 2)) + 3
    function = getattr(fnx.ops, name)
    ids = np.array([2, 0, 0, 5, -1, 1, 2, 3])
    check_grads(lambda x: fnp.exp(-function(x, ids, 4, bucket_size=size)), (data,), 2)


def test_products_with_zeros_have_right_derivatives():
    data, ids = np.array([0.0, 2.0, 3.0, 0.0, 0.0, 5.0]), np.array([0, 0, 0, 1, 1, 2])
    grad = fnx.grad(lambda x: fnp.sum(fnx.ops.segment_prod(x, ids, 3)))(data)
    assert grad.tolist() == [6, 0, 0, 0, 0, 1]


def test_ties_share_the_derivative():
    data, ids = np.array([1.0, 2.0, 2.0, 3.0]), np.array([0, 0, 0, 1])
    grad = fnx.grad(lambda x: fnp.sum(fnx.ops.segment_max(x, ids, 2)))(data)
    assert grad.tolist() == [0, 0.5, 0.5, 1]


@kinds
def test_members_are_those_of_a_loop(name):
    data = np.random.default_rng(2).standard_normal((3, 8, 2))
    ids = np.random.default_rng(3).integers(-1, 5, (3, 8))
    function = getattr(fnx.ops, name)
    got = fnx.vmap(lambda x, i: function(x, i, 4))(data, ids)
    want = [combined(name, x, i, 4) for x, i in zip(data, ids, strict=True)]
    np.testing.assert_array_equal(got, want)


def test_errors():
    data = np.ones((3, 2))
    with pytest.raises(errors.ShapeError, match=r"segment_ids is i64\[2\]"):
        fnx.ops.segment_sum(data, np.arange(2))
    with pytest.raises(errors.DTypeError, match="segment_ids must be integers"):
        fnx.ops.segment_max(data, np.ones(3))
    with pytest.raises(errors.ArgumentError, match="pass num_segments="):
        fnx.jit(fnx.ops.segment_sum)(data, np.arange(3))
    with pytest.raises(errors.ArgumentError, match=r"num_segments must be .* got -1"):
        fnx.ops.segment_sum(data, np.arange(3), -1)
    with pytest.raises(errors.ArgumentError, match=r"bucket_size must be .* got 0"):
        fnx.ops.segment_prod(data, np.arange(3), bucket_size=0)
    with pytest.raises(errors.DTypeError, match=r"data is bool\[3\]"):
        fnx.ops.segment_max(data[:, 0] > 0, np.arange(3))
    with pytest.raises(AttributeError, match="no attribute 'segment_mean'"):
        _ = fnx.ops.segment_mean
