"""`while_loop`: a program applied to a carry as long as another one says so.

Forward mode adds the tangents to the carry. Reverse mode needs what every round has
computed, and nobody knows before how many there will be: the known part *records* rows
for at most `capacity` rounds and counts them, in memory that costs nothing until it is
written; the rest is a counted scan over those rows, and is transposed as one.
Receives and gives arrays; next on the walk: `custom.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from fnx.control.checked_loops import checked_while
from fnx.control.cut_loops import cut_while
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
    with_series,
    with_tangents,
    zeros,
)
from fnx.control.keep import Keep, Kept, flat
from fnx.control.lanes import is_for_all, lane_program, selected
from fnx.control.rounds import (
    KnownRounds,
    Shape,
    before_permutes,
    check_carry,
    hoisted_equation,
    interleaved,
    invariant,
    invariants_before,
    known_carry,
    lifted,
    live_carry,
    padded_while,
    permuted,
    spread_carry,
    stacked,
    swapped,
    transposed_after_split,
)
from fnx.control.scan import member_by_member, scan
from fnx.core.links import equal, joined
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Looped, MappedAxis, Primitive
from fnx.core.program import Eqn, Program
from fnx.core.reference import run_reference
from fnx.core.simplify import needed_inputs
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType, array_type
from fnx.dtypes import bool_, int32
from fnx.ops.arithmetic import add
from fnx.ops.elementwise import convert
from fnx.ops.parts import and_
from fnx.ops.reduce import reduce_or
from fnx.records import record
from fnx.transforms.batch import batch_program
from fnx.transforms.jet import jet_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, rewrite
from fnx.transforms.split import split_program

_RECORD = 2**32
"""Bytes that the rows of a loop may take, if nobody has said how many there are."""

_MOST_ROUNDS, _LEAST_ROUNDS = 2**20, 2**12

_RESERVED = 2**33
"""Bytes that may be reserved for those least rounds: no system promises much more.

The rows of a loop in a loop are all that the inner one has reserved.
"""


@record
class Rounds:
    """How the operands of a while loop are divided, and what it records.

    First come the constants of the test, then those of the body, then the carry. A loop
    with a `capacity` records: its body also gives rows, and besides the last carry it
    gives the number of rounds and so many rows, of which the first are filled.
    `max_steps` is what the user expects at most, if they have said so. A round of the
    loop may be `each` rounds of the user's.
    """

    tests: int
    consts: int
    max_steps: int | None = None
    capacity: int | None = None
    each: int = 1

    def cut(self, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Constants of the test, constants of the body, carry."""
        return parted(values, self.tests, self.consts)


