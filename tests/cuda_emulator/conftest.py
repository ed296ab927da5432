"""A fresh emulated machine for each test, in two orders of things.

`cupy` is the emulated CuPy; `launch` compiles a text and runs a kernel of it on NumPy
arrays. The machine of other tests is back in its place afterwards.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests import cuda_emulator as emulator

ADD = 'extern "C" __global__ void f(float* x, float v) { x[threadIdx.x] += v; }'
SCALE = 'extern "C" __global__ void f(float* x, float v) { x[threadIdx.x] *= v; }'
SET = 'extern "C" __global__ void f(float* x, float v) { x[threadIdx.x] = v; }'


@pytest.fixture(params=[0, 1], ids=["seed0", "seed1"])
def cupy(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The emulated CuPy on a new machine of two devices."""
    reason = emulator.reason_missing()
    if reason:
        pytest.skip(reason)
    with emulator.another(emulator.Settings(seed=request.param, memory=1 << 28)):
        yield emulator.cupy_module()
        emulator.inject.clear()


class Launcher:
    """Runs kernels on NumPy arrays, each in an allocation of its own."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.keep: list[Any] = []

    def function(self, text: str, name: str) -> Any:
        """A kernel of a text."""
        module = self.cupy.cuda.function.Module()
        module.load(self.cupy.compile_text(text))
        return module.get_function(name)

    def put(self, array: np.ndarray) -> Any:
        """The array on the current device."""
        array = np.ascontiguousarray(array)
        memory = self.cupy.cuda.Memory(array.nbytes)
        self.keep.append(memory)
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(
            *(memory.ptr, array.ctypes.data, array.nbytes, 1, self.stream.ptr)
        )
        return memory

    def empty(self, nbytes: int) -> Any:
        """Memory that nobody has written."""
        memory = self.cupy.cuda.Memory(nbytes)
        self.keep.append(memory)
        return memory

    def get(self, memory: Any, dtype: Any, count: int) -> np.ndarray:
        """What memory holds, after all work of the stream."""
        out = np.empty(count, dtype)
        runtime = self.cupy.cuda.runtime
        runtime.memcpyAsync(
            *(out.ctypes.data, memory.ptr, out.nbytes, 2, self.stream.ptr)
        )
        self.stream.synchronize()
        return out

    def start(self, function: Any, grid: Any, block: Any, *args: Any, shared: int = 0):
        """Put a launch into the stream; memory is given by its address."""
        values = [np.uint64(a.ptr) if hasattr(a, "ptr") else a for a in args]
        grid = (grid,) if isinstance(grid, int) else grid
        block = (block,) if isinstance(block, int) else block
        function(grid, block, tuple(values), shared, self.stream)

    def __call__(
        self, text: str, grid: Any, block: Any, *args: Any, shared: int = 0
    ) -> None:
        """Compile `text`, run its kernel `f`, and wait."""
        self.start(self.function(text, "f"), grid, block, *args, shared=shared)
        self.stream.synchronize()


def on_seeds(check: Callable[[Launcher], Any]) -> list[Any]:
    """What `check(launcher)` gives on machines of eight seeds."""
    reason = emulator.reason_missing()
    if reason:
        pytest.skip(reason)
    results = []
    for seed in range(8):
        with emulator.another(emulator.Settings(seed=seed, memory=1 << 26)):
            results.append(check(Launcher(emulator.cupy_module())))
    return results


@pytest.fixture
def launch(cupy: Any) -> Launcher:
    """Runs kernels on the machine of `cupy`."""
    return Launcher(cupy)


def parameters(*values: Any) -> tuple[Any, int]:
    """A table of parameters for `launchKernel`; the first value keeps it alive."""
    buffers = [ctypes.create_string_buffer(np.asarray(v).tobytes()) for v in values]
    table = (ctypes.c_uint64 * len(buffers))(*map(ctypes.addressof, buffers))
    return (buffers, table), ctypes.addressof(table)
