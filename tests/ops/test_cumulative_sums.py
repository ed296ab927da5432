"""Long cumulative sums are sums of chunks: accurate, and the same for all threads."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax

_RNG = np.random.default_rng(7)


@pytest.mark.parametrize("n", [2**24 + 3000, 3 * 10**7])
def test_ones_are_counted_beyond_the_integers_of_float32(n):
    x = fnp.ones(n, "float32")
    for total in (fnp.cumsum, fnx.jit(fnp.cumsum)):
        out = np.asarray(total(x))
        assert out[-1] == np.float32(n)
        places = np.array([0, 999, 1040, 5000, 2**24 + 1000])
        np.testing.assert_allclose(out[places], places + 1, rtol=2e-7)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "complex64", "float64"])
@pytest.mark.parametrize("n", [2095, 2096, 4097, 33_333])
def test_whole_numbers_are_exact(n, dtype, reverse, axis):
    shape = [2, 1, 3]
    shape[axis] = n
    x = _RNG.integers(0, 9, shape).astype(dtype)
    if dtype == "complex64":
        x = x + np.complex64(1j) * x[::-1]
    f = fnx.jit(lambda x: lax.cumsum(x, axis=axis, reverse=reverse))
    turned = np.flip(x, axis) if reverse else x
    wanted = np.cumsum(turned, axis, x.dtype)
    wanted = np.flip(wanted, axis) if reverse else wanted
    np.testing.assert_array_equal(f(x), wanted)


def test_what_is_summed_is_fused_and_has_derivatives():
    x = _RNG.normal(size=70_001).astype("float32")
    f = fnx.jit(lambda x: fnp.cumsum(x * x)[::-1] + 1)
    wanted = np.cumsum(x.astype(float) ** 2)[::-1] + 1
    np.testing.assert_allclose(f(x), wanted, rtol=1e-6)
    ct = fnx.grad(lambda x: (fnp.cumsum(x) * wanted).sum())(fnp.asarray(x))
    np.testing.assert_allclose(ct, np.cumsum(wanted[::-1])[::-1], rtol=1e-6)


def test_the_error_grows_slowly():
    x = _RNG.uniform(size=5 * 10**6).astype("float32")
    exact = np.cumsum(x.astype(float))
    for total in (fnp.cumsum, fnx.jit(fnp.cumsum)):
        error = np.abs(np.asarray(total(x)) - exact) / exact
        assert error.max() < 3e-6  # one after the other it is above 5e-5


def test_threads_do_not_change_the_bits():
    x = _RNG.normal(size=300_007).astype("float32")
    f = fnx.jit(fnp.cumsum)
    before = fnx.num_threads()
    try:
        found = []
        for count in (1, 2, 3):
            fnx.set_num_threads(count)
            found.append(np.asarray(f(x)).tobytes())
    finally:
        fnx.set_num_threads(before)
    assert len(set(found)) == 1
