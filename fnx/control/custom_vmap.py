"""`custom_vmap_call`: a function whose batching the user wrote.

Its equation holds the function's program and a rule, which makes a program for a number
of members and for what is mapped; where `vmap` meets the equation, that program takes
its place. Forward mode differentiates both. What reverse mode splits in two is no
longer the function, and is batched as programs are.
What users call is in `fnx/api/custom_vmap.py`; next on the walk: `fnx.compiler`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.control.call import (
    Parts,
    call,
    check_arguments,
    chosen,
    split_equation,
    spread,
)
from fnx.control.held import either, parted, with_tangents
from fnx.control.rounds import lifted
from fnx.core.axes import bound_axes, rebound
from fnx.core.primitive import MappedAxis, Primitive
from fnx.core.program import Eqn, Program
from fnx.core.reference import run_reference
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.transforms.batch import batch_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, rewrite
from fnx.transforms.split import split_program

Batched = tuple[Program, Mask]
"""A batched program, and which of its outputs have the axis."""


class BatchRule:
    """Makes batched programs when they are first asked for; equal only to itself.

    Named axes are those that are bound where the rule is made.
    """

    __slots__ = ("_axes", "_make", "_programs")

    def __init__(self, make: Callable[[int, Mask], Batched]) -> None:
        self._make = make
        self._programs: dict[tuple[int, Mask], Batched] = {}
        self._axes = bound_axes()

    def program(self, size: int, mapped: Mask) -> Batched:
        """The program for so many members, and for the inputs that have the axis."""
        key = size, mapped
        if key not in self._programs:
            with rebound(self._axes):
                self._programs[key] = self._make(size, mapped)
        return self._programs[key]

    def __repr__(self) -> str:
        return "rule"


class _CustomVmap(Primitive):
    """custom_vmap_call(*inputs, program, rule): the outputs of the program."""

    multiple = True
    linear = True
    sees_axes = True
    personal = True

    def infer(
        self, *types: ArrayType, program: Program, rule: BatchRule, name: str
    ) -> tuple[ArrayType, ...]:
        """The program's output types; the arguments are of its input types."""
        check_arguments(name, program, types)
        return program.output_types

    def reference(
        self, *arrays: Any, program: Program, rule: BatchRule, name: str
    ) -> Any:
        """The program by its reference rules."""
        return tuple(run_reference(program, arrays))

    def body(self, *, program: Program, rule: BatchRule, name: str) -> Program:
        """The program: where nothing is mapped the rule has no part."""
        return program

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        rule: BatchRule,
        name: str,
    ) -> tuple[Any, Any]:
        """The program with tangents, and the rule's programs with tangents."""
        moving = tuple([t is not None for t in tangents])
        moved, wanted = jvp_program(program, moving)

        def make(size: int, mapped: Mask) -> Batched:
            return _with_tangents(rule, size, mapped, moving, wanted)

        results = self(
            *primals,
            *[t for t in tangents if t is not None],
            program=moved,
            rule=BatchRule(make),
            name=name,
        )
        outputs, moves = parted(results, len(program.outputs))
        return outputs, spread(moves, wanted)

    def split(self, known: Sequence[bool], eqn: Eqn) -> Parts:
        """Calls the two parts of the program, which the rule does not know."""
        parts = split_program(eqn.params["program"], tuple(known))
        return split_equation(eqn, known, parts)

    def transpose(
        self, ct: Any, *inputs: Any, program: Program, rule: BatchRule, name: str
    ) -> Sequence[Any]:
        """Transposes the program."""
        return call.transpose(ct, *inputs, program=program, name=name)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        program: Program,
        rule: BatchRule,
        name: str,
    ) -> tuple[Any, Any]:
        """The rule's program where something is mapped."""
        if any(mapped):
            taken, flags = rule.program(axis.size, tuple(mapped))
            return evaluate(taken, args), flags
        lifted_program, flags = batch_program(program, axis, tuple(mapped))
        if any(flags):  # it asks for its place along a named axis
            return call(*args, program=lifted_program, name=name), flags
        return self(*args, program=lifted_program, rule=rule, name=name), flags


custom_vmap_call = _CustomVmap("custom_vmap_call")


def _with_tangents(
    rule: BatchRule, size: int, mapped: Mask, moving: Mask, wanted: Mask
) -> Batched:
    """A rule's program with tangents, each mapped where its value is or the reverse."""
    own, moves = parted(mapped, len(moving))
    tangents = spread(moves, moving)
    flags = either(own, [bool(flag) for flag in tangents])
    program, out_flags = rule.program(size, flags)
    moved = with_tangents(program, moving, wanted)
    axis = MappedAxis(None, size)
    alike = (*flags, *chosen(flags, moving))

    def run(*args: Any) -> list[Any]:
        return evaluate(moved, lifted(axis, args, mapped, alike))

    rows = zip(moved.input_types, alike, mapped, strict=True)
    types = [
        t.with_shape(t.shape[1:]) if want and not has else t for t, want, has in rows
    ]
    made = rewrite(run, types, "jvp of a vmap rule", program)
    return made, (*out_flags, *chosen(out_flags, wanted))
