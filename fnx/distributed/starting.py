"""Beginning and end of a job of several processes.

`initialize` finds the launcher (`launch.py`), connects the processes by MPI or TCP, and
makes them known to `fnx.runtime.processes`. From then on a process that ends says so to
the others: with its error, if it ends with one. Next on the walk: `values.py`.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import zlib
from types import TracebackType

from fnx import errors
from fnx.cpu.threads import num_threads, set_num_threads
from fnx.distributed import launch, mpi, tcp
from fnx.distributed.channel import Channel, Meeting
from fnx.distributed.communicator import ProcessCommunicator
from fnx.distributed.mpi import MPIChannel
from fnx.distributed.values import told
from fnx.records import record
from fnx.runtime.processes import Processes, enter, processes


@record(eq=False)
class _Job:
    """What `shutdown` gives back."""

    channel: Channel | None
    threads: int


_job: _Job | None = None


@errors.api_boundary
def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    cluster_detection_method: str | None = None,
    initialization_timeout: float = 300,
    coordinator_bind_address: str | None = None,
    secret: str | None = None,
) -> None:
    """Makes this process one of several that compute together.

    Every process calls it once, before it asks for devices. Under `mpiexec` and in a
    Slurm job it needs no arguments. Elsewhere they are given here or by the variables
    `FNX_COORDINATOR` (HOST:PORT of process 0), `FNX_NUM_PROCESSES` and
    `FNX_PROCESS_ID`, and for several machines `secret` or `FNX_SECRET`, a random text
    that they share. Process 0 listens at the coordinator's port on all addresses of its
    machine, or at `coordinator_bind_address` alone. A process that nothing has started
    as one of several is the only one. Processes that share cores share them out
    (`fnx.set_num_threads`), unless `OMP_NUM_THREADS` is set.

    `cluster_detection_method` is "mpi4py", "slurm" or "environment", and says that the
    other launchers are not asked. Raises `ArgumentError` for arguments that do not fit,
    `CollectiveError` where the processes do not find each other within
    `initialization_timeout` seconds, and where it is called twice.

    >>> import fnx
    >>> fnx.distributed.initialize()
    >>> fnx.process_index(), fnx.process_count()
    (0, 1)
    >>> fnx.distributed.shutdown()
    """
    global _job
    if _job is not None:
        raise errors.CollectiveError(
            errors.explain("initialize", "it was called before", "call it once")
        )
    found = launch.find(
        coordinator_address,
        num_processes,
        process_id,
        cluster_detection_method,
        secret,
    )
    channel = _connect(found, initialization_timeout, coordinator_bind_address)
    if channel is not None:
        channel.agree(Meeting(0, f"initialize({found.count} processes)"))
        communicator = ProcessCommunicator(channel)
        enter(Processes(found.index, found.count, communicator))
        sys.excepthook = _tell_and_show
    _job = _Job(channel, num_threads())
    if "OMP_NUM_THREADS" not in os.environ:
        set_num_threads(max(num_threads() // _neighbours(channel), 1))
    atexit.register(_at_exit)


def _connect(found: launch.Launch, timeout: float, bind: str | None) -> Channel | None:
    if found.count == 1:
        return None
    if found.address is None:
        return mpi.connect(found.count, found.index, timeout)
    return tcp.connect(
        found.count, found.index, found.address, bind, found.secret, timeout
    )


def _neighbours(channel: Channel | None) -> int:
    """How many processes share this one's cores: those of its machine.

    A launcher may have given each its own: then they do not.
    """
    if channel is None:
        return 1
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    here = f"{socket.gethostname()} {zlib.crc32(repr(sorted(cores)).encode())}"
    # on a communicator of its own: users count their collectives from 1
    places = told(ProcessCommunicator(channel), here)
    return places.count(here)


def is_initialized() -> bool:
    """Whether `initialize` was called, and `shutdown` not since.

    >>> import fnx
    >>> fnx.distributed.is_initialized()
    False
    """
    return _job is not None


@errors.api_boundary
def shutdown() -> None:
    """Leaves the job: this process is alone again.

    Others that still wait for this process raise `CollectiveError`. The end of a
    process does the same. Without `initialize` it does nothing.
    """
    global _job
    if _job is not None and _job.channel is not None:
        _job.channel.close()
        if sys.excepthook is _tell_and_show:
            sys.excepthook = sys.__excepthook__
    if _job is not None:
        set_num_threads(_job.threads)
    enter(None)
    atexit.unregister(_at_exit)
    _job = None


def _at_exit() -> None:
    """Leaves in order; where a process has failed, MPI has to end all of them."""
    channel = None if _job is None else _job.channel
    broken = channel is not None and channel.broken
    shutdown()
    if broken and isinstance(channel, MPIChannel):
        channel.end_all()


def _tell_and_show(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Python's end by an error, which the other processes are told first."""
    communicator = processes().communicator
    if communicator is not None:
        communicator.fail(error)
    sys.__excepthook__(kind, error, traceback)
