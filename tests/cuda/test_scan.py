"""Running values of long rows, in chunks: the CPU's, and the same bits in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx.numpy as fnp
from fnx import lax
from fnx.kernel.grid import LONG_ROW
from tests.cuda.compare import assert_same, bits, on_device

pytestmark = pytest.mark.cuda

LENGTHS = (LONG_ROW, LONG_ROW + 1, 9 * 2048, 20_001)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("reverse", [False, True])
def test_integers(gpu, rng, length: int, reverse: bool) -> None:
    x = rng.integers(-(2**31), 2**31, (2, length), np.int32)
    assert_same(lambda x: lax.cumsum(x, axis=1, reverse=reverse), x)
    assert_same(lambda x: lax.cummin(x, axis=1, reverse=reverse), x)


@pytest.mark.parametrize("length", LENGTHS)
def test_sums_of_floats(gpu, rng, length: int) -> None:
    x = rng.standard_normal(length).astype("f4")
    (found,) = on_device(lambda x: fnp.cumsum(x * 2) + 1, x)
    expected = np.cumsum(2 * x.astype("f8")) + 1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    (again,) = on_device(lambda x: fnp.cumsum(x * 2) + 1, x)
    np.testing.assert_array_equal(bits(found), bits(again))


@pytest.mark.parametrize("shape", [(1000, 20), (257, 16), (256, 300), (17_000, 3)])
def test_along_the_first_axis(gpu, rng, shape: Any) -> None:
    x = rng.integers(-9, 9, shape, np.int32)
    assert_same(lambda x: fnp.cumsum(x, axis=0), x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_products_and_extremes_of_other_floats(gpu, rng, dtype: str) -> None:
    x = (1 + rng.standard_normal(17_000) / 300).astype(fnp.dtype(dtype))
    (found,) = on_device(lambda x: lax.cumprod(x, axis=0), x)
    wide = np.float64 if dtype == "float64" else np.float32
    expected = np.cumprod(x.astype(wide)).astype(x.dtype)
    rtol = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol)
    assert_same(lambda x: lax.cummax(x, axis=0), x)


@pytest.mark.parametrize("length", [31, 32, 36, 124, 128, 132, 640, 1000, 2052])
def test_rows_that_threads_share_by_vectors(gpu, rng, length: int) -> None:
    x = rng.integers(-99, 99, (3, length), np.int32)
    assert_same(lambda x: fnp.cumsum(x * 2, axis=1) + x, x)
    assert_same(lambda x: lax.cummax(x.astype(np.int8), axis=1), x)
    assert_same(lambda x: lax.cumsum(x, axis=1, reverse=True), x)


def test_a_nan_stays_from_where_it_is_on(gpu, rng) -> None:
    x = rng.standard_normal(18_000).astype("f4")
    x[4500] = np.nan
    found = np.stack(on_device(lambda x: (fnp.cumsum(x), lax.cummax(x, axis=0)), x))
    np.testing.assert_array_equal(np.isnan(found), np.arange(18_000) >= [[4500]] * 2)


def test_zeros_keep_their_sign(gpu) -> None:
    x = np.full(17_000, -0.0, "f4")
    assert_same(lambda x: fnp.cumsum(x), x)
