"""How many threads share a kernel, and the pool of this process that they come from.

Receives `set_num_threads` and the environment; gives the address of the pool's `run`,
which `driver.py` has plans call for kernels with enough work (`grain.py` decides). The
pool itself is native code: `pool.py`.
"""

from __future__ import annotations

import atexit
import ctypes
import operator
import os
import signal
import sys
from collections.abc import Callable
from functools import cache

from fnx.cpu import jit
from fnx.cpu.library import set_blas_threads
from fnx.cpu.pool import MOST_THREADS, pool_text
from fnx.errors import ArgumentError, OptionError


def num_threads() -> int:
    """How many threads share the work of large kernels.

    At first it is the first number in the environment variable `OMP_NUM_THREADS`, or
    else the number of CPUs that this process may run on.

    >>> import fnx
    >>> fnx.num_threads() >= 1
    True
    """
    return _wanted[0]


def set_num_threads(n: int) -> None:
    """Has at most `n` threads share the work of large kernels, from the next one on.

    The number counts the calling thread: with 1, all work is done there. Kernels give
    the same bits for every `n`; they are shared where there are POSIX threads, thus not
    on Windows. BLAS, for matrix products, is told the same number. Raises
    `ArgumentError` if `n` is not an integer, `OptionError` if it is less than 1.

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
    _wanted[0] = min(number, MOST_THREADS)
    set_blas_threads(_wanted[0])
    if _pool.cache_info().currsize:
        _tell(_pool())


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


def _cpus() -> int:
    """The CPUs that this process may run on."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_wanted = [default_threads(os.environ.get("OMP_NUM_THREADS"), _cpus())]


def run_address() -> int | None:
    """The address of the pool's `run`; None where there are no POSIX threads."""
    pool = _pool()
    return None if pool is None else pool.address("fnx_run")


@cache
def _pool() -> jit.Library | None:
    if sys.platform == "win32":
        return None
    code = jit.assemble(pool_text(signal.SIG_SETMASK), opt=0)
    pool = jit.load(code, ["fnx_run", "fnx_stop", "fnx_forget", "fnx_threads"])
    _tell(pool)
    atexit.register(_call(pool, "fnx_stop"))
    os.register_at_fork(after_in_child=_call(pool, "fnx_forget"))
    return pool


def _call(pool: jit.Library, name: str) -> Callable[[], None]:
    function: Callable[[], None] = pool.function(name, 0)
    return function


def _tell(pool: jit.Library | None) -> None:
    """Writes the number of threads where the pool reads it."""
    if pool is not None:
        ctypes.c_int32.from_address(pool.address("fnx_threads")).value = _wanted[0]
