"""fnx.scipy.fft against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.fft

import fnx
import fnx.scipy.fft
from fnx import errors
from fnx.testing import check_grads

NORMS = [None, "backward", "ortho", "forward"]
TYPES = [1, 2, 3, 4]


def close(found, wanted):
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    eps = np.finfo(wanted.dtype).eps
    assert np.abs(np.asarray(found) - wanted).max() <= 60 * eps * np.abs(wanted).max()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("type", TYPES)
def test_one_axis(type, norm):
    x = np.random.default_rng(0).standard_normal((4, 7))
    for n in (None, 2, 5, 9):
        for axis in (0, -1):
            for name in ("dct", "idct"):
                found = getattr(fnx.scipy.fft, name)(x, type, n, axis, norm)
                close(found, getattr(scipy.fft, name)(x, type, n, axis, norm))
    single = x.astype("f4")
    close(fnx.scipy.fft.dct(single, type), scipy.fft.dct(single, type))
    back = fnx.scipy.fft.idct(fnx.scipy.fft.dct(x, type, norm=norm), type, norm=norm)
    np.testing.assert_allclose(back, x, atol=1e-14)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("type", TYPES)
def test_several_axes(type, norm):
    x = np.random.default_rng(1).standard_normal((4, 5, 3))
    for s, axes in ((None, None), ((6, 2), None), (None, (2, 0)), ((3, 7), (1, -1))):
        for name in ("dctn", "idctn"):
            found = getattr(fnx.scipy.fft, name)(x, type, s, axes, norm)
            close(found, getattr(scipy.fft, name)(x, type, s, axes, norm))


@pytest.mark.parametrize("type", TYPES)
def test_derivatives_and_batches(type):
    x = np.random.default_rng(2).standard_normal((3, 6))
    check_grads(lambda x: fnx.scipy.fft.dct(x, type) ** 2, (x,), 2)
    rows = fnx.jit(fnx.vmap(lambda x: fnx.scipy.fft.idct(x, type)))(x)
    close(rows, scipy.fft.idct(x, type))
    # It is a matrix, and its gradient the product with the transposed one.
    matrix = scipy.fft.dct(np.eye(6), type, axis=0)
    ct = np.arange(6.0)
    (pulled,) = fnx.vjp(lambda x: fnx.scipy.fft.dct(x, type), x[0])[1](ct)
    np.testing.assert_allclose(pulled, matrix.T @ ct, atol=1e-12)


def test_a_length_of_one():
    for type in (2, 3, 4):
        close(fnx.scipy.fft.dct(np.ones(1), type), scipy.fft.dct(np.ones(1), type))


def test_mistakes():
    x = np.ones(4)
    with pytest.raises(errors.OptionError, match="type=5"):
        fnx.scipy.fft.dct(x, 5)
    with pytest.raises(errors.OptionError, match="norm='both'"):
        fnx.scipy.fft.dct(x, norm="both")
    with pytest.raises(errors.OptionError, match="type 1 of 1 data points"):
        fnx.scipy.fft.dct(x, 1, 1)
    with pytest.raises(errors.OptionError, match="0 data points"):
        fnx.scipy.fft.idct(x, n=0)
    with pytest.raises(errors.OptionError, match="different lengths"):
        fnx.scipy.fft.dctn(np.ones((2, 2)), s=(2,), axes=(0, 1))
    with pytest.raises(errors.DTypeError, match="real numbers"):
        fnx.scipy.fft.dct(x + 1j)
