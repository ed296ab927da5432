"""The places of the largest elements, against a stable sort of everything."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fnx import lax
from fnx.ops.largest import largest_places


def sorted_places(x, k):
    """By Python's sort: NaN first, then descending; of equal elements the first."""

    def key(place, row):
        value = float(row[place])
        return (0, 0.0) if np.isnan(value) else (1, -value)

    rows = x.reshape(-1, x.shape[-1])
    found = [sorted(range(len(r)), key=lambda n, r=r: key(n, r))[:k] for r in rows]
    return np.array(found, int).reshape(*x.shape[:-1], k)


KINDS = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "few values": lambda rng, shape: np.round(8 * rng.standard_normal(shape)),
    "ascending": lambda rng, shape: np.sort(rng.standard_normal(shape), -1),
    "NaNs": lambda rng, shape: np.where(
        rng.random(shape) < 0.03, np.nan, rng.standard_normal(shape)
    ),
    "infinite": lambda rng, shape: rng.choice([np.inf, -np.inf, 0.0, -0.0, 1], shape),
    "equal": lambda rng, shape: np.ones(shape),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5000,), (7, 300), (3, 2, 641), (4, 64), (0, 90)])
def test_top_k_is_that_of_a_sort(kind, shape, rng):
    for k in (0, 1, 3, 20, 60):
        x = KINDS[kind](rng, shape)
        values, places = lax.top_k(x, k)
        wanted = sorted_places(x, k)
        np.testing.assert_array_equal(places, wanted)
        np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, -1))


@pytest.mark.parametrize("dtype", ["int8", "uint32", "bool", "float16", "bfloat16"])
def test_top_k_of_other_dtypes_and_along_other_axes(dtype, rng):
    dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    x = np.abs(rng.standard_normal((400, 3)) * 20).astype(dtype)
    values, places = lax.top_k(x, 5, axis=0)
    wanted = sorted_places(x.T, 5).T
    np.testing.assert_array_equal(places, wanted)
    assert values.dtype == x.dtype
    np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, 0))


def test_when_rows_are_not_sorted(rng):
    x = rng.standard_normal((10, 2000))
    assert largest_places(x, 7).shape == (10, 7)
    assert largest_places(np.ones((10, 2000)), 7) is None  # nobody is below the bound
    assert largest_places(x, 1000) is None  # too many
    assert largest_places(x[:, :40], 2) is None  # short
