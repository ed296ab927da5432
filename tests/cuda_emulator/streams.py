"""CuPy's streams and events.

An event remembers the operation that was last recorded for it; a stream that waits for
it has its next operation come after that one. Next: graph.py.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

from .errors import CUDARuntimeError
from .graph import RELAXED, Capture, Graph
from .machine import Operation, StreamState, machine


def _query(operation: Operation | None) -> bool:
    """Whether an operation is done, as the host then knows."""
    here = machine()
    here.progress()
    if operation is not None and operation.done:
        here.known(operation)
    return operation is None or operation.done


_events: weakref.WeakValueDictionary[int, Event] = weakref.WeakValueDictionary()


class Event:
    """`cupy.cuda.Event`: a point in a stream's work."""

    def __init__(
        self,
        block: bool = False,
        disable_timing: bool = False,
        interprocess: bool = False,
    ) -> None:
        with machine().call():
            self.ptr = machine().handle()
        _events[self.ptr] = self
        self.timed = not disable_timing
        self.device = machine().device
        self.operation: Operation | None = None  # the last record
        self.capture: Capture | None = None
        self.time = 0.0

    @property
    def done(self) -> bool:
        """Whether all work before the last record has run."""
        with machine().call():
            if self.capture and self.capture.active:
                self.capture.invalidate()
                raise CUDARuntimeError(900, "a query of an event that is captured")
            return _query(self.operation)

    def record(self, stream: Stream | None = None) -> None:
        """Move the event to the end of a stream's work."""
        (stream or get_current_stream()).record(self)

    def synchronize(self) -> None:
        """Wait for the work before the event."""
        with machine().call():
            if self.capture and self.capture.active:
                self.capture.invalidate()
                raise CUDARuntimeError(900, "a wait for an event that is captured")
            machine().finish(self.operation)


def event_of(handle: int) -> Event:
    """The event of a handle."""
    event = _events.get(handle)
    if event is None:
        raise CUDARuntimeError(400, f"no event has the handle {handle}")
    return event


def record_in(stream: StreamState, event: Event) -> None:
    """Move an event to the end of a stream's work."""
    if event.device != stream.device:
        note = f"an event of device {event.device}, a stream of {stream.device}"
        raise CUDARuntimeError(400, note)
    event.capture = stream.capture

    def passed() -> None:
        event.time = time.perf_counter()

    event.operation = machine().enqueue(stream, passed, "an event")


def wait_for(stream: StreamState, event: Event) -> None:
    """Work that comes into a stream later waits for an event's last record."""
    if event.capture and event.capture.active:
        event.capture.join(stream, event.operation)
    elif event.operation is not None and stream.capture:
        stream.capture.invalidate()
        raise CUDARuntimeError(905)
    elif event.operation is not None:
        stream.waits.append(event.operation)


def get_elapsed_time(start: Event, end: Event) -> float:
    """Milliseconds between two events that were recorded and have passed."""
    with machine().call():
        for event in (start, end):
            if event.operation is None or not event.timed:
                raise CUDARuntimeError(400, "an event without a time")
            if not event.operation.done:
                raise CUDARuntimeError(600)
        return 1e3 * (end.time - start.time)


class Stream:
    """`cupy.cuda.Stream`."""

    null: Stream

    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: int | None = None,
    ) -> None:
        self.ptr = 0
        self._state: StreamState | None = None
        if null:
            return
        with machine().call():
            self._machine = machine()
            self._state = self._machine.new_stream(not non_blocking)
            self.ptr = self._state.handle

    def __del__(self) -> None:
        # cudaStreamDestroy returns at once; the work in the stream still runs
        state = getattr(self, "_state", None)
        if state is not None and not state.queue:
            self._machine.streams.pop(state.handle, None)

    @property
    def state(self) -> StreamState:
        """The machine's queue."""
        if self._state is None:
            return machine().legacy[machine().device]
        if machine() is not self._machine:
            raise CUDARuntimeError(400, "a stream from before the machine's reset")
        return self._state

    @property
    def device_id(self) -> int:
        """The stream's device."""
        return self.state.device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return hash(self.ptr)

    def use(self) -> Stream:
        """Make it the calling thread's current stream of its device."""
        _stack()[self.state.device] = self
        return self

    def __enter__(self) -> Stream:
        if self.state.device != machine().device:
            raise RuntimeError("a stream of another device than the current one")
        _previous().append((self.state.device, get_current_stream()))
        return self.use()

    def __exit__(self, *error: Any) -> None:
        device, stream = _previous().pop()
        _stack()[device] = stream

    def _no_capture(self, what: str) -> None:
        capture = self.state.capture
        if capture:
            capture.invalidate()
            raise CUDARuntimeError(900, what)

    @property
    def done(self) -> bool:
        """Whether all its work has run."""
        with machine().call():
            self._no_capture("a query of a stream that captures")
            return _query(self.state.tail)

    def synchronize(self) -> None:
        """Wait for its work."""
        with machine().call():
            self._no_capture("a wait for a stream that captures")
            machine().finish_stream(self.state)

    def record(self, event: Event | None = None) -> Event:
        """Record an event after the work that is in the stream now."""
        event = event or Event()
        with machine().call():
            record_in(self.state, event)
        return event

    def wait_event(self, event: Event) -> None:
        """Work that comes into the stream later waits for an event."""
        with machine().call():
            wait_for(self.state, event)

    def launch_host_func(self, callback: Callable[[Any], None], arg: Any) -> None:
        """Call a function of the host after the work that is in the stream now."""
        here = machine()

        def run() -> None:
            here.in_host_function = True
            try:
                callback(arg)
            finally:
                here.in_host_function = False

        with here.call():
            here.enqueue(self.state, run, "a host function")

    def begin_capture(self, mode: int | None = None) -> None:
        """Put what comes into the stream into a graph instead."""
        if self.ptr in (0, 1):
            raise RuntimeError("cannot capture on the legacy or the null stream")
        with machine().call():
            if self.state.capture:
                raise CUDARuntimeError(1, "the stream captures already")
            Capture(machine(), self.state, RELAXED if mode is None else mode)

    def end_capture(self) -> Graph:
        """The graph of what came into the stream since `begin_capture`."""
        with machine().call():
            if not self.state.capture:
                raise RuntimeError("the stream is not capturing")
            return Graph(self.state.capture.end(self.state))

    def is_capturing(self) -> bool:
        """Whether the stream captures."""
        with machine().call():
            capture = self.state.capture
            if capture and capture.invalid:
                raise CUDARuntimeError(901)
            return capture is not None


Stream.null = Stream(null=True)


def _stack() -> dict[int, Stream]:
    local = machine().local
    if not hasattr(local, "streams"):
        local.streams = {}
    return local.streams


def _previous() -> list[tuple[int, Stream]]:
    local = machine().local
    if not hasattr(local, "previous"):
        local.previous = []
    return local.previous


def get_current_stream(device_id: int = -1) -> Stream:
    """The calling thread's current stream of a device, by default its current one."""
    device = machine().device if device_id < 0 else device_id
    return _stack().get(device, Stream.null)
