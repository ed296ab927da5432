"""The processes of this job: how many, which one this is, and how they meet.

Written by `fnx.distributed.initialize`, read by all that asks for devices or exchanges
arrays; without it, this process is the only one. Next on the walk: `device.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx.records import record


@record(eq=False)
class Processes:
    """Process number `index` of `count`; `communicator` meets the others.

    It is a `fnx.distributed.communicator.ProcessCommunicator`, and `None` in a process
    that is alone.
    """

    index: int = 0
    count: int = 1
    communicator: Any = None


_ALONE = Processes()
_now = _ALONE

# What is called when the processes are others; `device.py` puts something here.
changed: Callable[[], None] | None = None


def processes() -> Processes:
    """The processes of this job.

    >>> processes().index, processes().count
    (0, 1)
    """
    return _now


def enter(found: Processes | None) -> None:
    """From now on these are the processes; `None` is this one alone."""
    global _now
    _now = _ALONE if found is None else found
    if changed is not None:
        changed()
