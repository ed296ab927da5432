"""How every transformation makes its result: it runs a function over tracers of the
new program's inputs, and what that records is simplified and checked.

Next on the walk: `jvp.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors
from fnx.core.check import checked
from fnx.core.program import Program
from fnx.core.simplify import simplify
from fnx.core.trace import trace
from fnx.core.types import ArrayType

Mask = tuple[bool, ...]


def rewrite(
    run: Callable[..., Sequence[Any]],
    types: Sequence[ArrayType],
    made_by: str,
    before: Program,
) -> Program:
    """The program that `run` computes from inputs of the given types."""
    traced = trace(run, types, rule=True)
    if traced.captured:
        shown = ", ".join(str(value.type) for value in traced.captured)
        raise errors.InternalError(
            f"a rule used arrays from outside during {made_by}: {shown}"
        )
    return checked(simplify(traced.program), made_by, before)
