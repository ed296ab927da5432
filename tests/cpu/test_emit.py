"""Kernels compiled to machine code, against NumPy: elementwise, reads and stores."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fnx import dtypes
from fnx.kernel.build import KernelBuilder
from fnx.kernel.expr import Buffer, Expr, linear_offset, unravel
from tests.cpu.kernels import REALS, SIZES, elementwise, gathered, random, run

PAIRS = list(itertools.product(REALS, REALS))

# ---------------------------------------------------------------- elementwise


@pytest.mark.parametrize("size", SIZES)
def test_elementwise_at_awkward_sizes(size):
    x, y = random(size, dtypes.float32, 1), random(size, dtypes.float32, 2)
    out = np.empty_like(x)
    elementwise(lambda k, a, b: k.add(k.mul(a, a), b), x, y, out=out)
    np.testing.assert_array_equal(out, x * x + y)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3, 1), (4, 5), (2, 3, 8)])
def test_elementwise_of_small_shapes(shape):
    x = random(shape, dtypes.float64)
    out = np.empty_like(x)
    elementwise(lambda k, a: k.neg(a), x, out=out)
    np.testing.assert_array_equal(out, -x)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_nothing_is_stored_over_an_empty_domain(shape):
    k = KernelBuilder()
    x = k.buffer("x", dtypes.float32, 1, "in")
    y = k.buffer("y", dtypes.float32, 1, "out")
    k.store(y, linear_offset(k.domain(shape), shape), k.load(x, 0))
    out = np.array([7], np.float32)
    run(k, np.zeros(1, np.float32), out)
    assert out[0] == 7


def test_special_values_survive():
    tiny = np.float32(1e-45)
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, tiny, -tiny, 1, 2], np.float32)
    out = np.empty_like(x)
    elementwise(lambda k, a: k.mul(a, k.constant(1.0, a.dtype)), x, out=out)
    np.testing.assert_array_equal(out.view(np.int32)[1:], x.view(np.int32)[1:])
    same = np.empty(9, np.bool_)
    elementwise(lambda k, a: k.ne(a, a), x, out=same)
    np.testing.assert_array_equal(same, np.isnan(x))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1e-45, 0.1])
@pytest.mark.parametrize("dtype", [d for d in REALS if dtypes.is_float(d)], ids=str)
def test_constants(value, dtype):
    out = np.empty(11, dtype)
    k = KernelBuilder()
    y = k.buffer("y", dtype, 11, "out")
    (i,) = k.domain((11,))
    k.store(y, i, k.constant(value, dtype))
    run(k, out)
    expected = np.full(11, value).astype(dtype)
    bits = f"u{dtype.itemsize}"
    np.testing.assert_array_equal(out.view(bits), expected.view(bits))


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("size", [1, 5, 67])
def test_every_dtype_is_loaded_and_stored(dtype, size):
    x = random(size, dtype)
    out = np.empty_like(x)
    elementwise(lambda k, a: a, x, out=out)
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_conversions(source, target):
    x = random(43, source)
    out = np.empty(43, target)
    elementwise(lambda k, a: k.convert(a, target), x, out=out)
    if dtypes.is_float(source) and dtypes.is_integer(target):
        info = np.iinfo(target)
        wide = x.astype(np.float64)
        np.testing.assert_array_equal(
            out, np.clip(wide, info.min, info.max).astype(target)
        )
    else:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(out, x.astype(target))


@pytest.mark.parametrize("dtype", [d for d in REALS if dtypes.is_integer(d)], ids=str)
def test_integers_wrap(dtype):
    x, y = random(53, dtype, 1), random(53, dtype, 2)
    with np.errstate(all="ignore"):
        for name, expected in [("add", x + y), ("mul", x * y), ("sub", x - y)]:
            out = np.empty_like(x)
            elementwise(lambda k, a, b, name=name: k.op(name, a, b), x, y, out=out)
            np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_16_bit_floats_round_after_each_operation(dtype):
    x, y = random(61, dtype, 1), random(61, dtype, 2)
    out = np.empty_like(x)
    elementwise(lambda k, a, b: k.add(k.mul(a, b), k.mul(a, a)), x, y, out=out)
    np.testing.assert_array_equal(out, x * y + x * x)
    less = np.empty(61, np.bool_)
    elementwise(lambda k, a, b: k.lt(a, b), x, y, out=less)
    np.testing.assert_array_equal(less, x < y)


def test_several_outputs():
    x = random(45, dtypes.float32)
    k = KernelBuilder()
    source = k.buffer("x", x.dtype, 45, "in")
    first, second = (k.buffer(name, x.dtype, 45, "out") for name in "yz")
    (i,) = k.domain((45,))
    value = k.load(source, i)
    k.store(first, i, k.neg(value))
    k.store(second, i, k.abs(value))
    outs = np.empty_like(x), np.empty_like(x)
    run(k, x, *outs)
    np.testing.assert_array_equal(outs[0], -x)
    np.testing.assert_array_equal(outs[1], np.abs(x))


def test_in_place():
    x = random(45, dtypes.float32)
    expected = x * x
    k = KernelBuilder()
    buffer = k.buffer("x", x.dtype, 45, "inout")
    (i,) = k.domain((45,))
    value = k.load(buffer, i)
    k.store(buffer, i, k.mul(value, value))
    run(k, x)
    np.testing.assert_array_equal(x, expected)


# ---------------------------------------------------------------- reads


@pytest.mark.parametrize("shape", [(3, 5), (8, 16), (17, 33), (1, 9), (96, 80)])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int8], ids=str)
def test_transposed(shape, dtype):
    x = random(shape[::-1], dtype)
    out = gathered(shape, dtype, lambda k, i, b: k.load(b, i[1] * shape[0] + i[0]), x)
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("size", [1, 7, 8, 100])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bool_], ids=str)
def test_reversed(size, dtype):
    x = random(size, dtype)
    out = gathered((size,), dtype, lambda k, i, b: k.load(b, size - 1 - i[0]), x)
    np.testing.assert_array_equal(out, x[::-1])


@pytest.mark.parametrize("step", [2, 3, -2])
@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_strided(step, dtype):
    x = random(103, dtype)
    expected = x[::step]
    first = 0 if step > 0 else 102
    out = gathered(
        expected.shape, dtype, lambda k, i, b: k.load(b, first + step * i[0]), x
    )
    np.testing.assert_array_equal(out, expected)


def test_broadcast():
    x, y = random(13, dtypes.float32, 1), random(21, dtypes.float32, 2)
    out = gathered(
        (13, 21),
        x.dtype,
        lambda k, i, a, b: k.add(k.load(a, i[0]), k.load(b, i[1])),
        x,
        y,
    )
    np.testing.assert_array_equal(out, x[:, None] + y)


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("lo", [0, 3, 8])
def test_padded(dtype, lo):
    x = random(21, dtype)

    def build(k: KernelBuilder, index, source: Buffer) -> Expr:
        i = index[0] - lo
        zero = k.constant(0, dtype)
        return k.where(k.inside(i, 0, 21), lambda: k.load(source, i), lambda: zero)

    out = gathered((35,), dtype, build, x)
    np.testing.assert_array_equal(out, np.pad(x, (lo, 14 - lo)))


@pytest.mark.parametrize("axis", [0, 1])
def test_concatenated(axis):
    x, y = random((5, 9), dtypes.float32, 1), random((5, 9), dtypes.float32, 2)
    shape = (10, 9) if axis == 0 else (5, 18)

    def build(k: KernelBuilder, index, a: Buffer, b: Buffer) -> Expr:
        other = list(index)
        other[axis] = index[axis] - x.shape[axis]
        return k.where(
            k.inside(index[axis], 0, x.shape[axis]),
            lambda: k.load(a, linear_offset(index, x.shape)),
            lambda: k.load(b, linear_offset(other, x.shape)),
        )

    out = gathered(shape, x.dtype, build, x, y)
    np.testing.assert_array_equal(out, np.concatenate([x, y], axis))


@pytest.mark.parametrize(
    "shapes", [((6, 8), (8, 6)), ((4, 6), (3, 8)), ((5, 7), (35,))]
)
def test_reshape_of_transposed(shapes):
    old, new = shapes
    x = random(old[::-1], dtypes.float32)

    def build(k: KernelBuilder, index, source: Buffer) -> Expr:
        inner = unravel(k.table.number(0) + linear_offset(index, new), old)
        return k.load(source, linear_offset(inner[::-1], old[::-1]))

    out = gathered(new, x.dtype, build, x)
    np.testing.assert_array_equal(out, x.T.reshape(new))


@pytest.mark.parametrize(
    "position", [dtypes.int32, dtypes.int64, dtypes.uint8], ids=str
)
def test_gather_by_data(position):
    x = random(50, dtypes.float32)
    where = np.random.default_rng(3).integers(0, 50, 29).astype(position)

    def build(k: KernelBuilder, index, source: Buffer, chosen: Buffer) -> Expr:
        return k.load(source, k.as_index(k.load(chosen, index[0]), 0, 49))

    out = gathered((29,), x.dtype, build, x, where)
    np.testing.assert_array_equal(out, x[where])


@pytest.mark.parametrize("dtype", [d for d in REALS if d is not dtypes.bool_], ids=str)
def test_iota(dtype):
    out = gathered(
        (5, 23), dtype, lambda k, i: k.index_value(i[0] * 3 - i[1] + 40, dtype)
    )
    rows, columns = np.indices((5, 23))
    np.testing.assert_array_equal(out, (rows * 3 - columns + 40).astype(dtype))


# ---------------------------------------------------------------- stores


def test_scatter_add_is_serial():
    where = np.array([3, 1, 3, 3, 0, 1, 3, 3, 3, 2, 3, 3], np.int32)
    x = random(12, dtypes.float32)
    k = KernelBuilder()
    source = k.buffer("x", x.dtype, 12, "in")
    chosen = k.buffer("i", dtypes.int32, 12, "in")
    target = k.buffer("y", x.dtype, 4, "inout")
    (i,) = k.domain((12,))
    offset = k.as_index(k.load(chosen, i), 0, 3)
    k.store(target, offset, k.load(source, i), combine="add")
    out = random(4, dtypes.float32, 5)
    expected = out.copy()
    np.add.at(expected, where, x)
    run(k, x, where, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "dtype", [dtypes.bfloat16, dtypes.int8, dtypes.float64], ids=str
)
@pytest.mark.parametrize("combine", ["add", "mul", "max", "min"])
def test_combining_stores(combine, dtype):
    x, out = random(9, dtype, 1), random(3, dtype, 2)
    expected = out.copy()
    function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    with np.errstate(all="ignore"):
        for n in range(9):
            expected[n // 3] = function[combine](expected[n // 3], x[n])
    k = KernelBuilder()
    source = k.buffer("x", dtype, 9, "in")
    target = k.buffer("y", dtype, 3, "inout")
    (i,) = k.domain((9,))
    k.store(target, i // 3, k.load(source, i), combine=combine)
    run(k, x, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int8], ids=str
)
@pytest.mark.parametrize("masked", [False, True])
def test_rows_are_added_in_lanes(dtype, masked):
    where = np.array([3, 1, 3, -1, 0, 3], np.int32)
    x, out = random(6 * 21, dtype), random(4 * 21, dtype, 5)
    expected = out.reshape(4, 21).copy()
    with np.errstate(all="ignore"):
        for row, values in zip(where, x.reshape(6, 21), strict=True):
            if row >= 0 or not masked:
                expected[max(row, 0)] += values
    k = KernelBuilder()
    source = k.buffer("x", dtype, x.size, "in")
    chosen = k.buffer("i", dtypes.int32, 6, "in")
    target = k.buffer("y", dtype, out.size, "inout")
    i, j = k.domain((6, 21))
    zero, row = k.constant(0, dtypes.int32), k.load(chosen, i)
    place = k.as_index(k.max(row, zero), 0, 3) * 21 + j
    mask = k.ge(row, zero) if masked else None
    k.store(target, place, k.load(source, i * 21 + j), combine="add", mask=mask)
    run(k, x, where, out)
    np.testing.assert_array_equal(out.reshape(4, 21), expected)


def test_the_last_of_several_stores_wins():
    where = np.array([1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1], np.int32)
    x = random(14, dtypes.float32)
    k = KernelBuilder()
    source = k.buffer("x", x.dtype, 14, "in")
    chosen = k.buffer("i", dtypes.int32, 14, "in")
    target = k.buffer("y", x.dtype, 2, "out")
    (i,) = k.domain((14,))
    k.store(target, k.as_index(k.load(chosen, i), 0, 1), k.load(source, i))
    out = np.empty(2, np.float32)
    run(k, x, where, out)
    np.testing.assert_array_equal(out, x[[12, 13]])


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int8, dtypes.bool_], ids=str)
@pytest.mark.parametrize("step", [1, 2])
def test_masked_stores(dtype, step):
    x, out = random(37, dtype, 1), random(37 * step, dtype, 2)
    expected = out.copy()
    mask = np.arange(37) % 3 == 0
    expected[: 37 * step : step][mask] = x[mask]
    k = KernelBuilder()
    source = k.buffer("x", dtype, 37, "in")
    flags = k.buffer("m", dtypes.bool_, 37, "in")
    target = k.buffer("y", dtype, out.size, "inout")
    (i,) = k.domain((37,))
    k.store(target, i * step, k.load(source, i), mask=k.load(flags, i))
    run(k, x, mask, out)
    np.testing.assert_array_equal(out, expected)
