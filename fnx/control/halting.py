"""A loop that ends with the first round that makes what somebody looks for.

Receives a loop, and how to see whether arrays have it (a NaN, say); gives a program
that runs the loop like any other, and says which round made it of values without it,
and what that round was given. Next on the walk: `fnx/compiler/pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.control.check import row_of
from fnx.control.held import parted
from fnx.control.recording import Rounds
from fnx.control.while_loop import while_loop
from fnx.core.primitive import Looped
from fnx.core.program import Program
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.dtypes import bool_, int32
from fnx.ops.arithmetic import add, select, sub
from fnx.ops.elementwise import lt
from fnx.ops.parts import and_, not_
from fnx.ops.shape import broadcast_in_dim, full, scalar
from fnx.transforms.rewrite import rewrite

Has = Callable[[Sequence[Any]], Any]
"""Whether any of several traced arrays has it: a bool scalar."""


def halting_program(loop: Looped, has: Has) -> Program:
    """The program over the count (an int32), tests, consts, carry and xs of a loop.

    It gives whether there is such a round, its number (that of its row, if there are
    rows), and what the body is given in it. A loop with a test has a count of 0.
    """
    sizes = 1 + len(loop.tests), len(loop.consts), len(loop.xs), len(loop.carry)
    rows = _Rows(loop, has)
    held, consts, xs, carry = parted(_types(loop), *sizes)[:4]
    state = [ArrayType((), bool_), ArrayType((), int32), *carry]

    def run(*operands: Any) -> list[Any]:
        asked, fixed, stacks, start = parted(operands, *sizes)[:4]
        given = [asked[0], *fixed, *stacks]
        found, number, *now = while_loop(
            *asked,
            *given,
            *[full((), bool_, False), full((), int32, 0), *start],
            test=rewrite(rows.goes_on, [*held, *state], "halting", loop.body),
            body=rewrite(
                rows.one_round,
                [held[0], *consts, *xs, *state],
                "halting",
                loop.body,
            ),
            shape=Rounds(tests=len(asked), consts=len(given)),
        )
        at = rows.place(asked[0], number)
        return [found, at, *fixed, *now, *rows.at(stacks, at)]

    return rewrite(run, [*held, *consts, *xs, *carry], "halting", loop.body)


def halting_operands(loop: Looped, count: Any) -> list[Any]:
    """What that program takes."""
    return [count, *loop.tests, *loop.consts, *loop.xs, *loop.carry]


def _types(loop: Looped) -> list[ArrayType]:
    """The types of what that program takes."""
    types = loop.body.input_types
    consts, carry, rows = parted(types, len(loop.consts), len(loop.carry))
    lengths = [x.shape[0] for x in loop.xs]
    pairs = zip(rows, lengths, strict=True)
    xs = [type.with_shape((length, *type.shape)) for type, length in pairs]
    tests = () if loop.test is None else loop.test.input_types[: len(loop.tests)]
    return [ArrayType((), int32), *tests, *consts, *xs, *carry]


class _Rows:
    """The rounds of a loop that ends early, written out."""

    def __init__(self, loop: Looped, has: Has) -> None:
        self.loop = loop
        self.has = has

    def place(self, count: Any, number: Any) -> Any:
        """Which row a round takes."""
        if not self.loop.reverse:
            return number
        return sub(sub(count, number), scalar(1, int32))

    def at(self, stacks: Sequence[Any], place: Any) -> list[Any]:
        """The rows of a round."""
        return [row_of(x, place) for x in stacks]

    def goes_on(self, count: Any, *rest: Any) -> list[Any]:
        """Whether nothing is found, and there is one more round."""
        tests, (found, number, *carry) = parted(rest, len(self.loop.tests))
        more = lt(number, count)
        if self.loop.test is not None:
            (more,) = evaluate(self.loop.test, [*tests, *carry])
        return [and_(not_(found), more)]

    def one_round(self, count: Any, *rest: Any) -> list[Any]:
        """The next state; that of before, if this is the round."""
        sizes = len(self.loop.consts), len(self.loop.xs)
        consts, stacks, (_, number, *carry) = parted(rest, *sizes)
        rows = self.at(stacks, self.place(count, number))
        operands = [*consts, *carry, *rows]
        results = evaluate(self.loop.body, operands)
        found = and_(self.has(results), not_(self.has(operands)))
        ends = results[: len(carry)]
        after = [add(number, scalar(1, int32)), *ends]
        before = [number, *carry]
        pairs = zip(before, after, strict=True)
        return [found, *[select(_like(found, x), x, y) for x, y in pairs]]


def _like(flag: Any, x: Any) -> Any:
    return broadcast_in_dim(flag, shape=x.shape, dims=()) if x.shape else flag
