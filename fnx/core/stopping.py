"""Stopping: how a thread that runs a replica hears that it is to end.

Python's signals reach the main thread alone. Whoever runs replicas in several threads
gives each the same `Stop`; long loops in compiled code ask `listen` now and then, as
they look for signals. Receives and gives nothing; next on the walk: `communicator.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fnx import errors


class Stop:
    """Whether the threads of one run are to end; `asked` once somebody said so."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked = False


class _Here(threading.local):
    """Per thread: by what it is stopped."""

    stop: Stop | None = None


_here = _Here()


@contextmanager
def stopped_by(stop: Stop) -> Iterator[None]:
    """A context in which this thread's loops end once they are asked to."""
    before = _here.stop
    _here.stop = stop
    try:
        yield
    finally:
        _here.stop = before


def listen() -> None:
    """Raises `CollectiveError` where this thread is to end."""
    if _here.stop is not None and _here.stop.asked:
        raise errors.CollectiveError("another replica failed, so this one was stopped")
