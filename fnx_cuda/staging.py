"""Pinned host memory, from and to which a device copies by itself.

To make some takes long, so blocks of it are used again, each as soon as the event of
its copy has passed. Receives sizes, gives `Block`s. Next on the walk: `transfer.py`.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np

from fnx.records import record
from fnx_cuda import _cupy
from fnx_cuda.memory import Passed

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_LEAST = 2**12  # the smallest block
_MOST_BUSY = 2**26  # so many bytes may be on their way before somebody waits


@record(eq=False)
class Block:
    """Pinned memory; `keep` is what it belongs to."""

    pointer: int
    bytes: Bytes
    keep: Any


class Staging:
    """Pinned blocks by size, a power of two; those on their way wait for an event."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[int, list[Block]] = {}
        self._busy: deque[tuple[Passed, Block]] = deque()
        self._busy_bytes = 0

    def take(self, nbytes: int) -> Block:
        """A block with room for so many bytes."""
        size = max(1 << (nbytes - 1).bit_length(), _LEAST)
        with self._lock:
            self._collect()
            free = self._free.get(size)
            if free:
                return free.pop()
        memory = self._pinned(size)
        return Block(memory.ptr, np.frombuffer(memory, np.uint8, size), memory)

    def give(self, block: Block, moment: Passed | None = None) -> None:
        """Takes a block back, which is on its way until a moment."""
        with self._lock:
            if moment is None:
                self._free.setdefault(block.bytes.size, []).append(block)
            else:
                self._busy.append((moment, block))
                self._busy_bytes += block.bytes.size

    def _pinned(self, size: int) -> Any:
        """New pinned memory, if need be after all that is free was given back."""
        try:
            return _cupy.pinned(size)
        except _cupy.cuda_errors():
            with self._lock:
                self._collect()
                self._free.clear()
            _cupy.free_pinned()
        return _cupy.pinned(size)

    def _collect(self) -> None:
        """Frees the blocks whose copies are done; some have to be, if many are not."""
        while self._busy:
            moment, block = self._busy[0]
            if self._busy_bytes < _MOST_BUSY and not moment.passed():
                return
            moment.wait()
            self._busy.popleft()
            self._busy_bytes -= block.bytes.size
            self._free.setdefault(block.bytes.size, []).append(block)
