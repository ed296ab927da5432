"""The function for small matrix products: values, bits, and what it leaves alone."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import fnx
from fnx.cpu import gemm, jit
from fnx.cpu.gemm import ELEMENTS, Tile

# Rows and vector bytes of tiles, those of all processors: LLVM splits wide vectors.
SHAPES = [(8, 64), (6, 32), (8, 16)]


def function(dtype, rows, nbytes):
    """The function of arrays whose rows or columns lie together."""
    element = ELEMENTS[dtype]
    text = gemm.gemm_text(Tile(rows, 2, nbytes // element.nbytes, element))
    library = jit.load(jit.assemble(text), ["gemm"])
    strides = [ctypes.c_int64] * 2
    native = ctypes.CFUNCTYPE(
        None,
        *(ctypes.c_void_p, ctypes.c_int64),
        *(ctypes.c_void_p, *strides) * 2,
        *[ctypes.c_int64] * 3,
    )(library.address("gemm"))
    native.library = library

    def call(out, x, y):
        at = [
            (a.ctypes.data, *[s // a.itemsize for s in a.strides]) for a in (out, x, y)
        ]
        native(*at[0][:2], *at[1], *at[2], *out.shape, x.shape[1])

    return call


def matrix(rng, rows, columns, dtype):
    """A matrix, by rows or by columns."""
    if rng.integers(2):
        return rng.standard_normal((rows, columns)).astype(dtype)
    return rng.standard_normal((columns, rows)).astype(dtype).T


@pytest.mark.parametrize(("rows", "nbytes"), SHAPES)
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_products(dtype, rows, nbytes):
    multiply = function(dtype, rows, nbytes)
    rng = np.random.default_rng(rows)
    for _ in range(150):
        m, n, k = (int(2 ** rng.uniform(0, np.log2(most))) for most in (150, 90, 600))
        x, y = matrix(rng, m, k, dtype), matrix(rng, k, n, dtype)
        around = np.full((m + 2, n + 7), 7, dtype)
        out = around[1:-1, 3 : 3 + n]
        multiply(out, x, y)
        exact = x.astype("f8") @ y.astype("f8")
        size = np.abs(x).astype("f8") @ np.abs(y).astype("f8")
        assert (np.abs(out - exact) <= 8 * np.finfo(dtype).eps * size).all()
        out[...] = 7
        assert (around == 7).all()  # nothing else was written


def test_long_sums_are_made_of_parts():
    rng = np.random.default_rng(4)
    x, y = (
        rng.uniform(size=shape).astype("f4") for shape in ((40, 20000), (20000, 64))
    )
    out = np.empty((40, 64), "f4")
    function("float32", 8, 64)(out, x, y)
    exact = x.astype("f8") @ y.astype("f8")
    # Numbers added up one by one would be 1e-5 off.
    assert np.abs(out / exact - 1).max() < 2e-6


@pytest.mark.parametrize(("rows", "nbytes"), SHAPES)
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_bits_do_not_depend_on_the_cut(dtype, rows, nbytes):
    multiply = function(dtype, rows, nbytes)
    rng = np.random.default_rng(1)
    for m, n, k in [(33, 70, 300), (9, 40, 257), (150, 5, 64), (1, 90, 1000)]:
        x, y = matrix(rng, m, k, dtype), matrix(rng, k, n, dtype)
        whole, pieces = np.empty((2, m, n), dtype)
        multiply(whole, x, y)
        row, column = int(rng.integers(1, m + 1)), int(rng.integers(1, n))
        for at in (slice(0, row), slice(row, m)):
            for to in (slice(0, column), slice(column, n)):
                if pieces[at, to].size:
                    multiply(pieces[at, to], x[at], y[:, to])
        np.testing.assert_array_equal(pieces, whole)


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_infinities_and_nan_stay_in_their_rows_and_columns(dtype):
    multiply = function(dtype, 8, 64)
    rng = np.random.default_rng(2)
    x, y = matrix(rng, 21, 30, dtype), matrix(rng, 30, 37, dtype)
    x[3, 4], y[7, 36] = np.nan, np.inf
    out = np.empty((21, 37), dtype)
    multiply(out, x, y)
    odd = ~np.isfinite(out)
    want = np.zeros_like(odd)
    want[3], want[:, 36] = True, True
    np.testing.assert_array_equal(odd, want)
    assert np.isnan(out[3]).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_programs_have_the_same_bits_for_any_number_of_threads(threads):
    if gemm.tile("float32") is None:
        pytest.skip("this processor does not multiply and add in one step")
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 70, 130)).astype("f4")
    y = rng.standard_normal((3, 90, 130)).astype("f4")
    product = fnx.jit(lambda x, y: fnx.numpy.einsum("bij,bkj->bik", x, y))
    before = fnx.num_threads()
    fnx.set_num_threads(threads)
    try:
        found = np.asarray(product(x, y))
    finally:
        fnx.set_num_threads(before)
    multiply = function("float32", 8, 64)
    want = np.empty((3, 70, 90), "f4")
    for out, a, b in zip(want, x, y, strict=True):
        multiply(out, a, b.T)
    np.testing.assert_array_equal(found, want)
