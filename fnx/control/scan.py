"""`scan`: a program applied again and again, to a carry and to row after row of arrays.

The program takes constants, the carry and a row of each array; it gives the next carry
and a row of each result. Derivatives are scans too: the tangents join the carry; in
reverse mode a scan over the rows from the last to the first reads what the forward one
has stacked. Receives and gives arrays; next on the walk: `while_loop.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx import errors
from fnx.control.call import (
    Parts,
    check_arguments,
    chosen,
    series_results,
    spread,
    with_outputs,
)
from fnx.control.checked_loops import checked_scan
from fnx.control.cut_loops import cut_scan
from fnx.control.fission import products_after, products_before, sums_after
from fnx.control.held import (
    either,
    equation_like,
    existing,
    flattened,
    instantiated,
    new_vars,
    order_of,
    others,
    parted,
    settled,
    with_axis,
    with_cotangents,
    with_series,
    with_tangents,
    zeros,
)
from fnx.control.keep import kept_rows
from fnx.control.lanes import selected
from fnx.control.packing import packed_carries
from fnx.control.rounds import (
    KnownRounds,
    Shape,
    before_permutes,
    check_carry,
    interleaved,
    invariants_before,
    known_carry,
    lifted,
    lifted_rows,
    live_carry,
    padded_rounds,
    permuted,
    rows_taken_in,
    spread_carry,
    stacked,
    swapped,
    transposed_after_split,
)
from fnx.core.links import IndexSets, stacked_sets
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Looped, MappedAxis, Primitive, is_linear
from fnx.core.program import Atom, Eqn, Program, Var, unfilled_outputs
from fnx.core.reference import run_reference
from fnx.core.simplify import needed_inputs
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType, array_type
from fnx.dtypes import int32
from fnx.ops.arithmetic import add
from fnx.ops.elementwise import lt
from fnx.ops.reduce import reduce_max
from fnx.ops.shape import broadcast_in_dim, full
from fnx.transforms.batch import batch_program
from fnx.transforms.jet import jet_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, rewrite
from fnx.transforms.split import split_program
from fnx.transforms.transpose import transpose_program


class _Scan(Primitive):
    """scan([count], *consts, *carry, *xs, program, shape): the last carry, the rows."""

    multiple = True
    compiled = True
    linear = True
    sees_axes = True
    sized = ("program", "shape")

    def infer(
        self, *types: ArrayType, program: Program, shape: Shape
    ) -> tuple[ArrayType, ...]:
        """The carry's types, and those of the results with a leading axis."""
        consts, carry, xs = shape.cut(types[shape.first :])
        for x in xs:
            if x.shape[:1] != (shape.length,):
                raise errors.ShapeError(f"scan: {x} has not {shape.length} rows")
        rows = [x.with_shape(x.shape[1:]) for x in xs]
        check_arguments("scan", program, [*consts, *carry, *rows])
        ends, ys = parted(program.output_types, shape.carry)
        check_carry("scan", carry, ends)
        return (*carry, *[stacked(y, shape.length) for y in ys])

    def reference(self, *arrays: Any, program: Program, shape: Shape) -> Any:
        """A Python loop over the program by its reference rules."""
        consts, carry, xs = shape.cut(arrays[shape.first :])
        _, types = parted(program.output_types, shape.carry)
        rows = [np.zeros((shape.length, *t.shape), t.dtype) for t in types]
        count = int(arrays[0]) if shape.counted else shape.length
        for i in reversed(range(count)) if shape.reverse else range(count):
            results = run_reference(program, [*consts, *carry, *[x[i] for x in xs]])
            carry, ys = parted(results, shape.carry)
            for row, y in zip(rows, ys, strict=True):
                row[i] = y
        return (*map(np.asarray, carry), *rows)

    def looped(
        self, inputs: Sequence[Any], *, program: Program, shape: Shape
    ) -> Looped:
        """Its rows, of which there may be fewer than those of its operands."""
        consts, carry, xs = shape.cut(inputs[shape.first :])
        count = inputs[0] if shape.counted else shape.length
        return Looped(program, consts, carry, xs, count, shape.reverse)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        shape: Shape,
    ) -> tuple[Any, Any]:
        """A scan whose carry holds the tangents that move."""
        count, operands = primals[: shape.first], primals[shape.first :]
        parts, moves = shape.cut(operands), shape.cut(tangents[shape.first :])
        start = tuple([t is not None for t in moves[1]])
        consts, _, xs = [tuple([t is not None for t in part]) for part in moves]

        carry = spread_carry(
            start, lambda carry: jvp_program(program, (*consts, *carry, *xs))[1]
        )
        moving = (*consts, *carry, *xs)
        wanted = (*carry, *jvp_program(program, moving)[1][shape.carry :])
        moved = with_tangents(program, moving, wanted)
        carried = instantiated(moves[1], parts[1])
        results = self(
            *count,
            *[*parts[0], *chosen(moves[0], consts)],
            *[*parts[1], *chosen(carried, carry)],
            *[*parts[2], *chosen(moves[2], xs)],
            program=interleaved(moved, shape.consts, shape.carry, moving, wanted),
            shape=replace(
                shape,
                consts=shape.consts + sum(consts),
                carry=shape.carry + sum(carry),
            ),
        )
        many = len(program.outputs) - shape.carry
        ends, end_moves, ys, y_moves = parted(results, shape.carry, sum(carry), many)
        return (*ends, *ys), [
            *spread(end_moves, carry),
            *spread(y_moves, wanted[shape.carry :]),
        ]

    def jet(
        self,
        primals: Sequence[Any],
        series: Sequence[Any],
        *,
        program: Program,
        shape: Shape,
    ) -> tuple[Any, Any]:
        """A scan whose carry holds the derivatives of what moves."""
        order = order_of(series)
        parts = shape.cut(primals[shape.first :])
        terms = shape.cut(series[shape.first :])
        consts, start, xs = [tuple([t is not None for t in part]) for part in terms]

        carry = spread_carry(
            start, lambda carry: jet_program(program, order, (*consts, *carry, *xs))[1]
        )
        moving = (*consts, *carry, *xs)
        found = jet_program(program, order, moving)[1]
        wanted = (*carry, *found[shape.carry :])
        moved = with_series(program, order, moving, wanted)
        carried = flattened(existing(terms[1], parts[1], order), carry)
        results = self(
            *primals[: shape.first],
            *[*parts[0], *flattened(terms[0], consts)],
            *[*parts[1], *carried],
            *[*parts[2], *flattened(terms[2], xs)],
            program=interleaved(
                moved, shape.consts, shape.carry, moving, wanted, order
            ),
            shape=replace(
                shape,
                consts=shape.consts + order * sum(consts),
                carry=shape.carry + len(carried),
            ),
        )
        many = len(program.outputs) - shape.carry
        ends, moves, ys, rest = parted(results, shape.carry, len(carried), many)
        return series_results((*ends, *ys, *moves, *rest), wanted, order)

    def split(self, known: Sequence[bool], eqn: Eqn) -> Parts | None:
        """Two scans; the first stacks what the second reads of it."""
        shape: Shape = eqn.params["shape"]
        if shape.counted and not known[0]:
            return None
        return split_scan(eqn, tuple(known[shape.first :]))

    def transpose(
        self, ct: Any, *inputs: Any, program: Program, shape: Shape
    ) -> Sequence[Any]:
        """A scan the other way; cotangents of the constants add up in its carry."""
        known = tuple([not is_linear(x) for x in inputs[shape.first :]])
        if any(known_carry(program, *map(tuple, shape.cut(known)))):
            params = {"program": program, "shape": shape}
            return transposed_after_split(self, ct, inputs, params)
        return transposed_scan(ct, *inputs, program=program, shape=shape)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        program: Program,
        shape: Shape,
    ) -> tuple[Any, Any]:
        """The batched program; the rows' new axis comes second."""
        if shape.counted and mapped[0]:
            if program.effect:
                params = {"program": program, "shape": shape}
                return member_by_member(self, axis, args, mapped, params)
            return _batched_counts(axis, args, mapped, program, shape)
        consts, start, xs = shape.cut(mapped[shape.first :])

        carry = spread_carry(
            start, lambda carry: batch_program(program, axis, (*consts, *carry, *xs))[1]
        )
        flags = (*consts, *carry, *xs)
        wanted = (*carry, *batch_program(program, axis, flags)[1][shape.carry :])
        operands = shape.cut(args[shape.first :])
        raised, dims = before_permutes(
            with_axis(program, axis, flags, wanted), shape.carry
        )
        results = self(
            *args[: shape.first],
            *operands[0],
            *lifted(axis, operands[1], start, carry),
            *lifted_rows(operands[2], xs),
            program=raised,
            shape=shape,
        )
        ends, ys = parted(results, shape.carry)
        rows = zip(permuted(ys, dims), wanted[shape.carry :], strict=True)
        return (*ends, *[swapped(y) if m else y for y, m in rows]), wanted

    def padded(self, pads: Pads, *inputs: Padded, shape: Shape, **held: Any) -> Any:
        """As many rounds as there are rows; what the body needs is constant."""
        return padded_rounds(self, pads, inputs, shape)

    def dependences(
        self,
        follow: Any,
        sets: Sequence[Any],
        known: Sequence[Any],
        *,
        program: Program,
        shape: Shape,
    ) -> Sequence[Any] | None:
        """Round by round, if there are few rounds."""
        if shape.counted or shape.length > _FOLLOWED:
            return None
        consts, carry, xs = shape.cut(sets)
        fixed, begin, rows = shape.cut(known)
        types = program.output_types[shape.carry :]
        stacks: list[list[Any]] = [[] for _ in types]
        for i in range(shape.length)[:: -1 if shape.reverse else 1]:
            parts = [x and _row(x, i, shape.length) for x in xs]
            given = [None if row is None else row[i] for row in rows]
            found = follow(program, [*consts, *carry, *parts], [*fixed, *begin, *given])
            carry, ys = parted(found, shape.carry)
            begin = (None,) * shape.carry  # another one in the next round
            for stack, y in zip(stacks, ys, strict=True):
                stack.append(y)
        if shape.reverse:
            stacks = [stack[::-1] for stack in stacks]
        sizes = [type.size for type in types]
        return [*carry, *map(stacked_sets, stacks, sizes)]

    def pruned(self, eqn: Eqn, used: Sequence[bool]) -> Eqn:
        """A scan without the results, and the carries, that nobody needs."""
        shape: Shape = eqn.params["shape"]
        program: Program = eqn.params["program"]
        start, ys = parted(used, shape.carry)
        carry = settled(
            start, lambda mask: live_carry(program, shape.consts, tuple(used), mask)
        )
        kept = (*carry, *ys)
        needed = either(
            needed_inputs(program, kept),
            (*[False] * shape.consts, *carry, *[False] * _rows(program, shape)),
        )
        if all(kept) and all(needed):
            return eqn
        slim = replace(shape, consts=sum(needed[: shape.consts]), carry=sum(carry))
        inputs = eqn.inputs[: shape.first] + chosen(eqn.inputs[shape.first :], needed)
        params = {"program": with_outputs(program, needed, kept), "shape": slim}
        return equation_like(eqn, inputs, chosen(eqn.outputs, kept), params)

    def hoisted(self, eqn: Eqn) -> Sequence[Eqn] | None:
        """What depends on constants or rows alone before the loop, sums after it."""
        ways = products_before, sums_after, products_after
        together = () if eqn.params["shape"].local else ways
        for taken_out in (invariants_before, *together, packed_carries):
            found = taken_out(eqn)
            if found is not None:
                return found
        return None

    def checked(self, found: Any, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
        """What went wrong first is carried from round to round."""
        return checked_scan(found, eqn, inputs)

    def unfilled(self, eqn: Eqn, given: Sequence[bool]) -> Sequence[bool]:
        """Rows of a counted loop, and those of which a round leaves a part."""
        shape, program = eqn.params["shape"], eqn.params["program"]
        found = unfilled_outputs(program, given[shape.first :])[shape.carry :]
        return [*[False] * shape.carry, *[shape.counted or is_one for is_one in found]]

    def absorb(
        self,
        inputs: Sequence[Atom],
        makers: Mapping[Var, Eqn],
        *,
        program: Program,
        shape: Shape,
    ) -> tuple[Sequence[Atom], dict[str, Any]] | None:
        """Rows are permuted, and their lanes chosen, when they are read."""
        return rows_taken_in(inputs, makers, program, shape)

    def kept(self, eqn: Eqn, used: Sequence[bool], keep: Any) -> Any:
        """Rows of the body's values, from which the rounds are made again."""
        return kept_rows(eqn, used, keep)

    def cut(self, cutter: Any, eqn: Eqn, parts: Sequence[Any]) -> Any:
        """The loop over parts of its rows; a carry that rounds cut is cut before."""
        return cut_scan(cutter, eqn, parts)

    def steps(self, plan: Any, *inputs: Any, program: Program, shape: Shape) -> None:
        """A loop of machine code."""
        count = inputs[0] if shape.counted else None
        consts, carry, xs = shape.cut(inputs[shape.first :])
        plan.loop(
            program,
            consts,
            carry,
            xs,
            length=shape.length,
            reverse=shape.reverse,
            count=count,
        )


scan = _Scan("scan")


_FOLLOWED = 4096
"""How many rounds are looked at, one by one, for what depends on what."""


def _row(sets: IndexSets, row: int, length: int) -> IndexSets:
    size = sets.count // length
    return sets.part(row * size, (row + 1) * size)


def _rows(program: Program, shape: Shape) -> int:
    """How many arrays the rows are of."""
    return len(program.inputs) - shape.consts - shape.carry


# ---------------------------------------------------------------- splitting


def split_scan(eqn: Eqn, known: Mask) -> Parts | None:
    """The scan over what is known, and the one that reads its residuals.

    A residual that is the same in every round becomes a constant of the second scan,
    one that is a row of an operand is read from there, the others are stacked.
    """
    shape: Shape = eqn.params["shape"]
    program: Program = eqn.params["program"]
    count, operands = eqn.inputs[: shape.first], eqn.inputs[shape.first :]
    consts, start, xs = shape.cut(known)
    carry = known_carry(program, consts, start, xs)
    many = len(program.outputs) - shape.carry
    mask = (*consts, *carry, *xs)
    if not any(mask):
        return None
    parts = split_program(program, mask, (*carry, *[True] * many))
    early = KnownRounds.of(
        eqn,
        parts.known,
        len(parts.residuals),
        chosen(operands, mask),
        sum(consts),
        sum(carry),
    )
    stacks = new_vars([stacked(type, shape.length) for type in early.stacked_types])
    first = equation_like(
        eqn,
        (*count, *early.inputs),
        (*chosen(eqn.outputs, parts.outputs_known), *stacks),
        {
            "program": early.program,
            "shape": replace(shape, consts=early.consts, carry=sum(carry)),
        },
    )
    rest = shape.cut(operands)
    unknown = [others(*pair) for pair in zip(rest, (consts, carry, xs), strict=True)]
    second = equation_like(
        eqn,
        (
            *count,
            *early.constants,
            *unknown[0],
            *unknown[1],
            *early.rows,
            *stacks,
            *unknown[2],
        ),
        others(eqn.outputs, parts.outputs_known),
        {
            "program": early.rest(parts.unknown, len(unknown[0]), len(unknown[1])),
            "shape": replace(
                shape,
                consts=len(early.shared) + len(unknown[0]),
                carry=len(unknown[1]),
            ),
        },
    )
    # What is linear in the constants alone is transposed once, not in every round.
    return [*early.before, first], invariants_before(second) or [second]


# ---------------------------------------------------------------- transposition


def transposed_scan(
    ct: Sequence[Any], *inputs: Any, program: Program, shape: Shape
) -> list[Any]:
    """The cotangents of a scan that is linear in its carry, wherever that begins.

    Those of the constants, if they are linear too, are summed over the rounds.
    """
    count, operands = inputs[: shape.first], inputs[shape.first :]
    parts = shape.cut(operands)
    consts, _, xs = [tuple(map(is_linear, part)) for part in parts]
    linear = (*consts, *[True] * shape.carry, *xs)
    ct_carry, ct_rows = parted(ct, shape.carry)
    given = (*[True] * shape.carry, *[c is not None for c in ct_rows])
    reached = parted(
        transpose_program(program, linear, given)[1], sum(consts), shape.carry
    )
    wanted = (*reached[0], *[True] * shape.carry, *reached[2])
    turned = with_cotangents(program, linear, given, wanted)
    sums = sum(reached[0])
    fixed, fixed_rows = others(parts[0], consts), others(parts[2], xs)

    def run(*args: Any) -> list[Any]:
        held, totals, carry, rows = parted(args, len(fixed), sums, shape.carry)
        own, cts = parted(rows, len(fixed_rows))
        results = evaluate(turned, [*held, *own, *carry, *cts])
        summed = [add(*pair) for pair in zip(totals, results[:sums], strict=True)]
        return [*summed, *results[sums:]]

    types = [x.type for x in fixed]
    added = [x.type for x in chosen(chosen(parts[0], consts), reached[0])]
    carried = [x.type for x in parts[1]]
    rows = [c for c in ct_rows if c is not None]
    row_types = [x.type.with_shape(x.type.shape[1:]) for x in (*fixed_rows, *rows)]
    results = scan(
        *count,
        *fixed,
        *map(zeros, added),
        *instantiated(ct_carry, parts[1]),
        *fixed_rows,
        *rows,
        program=rewrite(
            run, [*types, *added, *carried, *row_types], "transpose", program
        ),
        shape=replace(
            shape,
            consts=len(fixed),
            carry=sums + shape.carry,
            reverse=not shape.reverse,
        ),
    )
    totals, starts, stacks = parted(results, sums, shape.carry)
    pairs = zip(starts, parts[1], strict=True)
    return [
        *[None] * shape.first,
        *spread(spread(totals, reached[0]), consts),
        *[c if is_linear(x) else None for c, x in pairs],
        *spread(spread(stacks, reached[2]), xs),
    ]


# ---------------------------------------------------------------- batching


def member_by_member(
    primitive: Primitive,
    axis: MappedAxis,
    args: Sequence[Any],
    mapped: Sequence[bool],
    params: Mapping[str, Any],
) -> tuple[Any, Any]:
    """An equation applied to one member of a batch after the other, by a scan.

    So run branches and loops whose members go different ways, if they have effects:
    those of a branch must not happen for members that did not choose it.
    """
    types = [
        x.type.with_shape(x.type.shape[1:]) if is_mapped else x.type
        for x, is_mapped in zip(args, mapped, strict=True)
    ]
    inputs = new_vars(types)
    outputs = new_vars(primitive.infer(*types, **params))
    eqn = Eqn(primitive, inputs, outputs, params, None)
    fixed = (*others(inputs, mapped), *chosen(inputs, mapped))
    results = scan(
        *others(args, mapped),
        *chosen(args, mapped),
        program=Program(fixed, (eqn,), outputs),
        shape=Shape(len(args) - sum(mapped), 0, axis.size),
    )
    return results, (True,) * len(results)


def _batched_counts(
    axis: MappedAxis,
    args: Sequence[Any],
    mapped: Sequence[bool],
    program: Program,
    shape: Shape,
) -> tuple[Any, Any]:
    """A scan whose members have different numbers of rounds.

    There are as many as any member needs; the carry of one that has fewer rests.
    """
    counts, operands = args[0], shape.cut(args[1:])
    consts, start, xs = shape.cut(mapped[1:])
    carry = (True,) * shape.carry
    flags = (*consts, *carry, *xs)
    wanted = (*carry, *batch_program(program, axis, flags)[1][shape.carry :])
    lifted_program = with_axis(program, axis, flags, wanted)

    step = -1 if shape.reverse else 1

    def run(counts: Any, *rest: Any) -> list[Any]:
        fixed, (i,), before, rows = parted(rest, shape.consts, 1, shape.carry)
        results = evaluate(lifted_program, [*fixed, *before, *rows])
        ends, ys = parted(results, shape.carry)
        number = broadcast_in_dim(i, shape=(axis.size,), dims=())
        return [add(i, step), *selected(lt(number, counts), ends, before), *ys]

    types = shape.cut(lifted_program.input_types)
    given = [counts.type, *types[0], array_type((), int32), *types[1], *types[2]]
    wider = replace(shape, consts=shape.consts + 1, carry=shape.carry + 1)
    raised, dims = before_permutes(rewrite(run, given, "batch", program), wider.carry)
    most = reduce_max(counts, axes=(0,))
    results = scan(
        most,
        counts,
        *operands[0],
        add(most, -1) if shape.reverse else full((), int32, 0),
        *lifted(axis, operands[1], start, carry),
        *lifted_rows(operands[2], xs),
        program=raised,
        shape=wider,
    )
    ends, ys = parted(results[1:], shape.carry)
    stacks = zip(permuted(ys, dims), wanted[shape.carry :], strict=True)
    return (*ends, *[swapped(y) if has else y for y, has in stacks]), wanted
