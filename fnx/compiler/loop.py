"""Loops of a plan: the plan of a round, and where its carry is from round to round.

A round reads the carry in one place and writes the next one in another; the two are
exchanged, so that nothing is copied. A carry that a round only updates (a row of a
large array is set) stays where it is. Receives programs and operands from the rule of
a loop's primitive; gives the draft of a `LoopStep`. Next on the walk: `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fnx.compiler.places import Draft, Place, Value, base_of
from fnx.compiler.step import Carry, LoopStep, Plan, Rows, Step, Test
from fnx.core.program import Program
from fnx.core.types import ArrayType
from fnx.dtypes import bool_, uint8
from fnx.records import record
from fnx.sizes import surely_at_most

if TYPE_CHECKING:
    from fnx.compiler.plan import PlanBuilder


@record
class Asked:
    """The program that decides about each round, and its constants."""

    program: Program
    consts: Sequence[Value]


@record
class Loop:
    """A loop to be added to a plan; the fields are those of `PlanBuilder.loop`."""

    body: Program
    consts: Sequence[Value]
    carry: Sequence[Value]
    rows: Sequence[Value]
    length: int | None
    reverse: bool
    count: Value | None
    test: Asked | None
    full: Exception | None
    outputs: Sequence[Value]

    @property
    def ends(self) -> Sequence[Value]:
        """The outputs that the carry becomes."""
        return self.outputs[: len(self.carry)]

    @property
    def counter(self) -> Value | None:
        """The output that says how many rounds there were, if one does."""
        counted = self.test is not None and self.length is not None
        return self.outputs[len(self.carry)] if counted else None

    @property
    def results(self) -> Sequence[Value]:
        """The outputs of which each round makes a row."""
        return self.outputs[len(self.carry) + (self.counter is not None) :]


def add_loop(builder: PlanBuilder, loop: Loop) -> None:
    """Adds the draft of a loop."""
    body = builder.held(loop.body, len(loop.consts), len(loop.carry))
    asked = loop.test
    test = None if asked is None else builder.held(asked.program, 0, 0)
    ends, counter, results = loop.ends, loop.counter, loop.results
    stays = [output.role == "input" for output in body.outputs[: len(ends)]]
    for start, end, is_updated in zip(loop.carry, ends, stays, strict=True):
        if is_updated:
            builder.copy(end, start)
    spares = [None if s else Value(v.type) for v, s in zip(ends, stays, strict=True)]
    scratch = scratch_of(body) if test is None else scratch_of(body, test)
    answer = Value(ArrayType((), bool_))
    # A row is what a round reads or writes: one along the leading axis, or several.
    rounds = max(loop.length or 1, 1)
    held = [*loop.consts, *loop.carry, *loop.rows]
    held += [] if asked is None else asked.consts
    held += [] if loop.count is None else [loop.count]
    written = [*ends, *results, *[s for s in spares if s is not None], scratch, answer]
    written += [] if counter is None else [counter]

    def make(place: Callable[[Value], Place]) -> Step:
        def at(value: Value) -> Place:
            return place(base_of(value))

        def rows(values: Sequence[Value]) -> tuple[Rows, ...]:
            return tuple([Rows(at(value), value.nbytes // rounds) for value in values])

        carry = [
            Carry(at(start), at(end), None if spare is None else at(spare), end.nbytes)
            for start, end, spare in zip(loop.carry, ends, spares, strict=True)
        ]
        question = None
        if test is not None and asked is not None:
            question = Test(test, tuple(map(at, asked.consts)), at(answer))
        return LoopStep(
            body,
            consts=tuple(map(at, loop.consts)),
            carry=tuple(carry),
            rows=rows(loop.rows),
            results=rows(results),
            scratch=at(scratch),
            length=loop.length,
            reverse=loop.reverse,
            count=None if loop.count is None else at(loop.count),
            test=question,
            counter=None if counter is None else at(counter),
            full=loop.full,
        )

    reads = tuple([base_of(value) for value in held])
    builder.add_draft(Draft(reads, tuple(written), make))


def scratch_of(*plans: Plan) -> Value:
    """Memory for the arena of any of these plans, of which one runs at a time."""
    most = 0
    for plan in plans:
        if surely_at_most(most, plan.arena):
            most = plan.arena
        elif not surely_at_most(plan.arena, most):
            most += plan.arena  # either may be the larger one
    return Value(ArrayType((most,), uint8))
