"""One CUDA device: whose turn it is, its streams, and moments in their order.

Everything that is started on a device goes through `with device:`, one thread at a
time, in the order of the compute stream; a second stream carries large transfers and a
third one collectives, tied in by events. Receives the device's number. Next on the
walk: `failures.py`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from fnx import errors
from fnx_cuda import _cupy, failures
from fnx_cuda.memory import Memory
from fnx_cuda.staging import Staging


class Moment:
    """A point in the order of a stream; `what` was started there last.

    Events are used again when a moment is forgotten.
    """

    __slots__ = ("_device", "_event", "what")

    def __init__(self, device: Device, stream: int, what: str) -> None:
        self._device = device
        self.what = what
        try:
            self._event = device.events.pop()
        except IndexError:
            self._event = _cupy.new_event()
            device.every_event.append(self._event)
        _cupy.record_on(self._event, stream)

    def wait(self) -> None:
        """Waits until the work before it is done; `DeviceError` if that failed."""
        try:
            if self._device.watch is not None:
                self._device.watch(self.passed)
            self._event.synchronize()
        except _cupy.cuda_errors() as error:
            number = self._device.number
            raise failures.device_error(error, number, self.what) from error

    def passed(self) -> bool:
        """Whether the work before it is done."""
        return bool(self._event.done)

    def before(self, stream: int) -> None:
        """Has a stream, of any device, wait for it."""
        _cupy.wait_for_event_of(stream, self._event)

    def __del__(self) -> None:
        event = getattr(self, "_event", None)  # none if it could not be made
        if event is not None:
            self._device.events.append(event)


class Device:
    """What a process keeps of one device.

    `with device:` gives this thread its turn, with the device and its compute stream
    current: memory of a pool belongs to the stream that is.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.lock: Any = threading.RLock()
        self.events: deque[Any] = deque()
        # Held here, none is destroyed beside a moment that the garbage collector finds.
        self.every_event: list[Any] = []
        self._before: list[int] = []  # the current devices of those who have the turn
        self._known = threading.local()
        self._kept: deque[tuple[Moment, object]] = deque()
        self._foreign: deque[Any] = deque()
        before = self._make_current()
        try:
            self.stream = _cupy.new_stream()
            self.transfer_stream = _cupy.new_stream()
            self.collective_stream = _cupy.new_stream()
            self.staging = Staging()
            flag = self.staging.take(_FLAG_BYTES)  # for good
        finally:
            _cupy.set_device(before)
        self.compute: int = self.stream.ptr
        self.transfer: int = self.transfer_stream.ptr
        self.collective: int = self.collective_stream.ptr
        self.memory = Memory(number)
        self.flag = flag
        # Waits, with an eye on other processes that the work may be waiting for.
        self.watch: Callable[[Callable[[], bool]], None] | None = None

    def __enter__(self) -> Device:
        self.lock.acquire()
        try:
            before = self._make_current()
            self.stream.__enter__()
            self._before.append(before)
        except BaseException:
            self.lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        before = self._before.pop()
        try:
            self.stream.__exit__()
            if before != self.number:
                _cupy.set_device(before)
        finally:
            self.lock.release()

    @contextmanager
    def yielded(self) -> Iterator[None]:
        """Gives the turn to others while Python of the user's runs."""
        mine = list(self._before)
        for _ in mine:
            self.__exit__()
        try:
            yield
        finally:
            for _ in mine:
                self.lock.acquire()
            self._before[:] = mine
            self._make_current()
            for _ in mine:
                self.stream.__enter__()

    def now(self, what: str) -> Moment:
        """The moment behind all that has been started on the compute stream."""
        return Moment(self, self.compute, what)

    def join(self) -> None:
        """Has what is started next wait for other libraries that had our memory."""
        while self._foreign:
            _cupy.wait_for_event_of(self.compute, self._foreign.popleft())

    def settle(self) -> None:
        """Lets go of what nobody needs any more."""
        self.join()
        while self._kept and self._kept[0][0].passed():
            self._kept.popleft()
        self.memory.settle(self._now_unnamed)

    def keep(self, moment: Moment, thing: object) -> None:
        """Keeps something until a moment has passed."""
        self._kept.append((moment, thing))

    def comes_after(self, event: Any) -> None:
        """Has `join` wait for an event; any thread may call it at any time."""
        self._foreign.append(event)

    def fetch(self, address: int, nbytes: int, stream: int) -> None:
        """Starts the copy of a few bytes to the host, or records it."""
        _cupy.copy_to_host(self.flag.pointer, address, nbytes, stream)

    def fetched(self, nbytes: int) -> bytes:
        """Waits for the bytes that were fetched last, and gives them."""
        if self.watch is not None:
            self.watch(lambda: bool(self.stream.done))
        self.stream.synchronize()
        return self.flag.bytes[:nbytes].tobytes()

    def _now_unnamed(self) -> Moment:
        return self.now("earlier work")

    def _make_current(self) -> int:
        """Makes the device current; gives the one that was."""
        try:
            before = _cupy.current_device()
            if not hasattr(self._known, "yes"):
                _cupy.ensure_context(self.number)
                self._known.yes = True
            elif before != self.number:
                _cupy.set_device(self.number)
        except _cupy.cuda_errors() as error:
            raise failures.device_error(error, self.number, "work") from error
        return before


_FLAG_BYTES = 64

_devices: dict[int, Device] = {}
_making = threading.Lock()


def device(number: int) -> Device:
    """The device of that number, made ready at first use."""
    found = _devices.get(number)
    if found is None:
        with _making:
            found = _devices.get(number)
            if found is None:
                found = _devices[number] = Device(number)
    return found


def forget() -> None:
    """Forgets all devices, for tests that put another module in CuPy's place."""
    _devices.clear()


class _Forked:
    """The lock of a device in a process that was forked: CUDA does not work there."""

    def acquire(self) -> NoReturn:
        raise errors.DeviceError(
            errors.explain(
                "a CUDA device in a forked process",
                "CUDA does not survive a fork",
                'start processes by multiprocessing.get_context("spawn")',
            )
        )


def _in_child() -> None:
    for known in _devices.values():
        known.lock = _Forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
