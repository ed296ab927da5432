"""Kernels compiled to machine code, against NumPy."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from fnx import dtypes
from fnx.cpu import emit, jit
from fnx.errors import InternalError
from fnx.kernel.build import KernelBuilder
from fnx.kernel.check import check_kernel
from fnx.kernel.expr import Buffer, Expr, linear_offset, unravel
from fnx.kernel.ir import Kernel, parallel_loops
from tests.chunks import run_in_chunks

REALS = [d for d in dtypes.SUPPORTED if not dtypes.is_complex(d)]
PAIRS = list(itertools.product(REALS, REALS))
SIZES = [1, 2, 3, 5, 7, 8, 9, 16, 31, 37, 64, 100, 127, 1000, 1009]


def compiled(kernel: Kernel) -> jit.Library:
    check_kernel(kernel)
    module = emit.Module()
    name = module.add(kernel)
    module.define(emit.exported("main", name, len(kernel.buffers)))
    return jit.load(jit.assemble(module.text()), ["main"])


def run(k: KernelBuilder, *arrays: np.ndarray) -> None:
    """Finish, check, compile and run a kernel on contiguous arrays, one a buffer."""
    kernel = k.finish("test")
    library = compiled(kernel)
    assert all(a.flags.c_contiguous for a in arrays)
    library.function("main", len(arrays))(*[a.ctypes.data for a in arrays])


def elementwise(function, *inputs: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Run `function(k, *values)` over all elements of arrays of one shape."""
    k = KernelBuilder()
    sources = [k.buffer(f"x{n}", a.dtype, a.size, "in") for n, a in enumerate(inputs)]
    target = k.buffer("y", out.dtype, out.size, "out")
    offset = linear_offset(k.domain(out.shape), out.shape)
    values = [k.load(source, offset) for source in sources]
    k.store(target, offset, function(k, *values))
    run(k, *inputs, out)
    return out


