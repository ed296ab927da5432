"""While loops that record, so that what is not known before runs afterwards.

Reverse mode needs what every round has computed, and nobody knows before how many there
will be: the known part of a loop *records* rows for at most `capacity` rounds and
counts them, in memory that costs nothing until it is written; the rest is a counted
scan over those rows, and is transposed as one. Receives equations, gives the parts of
them. Next on the walk: `while_loop.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fnx import errors
from fnx.control.call import Parts, chosen
from fnx.control.held import equation_like, new_vars, others, parted, settled
from fnx.control.keep import Keep, Kept, flat
from fnx.control.rounds import (
    KnownRounds,
    Shape,
    invariants_before,
    known_carry,
    live_carry,
    stacked,
)
from fnx.control.scan import scan
from fnx.core.program import Eqn, Program
from fnx.core.simplify import needed_inputs
from fnx.core.types import ArrayType, array_type
from fnx.dtypes import int32
from fnx.records import record
from fnx.transforms.rewrite import Mask
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


def split_while(eqn: Eqn, known: Mask) -> Parts | None:
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


def kept_while(eqn: Eqn, used: Sequence[bool], keep: Keep) -> Kept | None:
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
