"""Every name of CuPy that fnx_cuda uses, one function each; CuPy is loaded late.

Tests put a module with the same names (the emulator) in its place with `use`. Receives
and gives addresses, streams, events, graphs and sizes; raises what CuPy raises, and
`ImportError` where there is no CuPy. Next on the walk: `device.py`.
"""

from __future__ import annotations

import importlib
from typing import Any

_module: Any = None


def use(module: Any) -> None:
    """Puts a module in the place of CuPy; `None` brings CuPy back."""
    global _module
    _module = module


def cupy() -> Any:
    """CuPy, or what stands in its place; `ImportError` without either."""
    global _module
    if _module is None:
        _module = importlib.import_module("cupy")
    return _module


def is_loaded() -> bool:
    """Whether CuPy, or what stands in its place, is loaded already."""
    return _module is not None


def version() -> str:
    """The version of CuPy."""
    text: str = cupy().__version__
    return text


# ---------------------------------------------------------------- errors


def cuda_errors() -> tuple[type[Exception], ...]:
    """What calls of the runtime and of the driver raise; `status` is CUDA's number."""
    cuda = cupy().cuda
    return cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError


def out_of_memory_error() -> type[Exception]:
    """What an allocation raises that does not fit."""
    error: type[Exception] = cupy().cuda.memory.OutOfMemoryError
    return error


# ---------------------------------------------------------------- devices


def device_count() -> int:
    """How many devices there are; raises a CUDA error without a driver."""
    return int(cupy().cuda.runtime.getDeviceCount())


def set_device(device: int) -> None:
    """Makes a device the current one of this thread."""
    cupy().cuda.runtime.setDevice(device)


def current_device() -> int:
    """The current device of this thread."""
    return int(cupy().cuda.runtime.getDevice())


def device_of(pointer: int) -> int:
    """On which device an address is."""
    return int(cupy().cuda.runtime.pointerGetAttributes(pointer).device)


def ensure_context(device: int) -> None:
    """Makes a device current, with the context that calls of the driver need."""
    runtime = cupy().cuda.runtime
    runtime.setDevice(device)
    runtime.memGetInfo()


def wait_for_device(device: int) -> None:
    """Waits until a device has done everything."""
    cupy().cuda.Device(device).synchronize()


def memory_info() -> tuple[int, int]:
    """Free bytes and all bytes of the current device."""
    free, total = cupy().cuda.runtime.memGetInfo()
    return int(free), int(total)


def compute_capability(device: int) -> str:
    """The capability as two or three digits: "80", "90"."""
    return str(cupy().cuda.Device(device).compute_capability)


def attributes(device: int) -> dict[str, int]:
    """The attributes of a device by CUDA's names, such as "MultiProcessorCount"."""
    found: dict[str, int] = cupy().cuda.Device(device).attributes
    return found


def device_name(device: int) -> str:
    """What the maker calls a device."""
    name = cupy().cuda.runtime.getDeviceProperties(device)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


def total_memory(device: int) -> int:
    """The memory of a device in bytes."""
    return int(cupy().cuda.runtime.getDeviceProperties(device)["totalGlobalMem"])


def runtime_version() -> int:
    """The version of the CUDA runtime, 12090 for 12.9."""
    return int(cupy().cuda.runtime.runtimeGetVersion())


def driver_version() -> int:
    """The newest version of CUDA that the driver supports, 12090 for 12.9."""
    return int(cupy().cuda.runtime.driverGetVersion())


def can_access_peer(device: int, peer: int) -> bool:
    """Whether a device can read another one's memory."""
    return bool(cupy().cuda.runtime.deviceCanAccessPeer(device, peer))


def enable_peer(peer: int) -> None:
    """Lets the current device access a peer's memory; twice is fine."""
    cupy().cuda.runtime._deviceEnsurePeerAccess(peer)


# ---------------------------------------------------------------- memory


def memory_pool() -> Any:
    """A pool that keeps what is freed, for each device and stream.

    Its `malloc(nbytes)` gives memory on the current device with an address `ptr`, which
    goes back to the pool with the last reference; `free_all_blocks()` gives back to
    CUDA what nobody uses; `used_bytes()` and `total_bytes()` count.
    """
    return cupy().cuda.MemoryPool()


def unowned(pointer: int, nbytes: int, owner: object, device: int) -> Any:
    """Memory that belongs to `owner`, which is kept alive; `ptr` is its address."""
    cuda = cupy().cuda
    memory = cuda.UnownedMemory(pointer, nbytes, owner, device)
    return cuda.MemoryPointer(memory, 0)


