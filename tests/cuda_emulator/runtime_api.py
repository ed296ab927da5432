"""`cupy.cuda.runtime`: what fnx uses of the CUDA runtime, with integers for handles.

`fnx_poison` is the emulator's own. Next: driver_api.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import copies, pools, streams
from .errors import CUDARuntimeError
from .machine import machine
from .memory import ALLOCATED

__all__ = ["CUDARuntimeError"]

memcpyHostToHost = 0
memcpyHostToDevice = 1
memcpyDeviceToHost = 2
memcpyDeviceToDevice = 3
memcpyDefault = 4
streamCaptureModeGlobal = 0
streamCaptureModeThreadLocal = 1
streamCaptureModeRelaxed = 2
is_hip = False


def runtimeGetVersion() -> int:
    """The version of CUDA's runtime."""
    return 13000


def driverGetVersion() -> int:
    """The version of the driver."""
    return 13000


def getDeviceCount() -> int:
    """How many devices there are."""
    with machine().call():
        count = len(machine().memories)
        if not count:
            raise CUDARuntimeError(100)
        return count


def getDevice() -> int:
    """The calling thread's device."""
    return machine().device


def setDevice(device: int) -> None:
    """Make a device the calling thread's."""
    with machine().call():
        machine().set_device(device)


def deviceSynchronize() -> None:
    """Wait for all work of the current device."""
    with machine().call():
        here = machine()
        for stream in here.of_device(here.device):
            if stream.capture:
                stream.capture.invalidate()
                raise CUDARuntimeError(900, "cudaDeviceSynchronize")
        here.finish_device(here.device)


def streamSynchronize(stream: int) -> None:
    """Wait for a stream's work."""
    with machine().call():
        state = machine().stream(stream)
        if state.capture:
            state.capture.invalidate()
            raise CUDARuntimeError(900, "cudaStreamSynchronize")
        machine().finish_stream(state)


def streamWaitEvent(stream: int, event: int, flags: int = 0) -> None:
    """Later work of a stream waits for an event."""
    with machine().call():
        streams.wait_for(machine().stream(stream), streams.event_of(event))


def eventRecord(event: int, stream: int) -> None:
    """Record an event after the work that is in a stream now."""
    with machine().call():
        streams.record_in(machine().stream(stream), streams.event_of(event))


def memGetInfo() -> tuple[int, int]:
    """Free and all bytes of the current device."""
    with machine().call():
        memory = machine().memories[machine().device]
        return memory.capacity - memory.used, memory.capacity


def malloc(size: int) -> int:
    """The address of new memory of the current device."""
    return pools.allocate(size) if size else 0


def free(address: int) -> None:
    """Free memory, after all work of its device."""
    pools.release(address)


def memcpyAsync(out: int, source: int, size: int, kind: int, stream: int) -> None:
    """Copy in the order of a stream."""
    with machine().call():
        copies.copy(machine(), out, source, size, kind, machine().stream(stream))


def memcpy(out: int, source: int, size: int, kind: int) -> None:
    """Copy in the order of the legacy stream, and wait."""
    memcpyAsync(out, source, size, kind, 0)
    streamSynchronize(0)


def memcpyPeerAsync(
    out: int, out_device: int, source: int, source_device: int, size: int, stream: int
) -> None:
    """Copy between two devices in the order of a stream."""
    with machine().call():
        state = machine().stream(stream)
        copies.copy_peer(machine(), out, out_device, source, source_device, size, state)


def memsetAsync(out: int, byte: int, size: int, stream: int) -> None:
    """Set each byte in the order of a stream."""
    with machine().call():
        copies.fill(machine(), out, byte, size, machine().stream(stream))


def memset(out: int, byte: int, size: int) -> None:
    """Set each byte in the order of the legacy stream."""
    memsetAsync(out, byte, size, 0)


@dataclass(frozen=True)
class PointerAttributes:
    """What CUDA knows of an address; the type is 2 for a device's memory."""

    device: int
    devicePointer: int
    hostPointer: int
    type: int


def pointerGetAttributes(address: int) -> PointerAttributes:
    """Whose memory an address is."""
    with machine().call():
        memory = copies.device_of(machine(), address)
        if memory is None:
            return PointerAttributes(-2, 0, address, 0)
        return PointerAttributes(memory.device, address, 0, 2)


def deviceCanAccessPeer(device: int, peer: int) -> int:
    """Whether one device could read another's memory."""
    return int(device != peer)


def _deviceEnsurePeerAccess(peer: int) -> None:
    """Kernels of the emulator never read another device's memory; copies may."""
    if not 0 <= peer < getDeviceCount():
        raise CUDARuntimeError(101)


def getDeviceProperties(device: int) -> dict[str, Any]:
    """What a device is; the numbers of a data-center GPU, with fewer processors."""
    settings = machine().settings
    if not 0 <= device < settings.devices:
        raise CUDARuntimeError(101)
    major, minor = settings.compute_capability
    return {
        "name": b"fnx emulated device",
        "totalGlobalMem": settings.memory,
        "sharedMemPerBlock": 48 << 10,
        "sharedMemPerBlockOptin": 227 << 10,
        "sharedMemPerMultiprocessor": 228 << 10,
        "regsPerBlock": 65536,
        "warpSize": 32,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiProcessor": 2048,
        "maxGridSize": (2**31 - 1, 65535, 65535),
        "multiProcessorCount": settings.processors,
        "l2CacheSize": 50 << 20,
        "major": major,
        "minor": minor,
        "pciBusID": device,
    }


_ATTRIBUTES = {
    # cudaDeviceAttr: number, property
    "MaxThreadsPerBlock": (1, "maxThreadsPerBlock"),
    "MaxSharedMemoryPerBlock": (8, "sharedMemPerBlock"),
    "WarpSize": (10, "warpSize"),
    "MultiProcessorCount": (16, "multiProcessorCount"),
    "L2CacheSize": (38, "l2CacheSize"),
    "MaxThreadsPerMultiProcessor": (39, "maxThreadsPerMultiProcessor"),
    "ComputeCapabilityMajor": (75, "major"),
    "ComputeCapabilityMinor": (76, "minor"),
    "MaxSharedMemoryPerMultiprocessor": (81, "sharedMemPerMultiprocessor"),
    "MaxSharedMemoryPerBlockOptin": (97, "sharedMemPerBlockOptin"),
}


def device_attributes(device: int) -> dict[str, int]:
    """`Device.attributes`."""
    properties = getDeviceProperties(device)
    return {name: properties[key] for name, (_, key) in _ATTRIBUTES.items()}


def deviceGetAttribute(attribute: int, device: int) -> int:
    """One number of a device, by cudaDeviceAttr."""
    for name, (number, _) in _ATTRIBUTES.items():
        if number == attribute:
            return device_attributes(device)[name]
    raise CUDARuntimeError(1, f"the emulator knows no device attribute {attribute}")


def fnx_poison(address: int, size: int, stream: int = 0) -> None:
    """Bytes of an arena change hands: what they hold is no longer to be read."""
    here = machine()
    with here.call():
        memory = copies.device_of(here, address)
        if memory is None or not memory.holds(address, size):
            raise CUDARuntimeError(1, f"{address:#x} + {size} is no allocation's")
        state = here.stream(stream)
        here.enqueue(state, lambda: memory.mark(address, size, ALLOCATED), "poison")
