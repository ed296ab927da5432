"""Stores that may meet at one element: the bits of the CPU, in whatever order they run.

Many updates of few elements, masked ones, windows, batches, every dtype, and values
where the order of combining shows: NaNs, zeros of both signs, sums of floats.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
from fnx.compiler.pipeline import plan_program
from tests.cuda.compare import assert_same, on_device
from tests.targets import GRID

pytestmark = pytest.mark.cuda

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")


def values(rng: np.random.Generator, shape: Any, dtype: str) -> np.ndarray[Any, Any]:
    """Floats around 0 with some that are special, or integers of the whole range."""
    dtype_ = fnx.numpy.dtype(dtype)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    x = rng.standard_normal(shape)
    special = rng.choice([0.0, -0.0, np.inf, -np.inf], shape)
    return np.where(rng.random(shape) < 0.1, special, x).astype(dtype_)


def places(rng: np.random.Generator, size: int, shape: Any) -> np.ndarray[Any, Any]:
    """Indices, some of them negative and some outside."""
    return rng.integers(-size - 3, size + 3, shape, np.int32)


# ---------------------------------------------------------------- in any order


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("how", ["add", "max", "min"])
def test_integers_are_combined_atomically(gpu, rng, dtype: str, how: str) -> None:
    at, x = places(rng, 5, 300), values(rng, 300, dtype)
    operand = values(rng, 5, dtype)
    assert_same(lambda o, i, x: getattr(o.at[i], how)(x), operand, at, x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("how", ["max", "min"])
def test_extremes_of_floats_are_taken_atomically(
    gpu, rng, dtype: str, how: str
) -> None:
    at, x = places(rng, 7, 200), values(rng, 200, dtype)
    operand = values(rng, 7, dtype)
    x[x == 0] = 1  # which of two zeros is stored is tested below
    operand[operand == 0] = -1
    assert_same(lambda o, i, x: getattr(o.at[i], how)(x), operand, at, x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("how", ["max", "min"])
def test_a_nan_wins_and_stays(gpu, dtype: str, how: str) -> None:
    """One that was there, of either sign, and one that comes, first or last."""
    nan = np.copysign(np.array([np.nan, np.nan]), [1, -1])
    operand = np.array([*nan, 0, 1, -1, np.inf]).astype(fnx.numpy.dtype(dtype))
    at = np.array([0, 1, 2, 3, 3, 4, 4, 0, 1, 5], np.int32)
    x = np.array([9, -9, nan[0], nan[1], 7, -3, nan[1], -1, 1, nan[0]], operand.dtype)
    (found,) = on_device(lambda o, i, x: getattr(o.at[i], how)(x), operand, at, x)
    assert np.isnan(found.astype(float)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_zero_that_is_stored_does_not_depend_on_the_order(
    gpu, rng, dtype: str
) -> None:
    x = rng.permutation(np.array([0.0, -0.0] * 40)).astype(fnx.numpy.dtype(dtype))
    operand = np.array([-1.0, -0.0]).astype(x.dtype)
    at = np.arange(80, dtype=np.int32) % 2
    (high,) = on_device(lambda o, i, x: o.at[i].max(x), operand, at, x)
    (low,) = on_device(lambda o, i, x: o.at[i].min(x), -operand, at, x)
    assert not np.signbit(high.astype(float)).any()
    assert np.signbit(low.astype(float)).all()


def test_counting(gpu, rng) -> None:
    at = rng.integers(0, 3, 10_000, np.int32)
    (found,) = assert_same(lambda o, i: o.at[i].add(1), np.zeros(4, np.int32), at)
    np.testing.assert_array_equal(found, np.bincount(at, minlength=4))


def test_unique_updates_need_no_order(gpu, rng) -> None:
    at = rng.permutation(500)[:333].astype(np.int32)
    x, operand = values(rng, (333, 3), "float32"), values(rng, (500, 3), "float32")
    for how in ("add", "set", "multiply"):
        assert_same(
            lambda o, i, x, how=how: getattr(o.at[i], how)(x, unique_indices=True),
            operand,
            at,
            x,
        )


def test_rows_are_read_and_written_as_vectors_or_not_at_all(gpu, rng) -> None:
    at = rng.permutation(700)[:512].astype(np.int32)
    x, operand = values(rng, (512, 256), "float32"), values(rng, (600, 256), "float32")

    def update(o: Any, i: Any, x: Any) -> Any:
        return o.at[i].set(x, unique_indices=True, mode="drop")

    program = fnx.make_jaxpr(update)(operand, at, x)
    kernel = plan_program(program, GRID).kernels[-1]
    assert kernel.launches[0].width == 4
    assert_same(update, operand, at, x)
    assert_same(lambda x: fnx.numpy.pad(x, ((3, 2), (0, 0))) * 2, x)


# ---------------------------------------------------------------- sorted


@pytest.mark.parametrize("mode", ["clip", "drop"])
@pytest.mark.parametrize("how", ["add", "multiply", "set"])
@pytest.mark.parametrize("count", [63, 64, 65, 5000])
def test_floats_are_combined_in_the_order_of_the_cpu(
    gpu, rng, how: str, mode: str, count: int
) -> None:
    at, x = places(rng, 50, count), values(rng, count, "float32")
    operand = values(rng, 50, "float32")

    def update(o: Any, i: Any, x: Any) -> Any:
        return getattr(o.at[i], how)(x, mode=mode)

    with np.errstate(all="ignore"):
        assert_same(update, operand, at, x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint16"])
@pytest.mark.parametrize("how", ["multiply", "set"])
def test_of_every_dtype(gpu, rng, how: str, dtype: str) -> None:
    x, operand = values(rng, (100, 2), dtype), values(rng, (9, 2), dtype)
    at = places(rng, 9, 100)
    assert_same(lambda o, i, x: getattr(o.at[i], how)(x), operand, at, x)


def test_bools_are_set(gpu, rng) -> None:
    x, operand = rng.random((100, 2)) < 0.5, rng.random((9, 2)) < 0.5
    assert_same(lambda o, i, x: o.at[i].set(x), operand, places(rng, 9, 100), x)


@pytest.mark.parametrize("how", ["add", "set"])
@pytest.mark.parametrize("width", [1, 3, 64])
def test_rows(gpu, rng, how: str, width: int) -> None:
    at, x = places(rng, 20, (13, 11)), values(rng, (13, 11, width), "float32")
    operand = values(rng, (20, width), "float32")
    assert_same(lambda o, i, x: getattr(o.at[i], how)(x), operand, at, x)


@pytest.mark.parametrize("how", ["add", "set"])
def test_columns_and_windows_between_axes(gpu, rng, how: str) -> None:
    at, x = places(rng, 17, 100), values(rng, (6, 100, 5), "float32")
    operand = values(rng, (6, 17, 5), "float32")
    assert_same(lambda o, i, x: getattr(o.at[:, i], how)(x), operand, at, x)
    both = values(rng, 100, "float32")
    other = places(rng, 6, 100)
    assert_same(
        lambda o, i, j, x: getattr(o.at[i, j, 2], how)(x), operand, other, at, both
    )


@pytest.mark.parametrize("how", ["add", "set"])
def test_batches(gpu, rng, how: str) -> None:
    at, x = places(rng, 17, (7, 40)), values(rng, (7, 40), "float32")
    operand = values(rng, (7, 17), "float32")
    update = fnx.vmap(lambda o, i, x: getattr(o.at[i], how)(x))
    assert_same(update, operand, at, x)


@pytest.mark.parametrize("count", [64, 65, 127, 128, 129, 700])
def test_all_updates_of_one_element(gpu, rng, count: int) -> None:
    x = values(rng, count, "float32")
    x[~np.isfinite(x)] = 1e-8
    at = np.zeros(count, np.int32)
    (found,) = assert_same(lambda o, i, x: o.at[i].add(x), np.zeros(1, "f4"), at, x)
    expected = np.float32(0)
    for each in x:
        expected += each
    assert found[0] == expected


@pytest.mark.parametrize("dtype", ["float16", "int8", "float64"])
def test_long_runs_of_other_dtypes_beside_short_ones(gpu, rng, dtype: str) -> None:
    at = np.sort(np.r_[rng.integers(0, 5, 333), np.arange(100), [3] * 64])
    at = rng.permutation(at).astype(np.int32)
    x, operand = values(rng, (at.size, 3), dtype), values(rng, (99, 3), dtype)
    assert_same(lambda o, i, x: o.at[i].multiply(x), operand, at, x)


def test_values_that_are_computed_by_folds(gpu, rng) -> None:
    at, x = places(rng, 9, 200), rng.standard_normal((200, 40)).astype("f4")

    def update(o: Any, i: Any, x: Any) -> Any:
        return o.at[i].add(fnx.numpy.max(x, axis=1))

    assert_same(update, np.zeros(9, "f4"), at, x)

    def highest(o: Any, i: Any, x: Any) -> Any:
        return o.at[i].max(fnx.numpy.sum(x, axis=1))

    whole = np.round(x * 9).astype(np.int32)
    assert_same(highest, np.zeros(9, np.int32), at, whole)


def test_windows_that_overlap(gpu, rng) -> None:
    x = values(rng, (20, 7), "float32")
    x[~np.isfinite(x)] = 1
    starts = rng.integers(-2, 22, 100, np.int32)

    def parts(x: Any, starts: Any) -> Any:
        cut = fnx.vmap(lambda i: fnx.lax.dynamic_slice(x, (i, 1), (3, 5)))
        return fnx.numpy.sum(cut(starts) ** 3)

    assert_same(fnx.grad(parts), x, starts)


def test_slices_that_begin_where_data_tell(gpu, rng) -> None:
    x, part = values(rng, (9, 40), "float32"), values(rng, (4, 8), "float32")
    for start in ((0, 0), (3, 5), (-2, 99)):
        at = np.array(start, np.int32)
        assert_same(
            lambda x, part, at: fnx.lax.dynamic_update_slice(x, part, (at[0], at[1])),
            x,
            part,
            at,
        )


def test_gradients_of_an_embedding(gpu, rng) -> None:
    table, at = values(rng, (11, 6), "float32"), rng.integers(0, 11, (4, 30), np.int32)
    table[~np.isfinite(table)] = 1

    def loss(table: Any, at: Any) -> Any:
        return fnx.numpy.sum(fnx.numpy.square(table[at]))

    (found,) = on_device(fnx.grad(loss), table, at)
    counts = np.bincount(at.ravel(), minlength=11)
    np.testing.assert_allclose(found, 2 * table * counts[:, None], rtol=1e-5)


# ---------------------------------------------------------------- all together


@pytest.mark.parametrize("seed", range(20))
def test_updates_of_all_kinds(gpu, seed: int) -> None:
    """Arrays, slices and numbers as indices in any order; arrays broadcast."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.choice([1, 3, 5, 17], rng.integers(1, 5)).tolist())
    kinds = rng.choice(["array", "all", "part", "number"], len(shape))
    kinds[rng.integers(len(shape))] = "array"
    whole = [(70,), (9, 11), (4, 1, 30)][seed % 3]
    index, arrays = [], []
    for size, kind in zip(shape, kinds, strict=True):
        if kind == "array":
            part = [n if not arrays or rng.random() < 0.7 else 1 for n in whole]
            arrays.append(rng.integers(-size - 1, size + 2, part).astype(np.int32))
        own = {"all": slice(None), "part": slice(size // 3, size), "number": size - 1}
        index.append(own.get(kind))

    def place(given: Any) -> Any:
        rest = iter(given)
        return tuple(next(rest) if each is None else each for each in index)

    dtype = ["float32", "int32", "float16", "uint8", "float64"][seed % 5]
    how = ["add", "set", "multiply", "max", "min"][seed // 2 % 5]
    mode = ["clip", "drop"][seed % 2]
    operand = values(rng, shape, dtype)
    zeros = [np.zeros_like(x) for x in arrays]
    x = values(rng, operand[place(zeros)].shape, dtype)
    for each in (operand, x):
        each[each == 0] = 1

    def update(operand: Any, x: Any, *arrays: Any) -> Any:
        return getattr(operand.at[place(arrays)], how)(x, mode=mode)

    with np.errstate(all="ignore"):
        assert_same(update, operand, x, *arrays)
