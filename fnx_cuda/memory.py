"""Memory of a device: buffers over a pool that keeps what is freed, and its figures.

All of a device's work is in the order of one stream, so a buffer may be freed, and its
memory used again, while work that reads it is still to come. Memory that the transfer
stream writes (`Memory.incoming`) is used again behind an event instead. Receives sizes,
gives `Buffer`s. Next on the walk: `staging.py`.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from fnx import errors
from fnx_cuda import _cupy, failures


class Passed(Protocol):
    """A point in the order of a device's work (`device.Moment`)."""

    @property
    def what(self) -> str:
        """What was started last before it."""
        ...

    def wait(self) -> None:
        """Waits until the work before it is done; raises what went wrong there."""
        ...

    def passed(self) -> bool:
        """Whether that work is done."""
        ...

    def before(self, stream: int) -> None:
        """Has a stream wait for it."""
        ...


class Cache(Protocol):
    """Something that holds memory which it could do without."""

    def release(self) -> None:
        """Gives up what is not in use."""
        ...


class Buffer:
    """Memory of an array on a device; with the last reference it goes to the pool.

    `moment` is when what was written last is there, or `None` if it is. `memory` is
    what keeps it: a pool's (then it is `ours`), or another library's array.
    """

    __slots__ = (
        "__weakref__",
        "_freed",
        "device",
        "memory",
        "moment",
        "nbytes",
        "pointer",
    )

    def __init__(
        self,
        device: int,
        pointer: int,
        nbytes: int,
        memory: Any,
        freed: deque[int] | None = None,
    ) -> None:
        self.device = device
        self.pointer = pointer
        self.nbytes = nbytes
        self.memory = memory
        self.moment: Passed | None = None
        self._freed = freed

    @property
    def ours(self) -> bool:
        """Whether the memory is of our pool, so that a program may write into it."""
        return self._freed is not None

    def __del__(self) -> None:
        # Any thread may come by here, in the middle of anything: appending is all that
        # is safe.
        if self._freed is not None:
            self._freed.append(self.nbytes)

    def __repr__(self) -> str:
        return (
            f"<{self.nbytes} bytes at {self.pointer:#x} on CUDA device {self.device}>"
        )


class Home:
    """Where blocks of a pool come back to, which are not freed in between.

    A block that is out is held here, and not by its buffer: in what the garbage
    collector finds, it would be freed beside the buffer that brings it back.
    """

    __slots__ = ("back", "out")

    def __init__(self) -> None:
        self.out: dict[int, Any] = {}
        self.back: deque[Any] = deque()


class Returning(Buffer):
    """Memory that comes back to its home with the last reference."""

    __slots__ = ("_home",)

    def __init__(
        self, device: int, block: Any, nbytes: int, freed: deque[int], home: Home
    ) -> None:
        pointer = block.ptr
        home.out[pointer] = block
        self.device = device
        self.pointer = pointer
        self.nbytes = nbytes
        self.memory = None
        self.moment = None
        self._freed = freed
        self._home = home

    def __del__(self) -> None:
        home = self._home
        home.back.append(home.out.pop(self.pointer))
        self._freed.append(self.nbytes)  # type: ignore[union-attr]


class Slot:
    """Where memory for one purpose comes from, time after time.

    What comes back is used again first: that is quicker than the pool, and a purpose
    that has the same addresses again is what graphs need. What is large is the pool's,
    where every purpose can use it.
    """

    __slots__ = ("_home", "_memory", "nbytes")

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.nbytes = nbytes
        self._memory = memory
        self._home = Home()

    def take(self, what: str, detail: Callable[[], str]) -> Buffer:
        """A buffer; raises as `Memory.allocate` does."""
        memory, back = self._memory, self._home.back
        if not 0 < self.nbytes <= LARGEST_KEPT:
            return memory.allocate(self.nbytes, what, detail)
        while len(back) > _SPARE:
            back.popleft()
        try:
            block = back.pop()
            memory.in_use += self.nbytes  # `settle` looks at the peak
        except IndexError:
            block = memory.block(memory.pool, self.nbytes, what, detail)
            memory.counted(self.nbytes)
        return Returning(memory.device, block, self.nbytes, memory.freed, self._home)

    def release(self) -> None:
        """Gives what came back to the pool."""
        self._home.back.clear()


LARGEST_KEPT = 2**24
"""So many bytes has a block at most that a slot keeps to itself."""

_SPARE = 2  # so many blocks of a slot wait to be used again

KEPT = 4
"""So many incoming blocks of a size wait to be used again."""


