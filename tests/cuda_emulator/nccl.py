"""`cupy.cuda.nccl`: collectives between emulated devices, computed by NumPy.

Calls between groupStart and groupEnd wait for groupEnd, as in NCCL. A rank's part of a
collective is work in the rank's stream; the data move when every rank has come to its
part. Ranks that disagree, or that never come, would hang a GPU: here they raise a
`Finding` that says "would deadlock" and names them. Next: nccl_data.py.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

from . import far, nccl_data
from .errors import NcclError
from .machine import Machine, Operation, StreamState, machine
from .nccl_data import Call, Where
from .order import Position, merge

__all__ = ["NcclError"]

available = True

NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)
NCCL_INT8 = NCCL_CHAR = 0
NCCL_UINT8 = 1
NCCL_INT32 = NCCL_INT = 2
NCCL_UINT32, NCCL_INT64, NCCL_UINT64 = 3, 4, 5
NCCL_FLOAT16 = NCCL_HALF = 6
NCCL_FLOAT32 = NCCL_FLOAT = 7
NCCL_FLOAT64 = NCCL_DOUBLE = 8
NCCL_BFLOAT16 = 9


def get_version() -> int:
    """The version of NCCL."""
    return 22809


_identifiers = itertools.count(1)


def get_unique_id() -> bytes:
    """What the ranks of one clique share."""
    if far.is_wanted():
        return far.identifier()
    return f"fnx emulator {os.getpid()} {next(_identifiers)}".encode().ljust(128, b"\0")


# ---------------------------------------------------------------- groups


class _Group(threading.local):
    """The calls that a thread has made since its outermost groupStart."""

    def __init__(self) -> None:
        self.depth = 0
        self.calls: list[Call] = []


_group = _Group()


def groupStart() -> None:
    """Later calls wait for groupEnd."""
    _group.depth += 1


def groupEnd() -> None:
    """Put all calls of the group into their streams."""
    if not _group.depth:
        raise NcclError(5, "groupEnd without groupStart")
    _group.depth -= 1
    if _group.depth:
        return
    calls, _group.calls = _group.calls, []
    _submit_far([call for call in calls if call.comm.link is not None])
    calls = [call for call in calls if call.comm.link is None]
    with machine().call():
        parts = [_part(call) for call in calls]
        for part in parts:
            collective = part.meeting
            if (
                isinstance(collective, _Collective)
                and collective.clique.one_process
                and not collective.complete
            ):
                machine().drop_work()
                machine().finding(collective.explain())
        # The calls of a group run together: none waits for the end of another one.
        for part in parts:
            part.enqueue_end()


def _submit(call: Call) -> None:
    if _group.depth:
        _group.calls.append(call)
        return
    if call.comm.link is not None:
        _submit_far([call])
        return
    with machine().call():
        part = _part(call)
        part.enqueue_end()
        if not isinstance(part.meeting, _Collective) or call.comm.clique.size == 1:
            return
        thread = threading.get_ident()
        if thread in part.meeting.threads:
            machine().drop_work()
            machine().finding(
                f"would deadlock: one thread calls {call.kind} for several ranks "
                "without groupStart"
            )
        part.meeting.threads.add(thread)


def _submit_far(calls: list[Call]) -> None:
    """Calls of one rank whose others are in other processes: they may be captured."""
    if not calls:
        return
    with machine().call():
        here, call = machine(), calls[0]
        link = call.comm.link
        stream = here.stream(call.stream)

        def act() -> None:
            far.perform(here, link, calls)

        here.enqueue(stream, act, f"{call.kind} by {call.rank}")


# ---------------------------------------------------------------- collectives


class Clique:
    """The ranks that talk to each other."""

    def __init__(self, size: int, one_process: bool = False) -> None:
        self.size = size
        self.one_process = one_process
        self.devices: dict[int, int] = {}
        self.open: dict[int, _Collective] = {}  # by their number
        # messages that have been sent, and receivers that wait: by (from, to)
        self.waiting: dict[tuple[int, int], list[_Message]] = {}


@dataclass(eq=False)
class _Collective:
    """One collective, with the calls of the ranks that have joined."""

    clique: Clique
    number: int
    calls: dict[int, Call] = field(default_factory=dict)
    arrived: int = 0  # streams that have come to it
    threads: set[int] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        """Whether every rank has joined."""
        return len(self.calls) == self.clique.size

    def explain(self) -> str:
        """Who is missing."""
        missing = sorted(set(range(self.clique.size)) - set(self.calls))
        call = next(iter(self.calls.values()))
        return (
            f"would deadlock: rank {', '.join(map(str, missing))} of "
            f"{self.clique.size} never joins {call.kind} number {self.number}"
        )

    def join(self, call: Call) -> None:
        """Another rank comes; it must say the same as the others."""
        for rank, other in self.calls.items():
            difference = call.difference(other)
            if difference:
                machine().drop_work()
                machine().finding(f"would deadlock: {difference} of rank {rank}")
        self.calls[call.rank] = call

    @property
    def size(self) -> int:
        """How many must come."""
        return self.clique.size

    def perform(self, here: Machine, where: Where) -> None:
        """Move the data."""
        nccl_data.perform(here, self.calls, where)


@dataclass(eq=False)
class _Message:
    """A send and its receive."""

    first: Call
    calls: dict[str, Call] = field(default_factory=dict)
    arrived: int = 0  # streams that have come to it

    def explain(self) -> str:
        """Who is missing."""
        call = self.first
        other = "recv" if call.kind == "send" else "send"
        return (
            f"would deadlock: rank {call.peer} never calls {other} for the {call.kind} "
            f"of rank {call.rank}"
        )

    def join(self, call: Call) -> None:
        """The other side comes."""
        one = self.first
        if (call.count, call.dtype) != (one.count, one.dtype):
            machine().drop_work()
            machine().finding(
                f"would deadlock: {call.kind} of {call.count} elements of type "
                f"{call.dtype} by rank {call.rank}, {one.kind} of {one.count} of type "
                f"{one.dtype} by rank {one.rank}"
            )
        self.calls[call.kind] = call

    @property
    def size(self) -> int:
        """How many must come."""
        return 2

    def perform(self, here: Machine, where: Where) -> None:
        """Move the data."""
        nccl_data.send(here, self.calls["send"], self.calls["recv"], where)


def _collective_of(call: Call) -> _Collective:
    comm, clique = call.comm, call.comm.clique
    number = comm.sequence
    comm.sequence += 1
    collective = clique.open.setdefault(number, _Collective(clique, number))
    collective.join(call)
    if collective.complete:
        del clique.open[number]
    return collective


def _message_of(call: Call) -> _Message:
    """The message that a send or a receive belongs to: they match in their order."""
    sends = call.kind == "send"
    pair = (call.rank, call.peer) if sends else (call.peer, call.rank)
    waiting = call.comm.clique.waiting.setdefault(pair, [])
    if waiting and waiting[0].first.kind != call.kind:
        message = waiting.pop(0)
    else:
        message = _Message(call)
        waiting.append(message)
    message.join(call)
    return message


# ---------------------------------------------------------------- in the streams


@dataclass(eq=False)
class _Part:
    """A rank's part of a collective or a message, in the rank's stream."""

    call: Call
    stream: StreamState
    meeting: _Collective | _Message
    moved: Operation | None

    def enqueue_end(self) -> None:
        """The stream goes on when the data have moved."""
        if self.moved:
            label = f"end of {self.call.kind}"
            machine().enqueue(self.stream, lambda: None, label, after=[self.moved])


@dataclass(eq=False)
class _Moved:
    """What is done when all have come, in no stream; and their arrivals, by rank."""

    operation: Operation
    arrivals: dict[int, Operation] = field(default_factory=dict)

    def begin(self) -> Where:
        """All have come. Gives where each rank's stream stands."""
        operation = self.operation
        merge(operation.clock, [one.clock for one in self.arrivals.values()])
        operation.done = True
        return {
            rank: Position(one.stream.key, one.number, operation.clock)
            for rank, one in self.arrivals.items()
        }


