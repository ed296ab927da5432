"""Folds, and rows in several stages, compiled to machine code: against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fnx import dtypes
from fnx.cpu import emit
from fnx.kernel.build import KernelBuilder
from fnx.kernel.expr import Buffer, Expr, linear_offset
from tests.cpu.kernels import REALS, gathered, random, run, softmax_kernel

# ---------------------------------------------------------------- folds


def folded(x: np.ndarray, axis, combine: str, out_dtype=None) -> np.ndarray:
    """Reduce an array over some axes."""
    axes = tuple(range(x.ndim)) if axis is None else tuple(np.atleast_1d(axis))
    kept = [n for n in range(x.ndim) if n not in axes]
    shape = tuple(x.shape[n] for n in kept)

    def build(k: KernelBuilder, index, source: Buffer) -> Expr:
        def body(inner):
            full = [*range(x.ndim)]
            for place, i in zip((*kept, *axes), (*index, *inner), strict=True):
                full[place] = i
            value = k.load(source, linear_offset(full, x.shape))
            if not combine.startswith("arg"):
                return value
            position = linear_offset(inner, [x.shape[n] for n in axes])
            return value, k.index_value(position, out_dtype)

        result = k.fold(combine, "r", [x.shape[n] for n in axes], body)
        return result[1] if combine.startswith("arg") else result

    return gathered(shape, out_dtype or x.dtype, build, x)


@pytest.mark.parametrize(
    "shape", [(1, 1), (3, 4), (7, 33), (64, 64), (130, 9), (2, 1001)]
)
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.float64, dtypes.int16], ids=str
)
def test_sums(shape, axis, dtype):
    x = random(shape, dtype)
    out = folded(x, axis, "add")
    if dtypes.is_integer(dtype):
        np.testing.assert_array_equal(out, x.sum(axis, dtype=dtype))
    else:
        expected = x.astype(np.float64).sum(axis)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("axis", [(0, 2), (0, 1), (1, 2), 1])
def test_sums_over_some_axes(axis):
    x = random((5, 6, 19), dtypes.float64)
    np.testing.assert_allclose(
        folded(x, axis, "add"), x.sum(axis), rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("size", [9000, 8209, 100_003, 262_144])
def test_long_sums_are_accurate(size):
    x = (np.random.default_rng(0).random(size) + 1).astype(np.float32)
    exact = x.astype(np.float64).sum()
    assert abs(folded(x, None, "add") - exact) / exact < 1e-6


@pytest.mark.parametrize("shape", [(50_000, 3), (4096, 64), (4099, 24), (65, 1030)])
def test_long_column_sums_are_accurate(shape):
    x = (np.random.default_rng(0).random(shape) + 1).astype(np.float32)
    exact = x.astype(np.float64).sum(0)
    np.testing.assert_allclose(folded(x, 0, "add"), exact, rtol=1e-6)
    np.testing.assert_allclose(folded(x, None, "add"), exact.sum(), rtol=1e-6)


@pytest.mark.parametrize("combine", ["max", "min"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_extremes_propagate_nan(combine, axis):
    x = random((21, 35), dtypes.float32)
    x[3, 4] = np.nan
    reference = np.max if combine == "max" else np.min
    np.testing.assert_array_equal(folded(x, axis, combine), reference(x, axis))


@pytest.mark.parametrize("dtype", [d for d in REALS if d is not dtypes.bool_], ids=str)
@pytest.mark.parametrize("combine", ["max", "min"])
def test_extremes_of_every_dtype(combine, dtype):
    x = random((7, 43), dtype)
    reference = np.max if combine == "max" else np.min
    np.testing.assert_array_equal(folded(x, 1, combine), reference(x, 1))


@pytest.mark.parametrize("combine", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize(
    "dtype", [dtypes.float32, dtypes.int32, dtypes.bfloat16], ids=str
)
def test_positions_of_extremes(combine, axis, dtype):
    generator = np.random.default_rng(1)
    x = generator.integers(-3, 3, (40, 37)).astype(dtype)
    reference = np.argmax if combine == "argmax" else np.argmin
    out = folded(x, axis, combine, dtypes.int32)
    np.testing.assert_array_equal(out, reference(x.astype(np.float64), axis))


@pytest.mark.parametrize("shape", [(65_537,), (70_000,), (100_003,), (3, 100_003)])
@pytest.mark.parametrize("combine", ["argmax", "argmin"])
def test_positions_in_long_arrays(combine, shape):
    x = np.random.default_rng(2).integers(-900, 900, shape).astype(np.float32)
    reference = np.argmax if combine == "argmax" else np.argmin
    out = folded(x, None, combine, dtypes.int32)
    np.testing.assert_array_equal(out, reference(x))


@pytest.mark.parametrize("combine", ["argmax", "argmin"])
def test_the_first_nan_wins(combine):
    x = random((9, 40), dtypes.float32)
    x[:, 17] = x[:, 29] = np.nan
    x[4] = np.inf if combine == "argmin" else -np.inf  # all alike: the first wins
    reference = np.argmax if combine == "argmax" else np.argmin
    out = folded(x, 1, combine, dtypes.int64)
    np.testing.assert_array_equal(out, reference(x, 1))


def test_all_and_any():
    x = np.random.default_rng(0).random((40, 33)) < 0.97
    np.testing.assert_array_equal(folded(x, 1, "and"), x.all(1))
    np.testing.assert_array_equal(folded(~x, 1, "or"), (~x).any(1))
    np.testing.assert_array_equal(folded(~x, 0, "or"), (~x).any(0))


def test_product():
    x = random((11, 13), dtypes.int32)
    np.testing.assert_array_equal(folded(x, 1, "mul"), x.prod(1, dtype=np.int32))


@pytest.mark.parametrize(
    ("combine", "expected"),
    [("add", 0.0), ("mul", 1.0), ("max", -np.inf), ("min", np.inf)],
)
def test_folds_over_nothing(combine, expected):
    out = folded(np.empty((3, 0), np.float32), 1, combine)
    np.testing.assert_array_equal(out, np.full(3, expected, np.float32))
    assert not np.signbit(out).any() or expected < 0


def test_sum_of_negative_zeros():
    assert np.signbit(folded(np.full(9, -0.0, np.float32), None, "add"))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_sums_of_16_bit_floats_round_once(dtype):
    x = random((6, 200), dtype)
    expected = x.astype(np.float32).sum(1).astype(dtype).astype(np.float32)
    out = folded(x, 1, "add").astype(np.float32)
    np.testing.assert_allclose(out, expected, rtol=1e-2)


# ---------------------------------------------------------------- rows in stages


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    "shape", [(3, 5), (16, 64), (33, 37), (1, 8), (8, 1), (40, 1000)]
)
def test_softmax(shape, axis):
    x = random(shape, dtypes.float32)
    out = np.empty_like(x)
    run(softmax_kernel(shape, axis), x, out)
    wide = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    np.testing.assert_allclose(out, wide / wide.sum(axis, keepdims=True), rtol=1e-5)


def test_layer_norm():
    shape = 19, 77
    columns = shape[1]
    x = random(shape, dtypes.float32)
    k = KernelBuilder()
    source = k.buffer("x", x.dtype, x.size, "in")
    target = k.buffer("y", x.dtype, x.size, "out")
    i, j = k.domain(shape)
    count = k.constant(columns, x.dtype)

    def at(column) -> Expr:
        return k.load(source, linear_offset((i, column), shape))

    def mean(value) -> Expr:
        return k.div(k.fold("add", "row", [columns], lambda m: value(m[0])), count)

    average = mean(at)

    def centred(column) -> Expr:
        return k.sub(at(column), average)

    variance = mean(lambda c: k.mul(centred(c), centred(c)))
    k.store(target, i * columns + j, k.div(centred(j), k.sqrt(variance)))
    out = np.empty_like(x)
    run(k, x, out)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("width", "loops"), [(64, 1), (1024, 2)])
def test_short_loops_over_rows_are_unrolled(width, loops):
    k = KernelBuilder()
    x = k.buffer("x", dtypes.float32, 9 * width, "in")
    y = k.buffer("y", dtypes.float32, 9, "out")
    (i,) = k.domain((9,))
    total = k.fold("add", "j", [width], lambda j: k.load(x, i * width + j[0]))
    k.store(y, i, total)
    module = emit.Module()
    module.add(k.finish("rows"))
    assert module.text().count("phi i64") == loops


def test_log_sum_exp_of_rows_summed():
    shape = rows, columns = 21, 45
    x = random(shape, dtypes.float64)
    k = KernelBuilder()
    source = k.buffer("x", x.dtype, x.size, "in")
    target = k.buffer("y", x.dtype, 1, "out")
    k.domain(())

    def row(i) -> Expr:
        def at(j):
            return k.load(source, i[0] * columns + j[0])

        largest = k.fold("max", "column", [columns], at)
        total = k.fold(
            "add", "column", [columns], lambda j: k.op("exp", k.sub(at(j), largest))
        )
        return k.add(k.op("log", total), largest)

    k.store(target, 0, k.fold("add", "row", [rows], row))
    out = np.empty(1)
    run(k, x, out)
    np.testing.assert_allclose(out, np.logaddexp.reduce(x, 1).sum(), rtol=1e-12)
