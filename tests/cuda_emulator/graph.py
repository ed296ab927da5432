"""Capture of streams into graphs, and their replay.

While streams capture, work becomes nodes, each with the nodes that it must come after:
those before it in its stream, and those of events that the stream waits for. A replay
runs the nodes in a random order that respects these; a node's addresses and numbers
are those of the capture. Next: machine.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import CUDARuntimeError
from .machine import Machine, Operation, StreamState, machine
from .order import Position

if TYPE_CHECKING:
    from .streams import Stream


RELAXED = 2  # cudaStreamCaptureModeRelaxed


class Capture:
    """What a group of streams has captured so far."""

    def __init__(self, machine: Machine, origin: StreamState, mode: int) -> None:
        self.machine = machine
        self.origin = origin
        self.mode = mode
        self.invalid = False
        self.active = True
        self.nodes: list[Operation] = []
        self.streams = [origin]
        self.last: dict[StreamState, list[Operation]] = {origin: []}
        origin.capture = self

    def invalidate(self) -> None:
        """Something that cannot be captured was called."""
        self.invalid = True

    def add(
        self, stream: StreamState, operation: Operation, after: list[Operation]
    ) -> None:
        """Work came into one of the streams."""
        if self.invalid:
            raise CUDARuntimeError(901)
        operation.after = [*self.last[stream], *after]
        self.last[stream] = [operation]
        self.nodes.append(operation)

    def join(self, stream: StreamState, operation: Operation | None) -> None:
        """A stream waits for an event of the capture, and takes part in it."""
        if stream.capture not in (None, self):
            self.invalidate()
            raise CUDARuntimeError(905, "two captures would be merged")
        if stream.capture is None:
            stream.capture = self
            self.streams.append(stream)
            self.last[stream] = []
        if operation is not None:
            self.last[stream] = [*self.last[stream], operation]

    def end(self, stream: StreamState) -> list[Operation]:
        """The nodes; every stream must have come back to the first one."""
        if stream is not self.origin:
            raise CUDARuntimeError(901, "the capture began in another stream")
        reached: set[Operation] = set()
        waiting = list(self.last[stream])
        while waiting:
            node = waiting.pop()
            if node not in reached:
                reached.add(node)
                waiting.extend(node.after)
        unjoined = [n for n in self.nodes if n not in reached]
        self.active = False
        for one in self.streams:
            one.capture = None
        if self.invalid:
            raise CUDARuntimeError(901)
        if unjoined:
            raise CUDARuntimeError(904, f"nothing waits for {unjoined[0].label}")
        return self.nodes


class Graph:
    """`cupy.cuda.Graph`, instantiated."""

    def __init__(self, nodes: list[Operation]) -> None:
        self._nodes = nodes
        numbers = {node: n for n, node in enumerate(nodes)}
        self._before = [[numbers[one] for one in node.after] for node in nodes]
        self._followers: list[list[int]] = [[] for _ in nodes]
        self._ancestors: list[int] = []  # of each node, a bit for each
        for n, before in enumerate(self._before):
            known = 0
            for one in before:
                self._followers[one].append(n)
                known |= self._ancestors[one] | 1 << one
            self._ancestors.append(known)
        self._in_a_row = all(
            before == ([n - 1] if n else []) for n, before in enumerate(self._before)
        )

    @property
    def labels(self) -> list[str]:
        """What the nodes do, in the order of their capture; the emulator's own."""
        return [node.label for node in self._nodes]

    def launch(self, stream: Stream | None = None) -> None:
        """Put all nodes into a stream, as one piece of work."""
        state = self._stream(stream)
        with machine().call():
            here = machine()
            here.enqueue(state, lambda: self._replay(here), "a graph")

    def upload(self, stream: Stream | None = None) -> None:
        """Bring the graph to the device, which the emulator need not do."""
        self._stream(stream)

    def debug_dot_str(self, flags: int = 0) -> str:
        """The graph in the DOT language."""
        lines = [f'  n{n} [label="{label}"];' for n, label in enumerate(self.labels)]
        for n, before in enumerate(self._before):
            lines += [f"  n{one} -> n{n};" for one in before]
        return "\n".join(["digraph {", *lines, "}"])

    def _stream(self, stream: Stream | None) -> StreamState:
        from .streams import get_current_stream

        return (stream or get_current_stream()).state

    def _replay(self, here: Machine) -> None:
        outer = here.position
        replay = None if self._in_a_row else object()
        left = {n: len(before) for n, before in enumerate(self._before)}
        ready = [n for n, count in left.items() if not count]
        while ready:
            n = ready.pop(here.random.randrange(len(ready)))
            here.position = Position(
                *(outer.stream, outer.number, outer.clock),
                *(replay, n, self._ancestors[n]),
            )
            self._nodes[n].run()
            for follower in self._followers[n]:
                left[follower] -= 1
                if not left[follower]:
                    ready.append(follower)
        here.position = outer
