"""Every error that fnx raises, how its text is composed, and which frames it shows.

User mistakes are subclasses of `FnxError` and of the builtin that a Python programmer
expects (`TypeError`, `ValueError`, `IndexError`); gaps in fnx are `MissingRule`; broken
invariants are `InternalError`. `explain` composes the text (the user's line, what was
asked, why not, what to do); `api_boundary` hides fnx's own frames from a traceback.
Next on the walk: `fnx/config.py`.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

from fnx.records import record

P = ParamSpec("P")
R = TypeVar("R")


class FnxError(Exception):
    """Base of every error that fnx raises on purpose."""


class ShapeError(FnxError, TypeError, ValueError):
    """Shapes that do not fit together; a `ValueError` too, as NumPy raises."""


class DTypeError(FnxError, TypeError):
    """A dtype that fnx does not support, or that this operation does not accept."""


class AxisError(FnxError, ValueError, IndexError):
    """An axis that the array, or the surrounding `vmap` or `pmap`, does not have."""


class ArgumentError(FnxError, TypeError):
    """An argument of the wrong kind, or a wrong number of arguments."""


class OptionError(FnxError, ValueError):
    """An option with a name or a value that fnx does not know."""


class TreeError(FnxError, ValueError):
    """Trees (pytrees) whose structures should agree and do not."""


class TracerValueError(FnxError, TypeError):
    """Python asked a tracer for a value that depends on an unknown argument."""


class LeakedTracerError(FnxError, RuntimeError):
    """A tracer was used after the trace that made it had ended."""


class ImmutableError(FnxError, TypeError):
    """An attempt to write into an array; arrays never change."""


class ScalarOutOfRange(FnxError, OverflowError):
    """A Python integer that the dtype of the array beside it cannot hold."""


class IndexOutOfRange(FnxError, IndexError):
    """A concrete index outside its axis."""


class CheckError(FnxError, ValueError):
    """What a check of the user's, or of `fnx.checkify`, has found at run time."""


class KeyReuseError(FnxError, ValueError):
    """A random key that was used twice (`fnx.debug.key_reuse`)."""


class DynamicSizeError(FnxError, TypeError):
    """A function under `jit(dynamic=...)` that is no one program for all sizes."""


class StepLimitError(FnxError, RuntimeError):
    """A loop made more steps than it may."""


class NonFiniteError(FnxError, FloatingPointError):
    """A NaN (or an infinity) was computed where `fnx.config.debug_nans` watches."""


class DifferenceError(FnxError, AssertionError):
    """Two ways of computing the same thing do not agree (`fnx.check`)."""


class RecompileError(FnxError, RuntimeError):
    """Something would be traced or compiled where `fnx.no_recompile()` forbids it."""


class DeviceError(FnxError, RuntimeError):
    """A device that cannot do what was asked, or a run on it that went wrong."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has no memory left for an array or a program."""


class CollectiveError(FnxError, RuntimeError):
    """Replicas or processes that should meet do not: one is missing, has failed, or
    calls something else.
    """


class CheckpointError(FnxError, RuntimeError):
    """A checkpoint that is torn, damaged, or not of what it is restored to."""


class CompileError(FnxError, RuntimeError):
    """CUDA C that does not compile, or nothing there to compile it.

    `log` is all that the compiler said, and `text` what it read; both may be empty.
    """

    def __init__(self, message: str, log: str = "", text: str = "") -> None:
        super().__init__(message, log, text)  # the fields, so that it pickles
        self.message, self.log, self.text = message, log, text

    def __str__(self) -> str:
        """The message: the first error, its line, and what to do."""
        return self.message


class MissingRule(FnxError, NotImplementedError):
    """A primitive lacks a rule: a gap in fnx (or in a user's primitive), not in the
    use.

    >>> print(MissingRule("sort", "jvp", "fnx/ops/sort.py"))
    primitive 'sort' has no 'jvp' rule: add the method to its class in fnx/ops/sort.py
    """

    def __init__(self, primitive: str, rule: str, file: str) -> None:
        super().__init__(primitive, rule, file)  # the fields, so that it pickles
        self.primitive, self.rule, self.file = primitive, rule, file

    def __str__(self) -> str:
        """The message: which primitive, which rule, which file."""
        return (
            f"primitive {self.primitive!r} has no {self.rule!r} rule: add the method "
            f"to its class in {self.file}"
        )


class InternalError(FnxError, RuntimeError):
    """A broken invariant inside fnx: always a bug of fnx."""


# What JAX calls them, for `except` clauses of ported programs.
ConcretizationTypeError = TracerValueError
TracerArrayConversionError = TracerValueError
TracerBoolConversionError = TracerValueError
TracerIntegerConversionError = TracerValueError
NonConcreteBooleanIndexError = TracerValueError
UnexpectedTracerError = LeakedTracerError


def broken_pass(name: str, reason: str, before: object, after: object) -> InternalError:
    """The `InternalError` of a compiler pass, with the IR before and after it.

    >>> print(broken_pass("fuse", "a value is used twice", "a b", "a c"))
    pass 'fuse': a value is used twice
    --- before fuse
    a b
    --- after fuse
    a c
    """
    both = f"--- before {name}\n{before}\n--- after {name}\n{after}"
    return InternalError(f"pass {name!r}: {reason}\n{both}")


# ---------------------------------------------------------------- the user's line


# What a line's equation can be for, besides its value.
DERIVATIVE, BACKWARD = "derivative", "backward"


