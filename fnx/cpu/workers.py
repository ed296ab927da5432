"""The thread pool of this process: compiled when it is first needed, joined at exit.

Gives the addresses of the pool's functions, which plans call for what has enough work
(`grain.py` decides). The pool itself is native code, whose text is made by
`pool.py`, next on the walk.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from fnx.cpu import jit, threads
from fnx.cpu.pool import RUNS, pool_text


def has_pool() -> bool:
    """Whether there are POSIX threads."""
    return sys.platform != "win32"


@contextmanager
def divided(count: int) -> Iterator[None]:
    """A context in which `count` threads call the pool, and share the CPU.

    It has one number of threads for all of them, and serves one of them at a time.
    """
    share = max(1, threads.num_threads() // count)
    with _dividing:
        _shares.append(share)
        _tell_share()
    try:
        yield
    finally:
        with _dividing:
            _shares.remove(share)
            _tell_share()


_dividing = threading.Lock()
_shares: list[int] = []


def _tell_share() -> None:
    """Tells the pool, if there is one, the smallest share."""
    if has_pool() and _pool.cache_info().currsize:
        _tell(_pool(), threads.num_threads())


def run_address(name: str) -> int:
    """The address of one of the pool's functions that run a part."""
    return _pool().address(name)


@cache
def _pool() -> jit.Library:
    exports = [*RUNS, "fnx_stop", "fnx_forget", "fnx_threads"]
    pool = jit.load_fixed(pool_text(signal.SIG_SETMASK), exports, opt=0)
    _tell(pool, threads.num_threads())
    threads.on_change(functools.partial(_tell, pool))
    atexit.register(_call(pool, "fnx_stop"))
    os.register_at_fork(after_in_child=_call(pool, "fnx_forget"))
    return pool


def _call(pool: jit.Library, name: str) -> Callable[[], None]:
    function: Callable[[], None] = pool.function(name, 0)
    return function


def _tell(pool: jit.Library, number: int) -> None:
    """Writes the number of threads, or a share, where the pool reads it."""
    number = min([number, *_shares])
    ctypes.c_int32.from_address(pool.address("fnx_threads")).value = number
