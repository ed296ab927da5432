"""Which pieces of work are ordered: what a later one may find that it must not touch.

Every operation has a clock: how far, in each stream, the work goes that surely was done
before it: its own stream's, that of events waited for, and what the host had waited for
when the operation was made. A `Trail` remembers who accessed memory lately. Each access
has serial numbers in the runtime's shadow; those of operations that the running one is
not ordered after are given to the runtime, which reports a meeting. Next: memory.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, field

Clock = dict[int, int]


def merge(clock: Clock, others: Iterable[Clock]) -> None:
    """Add to a clock what others know."""
    for other in others:
        for stream, count in other.items():
            if clock.get(stream, 0) < count:
                clock[stream] = count


@dataclass(frozen=True, eq=False)
class Position:
    """Where the running work stands: its stream, its clock, and its graph's node."""

    stream: int
    number: int
    clock: Clock
    replay: object = None
    node: int = 0
    ancestors: int = 0  # a bit for each node of the replay that was before


@dataclass(frozen=True)
class _Step:
    """Accesses of one operation: their serial numbers."""

    first: int
    end: int
    label: str
    position: Position


@dataclass
class Trail:
    """The accesses that later work might not be ordered after."""

    host: Clock = field(default_factory=dict)
    _steps: dict[int, list[_Step]] = field(default_factory=dict)  # by stream

    def wait(self, clock: Clock, pending: Iterable[Clock]) -> None:
        """The host has waited for an operation.

        What it knows, new work knows, too; `pending` work knows what it did when it was
        made. Nothing can race any more with what all of them know.
        """
        merge(self.host, [clock])
        clocks = [self.host, *pending]
        for stream in list(self._steps):
            known = min(clock.get(stream, 0) for clock in clocks)
            left = [s for s in self._steps[stream] if s.position.number > known]
            if left:
                self._steps[stream] = left
            else:
                del self._steps[stream]

    def note(self, position: Position, first: int, end: int, label: str) -> None:
        """Accesses were made."""
        step = _Step(first, end, label, position)
        self._steps.setdefault(position.stream, []).append(step)

    def unordered(self, now: Position) -> ctypes.Array[ctypes.c_uint64]:
        """First and end serial numbers of what `now` is not ordered after."""
        ranges = [n for step in self._unordered(now) for n in (step.first, step.end)]
        return (ctypes.c_uint64 * len(ranges))(*ranges)

    def _unordered(self, now: Position) -> Iterable[_Step]:
        for stream, steps in self._steps.items():
            known = now.clock.get(stream, 0)
            for step in reversed(steps):
                other = step.position
                if now.replay is not None and other.replay is now.replay:
                    if other.node != now.node and not now.ancestors >> other.node & 1:
                        yield step
                elif other.number > known:
                    yield step
                else:
                    break

    def label(self, serial: int) -> str:
        """Who made an access."""
        for steps in self._steps.values():
            for step in steps:
                if step.first <= serial < step.end:
                    return step.label
        return "earlier work"
