"""What compiled functions cost on a GPU: counted by hand, and as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax, nn

pytestmark = pytest.mark.cuda
named = pytest.mark.parametrize

N = 1000
ROW = fnx.ShapeDtypeStruct((N,), np.float32)
MATRIX = fnx.ShapeDtypeStruct((40, 60), np.float32)


def cost(device, function, *types):
    with fnx.default_device(device):
        lowered = fnx.jit(function).lower(*types)
        found = lowered.cost_analysis()
        assert lowered.compile().cost_analysis() == found
    return found


@named(
    "function, types, flops, nbytes",
    [
        (lambda x: x * 2 + 1, (ROW,), 2 * N, 8 * N),
        (lambda x, y: x * y - x, (ROW, ROW), 2 * N, 12 * N),
        (lambda x: x.sum(), (ROW,), N, 4 * N + 4),
        (lambda x: (x * x).sum(0), (MATRIX,), 2 * 2400, 4 * (2400 + 60)),
        (lambda x: x.T @ x, (MATRIX,), 2 * 60 * 60 * 40, 4 * (2 * 2400 + 3600)),
        (lambda x: x[::2], (ROW,), 0, 4 * N),
        (lambda x: fnp.cumsum(x, 1), (MATRIX,), 2400, 8 * 2400),
    ],
)
def test_operations_and_bytes(function, types, flops, nbytes, gpu):
    found = cost(gpu, function, *types)
    assert found["flops"] == flops
    assert found["bytes accessed"] == nbytes


def test_long_sums_keep_parts_in_memory(gpu):
    size = 2**22
    row = fnx.ShapeDtypeStruct((size,), np.float32)
    found = cost(gpu, fnp.sum, row)
    assert size <= found["flops"] < 1.02 * size
    assert 4 * size < found["bytes accessed"] < 1.02 * 4 * size


@named(
    "function",
    [
        lambda x: nn.softmax(x),
        lambda x: fnp.tanh(x @ x.T),
        lambda x: lax.fori_loop(0, 5, lambda _, y: y * 2 + x, x),
        lambda x: fnx.grad(lambda y: (nn.gelu(y) ** 2).sum())(x),
        lambda x: fnp.where(x > 0, fnp.exp(x), 0).sum(1),
    ],
)
def test_as_on_the_cpu(function, gpu):
    """Kernels are cut in another way, and so some values are computed again."""
    here = cost(gpu, function, MATRIX)
    there = cost(fnx.devices("cpu")[0], function, MATRIX)
    assert here["transcendentals"] == there["transcendentals"]
    for key in "flops", "bytes accessed":
        assert 0.6 * there[key] <= here[key] <= 1.6 * there[key]


def test_convolutions(gpu):
    x = fnx.ShapeDtypeStruct((4, 16, 20, 20), np.float32)
    kernel = fnx.ShapeDtypeStruct((32, 16, 3, 3), np.float32)

    def function(x, kernel):
        return lax.conv(x, kernel, (1, 1), "VALID")

    found = cost(gpu, function, x, kernel)
    assert found["flops"] == 2 * 4 * 32 * 18 * 18 * 16 * 9
    sizes = 4 * 16 * 400 + 32 * 16 * 9 + 4 * 32 * 324
    assert found["bytes accessed"] == 4 * sizes


def test_sums_where_indices_meet_and_sorts(gpu):
    def scatter(x, i):
        return fnp.zeros(50, np.float32).at[i].add(x)

    indices = fnx.ShapeDtypeStruct((N,), np.int32)
    found = cost(gpu, scatter, ROW, indices)
    assert N <= found["flops"] <= 3 * N
    # Keys and places are sorted, in memory of the program's own.
    assert 8 * N < found["bytes accessed"] < 80 * N
