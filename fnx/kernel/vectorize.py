"""The choice of vector loops: which loop of each nest has lanes, and how many.

At most one loop of a chain of nested loops is a vector loop. The cheapest choice is
taken by a rough count of instructions, in which contiguous loads and stores cost one
register each and all others one instruction a lane. Receives placed statements, all
serial, and gives them with widths, and their cost; next on the walk: `check.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fnx import dtypes
from fnx.kernel.expr import (
    AsIndex,
    Expr,
    FloorDiv,
    Fold,
    IndexExpr,
    Linear,
    Load,
    LoopIndex,
    Mod,
    Op,
    Scan,
    depends_on_data,
    stride,
)
from fnx.kernel.ir import Eval, Loop, Recall, Stmt, Store, interleaved, loops
from fnx.kernel.loops import REGISTER
from fnx.sizes import Size, usual

LIGHT = 10
"""A loop over at most this many operations may use several registers for each."""

Body = tuple[Stmt, ...]


def vectorized(body: Body) -> tuple[float, Body]:
    """The statements with the cheapest vector loops, and what they cost."""
    cost = _Costs([stmt for stmt in body if not isinstance(stmt, Loop)], None).at(1)
    chosen = list[Stmt]()
    for stmt in body:
        if isinstance(stmt, Loop):
            loop_cost, stmt = _best(stmt)
            cost += loop_cost
        chosen.append(stmt)
    return cost, tuple(chosen)


def scheduled_cost(body: Body) -> float:
    """What statements cost whose vector loops have been chosen."""
    cost = _Costs([stmt for stmt in body if not isinstance(stmt, Loop)], None).at(1)
    for loop in (stmt for stmt in body if isinstance(stmt, Loop)):
        full, rest = divmod(usual(loop.extent), loop.width)
        if loop.width > 1:
            lanes = _Costs(loop.body, loop.index).at(loop.width)
            cost += full * _round(lanes, loop, loop.width)
        if rest or loop.width == 1:
            serial = _round(scheduled_cost(loop.body), loop, 1)
            cost += (full if loop.width == 1 else rest) * serial
    return cost


def _best(loop: Loop) -> tuple[float, Loop]:
    """The loop as a serial one with the best inner loops, or as a vector loop."""
    inner, body = vectorized(loop.body)
    extent = usual(loop.extent)
    best = extent * _round(inner, loop, 1), replace(loop, body=body)
    widths = _widths(loop)
    if not widths:
        return best
    costs, serial, overlaps = _Costs(loop.body, loop.index), inner, _may_overlap(loop)
    if any(isinstance(stmt, Loop) for stmt in loop.body):
        serial = _Costs(loop.body, None).at(1)
    for width in widths:
        full, rest = divmod(extent, width)
        if overlaps:
            full, rest = full + bool(rest), 0
        cost = full * _round(costs.at(width), loop, width)
        cost += rest * _round(serial, loop, 1)
        cost += 2 * len(loop.folds) * width.bit_length()  # lanes are combined at last
        if cost < best[0]:
            best = cost, replace(loop, width=width, overlaps=overlaps)
    return best


def _may_overlap(loop: Loop) -> bool:
    """Whether rounds may be repeated: not if they read what they have written."""
    stmts = list(_flat(loop.body))
    if isinstance(loop.extent, Size):
        return False  # there may be fewer rounds than lanes
    if any(isinstance(stmt, Store) and stmt.combine for stmt in stmts):
        return False
    written = {stmt.buffer for stmt in stmts if isinstance(stmt, Store)}
    exprs = (stmt.expr for stmt in stmts if isinstance(stmt, Eval))
    return not any(isinstance(e, Load) and e.buffer in written for e in exprs)


# ---------------------------------------------------------------- widths


def _widths(loop: Loop) -> list[int]:
    """The numbers of lanes that this loop could have."""
    if loop.scans or loop.across:
        return []  # its rounds follow each other
    index, stmts = loop.index, list(_flat(loop.body))
    if any(inner.index is index for inner in loops(loop.body)):
        return []  # a fold inside has a loop of the same index
    if isinstance(loop.extent, Size) and any(f.indices != (index,) for f in loop.folds):
        return []  # its rest has no lanes, and a fold goes on around it
    inner = [s for each in loops(loop.body) for s in each.body]
    if any(isinstance(stmt, Store) and stmt.combine for stmt in inner):
        return []  # lanes would change the order of what meets at an element
    if not all(_may_have_lanes(s, index) for s in stmts if isinstance(s, Store)):
        return []
    values = [s.expr for s in stmts if isinstance(s, Eval | Recall)]
    varying = [expr for expr in values if index in expr.free]
    sizes = [_element_size(expr) for expr in varying]
    sizes += [s.buffer.dtype.itemsize for s in stmts if isinstance(s, Store)]
    width = REGISTER // max(sizes, default=8)
    contiguous = all(_is_contiguous(stmt, index) for stmt in stmts)
    most = _most_registers(loop, width) if contiguous else 1
    extent = usual(loop.extent)
    widths = {_at_most(width * n, extent) for n in (1, 2, 4, 8) if n <= most}
    # Half of the smallest register is no vector for a fold: its lanes are combined by
    # more instructions than it saves, and a loop around it, which could have kept its
    # elements apart in registers, waits for them in memory.
    least = REGISTER // 2 // max(sizes, default=8) if loop.folds else 2
    return sorted(n for n in widths if n >= max(least, 2))


def _most_registers(loop: Loop, width: int) -> int:
    """How many registers a vector may have: several for light loops.

    They hide latency and, over the rows of an array, use whole cache lines up; but the
    accumulators of an innermost loop must stay in registers. Those of loops around it
    may wait in memory, and of loops that follow each other one runs at a time.
    """
    inner = list(loops(loop.body))
    if _heaviest(loop, loop.index, width) > LIGHT:
        return 2 if inner else 1
    innermost = [each for each in (loop, *inner) if not any(loops(each.body))]
    accumulators = max(
        sum(len(fold.bodies) for fold in each.carried) for each in innermost
    )
    return min(8 if inner else 4, max(8 // max(accumulators, 1), 1))


def _heaviest(loop: Loop, index: LoopIndex, width: int) -> float:
    """The operations of a round with lanes, of the loops in it those of the worst."""
    inside = [stmt for stmt in loop.body if isinstance(stmt, Loop)]
    around = {fold for each in inside for fold in each.carried}
    own = [s.expr for s in loop.body if isinstance(s, Eval | Recall)]
    updates = [_update_cost(f, width) for f in loop.carried if f not in around]
    return (
        sum(1 for expr in own if index in expr.free)
        + sum(updates)
        + max([_heaviest(each, index, width) for each in inside], default=0)
    )


def _at_most(width: int, extent: int) -> int:
    while width > extent:
        width //= 2
    return width


def _element_size(expr: Expr) -> int:
    return 1 if isinstance(expr, IndexExpr) else expr.dtype.itemsize


def _flat(body: Body) -> Iterator[Stmt]:
    for stmt in body:
        if isinstance(stmt, Loop):
            yield from _flat(stmt.body)
        else:
            yield stmt


def _may_have_lanes(store: Store, index: LoopIndex) -> bool:
    """Whether several iterations of a loop may do this store at once."""
    if index not in store.offset.free:
        return False
    if stride(store.offset, index) == 1:
        return not store.combine or store.mask is None or index not in store.mask.free
    if store.combine:
        return False
    return store.mask is None and not depends_on_data(store.offset)


def _is_contiguous(stmt: Stmt, index: LoopIndex) -> bool:
    if isinstance(stmt, Store):
        return stride(stmt.offset, index) == 1
    if isinstance(stmt, Recall):
        return stride(stmt.offset, index) in (0, 1)
    if isinstance(stmt, Eval) and isinstance(stmt.expr, Load):
        return stride(stmt.expr.offset, index) in (0, 1)
    return True


# ---------------------------------------------------------------- costs


class _Costs:
    """What statements cost, as a function of how many lanes one index has."""

    def __init__(self, body: Iterable[Stmt], index: LoopIndex | None) -> None:
        self.fixed = self.per_lane = 0.0
        self.per_register = defaultdict[int, float](float)  # by the size of an element
        self.inner: list[tuple[Loop, _Costs]] = []
        body = tuple(body)
        groups = interleaved(body, index) if index is not None else []
        together = {store for group in groups for store in group}
        for stmt in body:
            if isinstance(stmt, Eval):
                if index is None or index not in stmt.expr.free:
                    self.fixed += scalar_cost(stmt.expr)
                else:
                    self.add(stmt.expr, index)
            elif isinstance(stmt, Loop):
                self.inner.append((stmt, _Costs(stmt.body, index)))
            elif index is None or index not in stmt.offset.free:
                self.fixed += 1
            elif stmt in together:
                self.per_register[stmt.buffer.dtype.itemsize] += 4
            elif stride(stmt.offset, index) == 1:
                self.per_register[stmt.buffer.dtype.itemsize] += 1
            else:
                self.per_lane += 1.5

    def add(self, expr: Expr, index: LoopIndex) -> None:
        """Count an expression that has lanes."""
        size = _element_size(expr)
        match expr:
            case Op(name="div" | "rem") if dtypes.is_integer(expr.dtype):
                self.per_lane += 4  # no vector unit divides integers
            case Op(name="rem"):
                self.per_lane += 20
            case Op():
                self.per_register[size] += scalar_cost(expr)
            case Load():
                self.load(expr, index)
            case FloorDiv() | Mod():
                self.per_register[4] += 8
            case Linear() if stride(expr, index) is not None:
                self.fixed += 0.5
            case _:
                self.per_register[size] += 1

    def load(self, load: Load, index: LoopIndex) -> None:
        """Count a load: rows by the register, anything else by the lane."""
        step, size = stride(load.offset, index), load.dtype.itemsize
        if step in (2, 3) and load.mask is None:
            self.per_register[size] += 4 * step - 3
        elif step not in (1, -1, 0) or (load.mask is not None and size < 4):
            self.per_lane += 1.5
        else:
            self.per_register[size] += 1 if step == 1 and load.mask is None else 2

    def at(self, width: int) -> float:
        """The cost with so many lanes."""
        total = self.fixed + self.per_lane * width
        for size, cost in self.per_register.items():
            total += cost * max(width * size / REGISTER, 1)
        for loop, costs in self.inner:
            total += usual(loop.extent) * _round(costs.at(width), loop, width)
        return total


def _round(body: float, loop: Loop, width: int) -> float:
    """One round of a loop: its body, the folds' updates (not below their latency)."""
    if not loop.carried:
        return 1 + body
    inner = {f for s in loop.body if isinstance(s, Loop) for f in s.carried}
    own = [fold for fold in loop.carried if fold not in inner]
    updates = sum(_update_cost(fold, width) for fold in own)
    return 1 + max(body + updates, 4.0 if own else 0.0)


def _update_cost(fold: Fold | Scan, width: int) -> float:
    each = 3 if isinstance(fold, Fold) and fold.joint else 1
    sizes = (_element_size(body) for body in fold.bodies)
    return each * sum(max(width * size / REGISTER, 1) for size in sizes)


def scalar_cost(expr: Expr) -> float:
    """What one operation costs where it has one register."""
    match expr:
        case Op(name="div" | "rem" | "sqrt"):
            return 4
        case Linear() | AsIndex():
            return 0.5
        case FloorDiv() | Mod():
            return 3
    return 1
