"""The emulated machine: its devices, and the work that waits in streams.

Work put into a stream runs late: when somebody waits for it, or now and then before.
Which of several streams goes on is drawn from a seed, so that work that needs an order
and has none (a missing event) runs in the wrong one sooner or later. An operation knows
what must come before it: the one before in its stream, those of events waited for, and
what CUDA's legacy stream orders. Next: order.py.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from . import native
from .errors import CUDARuntimeError, Finding
from .memory import Memory
from .order import Clock, Position, Trail, merge

QUEUE_LIMIT = 4096  # operations that may wait in a stream before some of them run


@dataclass(frozen=True)
class Settings:
    """What a machine is made of."""

    devices: int = 2
    seed: int = 0
    memory: int = 8 << 30  # bytes of each device
    processors: int = 16
    compute_capability: tuple[int, int] = (9, 0)


def _nothing() -> None:
    """What is left of work that has run, so that it keeps nothing alive."""


@dataclass(eq=False)
class Operation:
    """One piece of work in a stream."""

    stream: StreamState
    run: Callable[[], None]
    label: str
    after: list[Operation] = field(default_factory=list)
    done: bool = False
    number: int = 0  # in its stream
    sources: Sequence[Operation] = ()  # what orders it, whether done or not
    clock: Clock = field(default_factory=dict)  # at first, what the host knew
    explain: Callable[[], str] | None = None  # why it may never be done

    def runnable(self) -> bool:
        """Whether all that must come before it has been done."""
        if self.after:
            self.after = [other for other in self.after if not other.done]
        return not self.after

    def begin(self) -> Callable[[], None]:
        """Mark it done, set its clock, and give what is to be called."""
        merge(self.clock, [source.clock for source in self.sources])
        self.clock[self.stream.key] = self.number
        run = self.run
        self.done, self.after, self.sources, self.run = True, [], (), _nothing
        return run


class StreamState:
    """A queue of work on one device; `handle` 0 is the device's legacy stream."""

    def __init__(self, handle: int, device: int, blocking: bool) -> None:
        self.handle = handle
        self.key = handle or -1 - device  # of clocks
        self.count = 0
        self.device = device
        self.blocking = blocking
        self.queue: deque[Operation] = deque()
        self.tail: Operation | None = None
        self.waits: list[Operation] = []  # what the next operation must wait for
        self.capture: Any = None  # a graph.Capture


