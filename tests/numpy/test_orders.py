"""Known positions and eager calls: the same values as with traced operands.

Eagerly `searchsorted` and short sorts are NumPy's, and quantiles at known shares are
parts of the sorted elements; compiled code and traced shares take the general way.
"""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp

SPECIAL = [0.0, -0.0, np.nan, -np.inf, np.inf, 1.0, 1.0, -2.5, 3.0, np.nan, -0.0, 0.5]
METHODS = """linear lower higher midpoint nearest interpolated_inverted_cdf hazen
weibull median_unbiased normal_unbiased inverted_cdf""".split()


def bits(x):
    """The bits of an array, all NaNs alike."""
    x = np.asarray(x)
    return np.where(x != x, np.asarray(np.nan, x.dtype), x).tobytes()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
def test_quantiles_at_known_and_at_traced_shares_agree(method, dtype):
    rng = np.random.default_rng(3)
    x = fnp.array(rng.normal(size=(3, 7)) * 100).astype(dtype)
    for share in (0.0, 0.3, 0.5, 2 / 3, 0.99, 1.0):
        for axis in (None, 0, 1):
            known = fnp.quantile(x, share, axis, method=method)
            traced = fnx.jit(
                lambda q, axis=axis: fnp.quantile(x, q, axis, method=method)
            )(fnp.array(share, known.dtype))
            assert known.type == traced.type
            np.testing.assert_allclose(
                np.asarray(known, float), np.asarray(traced, float), 1e-6
            )
    shares = np.array([[0.1, 0.9]], known.dtype)
    known = fnp.quantile(x, shares, 1, method=method, keepdims=True)
    wanted = [fnp.quantile(x, float(q), 1, method=method) for q in shares[0]]
    assert known.shape == (1, 2, 3, 1)
    assert bits(known) == bits(fnp.stack(wanted))


def test_quantiles_of_infinities_and_of_nan():
    x = np.array([[1.0, np.inf, np.inf], [-np.inf, 0.0, np.inf], [2.0, np.nan, 1.0]])
    rows = [(1.0, -np.inf), (np.inf, 0.0), (np.inf,) * 2, (np.inf,) * 2]
    for share, wanted in zip((0.0, 0.5, 0.75, 1.0), rows, strict=True):
        assert bits(fnp.quantile(x, share, 1)) == bits(np.array([*wanted, np.nan]))
    assert np.isnan(fnp.quantile(x, 0.5)) and np.isnan(fnp.quantile(x[0], np.nan))
    assert fnp.quantile(x[0], 0.5) == np.inf
    assert fnp.quantile(x, np.zeros(0), 1).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("size", [1, 12, 300, 1000])
def test_sorts_of_every_length_are_stable(dtype, size):
    x = fnp.array(np.resize(SPECIAL, size)).astype(dtype)
    wide = np.asarray(x, np.float32)
    order = np.lexsort(
        [np.arange(size), np.where(np.isnan(wide), 0, wide), wide != wide]
    )
    np.testing.assert_array_equal(fnp.argsort(x), order)
    assert bits(fnp.sort(x)) == bits(fnp.array(np.asarray(x)[order]))
    rows = fnp.stack([x, x[::-1]], 1)
    np.testing.assert_array_equal(fnp.argsort(rows, 0)[:, 0], order)
    assert bits(fnp.sort(rows, 0)[:, 0]) == bits(fnp.sort(x))


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16", "int8", "uint32"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_places_are_the_same_eagerly_and_compiled(dtype, side):
    values = np.array(SPECIAL)
    if dtype in ("int8", "uint32"):
        values = np.nan_to_num(values, posinf=100, neginf=0).clip(0)
    x, v = fnp.sort(fnp.array(values).astype(dtype)), fnp.array(values).astype(dtype)
    eager = fnp.searchsorted(x, v[:, None], side)
    traced = fnx.jit(lambda x, v: fnp.searchsorted(x, v, side))(x, v[:, None])
    assert eager.type == traced.type
    np.testing.assert_array_equal(eager, traced)
    assert fnp.searchsorted(x[:0], v, side).tolist() == [0] * len(values)
