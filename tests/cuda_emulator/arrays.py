"""`cupy.ndarray`, as far as exporting and importing arrays needs it.

An array is an address, a shape, a dtype and strides; it knows no arithmetic. Between
arrays of the emulator, DLPack hands over a `Capsule`: no other library could use this
memory, which only calls itself a device's. Next: streams.py.
"""

from __future__ import annotations

import ctypes
import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import copies, pools
from .machine import machine
from .pools import MemoryPointer, UnownedMemory
from .streams import Stream, get_current_stream

CUDA = 2  # kDLCUDA


class ndarray:
    """`cupy.ndarray`."""

    def __init__(
        self,
        shape: int | tuple[int, ...],
        dtype: Any = float,
        memptr: MemoryPointer | None = None,
        strides: tuple[int, ...] | None = None,
        order: str = "C",
    ) -> None:
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.size = math.prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize
        self.data = memptr if memptr is not None else pools.alloc(self.nbytes)
        self.strides = strides if strides is not None else _packed(self)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def device(self) -> Any:
        """The device that holds it."""
        from .surface import Device

        return Device(self.data.device_id)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        stream = get_current_stream()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "stream": stream.ptr or 1,
            "version": 3,
            "strides": None if self.strides == _packed(self) else self.strides,
            "data": (self.data.ptr, False),
        }

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Capsule:
        """What `from_dlpack` takes; the consumer's stream waits for this one's work."""
        here = machine()
        with here.call():
            current = get_current_stream().state
            if stream not in (None, -1) and current.tail:
                here.stream(stream).waits.append(current.tail)
        return Capsule(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.data.device_id

    def set(self, array: np.ndarray) -> None:
        """Copy from NumPy, and wait."""
        array = np.ascontiguousarray(array, self.dtype).reshape(self.shape)
        stream = get_current_stream()
        self._copy(self.data.ptr, array.ctypes.data, stream)

    def get(self, stream: Stream | None = None) -> np.ndarray:
        """Copy to NumPy, and wait."""
        out = np.empty(self.shape, self.dtype)
        self._copy(out.ctypes.data, self.data.ptr, stream or get_current_stream())
        return out

    def _copy(self, out: int, source: int, stream: Stream) -> None:
        if self.strides != _packed(self):
            raise NotImplementedError("the emulator copies packed arrays only")
        here = machine()
        with here.call():
            copies.copy(here, out, source, self.nbytes, copies.DEFAULT, stream.state)
            here.finish_stream(stream.state)


def _packed(array: ndarray) -> tuple[int, ...]:
    strides, step = [], array.dtype.itemsize
    for n in reversed(array.shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Capsule:
    """The emulator's DLPack capsule: it owns an array."""

    array: ndarray


def from_dlpack(array: Any, *, device: Any = None, copy: bool | None = None) -> ndarray:
    """`cupy.from_dlpack`: the same memory, without a copy."""
    kind, number = array.__dlpack_device__()
    if kind != CUDA:
        raise BufferError(f"an array of device type {kind} is not on a CUDA device")
    with machine().call():
        machine().set_device(number)
    capsule = array.__dlpack__(stream=get_current_stream().ptr or 1)
    if not isinstance(capsule, Capsule):
        raise BufferError("the emulator's arrays only: no other memory is a device's")
    return capsule.array


def asarray(source: Any) -> ndarray:
    """`cupy.asarray` of what has `__cuda_array_interface__`: the same memory.

    The current stream waits for the one that the exporter names.
    """
    if isinstance(source, ndarray):
        return source
    about = source.__cuda_array_interface__
    here = machine()
    if about.get("stream") is not None:
        with here.call():
            other = here.stream(about["stream"])
            if other.tail:
                get_current_stream().state.waits.append(other.tail)
    start = about["data"][0]
    shape, dtype = tuple(about["shape"]), np.dtype(about["typestr"])
    nbytes = math.prod(shape) * dtype.itemsize
    memory = UnownedMemory(start, nbytes, source, -1 if start else here.device)
    return ndarray(shape, dtype, MemoryPointer(memory, 0), about.get("strides"))


def ascontiguousarray(array: ndarray) -> ndarray:
    """`cupy.ascontiguousarray`: the same, or a copy made on the current stream."""
    packed = _packed(array)
    if array.strides == packed or array.size == 0:
        return array
    out = ndarray(array.shape, array.dtype)
    here = machine()
    source, item = here.memories[array.data.device_id], array.dtype.itemsize
    target = here.memories[out.data.device_id]

    def run() -> None:
        for index in np.ndindex(array.shape):
            to = out.data.ptr + sum(map(operator.mul, index, packed))
            origin = array.data.ptr + sum(map(operator.mul, index, array.strides))
            ctypes.memmove(to, origin, item)
            target.copy_states(to, source, origin, item)

    with here.call():
        here.enqueue(get_current_stream().state, run, "a copy of a strided array")
    return out
