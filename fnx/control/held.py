"""What the rules of primitives that hold programs share: programs made to measure.

A loop passes the same values from round to round, and branches must agree on what they
give; so the transformed program must have tangents, a mapped axis or cotangents exactly
where its holder wants them, with zeros or repeated values where it would have had none.
Receives a `Program` and masks, gives a `Program`. Next on the walk: `cond.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes
from fnx.control.call import chosen, series_results, spread
from fnx.core.cache import cached
from fnx.core.primitive import MappedAxis
from fnx.core.program import Eqn, Literal, Program, Var
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.ops.families import along
from fnx.ops.shape import broadcast_in_dim, zeros_like
from fnx.transforms.batch import batch_program
from fnx.transforms.jet import jet_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, rewrite
from fnx.transforms.transpose import transpose_program


@cached
def with_tangents(program: Program, moving: Mask, wanted: Mask) -> Program:
    """The program's outputs, then the tangents of those outputs that are wanted.

    Its inputs are followed by the tangents of the moving ones.
    """
    moved, found = jvp_program(program, moving)
    if found == wanted:
        return moved
    count = len(program.outputs)

    def run(*args: Any) -> list[Any]:
        results = evaluate(moved, args)
        tangents = spread(results[count:], found)
        return results[:count] + filled(tangents, wanted, program.output_types)

    return rewrite(run, moved.input_types, "jvp", program)


@cached
def with_series(program: Program, order: int, moving: Mask, wanted: Mask) -> Program:
    """The program's outputs, then the derivatives of those outputs that are wanted.

    Its inputs are followed by `order` derivatives of each of the moving ones.
    """
    moved, found = jet_program(program, order, moving)
    if found == wanted:
        return moved

    def run(*args: Any) -> list[Any]:
        outputs, terms = series_results(evaluate(moved, args), found, order)
        return [*outputs, *flattened(existing(terms, outputs, order), wanted)]

    return rewrite(run, moved.input_types, "jet", program)


@cached
def with_axis(
    program: Program, axis: MappedAxis, mapped: Mask, wanted: Mask
) -> Program:
    """The batched program; exactly the wanted outputs have the axis.

    An output that is not wanted must not depend on a mapped input.
    """
    lifted, found = batch_program(program, axis, mapped)
    if found == wanted:
        return lifted

    def run(*args: Any) -> list[Any]:
        rows = zip(evaluate(lifted, args), found, wanted, strict=True)
        return [along(axis, x) if want and not has else x for x, has, want in rows]

    return rewrite(run, lifted.input_types, "batch", program)


@cached
def with_cotangents(
    program: Program, linear: Mask, given: Mask, wanted: Mask
) -> Program:
    """The transposed program, with the cotangents of the wanted linear inputs.

    `wanted` has an entry for each linear input.
    """
    turned, reached = transpose_program(program, linear, given)
    if reached == wanted:
        return turned
    types = chosen(program.input_types, linear)

    def run(*args: Any) -> list[Any]:
        return filled(spread(evaluate(turned, args), reached), wanted, types)

    return rewrite(run, turned.input_types, "transpose", program)


def filled(
    values: Sequence[Any], wanted: Sequence[bool], types: Sequence[ArrayType]
) -> list[Any]:
    """The wanted values, zeros in the place of those that are `None`."""
    rows = zip(values, wanted, types, strict=True)
    return [zeros(type) if x is None else x for x, want, type in rows if want]


def zeros(type: ArrayType) -> Any:
    """Zeros of a type, weak if that is."""
    zero = Literal(0, type.with_shape(()))
    return broadcast_in_dim(zero, shape=type.shape, dims=())


def instantiated(tangents: Sequence[Any], likes: Sequence[Any]) -> list[Any]:
    """Tangents or cotangents, `None` made zeros like the values beside them."""
    rows = zip(tangents, likes, strict=True)
    return [zeros_like(like) if t is None else t for t, like in rows]


def flattened(series: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The derivatives of the values that a mask marks, one after the other."""
    return [t for terms in chosen(series, mask) for t in terms]


def existing(series: Sequence[Any], likes: Sequence[Any], order: int) -> list[Any]:
    """Derivatives, `None` made zeros like the values beside them."""
    rows = zip(series, likes, strict=True)
    return [
        [zeros_like(like)] * order if terms is None else terms for terms, like in rows
    ]


def order_of(series: Sequence[Any]) -> int:
    """How many derivatives there are of what moves."""
    return next(len(terms) for terms in series if terms is not None)


def inexact(types: Sequence[ArrayType]) -> Mask:
    """Which types have tangents at all."""
    return tuple([dtypes.is_inexact(type.dtype) for type in types])


def either(first: Sequence[bool], second: Sequence[bool]) -> Mask:
    """Which entries one or both of two masks mark."""
    return tuple([a or b for a, b in zip(first, second, strict=True)])


def both(first: Sequence[bool], second: Sequence[bool]) -> Mask:
    """Which entries two masks mark."""
    return tuple([a and b for a, b in zip(first, second, strict=True)])


def settled(start: Mask, grow: Callable[[Mask], Mask]) -> Mask:
    """The mask at which `grow`, which only ever adds to (or takes from) one, rests."""
    mask = start
    while True:
        grown = grow(mask)
        if grown == mask:
            return mask
        mask = grown


def others(values: Sequence[Any], mask: Sequence[bool]) -> tuple[Any, ...]:
    """The values that a mask does not mark."""
    return tuple([x for x, marked in zip(values, mask, strict=True) if not marked])


def parted(values: Sequence[Any], *counts: int) -> list[tuple[Any, ...]]:
    """The values in consecutive parts of these lengths, and the rest."""
    parts, start = [], 0
    for count in counts:
        parts.append(tuple(values[start : start + count]))
        start += count
    return [*parts, tuple(values[start:])]


def arranged(
    program: Program, inputs: Sequence[int], outputs: Sequence[int] | None = None
) -> Program:
    """The same program with its inputs (and outputs) in another order.

    An output may be left out, or stand twice.
    """
    ends = program.outputs
    if outputs is not None:
        ends = tuple([program.outputs[i] for i in outputs])
    return Program(tuple([program.inputs[i] for i in inputs]), program.eqns, ends)


def equation_like(eqn: Eqn, inputs: Any, outputs: Any, params: Any) -> Eqn:
    """An equation of the same primitive and of the same line of the user's."""
    return Eqn(eqn.primitive, tuple(inputs), tuple(outputs), params, eqn.source)


def new_vars(types: Sequence[ArrayType]) -> tuple[Var, ...]:
    """Variables of these types."""
    return tuple([Var(type) for type in types])
