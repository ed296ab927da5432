"""Kernels that write across what they read: squares in shared memory, same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from tests.cuda.compare import assert_same

pytestmark = pytest.mark.cuda


def numbers(rng: np.random.Generator, shape: Any, dtype: str = "float32") -> Any:
    return (rng.standard_normal(shape) * 50).astype(fnp.dtype(dtype))


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "shape", [(128, 64), (65, 130), (100, 120), (16, 200), (33, 31)]
)
def test_dtypes_and_ends(gpu, rng, dtype: str, shape: Any) -> None:
    assert_same(lambda x: x.T, numbers(rng, shape, dtype))


@pytest.mark.parametrize("shape", [(100, 77), (64, 96), (31, 1000)])
def test_several_squares_in_one_expression(gpu, rng, shape: Any) -> None:
    x, y, z = (numbers(rng, shape) for _ in range(3))
    row, column = numbers(rng, shape[0]), numbers(rng, (shape[1], 1))

    def mixed(x: Any, y: Any, z: Any, row: Any, column: Any) -> Any:
        return x.T * y.T + fnp.tanh(z).T * row - column

    assert_same(mixed, x, y, z, row, column)


@pytest.mark.parametrize("axes", [(0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_three_axes(gpu, rng, axes: Any) -> None:
    x = numbers(rng, (20, 40, 33))
    y = numbers(rng, tuple(x.shape[axis] for axis in axes))
    assert_same(lambda x, y: fnp.transpose(x, axes) + y, x, y)


def test_images_with_channels_first_and_last(gpu, rng) -> None:
    x = numbers(rng, (2, 9, 7, 40))
    assert_same(lambda x: fnp.transpose(x, (0, 3, 1, 2)) * 2, x)
    assert_same(lambda x: fnp.transpose(x, (0, 2, 3, 1)) * 2, x)


def test_parts_reversed_and_padded(gpu, rng) -> None:
    x = numbers(rng, (100, 77))
    assert_same(lambda x: fnp.flip(x, 0).T * 2, x)
    assert_same(lambda x: x[3:90, 2:].T * 2, x)
    assert_same(lambda x: fnp.pad(x, ((3, 5), (2, 0))).T * 2, x)


def test_beside_what_data_tell(gpu, rng) -> None:
    x, at = numbers(rng, (40, 77)), rng.integers(0, 77, 77, np.int32)
    table = numbers(rng, 77)
    assert_same(lambda x, at, table: x.T + table[at][:, None], x, at, table)


def test_outputs_of_one_kernel(gpu, rng) -> None:
    assert_same(lambda x: (x.T * 2, x.T + 1), numbers(rng, (70, 50)))
    assert_same(fnx.vmap(lambda x: x.T * 2), numbers(rng, (3, 70, 50)))
