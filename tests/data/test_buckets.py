"""Bucketing: what padded batches hold, which sizes they get, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.data import bucket_size, pad_to_bucket


def test_the_usual_buckets() -> None:
    sizes = [0, 1, 8, 9, 12, 13, 17, 24, 25, 1000, 1024, 1025]
    wanted = [8, 8, 8, 12, 12, 16, 24, 24, 32, 1024, 1024, 1536]
    assert [bucket_size(size) for size in sizes] == wanted


def test_buckets_of_the_user() -> None:
    assert [bucket_size(n, (5, 10, 70)) for n in (0, 5, 6, 70)] == [5, 5, 10, 70]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_real_elements_stay_and_padding_follows(axis: int) -> None:
    batch = {
        "x": np.arange(81, dtype=np.int16).reshape(9, 9),
        "y": (np.ones((9, 9), bool), [np.full((9, 9), 1.5, np.float32)]),
    }
    padded, mask = pad_to_bucket(batch, axis, value=1)
    assert mask.dtype == bool
    assert mask.tolist() == [True] * 9 + [False] * 3
    for old, new in zip(fnx.tree.leaves(batch), fnx.tree.leaves(padded), strict=True):
        assert type(new) is np.ndarray
        assert new.dtype == old.dtype
        moved = np.moveaxis(new, axis, 0)
        np.testing.assert_array_equal(moved[:9], np.moveaxis(old, axis, 0))
        assert moved.shape[0] == 12
        assert (moved[9:] == 1).all()


def test_arrays_of_fnx_stay_such_arrays() -> None:
    padded, mask = pad_to_bucket({"a": fnp.ones((3, 2)), "b": np.zeros(3)})
    assert isinstance(padded["a"], fnx.Array)
    assert isinstance(padded["b"], np.ndarray)
    assert isinstance(mask, fnx.Array)
    assert padded["a"].shape == (8, 2)


def test_a_full_bucket_and_an_empty_batch() -> None:
    x, mask = pad_to_bucket(np.ones((8, 2)))
    assert x.shape == (8, 2)
    assert mask.all()
    x, mask = pad_to_bucket(np.ones((0, 2)), buckets=[4], value=7.0)
    assert (x == 7).all()
    assert x.shape == (4, 2)
    assert not mask.any()


def test_one_compile_for_each_bucket_with_exact_gradients() -> None:
    def loss(w: Any, x: Any, y: Any, mask: Any) -> Any:
        return ((x @ w - y) ** 2).mean(where=mask)

    step = fnx.jit(fnx.value_and_grad(loss))
    rng = np.random.default_rng(0)
    w = rng.standard_normal(3)
    for size in (3, 40, 50, 5, 64):
        x, y = rng.standard_normal((size, 3)), rng.standard_normal(size)
        (padded, targets), mask = pad_to_bucket((x, y), buckets=[8, 64])
        value, slope = step(w, padded, targets, mask)
        error = x @ w - y
        np.testing.assert_allclose(value, (error**2).mean(), rtol=1e-5)
        np.testing.assert_allclose(slope, 2 * x.T @ error / size, rtol=1e-4, atol=1e-5)
    assert step.cache_info().misses == 2


@pytest.mark.parametrize("buckets", [[], [0, 8], [8, 8], [16, 8], [8.5], ["a"], 8])
def test_buckets_must_increase(buckets: Any) -> None:
    with pytest.raises(errors.OptionError, match="increasing order"):
        bucket_size(3, buckets)


def test_mistakes_name_the_leaf() -> None:
    with pytest.raises(errors.ShapeError, match=r"size of 9 and buckets=\[8\]"):
        pad_to_bucket(np.ones(9), buckets=[8])
    with pytest.raises(errors.AxisError, match=r"axis 1 of batch\['y'\].*\(3,\)"):
        pad_to_bucket({"x": np.ones((3, 4)), "y": np.ones(3)}, 1)
    with pytest.raises(errors.ShapeError, match=r"batch\['y'\] has size 4.*'x'.* 3"):
        pad_to_bucket({"x": np.ones(3), "y": np.ones(4)})
    with pytest.raises(errors.AxisError, match=r"axis \[8\] of batch: .*\(3,\)"):
        pad_to_bucket(np.ones(3), [8])  # type: ignore[arg-type]
    with pytest.raises(errors.ArgumentError, match="no arrays"):
        pad_to_bucket({})


@pytest.mark.parametrize("like", [np.asarray, fnp.asarray])
def test_a_value_that_a_leaf_cannot_hold_raises(like: Any) -> None:
    """NumPy would wrap it around, cut it off, or drop its imaginary part."""
    cases = [
        *(("int8", 300), ("int8", -129), ("uint8", -1), ("int32", 1.5), ("int32", 1j)),
        *(("int32", np.nan), ("bool", 2), ("float32", 1j), ("int64", 1e300)),
    ]
    for dtype, value in cases:
        batch = {"x": like(np.ones(3, "complex64")), "y": like(np.ones(3, dtype))}
        with pytest.raises(errors.DTypeError, match=rf"batch\['y'\].*{dtype}"):
            pad_to_bucket(batch, value=value)
    for dtype, value in [("int8", -128), ("uint8", 255.0), ("bool", 1), ("int64", 7)]:
        x, _ = pad_to_bucket(like(np.zeros(3, dtype)), value=value)
        assert x[-1] == value
    x, _ = pad_to_bucket(like(np.ones(3, "float16")), value=0.1)
    assert x[-1] == np.float16(0.1)
    x, _ = pad_to_bucket(like(np.ones(3, "complex64")), value=2j)
    assert x[-1] == 2j
