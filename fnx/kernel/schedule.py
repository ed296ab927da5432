"""Placement: from the stores that a builder holds to the loop nest of a `Kernel`.

Every expression is computed in the outermost loop that determines it; a fold runs in a
loop of its own at the level of what it depends on, so that softmax is one kernel with
its folds under the row loop. Folds over the same indices that do not need each other
share a loop. `loops.py` has reshaped the loops before; `vectorize.py`, next on the
walk, chooses the vector loops. Of several orders of the outer loops the cheapest wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fnx.kernel.columns import in_blocks_of_rows
from fnx.kernel.expr import (
    Buffer,
    Expr,
    Fold,
    Linear,
    LoopIndex,
    Scan,
    depends_on_data,
    is_trivial,
    split_terms,
    stride,
    walk,
)
from fnx.kernel.ir import Eval, Kernel, Loop, Stmt, Store, local_buffers
from fnx.kernel.keep import along_rows, kept
from fnx.kernel.local import Locals
from fnx.kernel.loops import Nest, blocked_and_tiled, collapsed_loops, split_loops
from fnx.kernel.pieces import joined, pieces, unrolled
from fnx.kernel.printer import structural_key
from fnx.kernel.running import in_chunks
from fnx.kernel.table import ExprTable
from fnx.kernel.vectorize import vectorized

Schedule = Callable[
    [str, ExprTable, tuple[Buffer, ...], tuple[LoopIndex, ...], tuple[Store, ...]],
    Kernel,
]
"""How kernels are scheduled: `schedule`, or that of another kind of machine."""

REORDER = 1.5
"""How much cheaper another order must be than the given one, that of memory."""


def schedule(
    name: str,
    table: ExprTable,
    buffers: tuple[Buffer, ...],
    domain: tuple[LoopIndex, ...],
    stores: tuple[Store, ...],
) -> Kernel:
    """The kernel that does these stores for every index of the domain."""
    local = Locals()
    whole = split_loops(table, Nest(domain, stores))
    body = joined(
        _cheapest(table, along_rows(table, part), local)
        for chunk in in_chunks(table, whole, local)
        for piece in pieces(table, chunk)
        for nest in in_blocks_of_rows(table, collapsed_loops(table, piece), local)
        for part in _parts(table, nest)
    )
    kept_in = local_buffers(body)
    key = structural_key(buffers + kept_in, body)
    return Kernel(name, buffers, body, kept_in, key)


def _parts(table: ExprTable, nest: Nest) -> Iterator[Nest]:
    """The nest in blocks and tiles, without loops of very few rounds."""
    for part in blocked_and_tiled(table, nest):
        short = unrolled(table, part)
        if short is part:
            yield part
        else:
            yield from blocked_and_tiled(table, collapsed_loops(table, short))


def _cheapest(table: ExprTable, nest: Nest, local: Locals) -> tuple[Stmt, ...]:
    """The loop nest with vector loops for the order of its loops that costs least."""
    before = replace(local)
    cost, body = vectorized(kept(placed(table, nest, nest.domain), local))
    for order in _other_orders(nest):
        trial = replace(before, count=local.count)
        other = vectorized(kept(placed(table, nest, order), trial))
        local.count = trial.count
        if REORDER * other[0] < cost:
            cost, body = other
            local.room = trial.room
    return body


def _other_orders(nest: Nest) -> Iterator[tuple[LoopIndex, ...]]:
    """Orders of the outer loops that may be better: with another loop innermost.

    It must be one that some fold need not be repeated for, or that walks the stores'
    memory. Stores that meet at one element must run in the given order, and scans have
    the innermost loops.
    """
    if nest.scans or nest.across:
        return
    if any(s.combine or depends_on_data(s.offset) for s in nest.stores):
        return
    for index in nest.domain[:-1]:
        if any(index not in fold.free for fold in nest.folds) or any(
            stride(store.offset, index) == 1 for store in nest.stores
        ):
            yield (*(other for other in nest.domain if other is not index), index)


def placed(
    table: ExprTable, nest: Nest, order: tuple[LoopIndex, ...]
) -> tuple[Stmt, ...]:
    """The loop nest for one order of the outer loops, all of them serial.

    Each loop of the domain is the last statement of the one around it.
    """
    if not nest.stores:
        return ()
    root = scope = Scope(None, None)
    for index in order:
        scope = Scope(index, scope)
    _Placement(table, nest).fill(scope, nest.roots)
    scope.stmts.extend(nest.stores)
    while scope.parent is not None:
        scans = (scan for scan in nest.scans if scope.index in scan.indices)
        scope = scope.close((), tuple(scans), across=scope.index is nest.across)
    return tuple(root.stmts)


class Scope:
    """A loop that is being filled: its statements so far and what they compute.

    It joins its parent's statements when it is closed, so whatever an open scope needs
    from further out lands before it.
    """

    def __init__(self, index: LoopIndex | None, parent: Scope | None) -> None:
        self.index, self.parent = index, parent
        self.stmts: list[Stmt] = []
        self.ready: set[Expr] = set()
        outer = parent.indices if parent else frozenset[LoopIndex]()
        self.indices: frozenset[LoopIndex] = outer | {index} if index else outer

    def target(self, expr: Expr) -> Scope:
        """The outermost scope, from here on, that determines the expression."""
        scope = self
        while scope.parent is not None and scope.index not in expr.free:
            scope = scope.parent
        return scope

    def close(
        self,
        folds: tuple[Fold, ...],
        scans: tuple[Scan, ...] = (),
        across: bool = False,
    ) -> Scope:
        """Append the loop to the parent's statements; gives the parent."""
        assert self.index is not None and self.parent is not None
        stmts = tuple(self.stmts)
        loop = Loop(self.index, stmts, folds, scans=scans, across=across)
        self.parent.stmts.append(loop)
        return self.parent


