"""Context managers for the options that users turn on for a while.

Each sets an option of `fnx.config` for a block, in the whole process; the option itself
can be assigned, or set by an environment variable. Next on the walk: `inspection.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fnx.config import config
from fnx.core.trace import leaks_checked


@contextmanager
def debug_nans(enable: bool = True) -> Iterator[None]:
    """A context in which a NaN in a result is an error that says where it was made.

    Looked at are the results of jitted functions, and those that single operations
    outside of them compute from arrays without a NaN. `NonFiniteError`, a
    `FloatingPointError`, names the operation that made the NaN from operands without
    one, the user's line, the index and the operands there; whether that is part of a
    derivative, or of its backward pass; the round of a loop; the member of a `vmap`.
    Until there is a NaN, calls come through Python and results are looked at, and the
    program is the compiled one. Then it runs again, once: loops compiled, up to the
    round, and the rest by reference rules. What it does besides (`debug.print`) it does
    not do again; if a result needs that (`io_callback`), the NaN is all that is said.
    The environment variable is `FNX_DEBUG_NANS`.

    >>> import fnx, fnx.numpy as fnp
    >>> with fnx.debug_nans(True):
    ...     fnx.jit(lambda x: fnp.log(x) + 1)(fnp.asarray([1.0, -1.0]))
    Traceback (most recent call last):
    fnx.errors.NonFiniteError: jit of <lambda> gave NaN: the result at index [1].
      made by log, at ...
      its output at index [1] is nan, of -1.0
    """
    with config.override(debug_nans=enable):
        yield


@contextmanager
def debug_infs(enable: bool = True) -> Iterator[None]:
    """As `debug_nans`, for infinities. The environment variable is `FNX_DEBUG_INFS`.

    >>> import fnx, fnx.numpy as fnp
    >>> with fnx.debug_infs(True):
    ...     1 / fnp.asarray(0.0)
    Traceback (most recent call last):
    fnx.errors.NonFiniteError: div gave an infinity.
      made by div, at ...
      its output is inf, of 1.0, 0.0
    """
    with config.override(debug_infs=enable):
        yield


@contextmanager
def log_compiles(enable: bool = True) -> Iterator[None]:
    """A context in which what is traced and compiled is shown on standard error.

    >>> import fnx
    >>> with fnx.log_compiles(False):
    ...     fnx.jit(lambda x: x + 1)(1.0)
    Array(2., dtype=float32, weak_type=True)
    """
    with config.override(log_compiles=enable):
        yield


@contextmanager
def explain_cache_misses(enable: bool = True) -> Iterator[None]:
    """A context in which calls that are traced anew say why, on standard error.

    The text is that of `f.explain_miss()`.

    >>> import fnx
    >>> with fnx.explain_cache_misses(False):
    ...     fnx.jit(lambda x: x + 1)(1.0)
    Array(2., dtype=float32, weak_type=True)
    """
    with config.override(explain_cache_misses=enable):
        yield


@contextmanager
def checking_leaks(check: bool = True) -> Iterator[None]:
    """A context in which a tracer that is stored somewhere is an error at once.

    Without it, the error comes when somebody uses what was stored. Looked at is what
    has outlived its trace when the trace ends, in this thread; `LeakedTracerError` says
    where it was made, and which global, attribute, variable or container holds it. The
    garbage collector runs for each trace, which is slow.

    >>> import fnx
    >>> with fnx.checking_leaks():
    ...     fnx.jit(lambda x: x + 1)(1.0)  # nothing is stored
    Array(2., dtype=float32, weak_type=True)
    """
    with leaks_checked(check):
        yield


__all__ = [
    "checking_leaks",
    "debug_infs",
    "debug_nans",
    "explain_cache_misses",
    "log_compiles",
]