_moved: weakref.WeakKeyDictionary[Any, _Moved] = weakref.WeakKeyDictionary()


def _part(call: Call) -> _Part:
    """Put the moment at which a rank comes into its stream."""
    here = machine()
    stream = here.stream(call.stream) if call.stream else here.legacy[call.device]
    if stream.device != call.device:
        note = f"rank {call.rank} is on device {call.device}, its stream is not"
        raise NcclError(4, note)
    point_to_point = call.kind in ("send", "recv")
    if stream.capture and (call.comm.clique.size > 1 or point_to_point):
        stream.capture.invalidate()
        here.finding(
            f"{call.kind} of {call.comm.clique.size} devices of one process is "
            "captured, which may deadlock"
        )
    meeting = _message_of(call) if point_to_point else _collective_of(call)
    if stream.capture:

        def alone() -> None:
            nccl_data.perform(here, {0: call}, {0: here.position})

        here.enqueue(stream, alone, call.kind)
        return _Part(call, stream, meeting, None)
    if meeting not in _moved:
        nowhere = StreamState(-1, -1, False)
        operation = Operation(nowhere, lambda: None, "a meeting of ranks")
        operation.explain = meeting.explain
        _moved[meeting] = _Moved(operation)
    moved = _moved[meeting]

    def arrive() -> None:
        meeting.arrived += 1
        if meeting.arrived == meeting.size:
            meeting.perform(here, moved.begin())

    arrival = here.enqueue(stream, arrive, f"{call.kind} by {call.rank}")
    moved.operation.after.append(arrival)
    moved.arrivals[call.rank] = arrival
    return _Part(call, stream, meeting, moved.operation)