class _While(Primitive):
    """while_loop(*tests, *consts, *carry, test, body, shape): the last carry.

    `test` takes its constants and the carry, and gives a bool scalar.
    """

    multiple = True
    compiled = True
    linear = True
    sees_axes = True
    sized = ("test", "body", "shape")

    def infer(
        self, *types: ArrayType, test: Program, body: Program, shape: Rounds
    ) -> tuple[ArrayType, ...]:
        """The carry's types; where it records, int32[] and those of the rows."""
        tests, consts, carry = shape.cut(types)
        check_arguments("while_loop", test, [*tests, *carry])
        check_arguments("while_loop", body, [*consts, *carry])
        ends, rows = parted(body.output_types, len(carry))
        check_carry("while_loop", carry, ends)
        if shape.capacity is None:
            return carry
        stacks = [stacked(row, shape.capacity) for row in rows]
        return (*carry, array_type((), int32), *stacks)

    def reference(
        self, *arrays: Any, test: Program, body: Program, shape: Rounds
    ) -> Any:
        """A Python loop over the programs by their reference rules."""
        tests, consts, carry = shape.cut(arrays)
        capacity = shape.capacity or 0
        types = body.output_types[len(carry) :]
        stacks = [np.zeros((capacity, *t.shape), t.dtype) for t in types]
        count = 0
        while run_reference(test, [*tests, *carry])[0]:
            if shape.capacity is not None and count == capacity:
                raise too_many_rounds(shape)
            results = run_reference(body, [*consts, *carry])
            carry, rows = parted(results, len(carry))
            for stack, row in zip(stacks, rows, strict=True):
                stack[count] = row
            count += 1
        ends = tuple(map(np.asarray, carry))
        return ends if shape.capacity is None else (*ends, np.int32(count), *stacks)

    def looped(
        self, inputs: Sequence[Any], *, test: Program, body: Program, shape: Rounds
    ) -> Looped:
        """Rounds as long as the test holds."""
        tests, consts, carry = shape.cut(inputs)
        return Looped(body, consts, carry, test=test, tests=tests)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        test: Program,
        body: Program,
        shape: Rounds,
    ) -> tuple[Any, Any]:
        """A loop whose carry holds the tangents that move."""
        tests, fixed, start = shape.cut(primals)
        _, fixed_moves, start_moves = shape.cut(tangents)
        consts = tuple([t is not None for t in fixed_moves])
        count = len(start)

        carry = spread_carry(
            tuple([t is not None for t in start_moves]),
            lambda carry: jvp_program(body, (*consts, *carry))[1],
        )
        moving = (*consts, *carry)
        wanted = (*carry, *jvp_program(body, moving)[1][count:])
        moved = with_tangents(body, moving, wanted)
        carried = chosen(instantiated(start_moves, start), carry)
        extra = new_vars([x.type for x in carried])
        results = self(
            *tests,
            *[*fixed, *chosen(fixed_moves, consts)],
            *[*start, *carried],
            test=Program((*test.inputs, *extra), test.eqns, test.outputs),
            body=interleaved(moved, shape.consts, count, moving, wanted),
            shape=replace(shape, consts=shape.consts + sum(consts)),
        )
        ends, end_moves, rest = parted(results, count, len(carried))
        if shape.capacity is None:
            return ends, spread(end_moves, carry)
        number, rows, row_moves = parted(rest, 1, len(body.outputs) - count)
        moves = [*spread(end_moves, carry), None, *spread(row_moves, wanted[count:])]
        return (*ends, *number, *rows), moves

    def jet(
        self,
        primals: Sequence[Any],
        series: Sequence[Any],
        *,
        test: Program,
        body: Program,
        shape: Rounds,
    ) -> tuple[Any, Any]:
        """A loop whose carry holds the derivatives of what moves."""
        order = order_of(series)
        tests, fixed, start = shape.cut(primals)
        _, fixed_terms, start_terms = shape.cut(series)
        consts = tuple([terms is not None for terms in fixed_terms])
        count = len(start)

        carry = spread_carry(
            tuple([terms is not None for terms in start_terms]),
            lambda carry: jet_program(body, order, (*consts, *carry))[1],
        )
        moving = (*consts, *carry)
        wanted = (*carry, *jet_program(body, order, moving)[1][count:])
        moved = with_series(body, order, moving, wanted)
        carried = flattened(existing(start_terms, start, order), carry)
        extra = new_vars([x.type for x in carried])
        results = self(
            *tests,
            *[*fixed, *flattened(fixed_terms, consts)],
            *[*start, *carried],
            test=Program((*test.inputs, *extra), test.eqns, test.outputs),
            body=interleaved(moved, shape.consts, count, moving, wanted, order),
            shape=replace(shape, consts=shape.consts + order * sum(consts)),
        )
        ends, moves, rest = parted(results, count, len(carried))
        if shape.capacity is None:
            return series_results((*ends, *moves), wanted, order)
        number, rows, row_moves = parted(rest, 1, len(body.outputs) - count)
        outputs = (*ends, *number, *rows, *moves, *row_moves)
        return series_results(outputs, (*carry, False, *wanted[count:]), order)

    def split(self, known: Sequence[bool], eqn: Eqn) -> Parts | None:
        """A loop that records, and a counted scan over its rows."""
        return _split_while(eqn, tuple(known))

    def transpose(self, ct: Any, *inputs: Any, **params: Any) -> Sequence[Any]:
        """What is not linear runs first, and records; the rest is a scan."""
        return transposed_after_split(self, ct, inputs, params)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        test: Program,
        body: Program,
        shape: Rounds,
    ) -> tuple[Any, Any]:
        """A loop over batched carries, until the last member has finished."""
        tests, consts, start = shape.cut(mapped)
        count = len(start)

        carry = spread_carry(
            start, lambda carry: batch_program(body, axis, (*consts, *carry))[1]
        )
        lifted_test, asked = batch_program(test, axis, (*tests, *carry))
        if asked[0] and (test.effect or body.effect):
            params = {"test": test, "body": body, "shape": shape}
            return member_by_member(self, axis, args, mapped, params)
        if asked[0]:
            return _batched_lanes(axis, args, mapped, test, body, shape)
        flags = (*consts, *carry)
        wanted = (*carry, *batch_program(body, axis, flags)[1][count:])
        *held, carried = shape.cut(args)
        raised, dims = before_permutes(with_axis(body, axis, flags, wanted), count)
        results = self(
            *[x for part in held for x in part],
            *lifted(axis, carried, start, carry),
            test=lifted_test,
            body=raised,
            shape=shape,
        )
        ends, number, rows = parted(results, count, len(results) > count)
        rest = (*number, *permuted(rows, dims))
        return _recorded(ends, rest, carry, False, wanted[count:])

    def padded(self, pads: Pads, *inputs: Padded, shape: Rounds, **held: Any) -> Any:
        """What test and body need is constant."""
        return padded_while(self, pads, inputs, shape)

    def dependences(
        self,
        follow: Any,
        sets: Sequence[Any],
        known: Sequence[Any],
        *,
        test: Program,
        body: Program,
        shape: Rounds,
    ) -> Sequence[Any] | None:
        """What the carry depends on after any number of rounds."""
        _, consts, carry = shape.cut(sets)
        if shape.capacity is not None:
            return None
        held = [*shape.cut(known)[1], *[None] * len(carry)]
        while True:
            after = follow(body, [*consts, *carry], held)
            grown = tuple(map(joined, zip(carry, after, strict=True)))
            if all(map(equal, grown, carry)):
                return grown
            carry = grown

    def cut(self, cutter: Any, eqn: Eqn, parts: Sequence[Any]) -> Any:
        """The loop over parts; a carry that rounds cut is cut before."""
        return cut_while(cutter, eqn, parts)

    def pruned(self, eqn: Eqn, used: Sequence[bool]) -> Eqn:
        """A loop without the carries, and the rows, that nobody needs."""
        shape: Rounds = eqn.params["shape"]
        test: Program = eqn.params["test"]
        body: Program = eqn.params["body"]
        start = shape.cut(eqn.inputs)[2]
        asked = needed_inputs(test, (True,))
        rows = tuple(used[len(start) + 1 :])
        carry = settled(
            either(used[: len(start)], asked[shape.tests :]),
            lambda mask: live_carry(body, shape.consts, (*mask, *rows), mask),
        )
        read = needed_inputs(body, (*carry, *rows))[: shape.consts]
        needed = (*asked[: shape.tests], *read, *carry)
        if all(needed) and all(rows):
            return eqn
        number = used[len(start) : len(start) + 1]
        params = {
            "test": with_outputs(test, (*asked[: shape.tests], *carry), (True,)),
            "body": with_outputs(body, (*read, *carry), (*carry, *rows)),
            "shape": replace(shape, tests=sum(asked[: shape.tests]), consts=sum(read)),
        }
        outputs = chosen(eqn.outputs, (*carry, *[True for _ in number], *rows))
        return equation_like(eqn, chosen(eqn.inputs, needed), outputs, params)

    def unfilled(self, eqn: Eqn, given: Sequence[bool]) -> Sequence[bool]:
        """The rows that it records."""
        carry = len(eqn.params["shape"].cut(eqn.inputs)[2])
        return [number > carry for number in range(len(eqn.outputs))]

    def hoisted(self, eqn: Eqn) -> Sequence[Eqn] | None:
        """What depends on the body's constants alone, before the loop."""
        shape: Rounds = eqn.params["shape"]
        found = invariant(eqn.params["body"], shape.consts, copies=False)
        if found is None:
            return None
        tests, consts, carry = shape.cut(eqn.inputs)
        before = hoisted_equation(eqn, found[0], consts)
        params = {
            "test": eqn.params["test"],
            "body": found[1],
            "shape": replace(shape, consts=shape.consts + len(before.outputs)),
        }
        inputs = (*tests, *before.outputs, *consts, *carry)
        return before, equation_like(eqn, inputs, eqn.outputs, params)

    def kept(self, eqn: Eqn, used: Sequence[bool], keep: Keep) -> Kept | None:
        """Rows of the body's values, and how many; the rounds again are a scan."""
        return _kept_while(eqn, used, keep)

    def checked(self, found: Any, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
        """What went wrong first is carried from round to round."""
        return checked_while(found, eqn, inputs)

    def steps(
        self, plan: Any, *inputs: Any, test: Program, body: Program, shape: Rounds
    ) -> None:
        """A loop of machine code."""
        tests, consts, carry = shape.cut(inputs)
        full = None if shape.capacity is None else too_many_rounds(shape)
        asked = test, tests
        plan.loop(body, consts, carry, length=shape.capacity, test=asked, full=full)


while_loop = _While("while_loop")


def too_many_rounds(shape: Rounds) -> errors.StepLimitError:
    """The error of a loop that records, and whose memory is full."""
    given = shape.max_steps is not None
    rounds = (shape.capacity or 0) * shape.each
    return errors.StepLimitError(
        errors.explain(
            f"while_loop in reverse mode: more than {rounds} rounds",
            f"max_steps={rounds} was given"
            if given
            else "it keeps what every round computes, for so many rounds at most",
            "give a larger max_steps to while_loop"
            if given
            else "say how many there may be, by while_loop(..., max_steps=...)",
        )
    )


def _capacity(shape: Rounds, rows: Sequence[ArrayType]) -> int:
    """For how many rounds memory is reserved."""
    if shape.capacity is not None:
        return shape.capacity
    if shape.max_steps is not None:
        return shape.max_steps
    nbytes = sum(row.size * row.dtype.itemsize for row in rows)
    nbytes = max(nbytes, 1)
    least = max(min(_LEAST_ROUNDS, _RESERVED // nbytes), 1)
    return max(min(_RECORD // nbytes, _MOST_ROUNDS), least)


def _split_while(eqn: Eqn, known: Mask) -> Parts | None:
    """The loop over what is known, and the scan over what it records."""
    shape: Rounds = eqn.params["shape"]
    test: Program = eqn.params["test"]
    body: Program = eqn.params["body"]
    tests, consts, start = shape.cut(known)
    held_tests, fixed, carried = shape.cut(eqn.inputs)
    count = len(start)
    many = len(body.outputs) - count

    carry = known_carry(body, consts, start, ())
    asked = needed_inputs(test, (True,))
    if any(a and not k for a, k in zip(asked, (*tests, *carry), strict=True)):
        return None
    parts = split_program(body, (*consts, *carry), (*carry, *[True] * many))
    early = KnownRounds.of(
        eqn,
        parts.known,
        len(parts.residuals),
        (*chosen(fixed, consts), *chosen(carried, carry)),
        sum(consts),
        sum(carry),
    )
    rows_known = parts.outputs_known[count:]
    known_rows = chosen(body.output_types[count:], rows_known)
    capacity = _capacity(shape, (*known_rows, *early.stacked_types))
    ends, recorded = parted(eqn.outputs, count)
    number = recorded[:1] or new_vars([array_type((), int32)])
    stacks = new_vars([stacked(type, capacity) for type in early.stacked_types])
    taken = chosen(test.inputs, (*[True] * shape.tests, *carry))
    first = equation_like(
        eqn,
        (*held_tests, *early.inputs),
        (*chosen(ends, carry), *number, *chosen(recorded[1:], rows_known), *stacks),
        {
            "test": Program(taken, test.eqns, test.outputs),
            "body": early.program,
            "shape": replace(shape, consts=early.consts, capacity=capacity),
        },
    )
    unknown = others(fixed, consts), others(carried, carry)
    second = Eqn(
        scan,
        (*number, *early.constants, *unknown[0], *unknown[1], *stacks),
        (*others(ends, carry), *others(recorded[1:], rows_known)),
        {
            "program": early.rest(parts.unknown, len(unknown[0]), len(unknown[1])),
            "shape": Shape(
                consts=len(early.shared) + len(unknown[0]),
                carry=len(unknown[1]),
                length=capacity,
                counted=True,
            ),
        },
        eqn.source,
    )
    return [*early.before, first], invariants_before(second) or [second]


def _kept_while(eqn: Eqn, used: Sequence[bool], keep: Keep) -> Kept | None:
    """A loop that records what is saved, and a scan that makes the rounds again."""
    shape: Rounds = eqn.params["shape"]
    body = flat(eqn.params["body"])
    _, consts, carried = shape.cut(eqn.inputs)
    count = len(carried)
    starts = body.inputs[shape.consts :]
    ends, rows = parted(body.outputs, count)
    end_vars, rest = parted(eqn.outputs, count)
    wanted_rows = tuple(used[count + 1 :])
    live = settled(
        tuple(used[:count]),
        lambda mask: live_carry(body, shape.consts, (*mask, *wanted_rows), mask),
    )
    # A carry that nobody needs stays what it is, and goes with the pruning.
    picked = zip(ends, starts, live, strict=True)
    wanted = [end if needed else start for end, start, needed in picked]
    wanted += chosen(rows, wanted_rows)
    inside = keep(body, wanted)
    if not inside.saved:
        return None
    types = [var.type for var in inside.saved]
    capacity = _capacity(shape, types)
    number = rest[:1] or new_vars([array_type((), int32)])
    saved = (*number, *new_vars([stacked(type, capacity) for type in types]))
    first, again = inside.programs(body, wanted)
    early = equation_like(
        eqn,
        eqn.inputs,
        (*end_vars, *number, *rest[1:], *saved[1:]),
        {**eqn.params, "body": first, "shape": replace(shape, capacity=capacity)},
    )
    results = (*end_vars, *chosen(rest[1:], wanted_rows))
    late = Eqn(
        scan,
        (*number, *consts, *carried, *saved[1:]),
        results,
        {
            "program": again,
            "shape": Shape(shape.consts, count, capacity, counted=True),
        },
        eqn.source,
    )
    needed = (*live, *[True] * sum(wanted_rows))
    return Kept((early,), (scan.pruned(late, needed),), saved)


def _recorded(
    ends: Sequence[Any],
    rest: Sequence[Any],
    carry: Mask,
    number_mapped: bool,
    rows: Sequence[bool],
) -> tuple[Any, Any]:
    """A batched loop's results, and which are mapped; `rest` is what it records."""
    if not rest:
        return ends, carry
    number, stacks = rest[0], rest[1:]
    placed = [swapped(x) if m else x for x, m in zip(stacks, rows, strict=True)]
    return (*ends, number, *placed), (*carry, number_mapped, *rows)


def _batched_lanes(
    axis: MappedAxis,
    args: Sequence[Any],
    mapped: Sequence[bool],
    test: Program,
    body: Program,
    shape: Rounds,
) -> tuple[Any, Any]:
    """A loop whose members end at different times.

    The carry holds which members still run, and how many rounds each has made; that of
    a member that has ended rests.
    """
    tests, consts, start = shape.cut(mapped)
    held, fixed, carried = shape.cut(args)
    carry = (True,) * len(start)
    flags = (*consts, *carry)
    wanted = (*carry, *batch_program(body, axis, flags)[1][len(carry) :])
    lifted_test = with_axis(test, axis, (*tests, *carry), (True,))
    lifted_body = with_axis(body, axis, flags, wanted)
    members = len(held)
    guarded = None if is_for_all(body) else lane_program(body, axis, flags, wanted)

    def run(*values: Any) -> list[Any]:
        asking, own, (active, counts, *before) = parted(values, members, len(fixed))
        if guarded is None:
            results = evaluate(lifted_body, [*own, *before])
        else:
            results = evaluate(guarded, [active, *own, *before])
        ends, rows = parted(results, len(carry))
        ends = tuple(selected(active, ends, before))
        again = and_(active, evaluate(lifted_test, [*asking, *ends])[0])
        return [again, add(counts, convert(active, dtype=int32)), *ends, *rows]

    begin = lifted(axis, carried, start, carry)
    active = evaluate(lifted_test, [*held, *begin])[0]
    marks = ArrayType((axis.size,), bool_)
    numbers = ArrayType((axis.size,), int32)
    types = [marks, numbers, *lifted_test.input_types[members:]]
    given = [
        *lifted_test.input_types[:members],
        *lifted_body.input_types[: len(fixed)],
        *types,
    ]
    raised, dims = before_permutes(rewrite(run, given, "batch", body), 2 + len(carry))
    results = while_loop(
        *[*held, *fixed],
        *[active, zeros(numbers), *begin],
        test=rewrite(lambda a, *_: [reduce_or(a, axes=(0,))], types, "batch", test),
        body=raised,
        shape=replace(shape, tests=0, consts=members + len(fixed)),
    )
    (_, counts), ends, rest = parted(results, 2, len(carry))
    rest = (counts, *permuted(rest[1:], dims)) if rest else ()
    return _recorded(ends, rest, carry, True, wanted[len(carry) :])
