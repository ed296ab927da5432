"""Values that several loops over one row need: computed once and kept in a local row.

Softmax needs exp(x - max) in the loop that sums it and again in the loop that divides
it. `along_rows` lets folds over rows use the index of the domain's row, so that such
values are the same expression; `kept` then has the first loop store them in a local
buffer and the later ones recall them, where that is less work than computing them
again (on a GPU, than reading them again, too). Receives and gives nests and placed
statements; next on the walk: `vectorize.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fnx import dtypes
from fnx.kernel.expr import Buffer, Expr, Fold, IndexExpr, LoopIndex, Op, walk
from fnx.kernel.ir import Eval, Loop, Recall, Stmt, Store
from fnx.kernel.local import Locals
from fnx.kernel.loops import Nest
from fnx.kernel.table import ExprTable
from fnx.kernel.vectorize import Body, scalar_cost
from fnx.records import record

WORTH = 5.0
"""Values that cost more than this are kept: more than storing and reading them."""


# ---------------------------------------------------------------- one index for rows


def along_rows(table: ExprTable, nest: Nest) -> Nest:
    """The nest with folds over whole rows of the domain under the domain's indices."""
    renamed = {fold: _row_of(nest, fold) for fold in nest.folds}
    if not any(renamed.values()):
        return nest
    done: dict[Expr, Expr] = {}
    for expr in nest.exprs:
        children: Sequence[Expr] = tuple(done[child] for child in expr.children)
        row = renamed.get(expr) if isinstance(expr, Fold) else None
        if isinstance(expr, Fold) and row:
            mapping: dict[Expr, IndexExpr] = dict(zip(expr.indices, row, strict=True))
            bodies = tuple(table.substitute(children, mapping))
            done[expr] = table.fold(expr.combine, row, bodies)
        elif children == expr.children:
            done[expr] = expr
        else:
            done[expr] = table.rebuilt(expr, children)
    return nest.mapped(nest.domain, done)


def _row_of(nest: Nest, fold: Fold) -> tuple[LoopIndex, ...]:
    """The last indices of the domain, if the fold may use them for its own."""
    row = nest.domain[-len(fold.indices) :]
    extents = [index.extent for index in fold.indices]
    if extents != [index.extent for index in row] or not fold.free.isdisjoint(row):
        return ()
    own = set(fold.indices)
    inner = (expr for expr in walk(fold.bodies) if isinstance(expr, Fold))
    return row if all(own.isdisjoint(expr.free) for expr in inner) else ()


# ---------------------------------------------------------------- keeping values


@record
class Costs:
    """What it costs to compute an expression from its operands, and what is kept."""

    of: Callable[[Expr], float]
    kept: tuple[type[Expr], ...]


_CPU = Costs(scalar_cost, (Op,))


def kept(body: Body, local: Locals, costs: Costs = _CPU) -> Body:
    """The statements, with costly values of sibling loops computed in the first."""
    siblings: dict[LoopIndex, list[Loop]] = {}
    new: dict[Stmt, Stmt] = {}
    for stmt in body:
        if isinstance(stmt, Loop):
            if any(isinstance(inner, Loop) for inner in stmt.body):
                new[stmt] = replace(stmt, body=kept(stmt.body, local, costs))
            else:
                siblings.setdefault(stmt.index, []).append(stmt)
    for loops in siblings.values():
        if len(loops) > 1:
            new.update(zip(loops, _Row(loops, local, costs).loops(), strict=True))
    return tuple([new.get(stmt, stmt) for stmt in body])


class _Row:
    """Loops over the same row, one after the other, and which values they keep."""

    def __init__(self, loops: list[Loop], local: Locals, costs: Costs) -> None:
        self.given, self.costs = loops, costs
        self.index = loops[0].index
        self.first: dict[Expr, int] = {}
        for number, loop in enumerate(loops):
            for expr in _computed(loop):
                self.first.setdefault(expr, number)
        self.buffers: dict[Expr, Buffer] = {}
        self.recalled: set[Expr] = set()
        self._choose(local)

    def _choose(self, local: Locals) -> None:
        """Choose what is kept: of all that a later loop needs, what is costly still."""
        shared = set[Expr]()
        for number, loop in enumerate(self.given):
            new = [e for e in _computed(loop) if self.first[e] == number]
            used = [child for expr in new for child in expr.children]
            used += _roots(loop)
            shared.update(e for e in used if self.first.get(e, number) < number)
        for expr in sorted(shared, key=lambda expr: expr.order):
            plain = isinstance(expr, self.costs.kept) and expr.dtype is not dtypes.bool_
            if plain and self._cost(expr) > WORTH:
                buffer = local.row(expr.dtype, self.index.extent)
                if buffer is not None:
                    self.buffers[expr] = buffer

    def _cost(self, expr: Expr) -> float:
        """What it costs to compute a value of a loop from what is kept so far."""
        needed = walk((expr,), lambda e: e in self.first and e not in self.buffers)
        computed = (e for e in needed if e in self.first and e not in self.buffers)
        return sum(self.costs.of(e) for e in computed)

    def loops(self) -> list[Loop]:
        """The loops, where later ones recall what earlier ones keep."""
        bodies = [self._recalling(n, loop) for n, loop in enumerate(self.given)]
        return [
            replace(loop, body=tuple(self._keeping(n, body)))
            for n, (loop, body) in enumerate(zip(self.given, bodies, strict=True))
        ]

    def _recalling(self, number: int, loop: Loop) -> list[Stmt]:
        """The body of a loop with what it needs only, recalled where that is kept."""

        def enters(expr: Expr) -> bool:
            return expr in self.first and not self._is_kept(expr, number)

        needed = set(walk(_roots(loop), enters))
        stmts = list[Stmt]()
        for stmt in loop.body:
            if not isinstance(stmt, Eval):
                stmts.append(stmt)
            elif stmt.expr in needed:
                if self._is_kept(stmt.expr, number):
                    self.recalled.add(stmt.expr)
                    buffer = self.buffers[stmt.expr]
                    stmts.append(Recall(stmt.expr, buffer, self.index))
                else:
                    stmts.append(stmt)
        return stmts

    def _is_kept(self, expr: Expr, number: int) -> bool:
        return expr in self.buffers and self.first[expr] < number

    def _keeping(self, number: int, body: list[Stmt]) -> Iterator[Stmt]:
        """The body of a loop, with stores of what later loops recall."""
        for stmt in body:
            yield stmt
            expr = stmt.expr if isinstance(stmt, Eval) else None
            if expr in self.recalled and self.first[expr] == number:
                yield Store(self.buffers[expr], self.index, expr)


def _computed(loop: Loop) -> list[Expr]:
    return [stmt.expr for stmt in loop.body if isinstance(stmt, Eval)]


def _roots(loop: Loop) -> list[Expr]:
    """What a loop computes its values for: its folds and its stores."""
    roots = [body for fold in loop.folds for body in fold.bodies]
    for stmt in loop.body:
        if isinstance(stmt, Store):
            each = (stmt.offset, stmt.value, stmt.mask)
            roots += [expr for expr in each if expr is not None]
    return roots
