"""Batching: the same program with one more axis.

Receives a program, an axis (name and size) and which inputs have it, at position 0;
gives a program over those inputs, and which of its outputs have the axis, at 0 too.
Equations none of whose inputs have the axis are left as they are.
Next on the walk: `jet.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.cache import cached
from fnx.core.primitive import MappedAxis
from fnx.core.program import Program, Var
from fnx.core.trace import bind, constant, source_of
from fnx.core.types import ArrayType
from fnx.transforms.rewrite import Mask, rewrite


@cached
def batch_program(
    program: Program, axis: MappedAxis, mapped: Mask
) -> tuple[Program, Mask]:
    """The program with the axis, and which outputs have it."""
    out_mapped: Mask = ()

    def run(*args: Any) -> list[Any]:
        nonlocal out_mapped
        outputs, flags = map_over(program, axis, args, mapped)
        out_mapped = tuple(flags)
        return outputs

    types = [
        batched(type, axis.size) if is_mapped else type
        for type, is_mapped in zip(program.input_types, mapped, strict=True)
    ]
    return rewrite(run, types, "batch", program), out_mapped


def batched(type: ArrayType, size: int) -> ArrayType:
    """The type with a leading axis of that size."""
    return type.with_shape((size, *type.shape))


def map_over(
    program: Program, axis: MappedAxis, args: Sequence[Any], mapped: Sequence[bool]
) -> tuple[list[Any], list[bool]]:
    """Runs a program with the batch rules: the outputs, and which are mapped."""
    values: dict[Var, Any] = dict(zip(program.inputs, args, strict=True))
    flags: dict[Var, bool] = dict(zip(program.inputs, mapped, strict=True))
    for eqn in program.eqns:
        primitive = eqn.primitive
        inputs = [values[a] if isinstance(a, Var) else a for a in eqn.inputs]
        marks = [isinstance(a, Var) and flags[a] for a in eqn.inputs]
        with source_of(eqn) as recording:
            if any(marks) or primitive.sees_axes:
                results, out = primitive.batch(axis, inputs, marks, **eqn.params)
                if (all(out) if primitive.multiple else out) and eqn.source is not None:
                    recording.mark_lanes(axis.size, eqn.source.lanes)
            else:
                results = bind(primitive, inputs, eqn.params)
                out = (False,) * len(eqn.outputs) if primitive.multiple else False
        if not primitive.multiple:
            results, out = (results,), (out,)
        values.update(zip(eqn.outputs, results, strict=True))
        flags.update(zip(eqn.outputs, out, strict=True))
    return (
        [values[a] if isinstance(a, Var) else constant(a) for a in program.outputs],
        [isinstance(a, Var) and flags[a] for a in program.outputs],
    )
