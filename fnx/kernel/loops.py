"""Reshaping of loops before placement: split, collapse, and block.

Each is a substitution of loop indices, after which index arithmetic simplifies by its
normal form. A loop whose index is only looked at through `i // n` and `i % n` is split;
two nested loops that every offset walks as one become one; long floating-point sums
become sums of sums over blocks, whose error grows with the square root of what it was,
and so do other folds over everything, whose blocks threads may share; transpositions
are tiled.
Receives and gives the domain and the stores; next on the walk: `schedule.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from math import prod

from fnx import dtypes
from fnx.kernel.expr import (
    Expr,
    FloorDiv,
    Fold,
    IndexExpr,
    IndexValue,
    Inside,
    Load,
    LoopIndex,
    Mod,
    Part,
    Scan,
    as_index_expr,
    stride,
    terms_of,
    walk,
)
from fnx.kernel.ir import Store
from fnx.kernel.table import ExprTable
from fnx.records import record
from fnx.sizes import Size, usual


class Nest:
    """Stores that run for every index of a domain, and all that they compute."""

    def __init__(
        self,
        domain: tuple[LoopIndex, ...],
        stores: tuple[Store, ...],
        across: LoopIndex | None = None,
    ) -> None:
        self.domain, self.stores, self.across = domain, stores, across
        self.roots = [
            root
            for store in stores
            for root in (store.offset, store.value, store.mask)
            if root is not None
        ]
        self.exprs = walk(self.roots)
        self.folds = [expr for expr in self.exprs if isinstance(expr, Fold)]
        self.scans = [expr for expr in self.exprs if isinstance(expr, Scan)]

    def mapped(self, domain: tuple[LoopIndex, ...], done: dict[Expr, Expr]) -> Nest:
        """The nest with other expressions in place of all that it has."""
        stores = (
            replace(
                store,
                offset=as_index_expr(done[store.offset]),
                value=done[store.value],
                mask=None if store.mask is None else done[store.mask],
            )
            for store in self.stores
        )
        across = self.across if self.across in domain else None
        return Nest(domain, tuple(stores), across)


BLOCK = 4096
"""A sum of more than twice as many floats is made of sums over blocks of about this."""

_BLOCKS, _STEPS = "block", "step"
"""What the tags of loops over blocks, and in them, have in them."""

LONG = 16
"""Loops at least so long are tiled where they transpose."""

MOST_CODE = 400
"""The expressions of all the rows of a square at most, which are printed in a row."""

REGISTER = 32
"""Bytes of a vector register; the same on every machine, so that sums are too."""


def split_loops(table: ExprTable, nest: Nest) -> Nest:
    """The nest with those loops split whose index is divided."""
    while replacements := _split(table, nest):
        nest = replaced(table, nest, replacements)
    return nest


def collapsed_loops(table: ExprTable, nest: Nest) -> Nest:
    """A nest of split loops with those made one whose memory lies in a row."""
    while replacements := _collapse(table, nest):
        nest = replaced(table, nest, replacements)
    return nest


def blocked_and_tiled(table: ExprTable, nest: Nest) -> list[Nest]:
    """The nest with long sums in blocks, and transpositions in tiles."""
    while (blocked := _blocked(table, nest)) is not None:
        nest = blocked
    return _tiled(table, nest)


# ---------------------------------------------------------------- replacing loops


@record
class Replacement:
    """What stands for a loop index, and which loops run in place of its loop."""

    index: IndexExpr
    loops: tuple[LoopIndex, ...]


Replacements = dict[LoopIndex, Replacement]


def replaced(table: ExprTable, nest: Nest, replacements: Replacements) -> Nest:
    """The nest with the replacements made everywhere, in folds too."""
    done: dict[Expr, Expr] = {i: r.index for i, r in replacements.items()}

    def loops(indices: tuple[LoopIndex, ...]) -> tuple[LoopIndex, ...]:
        each = (replacements[i].loops if i in replacements else (i,) for i in indices)
        return tuple(loop for part in each for loop in part)

    for expr in nest.exprs:
        if expr in done:
            continue
        children = tuple(done[child] for child in expr.children)
        if isinstance(expr, Fold):
            done[expr] = table.fold(expr.combine, loops(expr.indices), children)
        elif isinstance(expr, Scan):
            done[expr] = table.scan(expr.combine, loops(expr.indices), children[0])
        elif children == expr.children:
            done[expr] = expr
        else:
            done[expr] = table.rebuilt(expr, children)
    return nest.mapped(loops(nest.domain), done)


def _loop(table: ExprTable, tag: tuple[object, ...], extent: int) -> LoopIndex:
    index = table.loop(tag, extent)
    assert isinstance(index, LoopIndex)
    return index


# ---------------------------------------------------------------- split and collapse


def _split(table: ExprTable, nest: Nest) -> Replacements:
    """Loops whose index is divided by a divisor of their extent (the largest)."""
    divisors: dict[LoopIndex, int] = {}
    for expr in nest.exprs:
        if isinstance(expr, FloorDiv | Mod) and isinstance(expr.index, LoopIndex):
            index, n = expr.index, expr.divisor
            if index.extent % n == 0 and n > divisors.get(index, 1):
                divisors[index] = n
    replacements: Replacements = {}
    for index, n in divisors.items():
        outer = _loop(table, (index.tag, "outer", n), index.extent // n)
        inner = _loop(table, (index.tag, "inner", n), n)
        replacements[index] = Replacement(outer * n + inner, (outer, inner))
    return replacements


def _collapse(table: ExprTable, nest: Nest) -> Replacements:
    """The first pair of nested loops that every index walks as one loop."""
    folded = [fold.indices for fold in nest.folds]
    scanned = [scan.indices for scan in nest.scans]
    chains = dict.fromkeys((nest.domain, *folded, *scanned))
    pairs = dict.fromkeys(p for chain in chains for p in itertools.pairwise(chain))
    if not pairs:
        return {}
    indices = [dict(terms_of(index)[0]) for index in _indices(nest)]
    for outer, inner in pairs:
        alike = all(
            terms.get(outer, 0) == terms.get(inner, 0) * inner.extent
            for terms in indices
        )
        if alike and all(_together(outer, inner, chain) for chain in chains):
            extent = outer.extent * inner.extent
            loop = _loop(table, (outer.tag, inner.tag), extent)
            return {
                outer: Replacement(loop // inner.extent, (loop,)),
                inner: Replacement(loop % inner.extent, ()),
            }
    return {}


def _indices(nest: Nest) -> Iterator[IndexExpr]:
    """Every index expression that something other than a sum uses."""
    for expr in nest.exprs:
        if isinstance(expr, Load | FloorDiv | Mod | Inside | IndexValue):
            yield as_index_expr(expr.children[0])
    for store in nest.stores:
        yield store.offset


def _together(outer: LoopIndex, inner: LoopIndex, chain: tuple[LoopIndex, ...]) -> bool:
    """Whether a chain has the two loops one right inside the other, or neither."""
    if outer not in chain:
        return inner not in chain
    place = chain.index(outer) + 1
    return chain[place : place + 1] == (inner,)


# ---------------------------------------------------------------- tiles


def _tiled(table: ExprTable, nest: Nest) -> list[Nest]:
    """The nest with a few steps of an outer loop inside of the innermost one.

    Done where the innermost loop walks the stores' memory and the outer one that of a
    load (a transposition): squares of elements are then read as rows, whichever of the
    two loops the rows lie along. What no square covers is a nest of its own.
    """
    *_, inner = nest.domain or (None,)
    if inner is None or nest.folds or nest.scans:
        return [nest]
    if any(s.combine or stride(s.offset, inner) != 1 for s in nest.stores):
        return [nest]
    loads = [expr for expr in nest.exprs if isinstance(expr, Load)]
    for outer in nest.domain[:-1]:
        crossing = [x for x in loads if _is_transposed(x.offset, outer, inner)]
        # Squares of rows of which nobody knows how many there are would need others
        # for the rest, whatever that is.
        if crossing and not isinstance(outer.extent, Size) and outer.extent >= LONG:
            sizes = [expr.dtype.itemsize for expr in nest.exprs if _is_value(expr)]
            sizes += [store.buffer.dtype.itemsize for store in nest.stores]
            size = REGISTER // max(sizes)
            while size > min(outer.extent, usual(inner.extent)):
                size //= 2
            if outer.extent >= 8 * size or outer.extent % (2 * size) == 0:
                size *= 2  # whole cache lines
            return _squares(table, nest, outer, size) if size > 1 else [nest]
    return [nest]


def _is_value(expr: Expr) -> bool:
    return not isinstance(expr, IndexExpr)


def _squares(table: ExprTable, nest: Nest, outer: LoopIndex, size: int) -> list[Nest]:
    """A nest of squares of so many rows, and one of the rows that are left."""
    whole = outer.extent // size
    tile = table.loop((outer.tag, "tile", size), whole)
    step = _loop(table, (outer.tag, "step", size), size)
    loops = (tile,) if isinstance(tile, LoopIndex) else ()
    replacement = Replacement(tile * size + step, loops)
    tiled = replaced(table, nest, {outer: replacement})
    across = step if len(nest.exprs) * size <= MOST_CODE else None
    nests = [Nest((*tiled.domain, step), tiled.stores, across)]
    if rest := outer.extent - whole * size:
        row = table.loop((outer.tag, "rest", rest), rest)
        loops = (row,) if isinstance(row, LoopIndex) else ()
        replacement = Replacement(row + whole * size, loops)
        nests.append(replaced(table, nest, {outer: replacement}))
    return nests


def _is_transposed(offset: IndexExpr, outer: LoopIndex, inner: LoopIndex) -> bool:
    """Whether only the outer one of two long loops walks this memory in order."""
    step = stride(offset, inner)
    if isinstance(step, Size) or step is None:
        return False
    far = abs(step) > 1 and usual(inner.extent) >= LONG
    return far and stride(offset, outer) in (1, -1)


# ---------------------------------------------------------------- blocked folds


def _blocked(table: ExprTable, nest: Nest) -> Nest | None:
    """The nest with long folds blocked once more; None where none is long.

    Other folds over the same loops are blocked too, so that they share them still.
    """
    long = {fold.indices for fold in nest.folds if _is_long(fold)}
    if not long:
        return None
    done: dict[Expr, Expr] = {}
    for expr in nest.exprs:
        children = tuple(done[child] for child in expr.children)
        if isinstance(expr, Part) and expr.fold.indices in long:
            done[expr] = _blocked_part(table, children[0], expr.number)
        elif children == expr.children:
            done[expr] = expr
        else:
            done[expr] = table.rebuilt(expr, children)
    return nest.mapped(nest.domain, done)


def _is_long(fold: Fold) -> bool:
    """Whether blocks make a fold more exact, or so long that threads may share it.

    Those of a sum whose length is not known yet are, if it has none.
    """
    length = prod(index.extent for index in fold.indices)
    floats = any(dtypes.is_float(body.dtype) for body in fold.bodies)
    if isinstance(length, Size):
        first, *others = [index.extent for index in fold.indices]
        known = isinstance(prod(others), int) and isinstance(first, Size)
        return fold.combine == "add" and floats and known and not _in_blocks(fold)
    inexact = fold.combine == "add" and floats and length > 2 * BLOCK
    shared = not fold.free and length > 16 * BLOCK
    return inexact or (shared and _has_blocks(fold))


def _in_blocks(fold: Fold) -> bool:
    """Whether a fold is over blocks, or what remains of them."""
    tags = [index.tag for index in fold.indices]
    return any(isinstance(tag, tuple) and tag[1] in (_BLOCKS, _STEPS) for tag in tags)


def _has_blocks(fold: Fold) -> bool:
    """Whether blocks can make up the fold; its parts must not depend on each other."""
    return not fold.joint or _blocks(fold)[2] == 0


def _blocks(fold: Fold) -> tuple[int, int, int]:
    """Steps of the first loop in a block, how many blocks, and the steps left."""
    first, *inner = fold.indices
    size = _block_size(first.extent, prod(index.extent for index in inner))
    return size, *divmod(first.extent, size)


def _blocked_part(table: ExprTable, fold: Expr, number: int) -> Expr:
    """One value of a fold, as a fold over blocks and perhaps one over what remains."""
    assert isinstance(fold, Fold)
    if not _has_blocks(fold):
        return table.part(fold, number)
    size, blocks, rest = _blocks(fold)
    block = _loop(table, (fold.indices[0].tag, _BLOCKS, size), blocks)
    whole = section(table, fold, block * size, size)
    total = table.part(table.fold(fold.combine, (block,), whole), number)
    if rest == 0:
        return total
    remainder = section(table, fold, table.number(blocks * size), rest)
    return table.op(fold.combine, (total, remainder[number]), total.dtype)


def _block_size(extent: int, inner: int) -> int:
    """How many steps of a fold's first loop a block has: a divisor if one is near."""
    target = max(BLOCK // inner, 1)
    step = 32 if target >= 64 else 1  # whole vectors
    if isinstance(extent, Size):
        return target // step * step
    near = range(max(target // 2 // step, 1) * step, 2 * target + 1, step)
    divisors = [size for size in near if extent % size == 0]
    return min(divisors, key=lambda size: abs(size - target), default=target)


def section(
    table: ExprTable,
    fold: Fold,
    start: IndexExpr,
    size: int | Size,
    steps: str = _STEPS,
) -> tuple[Expr, ...]:
    """The values of the fold over `size` steps of its first loop from `start` on.

    `steps` is what the loop's tag has in it.
    """
    first, *inner = fold.indices
    step = table.loop((first.tag, steps, size), size)
    bodies = tuple(table.substitute(fold.bodies, {first: start + step}))
    loops = (step, *inner) if isinstance(step, LoopIndex) else tuple(inner)
    if not loops:
        return bodies
    section = table.fold(fold.combine, loops, bodies)
    return tuple(table.part(section, number) for number in range(len(bodies)))
