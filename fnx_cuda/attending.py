"""Runs attentions: by cuDNN where that is chosen, else by the plan of the program.

Receives an `Attend`, its body and a device; gives an action like those of other
instructions. The first run times the library and the plan, and the choice is kept by
what is computed, the device and the versions. Next on the walk: `flow.py`.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from fnx import cache
from fnx_cuda import _cupy, choosing
from fnx_cuda.attention_problem import problem
from fnx_cuda.blaslt import WORKSPACE
from fnx_cuda.cudnn_graph import LIBRARY, Graph, GraphError
from fnx_cuda.device import Device
from fnx_cuda.frame import Frame
from fnx_cuda.instructions import Attend
from fnx_cuda.memory import Buffer
from fnx_cuda.multiply import workspace

if TYPE_CHECKING:
    from fnx_cuda.run import Ready

Action = Callable[[Frame, int], None]

_Rooms = weakref.WeakKeyDictionary[Device, dict[int, Buffer]]

# What graphs have the addresses of is not given back while the device is in use.
_rooms: _Rooms = weakref.WeakKeyDictionary()


def attend_action(item: Attend, body: Ready, device: Device) -> Action:
    """An attention; `body` is that of its plan.

    Its first run may take times, and must not be captured.
    """
    step = item.step

    def own(at: Frame, stream: int) -> None:
        inputs, outputs = at.all(step.inputs), at.all(step.outputs)
        body.start(at.held(step.plan, inputs, outputs, step.scratch), stream)

    return _Chosen(item, own, device) if LIBRARY.serves() else own


class _Chosen:
    """An attention by the library or by the plan, whichever is quicker."""

    def __init__(self, item: Attend, own: Action, device: Device) -> None:
        self._problem = problem(item.step)
        self._ends = *item.step.inputs, *item.step.outputs
        self._own = own
        self._device = device
        self._graph: Graph | None = None
        self._is_chosen = False

    def __call__(self, at: Frame, stream: int) -> None:
        try:
            if not self._is_chosen:
                self._graph = self._choose(at, stream)
                self._is_chosen = True
            if self._graph is not None:
                self._start(self._graph, at, stream)
                return
        except GraphError as error:
            # It has no such attention, or what was kept does not serve here.
            self._graph, self._is_chosen = None, True
            if not error.is_refusal:
                _tell(error)
        self._own(at, stream)

    def _choose(self, at: Frame, stream: int) -> Graph | None:
        number = self._device.number
        graph = Graph(self._problem, number)
        self._start(graph, at, stream)  # timing would pass over a failure in silence
        name, version = _cupy.device_name(number), LIBRARY.version()
        key = cache.key("attention", repr(self._problem), name, version)
        is_quicker = choosing.is_quicker(
            key,
            stream,
            lambda: self._start(graph, at, stream),
            lambda: self._own(at, stream),
        )
        return graph if is_quicker else None

    def _start(self, graph: Graph, at: Frame, stream: int) -> None:
        room = _room(self._device, graph.workspace).pointer
        graph.run(at.all(self._ends), room, stream)


def _room(device: Device, nbytes: int) -> Buffer:
    """A workspace of a device, which is the current one, of so many bytes at least.

    All attentions share a few, as they are in the order of one stream.
    """
    if nbytes <= WORKSPACE:
        return workspace(device)
    size = 1 << (nbytes - 1).bit_length()
    rooms = _rooms.setdefault(device, {})
    if size not in rooms:
        rooms[size] = device.memory.allocate(size, "the workspace of an attention")
    return rooms[size]


def _tell(error: GraphError) -> None:
    warnings.warn(
        f"cuDNN fails, and attentions take fnx's own kernels: {error}",
        RuntimeWarning,
        stacklevel=2,
    )
