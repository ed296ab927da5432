"""How a scan runs: round by round, several rounds written out, or with checkpoints.

Receives the program of a round, the carry and the rows, and a `Pace`; gives the last
carry and the stacked rows. Both ways of taking several rounds at once make a loop over
groups of rows, and a rest for the rows that are left over at the end of the way.
Next on the walk: `steady.py`, which traces the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fnx import errors
from fnx.control.held import parted
from fnx.control.remat import Rule, remat
from fnx.control.rounds import Shape
from fnx.control.scan import scan
from fnx.core.program import Program
from fnx.core.simplify import simplify
from fnx.core.trace import evaluate, trace
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import reshape
from fnx.records import record


@record
class Body:
    """What a round computes: its program takes what it `captured`, the carry, a row."""

    program: Program
    captured: tuple[Any, ...]


@record
class Pace:
    """How many rounds there are, `unroll` of them written out in one of the loop.

    With a `segment`, reverse mode keeps the carry after so many rounds only; a loop
    without checkpoints has the segment 0. What rounds make stays with them if they are
    `local` (see `Shape`).
    """

    length: int
    reverse: bool = False
    unroll: int = 1
    segment: int = 0
    local: bool = False


def unrolling(asker: str, unroll: int | bool, count: int) -> int:
    """How many rounds are written out in one round of the loop."""
    if unroll is True:
        return max(count, 1)
    if unroll is False:
        return 1
    number = unroll if isinstance(unroll, int) else 0
    if number < 1:
        raise errors.ArgumentError(
            f"{asker}: unroll must be a positive integer or a bool, got {unroll!r}"
        )
    return min(number, max(count, 1))


def segment(asker: str, checkpoint: int | str | None, count: int) -> int:
    """After how many rounds the carry is kept; 0 if everything is."""
    if checkpoint is None:
        return 0
    if checkpoint == "sqrt":
        return max(math.isqrt(count), 1)
    is_number = isinstance(checkpoint, int) and not isinstance(checkpoint, bool)
    number = int(checkpoint) if is_number else 0
    if number < 1:
        raise errors.ArgumentError(
            f"{asker}: checkpoint must be a positive integer, 'sqrt' or None, got "
            f"{checkpoint!r}"
        )
    return min(number, max(count, 1))


def run(body: Body, carry: Sequence[Any], rows: Sequence[Any], pace: Pace) -> list[Any]:
    """The last carry, then the stacked rows."""
    if pace.segment:
        return _in_groups(_again, _again, body, carry, rows, pace, pace.segment)
    if pace.unroll > 1:
        return _in_groups(_written_out, run, body, carry, rows, pace, pace.unroll)
    shape = Shape(
        len(body.captured), len(carry), pace.length, pace.reverse, local=pace.local
    )
    return list(scan(*body.captured, *carry, *rows, program=body.program, shape=shape))


Way = Callable[[Body, Sequence[Any], Sequence[Any], Pace], list[Any]]
"""A way to make some rounds: what `run` takes and gives."""


def _in_groups(
    way: Way,
    rest: Way,
    body: Body,
    carry: Sequence[Any],
    rows: Sequence[Any],
    pace: Pace,
    size: int,
) -> list[Any]:
    """A loop over groups of rows, each made by `way`; what is left over, by `rest`."""
    count, left = divmod(pace.length, size)
    many, whole = len(carry), count * size
    begin, end = (left, pace.length) if pace.reverse else (0, whole)
    groups = [
        reshape(part_of(x, 0, begin, end), shape=(count, size, *x.shape[1:]))
        for x in rows
    ]
    inside = replace(pace, length=size, segment=0)
    group = _group(way, body, carry, groups, inside)
    results = run(group, carry, groups, Pace(count, pace.reverse))
    stacks = [reshape(y, shape=(whole, *y.shape[2:])) for y in results[many:]]
    if not left:
        return [*results[:many], *stacks]
    begin, end = (0, left) if pace.reverse else (whole, pace.length)
    others = [part_of(x, 0, begin, end) for x in rows]
    inside = Pace(left, pace.reverse, 1 if rest is run else pace.unroll)
    last = rest(body, results[:many], others, inside)
    pairs = zip(stacks, last[many:], strict=True)
    ordered = [(b, a) if pace.reverse else (a, b) for a, b in pairs]
    return [*last[:many], *[concatenate(*pair, axis=0) for pair in ordered]]


def _group(
    way: Way, body: Body, carry: Sequence[Any], groups: Sequence[Any], pace: Pace
) -> Body:
    """The body of a loop whose rows are stacks of rows."""
    types = [x.type for x in (*body.captured, *carry)]
    stacks = [x.type.with_shape(x.shape[1:]) for x in groups]

    def make(*args: Any) -> list[Any]:
        captured, given, rows = parted(args, len(body.captured), len(carry))
        return way(replace(body, captured=captured), given, rows, pace)

    return replace(body, program=simplify(trace(make, [*types, *stacks]).program))


def _again(
    body: Body, carry: Sequence[Any], rows: Sequence[Any], pace: Pace
) -> list[Any]:
    """The rounds, which are made again for the backward pass."""
    operands = (*body.captured, *carry, *rows)

    def make(*args: Any) -> list[Any]:
        captured, given, stacks = parted(args, len(body.captured), len(carry))
        return run(replace(body, captured=captured), given, stacks, pace)

    program = simplify(trace(make, [x.type for x in operands]).program)
    rest = {"name": "rounds", "rule": Rule(), "again": False}
    return list(remat(*operands, program=program, **rest))


def _written_out(
    body: Body, carry: Sequence[Any], rows: Sequence[Any], pace: Pace
) -> list[Any]:
    """The rounds one after the other, without a loop."""
    many = len(carry)
    found: dict[int, list[Any]] = {}
    order = range(pace.length)
    for n in reversed(order) if pace.reverse else order:
        xs = [reshape(part_of(x, 0, n, n + 1), shape=x.shape[1:]) for x in rows]
        results = evaluate(body.program, [*body.captured, *carry, *xs])
        carry, found[n] = results[:many], results[many:]
    columns = zip(*[found[n] for n in order], strict=True)
    stacks = [
        concatenate(*[reshape(y, shape=(1, *y.shape)) for y in column], axis=0)
        for column in columns
    ]
    return [*carry, *stacks]
