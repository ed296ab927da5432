"""Folds down the columns of matrices, in groups of rows: values, NaN, threads."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp

# Columns of short rows and of long ones; blocks of one group, of several, and a rest.
SHAPES = [(1024, 300), (517, 129), (1003, 128), (100, 5000), (33, 9000), (264, 1025)]


@pytest.fixture(autouse=True)
def _restored():
    before = fnx.num_threads()
    yield
    fnx.set_num_threads(before)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32"])
def test_values(shape, dtype, rng):
    x = (9 * rng.standard_normal(shape)).astype(dtype)
    weights = rng.standard_normal(shape[0]).astype(dtype)

    def folds(x, weights):
        return x.sum(0), x.max(0), x.min(0), weights @ x, x.any(0), x.argmin(0)

    wide = x.astype("int64" if dtype == "int32" else "float64")
    wanted = folds(wide, weights.astype(wide.dtype))
    f = fnx.jit(folds)
    fnx.set_num_threads(1)
    found = f(x, weights)
    tolerance = {"float32": 2e-6, "float64": 4e-15, "float16": 2e-3, "int32": 0}[dtype]
    for result, value in zip(found, wanted, strict=True):
        scale = np.sqrt(shape[0]) * 81
        error = np.abs(np.asarray(result, wide.dtype) - value.astype(wide.dtype))
        assert error.max() <= tolerance * scale
    for alone, value in zip(found[1:3], wanted[1:3], strict=True):
        np.testing.assert_array_equal(np.asarray(alone, wide.dtype), value)
    fnx.set_num_threads(3)
    again = f(x, weights)
    for one, other in zip(found, again, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_products_of_each_column(rng):
    x = 1 + 0.01 * rng.standard_normal((999, 301))
    np.testing.assert_allclose(fnx.jit(lambda x: x.prod(0))(x), x.prod(0), rtol=1e-12)


def test_negative_zeros_and_nan_stay():
    x = np.full((256, 512), -0.0, np.float32)
    assert np.signbit(fnx.jit(lambda x: x.sum(0))(x)).all()
    x[200, 7] = np.nan
    for fold in (fnp.sum, fnp.max, fnp.min, fnp.prod):
        found = np.asarray(fnx.jit(lambda x, fold=fold: fold(x, 0))(x))
        assert np.flatnonzero(np.isnan(found)).tolist() == [7]
