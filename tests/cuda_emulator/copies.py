"""Copies and fills: what they may touch, when they run, and what they leave behind.

A copy from pageable host memory is staged when it is called, as CUDA does; one from
pinned memory reads it when it runs, so that a buffer that is used again too early
gives wrong numbers; one to pageable memory waits. Next: kernels.py.
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from typing import Any

from .errors import CUDARuntimeError
from .machine import Machine, StreamState
from .memory import ALLOCATED, INITIALISED, Memory

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = range(5)


@dataclass(frozen=True)
class PinnedRange:
    """Pinned memory; whoever holds this keeps its bytes, but not its owner."""

    start: int
    size: int
    owner: weakref.ref[Any]
    memory: Any


class Pinned:
    """The pinned host memory of the process: address ranges and their owners."""

    def __init__(self) -> None:
        self._ranges: dict[int, PinnedRange] = {}

    def add(self, owner: object, memory: Any, start: int, size: int) -> None:
        """Note a range, as long as its owner lives; `memory` is what it lies in."""
        alive = weakref.ref(owner, lambda _: self._ranges.pop(start, None))
        self._ranges[start] = PinnedRange(start, size, alive, memory)

    def find(self, start: int, size: int) -> PinnedRange | None:
        """The pinned memory that a range lies in."""
        for one in self._ranges.values():
            if one.start <= start and start + size <= one.start + one.size:
                return one
        return None


pinned = Pinned()


def device_of(machine: Machine, address: int) -> Memory | None:
    """The device that owns an address; None for host memory."""
    for memory in machine.memories:
        if memory.contains(address):
            return memory
    return None


def _invalid(note: str) -> CUDARuntimeError:
    return CUDARuntimeError(1, note)


def _check_range(memory: Memory, start: int, size: int, what: str) -> None:
    if not memory.holds(start, size):
        where = memory.describe(start)
        raise _invalid(f"{what} of {size} bytes at {start:#x}: {where}")


def _check_own(memory: Memory | None, device: int, what: str) -> None:
    if memory is not None and memory.device != device:
        raise _invalid(
            f"{what} on device {device} touches memory of device {memory.device}"
        )


def _check_alive(
    machine: Machine, memory: Memory, start: int, size: int, what: str
) -> None:
    """When it runs, a copy must still find its memory allocated."""
    bad = memory.first_without(start, size, ALLOCATED)
    if bad < size:
        where = memory.describe(start + bad)
        machine.fail(700, f"{what} touches freed memory: {start + bad:#x}, {where}")


def copy(
    machine: Machine, out: int, source: int, size: int, kind: int, stream: StreamState
) -> None:
    """cudaMemcpyAsync."""
    to, origin = device_of(machine, out), device_of(machine, source)
    kinds = {
        (False, False): HOST_TO_HOST,
        (True, False): HOST_TO_DEVICE,
        (False, True): DEVICE_TO_HOST,
        (True, True): DEVICE_TO_DEVICE,
    }
    actual = kinds[to is not None, origin is not None]
    if kind not in (actual, DEFAULT):
        raise _invalid(f"the kind of a copy is {kind}, its addresses say {actual}")
    for memory, start in ((to, out), (origin, source)):
        _check_own(memory, stream.device, "a copy")
        if memory and size:
            _check_range(memory, start, size, "a copy")
    if to is origin and out < source + size and source < out + size:
        raise _invalid(f"a copy of {size} bytes from {source:#x} to {out:#x} overlaps")
    if size:
        _transfer(machine, out, to, source, origin, size, stream)


def copy_peer(
    machine: Machine,
    out: int,
    out_device: int,
    source: int,
    source_device: int,
    size: int,
    stream: StreamState,
) -> None:
    """cudaMemcpyPeerAsync."""
    to, origin = device_of(machine, out), device_of(machine, source)
    for memory, start, device in (
        (to, out, out_device),
        (origin, source, source_device),
    ):
        if memory is None or memory.device != device:
            raise _invalid(f"{start:#x} is not memory of device {device}")
        if size:
            _check_range(memory, start, size, "a peer copy")
    if size:
        _transfer(machine, out, to, source, origin, size, stream)


def _transfer(
    machine: Machine,
    out: int,
    to: Memory | None,
    source: int,
    origin: Memory | None,
    size: int,
    stream: StreamState,
) -> None:
    staged: ctypes.Array | None = None
    hosts = [
        pinned.find(start, size)
        for memory, start in ((to, out), (origin, source))
        if memory is None
    ]
    pageable = None in hosts
    if pageable and stream.capture:
        stream.capture.invalidate()
        raise CUDARuntimeError(900, "a copy of pageable host memory")
    if origin is None and pageable:
        staged = ctypes.create_string_buffer(size)
        ctypes.memmove(staged, source, size)

    def run() -> None:
        start = ctypes.addressof(staged) if staged is not None else source
        if any(host and host.owner() is None for host in hosts):
            machine.finding(f"a copy of {size} bytes uses pinned memory that was freed")
        for memory, start_, writes in ((origin, source, False), (to, out, True)):
            if memory:
                _check_alive(machine, memory, start_, size, "a copy")
                machine.access(memory, start_, size, writes, label)
        ctypes.memmove(out, start, size)
        if to and origin:
            to.copy_states(out, origin, source, size)
        elif to:
            to.mark(out, size, INITIALISED)
        elif origin:
            bad = origin.first_without(source, size, INITIALISED)
            if bad < size:
                where = origin.describe(source + bad)
                machine.finding(
                    f"a copy to the host reads memory that nobody has written: {where}"
                )

    label = f"a copy of {size} bytes"
    operation = machine.enqueue(stream, run, label)
    if to is None and pageable:
        machine.finish(operation)


def fill(machine: Machine, out: int, byte: int, size: int, stream: StreamState) -> None:
    """cudaMemsetAsync."""
    memory = device_of(machine, out)
    if memory is None:
        raise _invalid(f"memset of host memory at {out:#x}")
    _check_own(memory, stream.device, "a memset")
    if not size:
        return
    _check_range(memory, out, size, "a memset")

    def run() -> None:
        _check_alive(machine, memory, out, size, "a memset")
        machine.access(memory, out, size, True, f"a memset of {size} bytes")
        ctypes.memset(out, byte, size)
        memory.mark(out, size, INITIALISED)

    machine.enqueue(stream, run, f"a memset of {size} bytes")
