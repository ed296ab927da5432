"""CUDA graphs: what is started over and over is recorded once and then replayed.

A graph has the addresses of its launches in it, so it is kept under all addresses that
change from run to run. What comes a second time with the same addresses is captured;
until then it is started piece by piece, which also loads what it needs. Receives keys
and a function that starts things on a stream. Next on the walk: `program.py`.
"""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from fnx.runtime.plan import met
from fnx_cuda import _cupy, failures
from fnx_cuda.device import Device

KEPT = 16
"""So many graphs of a stretch are kept, those used last."""

SEEN = 64
"""So many sets of addresses are remembered to be known when they come again."""

_counted = 0


def replayed() -> int:
    """How many times this process has run a graph, for those who want to know."""
    return _counted


class Graphs:
    """The graphs of one stretch of work on one device, by their addresses.

    `what` names the work in errors.
    """

    def __init__(self, device: Device, what: str) -> None:
        self.device = device
        self.what = what
        self.graphs: OrderedDict[Hashable, Any] = OrderedDict()
        self.seen: OrderedDict[Hashable, None] = OrderedDict()
        # Whoever looks for a kernel that fails wants its launch, not a graph with it.
        self.possible = os.environ.get("CUDA_LAUNCH_BLOCKING") != "1"

    def run(self, key: Hashable, record: Callable[[int], None], stream: int) -> None:
        """Does what `record` starts on a stream, by a graph if there is one.

        A graph's collectives are those of the replicas that it was captured for, and
        their numbers are in it.
        """
        key = key, met()
        graph = self.graphs.get(key)
        if graph is not None:
            self.graphs.move_to_end(key)
        elif self.possible and key in self.seen:
            graph = self._captured(record)
            if graph is not None:
                del self.seen[key]
                self.graphs[key] = graph
                if len(self.graphs) > KEPT:
                    self.graphs.popitem(last=False)
        if graph is not None:
            self._launch(graph)
            return
        record(stream)
        self.seen[key] = None
        if len(self.seen) > SEEN:
            self.seen.popitem(last=False)

    def _launch(self, graph: Any) -> None:
        global _counted
        _counted += 1
        try:
            _cupy.launch_graph(graph, self.device.stream)
        except _cupy.cuda_errors() as error:
            number = self.device.number
            raise failures.device_error(error, number, self.what) from error

    def _captured(self, record: Callable[[int], None]) -> Any | None:
        """The graph of what is recorded, or `None` and a warning."""
        # A stream of its own: after a failure it is of no use any more.
        stream = _cupy.new_stream()
        try:
            return _capture(stream, record)
        except Exception as error:
            self.possible = False
            warnings.warn(
                f"{self.what} on CUDA device {self.device.number} cannot be a CUDA "
                f"graph, and is started piece by piece: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
            return None


def _capture(stream: Any, record: Callable[[int], None]) -> Any:
    _cupy.begin_capture(stream)
    try:
        record(stream.ptr)
    except BaseException:
        with suppress(Exception):  # what was wrong is known already
            _cupy.end_capture(stream)
        raise
    return _cupy.end_capture(stream)
