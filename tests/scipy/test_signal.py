"""fnx.scipy.signal against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.scipy import signal
from fnx.testing import check_grads

MODES = ["full", "same", "valid"]
PAIRS = [
    ((9,), (4,)),
    ((4,), (9,)),
    ((6,), (6,)),
    ((6, 5), (3, 2)),
    ((5, 4), (5, 7)),
    ((4, 5, 3), (2, 2, 3)),
]


def draw(shape, kind="f", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if kind == "c" else x


def close(found, wanted, tolerance=1e-12):
    found = np.asarray(found)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    size = max(1, np.abs(wanted).max(initial=0))
    assert np.abs(found - wanted).max(initial=0) <= tolerance * size


# ---------------------------------------------------------------- convolutions


@pytest.mark.parametrize("kind", "fc")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pair", PAIRS)
def test_convolutions(pair, mode, kind):
    x, y = draw(pair[0], kind), draw(pair[1], kind, 1)
    for name in ("convolve", "correlate"):
        for method in ("auto", "direct", "fft"):
            found = getattr(signal, name)(x, y, mode, method)
            close(found, getattr(scipy.signal, name)(x, y, mode, method))
    close(signal.fftconvolve(x, y, mode), scipy.signal.fftconvolve(x, y, mode))


@pytest.mark.parametrize("kind", "fc")
@pytest.mark.parametrize("boundary", ["fill", "wrap", "symm"])
@pytest.mark.parametrize("mode", MODES)
def test_two_dimensions(mode, boundary, kind):
    for pair in (
        ((6, 5), (3, 2)),
        ((4, 7), (3, 4)),
        ((2, 2), (5, 4)),
        ((5, 4), (5, 7)),
    ):
        x, y = draw(pair[0], kind), draw(pair[1], kind, 1)
        for name in ("convolve2d", "correlate2d"):
            # SciPy forgets a conjugate where it exchanges the operands.
            swaps = mode == "valid" and x.size < y.size
            if swaps and name == "correlate2d" and kind == "c":
                wanted = scipy.signal.correlate(x, y, mode)
            else:
                wanted = getattr(scipy.signal, name)(x, y, mode, boundary, 0.5)
            close(getattr(signal, name)(x, y, mode, boundary, 0.5), wanted)


def test_transforms_along_some_axes():
    x, y = draw((3, 8, 2)), draw((1, 4, 2), seed=1)
    for mode in MODES:
        wanted = scipy.signal.fftconvolve(x, y, mode, axes=[1])
        close(signal.fftconvolve(x, y, mode, axes=[1]), wanted)


def test_integers_are_computed_in_floating_point():
    x, y = np.arange(5, dtype="i4"), np.array([1, 2], "i4")
    found = signal.convolve(x, y)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.convolve(x, y))
    assert signal.convolve(x.astype("f4"), y.astype("f4")).dtype == np.float32


@pytest.mark.parametrize("method", ["direct", "fft"])
def test_derivatives_of_a_convolution(method):
    x, y = draw((6, 3)), draw((2, 2), seed=1)
    check_grads(lambda x, y: signal.convolve(x, y, "same", method), (x, y), 2)


def test_a_batch_of_convolutions():
    x, y = draw((3, 8)), draw((3, 4), seed=1)
    found = fnx.jit(fnx.vmap(signal.fftconvolve))(x, y)
    close(found, np.stack([np.convolve(*rows) for rows in zip(x, y, strict=True)]))


# ---------------------------------------------------------------- trends and spectra


def test_trends():
    x = draw((3, 100))
    close(signal.detrend(x), scipy.signal.detrend(x))
    close(signal.detrend(x, 0), scipy.signal.detrend(x, 0))
    close(signal.detrend(x, type="constant"), scipy.signal.detrend(x, type="constant"))
    close(signal.detrend(x, bp=[10, 50]), scipy.signal.detrend(x, bp=[10, 50]))
    close(signal.detrend(x[:, :1]), np.zeros((3, 1)))


DENSITIES = [
    {"nperseg": 16},
    {"nperseg": 15, "noverlap": 4, "nfft": 32},
    {"nperseg": 16, "window": "boxcar", "scaling": "spectrum"},
    {"nperseg": 16, "detrend": "linear", "average": "median"},
    {"nperseg": 20, "detrend": False, "return_onesided": False},
    {"nperseg": 16, "fs": 10.0, "window": ("tukey", 0.25)},
    {"window": np.hanning(12)},
]


@pytest.mark.parametrize("options", DENSITIES, ids=range(len(DENSITIES)))
def test_densities(options):
    x, y = draw((3, 100)), draw((3, 80), seed=1)
    both = {**options, "return_onesided": False}
    for name, args, given in (
        ("welch", (x,), options),
        ("welch", (x + 1j * x[::-1],), both),
        ("csd", (x, y), options),
        ("csd", (x, None), options),
        ("welch", (x.T,), {**options, "axis": 0}),
    ):
        wanted_args = (x, x) if args[-1] is None else args
        wanted = getattr(scipy.signal, name)(*wanted_args, **given)
        found = getattr(signal, name)(*args, **given)
        for one, other in zip(found, wanted, strict=True):
            close(one, other)


SEGMENTS = [
    {"nperseg": 16},
    {"nperseg": 15, "noverlap": 4, "nfft": 32},
    {"nperseg": 16, "boundary": None},
    {"nperseg": 16, "boundary": "odd"},
    {"nperseg": 16, "boundary": "even", "padded": False},
    {"nperseg": 17, "boundary": "constant"},
    {"nperseg": 16, "return_onesided": False},
    {"nperseg": 16, "fs": 5.0, "detrend": "constant"},
]


@pytest.mark.parametrize("options", SEGMENTS, ids=range(len(SEGMENTS)))
def test_transforms_of_segments(options):
    x = draw((3, 100))
    for array, axis in ((x, -1), (x.T, 0)):
        found = signal.stft(array, axis=axis, **options)
        wanted = scipy.signal.stft(array, axis=axis, **options)
        for one, other in zip(found, wanted, strict=True):
            close(one, other)


def test_the_inverse_gives_the_signal_back():
    x = draw(100)
    for options in (
        {"nperseg": 16},
        {"nperseg": 16, "noverlap": 12},
        {"nperseg": 16, "nfft": 32},
        {"nperseg": 15},
        {"nperseg": 16, "window": "hamming", "fs": 3.0},
    ):
        transforms = signal.stft(x, **options)[2]
        found = signal.istft(transforms, **options)
        for one, other in zip(
            found, scipy.signal.istft(np.asarray(transforms), **options), strict=True
        ):
            close(one, other)
        close(found[1][:100], x)


def test_where_the_inverse_has_its_axes():
    x = draw((3, 100))
    last = scipy.signal.stft(x, nperseg=16)[2]
    close(signal.istft(last)[1][:, :100], x)
    first = np.moveaxis(last, (-2, -1), (0, 1))
    wanted = scipy.signal.istft(first, time_axis=1, freq_axis=0)[1]
    close(signal.istft(first, time_axis=1, freq_axis=0)[1], wanted)
    both = scipy.signal.stft(x, nperseg=16, return_onesided=False)[2]
    found = signal.istft(both, input_onesided=False)[1]
    close(fnp.real(found)[:, :100], x)
    options = {"window": "boxcar", "boundary": False}
    whole = scipy.signal.stft(x[0], window="boxcar", nperseg=16, boundary=None)[2]
    wanted = scipy.signal.istft(whole, **options)[1]
    close(signal.istft(whole, **options)[1], wanted)


def test_derivatives_of_spectra():
    x = draw(24)
    check_grads(lambda x: signal.welch(x, nperseg=8)[1], (x,), 2)
    check_grads(lambda x: fnp.abs(signal.stft(x, nperseg=8)[2]) ** 2, (x,), 1)
    single = fnx.jit(lambda x: signal.welch(x, nperseg=8)[1])(x.astype("f4"))
    assert single.dtype == np.float32


# ---------------------------------------------------------------- mistakes

MISTAKES = [
    (errors.OptionError, "mode='most'", lambda x: signal.convolve(x, x, "most")),
    (
        errors.OptionError,
        "method='slow'",
        lambda x: signal.convolve(x, x, method="slow"),
    ),
    (errors.ShapeError, "one rank", lambda x: signal.correlate(x, x[None])),
    (
        errors.ShapeError,
        "fit in the other",
        lambda x: signal.convolve(x[None], x[:, None], "valid"),
    ),
    (errors.ShapeError, "two matrices", lambda x: signal.convolve2d(x, x)),
    (
        errors.OptionError,
        "boundary='open'",
        lambda x: signal.convolve2d(x[None], x[None], boundary="open"),
    ),
    (
        errors.ShapeError,
        "cannot be broadcast",
        lambda x: signal.fftconvolve(fnp.ones((4, 3)), fnp.ones((2, 3)), axes=[1]),
    ),
    (errors.OptionError, "type='square'", lambda x: signal.detrend(x, type="square")),
    (errors.OptionError, "outside of", lambda x: signal.detrend(x, bp=99)),
    (errors.OptionError, "overwrite", lambda x: signal.detrend(x, overwrite_data=True)),
    (
        errors.OptionError,
        "noverlap=8",
        lambda x: signal.welch(x, nperseg=8, noverlap=8),
    ),
    (errors.OptionError, "nfft=4", lambda x: signal.welch(x, nperseg=8, nfft=4)),
    (errors.OptionError, "nperseg", lambda x: signal.welch(x, nperseg=0)),
    (errors.OptionError, "window='odd'", lambda x: signal.welch(x, window="odd")),
    (errors.ShapeError, "a window", lambda x: signal.welch(x, window=np.ones((2, 2)))),
    (errors.OptionError, "scaling", lambda x: signal.welch(x, scaling="none")),
    (errors.OptionError, "average", lambda x: signal.welch(x, average="mode")),
    (errors.OptionError, "detrend='no'", lambda x: signal.welch(x, detrend="no")),
    (errors.ShapeError, "no elements", lambda x: signal.welch(x[:0])),
    (errors.OptionError, "boundary='far'", lambda x: signal.stft(x, boundary="far")),
    (errors.ShapeError, "two axes", lambda x: signal.istft(x)),
    (errors.AxisError, "the same", lambda x: signal.istft(x[None], time_axis=-2)),
    (errors.OptionError, "not those of", lambda x: signal.istft(x[:, None], nfft=99)),
]


@pytest.mark.parametrize(("error", "match", "call"), MISTAKES)
def test_mistakes(error, match, call):
    with pytest.raises(error, match=match):
        call(fnp.arange(16.0))


def test_istft_of_integers_computes_in_floating_point():
    transforms = np.arange(54, dtype="int32").reshape(9, 6) % 7 - 3
    wanted = scipy.signal.istft(transforms, nperseg=16)[1]
    found = signal.istft(transforms, nperseg=16)[1]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
