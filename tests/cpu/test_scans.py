"""Running values in kernels: those of NumPy's accumulate, bit for bit."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as fnp
from fnx.errors import InternalError
from fnx.kernel.build import KernelBuilder
from fnx.kernel.check import check_kernel
from fnx.kernel.ir import Kernel, Loop, loops, parallel_loops
from fnx.kernel.printer import kernel_text

F32 = np.dtype("float32")


def numbers(shape, dtype=np.float32):
    draw = np.random.default_rng(7).standard_normal(shape)
    return (
        (8 * draw).astype(dtype) if np.dtype(dtype).kind in "iu" else draw.astype(dtype)
    )


def run(function, *arrays):
    return np.asarray(fnx.jit(function)(*arrays))


NUMPY = {
    "cumsum": np.add,
    "cumprod": np.multiply,
    "cummax": np.maximum,
    "cummin": np.minimum,
}
SHAPES = [(1,), (7,), (1000,), (3, 5), (1, 9), (9, 1), (33, 70), (4, 6, 5), (2, 67, 40)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NUMPY)
def test_along_every_axis(name, shape, reverse):
    x = numbers(shape)
    for axis in range(len(shape)):
        flipped = np.flip(x, axis) if reverse else x
        expected = NUMPY[name].accumulate(flipped, axis, dtype=x.dtype)
        expected = np.flip(expected, axis) if reverse else expected
        options = {"axis": axis, "reverse": reverse}
        found = run(functools.partial(getattr(lax, name), **options), x)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.float64])
@pytest.mark.parametrize("name", NUMPY)
def test_dtypes(name, dtype):
    x = numbers((40, 21), dtype)
    with np.errstate(all="ignore"):
        expected = NUMPY[name].accumulate(x, 0, dtype=x.dtype)
    found = run(lambda x: getattr(lax, name)(x, axis=0), x)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("axis", [0, 1])
def test_16_bit_floats_accumulate_in_float32(dtype, axis):
    x = numbers((300, 20), dtype)
    expected = np.add.accumulate(x.astype(np.float32), axis).astype(dtype)
    found = run(lambda x: lax.cumsum(x, axis=axis), x)
    np.testing.assert_array_equal(found, expected)


def test_nan_infinities_and_signs_of_zero():
    x = np.array([-0.0, -0.0, 0.0, np.inf, 1.0, -np.inf, 2.0, np.nan, 3.0], np.float32)
    for name, function in NUMPY.items():
        with np.errstate(invalid="ignore"):
            expected = function.accumulate(x)
        found = run(lambda x, name=name: getattr(lax, name)(x), x)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found)[:2], np.signbit(expected)[:2])


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_nothing(shape):
    assert run(lambda x: lax.cumsum(x, axis=0), numbers(shape)).shape == shape


def test_what_comes_before_is_computed_in_the_same_kernel():
    x = numbers((50, 40))
    for axis in (0, 1):
        lowered = fnx.jit(lambda x, axis=axis: lax.cumsum(x * x + 1, axis=axis)).lower(
            x
        )
        assert lowered.as_text("kernel").count("kernel ") == 1
        found = run(lambda x, axis=axis: lax.cumsum(x * x + 1, axis=axis), x)
        np.testing.assert_array_equal(found, np.add.accumulate(x * x + 1, axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_row_statistics_before_a_scan_are_not_computed_again_and_again(axis):
    def function(x):
        return lax.cumsum(x - x.max(1, keepdims=True), axis=axis)

    x = numbers((48, 40))
    text = fnx.jit(function).lower(x).as_text("kernel")
    depth = max(len(line) - len(line.lstrip()) for line in text.splitlines())
    assert depth <= 6  # at most two loops around a statement
    expected = np.add.accumulate(x - x.max(1, keepdims=True), axis)
    np.testing.assert_array_equal(run(function, x), expected)


def test_padding_before_a_scan():
    x = numbers((130, 90))
    for axis in (0, 1):
        found = run(lambda x, axis=axis: lax.cumsum(fnp.pad(x, 2), axis=axis), x)
        np.testing.assert_array_equal(found, np.add.accumulate(np.pad(x, 2), axis))


def test_reshaped_before_a_scan():
    x = numbers((30, 40))
    found = run(lambda x: lax.cumsum(x.T.reshape(-1)), x)
    np.testing.assert_array_equal(found, np.add.accumulate(x.T.reshape(-1)))
    found = run(lambda x: lax.cumsum((x * 2).reshape(60, 20), axis=0), x)
    np.testing.assert_array_equal(found, np.add.accumulate((x * 2).reshape(60, 20)))


def test_gradient():
    x = numbers((50,), np.float64)
    found = run(fnx.grad(lambda x: (lax.cumsum(x) * x).sum()), x)
    expected = np.cumsum(x) + np.cumsum(x[::-1])[::-1]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# ---------------------------------------------------------------- kernels


def row_sums(rows: int, columns: int) -> Kernel:
    k = KernelBuilder()
    x = k.buffer("x", F32, rows * columns, "in")
    y = k.buffer("y", F32, rows * columns, "out")
    i, j = k.domain((rows, columns))
    offset = i * columns + j
    k.store(y, offset, k.scan("add", j, k.load(x, offset)))
    return check_kernel(k.finish("scan"))


def test_the_loop_of_a_scan_has_no_lanes_and_is_not_shared():
    kernel = row_sums(1, 1000)
    assert [loop.width for loop in loops(kernel.body)] == [1]
    assert not parallel_loops(kernel)
    outer, inner = loops(row_sums(64, 64).body)
    assert inner.width == 1 and not outer.scans and len(inner.scans) == 1
    assert parallel_loops(row_sums(64, 64)) != ()


def test_the_text_shows_the_running_value():
    assert "add over v0 so far" in kernel_text(row_sums(1, 9))


def test_scans_are_part_of_a_kernels_key():
    def key(combine):
        k = KernelBuilder()
        x, y = k.buffer("x", F32, 9, "in"), k.buffer("y", F32, 9, "out")
        (i,) = k.domain((9,))
        k.store(y, i, k.scan(combine, i, k.load(x, i)))
        return k.finish("scan").key

    assert key("add") == key("add") != key("mul")


@pytest.mark.parametrize("broken", ["not carried", "lanes"])
def test_the_checker_refuses(broken):
    kernel = row_sums(1, 64)
    (loop,) = kernel.body
    changed = (
        Loop(loop.index, loop.body)
        if broken == "not carried"
        else Loop(loop.index, loop.body, width=8, scans=loop.scans)
    )
    with pytest.raises(InternalError, match=r"carried|lanes"):
        check_kernel(Kernel("broken", kernel.buffers, (changed,)))
