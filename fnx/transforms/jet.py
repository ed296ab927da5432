"""Taylor mode: a program that carries the first derivatives along a curve.

Receives a program, an order, and which inputs move; gives a program from the inputs and
their derivatives of order 1, 2, … along the curve to those of the outputs. Products,
quotients and held programs have a rule (`Primitive.jet`). Every other rule follows from
`jvp`: y' is the tangent at x along x', so the derivatives of y from the second on are
those of that tangent, to one order less; and where the tangent is the same linear
function all along the curve, it is applied to each derivative.
Next on the walk: `sparsity.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fnx import dtypes
from fnx.config import config
from fnx.core.cache import cached
from fnx.core.primitive import Primitive
from fnx.core.program import Eqn, Literal, Program, Var, silent
from fnx.core.simplify import simplify
from fnx.core.trace import bind, constant, evaluate, source_of
from fnx.ops.shape import zeros_like
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, alone, rewrite

Series = Sequence[Any] | None
"""The derivatives of order 1, 2, … of a value that moves; `None` if it does not."""


def jet_program(program: Program, order: int, moving: Mask) -> tuple[Program, Mask]:
    """The program with derivatives up to an order, and which outputs have them.

    `moving` says which inputs move. Inputs of the result are the program's inputs, then
    `order` derivatives of each moving one; outputs are the program's outputs, then
    `order` derivatives of each output that the mask marks.
    """
    return _jet_program(program, order, moving, config.strong_zero)


@cached
def _jet_program(
    program: Program, order: int, moving: Mask, strong_zero: bool
) -> tuple[Program, Mask]:
    out_moving: Mask = ()

    def run(*args: Any) -> list[Any]:
        nonlocal out_moving
        primals, given = args[: len(moving)], iter(args[len(moving) :])
        series = [
            [next(given) for _ in range(order)] if moves else None for moves in moving
        ]
        outputs, found = push_series(program, order, primals, series)
        out_moving = tuple([terms is not None for terms in found])
        return outputs + [x for terms in found for x in terms or ()]

    types = program.input_types
    rows = zip(types, moving, strict=True)
    given = [type for type, moves in rows if moves for _ in range(order)]
    return rewrite(run, [*types, *given], "jet", program), out_moving


def push_series(
    program: Program, order: int, primals: Sequence[Any], series: Sequence[Series]
) -> tuple[list[Any], list[Series]]:
    """Runs a program on values and their derivatives with the jet rules."""
    values: dict[Var, Any] = dict(zip(program.inputs, primals, strict=True))
    moves: dict[Var, Series] = dict(zip(program.inputs, series, strict=True))
    for eqn in program.eqns:
        inputs = [values[a] if isinstance(a, Var) else a for a in eqn.inputs]
        terms = [moves.get(a) if isinstance(a, Var) else None for a in eqn.inputs]
        with source_of(eqn) as recording:
            results, found = _apply(eqn, order, inputs, terms)
            recording.mark_derivative(results)
        values.update(zip(eqn.outputs, results, strict=True))
        moves.update(zip(eqn.outputs, found, strict=True))
    outputs = [
        values[a] if isinstance(a, Var) else constant(a) for a in program.outputs
    ]
    return outputs, [
        moves.get(a) if isinstance(a, Var) else None for a in program.outputs
    ]


def _apply(
    eqn: Eqn, order: int, inputs: list[Any], series: list[Series]
) -> tuple[Sequence[Any], Sequence[Series]]:
    """The outputs of one equation and their derivatives, as sequences."""
    primitive = eqn.primitive
    found: Sequence[Series]
    if all(terms is None for terms in series) or not primitive.has("jet"):
        results = bind(primitive, inputs, eqn.params)
        many = results if primitive.multiple else (results,)
        if all(terms is None for terms in series):
            return many, [None] * len(many)
        found = _derived(primitive, order, inputs, series, eqn.params)
    elif primitive.multiple:
        many, found = primitive.jet(inputs, series, **eqn.params)
    else:
        result, terms = primitive.jet(inputs, series, **eqn.params)
        many, found = (result,), (terms,)
    # Integers and booleans do not move.
    return many, [
        terms if dtypes.is_inexact(out.type.dtype) else None
        for terms, out in zip(found, eqn.outputs, strict=True)
    ]


def _derived(
    primitive: Primitive,
    order: int,
    inputs: Sequence[Any],
    series: Sequence[Series],
    params: Mapping[str, Any],
) -> list[Series]:
    """The derivatives of the outputs from the `jvp` rule, which they repeat."""
    rows = zip(inputs, series, strict=True)
    arrays = [(x, terms) for x, terms in rows if not isinstance(x, Literal)]
    primals = [x for x, _ in arrays]
    moving = tuple([terms is not None for _, terms in arrays])
    given = [terms for _, terms in arrays if terms is not None]
    single = alone(primitive, inputs, params)
    tangent, reached, straight = _tangent(single, moving)
    steps = [[terms[k] for terms in given] for k in range(order)]
    if straight or order == 1:
        found = [evaluate(tangent, [*primals, *step]) for step in steps]
        columns: list[Series] = list(map(list, zip(*found, strict=True)))
    else:
        curve = [terms and terms[:-1] for _, terms in arrays]
        firsts, rest = push_series(
            tangent,
            order - 1,
            [*primals, *steps[0]],
            [*curve, *[terms[1:] for terms in given]],
        )
        zeros = [[zeros_like(first)] * (order - 1) for first in firsts]
        columns = [
            [first, *(none if terms is None else terms)]
            for first, terms, none in zip(firsts, rest, zeros, strict=True)
        ]
    values = iter(columns)
    return [next(values) if is_reached else None for is_reached in reached]


def _tangent(program: Program, moving: Mask) -> tuple[Program, Mask, bool]:
    """From inputs and tangents to the tangents of the outputs that the mask marks.

    The flag says that the inputs' moving does not change this linear function.
    """
    moved, reached = jvp_program(program, moving)
    ends = moved.outputs[len(program.outputs) :]
    # Effects have happened where the value was computed.
    eqns = [silent(eqn) for eqn in moved.eqns if eqn.outputs or not eqn.effect]
    tangent = simplify(Program(moved.inputs, tuple(eqns), ends))
    bends = jvp_program(tangent, (*moving, *[False] * sum(moving)))[1]
    return tangent, reached, not any(bends)
