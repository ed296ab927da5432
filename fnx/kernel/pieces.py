"""Cuts a domain in pieces, so that conditions on its indices need not be tested.

Padding, concatenation and updates of slices ask for every element on which side of a
bound its index lies. Where the index crosses the bound at one place of a loop, the loop
is cut there: in each piece the condition is constant, and its branch, the mask of its
loads and often a whole operand are gone. Pieces of which the outer loop is the same run
side by side in it, so that each part of memory is walked once.

Receives a nest whose loops `loops.py` has split, gives nests and, when they have been
placed, joins their statements. Next on the walk: `schedule.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import prod

from fnx import dtypes
from fnx.kernel.expr import (
    Const,
    Expr,
    Inside,
    LoopIndex,
    Op,
    depends_on_data,
    stride,
)
from fnx.kernel.ir import Eval, Loop, Stmt
from fnx.kernel.loops import Nest
from fnx.kernel.table import ExprTable
from fnx.sizes import surely_at_most, usual

LEAST = 8192
"""The elements of a domain that is worth cutting."""

MOST = 64
"""The number of pieces at most."""

MOST_CODE = 400
"""The expressions of all pieces together at most, unless they are fewer than before."""

MOST_WORK = 20_000
"""The expressions that cutting one loop may look at."""

FEW = 4
"""The rounds of an innermost loop that is unrolled."""

NARROW = 32
"""The innermost loop is not cut into pieces which all are narrower."""


def pieces(table: ExprTable, nest: Nest) -> list[Nest]:
    """Nests that together do what this one does, with fewer conditions to test."""
    if usual(prod(loop.extent for loop in nest.domain)) < LEAST:
        return [nest]
    if any(store.combine or depends_on_data(store.offset) for store in nest.stores):
        return [nest]  # they run in the order of the domain
    done, pending, before = list[Nest](), [nest], len(nest.exprs)
    while pending:
        nest = pending.pop()
        parts = _cut(table, nest)
        too_many = len(done) + len(pending) + len(parts) > MOST
        code = sum(len(part.exprs) for part in (*done, *pending, *parts))
        if len(parts) == 1 or too_many or code > max(MOST_CODE, 2 * before):
            done.append(nest)
        else:
            pending += reversed(parts)
    return done


def unrolled(table: ExprTable, nest: Nest) -> Nest:
    """The nest without an innermost loop of a few rounds, each of them in a row.

    Done where it walks the stores' memory: what they write is then interleaved.
    """
    *outer, loop = nest.domain or (None,)
    if not outer or loop is None or not 2 <= usual(loop.extent) <= FEW or nest.scans:
        return nest
    if nest.folds or len(nest.exprs) * loop.extent > MOST_CODE:
        return nest
    if any(s.combine or s.mask or stride(s.offset, loop) != 1 for s in nest.stores):
        return nest
    if any(stride(s.offset, outer[-1]) != loop.extent for s in nest.stores):
        return nest
    rounds = [_part(table, nest, loop, n, n + 1) for n in range(loop.extent)]
    stores = tuple(store for each in rounds for store in each.stores)
    return Nest(tuple(outer), stores)


def _cut(table: ExprTable, nest: Nest) -> list[Nest]:
    """The parts of the outermost loop that has points to cut at; the nest if none."""
    conditions = [expr for expr in nest.exprs if isinstance(expr, Inside)]
    carried = {loop for scan in nest.scans for loop in scan.indices}
    loops = [loop for loop in nest.domain if loop not in carried]
    for loop in loops if conditions else ():
        bounds = _bounds(loop, conditions, loop is nest.domain[-1])
        work = (len(bounds) - 1) * len(nest.exprs)
        if 2 < len(bounds) <= MOST + 1 and work <= MOST_WORK:
            return [_part(table, nest, loop, *ends) for ends in pairwise(bounds)]
    return [nest]


def _bounds(loop: LoopIndex, conditions: Iterable[Inside], last: bool) -> list[int]:
    """Where the pieces of a loop begin and end."""
    found = {0, loop.extent}
    for condition in conditions:
        if loop in condition.free:
            found.update(_crossings(loop, condition, 0))
            found.update(_crossings(loop, condition, condition.extent))
    inside = [
        p for p in found if surely_at_most(0, p) and surely_at_most(p, loop.extent)
    ]
    bounds = sorted(inside, key=usual)
    # That is their order if it is so for any size.
    ordered = all(surely_at_most(*ends) for ends in pairwise(bounds))
    widest = max(usual(end - begin) for begin, end in pairwise(bounds))
    whole = not ordered or (last and widest < NARROW)
    return [0, loop.extent] if whole else bounds


def _crossings(loop: LoopIndex, condition: Inside, bound: int) -> Iterator[int]:
    """Where the index comes to be at least (or below) the bound, first and last.

    What else the index depends on makes them two. Nothing if they are far apart.
    """
    index = condition.index
    step = stride(index, loop)
    if not isinstance(step, int) or step == 0:
        return
    lo, hi = index.lo, index.hi
    reach = abs(step) * (loop.extent - 1)
    # the range of all but the loop's own term, with the loop at 0
    lo, hi = (lo, hi - reach) if step > 0 else (lo + reach, hi)
    if step > 0:
        first, last = -((hi - bound) // step), -((lo - bound) // step)
    else:
        first, last = (lo - bound) // -step + 1, (hi - bound) // -step + 1
    if first == last or surely_at_most(4 * (last - first), loop.extent):
        yield first
        yield last


# ---------------------------------------------------------------- one piece


def _part(table: ExprTable, nest: Nest, loop: LoopIndex, begin: int, end: int) -> Nest:
    """The nest for some of the values of a loop."""
    index = table.loop((loop.tag, "from", begin), end - begin)
    done: dict[Expr, Expr] = {loop: index + begin}
    for expr in nest.exprs:
        if expr in done:
            continue
        if loop in expr.free or any(done[c] is not c for c in expr.children):
            done[expr] = _rebuilt(table, expr, [done[c] for c in expr.children])
        else:
            done[expr] = expr
    places = (index if other is loop else other for other in nest.domain)
    return nest.mapped(tuple(i for i in places if isinstance(i, LoopIndex)), done)


def _rebuilt(table: ExprTable, expr: Expr, children: Sequence[Expr]) -> Expr:
    """The expression over other children; what conditions decide is decided."""
    if isinstance(expr, Op):
        decided = _decided(table, expr.name, children)
        if decided is not None:
            return decided
    return table.rebuilt(expr, children)


def _decided(table: ExprTable, name: str, args: Sequence[Expr]) -> Expr | None:
    """The value of an operation on booleans, where constants tell."""
    if name == "select" and isinstance(args[0], Const):
        return args[1] if args[0].value else args[2]
    if args[0].dtype is not dtypes.bool_:
        return None
    if name == "not" and isinstance(args[0], Const):
        return table.constant(not args[0].value, dtypes.bool_)
    if name in ("and", "or"):
        for known, other in (args, args[::-1]):
            if isinstance(known, Const):
                return known if known.value == (name == "or") else other
    return None


# ---------------------------------------------------------------- joining statements


def joined(bodies: Iterable[tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """The statements of all pieces, each loop and each value once."""
    stmts = list[Stmt]()
    known = set[Expr]()
    for stmt in (stmt for body in bodies for stmt in body):
        if isinstance(stmt, Eval):
            if stmt.expr in known:
                continue
            known.add(stmt.expr)
        elif isinstance(stmt, Loop):
            if stmt.folds and known.issuperset(stmt.folds):
                continue
            known.update(stmt.folds)
            last = stmts[-1] if stmts else None
            if isinstance(last, Loop) and _alike(last, stmt):
                body = joined((last.body, stmt.body))
                stmts[-1] = Loop(last.index, body)
                continue
        stmts.append(stmt)
    return tuple(stmts)


def _alike(a: Loop, b: Loop) -> bool:
    """Whether two loops can be one: serial ones over the same index."""
    serial = a.width == b.width == 1
    return serial and a.index is b.index and not a.carried and not b.carried
