"""`cupy.cuda.driver` and `cupy.cuda.function`: modules, functions, launches.

A launch copies its parameters at the call, as CUDA does. Next: raw.py.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import inject, kernels, modules
from .errors import CUDADriverError
from .machine import machine
from .pools import MemoryPointer
from .streams import Stream, get_current_stream

__all__ = ["CUDADriverError"]


def launchKernel(
    f: int,
    grid_x: int,
    grid_y: int,
    grid_z: int,
    block_x: int,
    block_y: int,
    block_z: int,
    shared: int,
    stream: int,
    parameters: int,
    extra: int,
) -> None:
    """cuLaunchKernel; the parameters are copied at the call."""
    here = machine()
    with here.call():
        if inject.launch_fails():
            raise CUDADriverError(719, "a launch error (injected)")
        if extra:
            raise CUDADriverError(1, "the emulator takes no extra parameters")
        configuration = kernels.Configuration(
            (grid_x, grid_y, grid_z), (block_x, block_y, block_z), shared
        )
        function = kernels.function_of(f)
        state = here.stream(stream)
        kernels.launch(here, function, configuration, state, parameters)


def funcSetAttribute(f: int, attribute: int, value: int) -> None:
    """cuFuncSetAttribute."""
    with machine().call():
        kernels.set_attribute(kernels.function_of(f), attribute, value)


def occupancyMaxActiveBlocksPerMultiprocessor(f: int, block: int, shared: int) -> int:
    """How many blocks fit on a processor, by threads and shared memory."""
    function = kernels.function_of(f)
    total = function.kernel.static_shared + shared
    return min(2048 // block, 32, (228 << 10) // max(total, 1))


class Module:
    """`cupy.cuda.function.Module`."""

    def __init__(self) -> None:
        self._image: modules.Image | None = None
        self._device = -1

    def load(self, cubin: bytes) -> None:
        """Load what the emulator's `compile_text` gave, for the current device."""
        with machine().call():
            try:
                self._image = modules.load(bytes(cubin))
            except (OSError, ValueError) as error:
                raise CUDADriverError(200, str(error)) from error
            self._device = machine().device

    def load_file(self, path: str) -> None:
        """Load what a file holds."""
        with open(path, "rb") as file:
            self.load(file.read())

    def get_function(self, name: str) -> Function:
        """A kernel of the module."""
        assert self._image is not None, "load first"
        if name not in self._image.kernels:
            raise CUDADriverError(500, f"{name}; there are {list(self._image.kernels)}")
        kernel = self._image.kernels[name]
        return Function(kernels.FunctionState(self._image, kernel, self._device))


class Function:
    """`cupy.cuda.function.Function`: callable, with `ptr`."""

    def __init__(self, state: kernels.FunctionState) -> None:
        self._state = state
        self.ptr = kernels.register(state)

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._state.kernel.name

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        shared_mem: int = 0,
        stream: Stream | None = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        """Launch; arguments are taken as CuPy takes them."""
        sizes = self._state.kernel.sizes
        if len(args) != len(sizes):
            raise CUDADriverError(
                1, f"{self.name} takes {len(sizes)} parameters, {len(args)} are given"
            )
        values = [_argument(a) for a in args]
        # CUDA reads as many bytes as the parameter has, whatever was given.
        buffers = [
            ctypes.create_string_buffer(v.ljust(size, b"\xff"), max(size, len(v), 1))
            for v, size in zip(values, sizes, strict=True)
        ]
        table = (ctypes.c_uint64 * max(len(args), 1))(*map(ctypes.addressof, buffers))
        gx, gy, gz = (*grid, 1, 1)[:3]
        bx, by, bz = (*block, 1, 1)[:3]
        handle = (stream or get_current_stream()).ptr
        launchKernel(
            *(self.ptr, gx, gy, gz, bx, by, bz, shared_mem, handle),
            *(ctypes.addressof(table), 0),
        )


class CPointer:
    """`cupy.cuda.function.CPointer`: the address of an argument."""

    def __init__(self, p: int = 0) -> None:
        self.ptr = p


def _argument(value: Any) -> bytes:
    """The bytes of a parameter, as CuPy makes them of an argument."""
    if hasattr(value, "data") and isinstance(value.data, MemoryPointer):
        return np.uint64(value.data.ptr).tobytes()
    if isinstance(value, MemoryPointer):
        return np.uint64(value.ptr).tobytes()
    if value is None:
        return bytes(8)
    if isinstance(value, bool):
        return np.bool_(value).tobytes()
    if isinstance(value, int):
        return np.int64(value).tobytes()
    if isinstance(value, float):
        return np.float64(value).tobytes()
    if isinstance(value, complex):
        return np.complex128(value).tobytes()
    if isinstance(value, np.generic) or (
        isinstance(value, np.ndarray) and value.size == 1
    ):
        return value.tobytes()
    raise TypeError(f"Unsupported type {type(value)}")
