"""Domains cut in pieces: no conditions are left, and the values are NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp


def kernels(function, *arrays):
    return fnx.jit(function).lower(*arrays).as_text("kernel")


def run(function, *arrays):
    return np.asarray(fnx.jit(function)(*arrays))


def numbers(*shape, dtype=np.float32):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


SHAPES = [(97, 101), (1, 9001), (9001, 1), (3, 40, 129), (20000,)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [1, (2, 3)])
def test_padding(shape, width):
    x = numbers(*shape)
    text = kernels(lambda x: fnp.pad(x, width) * 2 + 1, x)
    assert shape[-1] == 1 or ("if" not in text and "select" not in text)
    found = run(lambda x: fnp.pad(x, width) * 2 + 1, x)
    np.testing.assert_array_equal(found, np.pad(x, width) * np.float32(2) + 1)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("sizes", [(40, 90), (1, 200, 33), (64, 64, 64, 64), (0, 300)])
def test_concatenation(axis, sizes):
    shapes = [(n, 100) if axis == 0 else (100, n) for n in sizes]
    xs = [numbers(*shape) for shape in shapes]
    text = kernels(lambda *xs: fnp.concatenate(xs, axis) * 2, *xs)
    assert "if" not in text
    found = run(lambda *xs: fnp.concatenate(xs, axis) * 2, *xs)
    np.testing.assert_array_equal(found, np.concatenate(xs, axis) * np.float32(2))


def test_many_parts_keep_their_conditions():
    xs = [numbers(30, 30) for _ in range(40)]
    found = run(lambda *xs: fnp.concatenate(xs), *xs)
    np.testing.assert_array_equal(found, np.concatenate(xs))


def test_narrow_parts_keep_their_conditions():
    xs = [numbers(9000, 2), numbers(9000, 3)]
    assert "if" in kernels(lambda *xs: fnp.concatenate(xs, 1), *xs)
    found = run(lambda *xs: fnp.concatenate(xs, 1), *xs)
    np.testing.assert_array_equal(found, np.concatenate(xs, 1))


@pytest.mark.parametrize("shift", [1, -5, 130])
@pytest.mark.parametrize("axis", [0, 1])
def test_rolling_and_what_reads_it(shift, axis):
    x = numbers(130, 120)
    assert "if" not in kernels(lambda x: fnp.roll(x, shift, axis) - x, x)
    found = run(lambda x: fnp.roll(x, shift, axis) - x, x)
    np.testing.assert_array_equal(found, np.roll(x, shift, axis) - x)


def test_reversed_and_sliced():
    x = numbers(140, 150)

    def function(x):
        return fnp.pad(x, 3)[::-1, ::2]

    np.testing.assert_array_equal(run(function, x), np.pad(x, 3)[::-1, ::2])


def test_a_flattened_array_is_split_and_then_cut():
    x = numbers(120, 110)

    def function(x):
        return fnp.pad(x, 1).reshape(-1) * 2

    assert "if" not in kernels(function, x)
    np.testing.assert_array_equal(run(function, x), np.pad(x, 1).reshape(-1) * 2)


def test_gradient_of_a_slice():
    x = numbers(200, 100)

    def loss(x):
        return (x[20:150, 5:] * x[20:150, 5:]).sum()

    expected = np.zeros_like(x)
    expected[20:150, 5:] = 2 * x[20:150, 5:]
    np.testing.assert_array_equal(run(fnx.grad(loss), x), expected)


def test_windows_have_a_piece_without_conditions():
    x = numbers(200, 100)

    def sums(x):
        padded = fnp.pad(x, ((1, 1), (0, 0)))
        return padded[:-2] + padded[1:-1] + padded[2:]

    text = kernels(sums, x)
    assert text.count("for") > 1 and "if" not in text
    p = np.pad(x, ((1, 1), (0, 0)))
    np.testing.assert_array_equal(run(sums, x), p[:-2] + p[1:-1] + p[2:])


def test_a_fold_that_all_pieces_need_runs_once():
    x, y = numbers(100, 100), numbers(50, 100)

    def function(x, y):
        return fnp.concatenate([x, y]) - fnp.max(y)

    text = kernels(function, x, y)
    assert text.count("max over") <= 2  # blocks, and over the blocks
    np.testing.assert_array_equal(
        run(function, x, y), np.concatenate([x, y]) - np.max(y)
    )


def test_folds_inside_of_pieces():
    x, y = numbers(200, 70), numbers(100, 70)

    def function(x, y):
        z = fnp.concatenate([x, y])
        return z - z.max(1, keepdims=True)

    z = np.concatenate([x, y])
    np.testing.assert_array_equal(run(function, x, y), z - z.max(1, keepdims=True))


def test_small_domains_are_left_whole():
    assert "if" in kernels(lambda x: fnp.pad(x, 1), numbers(10, 10))


def test_pieces_of_images_share_the_loop_over_them():
    x = numbers(8, 32, 32, 16)
    plan = fnx.jit(lambda x: fnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))).lower(x)
    text = plan.as_text("kernel")
    assert sum(line.startswith("  for") for line in text.splitlines()) == 1
    found = run(lambda x: fnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), x)
    np.testing.assert_array_equal(found, np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))))


@pytest.mark.parametrize("name", ["less", "less_equal", "greater", "greater_equal"])
@pytest.mark.parametrize("bound", [-1, 0, 1, 9999, 12345, 19999, 20000])
@pytest.mark.parametrize("swap", [False, True])
def test_comparisons_of_an_index_with_a_number(name, bound, swap):
    x = numbers(20000)

    def function(np_, x):
        sides = (np_.arange(20000), bound)
        compare = getattr(np_, name)
        return np_.where(compare(*(sides[::-1] if swap else sides)), x, -x)

    assert "select" not in kernels(lambda x: function(fnp, x), x)
    np.testing.assert_array_equal(run(lambda x: function(fnp, x), x), function(np, x))


def test_an_index_that_wraps_around_is_compared_as_a_number():
    def function(np_):
        return np_.arange(300).astype(np.int8) < 5

    np.testing.assert_array_equal(run(lambda: function(fnp)), function(np))
