"""Kernels of the user's on a device: launched with their own CUDA C."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx.errors import CompileError

pytestmark = pytest.mark.cuda

SCALED = """
extern "C" __global__ void scaled(const float* x, const float* y, float* out,
                                  long long rows, long long columns, long long n) {
  int i = blockIdx.y * blockDim.y + threadIdx.y;
  int j = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows && j < columns) out[i * columns + j] = x[i * columns + j] * y[j % n];
}
"""


def grid(x, y):
    rows, columns = x.shape
    return -(-columns // 16), -(-rows // 4)


def make(**rules):
    cuda = fnx.extend.Cuda(SCALED, "scaled", grid, (16, 4))
    return fnx.extend.kernel(lambda x, y: x, cuda=cuda, **rules)


@pytest.fixture
def arrays(rng):
    return rng.normal(size=(7, 33)).astype("f4"), rng.normal(size=(33,)).astype("f4")


def test_a_kernel_of_two_axes(gpu, arrays):
    x, y = fnx.device_put(arrays, gpu)
    scaled = fnx.jit(lambda x, y: make()(x + 1, y) * 2)
    for _ in range(3):  # by itself, captured, and replayed
        found = np.asarray(scaled(x, y))
        np.testing.assert_allclose(found, (arrays[0] + 1) * arrays[1] * 2, rtol=1e-6)


def test_rules_of_kernels(gpu, arrays):
    scaled = make(
        vjp=(
            lambda x, y: (scaled(x, y), (x, y)),
            lambda kept, ct: (ct * kept[1], fnp.sum(ct * kept[0], axis=0)),
        )
    )
    x, y = fnx.device_put(arrays, gpu)
    slopes = fnx.jit(fnx.grad(lambda x, y: fnp.sum(scaled(x, y) ** 2), (0, 1)))(x, y)
    product = arrays[0] * arrays[1]
    np.testing.assert_allclose(slopes[0], 2 * product * arrays[1], rtol=1e-5)
    wanted = (2 * product * arrays[0]).sum(0)
    np.testing.assert_allclose(slopes[1], wanted, rtol=1e-4)
    stack = fnx.device_put(np.stack([arrays[0], -arrays[0]]), gpu)
    mapped = fnx.jit(fnx.vmap(make(), in_axes=(0, None)))(stack, y)
    np.testing.assert_allclose(mapped, np.stack([product, -product]), rtol=1e-6)


def test_without_cuda_the_host_does_it(gpu, arrays):
    hypot = fnx.extend.kernel(lambda x, y: x, cpu=np.hypot)
    x = fnx.device_put(arrays[0], gpu)
    found = fnx.jit(hypot)(x, x * 2)
    assert found.devices() == {gpu}
    np.testing.assert_allclose(found, np.hypot(arrays[0], arrays[0] * 2))


def test_a_raw_kernel_of_cupy(gpu, arrays):
    class Raw:
        code, name = SCALED, "scaled"

    scaled = fnx.cuda.from_rawkernel(Raw(), lambda x, y: x, grid=grid, block=(16, 4))
    x, y = fnx.device_put(arrays, gpu)
    np.testing.assert_allclose(fnx.jit(scaled)(x, y), arrays[0] * arrays[1], rtol=1e-6)


def test_code_that_does_not_compile(gpu, arrays):
    cuda = fnx.extend.Cuda("nonsense", "f", 1)
    broken = fnx.extend.kernel(lambda x: x, cuda=cuda)
    x = fnx.device_put(arrays[0], gpu)
    with pytest.raises((CompileError, fnx.errors.DeviceError)):
        fnx.jit(broken)(x).block_until_ready()
    np.testing.assert_array_equal(x + 0, arrays[0])  # the next call works
