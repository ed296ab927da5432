"""CuPy's memory objects: pointers, pools, foreign and pinned memory.

A block that goes back to a pool is free at once for the next request of its stream. Its
bytes then belong to nobody: work that was put into a stream before may still use them,
later work may not, and what a new owner does to them is a race with whatever it does
not wait for. Next: arrays.py.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import inject
from .copies import device_of, pinned
from .errors import CUDARuntimeError, OutOfMemoryError
from .graph import RELAXED
from .machine import Machine, StreamState, machine
from .memory import ALLOCATED, UNALLOCATED
from .streams import get_current_stream

ROUND = 512


def allocate(size: int) -> int:
    """cudaMalloc on the current device."""
    here = machine()
    with here.call():
        capture = get_current_stream().state.capture
        if capture and capture.mode != RELAXED:
            capture.invalidate()
            raise CUDARuntimeError(900, "cudaMalloc")
        start = None if inject.allocation_fails() else _memory(here).allocate(size)
        if start is None:
            raise CUDARuntimeError(2, f"{size} bytes on device {here.device}")
        return start


def release(address: int) -> None:
    """cudaFree, which waits for the device."""
    if not address:
        return
    here = machine()
    with here.call():
        memory = device_of(here, address)
        if memory is None:
            raise CUDARuntimeError(1, f"{address:#x} is not device memory")
        here.finish_device(memory.device)
        if not memory.free(address):
            raise CUDARuntimeError(1, f"no allocation begins at {address:#x}")


def _memory(here: Machine) -> Any:
    return here.memories[here.device]


class BaseMemory:
    """`cupy.cuda.memory.BaseMemory`: an address, a size and a device."""

    ptr: int
    size: int
    device_id: int


class Memory(BaseMemory):
    """`cupy.cuda.Memory`: one cudaMalloc, freed with the object."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.device_id = machine().device
        self._machine = machine()
        self.ptr = allocate(size) if size else 0

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            _give_back(getattr(self, "_machine", None), getattr(self, "ptr", 0))


def _give_back(owner: Machine | None, address: int) -> None:
    """Free the memory of an object that dies, on the machine that it came from."""
    if owner is not machine() or not address or owner.error:
        return

    def act() -> None:
        memory = device_of(owner, address)
        if memory is not None:
            try:
                owner.finish_device(memory.device)
            finally:
                memory.free(address)

    owner.finalize(act)


class UnownedMemory(BaseMemory):
    """`cupy.cuda.UnownedMemory`: memory that another object owns."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1) -> None:
        self.ptr, self.size, self._owner = ptr, size, owner
        if device_id < 0:
            memory = device_of(machine(), ptr)
            if memory is None:
                raise CUDARuntimeError(1, f"{ptr:#x} is not device memory")
            device_id = memory.device
        self.device_id = device_id


class MemoryPointer:
    """`cupy.cuda.MemoryPointer`: an address inside a memory object."""

    def __init__(self, mem: BaseMemory, offset: int) -> None:
        self.mem = mem
        self.ptr = mem.ptr + offset
        self.device_id = mem.device_id

    @property
    def device(self) -> int:
        """The device's number."""
        return self.device_id

    def __int__(self) -> int:
        return self.ptr

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    __radd__ = __add__

    def __sub__(self, offset: int) -> MemoryPointer:
        return self + -offset


class _Block:
    """A chunk of a pool, with the stream whose requests it serves."""

    def __init__(self, memory: Memory, stream: StreamState) -> None:
        self.memory = memory
        self.stream = stream


class PooledMemory(BaseMemory):
    """Memory of a pool; goes back to it with the object."""

    def __init__(self, block: _Block, size: int, pool: MemoryPool) -> None:
        self._block, self._pool = block, pool
        self.ptr, self.size = block.memory.ptr, size
        self.device_id = block.memory.device_id

    def free(self) -> None:
        """Give it back now."""
        block, self._block = self._block, None
        if block is not None:
            self._pool._take_back(block)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self.free()