# ---------------------------------------------------------------- communicators

_cliques: dict[bytes, Clique] = {}


class NcclCommunicator:
    """`cupy.cuda.nccl.NcclCommunicator`: one rank, on the device current then."""

    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        if not 0 <= rank < ndev:
            raise NcclError(4, f"rank {rank} of {ndev}")
        if not isinstance(commId, bytes) or len(commId) != 128:
            raise NcclError(4, "the identifier is 128 bytes")
        if commId.startswith(b"far "):
            self._enter(Clique(ndev), rank, machine().device)
            self.link = far.Link(commId, rank, ndev)
            return
        self._enter(_cliques.setdefault(commId, Clique(ndev)), rank, machine().device)

    def _enter(self, clique: Clique, rank: int, device: int) -> None:
        if clique.devices.setdefault(rank, device) != device or (
            sum(d == device for d in clique.devices.values()) > 1
        ):
            raise NcclError(5, f"two ranks, or two devices of rank {rank}")
        self.clique, self._rank, self._device = clique, rank, device
        self.sequence = 0
        self.link: far.Link | None = None
        self._alive = True

    @staticmethod
    def initAll(devices: int | list[int]) -> list[NcclCommunicator]:
        """A communicator for each of several devices of this process."""
        numbers = list(range(devices)) if isinstance(devices, int) else devices
        clique = Clique(len(numbers), one_process=True)
        made = []
        for rank, device in enumerate(numbers):
            comm = NcclCommunicator.__new__(NcclCommunicator)
            comm._enter(clique, rank, device)
            made.append(comm)
        return made

    @property
    def comm(self) -> int:
        """A number of it."""
        return id(self) if self._alive else 0

    def rank_id(self) -> int:
        """Its rank."""
        return self._rank

    def size(self) -> int:
        """How many ranks there are."""
        return self.clique.size

    def device_id(self) -> int:
        """Its device."""
        return self._device

    def destroy(self) -> None:
        """No call comes any more."""
        self._alive = False

    abort = destroy

    def check_async_error(self) -> None:
        """Raise what has gone wrong in between."""
        machine().check()

    # ------------------------------------------------------------ calls

    def _call(self, kind: str, stream: int, **numbers: int) -> None:
        if not self._alive:
            raise NcclError(4, "the communicator was destroyed")
        _submit(Call(self, kind, self._rank, self._device, int(stream), **numbers))

    def allReduce(
        self,
        sendbuf: int,
        recvbuf: int,
        count: int,
        datatype: int,
        op: int,
        stream: int,
    ) -> None:
        """Every rank gets the reduction of all."""
        self._call(
            "allReduce",
            stream,
            source=sendbuf,
            out=recvbuf,
            count=count,
            dtype=datatype,
            op=op,
        )

    def reduce(
        self,
        sendbuf: int,
        recvbuf: int,
        count: int,
        datatype: int,
        op: int,
        root: int,
        stream: int,
    ) -> None:
        """The root gets the reduction of all."""
        self._call(
            "reduce",
            stream,
            source=sendbuf,
            out=recvbuf,
            count=count,
            dtype=datatype,
            op=op,
            root=root,
        )

    def broadcast(
        self,
        sendbuf: int,
        recvbuf: int,
        count: int,
        datatype: int,
        root: int,
        stream: int,
    ) -> None:
        """Every rank gets what the root has."""
        self._call(
            "broadcast",
            stream,
            source=sendbuf,
            out=recvbuf,
            count=count,
            dtype=datatype,
            root=root,
        )

    def bcast(
        self, buff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        """`broadcast` in place."""
        self.broadcast(buff, buff, count, datatype, root, stream)

    def reduceScatter(
        self,
        sendbuf: int,
        recvbuf: int,
        recvcount: int,
        datatype: int,
        op: int,
        stream: int,
    ) -> None:
        """Every rank gets its part of the reduction of all."""
        self._call(
            "reduceScatter",
            stream,
            source=sendbuf,
            out=recvbuf,
            count=recvcount,
            dtype=datatype,
            op=op,
        )

    def allGather(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int
    ) -> None:
        """Every rank gets what all have, one after the other."""
        self._call(
            "allGather",
            stream,
            source=sendbuf,
            out=recvbuf,
            count=count,
            dtype=datatype,
        )

    def send(
        self, sendbuf: int, count: int, datatype: int, peer: int, stream: int
    ) -> None:
        """Send to another rank."""
        self._call(
            "send", stream, source=sendbuf, count=count, dtype=datatype, peer=peer
        )

    def recv(
        self, recvbuf: int, count: int, datatype: int, peer: int, stream: int
    ) -> None:
        """Receive from another rank."""
        self._call("recv", stream, out=recvbuf, count=count, dtype=datatype, peer=peer)
