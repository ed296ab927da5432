"""Reshaping of nests for GPUs: several loops as one, and loops that may run apart.

The threads of a group share one loop, so that a fold over several indices becomes one
over their row-major number, and the loops inside of a group's one loop.
Receives and gives nests; next on the walk: `grid.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from fnx.kernel.expr import (
    Expr,
    Fold,
    IndexExpr,
    LoopIndex,
    as_index_expr,
    terms_of,
    unravel,
)
from fnx.kernel.loops import Nest, Replacement, replaced
from fnx.kernel.table import ExprTable


def substituted(table: ExprTable, nest: Nest, values: Mapping[Expr, Expr]) -> Nest:
    """The nest with other expressions in the place of some."""
    done: dict[Expr, Expr] = dict(values)
    for expr in nest.exprs:
        if expr in done:
            continue
        children = tuple([done.get(child, child) for child in expr.children])
        done[expr] = (
            expr if children == expr.children else table.rebuilt(expr, children)
        )
    return nest.mapped(nest.domain, done)


def single_loops(table: ExprTable, nest: Nest) -> Nest:
    """The nest with each outer fold over one index: the number of what it combines."""
    domain = set(nest.domain)
    done: dict[Expr, Expr] = {}
    for expr in nest.exprs:
        children = tuple([done[child] for child in expr.children])
        if isinstance(expr, Fold) and len(expr.indices) > 1 and expr.free <= domain:
            index, mapping = _numbered(table, expr.indices)
            bodies = tuple(table.substitute(children, mapping))
            done[expr] = table.fold(expr.combine, (index,), bodies)
        elif children == expr.children:
            done[expr] = expr
        else:
            done[expr] = table.rebuilt(expr, children)
    return nest.mapped(nest.domain, done)


def one_inner_loop(table: ExprTable, nest: Nest, rows: tuple[LoopIndex, ...]) -> Nest:
    """The nest with its rows outermost, and one loop for all others of the domain."""
    inner = tuple(loop for loop in nest.domain if loop not in rows)
    ordered = Nest((*rows, *inner), nest.stores)
    if len(inner) < 2:
        return ordered
    index, mapping = _numbered(table, inner)
    first, *others = inner
    replacements = {first: Replacement(as_index_expr(mapping[first]), (index,))}
    replacements |= {loop: Replacement(mapping[loop], ()) for loop in others}
    return replaced(table, ordered, replacements)


def _numbered(
    table: ExprTable, loops: tuple[LoopIndex, ...]
) -> tuple[LoopIndex, dict[Expr, IndexExpr]]:
    """A loop over the row-major numbers of several loops, and what they are then."""
    extents = [loop.extent for loop in loops]
    count = 1
    for extent in extents:
        count *= extent
    index = table.loop((loops, "number"), count)
    assert isinstance(index, LoopIndex)
    return index, dict(zip(loops, unravel(index, extents), strict=True))


def separate_loops(nest: Nest) -> tuple[LoopIndex, ...]:
    """The loops of a domain of which every value stores to other elements.

    That is so where the offset is made like the number of an element in an array, of
    one index each: then it tells the values of all of them.
    """
    apart = [_told(store.offset) for store in nest.stores]
    carried = {loop for scan in nest.scans for loop in scan.indices}
    return tuple(
        loop
        for loop in nest.domain
        if loop not in carried and all(loop in told for told in apart)
    )


def _told(offset: IndexExpr) -> set[LoopIndex]:
    """The loops whose values an offset tells.

    The sum of the smaller terms is told where it is less than what all larger ones are
    multiples of; so is a term that is alone between two such sums.
    """
    changing = [(atom, abs(c)) for atom, c in terms_of(offset)[0] if atom.free]
    terms = sorted(changing, key=lambda term: term[1])
    told, reach, between = set[LoopIndex](), 0, list[IndexExpr]()
    for number, (atom, c) in enumerate(terms, 1):
        between.append(atom)
        reach += c * (atom.hi - atom.lo)
        unit = gcd(*(c for _, c in terms[number:]))
        if not unit or unit > reach:
            if len(between) == 1 and isinstance(atom, LoopIndex):
                told.add(atom)
            between = []
    return told