@record(eq=False)
class Source:
    """One line of the user's code: what an equation remembers of where it came from.

    Made by `source_at`, which makes equal ones once, so that they are compared by
    identity. `scope` are the names of `fnx.named_scope` around the line, the outermost
    first; for an equation of a held program, those inside of the equation that holds
    it. `role` is "derivative" for what a derivative needs besides the line's value, and
    "backward" for what a transposition made of that. `lanes` are the sizes of the
    leading axes that `vmap` gave to the outputs.
    """

    code: CodeType
    line: int
    scope: tuple[str, ...] = ()
    role: str = ""
    lanes: tuple[int, ...] = ()

    @property
    def file(self) -> str:
        """The path of the file as Python knows it (made up for notebook cells)."""
        return self.code.co_filename

    @property
    def function(self) -> str:
        """The qualified name of the function that the line stands in."""
        return self.code.co_qualname

    @property
    def text(self) -> str:
        """The line itself, or '' where Python cannot find the file."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def place(self) -> str:
        """`file:line (function)`, with the scope and the role, if it has them."""
        inside = f", in {'/'.join(self.scope)}" if self.scope else ""
        inside += f", {self.role}" if self.role else ""
        return f"{_short_path(self.file)}:{self.line} ({self.function}{inside})"

    def __str__(self) -> str:
        """`file:line (function): text`."""
        return f"{self.place}: {self.text}" if self.text else self.place

    def inside(self, scope: tuple[str, ...]) -> Source:
        """The same line with more names around its scope."""
        names = scope + self.scope
        return source_at(self.code, self.line, names, self.role, self.lanes)

    def unscoped(self) -> Source:
        """The same line without a scope."""
        return source_at(self.code, self.line, (), self.role, self.lanes)

    def playing(self, role: str) -> Source:
        """The same line in this role."""
        lanes = () if role == BACKWARD else self.lanes
        return source_at(self.code, self.line, self.scope, role, lanes)

    def mapped(self, lanes: tuple[int, ...]) -> Source:
        """The same line with these leading axes."""
        return source_at(self.code, self.line, self.scope, self.role, lanes)


# Every source by its parts; each keeps its code alive, so that the id stays its own.
_sources: dict[tuple[Any, ...], Source] = {}
_MOST_SOURCES = 100_000


def source_at(
    code: CodeType,
    line: int,
    scope: tuple[str, ...] = (),
    role: str = "",
    lanes: tuple[int, ...] = (),
) -> Source:
    """The source with these fields, which is the same object at every call."""
    key = (id(code), line, scope, role, lanes)
    found = _sources.get(key)
    if found is None:
        if len(_sources) >= _MOST_SOURCES:
            _sources.clear()
        found = _sources.setdefault(key, Source(code, line, scope, role, lanes))
    return found


def user_source(
    scope: tuple[str, ...] = (), above: FrameType | None = None
) -> Source | None:
    """The innermost line on the stack that is not fnx's own, or None if all are.

    With `above`, only frames that were entered after that one are looked at.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not above:
        # `is_internal`, without the call: this is done for every equation
        if not frame.f_code.co_filename.startswith(_INTERNAL_ROOTS):
            break
        frame = frame.f_back
    if frame is None or frame is above:
        return None
    return source_at(frame.f_code, frame.f_lineno, scope)


def explain(
    asked: str, reason: str = "", fix: str = "", source: Source | str | None = None
) -> str:
    """Compose an error text: the user's line, what was asked, why not, what to do.

    >>> print(explain("dot(x: f32[3], y: f32[4])", "sizes 3 and 4 differ", "slice y"))
    dot(x: f32[3], y: f32[4]): sizes 3 and 4 differ.
      Fix: slice y.
    """
    lines = [] if source is None else [f"{source}"]
    lines.append(_sentence(f"{asked}: {reason}" if reason else asked))
    if fix:
        lines.append(f"  Fix: {_sentence(fix)}")
    return "\n".join(lines)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", ")", "\n", ":")) else f"{text}."


def _short_path(path: str) -> str:
    """The path relative to the working folder if it lies inside it."""
    here = os.getcwd() + os.sep
    return path.removeprefix(here)


# ---------------------------------------------------------------- tracebacks

_HERE = os.path.dirname(os.path.abspath(__file__))
_INTERNAL_ROOTS = (_HERE + os.sep, f"{_HERE}_cuda{os.sep}")
_frames_hidden = True


def hide_frames(hidden: bool) -> None:
    """Turn the hiding of fnx's frames on or off; `fnx.config.debug` calls it."""
    global _frames_hidden
    _frames_hidden = hidden


def is_internal(code: CodeType) -> bool:
    """Whether a code object belongs to fnx or fnx_cuda rather than to the user."""
    return code.co_filename.startswith(_INTERNAL_ROOTS)


def api_boundary(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function: user errors leave it without fnx's own frames.

    Errors that show a fault in fnx (`InternalError`, `MissingRule`, any foreign
    exception raised by fnx's own lines) keep theirs, and so does everything under
    `FNX_DEBUG`.
    """

    @functools.wraps(function)
    def boundary(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            hide_internal(error)
            raise

    return boundary


def hide_internal(error: BaseException) -> None:
    """Take fnx's own frames out of the traceback of a user's error."""
    if _frames_hidden and _is_users(error):
        error.__traceback__ = _without_internal(error.__traceback__)


def _is_users(error: BaseException) -> bool:
    if isinstance(error, FnxError):
        return not isinstance(error, MissingRule | InternalError)
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and not is_internal(last.tb_frame.f_code)


def _without_internal(traceback: TracebackType | None) -> TracebackType | None:
    kept = []
    while traceback is not None:
        if not is_internal(traceback.tb_frame.f_code):
            kept.append(traceback)
        traceback = traceback.tb_next
    chain: TracebackType | None = None
    for entry in reversed(kept):
        chain = TracebackType(chain, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return chain