class _Placement:
    """Puts expressions into scopes, and folds into loops of their own."""

    def __init__(self, table: ExprTable, nest: Nest) -> None:
        self.table = table
        self.rank: dict[Expr, int] = {}
        self.alike: dict[tuple[tuple[LoopIndex, ...], int], list[Fold]] = {}
        for expr in nest.exprs if nest.folds else ():
            rank = max((self.rank[child] for child in expr.children), default=0)
            if isinstance(expr, Fold):
                rank += 1
                self.alike.setdefault((expr.indices, rank), []).append(expr)
            self.rank[expr] = rank

    def fill(self, scope: Scope, roots: Sequence[Expr]) -> None:
        """Compute the roots in this scope, or as far out as they can be."""

        def enters(expr: Expr) -> bool:
            return not isinstance(expr, Fold) and expr not in scope.target(expr).ready

        for expr in walk(roots, enters):
            target = scope.target(expr)
            if expr in target.ready:
                continue
            if isinstance(expr, Fold):
                self._fold(scope, expr)
            else:
                self._eval(target, expr)

    def _eval(self, target: Scope, expr: Expr) -> None:
        target.ready.add(expr)
        if isinstance(expr, Linear) and target.index is not None:
            outer = self.table.add(*split_terms(expr.terms, (target.index,))[0])
            if isinstance(outer, Linear) and outer.terms:
                further = target.target(outer)
                if outer not in further.ready:
                    self._eval(further, outer)
        if not is_trivial(expr):
            target.stmts.append(Eval(expr))

    def _fold(self, scope: Scope, fold: Fold) -> None:
        """Run the fold, and those like it that may share its loop."""
        target = scope.target(fold)
        group = tuple(
            other
            for other in self.alike[fold.indices, self.rank[fold]]
            if other.free <= target.indices
            and scope.target(other) is target
            and other not in target.ready
        )
        inner = target
        for index in fold.indices:
            inner = Scope(index, inner)
        self.fill(inner, [body for each in group for body in each.bodies])
        while inner is not target:
            inner = inner.close(group)
        target.ready.update(group)
