"""Matrix products by kernels of our own, on the emulator: values at awkward shapes.

Every kernel is run with every layout that changes its text; the arrays have room around
the matrices, of NaN, which must be neither read into sums nor written.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from fnx import dtypes
from fnx_cuda import _cupy
from fnx_cuda.convolution import PRODUCTS
from fnx_cuda.products import PROCESSORS, product_launches, product_work
from fnx_cuda.products_numbers import multiplies, numbers
from fnx_cuda.products_problem import problem
from fnx_cuda.products_tensor import ROUNDED_TILES, TENSOR_TILES, tensor_launches
from fnx_cuda.products_tile import TILES, Cut, tile_launches, work_bytes
from fnx_cuda.products_vector import vector_launches, vector_splits
from tests import cuda_emulator as emulator
from tests.cuda.products import Case, check, launched, memories, viewed

pytestmark = pytest.mark.cuda

TRANSPOSED = list(itertools.product([False, True], repeat=2))
OTHERS = [dtype for dtype in dtypes.SUPPORTED if dtype not in TENSOR_TILES]
named = pytest.mark.parametrize


@pytest.fixture(autouse=True)
def machine():
    """An emulated machine; what a GPU would not report, it finds."""
    reason = emulator.reason_missing()
    if reason:
        pytest.skip(reason)
    before = _cupy._module
    _cupy.use(emulator.cupy_module())
    made = emulator.reset(emulator.Settings(devices=1))
    yield made
    _cupy.use(before)
    assert not made.findings


def verify(case, rng, launches=None, work=None):
    """Runs a case by its own launches, or by those given; the functions that ran."""
    step = case.step
    if launches is None:
        launches, work = product_launches(step), product_work(step)
    before = memories(step, rng)
    check(step, before, launched(launches, before, work or 0))
    return [launch.function for launch in launches]


# ---------------------------------------------------------------- shapes and layouts


@named("dtype", dtypes.SUPPORTED, ids=dtypes.short)
@named("x_transposed, y_transposed", TRANSPOSED)
def test_every_dtype_in_every_layout(dtype, x_transposed, y_transposed, rng):
    case = Case(33, 17, 40, dtype, x_transposed, y_transposed)
    verify(case, rng)
    # Nothing is aligned to more than an element.
    verify(replace(case, batch=(2,), pad=1, offset=3), rng)


@named("m, n, k", list(itertools.permutations([1, 7, 130])))
@named("dtype", [dtypes.float32, dtypes.float64, dtypes.bfloat16], ids=dtypes.short)
def test_long_sides(dtype, m, n, k, rng):
    verify(Case(m, n, k, dtype), rng)
    verify(Case(m, n, k, dtype, True, True, pad=2), rng)


@named("size", [1, 2, 3, 17, 65])
@named("dtype", [dtypes.float32, dtypes.float16, dtypes.int64], ids=dtypes.short)
def test_squares(dtype, size, rng):
    verify(Case(size, size, size, dtype, y_transposed=True), rng)


@named("m, n, k", [(2, 3, 2), (5, 65, 3), (40, 9, 33)])
@named("dtype", [dtypes.float32, dtypes.complex64, dtypes.float16], ids=dtypes.short)
def test_stacks(dtype, m, n, k, rng):
    case = Case(m, n, k, dtype, batch=(2, 3), offset=4)
    verify(case, rng)
    verify(replace(case, batch=(2, 1, 3), x_transposed=True, pad=3), rng)
    verify(replace(case, shared=True, y_transposed=True), rng)


@named("m, n", [(1, 1), (3, 70), (65, 65)])
@named("dtype", [dtypes.float32, dtypes.float16], ids=dtypes.short)
def test_sums_of_nothing_are_zero(dtype, m, n, rng):
    case = Case(m, n, 0, dtype)
    before = memories(case.step, rng)
    out = launched(product_launches(case.step), before, product_work(case.step))
    np.testing.assert_array_equal(out, np.zeros(m * n, dtype))


def test_products_without_elements_are_no_launches():
    for sizes in (0, 3, 4), (3, 0, 4):
        assert product_launches(Case(*sizes).step) == ()
        assert product_work(Case(*sizes).step) == 0


def test_infinities_stay_in_their_row_and_column(rng):
    step = Case(70, 70, 35).step
    before = memories(step, rng)
    p = step.product
    x, y = viewed(before[1], p.x, (), 70, 35), viewed(before[2], p.y, (), 35, 70)
    x[3, 34], y[34, 69] = np.inf, np.nan
    out = viewed(launched(product_launches(step), before, 0), p.out, (), 70, 70)
    assert np.isinf(out[3, :69]).all()
    assert np.isnan(out[:, 69]).all()
    assert np.isfinite(np.delete(out[:, :69], 3, axis=0)).all()


def test_subnormal_numbers_survive(rng):
    step = Case(9, 70, 1).step
    before = memories(step, rng)
    before[1][...] = 1e-30
    before[2][...] = 1e-10
    out = launched(product_launches(step), before, 0)
    np.testing.assert_array_equal(out, np.float32(1e-30) * np.float32(1e-10))
    assert 0 < out[0] < np.finfo(np.float32).tiny


WIDER = [
    (dtypes.float16, dtypes.float32),
    (dtypes.bfloat16, dtypes.float32),
    (dtypes.int8, dtypes.int32),
    (dtypes.uint8, dtypes.uint16),
]


@named("dtype, out_dtype", WIDER)
def test_results_as_wide_as_sums(dtype, out_dtype, rng):
    for m, n, k in (40, 33, 50), (3, 70, 50), (4, 5, 6), (20, 20, 2048):
        assert multiplies(dtype, out_dtype)
        verify(Case(m, n, k, dtype, out_dtype=out_dtype), rng)
        verify(Case(m, n, k, dtype, True, pad=1, out_dtype=out_dtype), rng)


def test_which_results_there_are():
    assert all(multiplies(dtype, dtype) for dtype in dtypes.SUPPORTED)
    wrong = [
        (dtypes.float32, dtypes.float64),
        (dtypes.float16, dtypes.bfloat16),
        (dtypes.float16, dtypes.float64),
        (dtypes.int8, dtypes.int64),
        (dtypes.int8, dtypes.uint32),
        (dtypes.int8, dtypes.float32),
        (dtypes.bool_, dtypes.int32),
        (dtypes.complex64, dtypes.complex128),
    ]
    assert not any(multiplies(dtype, out) for dtype, out in wrong)


# ---------------------------------------------------------------- each kernel


@named("dtype", OTHERS, ids=dtypes.short)
@named("splits", [1, 3])
def test_tiles(dtype, splits, rng):
    for tile, size in itertools.product(
        TILES[numbers(dtype, dtype).sum_size], [48, 45]
    ):
        # Full vectors, and none.
        m, n = tile.rows + size, tile.columns // 2 + size
        case = Case(m, n, 3 * tile.depth, dtype, batch=(2,) if size == 45 else ())
        given = problem(case.step)
        launches = tile_launches(given, Cut(tile, splits, given.k // splits))
        work = work_bytes(given, splits) if splits > 1 else 0
        verify(case, rng, launches, work)


@named("which", [0, 1], ids=["large", "small"])
@named("dtype", TENSOR_TILES, ids=dtypes.short)
@named("x_transposed, y_transposed", TRANSPOSED)
def test_tensor_cores(dtype, which, x_transposed, y_transposed, rng):
    tile = TENSOR_TILES[dtype][which]
    for pad, splits in (0, 1), (1, 1), (2, 2), (4, 3):
        m, n = tile.rows + 8, tile.columns // 2 + 8
        case = Case(m, n, 96, dtype, x_transposed, y_transposed, pad=pad)
        given = problem(case.step)
        cut = Cut(tile, splits, -(-96 // splits // 32) * 32)
        work = work_bytes(given, splits) if splits > 1 else 0
        verify(case, rng, tensor_launches(given, cut), work)


def to_tf32(x):
    """The nearest float32 of ten bits behind the point, away from zero in ties."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    finite = (bits & 0x7F800000) != 0x7F800000
    return np.where(finite, (bits + 0x1000) & 0xFFFFE000, bits).view(np.float32)