class Machine:
    """Devices with their memory, streams, errors, and the order in which work runs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.random = random.Random(settings.seed)
        self.memories = [Memory(n, settings.memory) for n in range(settings.devices)]
        self.streams: dict[int, StreamState] = {}
        self.legacy = [StreamState(0, n, True) for n in range(settings.devices)]
        self.local = threading.local()
        self.error: tuple[int, str] | None = None  # a sticky error
        self.findings: list[str] = []
        self.launches = 0
        self.trail = Trail()
        self.position = Position(0, 0, {})  # of the running work
        self.in_host_function = False
        self.gate: list[Operation] = []  # what all new work must wait for
        self._next_handle = 0x1000
        self._depth = 0  # of calls inside of each other
        self._left_to_do: deque[Callable[[], None]] = deque()

    # ------------------------------------------------------------ devices

    @property
    def device(self) -> int:
        """The calling thread's device."""
        return getattr(self.local, "device", 0)

    def set_device(self, device: int) -> None:
        """Make a device the calling thread's."""
        if not 0 <= device < len(self.memories):
            raise CUDARuntimeError(101, f"device {device} of {len(self.memories)}")
        self.local.device = device

    def handle(self) -> int:
        """A number that no other stream, event or graph has."""
        self._next_handle += 16
        return self._next_handle

    @contextmanager
    def call(self) -> Iterator[None]:
        """Every call of the interface: one at a time, failing after a sticky error."""
        with self.lock:
            if self.in_host_function:
                raise CUDARuntimeError(800, "a host function may not call CUDA")
            self._catch_up()
            self.check()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def finalize(self, act: Callable[[], None]) -> None:
        """What an object that dies leaves to do: now, or before the next call.

        The garbage collector comes at any time, also in the middle of a call. Nobody
        could catch what is found now; it stays in the machine's findings.
        """
        with self.lock:
            self._left_to_do.append(act)
            self._catch_up()

    def _catch_up(self) -> None:
        while self._left_to_do and not self._depth:
            act = self._left_to_do.popleft()
            self._depth += 1
            try:
                with suppress(Finding, CUDARuntimeError):
                    act()
            finally:
                self._depth -= 1

    def check(self) -> None:
        """Raise the error that an earlier operation has left."""
        if self.error:
            raise CUDARuntimeError(*self.error)

    def fail(self, status: int, note: str) -> None:
        """An error from which a context does not recover: all later calls fail."""
        self.error = status, note
        self.findings.append(note)
        self.drop_work()
        raise CUDARuntimeError(status, note)

    def drop_work(self) -> None:
        """Nothing of what waits will ever run."""
        for stream in self._all_streams():
            for operation in stream.queue:
                operation.done = True
            stream.queue.clear()

    def finding(self, text: str) -> None:
        """A mistake that a GPU would not report."""
        self.findings.append(text)
        raise Finding(text)

    # ------------------------------------------------------------ streams

    def new_stream(self, blocking: bool) -> StreamState:
        """A stream of the calling thread's device."""
        stream = StreamState(self.handle(), self.device, blocking)
        self.streams[stream.handle] = stream
        return stream

    def stream(self, handle: int) -> StreamState:
        """The stream of a handle; 0 and 1 are the current device's legacy stream."""
        if handle in (0, 1):
            return self.legacy[self.device]
        try:
            return self.streams[handle]
        except KeyError:
            raise CUDARuntimeError(400, f"no stream has the handle {handle}") from None

    def _all_streams(self) -> Iterator[StreamState]:
        yield from self.legacy
        yield from self.streams.values()

    def of_device(self, device: int) -> list[StreamState]:
        """The streams of a device."""
        return [s for s in self._all_streams() if s.device == device]

    def enqueue(
        self,
        stream: StreamState,
        run: Callable[[], None],
        label: str,
        after: Iterable[Operation] = (),
    ) -> Operation:
        """Put work into a stream, or into the graph that the stream captures."""
        operation = Operation(stream, run, label)
        if stream.capture:
            stream.capture.add(stream, operation, list(after))
            return operation
        tail = [stream.tail] if stream.tail else []
        operation.sources = [*tail, *stream.waits, *after, *self._legacy(stream, label)]
        before = (*operation.sources, *self.gate)
        operation.after = [other for other in before if not other.done]
        operation.clock = dict(self.trail.host)
        stream.count += 1
        operation.number = stream.count
        stream.waits = []
        stream.queue.append(operation)
        stream.tail = operation
        if len(stream.queue) > QUEUE_LIMIT:
            self._finish(stream.queue[QUEUE_LIMIT // 2])
        return operation

    def _legacy(self, stream: StreamState, label: str) -> Iterator[Operation]:
        """The legacy stream waits for all blocking streams, and they wait for it."""
        if not stream.blocking:
            return
        if stream.handle == 0:
            others = [s for s in self.of_device(stream.device) if s.blocking]
        else:
            others = [self.legacy[stream.device]]
        for other in others:
            if other is stream:
                continue
            if other.capture:
                other.capture.invalidate()
                raise CUDARuntimeError(906, label)
            if other.tail:
                yield other.tail

    # ------------------------------------------------------------ running

    def finish(self, operation: Operation | None) -> None:
        """Run work until an operation is done: the host waits for it."""
        if operation is not None:
            self._finish(operation)
            self.known(operation)

    def known(self, operation: Operation) -> None:
        """The host knows that an operation is done."""
        pending = [s.queue[0].clock for s in self._all_streams() if s.queue]
        self.trail.wait(operation.clock, pending)

    def _finish(self, operation: Operation) -> None:
        if operation.done:
            return
        # Half of the time nothing runs that is not needed for it: whatever else should
        # have been done before, and is not ordered, is then missing.
        needed = self._needed(operation) if self.random.random() < 0.5 else None
        while not operation.done:
            self._step(needed)

    def _needed(self, operation: Operation) -> set[Operation]:
        found: set[Operation] = set()
        waiting = [operation]
        while waiting:
            one = waiting.pop()
            if one in found or one.done:
                continue
            found.add(one)
            waiting.extend(one.after)
        return found

    def _step(self, needed: set[Operation] | None) -> None:
        """Run one operation that can run."""
        heads = [
            s
            for s in self._all_streams()
            if s.queue
            and (needed is None or s.queue[0] in needed)
            and s.queue[0].runnable()
        ]
        if not heads:
            self._explain_hang(needed)
        stream = heads[0] if len(heads) == 1 else self.random.choice(heads)
        operation = stream.queue.popleft()
        run = operation.begin()
        self.position = Position(stream.key, operation.number, operation.clock)
        run()

    def _explain_hang(self, needed: set[Operation] | None) -> None:
        """Nothing can run: work waits for ranks that never come to a collective."""
        for stream in self._all_streams():
            for operation in stream.queue:
                for before in operation.after:
                    if before.explain and (needed is None or before in needed):
                        text = before.explain()
                        self.drop_work()
                        self.finding(text)
        raise RuntimeError("the order of operations has a circle")

    def between(self, stream: StreamState, run: Callable[[], None]) -> None:
        """Do something after all work up to now and before all that comes.

        It orders nothing: what it keeps apart is still found to race.
        """
        waiting = [s.tail for s in self._all_streams() if s.queue]
        if not waiting:
            run()
            return
        operation = self.enqueue(stream, run, "a change of owner")
        operation.after = waiting
        self.gate = [operation]

    def access(
        self, memory: Memory, start: int, size: int, writes: bool, label: str
    ) -> None:
        """The running work, which is no kernel, reads or writes memory."""
        ranges = self.trail.unordered(self.position)
        first = native.library().fnx_next_serial()
        found = memory.touch(start, size, writes, ranges)
        self.trail.note(self.position, first, first + 1, label)
        if found:
            self.finding(
                f"{label} is a race: {self.trail.label(found)}, in a stream that it "
                f"does not wait for, uses the same memory ({memory.describe(start)})"
            )

    def progress(self) -> None:
        """Time goes by: a few operations run, as they would on a GPU."""
        for _ in range(self.random.randrange(4)):
            if not any(s.queue and s.queue[0].runnable() for s in self._all_streams()):
                return
            self._step(None)

    def finish_stream(self, stream: StreamState) -> None:
        """Run all of a stream's work."""
        self.finish(stream.tail)

    def finish_device(self, device: int) -> None:
        """Run all work of a device."""
        streams = self.of_device(device)
        self.random.shuffle(streams)
        for stream in streams:
            self.finish(stream.tail)


class _Current:
    """The machine that the emulated CuPy talks to."""

    machine: Machine | None = None


def machine() -> Machine:
    """The machine; the first call makes one of default settings."""
    if _Current.machine is None:
        _Current.machine = Machine(Settings())
    return _Current.machine


@contextmanager
def another(settings: Settings) -> Iterator[Machine]:
    """A machine for the time of the block, and then the one that was there before."""
    before = _Current.machine
    made = _Current.machine = Machine(settings)
    try:
        yield made
    finally:
        _Current.machine = before
        for memory in made.memories:
            memory.release()


def reset(settings: Settings | None = None) -> Machine:
    """A new machine: empty memory, no streams, no error. Old handles are void."""
    old = _Current.machine
    settings = settings or (old.settings if old else Settings())
    if old:
        for memory in old.memories:
            memory.release()
    _Current.machine = Machine(settings)
    return _Current.machine