class MemoryPool:
    """`cupy.cuda.MemoryPool`."""

    def __init__(self, allocator: Callable[[int], Any] | None = None) -> None:
        self._free: dict[tuple[int, int], list[_Block]] = {}
        # All: a block in use must not be finalized with the garbage that uses it.
        self._blocks: set[_Block] = set()
        self._used = 0
        self._total = 0
        self._limit = 0

    def malloc(self, size: int) -> MemoryPointer:
        """A pointer to `size` bytes for the current stream."""
        if size < 0:
            raise ValueError(f"negative size: {size}")
        if size == 0:
            return MemoryPointer(UnownedMemory(0, 0, None, machine().device), 0)
        rounded = -(-size // ROUND) * ROUND
        stream = get_current_stream().state
        # With the machine's lock: another thread must not take what is given back here
        # before it is marked.
        here = machine()
        with here.lock:
            block = self._take(rounded, stream)
            self._used += rounded
            with here.call():
                _mark(block, ALLOCATED, size)
        return MemoryPointer(PooledMemory(block, rounded, self), 0)

    def _take(self, size: int, stream: StreamState) -> _Block:
        for block in self._free.get((stream.device, stream.handle), ()):
            if block.memory.size == size and block.memory._machine is machine():
                self._free[stream.device, stream.handle].remove(block)
                return block
        if self._limit and self._total + size > self._limit:
            raise OutOfMemoryError(size, self._total, self._limit)
        for attempt in range(3):
            try:
                block = _Block(Memory(size), stream)
                break
            except CUDARuntimeError as error:
                if error.status != 2:
                    raise
                if attempt == 0:
                    self.free_all_blocks()
                elif attempt == 1:
                    gc.collect()
                    self.free_all_blocks()
        else:
            raise OutOfMemoryError(size, self._total, self._limit)
        self._total += size
        self._blocks.add(block)
        return block

    def _take_back(self, block: _Block) -> None:
        here = machine()
        with here.lock:
            self._used -= block.memory.size
            if block.memory._machine is not here or here.error:
                self._total -= block.memory.size
                self._blocks.discard(block)
                return
            key = block.stream.device, block.stream.handle
            self._free.setdefault(key, []).append(block)
            here.finalize(lambda: _mark(block, UNALLOCATED, block.memory.size))

    def free_all_blocks(self, stream: Any = None) -> None:
        """cudaFree what is not in use."""
        with machine().lock:
            blocks = [b for free in self._free.values() for b in free]
            self._free.clear()
            self._total -= sum(b.memory.size for b in blocks)
            self._blocks.difference_update(blocks)
        blocks.clear()

    def used_bytes(self) -> int:
        """Bytes in use."""
        return self._used

    def free_bytes(self) -> int:
        """Bytes held and not in use."""
        return self._total - self._used

    def total_bytes(self) -> int:
        """Bytes held."""
        return self._total

    def n_free_blocks(self) -> int:
        """Blocks held and not in use."""
        return sum(map(len, self._free.values()))

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """The most bytes that the pool may hold; 0 for no limit."""
        if fraction is not None:
            size = int(machine().settings.memory * fraction)
        self._limit = size or 0

    def get_limit(self) -> int:
        """The most bytes that the pool may hold."""
        return self._limit


def _mark(block: _Block, state: int, size: int) -> None:
    """A block's bytes change hands: work that was started before may still use them.

    What the new owner does to them is a race with whatever it does not wait for.
    """
    here, stream, start = machine(), block.stream, block.memory.ptr
    memory = here.memories[block.memory.device_id]

    def run() -> None:
        memory.mark(start, size, state)

    if stream.capture:
        run()  # the graph replays with the memory as it is then
    else:
        here.between(stream, run)


_default_pool = MemoryPool()
_allocator = threading.local()


def get_default_memory_pool() -> MemoryPool:
    """`cupy.get_default_memory_pool`."""
    return _default_pool


def alloc(size: int) -> MemoryPointer:
    """`cupy.cuda.alloc`: with the current allocator."""
    function = getattr(_allocator, "function", None) or _set.get("allocator")
    return (function or _default_pool.malloc)(size)


_set: dict[str, Callable[[int], MemoryPointer] | None] = {}


def set_allocator(allocator: Callable[[int], MemoryPointer] | None = None) -> None:
    """`cupy.cuda.set_allocator`."""
    _set["allocator"] = allocator


@contextmanager
def using_allocator(
    allocator: Callable[[int], MemoryPointer] | None = None,
) -> Iterator[None]:
    """`cupy.cuda.using_allocator`: for the calling thread."""
    before = getattr(_allocator, "function", None)
    _allocator.function = allocator
    try:
        yield
    finally:
        _allocator.function = before


# ---------------------------------------------------------------- pinned memory


class PinnedMemoryPool:
    """`cupy.cuda.PinnedMemoryPool`; what nobody uses is given back at once."""

    def free_all_blocks(self) -> None:
        """Nothing is kept."""

    def n_free_blocks(self) -> int:
        """Blocks that nobody uses."""
        return 0


_default_pinned_pool = PinnedMemoryPool()


def get_default_pinned_memory_pool() -> PinnedMemoryPool:
    """`cupy.get_default_pinned_memory_pool`."""
    return _default_pinned_pool


class _PinnedMemory:
    """What CuPy's PinnedMemoryPointer has besides the buffer protocol."""

    @property
    def ptr(self) -> int:
        """The address."""
        return ctypes.addressof(self)  # type: ignore[arg-type]

    def size(self) -> int:
        """The number of bytes."""
        return ctypes.sizeof(self)  # type: ignore[arg-type]


@functools.cache
def _pinned_type(size: int) -> Any:
    bases = (_PinnedMemory, ctypes.c_ubyte * size)
    return type("PinnedMemoryPointer", bases, {})


def alloc_pinned_memory(size: int) -> Any:
    """`cupy.cuda.alloc_pinned_memory`: bytes with the buffer protocol and `ptr`.

    As CuPy's pool does, it rounds up to a power of two.
    """
    with machine().call():
        if inject.allocation_fails():
            raise CUDARuntimeError(2, f"{size} bytes of pinned memory")
    rounded = max(ROUND, 1 << max(size - 1, 0).bit_length())
    memory = bytearray(b"\xff" * rounded)
    owner = _pinned_type(rounded).from_buffer(memory)
    pinned.add(owner, memory, owner.ptr, rounded)
    return owner
