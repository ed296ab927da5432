"""Counts of values: histograms of numbers at the edges of bins, and of booleans."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp

_RNG = np.random.default_rng(11)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "int32", "float32", "float64"])
def test_integers_at_the_edges_of_bins_are_counted_in_the_next_one(dtype, compiled):
    f = fnx.jit(fnp.histogram) if compiled else fnp.histogram
    for _ in range(60):
        x = _RNG.integers(-6, 7, 9).astype(dtype)
        counts, edges = f(x)
        wanted, at = np.histogram(x.astype("float64"))
        np.testing.assert_array_equal(counts, wanted)
        np.testing.assert_array_equal(edges, at.astype(edges.dtype))


def test_bins_of_huge_and_of_equal_numbers():
    x = np.array([-3e38, 0, 3e38], "f4")
    counts, edges = fnp.histogram(x, 4)
    np.testing.assert_array_equal(counts, [1, 0, 1, 1])
    np.testing.assert_array_equal(
        edges, np.array([-3e38, -1.5e38, 0, 1.5e38, 3e38], "f4")
    )
    np.testing.assert_array_equal(fnp.histogram(np.full(3, 2.0), 3)[0], [0, 3, 0])


def test_edges_follow_the_extrema():
    x = np.array([1.0, 5.0, 2.0])
    jacobian = fnx.jacobian(lambda x: fnp.histogram_bin_edges(x, 2))(x)
    np.testing.assert_allclose(jacobian, [[1, 0, 0], [0.5, 0.5, 0], [0, 1, 0]])


@pytest.mark.parametrize("options", [{}, {"minlength": 5}, {"length": 2}])
def test_booleans_are_counted(options):
    x = np.array([True, False, True])
    wanted = np.bincount(x, minlength=options.get("minlength", 0))
    np.testing.assert_array_equal(fnp.bincount(x, **options), wanted)
    weights = np.array([1.0, 2.0, 4.0])
    np.testing.assert_array_equal(fnp.bincount(x, weights)[:2], [2, 5])
    if "length" in options:
        f = fnx.jit(lambda x: fnp.bincount(x, **options))
        np.testing.assert_array_equal(f(x), wanted)


def test_the_square_of_a_boolean_is_an_integer():
    for f in (fnp.square, fnx.jit(fnp.square)):
        found = f(np.array([True, False]))
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, [1, 0])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_bincount_of_integers_that_cannot_hold_the_length(dtype: str) -> None:
    """The places behind the last one are no numbers of the operand's dtype."""
    x = np.array([127, 0, 127, 3], dtype)
    found = fnx.jit(lambda x: fnp.bincount(x, length=40000))(x)
    np.testing.assert_array_equal(found, np.bincount(x, minlength=40000))
