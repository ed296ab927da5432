"""The module object that stands in CuPy's place.

`cupy_module()` has the names of CuPy that fnx uses, at the places where CuPy has them;
`EMULATES` and `compile_text` are its own, for the lack of NVRTC. Next: runtime_api.py.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from . import arrays, driver_api, errors, nccl, pools, raw, runtime_api, streams
from .graph import Graph
from .machine import machine


class Device:
    """`cupy.cuda.Device`."""

    def __init__(self, device: int | None = None) -> None:
        self.id = machine().device if device is None else int(device)
        self._before: list[int] = []

    def use(self) -> Device:
        """Make it the calling thread's device."""
        runtime_api.setDevice(self.id)
        return self

    def __enter__(self) -> Device:
        self._before.append(machine().device)
        return self.use()

    def __exit__(self, *error: Any) -> None:
        runtime_api.setDevice(self._before.pop())

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def synchronize(self) -> None:
        """Wait for all of its work."""
        with self:
            runtime_api.deviceSynchronize()

    @property
    def compute_capability(self) -> str:
        """Such as "90"."""
        major, minor = machine().settings.compute_capability
        return f"{major}{minor}"

    @property
    def attributes(self) -> dict[str, int]:
        """Numbers of the device by CUDA's names."""
        return runtime_api.device_attributes(self.id)

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and all bytes."""
        with self:
            return runtime_api.memGetInfo()


def is_available() -> bool:
    """`cupy.cuda.is_available`."""
    return bool(machine().settings.devices)


def _module(name: str, **names: Any) -> ModuleType:
    module = ModuleType(name)
    for key, value in names.items():
        setattr(module, key, value)
    return module


@functools.cache
def cupy_module() -> ModuleType:
    """The emulated `cupy`; what it does happens on `machine()`."""
    memory = _module(
        "cupy.cuda.memory",
        BaseMemory=pools.BaseMemory,
        Memory=pools.Memory,
        MemoryPointer=pools.MemoryPointer,
        MemoryPool=pools.MemoryPool,
        OutOfMemoryError=errors.OutOfMemoryError,
        PooledMemory=pools.PooledMemory,
        UnownedMemory=pools.UnownedMemory,
        alloc=pools.alloc,
        set_allocator=pools.set_allocator,
        using_allocator=pools.using_allocator,
    )
    stream = _module(
        "cupy.cuda.stream",
        Event=streams.Event,
        Stream=streams.Stream,
        get_current_stream=streams.get_current_stream,
        get_elapsed_time=streams.get_elapsed_time,
    )
    function = _module(
        "cupy.cuda.function",
        CPointer=driver_api.CPointer,
        Function=driver_api.Function,
        Module=driver_api.Module,
    )
    cuda = _module(
        "cupy.cuda",
        Device=Device,
        Event=streams.Event,
        Graph=Graph,
        Memory=pools.Memory,
        MemoryPointer=pools.MemoryPointer,
        MemoryPool=pools.MemoryPool,
        Stream=streams.Stream,
        UnownedMemory=pools.UnownedMemory,
        alloc=pools.alloc,
        alloc_pinned_memory=pools.alloc_pinned_memory,
        compiler=_module(
            "cupy.cuda.compiler", CompileException=errors.CompileException
        ),
        device=_module("cupy.cuda.device", Device=Device),
        driver=driver_api,
        function=function,
        get_current_stream=streams.get_current_stream,
        get_elapsed_time=streams.get_elapsed_time,
        graph=_module("cupy.cuda.graph", Graph=Graph),
        is_available=is_available,
        memory=memory,
        nccl=nccl,
        runtime=runtime_api,
        set_allocator=pools.set_allocator,
        stream=stream,
        using_allocator=pools.using_allocator,
    )
    return _module(
        "cupy",
        EMULATES=True,
        RawKernel=raw.RawKernel,
        RawModule=raw.RawModule,
        __version__="14.2.0",
        asarray=arrays.asarray,
        ascontiguousarray=arrays.ascontiguousarray,
        compile_text=raw.compile_text,
        compile_texts=raw.compile_texts,
        cuda=cuda,
        from_dlpack=arrays.from_dlpack,
        get_default_memory_pool=pools.get_default_memory_pool,
        get_default_pinned_memory_pool=pools.get_default_pinned_memory_pool,
        ndarray=arrays.ndarray,
    )