class Memory:
    """The memory of one device. Its methods are called with the device current."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.pool = _cupy.memory_pool()
        self.incoming_pool = _cupy.memory_pool()
        self.caches: weakref.WeakSet[Cache] = weakref.WeakSet()
        self.in_use = 0
        self.peak = 0
        self.largest = 0
        self.count = 0
        self.freed: deque[int] = deque()
        self._incoming = Home()
        self._waiting: dict[int, deque[tuple[Passed, Any]]] = {}

    def allocate(
        self, nbytes: int, what: str = "an array", detail: Callable[[], str] = str
    ) -> Buffer:
        """A buffer of so many bytes; `DeviceMemoryError` names `what` did not fit.

        `detail` says more in that case.
        """
        if nbytes == 0:
            return Buffer(self.device, 0, 0, None)
        memory = self.block(self.pool, nbytes, what, detail)
        self.counted(nbytes)
        return Buffer(self.device, memory.ptr, nbytes, memory, self.freed)

    def incoming(self, nbytes: int, stream: Any) -> Buffer:
        """A buffer that may be written in the order of a stream of transfers.

        Once written it is read in the order of the device's other work, as any buffer.
        """
        waiting = self._waiting.get(_rounded(nbytes))
        if waiting:
            moment, memory = waiting.popleft()
            moment.before(stream.ptr)
        else:
            with stream:
                memory = self.block(self.incoming_pool, nbytes, "an array", str)
        self.counted(nbytes)
        return Returning(self.device, memory, nbytes, self.freed, self._incoming)

    def block(
        self, pool: Any, nbytes: int, what: str, detail: Callable[[], str]
    ) -> Any:
        """Memory of a pool; `DeviceMemoryError` as for `allocate`."""
        shortage = _cupy.out_of_memory_error()
        try:
            return pool.malloc(nbytes)
        except shortage:
            self.release()
        except _cupy.cuda_errors() as error:
            raise failures.device_error(error, self.device, "allocating") from error
        try:
            return pool.malloc(nbytes)
        except shortage as error:
            raise self._too_much(nbytes, what, detail()) from error

    def counted(self, nbytes: int) -> None:
        """Notes that so many bytes are in use."""
        if self.freed:
            self._settle_count()
        self.in_use += nbytes
        if nbytes > self.largest:
            self.largest = nbytes
        self.count += 1

    def settle(self, now: Callable[[], Passed]) -> None:
        """Takes back incoming memory that is free; all work until now may read it."""
        if self.freed:
            self._settle_count()
        back = self._incoming.back
        if not back:
            return
        moment = now()
        while back:
            memory = back.popleft()
            waiting = self._waiting.setdefault(memory.mem.size, deque())
            waiting.append((moment, memory))
            while len(waiting) > KEPT:
                self._drop(*waiting.popleft())

    def release(self) -> None:
        """Gives to CUDA all memory that nobody uses."""
        for cache in list(self.caches):
            cache.release()
        for waiting in self._waiting.values():
            while waiting:
                self._drop(*waiting.popleft())
        gc.collect()
        self.pool.free_all_blocks()
        self.incoming_pool.free_all_blocks()

    def stats(self) -> dict[str, int]:
        """What is in use, and what the device has."""
        self._settle_count()
        free, total = _cupy.memory_info()
        pools = (self.pool, self.incoming_pool)
        reserved = sum(int(pool.total_bytes()) for pool in pools)
        return {
            "bytes_in_use": self.in_use,
            "peak_bytes_in_use": self.peak,
            "largest_alloc_size": self.largest,
            "num_allocs": self.count,
            "bytes_reserved": reserved,
            "bytes_free": free,
            "bytes_limit": total,
        }

    # -- inside

    def _too_much(
        self, nbytes: int, what: str, detail: str
    ) -> errors.DeviceMemoryError:
        stats = self.stats()
        asked = f"CUDA device {self.device} has no memory for {what}"
        reason = (
            f"it takes {readable(nbytes)}, {readable(stats['bytes_free'])} of "
            f"{readable(stats['bytes_limit'])} are free, and arrays and programs of "
            f"fnx use {readable(stats['bytes_in_use'])}"
        )
        fix = (
            "use smaller arrays, delete some, donate arguments "
            "(fnx.jit(f, donate_argnums=...)), or see who else uses the device"
        )
        text = errors.explain(asked, reason, fix)
        return errors.DeviceMemoryError(f"{text}\n{detail}" if detail else text)

    def _settle_count(self) -> None:
        # What is freed is not in use any more from the next look on.
        if self.in_use > self.peak:
            self.peak = self.in_use
        while self.freed:
            self.in_use -= self.freed.popleft()

    def _drop(self, moment: Passed, memory: Any) -> None:
        """Gives memory to its pool, where no event would guard it."""
        moment.wait()
        del memory


def _rounded(nbytes: int) -> int:
    """The size of a block of a pool with so many bytes."""
    return -(-nbytes // _ROUND) * _ROUND


_ROUND = 512  # CuPy's pools


def readable(nbytes: int) -> str:
    """A number of bytes for people.

    >>> readable(1536), readable(3 * 2**30)
    ('1.5 KiB', '3.0 GiB')
    """
    size = float(nbytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
