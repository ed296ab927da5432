"""Transposed and spaced reads: rows side by side, then shuffled in registers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp


def numbers(*shape, dtype=np.float32):
    values = np.random.default_rng(3).integers(-100, 100, shape)
    return values.astype(dtype)


def run(function, *arrays):
    return np.asarray(fnx.jit(function)(*arrays))


DTYPES = ["f4", "f8", "f2", "i1", "?", "u2", "i8", ml_dtypes.bfloat16]


@pytest.mark.parametrize("shape", [(16, 16), (17, 33), (40, 16), (99, 83), (7, 300)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposes(shape, dtype):
    x = numbers(*shape, dtype=dtype)
    np.testing.assert_array_equal(run(lambda x: x.T, x), x.T)


@pytest.mark.parametrize("dims", [(0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_permutations(dims):
    x = numbers(19, 24, 37)
    found = run(lambda x: fnp.transpose(x, dims), x)
    np.testing.assert_array_equal(found, x.transpose(dims))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i4"])
def test_several_operands(dtype):
    x, y = numbers(50, 40, dtype=dtype), numbers(40, 50, dtype=dtype)
    found = run(lambda x, y: x.T * 2 + y + x.T * y, x, y)
    np.testing.assert_array_equal(found, x.T * x.dtype.type(2) + y + x.T * y)


@pytest.mark.parametrize(
    "pair", [("f4", "i1"), ("i1", "f4"), ("f8", "f4"), ("f4", "f2")]
)
def test_mixed_dtypes(pair):
    x, y = numbers(50, 43, dtype=pair[0]), numbers(43, 50, dtype=pair[1])
    found = run(lambda x, y: x.T.astype("f4") + y.astype("f4"), x, y)
    np.testing.assert_array_equal(found, x.T.astype("f4") + y.astype("f4"))


def test_reversed_and_strided():
    x = numbers(90, 80)
    for function in (
        lambda x: x[::-1].T,
        lambda x: x[:, ::-1].T,
        lambda x: x[::2, ::3].T,
        lambda x: x[1:, 2:].T[::-1, ::-1],
    ):
        np.testing.assert_array_equal(run(function, x), function(x))


def test_padded_and_transposed():
    x = numbers(130, 120)
    np.testing.assert_array_equal(run(lambda x: fnp.pad(x, 3).T, x), np.pad(x, 3).T)


def test_a_square_is_read_row_by_row():
    lowered = fnx.jit(lambda x: x.T).lower(numbers(64, 64))
    assert "across" in lowered.as_text("kernel")


def test_long_chains_are_not_printed_eight_times():
    def function(x, y):
        for n in range(1, 40):
            x = fnp.sin(x) * n
        return x.T + y

    x, y = numbers(64, 48) / 100, numbers(48, 64)
    assert "across" not in fnx.jit(function).lower(x, y).as_text("kernel")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [2, 3, 4, -2])
@pytest.mark.parametrize("size", [5, 24, 67, 300])
def test_every_second_or_third_element(dtype, step, size):
    x = numbers(3, size, dtype=dtype)
    np.testing.assert_array_equal(run(lambda x: x[:, ::step], x), x[:, ::step])
    np.testing.assert_array_equal(run(lambda x: x[1, 1::step], x), x[1, 1::step])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("size", [3, 8, 67, 9001])
def test_interleaved(dtype, count, size):
    xs = [
        numbers(size, dtype=dtype) + np.asarray(n).astype(dtype) for n in range(count)
    ]
    found = run(lambda *xs: fnp.stack(xs, -1), *xs)
    np.testing.assert_array_equal(found, np.stack(xs, -1))
    found = run(lambda x: fnp.repeat(x, count), xs[0])
    np.testing.assert_array_equal(found, np.repeat(xs[0], count))


def test_rows_of_three_with_a_factor_each():
    x, y = numbers(5000, 3), numbers(5000)
    found = run(lambda x, y: x * y[:, None] + 1, x, y)
    np.testing.assert_array_equal(found, x * y[:, None] + 1)


def test_colours_exchanged_and_weighted():
    x = numbers(70, 41, 3)
    found = run(lambda x: x[..., ::-1] * 2 + x, x)
    np.testing.assert_array_equal(found, x[..., ::-1] * np.float32(2) + x)


def test_interleaved_stores_are_one_loop():
    x, y = numbers(9001), numbers(9001)
    text = fnx.jit(lambda x, y: fnp.stack([x, y], -1)).lower(x, y).as_text("kernel")
    assert text.count("for ") == 1 and "if" not in text
