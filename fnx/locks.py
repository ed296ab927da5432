"""Locks that survive a fork: no thread holds one while the process forks.

A child process has only the thread that forked. A lock that another thread held at
that moment would stay locked there for ever, with what it guards half done. Receives
nothing, gives a lock; used where native code is compiled.
Next on the walk: `fnx/core/types.py`.
"""

from __future__ import annotations

import os
import threading


def fork_safe_lock() -> threading.RLock:  # type: ignore[valid-type]
    """A reentrant lock that a fork waits for, and that the child finds free.

    Locks that are held together must be made in the reverse of the order in which they
    are taken: a fork takes the newest first.

    >>> lock = fork_safe_lock()
    >>> with lock:
    ...     print("alone")
    alone
    """
    lock = threading.RLock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire,
            after_in_parent=lock.release,
            after_in_child=lock.release,
        )
    return lock