def array_on(memory: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A CuPy array on `unowned` memory."""
    return cupy().ndarray(shape, dtype, memory)


def from_dlpack(source: Any) -> Any:
    """A CuPy array on the memory of an array that has `__dlpack__`.

    The current stream waits for what makes its values.
    """
    return cupy().from_dlpack(source)


def from_interface(source: Any) -> Any:
    """A CuPy array on the memory of one that has `__cuda_array_interface__`."""
    return cupy().asarray(source)


def contiguous(array: Any) -> Any:
    """A CuPy array whose elements lie one after another: the same, or a copy."""
    return cupy().ascontiguousarray(array)


def pinned(nbytes: int) -> Any:
    """Host memory that devices copy from and to by themselves; `ptr`, and a buffer."""
    return cupy().cuda.alloc_pinned_memory(nbytes)


def free_pinned() -> None:
    """Gives the pinned memory that nobody uses back to the system."""
    cupy().get_default_pinned_memory_pool().free_all_blocks()


def copy_to_device(out: int, source: int, nbytes: int, stream: int) -> None:
    """Copies from pinned host memory, in the order of a stream."""
    runtime = cupy().cuda.runtime
    runtime.memcpyAsync(out, source, nbytes, runtime.memcpyHostToDevice, stream)


def copy_to_host(out: int, source: int, nbytes: int, stream: int) -> None:
    """Copies to pinned host memory, in the order of a stream."""
    runtime = cupy().cuda.runtime
    runtime.memcpyAsync(out, source, nbytes, runtime.memcpyDeviceToHost, stream)


def copy(out: int, source: int, nbytes: int, stream: int) -> None:
    """Copies inside one device."""
    runtime = cupy().cuda.runtime
    runtime.memcpyAsync(out, source, nbytes, runtime.memcpyDeviceToDevice, stream)


def clear(out: int, nbytes: int, stream: int) -> None:
    """Makes bytes zero."""
    fill(out, 0, nbytes, stream)


def fill(out: int, byte: int, nbytes: int, stream: int) -> None:
    """Makes bytes equal."""
    cupy().cuda.runtime.memsetAsync(out, byte, nbytes, stream)


def copy_peer(
    out: int, device: int, source: int, source_device: int, nbytes: int, stream: int
) -> None:
    """Copies from one device to another one."""
    runtime = cupy().cuda.runtime
    runtime.memcpyPeerAsync(out, device, source, source_device, nbytes, stream)


# ---------------------------------------------------------------- streams and graphs


def new_stream() -> Any:
    """A stream of the current device that never waits for the legacy stream.

    It has `ptr` and `synchronize()`, and `with stream:` makes it the current one.
    """
    return cupy().cuda.Stream(non_blocking=True)


def current_stream(device: int) -> int:
    """The stream of a device that CuPy uses in this thread."""
    return int(cupy().cuda.get_current_stream(device).ptr)


def new_event() -> Any:
    """An event without a time: `record(stream)`, `synchronize()`, `done`."""
    return cupy().cuda.Event(disable_timing=True)


def new_timer() -> Any:
    """An event with a time, for `milliseconds`."""
    return cupy().cuda.Event(disable_timing=False)


def milliseconds(start: Any, end: Any) -> float:
    """The time between two events, which are both done."""
    return float(cupy().cuda.get_elapsed_time(start, end))


def wait_for_event_of(stream: int, event: Any) -> None:
    """Has a stream, which may be another library's, wait for an event."""
    cupy().cuda.runtime.streamWaitEvent(stream, event.ptr)


def record_on(event: Any, stream: int) -> None:
    """Records an event on a stream, which may be another library's."""
    cupy().cuda.runtime.eventRecord(event.ptr, stream)


def begin_capture(stream: Any) -> None:
    """From now on a stream's work is recorded, not done; other threads may allocate."""
    stream.begin_capture(cupy().cuda.runtime.streamCaptureModeRelaxed)


def end_capture(stream: Any) -> Any:
    """The graph of what was recorded; raises if something cannot be in a graph."""
    return stream.end_capture()


def launch_graph(graph: Any, stream: Any) -> None:
    """Runs a graph in the order of a stream."""
    graph.launch(stream)


# ---------------------------------------------------------------- functions

MAX_DYNAMIC_SHARED = 8
"""The number of the attribute that lets a function use more shared memory."""


def load_module(image: bytes) -> Any:
    """A cubin on the current device; `get_function(name).ptr` is a function of it."""
    module = cupy().cuda.function.Module()
    module.load(image)
    return module


def set_attribute(function: int, attribute: int, value: int) -> None:
    """Sets an attribute of a function."""
    cupy().cuda.driver.funcSetAttribute(function, attribute, value)


def launch(
    function: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    stream: int,
    parameters: int,
) -> None:
    """Launches a function; `parameters` is the address of addresses of parameters."""
    cupy().cuda.driver.launchKernel(
        function, *grid, *block, shared, stream, parameters, 0
    )


# ---------------------------------------------------------------- NCCL


def nccl() -> Any:
    """CuPy's module for NCCL; `None` where there is no NCCL."""
    cupy()
    try:
        found = cupy().cuda.nccl
    except (ImportError, AttributeError):
        return None
    return found if getattr(found, "available", False) else None


def unique_id() -> bytes:
    """What the processes share that NCCL is to join."""
    found: bytes = nccl().get_unique_id()
    return found


def joined(size: int, identifier: bytes, rank: int) -> Any:
    """NCCL's communicator of the current device; every process comes here."""
    return nccl().NcclCommunicator(size, identifier, rank)


def ranks(devices: list[int]) -> list[Any]:
    """NCCL's communicators of devices of this process, in their order."""
    made: list[Any] = nccl().NcclCommunicator.initAll(devices)
    return made
