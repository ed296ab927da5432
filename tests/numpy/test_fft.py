"""fnx.numpy.fft and fnx.lax.fft against NumPy: values, options, derivatives, errors."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.lax
import fnx.numpy as fnp
from fnx import errors
from fnx.testing import check_grads

ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"]
REAL = {"rfft", "rfftn", "rfft2", "ihfft"}
NORMS = [None, "backward", "ortho", "forward"]


def signal(name, *shape, dtype="f8"):
    rng = np.random.default_rng(len(name))
    x = rng.standard_normal(shape)
    if name not in REAL:
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(np.result_type(x.dtype.kind + "8" if dtype == "f4" else x.dtype))


def close(found, wanted, eps=2e-16):
    assert found.shape == wanted.shape
    size = np.abs(wanted).max(initial=0)
    assert np.abs(np.asarray(found) - wanted).max(initial=0) <= 40 * eps * size


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ONE)
def test_one_axis(name, norm):
    x = signal(name, 3, 6, 5)
    for axis in (-1, 0, 1):
        for n in (None, 1, 4, 7, 8):
            found = getattr(fnp.fft, name)(x, n, axis, norm)
            close(found, getattr(np.fft, name)(x, n, axis, norm))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MANY)
def test_several_axes(name, norm):
    x = signal(name, 3, 6, 5)
    every = [(None, (0, 2)), ((4, 7), (1, 0)), (None, (2, -2)), ((2, 9), (-1, 0))]
    if name.endswith("n"):
        every += [(None, None), (None, (1,)), ((3, 4, 8), (2, 1, 0))]
    for s, axes in every:
        found = getattr(fnp.fft, name)(x, s, axes, norm)
        close(found, getattr(np.fft, name)(x, s, axes, norm))


def test_more_axes_than_three():
    x = signal("fft", 2, 3, 4, 2, 3)
    close(fnp.fft.fftn(x), np.fft.fftn(x))


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 97, 1000, 2**15, 3**9])
def test_lengths(n):
    x = signal("fft", n)
    close(fnp.fft.fft(x), np.fft.fft(x))
    close(fnx.jit(fnp.fft.ifft)(x), np.fft.ifft(x))
    close(fnx.jit(fnp.fft.rfft)(x.real), np.fft.rfft(x.real))


@pytest.mark.parametrize("name", ONE)
def test_dtypes(name):
    """What is computed in float32 stays there; NumPy has float64 for integers."""
    real = np.float32 if name in ("irfft", "hfft") else np.complex64
    wide = np.float64 if name in ("irfft", "hfft") else np.complex128
    function = getattr(fnp.fft, name)
    for dtype in ("bool", "i4", "f2", "f4"):
        assert function(np.ones(4, dtype)).dtype == real
    for dtype in ("i8", "f8"):
        assert function(np.ones(4, dtype)).dtype == wide
    if name not in REAL:
        assert function(np.ones(4, "c8")).dtype == real
        assert function(np.ones(4, "c16")).dtype == wide


@pytest.mark.parametrize("name", ONE + MANY)
def test_gradients_of_both_orders(name):
    x = signal(name, 3, 4)
    function = getattr(fnp.fft, name)
    check_grads(lambda x: function(x) * fnp.conj(function(x)), (x,), 2)


@pytest.mark.parametrize("name", ONE + MANY)
def test_batches_are_those_of_a_loop(name):
    x = signal(name, 4, 3, 5)
    function = getattr(fnp.fft, name)
    close(
        fnx.jit(fnx.vmap(function))(x), np.stack([getattr(np.fft, name)(r) for r in x])
    )
    columns = fnx.vmap(function, in_axes=2, out_axes=1)(x)
    rows = [getattr(np.fft, name)(x[:, :, i]) for i in range(5)]
    close(columns, np.stack(rows, 1))


def test_the_gradient_of_a_power_spectrum_is_that_of_jax(jax):
    def power(np, x):
        return np.sum(np.abs(np.fft.rfft2(x)) ** 2 * np.fft.rfftfreq(6))

    x = signal("rfft2", 5, 6)
    found = fnx.jit(fnx.grad(lambda x: power(fnp, x)))(x)
    close(found, np.asarray(jax.grad(lambda x: power(jax.numpy, x))(x)), 1e-7)


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_frequencies_and_shifts(n):
    for name in ("fftfreq", "rfftfreq"):
        found = getattr(fnp.fft, name)(n, 0.3, dtype="f8")
        np.testing.assert_allclose(found, getattr(np.fft, name)(n, 0.3), rtol=1e-15)
        assert getattr(fnp.fft, name)(n).dtype == np.float32
    x = np.arange(3 * n).reshape(3, n)
    for name in ("fftshift", "ifftshift"):
        for axes in (None, 0, -1, (0, 1)):
            found = getattr(fnp.fft, name)(x, axes)
            np.testing.assert_array_equal(found, getattr(np.fft, name)(x, axes))


def test_the_host_writes_in_place():
    """A large transform in a compiled program, and what it is made of, is unharmed."""
    x = signal("fft", 2**15)
    kept = x.copy()
    spectrum, again = fnx.jit(lambda x: (fnp.fft.fft(x), x + 1))(x)
    close(spectrum, np.fft.fft(x))
    np.testing.assert_array_equal(again, kept + 1)
    np.testing.assert_array_equal(x, kept)


def test_lax():
    x = signal("fft", 3, 4, 5)
    kinds = fnx.lax.FftType
    close(fnx.lax.fft(x, kinds.FFT, (4, 5)), np.fft.fft2(x))
    close(fnx.lax.fft(x, "IFFT", (3, 4, 5)), np.fft.ifftn(x))
    close(fnx.lax.fft(x.real, kinds.RFFT, (5,)), np.fft.rfft(x.real))
    close(fnx.lax.fft(x, kinds.IRFFT, [9]), np.fft.irfft(x, 9))
    assert [kind.name for kind in kinds] == ["FFT", "IFFT", "RFFT", "IRFFT"]
    with pytest.raises(errors.ShapeError, match="fft_lengths"):
        fnx.lax.fft(x, "FFT", ())


def test_mistakes_are_numpys():
    x = signal("fft", 3, 4)
    wrong = [
        (ValueError, lambda fft: fft.fft(x, 0)),
        (ValueError, lambda fft: fft.fft(x, -1)),
        (ValueError, lambda fft: fft.irfft(x[:, :1])),
        (ValueError, lambda fft: fft.fft(x, norm="both")),
        (ValueError, lambda fft: fft.fftn(x, (4, 4), (0,))),
        (ValueError, lambda fft: fft.fftn(x[:, :0])),
        (TypeError, lambda fft: fft.fft(x, 2.5)),
        (TypeError, lambda fft: fft.rfft(x)),
    ]
    for error, call in wrong:
        with pytest.raises(error):
            call(np.fft)
        with pytest.raises(error):
            call(fnp.fft)
    with pytest.raises(errors.AxisError, match="axis 2 is out of range"):
        fnp.fft.fft(x, axis=2)
    with pytest.raises(errors.AxisError, match="two axes"):
        fnp.fft.fft2(x, axes=(0,))
    with pytest.raises(errors.AxisError, match="twice"):
        fnp.fft.fftn(x, axes=(0, 0))
    with pytest.raises(errors.OptionError, match="at least 1"):
        fnp.fft.fftfreq(0)
