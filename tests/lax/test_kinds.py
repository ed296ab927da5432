"""Dtypes that `jax.lax` takes where an order or a formula is not plain, against it."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax

RNG = np.random.default_rng(4)
Z = (RNG.integers(-2, 3, (3, 5)) + 1j * RNG.integers(-2, 3, (3, 5))).astype("c8")
W = (RNG.normal(size=(3, 5)) + 1j * RNG.normal(size=(3, 5))).astype("c8")
YES = RNG.integers(0, 2, (3, 5)).astype(bool)
NAN = np.where(YES, np.complex64(complex(np.nan, 1)), Z)

CALLS = {
    "cummax": lambda m, z, w, b: m.cummax(z, 1),
    "cummin of rows": lambda m, z, w, b: m.cummin(z, 0, reverse=True),
    "cumlogsumexp": lambda m, z, w, b: m.cumlogsumexp(w, 1),
    "cumlogsumexp back": lambda m, z, w, b: m.cumlogsumexp(w, 0, reverse=True),
    "atan2": lambda m, z, w, b: m.atan2(w, z + 7),
    "reduce_max": lambda m, z, w, b: m.reduce_max(b, (1,)),
    "reduce_min": lambda m, z, w, b: m.reduce_min(b, (0, 1)),
    "clamp": lambda m, z, w, b: m.clamp(b[0], b[1], b[2]),
    "fft": lambda m, z, w, b: m.fft(w, "fft", (5,)),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", CALLS)
def test_as_jax(name, jax):
    call = CALLS[name]
    wanted = call(jax.lax, *map(jax.numpy.asarray, (Z, W, YES)))
    given = [fnp.array(x) for x in (Z, W, YES)]
    for run in (lambda f: f, fnx.jit):
        found = run(lambda *row: call(lax, *row))(*given)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "better"), [("cummax", max), ("cummin", min)])
def test_orders_of_complex_numbers(name, better):
    found = np.asarray(getattr(lax, name)(fnp.array(Z), axis=1))
    for i, row in enumerate(Z):
        best = row[0]
        for k, z in enumerate(row):
            best = better(best, z, key=lambda z: (z.real, z.imag))
            assert found[i, k] == best
    spoilt = np.asarray(getattr(lax, name)(fnp.array(NAN), axis=1))
    after = np.logical_or.accumulate(YES, axis=1)
    np.testing.assert_array_equal(np.isnan(spoilt), after)


def test_gradient_of_the_complex_angle():
    y, x = fnp.array(W[0]), fnp.array(Z[0]) + 7
    _, found = fnx.jvp(lax.atan2, (y, x), (fnp.ones(5, "c8"), fnp.zeros(5, "c8")))
    np.testing.assert_allclose(found, x / (x * x + y * y), rtol=1e-5)
