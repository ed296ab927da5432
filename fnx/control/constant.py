"""`constant`: an array that a program holds, without being given it as an input.

Programs are closed: what a function captures becomes an input. A rule that a user wrote
is traced later, when its function's program is differentiated; what it captures then
can no longer become an input, and becomes a `constant` equation here (`closed`).
Next on the walk: `custom.py`.
"""

from __future__ import annotations

from typing import Any

from fnx import errors
from fnx.core.array import Array
from fnx.core.padding import Pads
from fnx.core.program import Eqn, Program
from fnx.core.trace import Traced, Tracer
from fnx.core.types import ArrayType
from fnx.ops.families import Nullary


class Held:
    """An array as a param: equal only to itself, so that no value is ever compared."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __repr__(self) -> str:
        return str(self.array.type)


class _Constant(Nullary):
    """constant(value): the array that the param holds."""

    personal = True
    sized = ("value",)

    def padded(self, pads: Pads, *, value: Held) -> Any:
        """Every trace holds an array of its own."""
        return pads.array(pads.now["value"].array)

    def infer(self, *, value: Held) -> ArrayType:
        """The array's type."""
        return value.array.type

    def reference(self, *, value: Held) -> Any:
        """The array."""
        return value.array._numpy()

    def steps(self, plan: Any, *, value: Held) -> None:
        """Copied in by the host."""
        plan.host()


held_constant = _Constant("constant")


def closed(traced: Traced, what: str, kept: int = 0) -> Program:
    """A traced program that holds what it captured, but for the first `kept` arrays.

    Its inputs are those and the arguments. `what` names the function in the error for
    a captured tracer, which no program can hold.
    """
    program, count = traced.program, len(traced.captured)
    eqns = []
    pairs = zip(program.inputs, traced.captured, strict=False)
    for var, value in list(pairs)[kept:]:
        if isinstance(value, Tracer):
            raise errors.ArgumentError(_captured(value, what))
        eqns.append(Eqn(held_constant, (), (var,), {"value": Held(value)}, None))
    inputs = program.inputs[:kept] + program.inputs[count:]
    return Program(inputs, (*eqns, *program.eqns), program.outputs)


def _captured(tracer: Tracer, what: str) -> str:
    return errors.explain(
        what,
        f"it uses a traced array of type {tracer.type} of an enclosing transformation, "
        "which it was not given",
        "pass that array to the function as an argument, or keep it in the residuals",
    )
