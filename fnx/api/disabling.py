"""disable_jit: whether functions run as plain Python here, for debugging.

`jit.py` and what traces by itself (loops, branches, `remat.py`) ask `jit_is_disabled`;
native calls read the variable itself. Next on the walk: `jit.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fnx.config import scoped

disabled: ContextVar[bool] = ContextVar("fnx_jit_disabled", default=False)


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """A context in which jitted functions run as plain Python, for debugging.

    >>> import fnx
    >>> with fnx.disable_jit():
    ...     fnx.jit(lambda x: x if x > 0 else -x)(-2.0)
    2.0
    """
    token = disabled.set(disable)
    try:
        yield
    finally:
        disabled.reset(token)


scoped["disable_jit"] = disabled.set


def jit_is_disabled() -> bool:
    """Whether functions run as plain Python here."""
    return disabled.get()
