"""Locks that survive a fork: no thread holds one while the process forks.

A child process has only the thread that forked. A lock that another thread held at
that moment would stay locked there for ever, with what it guards half done. Receives
nothing, gives a lock; used where native code is compiled.
Next on the walk: `fnx/core/types.py`.
"""

from __future__ import annotations

import os
import threading
from typing import Any

_locks: list[tuple[int, Any]] = []


def fork_safe_lock(rank: int) -> threading.RLock:  # type: ignore[valid-type]
    """A reentrant lock that a fork waits for, and that the child finds free.

    Who holds several of them took that of the lower rank first, and so does a fork.

    >>> lock = fork_safe_lock(rank=0)
    >>> with lock:
    ...     print("alone")
    alone
    """
    lock = threading.RLock()
    _locks.append((rank, lock))
    _locks.sort(key=lambda pair: pair[0])
    return lock


def _acquire() -> None:
    for _, lock in _locks:
        lock.acquire()


def _release() -> None:
    for _, lock in reversed(_locks):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_acquire, after_in_parent=_release, after_in_child=_release
    )