def random(shape, dtype, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if dtype is dtypes.bool_:
        return np.asarray(generator.random(shape) < 0.5)
    if dtypes.is_integer(dtype):
        info = np.iinfo(dtype)
        low, high = info.min, info.max
        return generator.integers(low, high, shape, dtype, endpoint=True)
    return np.asarray(generator.standard_normal(shape) * 3).astype(dtype)


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


def gathered(shape, out_dtype, build, *inputs: np.ndarray) -> np.ndarray:
    """Run `build(k, index, *buffers)` for each index of a shape."""
    k = KernelBuilder()
    sources = [k.buffer(f"x{n}", a.dtype, a.size, "in") for n, a in enumerate(inputs)]
    out = np.empty(shape, out_dtype)
    target = k.buffer("y", out.dtype, out.size, "out")
    index = k.domain(shape)
    k.store(target, linear_offset(index, shape), build(k, index, *sources))
    run(k, *inputs, out)
    return out


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


def softmax_kernel(shape: tuple[int, int], axis: int = 1) -> KernelBuilder:
    """Softmax of an f32 array over one axis."""
    k = KernelBuilder()
    size = shape[0] * shape[1]
    source = k.buffer("x", dtypes.float32, size, "in")
    target = k.buffer("y", dtypes.float32, size, "out")
    index = k.domain(shape)

    def at(i) -> Expr:
        place = list(index)
        place[axis] = i
        return k.load(source, linear_offset(place, shape))

    extent = [shape[axis]]
    largest = k.fold("max", "row", extent, lambda j: at(j[0]))

    def shifted(i) -> Expr:
        return k.op("exp", k.sub(at(i), largest))

    total = k.fold("add", "row", extent, lambda j: shifted(j[0]))
    k.store(target, linear_offset(index, shape), k.div(shifted(index[axis]), total))
    return k


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


# ---------------------------------------------------------------- modules


def test_equal_kernels_share_their_code():
    module = emit.Module()
    first = module.add(softmax_kernel((3, 4)).finish("a"))
    assert module.add(softmax_kernel((3, 4)).finish("b")) == first
    assert module.add(softmax_kernel((3, 5)).finish("c")) != first


def run_shared(k: KernelBuilder, chunk: int, *arrays: np.ndarray) -> int:
    """Run a kernel whose parallel loops are cut; gives how many there are."""
    kernel = k.finish("test")
    run_in_chunks(kernel, chunk, *arrays)
    return len(parallel_loops(kernel))


@pytest.mark.parametrize("size", [100, 1003])
@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_shared_loops(size, chunk):
    k = KernelBuilder()
    source = k.buffer("x", dtypes.float32, size, "in")
    target = k.buffer("y", dtypes.float32, size, "out")
    (i,) = k.domain((size,))
    k.store(target, i, k.neg(k.load(source, i)))
    x = random(size, dtypes.float32)
    out = np.zeros_like(x)
    assert run_shared(k, chunk, x, out) == 1
    np.testing.assert_array_equal(out, -x)


@pytest.mark.parametrize("dtype", [d for d in REALS if d is not dtypes.bool_], ids=str)
@pytest.mark.parametrize("size", [70_000, 70_001])
def test_shared_folds_and_what_follows_them(dtype, size):
    def build() -> KernelBuilder:
        k = KernelBuilder()
        source = k.buffer("x", dtype, size, "in")
        ends = k.buffer("ends", dtype, 2, "out")
        target = k.buffer("y", dtypes.bool_, size, "out")

        def element(index):
            return k.load(source, index[0])

        first = k.load(source, 5)  # known before the loops, used in all of them
        largest = k.fold("max", "i", (size,), lambda i: k.max(element(i), first))
        least = k.fold("min", "i", (size,), lambda i: k.min(element(i), first))
        (i,) = k.domain((size,))
        k.store(target, i, k.eq(element((i,)), k.max(largest, first)))
        k.store(ends, i // size, k.max(largest, least))
        return k

    x = random(size, dtype)
    x[5] = x.min()
    outs = []
    for chunk in (None, 1, 5):
        ends, y = np.zeros(2, dtype), np.zeros(size, np.bool_)
        if chunk is None:
            run(build(), x, ends, y)
        else:
            assert run_shared(build(), chunk, x, ends, y)
        outs.append((ends.tobytes(), y.tobytes()))
    assert outs[0] == outs[1] == outs[2]
    np.testing.assert_array_equal(np.frombuffer(outs[0][1], np.bool_), x == x.max())


def test_helpers_are_compiled_apart():
    x = random(100, dtypes.float32) * 1e9
    out = np.empty_like(x)
    elementwise(lambda k, a: k.op("sin", a), x, out=out)
    np.testing.assert_allclose(out, np.sin(x.astype(np.float64)), atol=1e-6)


def test_text_that_does_not_parse_is_shown():
    with pytest.raises(InternalError, match="define nonsense"):
        jit.assemble("define nonsense")


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_functions_of_the_c_library_are_found(dtype):
    x, y = random(21, dtype, 1), random(21, dtype, 2)
    out = np.empty_like(x)
    elementwise(lambda k, a, b: k.rem(a, b), x, y, out=out)
    np.testing.assert_array_equal(out, np.fmod(x, y))


# ---------------------------------------------------------------- cutting a module


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_a_module_that_is_cut_gives_the_same_functions(count):
    module = emit.Module()
    names = []
    for n in range(3):
        k = KernelBuilder()
        (i,) = k.domain((50,))
        x, out = (
            k.buffer("x", dtypes.float32, 50, "in"),
            k.buffer("out", dtypes.float32, 50, "out"),
        )
        k.store(
            out,
            i,
            k.op("sin", k.mul(k.load(x, i), k.constant(n + 1.0, dtypes.float32))),
        )
        names.append(module.add(k.finish(f"times{n}")))
    for name in names:
        module.define(emit.exported(f"main_{name}", name, 2))
    texts = module.cut(count)
    assert 1 <= len(texts) <= count
    objects = tuple(jit.assemble(text).objects[0] for text in texts)
    exports = [f"main_{name}" for name in names]
    library = jit.load(jit.Code(objects, module.helpers()), exports)
    values = np.linspace(-3, 3, 50, dtype=np.float32)
    for n, export in enumerate(exports):
        found = np.zeros(50, np.float32)
        library.function(export, 2)(values.ctypes.data, found.ctypes.data)
        np.testing.assert_allclose(found, np.sin(values * np.float32(n + 1)), rtol=1e-6)


def test_long_modules_are_compiled_on_several_threads(monkeypatch):
    monkeypatch.setattr(jit, "_PART", 500)
    threads = set()
    real = jit._object

    def recorded(text, machine, optimised):
        threads.add(threading.get_ident())
        return real(text, machine, optimised)

    monkeypatch.setattr(jit, "_object", recorded)
    module = emit.Module()
    k = KernelBuilder()
    (i,) = k.domain((9,))
    x, out = (
        k.buffer("x", dtypes.float32, 9, "in"),
        k.buffer("out", dtypes.float32, 9, "out"),
    )
    k.store(out, i, k.op("exp", k.load(x, i)))
    module.define(emit.exported("main", module.add(k.finish("exp")), 2))
    code = jit.assemble_module(module, 3)
    assert len(code.objects) == 2
    assert threading.get_ident() not in threads
    found, values = np.zeros(9, np.float32), np.linspace(-1, 1, 9, dtype=np.float32)
    jit.load(code, ["main"]).function("main", 2)(values.ctypes.data, found.ctypes.data)
    np.testing.assert_allclose(found, np.exp(values), rtol=1e-6)
