"""Bodies of loops and branches that write to refs from outside, as bodies that do not.

Receives such a function and the refs; gives one that takes and returns what these hold
beside its own arguments and results. Next on the walk: `branches.py`, `loops.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors
from fnx.core.frames import Cell, given

WRITING_TEST = (
    "while_loop: cond_fun writes to a Ref.\n"
    "  Fix: write in body_fun; cond_fun may only read."
)


def branch_with_refs(
    function: Callable[..., Any], cells: Sequence[Cell]
) -> Callable[..., Any]:
    """From what the refs hold and operands to a result and what they hold then."""

    @functools.wraps(function)
    def run(held: Any, *operands: Any) -> Any:
        return given(function, cells, held, operands)

    return run


def scan_with_refs(
    f: Callable[[Any, Any], Any], cells: Sequence[Cell]
) -> Callable[[Any, Any], Any]:
    """A body of a scan, whose carry is a pair: its own one, and what the refs hold."""

    @functools.wraps(f)
    def body(state: tuple[Any, Any], x: Any) -> tuple[Any, Any]:
        (carry, y), ends = given(f, cells, state[1], (state[0], x))
        return (carry, ends), y

    return body


def loop_with_refs(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    cells: Sequence[Cell],
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The test and the body of a loop over a pair: its value, and what the refs hold.

    Raises `ArgumentError` where the test writes to one.
    """

    @functools.wraps(cond_fun)
    def test(state: tuple[Any, Any]) -> Any:
        found, ends = given(cond_fun, cells, state[1], (state[0],))
        if any(x is not y for x, y in zip(ends, state[1], strict=True)):
            raise errors.ArgumentError(WRITING_TEST)
        return found

    @functools.wraps(body_fun)
    def body(state: tuple[Any, Any]) -> tuple[Any, Any]:
        return given(body_fun, cells, state[1], (state[0],))

    return test, body
