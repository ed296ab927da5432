"""`while_loop`: a program applied to a carry as long as another one says so.

Forward mode adds the tangents to the carry; what reverse mode needs of every round is
recorded (`recording.py`). Receives and gives arrays; next on the walk: `custom.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

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
    parted,
    settled,
    with_axis,
    with_series,
    with_tangents,
    zeros,
)
from fnx.control.keep import Keep, Kept
from fnx.control.lanes import is_for_all, lane_program, selected
from fnx.control.recording import (
    Rounds,
    kept_while,
    split_while,
    too_many_rounds,
)
from fnx.control.rounds import (
    before_permutes,
    check_carry,
    hoisted_equation,
    interleaved,
    invariant,
    lifted,
    live_carry,
    padded_while,
    permuted,
    spread_carry,
    stacked,
    swapped,
    transposed_after_split,
)
from fnx.control.scan import member_by_member
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
from fnx.transforms.batch import batch_program
from fnx.transforms.jet import jet_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, rewrite


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
        return split_while(eqn, tuple(known))

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
        return kept_while(eqn, used, keep)

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
        *held,
        *fixed,
        *[active, zeros(numbers), *begin],
        test=rewrite(lambda a, *_: [reduce_or(a, axes=(0,))], types, "batch", test),
        body=raised,
        shape=replace(shape, tests=0, consts=members + len(fixed)),
    )
    (_, counts), ends, rest = parted(results, 2, len(carry))
    rest = (counts, *permuted(rest[1:], dims)) if rest else ()
    return _recorded(ends, rest, carry, True, wanted[len(carry) :])
