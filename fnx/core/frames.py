"""Frames: what changes hands where a traced function uses a `Ref` from outside of it.

A program has no memory, so a ref that a body writes to must become a value that goes in
and comes out. While a body is traced, the innermost frame says what each ref holds
there: a `discovering` frame notes which refs of outer traces are read and written to; a
frame that is not begins with values that the body was given for them. A trace without a
frame only reads. Next on the walk: `leaks.py`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fnx import errors
from fnx.core.trace import Builder, innermost
from fnx.core.types import ArrayType


class Cell:
    """A value that can be replaced by another of the same type.

    `home` is the trace in which it was made, `None` outside of any. It is `lent` while
    a function runs that it was passed to, which has another cell for it.
    """

    __slots__ = ("frozen", "home", "lent", "type", "value")

    def __init__(self, value: Any, type: ArrayType) -> None:
        self.value = value
        self.type = type
        self.home = innermost()
        self.frozen = False
        self.lent = False


class HasCell:
    """What `fnx.api.refs.Ref` is to those who do not need all of it."""

    __slots__ = ("_cell",)

    def __init__(self, cell: Cell) -> None:
        self._cell = cell


class Frame:
    """The values of refs of outer traces, as one trace sees them."""

    __slots__ = ("builder", "discovering", "values", "written")

    def __init__(self, discovering: bool) -> None:
        self.discovering = discovering
        self.builder: Builder | None = None
        # Cells are compared by identity, and so hash by it.
        self.values: dict[Cell, Any] = {}
        self.written: dict[Cell, None] = {}


class _State(threading.local):
    """Per thread: the frames of the bodies that are being traced."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []


_state = _State()


@contextmanager
def _pushed(frame: Frame) -> Iterator[Frame]:
    _state.frames.append(frame)
    try:
        yield frame
    finally:
        _state.frames.pop()


def discovering() -> Any:
    """A context for the trace of a body: a frame that notes which refs it writes to."""
    return _pushed(Frame(True))


def entered(function: Callable[..., Any], frame: Frame) -> Callable[..., Any]:
    """The function, whose trace is the frame's."""
    if not callable(function):
        return function  # whoever traces it will say so

    @functools.wraps(function)
    def inside(*args: Any) -> Any:
        frame.builder = innermost()
        frame.values.clear()
        return function(*args)

    return inside


def given(
    function: Callable[..., Any],
    cells: Sequence[Cell],
    values: Sequence[Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
) -> tuple[Any, list[Any]]:
    """The result of a body whose refs begin with these values, and how they end."""
    frame = Frame(False)
    frame.builder = innermost()
    frame.values.update(zip(cells, values, strict=True))
    with _pushed(frame):
        result = function(*args, **(kwargs or {}))
    return result, [frame.values[cell] for cell in cells]


def read(cell: Cell) -> Any:
    """What a ref holds where the program is."""
    return _seen(cell, innermost(), len(_state.frames))


def write(cell: Cell, value: Any) -> None:
    """Has a ref hold another value from here on."""
    read(cell)
    builder = innermost()
    if cell.home is builder:
        cell.value = value
        return
    for frame in reversed(_state.frames):
        if frame.builder is builder and cell in frame.values:
            frame.values[cell] = value
            frame.written[cell] = None
            return
    raise errors.ArgumentError(
        errors.explain(
            f"a Ref of type {cell.type} from outside is written to inside of a "
            "transformation that does not pass it on",
            "jit, derivatives, vmap, loops and branches do",
            "make the ref inside of the function, pass it ref[...] and return the "
            "new value",
        )
    )


def write_all(cells: Sequence[Cell], values: Sequence[Any]) -> None:
    """Has each ref hold its value from here on."""
    for cell, value in zip(cells, values, strict=True):
        write(cell, value)


@contextmanager
def lending(cells: Sequence[Cell]) -> Iterator[None]:
    """A context in which refs are passed to a function; raises for one that is lent."""
    done: list[Cell] = []
    try:
        for cell in cells:
            read(cell)
            cell.lent = True
            done.append(cell)
        yield
    finally:
        for cell in done:
            cell.lent = False


def _seen(cell: Cell, builder: Builder | None, count: int) -> Any:
    """What a ref holds in a trace, which the first `count` frames are of or around."""
    if cell.frozen:
        raise errors.ArgumentError("a Ref was used after fnx.freeze had ended it")
    if cell.lent:
        raise errors.ArgumentError(
            errors.explain(
                f"a Ref of type {cell.type} is passed to a function that has it "
                "already, as another argument or from outside",
                "two names for one place cannot be told apart in a program",
                "pass it once, or copy it with new_ref(ref[...])",
            )
        )
    if cell.home is builder:
        return cell.value
    frame: Frame | None = None
    while count and _state.frames[count - 1].builder is builder:
        count -= 1
        frame = _state.frames[count]
        if cell in frame.values:
            return frame.values[cell]
    if builder is None:
        raise errors.LeakedTracerError(
            errors.explain(
                f"a Ref of type {cell.type} was used after the trace in which it was "
                "made had ended",
                fix="return fnx.freeze(ref), and not the ref",
            )
        )
    value = _seen(cell, builder.outer, count)
    if frame is not None:
        frame.values[cell] = value
    return value
