"""Collectives between GPUs, through NCCL.

The threads of the replicas meet first (`fnx.runtime.exchange.Member`): the one that
comes last makes the calls of all of them, in one group, as NCCL wants it of a process
that drives several devices. Each device then goes on in the order of its own stream.
Where each process has one replica, NCCL joins the processes, and what it does can be
part of a graph. Without NCCL, and for types that it does not know, arrays go over the
host. Receives `OnDevice` arrays and NumPy arrays. Next on the walk: `links.py`.
"""

from __future__ import annotations

import dataclasses
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.runtime.plan import HostStep, OnDevice, Place, is_replica
from fnx_cuda import _cupy, links, transfer
from fnx_cuda.device import Device, device
from fnx_cuda.frame import Frame
from fnx_cuda.host import host_action
from fnx_cuda.instructions import Launch, Numbered

Action = Callable[[Frame, int], None]
Pairs = Sequence[tuple[int, int]]

# NCCL's numbers of types, by the name and by how many of them an element is.
_TYPES = {
    "int8": (0, 1),
    "uint8": (1, 1),
    "int32": (2, 1),
    "uint32": (3, 1),
    "int64": (4, 1),
    "uint64": (5, 1),
    "float16": (6, 1),
    "float32": (7, 1),
    "float64": (8, 1),
    "bfloat16": (9, 1),
    "complex64": (7, 2),
    "complex128": (8, 2),
    "bool": (1, 1),  # whose extremes are "or" and "and"
}
_BYTES = 1
_OPS = {"sum": 0, "max": 2, "min": 3}
_STEPS = {"psum": "sum", "psum_scatter": "sum", "pmax": "max", "pmin": "min"}


def meeting_action(step: HostStep, device: Device) -> Action:
    """Runs a collective between replicas; a replica that is alone runs on the host."""
    by_host = host_action(step, device)

    def array(at: Frame, item: Any, type: Any, stream: int) -> OnDevice:
        return OnDevice(at.at(item), type.shape, type.dtype, device.number, stream)

    places = [item for item in step.inputs if isinstance(item, Place)]

    def act(at: Frame, stream: int) -> None:
        if not is_replica():
            by_host(at, stream)
            return
        pairs = zip(places, step.input_types, strict=True)
        inputs = [array(at, place, type, stream) for place, type in pairs]
        ends = zip(step.outputs, step.output_types, strict=True)
        outputs = [array(at, place, type, stream) for place, type in ends]
        step.primitive.write(outputs, *inputs, **step.params)

    return act


_NUMBERED = """
struct Written { int* out; long long number; };
extern "C" __global__ void write_number(const __grid_constant__ Written p) {
  *p.out = (int)p.number;
}
"""


def numbered(step: HostStep) -> Numbered:
    """What writes the number of a replica, which is known when it is started."""
    launch = Launch(_NUMBERED, "write_number", (1, 1, 1), 1, 0, step.outputs)
    return Numbered(step, launch)


def numbered_action(
    item: Numbered, device: Device, launch_action: Callable[[Launch, Device], Action]
) -> Action:
    """Starts the launch of this replica's number; graphs are kept by it."""
    made: dict[int, Action] = {}

    def act(at: Frame, stream: int) -> None:
        number = _number(item.step)
        if number not in made:
            numbers = struct.pack("<q", number)
            launch = dataclasses.replace(item.launch, numbers=numbers)
            made[number] = launch_action(launch, device)
        made[number](at, stream)

    return act


@errors.api_boundary
def _number(step: HostStep) -> int:
    return int(step.primitive.reference(**step.params))


