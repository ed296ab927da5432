"""Keys, dtypes and shapes of the tests of `fnx.random`, and how draws are compared."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fnx import random

SEEDS = (0, 1, 42, 2**31, 2**32 - 1)
SHAPES = ((), (7,), (2, 1, 4), (2, 0, 3))
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
oracle = pytest.mark.oracle
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
floats = pytest.mark.parametrize("dtype", FLOATS)
integers = pytest.mark.parametrize("dtype", INTEGERS)


def key(seed=0):
    return random.PRNGKey(seed)


def value(x):
    return np.asarray(x)


def equal(ours, theirs):
    """The same dtype, shape and bits."""
    ours, theirs = value(ours), np.asarray(theirs)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_array_equal(bits_of(ours), bits_of(theirs))


def bits_of(x):
    return x if x.dtype.kind in "biu" else x.view(f"u{x.dtype.itemsize}")


def close(ours, theirs, ulps):
    """Equal within units in the last place of 1, or of the value if it is larger.

    In float64 the difference is that of XLA's functions from the truth: its log1p and
    erf_inv lose up to 2 digits.
    """
    ours, theirs = value(ours), np.asarray(theirs)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    tolerance = ulps * float(ml_dtypes.finfo(ours.dtype).eps)
    tolerance *= 100 if ours.dtype == np.float64 else 1
    ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    np.testing.assert_allclose(ours, theirs, tolerance, tolerance)
