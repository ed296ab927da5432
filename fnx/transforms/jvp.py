"""Forward mode: a program that pushes tangents along with the values.

Receives a program and which inputs have tangents; gives a program from the inputs and
those tangents to the outputs and their tangents. A tangent that is zero by structure
does not exist: it is `None` while the rules run, and absent from the program.
Next on the walk: `split.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import dtypes
from fnx.config import config
from fnx.core.cache import cached
from fnx.core.program import Eqn, Program, Var
from fnx.core.trace import bind, constant, source_of
from fnx.transforms.rewrite import Mask, rewrite


def jvp_program(program: Program, moving: Mask) -> tuple[Program, Mask]:
    """The program with tangents, and which outputs have one.

    `moving` says which inputs have a tangent. Inputs of the result are the program's
    inputs and the tangents of the moving ones; outputs are the program's outputs and
    the tangents of the outputs that the mask marks.
    """
    return _jvp_program(program, moving, config.strong_zero)


@cached
def _jvp_program(
    program: Program, moving: Mask, strong_zero: bool
) -> tuple[Program, Mask]:
    out_moving: Mask = ()

    def run(*args: Any) -> list[Any]:
        nonlocal out_moving
        primals = args[: len(moving)]
        given = iter(args[len(moving) :])
        tangents = [next(given) if moves else None for moves in moving]
        outputs, out_tangents = push_forward(program, primals, tangents)
        out_moving = tuple([t is not None for t in out_tangents])
        return outputs + [t for t in out_tangents if t is not None]

    types = program.input_types
    tangent_types = [type for type, moves in zip(types, moving, strict=True) if moves]
    return rewrite(run, [*types, *tangent_types], "jvp", program), out_moving


def push_forward(
    program: Program, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Runs a program on values and tangents (`None` for zero) with the jvp rules."""
    values: dict[Var, Any] = dict(zip(program.inputs, primals, strict=True))
    moves: dict[Var, Any] = dict(zip(program.inputs, tangents, strict=True))
    for eqn in program.eqns:
        inputs = [values[a] if isinstance(a, Var) else a for a in eqn.inputs]
        steps = [moves.get(a) if isinstance(a, Var) else None for a in eqn.inputs]
        with source_of(eqn) as recording:
            results, step_results = _apply(eqn, inputs, steps)
            recording.mark_derivative(results)
        values.update(zip(eqn.outputs, results, strict=True))
        moves.update(zip(eqn.outputs, step_results, strict=True))
    outputs = [
        values[a] if isinstance(a, Var) else constant(a) for a in program.outputs
    ]
    return outputs, [
        moves.get(a) if isinstance(a, Var) else None for a in program.outputs
    ]


def _apply(
    eqn: Eqn, inputs: list[Any], tangents: list[Any]
) -> tuple[Sequence[Any], Sequence[Any]]:
    """The outputs of one equation and their tangents, as sequences."""
    primitive = eqn.primitive
    if all(t is None for t in tangents):
        results = bind(primitive, inputs, eqn.params)
        many = results if primitive.multiple else (results,)
        return many, [None] * len(many)
    results, moved = primitive.jvp(inputs, tangents, **eqn.params)
    if not primitive.multiple:
        results, moved = (results,), (moved,)
    # Integers and booleans do not move.
    return results, [
        t if dtypes.is_inexact(out.type.dtype) else None
        for t, out in zip(moved, eqn.outputs, strict=True)
    ]
