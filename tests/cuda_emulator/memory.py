"""The memory of one device: allocations between guard zones, and their shadows.

A device has a range of this process's addresses. The runtime keeps a state for each
byte of it (unallocated, allocated, initialised) and who touched it last; what is not
initialised holds NaN. Allocations lie apart, so that a kernel that runs over the end
of one meets bytes that nobody owns. Next: copies.py.
"""

from __future__ import annotations

import bisect
import ctypes
from collections import deque
from dataclasses import dataclass

from . import native

UNALLOCATED, ALLOCATED, INITIALISED = 0, 1, 3
ALIGNMENT = 512
GUARD = 4096
LARGE = 1 << 16  # freed allocations of this size give their pages back
QUARANTINE = 16 << 20  # so many freed addresses are not used again yet


@dataclass(frozen=True)
class Allocation:
    """One cudaMalloc."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.start + self.size


def _room(size: int) -> int:
    """The addresses that an allocation takes, with the guard behind it."""
    return -(-size // ALIGNMENT) * ALIGNMENT + GUARD


class Memory:
    """Allocates in a device's range and keeps its shadows."""

    def __init__(self, device: int, capacity: int) -> None:
        self.device = device
        self.capacity = capacity
        self.used = 0
        self.space = native.Space()
        self._library = native.library()
        # twice the capacity: there are always addresses, however they are cut up
        if not self._library.fnx_reserve(self.space, 2 * capacity):
            raise MemoryError(f"no {12 * capacity} bytes of addresses for a device")
        self._next = self.space.start + GUARD
        self._freed: dict[int, deque[int]] = {}  # by their room, the oldest first
        self._freed_bytes = 0
        self._starts: list[int] = []
        self._allocations: dict[int, Allocation] = {}

    def release(self) -> None:
        """Give the range back to the system."""
        self._library.fnx_release(self.space)

    def contains(self, address: int) -> bool:
        """Whether an address is one of this device."""
        return 0 <= address - self.space.start < self.space.size

    def allocate(self, size: int) -> int | None:
        """The address of `size` new bytes; None where there is no room."""
        if self.used + size > self.capacity:
            return None
        start = self._find(size)
        if start is None:
            return None
        bisect.insort(self._starts, start)
        self._allocations[start] = Allocation(start, size)
        self.used += size
        self.mark(start, size, ALLOCATED)
        return start

    def _find(self, size: int) -> int | None:
        """Where there is room: at new addresses, or at those freed a while ago."""
        room = _room(size)
        end = self.space.start + self.space.size
        freed = self._freed.get(room)
        if freed and self._freed_bytes > QUARANTINE:
            self._freed_bytes -= room
            return freed.popleft()
        if self._next + room <= end:
            start, self._next = self._next, self._next + room
            return start
        # the first gap that is large enough
        self._freed.clear()
        self._freed_bytes = 0
        start = self.space.start + GUARD
        for other in self._starts:
            if start + room <= other:
                return start
            start = other + _room(self._allocations[other].size)
        return start if start + room <= end else None

    def free(self, start: int) -> bool:
        """Free an allocation; False where none begins at the address."""
        allocation = self._allocations.pop(start, None)
        if allocation is None:
            return False
        del self._starts[bisect.bisect_left(self._starts, start)]
        self.used -= allocation.size
        room = _room(allocation.size)
        self._freed.setdefault(room, deque()).append(start)
        self._freed_bytes += room
        self.mark(start, allocation.size, UNALLOCATED)
        if allocation.size >= LARGE:
            self._library.fnx_forget(self.space, start, allocation.size)
        return True

    def find(self, address: int) -> Allocation | None:
        """The allocation that holds an address, or the last one below it."""
        n = bisect.bisect_right(self._starts, address) - 1
        return self._allocations[self._starts[n]] if n >= 0 else None

    def holds(self, start: int, size: int) -> bool:
        """Whether a range lies inside one allocation."""
        allocation = self.find(start)
        return allocation is not None and start + size <= allocation.end

    def mark(self, start: int, size: int, state: int) -> None:
        """Set the state of a range; what is not initialised becomes NaN."""
        self._library.fnx_mark(self.space, start, size, state)

    def copy_states(
        self, start: int, source: Memory, source_start: int, n: int
    ) -> None:
        """The states of a range as those of another one."""
        ctypes.memmove(
            self.space.state + start - self.space.start,
            source.space.state + source_start - source.space.start,
            n,
        )

    def touch(
        self, start: int, size: int, writes: bool, ranges: ctypes.Array[ctypes.c_uint64]
    ) -> int:
        """Note an access; the serial number of one that it races with, or 0."""
        arguments = start, size, writes, ranges, len(ranges)
        return self._library.fnx_touch(self.space, *arguments)

    def first_without(self, start: int, size: int, state: int) -> int:
        """The offset of the first byte whose state is less; `size` where none is."""
        return self._library.fnx_first_without(self.space, start, size, state)

    def describe(self, address: int) -> str:
        """Where an address lies, for messages."""
        allocation = self.find(address)
        if allocation is None:
            return f"below every allocation of device {self.device}"
        offset = address - allocation.start
        name = f"the allocation of {allocation.size} bytes at {allocation.start:#x}"
        if offset < allocation.size:
            return f"byte {offset} of {name} on device {self.device}"
        past = offset - allocation.size
        return f"{past} bytes past the end of {name} on device {self.device}"
