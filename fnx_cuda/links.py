"""Links: NCCL between processes that have one GPU each.

The processes tell each other NCCL's identifier by the communicator that they have
(`fnx.distributed`). From then on whoever waits for a device watches NCCL, too: where
another process is gone, or does not come in time, that is an error, and no hang.
Receives communicators of processes, gives NCCL's. Next on the walk: `multiply.py`.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from fnx import errors
from fnx.config import config
from fnx.records import record
from fnx_cuda import _cupy
from fnx_cuda.device import device

_LONGEST = 1e-3  # seconds between two looks at a device


@record(eq=False)
class Link:
    """NCCL's communicator of this process's device, and a number of its own."""

    comm: Any
    number: int


# By what meets the processes; `None` where one of them has no NCCL. They stay: to end a
# communicator, NCCL waits until all graphs are gone that its collectives are part of.
_links: dict[Any, Link | None] = {}
_making = threading.Lock()
_numbers = itertools.count(1)


def link(between: Any, number: int) -> Link | None:
    """NCCL between processes, for a device; they all come here at once."""
    with _making:
        if between not in _links:
            _links[between] = _made(between, number)
        return _links[between]


def are_there() -> bool:
    """Whether this process is joined with others by NCCL."""
    return any(found is not None for found in _links.values())


def _made(between: Any, number: int) -> Link | None:
    there = np.empty((between.size,), bool)
    between.all_gather(np.array(_cupy.nccl() is not None), there)
    if not there.all():
        return None
    identifier = np.zeros(128, np.uint8)
    if between.rank == 0:
        identifier[:] = np.frombuffer(_cupy.unique_id(), np.uint8)
    between.broadcast(identifier)
    with device(number) as on, named(f"{between.size} processes"):
        comm = _cupy.joined(between.size, identifier.tobytes(), between.rank)
        on.watch = _watch
    return Link(comm, next(_numbers))


@contextmanager
def named(what: str) -> Iterator[None]:
    """A context in which NCCL's errors say between whom it was."""
    library = _cupy.nccl()
    try:
        yield
    except library.NcclError as error:
        raise errors.CollectiveError(
            errors.explain(
                f"NCCL between {what}",
                f"{error}",
                "NCCL_DEBUG=INFO in the environment shows why",
            )
        ) from error


def _watch(done: Callable[[], bool]) -> None:
    """Waits for work on a device, as long as the other processes may come."""
    end, pause = time.monotonic() + config.collective_timeout, 1e-5
    try:
        with named("processes"):
            while not done():
                for found in _links.values():
                    if found is not None:
                        found.comm.check_async_error()
                if time.monotonic() > end:
                    raise _late()
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST)
    except errors.CollectiveError:
        _abort()
        raise


def _late() -> Exception:
    return errors.CollectiveError(
        errors.explain(
            "work on a CUDA device that waits for other processes",
            f"it has not ended within {config.collective_timeout} s",
            "see what the others do; fnx.config.collective_timeout is how long it may "
            "take",
        )
    )


def _abort() -> None:
    """Ends what waits on the device; NCCL is of no use any more."""
    library = _cupy.nccl()
    for found in _links.values():
        if found is not None:
            with suppress(library.NcclError):
                found.comm.abort()


def forget() -> None:
    """Forgets all of them, for tests that put another module in CuPy's place."""
    _links.clear()
