"""Sorts on the device: the order of the reference rules, bit by bit, by no host step.

Rows on both sides of what is sorted in shared memory and of a tile, every dtype,
several keys, axes in the middle, and keys that are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx_cuda.ordering import SHORT
from tests.cuda.compare import assert_same, runs_on_the_host

pytestmark = pytest.mark.cuda

DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"),
    *("uint64", "float16", "bfloat16", "float32", "float64"),
)
SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-40, -1e-40]


def keys(rng: np.random.Generator, shape: Any, dtype: str) -> np.ndarray[Any, Any]:
    """Values of the whole range, among them equal ones and special ones."""
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith(("int", "uint")):
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        few = rng.integers(0, 3, shape).astype(dtype)
        return np.where(rng.random(shape) < 0.3, few, x)
    if dtype.startswith("complex"):
        parts = [keys(rng, shape, "float64") for _ in range(2)]
        both = np.empty(shape, "complex128")
        both.real, both.imag = np.round(parts[0]), parts[1]
        return both.astype(dtype)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)
    x = np.where(rng.random(shape) < 0.2, rng.choice(SPECIAL, shape), x)
    with np.errstate(over="ignore"):
        return x.astype(fnp.dtype(dtype))


def sorted_with_places(x: Any) -> Any:
    """A sort whose second operand tells where each element was."""
    places = lax.broadcasted_iota(np.int32, x.shape, x.ndim - 1)
    return lax.sort((x, places), num_keys=1)


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "complex128"])
@pytest.mark.parametrize("length", [33, SHORT + 1])
def test_every_dtype(gpu, rng, dtype: str, length: int) -> None:
    x = keys(rng, (3, length), dtype)
    assert not runs_on_the_host(sorted_with_places, x)
    assert_same(sorted_with_places, x)


@pytest.mark.parametrize(
    "length", [1, 2, 3, 31, 32, 512, 513, SHORT - 1, SHORT, 4096, 4097, 9000]
)
def test_lengths_around_blocks_and_tiles(gpu, rng, length: int) -> None:
    x = keys(rng, (2, length), "float32")
    assert_same(sorted_with_places, x)


@pytest.mark.parametrize("shape", [(700, 3), (1, 2), (5, 0), (0, 4), (257, 40)])
def test_many_short_rows(gpu, rng, shape: Any) -> None:
    assert_same(sorted_with_places, keys(rng, shape, "int16"))


@pytest.mark.parametrize("length", [70, SHORT + 70])
def test_an_axis_in_the_middle(gpu, rng, length: int) -> None:
    x = keys(rng, (2, length, 3), "float32")
    assert_same(lambda x: (fnp.sort(x, axis=1), fnp.argsort(x, axis=1)), x)


@pytest.mark.parametrize("length", [50, SHORT + 50])
@pytest.mark.parametrize("count", [2, 3])
def test_several_keys(gpu, rng, length: int, count: int) -> None:
    first = rng.integers(0, 3, (2, length), np.int8)
    second = keys(rng, (2, length), "float32").round()
    third = keys(rng, (2, length), "float64")
    payload = rng.integers(0, 255, (2, length), np.uint8)

    def order(*operands: Any) -> Any:
        return lax.sort(operands, dimension=1, num_keys=count)

    assert_same(order, first, second, third, payload)


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float16", "float32", "float64"])
@pytest.mark.parametrize("length", [40, SHORT + 40])
@pytest.mark.parametrize("k", [1, 7, 40])
def test_top_k(gpu, rng, dtype: str, length: int, k: int) -> None:
    x = keys(rng, (3, length), dtype)
    assert not runs_on_the_host(lambda x: lax.top_k(x, k), x)
    assert_same(lambda x: lax.top_k(x, k), x)


def test_equal_keys_keep_their_order_over_tiles(gpu) -> None:
    x = np.arange(20_000, dtype=np.int32) % 2
    _, places = assert_same(sorted_with_places, x)
    np.testing.assert_array_equal(places, np.argsort(x, kind="stable"))


def test_more_tiles_than_a_warp_adds_up_at_once(gpu, rng) -> None:
    x = rng.integers(-128, 128, 140_000, np.int8)
    assert_same(sorted_with_places, x)


def test_a_sort_in_the_middle_of_a_program(gpu, rng) -> None:
    x = rng.standard_normal((4, 100)).astype("f4")

    def median(x: Any) -> Any:
        return fnp.sort(x * 2, axis=1)[:, 50] + fnp.sum(fnp.sort(x, axis=0), axis=1)[0]

    assert_same(fnx.vmap(median), x.reshape(2, 2, 100))
