"""debug.breakpoint: a debugger where the program is, with the values that it has.

Outside of transformations that is Python's debugger in the caller's frame. A traced
function has ended when its program runs; so its local variables are passed to the host,
and the debugger sees a frame that stands at the same line and has their values.
"""

from __future__ import annotations

import bdb
import pdb
import sys
from types import CodeType, FrameType
from typing import Any

from fnx import errors, tree
from fnx.core.array import Array
from fnx.core.trace import Tracer, is_alive, tracing
from fnx.debug.printing import callback
from fnx.errors import Source
from fnx.records import record


@errors.api_boundary
def breakpoint() -> None:
    """Stops in Python's debugger (pdb); `c` goes on.

    In a function that is traced (`jit`, `grad`, `scan`, …) it stops each time the
    program comes to it, and shows the function's line and its local variables: arrays,
    and trees of them, with the values that they have then, as NumPy arrays. Where
    standard input is no terminal, the values are written to standard error instead.

    >>> import fnx
    >>> @fnx.jit
    ... def f(x):
    ...     y = 2 * x
    ...     fnx.debug.breakpoint()
    ...     return y
    >>> f(1.0).item()  # stops with x = 1, y = 2
    2.0
    """
    frame = _user_frame()
    if tracing():
        stop = _Stop(frame.f_code, frame.f_lineno, frame.f_globals)
        callback(stop, _values(frame))
    elif _has_terminal():
        pdb.Pdb().set_trace(frame)
    else:
        _tell(Source(frame.f_code, frame.f_lineno), _values(frame))


def _user_frame() -> FrameType:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and errors.is_internal(frame.f_code):
        frame = frame.f_back
    if frame is None:
        raise errors.InternalError("breakpoint: no frame of the user's")
    return frame


def _values(frame: FrameType) -> dict[str, Any]:
    """The local variables of a frame that an equation may read."""
    names = frame.f_locals.items()
    return {name: value for name, value in names if _is_readable(value)}


def _is_readable(value: Any) -> bool:
    leaves = tree.leaves(value)
    if any(isinstance(x, Tracer) and not is_alive(x) for x in leaves):
        return False
    return any(isinstance(x, Array) for x in leaves) or isinstance(value, int | float)


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


@record(eq=False)
class _Stop:
    """Stops at a line of the user's."""

    code: CodeType
    line: int
    scope: dict[str, Any]

    def __call__(self, values: dict[str, Any]) -> None:
        if not _has_terminal():
            _tell(Source(self.code, self.line), values)
            return
        # Code of one line, which is the user's line of the user's file.
        text = "\n" * (self.line - 1) + "_stop()"
        code = compile(text, self.code.co_filename, "exec")
        code = code.replace(co_name=self.code.co_name)
        scope = self.scope | {"_stop": _stop_above}
        exec(code, scope, dict(values))


def _stop_above() -> None:
    """The debugger in the frame of the caller, until the user goes on."""
    debugger = pdb.Pdb()
    debugger.reset()
    debugger.interaction(sys._getframe(1), None)
    if debugger.quitting:
        raise bdb.BdbQuit


def _tell(source: Source, values: dict[str, Any]) -> None:
    """What there is to see, where nobody can be asked."""
    print(
        f"fnx.debug.breakpoint at {source}\n"
        "  standard input is no terminal, so there is no debugger; the values:",
        file=sys.stderr,
    )
    for name, value in values.items():
        print(f"  {name} = {value!r}", file=sys.stderr)