class Ranks:
    """The communicator of a replica on one device; `member` meets the other threads."""

    def __init__(self, member: Any, number: int) -> None:
        self.member = member
        self.number = number
        self.size: int = member.size
        self.rank: int = member.rank
        between = member.between
        self.link = None if between is None else links.link(between, number)
        self.has_nccl = between is None or self.link is not None

    @property
    def identity(self) -> int:
        """What graphs with its collectives are kept under; no two links share one."""
        return 0 if self.link is None else self.link.number

    def all_reduce(self, x: Any, out: Any, op: str) -> None:
        """NCCL's, in its order."""
        kind, width = _TYPES.get(x.dtype.name, (None, 1))

        def call(comm: Any, rank: int, x: OnDevice, out: OnDevice) -> None:
            count = _count(x) * width
            comm.allReduce(x.pointer, out.pointer, count, kind, _OPS[op], x.stream)

        if not _is_exact(op, x.dtype) or not self._direct(x, out):
            self._over_host(x, out, lambda a, b: self.member.all_reduce(a, b, op))
        else:
            self._start(("all_reduce", op), x, out, call)

    def all_gather(self, x: Any, out: Any) -> None:
        """NCCL's, of bytes."""

        def call(comm: Any, rank: int, x: OnDevice, out: OnDevice) -> None:
            comm.allGather(x.pointer, out.pointer, x.nbytes, _BYTES, x.stream)

        self._moved(("all_gather",), x, out, call, self.member.all_gather)

    def reduce_scatter(self, x: Any, out: Any) -> None:
        """NCCL's, in its order."""
        kind, width = _TYPES.get(x.dtype.name, (None, 1))

        def call(comm: Any, rank: int, x: OnDevice, out: OnDevice) -> None:
            count = _count(out) * width
            pointers = x.pointer, out.pointer
            comm.reduceScatter(*pointers, count, kind, _OPS["sum"], x.stream)

        if not _is_exact("sum", x.dtype) or not self._direct(x, out):
            self._over_host(x, out, self.member.reduce_scatter)
        else:
            self._start(("reduce_scatter",), x, out, call)

    def all_to_all(self, x: Any, out: Any) -> None:
        """A message from each to each."""
        size = self.size

        def call(comm: Any, rank: int, x: OnDevice, out: OnDevice) -> None:
            row = x.nbytes // size
            for peer in range(size):
                at = peer * row
                comm.send(x.pointer + at, row, _BYTES, peer, x.stream)
                comm.recv(out.pointer + at, row, _BYTES, peer, x.stream)

        self._moved(("all_to_all",), x, out, call, self.member.all_to_all)

    def permute(self, x: Any, out: Any, perm: Pairs) -> None:
        """A message for each pair; zeros where none comes."""
        targets: dict[int, list[int]] = {}
        for source, target in perm:
            targets.setdefault(source, []).append(target)
        sources = {target: source for source, target in perm}

        def call(comm: Any, rank: int, x: OnDevice, out: OnDevice) -> None:
            for target in targets.get(rank, ()):
                comm.send(x.pointer, x.nbytes, _BYTES, target, x.stream)
            if rank in sources:
                peer = sources[rank]
                comm.recv(out.pointer, x.nbytes, _BYTES, peer, x.stream)

        if isinstance(out, OnDevice) and self.rank not in sources:
            with device(out.device):
                _cupy.clear(out.pointer, out.nbytes, out.stream)
        what = ("ppermute", tuple(perm))
        self._moved(what, x, out, call, lambda a, b: self.member.permute(a, b, perm))

    def split(self, groups: Sequence[Sequence[int]]) -> Ranks:
        """The communicator of this device's group."""
        return Ranks(self.member.split(groups), self.number)

    def leave(self, error: BaseException | None) -> None:
        """The others need not wait."""
        self.member.leave(error)

    # -- inside

    def _moved(
        self,
        what: tuple[Any, ...],
        x: Any,
        out: Any,
        call: Callable[..., None],
        by_host: Callable[[Any, Any], None],
    ) -> None:
        """A collective that only moves bytes."""
        if self._direct(x, out):
            self._start(what, x, out, call)
        else:
            self._over_host(x, out, by_host)

    def _start(
        self, what: tuple[Any, ...], x: OnDevice, out: OnDevice, call: Any
    ) -> None:
        """Has the last replica of this process that comes start it on all devices."""
        if not (out.nbytes or x.nbytes):
            return
        if self.link is not None:
            _group([(self.link.comm, self.rank, x, out)], call)
            return

        def all_of_them(given: Sequence[Any]) -> None:
            _on_all([pair[0].device for pair in given], call, given)

        full = (*what, x.dtype.name, x.shape)
        self.member.together(full, (x, out), all_of_them)

    def _over_host(self, x: Any, out: Any, by_host: Any) -> None:
        """The collective of copies on the host."""
        if not isinstance(x, OnDevice):
            by_host(x, out)
            return
        here = np.empty(x.nbytes, np.uint8)
        on = device(x.device)
        transfer.receive(on, x.pointer, here, x.stream, "what comes before")
        result = np.empty(out.shape, out.dtype)
        with on.yielded():
            by_host(here.view(x.dtype).reshape(x.shape), result)
        transfer.send(on, out.pointer, result, out.stream)

    def _direct(self, x: Any, out: Any) -> bool:
        """Whether NCCL can do it."""
        there = isinstance(x, OnDevice) and isinstance(out, OnDevice)
        return there and self.has_nccl and _cupy.nccl() is not None


def is_captured(step: HostStep) -> bool:
    """Whether a collective can be part of a graph: NCCL does it, between processes."""
    op = _STEPS.get(step.primitive.name)
    exact = op is None or _is_exact(op, step.input_types[0].dtype)
    return links.are_there() and exact


def _is_exact(op: str, dtype: np.dtype[Any]) -> bool:
    """Whether NCCL combines elements of a dtype as we do.

    Its extremes of floats need not be NaN where an operand is.
    """
    return dtype.name in _TYPES and (op == "sum" or dtype.kind in "iub")


def _count(x: OnDevice) -> int:
    return x.nbytes // x.dtype.itemsize


# NCCL's communicators of this process, by their devices; one thread uses them at once.
_cliques: dict[tuple[int, ...], list[Any]] = {}
_calling = threading.Lock()


def _on_all(devices: Sequence[int], call: Any, given: Sequence[Any]) -> None:
    """One collective on all devices of this process."""
    with _calling, links.named(f"the CUDA devices {', '.join(map(str, devices))}"):
        comms = _cliques.get(tuple(devices))
        if comms is None:
            comms = _cliques[tuple(devices)] = _cupy.ranks(list(devices))
    rows = enumerate(zip(comms, given, strict=True))
    _group([(comm, rank, x, out) for rank, (comm, (x, out)) in rows], call)


def _group(rows: Sequence[tuple[Any, int, Any, Any]], call: Any) -> None:
    """The calls of a collective, in one group."""
    library = _cupy.nccl()
    names = ", ".join([str(x.device) for _, _, x, _ in rows])
    with _calling, links.named(f"the CUDA devices {names}"):
        library.groupStart()
        try:
            for comm, rank, x, out in rows:
                call(comm, rank, x, out)
        finally:
            library.groupEnd()


def forget() -> None:
    """Forgets all communicators, for tests that put another module in CuPy's place."""
    _cliques.clear()
    links.forget()