@named("which", [0, 1], ids=["large", "small"])
@named("x_transposed, y_transposed", TRANSPOSED)
def test_float32_rounded_for_tensor_cores(which, x_transposed, y_transposed, rng):
    tile = ROUNDED_TILES[which]
    for pad, splits in (0, 1), (1, 1), (2, 2), (4, 3):
        m, n = tile.rows + 8, tile.columns // 2 + 8
        sides = x_transposed, y_transposed
        step = Case(m, n, 96, np.float32, *sides, pad=pad, tf32=True).step
        given = problem(step)
        cut = Cut(tile, splits, -(-96 // splits // 32) * 32)
        work = work_bytes(given, splits) if splits > 1 else 0
        before = memories(step, rng)
        out = launched(tensor_launches(given, cut), before, work)
        # What is rounded is multiplied and added up in float32.
        check(step, [before[0], *map(to_tf32, before[1:])], out)
        if not pad:
            with pytest.raises(AssertionError):
                check(step, before, out)


def test_rounded_products_in_any_shape(rng):
    for m, n, k in (20, 72, 1), (33, 9, 130), (40, 48, 15), (129, 70, 64):
        step = Case(m, n, k, tf32=True).step
        launches, work = product_launches(step), product_work(step)
        assert launches[0].function == "fnx_tensor_rounded"
        before = memories(step, rng)
        out = launched(launches, before, work)
        check(step, [before[0], *map(to_tf32, before[1:])], out)


def test_rounded_products_keep_infinities_and_nan(rng):
    step = Case(40, 48, 36, tf32=True).step
    before = memories(step, rng)
    x, y = before[1].reshape(40, 36), before[2].reshape(36, 48)
    x[3, 5], x[7, 9], y[1, 2] = np.nan, np.inf, -np.inf
    out = launched(product_launches(step), before, product_work(step))
    with np.errstate(invalid="ignore"):
        want = to_tf32(x).astype(np.float64) @ to_tf32(y)
    got = out.reshape(40, 48)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    assert np.isnan(got[3]).all() and np.isinf(got[7]).sum() > 40


@named("dtype", TENSOR_TILES, ids=dtypes.short)
def test_tensor_cores_have_as_many_steps_as_k(dtype, rng):
    for k in 1, 15, 16, 33, 64, 130:
        (function,) = verify(Case(20, 72, k, dtype), rng)
        wide = dtype == dtypes.float64
        assert function == ("fnx_tensor_double" if wide else "fnx_tensor")


@named("dtype", dtypes.SUPPORTED, ids=dtypes.short)
@named("n", [1, 3, 8])
def test_few_columns(dtype, n, rng):
    for x_transposed, pad in itertools.product([False, True], [0, 1]):
        case = Case(70, n, 200, dtype, x_transposed, pad=pad)
        function = "fnx_columns" if x_transposed else "fnx_rows"
        assert verify(case, rng) == [function]
        # The same rows and columns exchanged: outᵀ = yᵀ @ xᵀ.
        turned = Case(n, 70, 200, dtype, False, not x_transposed, pad=pad)
        assert verify(turned, rng) == [function]


@named("dtype", [dtypes.float32, dtypes.float16, dtypes.int8], ids=dtypes.short)
@named("x_transposed", [False, True])
def test_few_columns_of_long_sums_are_split(dtype, x_transposed, rng):
    case = Case(3, 2, 3100, dtype, x_transposed, batch=(2,))
    given = problem(case.step)
    splits = vector_splits(given)
    assert splits == 3
    launches = vector_launches(given)
    assert [launch.function for launch in launches][1:] == ["fnx_split_sum"]
    verify(case, rng, launches, work_bytes(given, splits))


# ---------------------------------------------------------------- choices


@named(
    "case, functions",
    [
        (Case(4, 4, 4, batch=(1000,)), ["fnx_elements"]),
        (Case(1, 1, 4096), ["fnx_rows", "fnx_split_sum"]),
        (Case(4096, 1, 4096), ["fnx_rows"]),
        (Case(4096, 1, 4096, x_transposed=True), ["fnx_columns", "fnx_split_sum"]),
        (Case(1, 4096, 4096), ["fnx_columns", "fnx_split_sum"]),
        (Case(4096, 4096, 4096), ["fnx_tiles"]),
        (Case(64, 64, 16384), ["fnx_tiles", "fnx_split_sum"]),
        (Case(64, 64, 64, batch=(1024,)), ["fnx_tiles"]),
        (Case(4096, 4096, 4096, dtypes.float16), ["fnx_tensor"]),
        (Case(128, 128, 16384, dtypes.bfloat16), ["fnx_tensor", "fnx_split_sum"]),
    ],
)
def test_which_kernels_serve(case, functions):
    launches = product_launches(case.step)
    assert [launch.function for launch in launches] == functions


def test_large_products_have_large_tiles():
    blocks = {
        size: product_launches(Case(size, size, 1024).step)[0].grid[0]
        for size in (512, 1024, 4096)
    }
    assert blocks[4096] == (4096 // 128) ** 2
    # Smaller ones have smaller tiles, or splits, so that every processor has work.
    assert blocks[1024] >= PROCESSORS
    assert blocks[512] >= PROCESSORS


def test_splits_of_short_sums_do_not_pay():
    for k in 64, 128:
        assert product_work(Case(64, 64, k).step) == 0


def test_products_of_many_shapes_share_a_text():
    texts = {
        product_launches(Case(m, n, k, batch=(3,)).step)[0].text
        for m, n, k in [(2048, 1024, 512), (1024, 2048, 768), (4096, 4096, 4096)]
    }
    assert len(texts) == 1
    assert not re.search(r"\b(1024|2048|4096)\b", texts.pop())


def test_far_elements_have_long_indices():
    (near,) = product_launches(Case(4096, 4096, 4096).step)
    (far,) = product_launches(Case(65536, 65536, 64).step)
    assert "typedef int Index" in near.text
    assert "typedef long long Index" in far.text


def test_long_indices_compute_the_same(rng):
    case = Case(70, 33, 21, pad=1)
    launches = [
        replace(
            launch,
            text=launch.text.replace("typedef int Index", "typedef long long Index"),
        )
        for launch in product_launches(case.step)
    ]
    verify(case, rng, launches, product_work(case.step))


def test_the_same_bits_in_every_run(rng):
    case = Case(20, 20, 2048)
    launches, work = product_launches(case.step), product_work(case.step)
    assert len(launches) == 2
    before = memories(case.step, rng)
    first = launched(launches, before, work)
    for seed in 1, 2:
        emulator.reset(emulator.Settings(devices=1, seed=seed))
        again = launched(launches, before, work)
        np.testing.assert_array_equal(first.view(np.uint32), again.view(np.uint32))


@named("dtype", [dtypes.float32, dtypes.float16], ids=dtypes.short)
@named("x_transposed, y_transposed", TRANSPOSED)
def test_single_rows_and_columns_lie_both_ways(dtype, x_transposed, y_transposed, rng):
    for m, n, k in (64, 1, 64), (1, 64, 64), (64, 64, 1), (64, 1, 1), (1, 1, 64):
        case = Case(m, n, k, dtype, x_transposed, y_transposed)
        verify(case, rng)
        given = problem(case.step)
        if dtype == dtypes.float32:
            cut = Cut(TILES[4][2], 1, k)
            verify(case, rng, tile_launches(given, cut))
        else:
            verify(case, rng, tensor_launches(given, Cut(TENSOR_TILES[dtype][1], 1, k)))


def test_a_vector_is_read_in_whole_vectors():
    (launch,) = product_launches(Case(4096, 1, 4096).step)
    assert "constexpr int Y_WIDTH = 4;" in launch.text


def test_which_products_pay():
    pays = PRODUCTS.pays
    assert pays(1, 64, 64, 64)
    assert pays(1, 4096, 1, 4096) and pays(1, 1, 4096, 4096)
    # What fits in a kernel's fold stays there: it fuses.
    assert not pays(1000, 16, 16, 16)
    assert not pays(1, 100, 1, 100)
    assert not pays(1, 4096, 4096, 1)
    assert not pays(1, 1, 1, 2**24)
    assert not pays(0, 64, 64, 64)
