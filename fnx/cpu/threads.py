"""How many threads share the work of a kernel.

Receives `set_num_threads` and the environment; tells the pool of this process
(`workers.py`, next on the walk).
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable
from functools import cache

from fnx.config import threads
from fnx.errors import ArgumentError, OptionError

MOST_THREADS = 256
"""How many threads may share a loop: the pool has a slot for each worker."""


def num_threads() -> int:
    """How many threads share the work of large kernels.

    At first it is the first number in the environment variable `OMP_NUM_THREADS`, or
    else the number of CPUs that this process may run on.

    >>> import fnx
    >>> fnx.num_threads() >= 1
    True
    """
    return threads[0]


def set_num_threads(n: int) -> None:
    """Has at most `n` threads share the work of large kernels, from the next one on.

    The number counts the calling thread: with 1, all work is done there. Results have
    the same bits for every `n`. Work is shared where there are POSIX threads, thus not
    on Windows; the threads share matrix products, too, of which BLAS computes pieces.
    Raises `ArgumentError` if `n` is not an integer, `OptionError` if it is less than 1.

    >>> import fnx
    >>> before = fnx.num_threads()
    >>> fnx.set_num_threads(1)
    >>> fnx.num_threads()
    1
    >>> fnx.set_num_threads(before)
    """
    try:
        number = operator.index(n)
    except TypeError:
        raise ArgumentError(
            f"fnx.set_num_threads(n): n is a number of threads, got {n!r} of type "
            f"{type(n).__name__}."
        ) from None
    if number < 1:
        raise OptionError(f"fnx.set_num_threads(n): n is at least 1, got {number}.")
    threads[:] = [min(number, MOST_THREADS)]
    for listener in _listeners:
        listener(*threads)


def on_change(listener: Callable[[int], None]) -> None:
    """Has a function called with every number that is set from now on."""
    _listeners.append(listener)


_listeners: list[Callable[[int], None]] = []


def default_threads(variable: str | None, cpus: int) -> int:
    """The number of threads by `OMP_NUM_THREADS` (if it says one) and the CPUs.

    >>> default_threads("3,2", 8)
    3
    >>> default_threads(None, 8)
    8
    """
    first = (variable or "").partition(",")[0].strip()
    number = int(first) if first.isdecimal() else 0
    return min(number or cpus, MOST_THREADS)


@cache
def cpus() -> int:
    """The number of CPUs that this process could run on when it was first asked."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


threads[:] = [default_threads(os.environ.get("OMP_NUM_THREADS"), cpus())]
