"""Fourier transforms on the device, by our own kernels, against SciPy in float64.

Lengths on all sides of what a pass, a block and a convolution take, every kind, axes
anywhere, several of them, stacks of none and of one, and every transformation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft

import fnx
import fnx.numpy as fnp
from fnx_cuda.fft import LARGEST_PRIME, primes, radices
from tests.cuda.compare import on_device, runs_on_the_host

pytestmark = pytest.mark.cuda

EPS = {"complex64": 6e-8, "complex128": 1.2e-16}


def signal(rng: Any, shape: Any, dtype: str) -> Any:
    """Random numbers; complex ones have two parts."""
    x = rng.standard_normal((*shape, 2)).view("complex128")[..., 0]
    return (x if dtype.startswith("complex") else x.real).astype(dtype)


def assert_transform(function: Any, wanted: Any, x: Any) -> None:
    """The error is that of O(log n) roundings, relative to the whole."""
    assert not runs_on_the_host(function, x)
    (found,) = on_device(function, x)
    want = wanted(x.astype(np.result_type(x.dtype, np.float64)))
    assert found.shape == want.shape
    # A real transform has the precision of its dtype.
    eps = EPS["complex64" if x.dtype.itemsize == 4 or x.dtype == "c8" else "complex128"]
    size = np.sqrt(np.sum(np.abs(want) ** 2)) + 1e-300
    error = np.sqrt(np.sum(np.abs(found - want) ** 2)) / size
    assert error <= 2 * eps * (2 + np.log2(max(x.size, found.size, 2)))


LENGTHS = [1, 2, 3, 4, 5, 7, 8, 30, 31, 32, 49, 121, 360, 1000, 2048]
CONVOLVED = [37, 74, 257]
SEVERAL_PASSES = [2049, 4096, 5000]


@pytest.mark.parametrize("length", LENGTHS + CONVOLVED + SEVERAL_PASSES)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_lengths(gpu, rng, length: int, dtype: str) -> None:
    x = signal(rng, (3, length), dtype)
    assert_transform(fnp.fft.fft, scipy.fft.fft, x)
    assert_transform(fnp.fft.ifft, scipy.fft.ifft, x)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 9, 35, 37, 2100])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_real_ones(gpu, rng, length: int, dtype: str) -> None:
    x = signal(rng, (2, length), dtype)
    assert_transform(fnp.fft.rfft, scipy.fft.rfft, x)
    half = signal(rng, (2, length // 2 + 1), f"complex{2 * x.dtype.itemsize * 8}")
    assert_transform(
        lambda z: fnp.fft.irfft(z, length), lambda z: scipy.fft.irfft(z, length), half
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("length", [12, 41, 700])
def test_axes_anywhere(gpu, rng, axis: int, length: int) -> None:
    shape = [2, 3, 5]
    shape[axis] = length
    x = signal(rng, tuple(shape), "complex64")
    assert_transform(
        lambda x: fnp.fft.fft(x, axis=axis), lambda x: scipy.fft.fft(x, axis=axis), x
    )
    assert_transform(
        lambda x: fnp.fft.irfft(x, axis=axis),
        lambda x: scipy.fft.irfft(x, axis=axis),
        x,
    )
    assert_transform(
        lambda x: fnp.fft.rfft(x, axis=axis),
        lambda x: scipy.fft.rfft(x, axis=axis),
        x.real.copy(),
    )


def test_several_axes(gpu, rng) -> None:
    x = signal(rng, (6, 37, 10), "complex64")
    assert_transform(fnp.fft.fftn, scipy.fft.fftn, x)
    assert_transform(fnp.fft.ifft2, scipy.fft.ifft2, x)
    assert_transform(fnp.fft.rfftn, scipy.fft.rfftn, x.real.copy())
    assert_transform(fnp.fft.irfftn, scipy.fft.irfftn, x)


@pytest.mark.parametrize("shape", [(2100, 3, 2), (3, 37, 2100), (41, 2, 43)])
def test_several_axes_of_several_passes(gpu, rng, shape: Any) -> None:
    x = signal(rng, shape, "complex64")
    assert_transform(fnp.fft.fftn, scipy.fft.fftn, x)


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (1, 64), (700, 2), (3, 0, 4)])
def test_stacks_of_none_and_of_many(gpu, rng, shape: Any) -> None:
    x = signal(rng, shape, "complex64")
    assert_transform(fnp.fft.fft, lambda x: scipy.fft.fft(x) if x.size else x, x)


def test_what_is_not_finite_spreads(gpu, rng) -> None:
    x = signal(rng, (2, 16), "complex64")
    x[0, 3] = np.nan
    (found,) = on_device(fnp.fft.fft, x)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


def test_transformations(gpu, rng) -> None:
    x = signal(rng, (3, 12), "float32")

    def power(x: Any) -> Any:
        z = fnp.fft.rfft(x)
        return fnp.sum(fnp.abs(z[..., 1:]) ** 2 * fnp.arange(6))

    found = fnx.jit(fnx.vmap(fnx.value_and_grad(power)))(fnx.device_put(x, gpu))
    z = scipy.fft.rfft(x.astype("float64"))
    weights = np.arange(6)
    value = np.sum(np.abs(z[:, 1:]) ** 2 * weights, -1)
    # The gradient of |z_k|² w is 2 w Re(z_k exp(2 pi i k t / n)).
    turns = np.exp(2j * np.pi * np.outer(np.arange(1, 7), np.arange(12)) / 12)
    slope = 2 * ((weights * z[:, 1:]) @ turns).real
    np.testing.assert_allclose(found[0], value, rtol=1e-5)
    np.testing.assert_allclose(found[1], slope, rtol=1e-4, atol=1e-3)


def test_a_captured_program(gpu, rng) -> None:
    x = signal(rng, (4, 2 * 37), "complex64")
    low = fnx.jit(lambda x: fnp.fft.ifft(fnp.fft.fft(x) * fnp.arange(74) * 2))
    want = scipy.fft.ifft(scipy.fft.fft(x.astype("complex128")) * np.arange(74) * 2)
    for factor in (1, 2, 3):  # from the second time on it is a graph
        given = fnx.device_put(factor * x, gpu)
        found = np.asarray(low(given))
        np.testing.assert_allclose(found, factor * want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("itemsize", [8, 16])
@pytest.mark.parametrize("inner", [1, 7])
def test_passes_multiply_to_the_length(itemsize: int, inner: int) -> None:
    for length in [*range(1, 300), 2**20, 3**10, 31**4, 1_000_000]:
        if max(primes(length), default=1) > LARGEST_PRIME:
            continue
        passes = radices(length, inner, itemsize)
        assert np.prod([np.prod(one) for one in passes], dtype=float) == length
        assert max(len(one) for one in passes) <= 8
        assert len(passes) <= 4
