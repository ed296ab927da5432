"""The channel over MPI: mpi4py's buffers, without pickling and with the GIL released.

Receives MPI's communicator of all processes. Requests never block: they are polled, so
that a process that is missing is noticed and one that has failed can say so, which MPI
itself does not offer. The order of sums is ours (`communicator.py`): MPI's own sums may
be in another order on another machine. Next on the walk: `tcp.py`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.distributed.channel import (
    Broken,
    Buffer,
    Buffers,
    Channel,
    deadline,
)

_DATA, _FAILED, _LEFT = 1, 2, 3
# Seconds that a failed process waits for the others to see it, before MPI ends them.
_GRACE = 5.0
# Seconds in which what a process has sent before it left has arrived.
_LAST = 1.0
# Polls without a pause, and the longest pause.
_SPINS, _PAUSE = 2000, 1e-3

# Lets another process have the core, if one wants it.
_give_way: Callable[[], None] = getattr(os, "sched_yield", lambda: time.sleep(0))


class MPIChannel(Channel):
    """The processes of one of MPI's communicators, which is this channel's own."""

    def __init__(self, mpi: Any, comm: Any, members: Sequence[int]) -> None:
        super().__init__(comm.Get_rank(), members)
        self._mpi = mpi
        self._comm = comm
        self._told: list[tuple[Any, Buffer]] = []
        self._left: dict[int, float] = {}  # who has left, and when that was heard

    def _exchange(self, sends: Buffers, receives: Buffers, patient: bool) -> None:
        byte = self._mpi.BYTE
        got = {r: self._comm.Irecv([x, byte], r, _DATA) for r, x in receives.items()}
        sent = {r: self._comm.Isend([x, byte], r, _DATA) for r, x in sends.items()}
        pairs = [(r, request) for row in (got, sent) for r, request in row.items()]
        try:
            self._wait(pairs, patient)
        except Broken:
            for request in got.values():
                if request:
                    request.Cancel()  # nobody may write there any more
            raise

    def _wait(self, pairs: Sequence[tuple[int, Any]], patient: bool) -> None:
        """Polls until the requests are done, each one with the rank that it is for."""
        requests = [request for _, request in pairs]
        end, polls, pause = deadline(), 0, 1e-5
        test_all = self._mpi.Request.Testall
        while not test_all(requests):
            polls += 1
            if polls % 64 == 0 or polls > _SPINS:
                self._listen()
                self._check_late(pairs, end)
            if polls < _SPINS or not patient:
                _give_way()  # large messages move only while they are polled
            else:
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE)

    def _check_late(self, pairs: Sequence[tuple[int, Any]], end: float) -> None:
        """Raises `Broken` if nothing more can be waited for."""
        now = time.monotonic()
        gone = [r for r, when in self._left.items() if now > when + _LAST]
        if now > end or gone:
            late = sorted({r for r, request in pairs if not request.Test()})
            for rank in late:
                if rank in gone:
                    raise Broken(f"process {self.members[rank]} has ended")
            if now > end and late:
                raise self._late(late)

    def _listen(self) -> None:
        self._check()
        failed = self._received(_FAILED)
        if failed is not None:
            raise Broken(failed[1])
        left = self._received(_LEFT)
        if left is not None:
            self._left[left[0]] = time.monotonic()

    def _received(self, tag: int) -> tuple[int, str] | None:
        """The next message of that kind and its sender, if there is one."""
        status = self._mpi.Status()
        if not self._comm.Iprobe(self._mpi.ANY_SOURCE, tag, status):
            return None
        data = np.empty(status.Get_count(self._mpi.BYTE), np.uint8)
        source = status.Get_source()
        self._comm.Recv([data, self._mpi.BYTE], source, tag)
        return source, data.tobytes().decode(errors="replace")

    def _tell(self, text: str) -> None:
        self._send_all(text, _FAILED)

    def _send_all(self, text: str, tag: int) -> None:
        data = np.frombuffer(text.encode()[:4096], np.uint8)
        for rank in range(self.size):
            if rank != self.rank:
                request = self._comm.Isend([data, self._mpi.BYTE], rank, tag)
                self._told.append((request, data))  # kept until MPI has sent it

    def _part(self, ranks: Sequence[int]) -> MPIChannel:
        comm = self._comm.Split(ranks[0], ranks.index(self.rank))
        return MPIChannel(self._mpi, comm, [self.members[r] for r in ranks])

    def _close(self) -> None:
        self._send_all("", _LEFT)

    def end_all(self) -> None:
        """Ends the whole job, once all others leave it too, or some seconds later.

        MPI cannot end in order where a process is missing: it would wait for it.
        """
        end = time.monotonic() + _GRACE
        while len(self._left) < self.size - 1 and time.monotonic() < end:
            left = self._received(_LEFT)
            if left is None:
                time.sleep(0.01)
            else:
                self._left[left[0]] = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        self._comm.Abort(1)


def connect(count: int, index: int, timeout: float) -> MPIChannel:
    """The channel of all processes that `mpiexec` has started.

    Raises `CollectiveError` where MPI does not find as many processes as the launcher
    has started, and where some of them do not come.
    """
    mpi = _load()
    world = mpi.COMM_WORLD
    if (world.Get_size(), world.Get_rank()) != (count, index):
        version = mpi.Get_library_version().split("\n")[0]
        raise errors.CollectiveError(
            errors.explain(
                f"initialize: the launcher has started {count} processes, and MPI "
                f"finds {world.Get_size()}",
                f"mpiexec is of another MPI than mpi4py's library ({version})",
                "start with the mpiexec of that MPI; for the one that comes with "
                "fnx[mpi], it stands beside python",
            )
        )
    if mpi.Query_thread() != mpi.THREAD_MULTIPLE:
        raise errors.CollectiveError(
            errors.explain(
                "initialize: MPI runs without MPI_THREAD_MULTIPLE",
                "programs are run by several threads",
                "import mpi4py.MPI without changes of mpi4py.rc.threads",
            )
        )
    comm, request = world.Idup()
    _poll(request.Test, timeout)
    return MPIChannel(mpi, comm, range(count))


def _load() -> Any:
    try:
        from mpi4py import MPI  # lazy: starts MPI, which only jobs of several want
    except (ImportError, RuntimeError) as error:
        raise errors.CollectiveError(
            errors.explain(
                "initialize: this process was started by mpiexec",
                f"mpi4py cannot be loaded: {error}",
                "install fnx[mpi]",
            )
        ) from error
    return MPI


def _poll(done: Callable[[], bool], timeout: float) -> None:
    end = time.monotonic() + timeout
    while not done():
        if time.monotonic() > end:
            raise errors.CollectiveError(
                errors.explain(
                    "initialize",
                    f"not all processes have come within {timeout} s "
                    "(initialization_timeout)",
                    "let every process call fnx.distributed.initialize()",
                )
            )
        time.sleep(1e-4)
