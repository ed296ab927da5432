"""The pattern of a Jacobian: which input elements each output element depends on.

Receives a program, one of its inputs and the values of the inputs that are known; runs
the program over sets of element numbers with the `links` of its primitives. Where there
are none, every output element depends on all that any input element depends on, so that
the pattern is never too small. Next on the walk: `coloring.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.links import IndexSets, joined
from fnx.core.program import Eqn, Literal, Program, Var
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import alone

Sets = Sequence[IndexSets | None]
Values = Sequence[Any]

_LARGEST = 2**22
"""How many elements an array may have whose value is computed for the pattern."""


def pattern(program: Program, number: int, known: Values) -> list[IndexSets]:
    """For each output, the elements of input `number` that its elements depend on.

    `known` are the values of the inputs, `None` for those that may change.
    """
    size = program.inputs[number].type.size
    start = [
        IndexSets.single(size) if n == number else None
        for n in range(len(program.inputs))
    ]
    nothing = np.zeros(0, np.int64)
    return [
        IndexSets.of(nothing, nothing, atom.type.size, size) if sets is None else sets
        for sets, atom in zip(
            follow(program, start, known), program.outputs, strict=True
        )
    ]


def follow(program: Program, sets: Sets, known: Values) -> list[IndexSets | None]:
    """The index sets of a program's outputs from those of its inputs."""
    found: dict[Var, IndexSets | None] = dict(zip(program.inputs, sets, strict=True))
    values: dict[Var, Any] = dict(zip(program.inputs, known, strict=True))
    for eqn in program.eqns:
        given = [found.get(a) if isinstance(a, Var) else None for a in eqn.inputs]
        fixed = [
            values.get(a) if isinstance(a, Var) else np.asarray(a.value)
            for a in eqn.inputs
        ]
        if all(s is None for s in given):
            values.update(zip(eqn.outputs, _values(eqn, fixed), strict=True))
        else:
            found.update(zip(eqn.outputs, _reached(eqn, given, fixed), strict=True))
    return [found.get(a) if isinstance(a, Var) else None for a in program.outputs]


def _values(eqn: Eqn, fixed: Values) -> Values:
    """The values of the outputs, if they can be known at little cost."""
    primitive = eqn.primitive
    small = all(var.type.size <= _LARGEST for var in eqn.outputs)
    if (
        not small
        or eqn.effect
        or primitive.compiled
        or not primitive.has("reference")
        or any(value is None for value in fixed)
    ):
        return [None] * len(eqn.outputs)
    with np.errstate(all="ignore"):
        results = primitive.reference(*fixed, **eqn.params)
    return results if primitive.multiple else (results,)


def _reached(eqn: Eqn, given: Sets, fixed: Values) -> Sets:
    """The index sets of an equation's outputs."""
    primitive = eqn.primitive
    inside = primitive.dependences(follow, given, fixed, **eqn.params)
    if inside is not None:
        return inside
    body = primitive.body(**eqn.params)
    if body is not None:
        return follow(body, given, fixed)
    moving = tuple(
        [
            s is not None and dtypes.is_inexact(a.type.dtype)
            for s, a in zip(given, eqn.inputs, strict=True)
            if not isinstance(a, Literal)
        ]
    )
    moves = [False] * len(eqn.outputs)
    if any(moving):
        single = alone(primitive, eqn.inputs, eqn.params)
        moves = [*jvp_program(single, moving)[1]]
    return [
        _linked(eqn, n, given, fixed) if moved else None
        for n, moved in enumerate(moves)
    ]


def _linked(eqn: Eqn, number: int, given: Sets, fixed: Values) -> IndexSets | None:
    """The index sets of one output, joined from those of the inputs."""
    primitive, out = eqn.primitive, eqn.outputs[number].type
    types = [a.type for a in eqn.inputs]
    parts = []
    for position, sets in enumerate(given):
        if sets is None or not dtypes.is_inexact(types[position].dtype):
            continue
        links = None
        if not primitive.multiple:
            links = primitive.links(position, types, out, fixed, **eqn.params)
        parts.append(sets.follow(links, out.size))
    return joined(parts)
