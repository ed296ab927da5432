"""The scheduled kernel: one loop nest over scalar expressions, ready to be printed.

`schedule.py` makes it for a CPU and `grid.py` for a GPU, `check.py` verifies it,
`printer.py` shows it, and the backends (`fnx/cpu/emit.py`, `fnx_cuda/emit.py`) print it
as code. Every decision has been taken: a backend walks the statements in order and
chooses nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field
from math import prod
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.dtypes import DType
from fnx.kernel.expr import (
    Buffer,
    Expr,
    Fold,
    IndexExpr,
    Load,
    LoopIndex,
    Scan,
    Terms,
    depends_on_data,
    terms_of,
)
from fnx.records import record
from fnx.sizes import Size


@record(eq=False)
class Eval:
    """Compute an expression here; what it is made of has been computed before."""

    expr: Expr


@record(eq=False)
class Store:
    """Write a value into a buffer, where the mask (if any) is true.

    With `combine` ('add', 'mul', 'max', 'min') the old element is read, combined and
    written back, in the order of the loop indices; or `atomic`ally in any order, where
    that comes to the same. Stores that lie `apart` never meet at an element, which the
    operation promises where offsets do not tell.
    """

    buffer: Buffer
    offset: IndexExpr
    value: Expr
    combine: str | None = None
    mask: Expr | None = None
    apart: bool = False
    atomic: bool = False

    def may_meet(self, domain: Sequence[LoopIndex]) -> bool:
        """Whether several rounds of a domain may store to one element, in some order.

        They may where loads or fewer indices tell the offset, or old elements matter.
        """
        if self.apart or self.atomic:
            return False
        by_place = not self.combine and not depends_on_data(self.offset)
        return not (by_place and self.offset.free.issuperset(domain))


@record(eq=False)
class Run:
    """The part of sorted keys that are equal to the one at `start`, in a loop's rounds.

    Where the key before is equal too, or the key is not below `end`, there is no round;
    nor where fewer keys are equal than `least`, or more than `most`, if that is given.
    """

    keys: Buffer
    start: IndexExpr
    end: int
    least: int = 1
    most: int | None = None


@record(eq=False)
class Recall:
    """Know a value again that an earlier loop has stored in a local buffer."""

    expr: Expr
    buffer: Buffer
    offset: IndexExpr


@record(eq=False)
class Loop:
    """Run the body for each value of the index.

    With `width` > 1 it is a vector loop: that many values of the index at once, one per
    lane (a backend splits vectors wider than its registers). What depends on the index
    has lanes, all else is scalar. Where the width does not divide the extent and the
    loop `overlaps`, its last vector ends at the extent and repeats some values of the
    index, which folds count once; otherwise what remains runs one by one.
    `folds` are the reductions this loop carries; one over several indices is carried by
    each of its nested loops. `scans` are those whose running value its body computes.
    A loop `across` has as many rounds as the vector loop around it has lanes, or a
    multiple, and some load walks memory along it: together they are squares that a
    backend may read row by row and transpose in registers.
    The rounds of a loop that is `spread` are shared by the threads of a group, in turns
    of `width` rounds; its folds are combined over the threads, and known to all.
    A loop with a `run` has the rounds of that run only; what it stores it combines with
    one element, in a register and in the order of the rounds, also if it is spread.
    """

    index: LoopIndex
    body: tuple[Stmt, ...]
    folds: tuple[Fold, ...] = ()
    width: int = 1
    overlaps: bool = False
    scans: tuple[Scan, ...] = ()
    across: bool = False
    spread: bool = False
    run: Run | None = None

    @property
    def carried(self) -> tuple[Fold | Scan, ...]:
        """What goes on from round to round."""
        return *self.folds, *self.scans

    @property
    def extent(self) -> Any:
        """How many values the index takes: an integer, or a `Size` that is given."""
        return self.index.extent


@record(eq=False)
class Launch:
    """Runs the body for all values of the indices at once, on a GPU.

    Each combination of them is done by a group of `threads`: one, or those of a warp,
    or those of a block of several warps. What is not in a loop that is spread over the
    group all of its threads compute, and one of them stores. With `width` > 1 a thread
    does so many values of the last index, one per lane.
    """

    indices: tuple[LoopIndex, ...]
    body: tuple[Stmt, ...]
    threads: int = 1
    width: int = 1

    @property
    def groups(self) -> int:
        """How many groups of threads there are."""
        number: int = prod(index.extent for index in self.indices) // self.width
        return number


@record(eq=False)
class Sort:
    """Sorts unsigned integers below 2**bits, on a GPU; equal ones keep their order.

    `ordered` gets the keys in their order, `places` where each of them was.
    """

    keys: Buffer
    ordered: Buffer
    places: Buffer
    bits: int


Stmt = Eval | Store | Recall | Loop

LOCAL = ("local", "row", "shared")
"""The roles of buffers of a kernel's own."""


@record(eq=False)
class Kernel:
    """A loop nest over buffers: each is written or read, in the order of parameters.

    Its `locals` are memory of its own, in which loops keep values for later ones. All
    that is recalled in a round of a loop around both has been kept in that round.
    A kernel for a GPU has launches and sorts, one after the other, in the place of a
    body.
    """

    name: str
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    locals: tuple[Buffer, ...] = ()
    key: Hashable = field(default=None, repr=False)
    """Equal for kernels that differ in names only, which can share their code."""
    launches: tuple[Launch | Sort, ...] = ()


def loops(body: tuple[Stmt, ...]) -> Iterator[Loop]:
    """Every loop of a kernel's body, outer ones first."""
    for stmt in body:
        if isinstance(stmt, Loop):
            yield stmt
            yield from loops(stmt.body)


def interleaved(body: tuple[Stmt, ...], index: LoopIndex) -> list[tuple[Store, ...]]:
    """Stores of a loop's body that together write side by side, lane by lane.

    They have the loop's stride in common, and are as many as it has elements.
    """
    groups: dict[tuple[Buffer, Terms], dict[int, Store]] = {}
    for store in (stmt for stmt in body if isinstance(stmt, Store)):
        if store.combine is None and store.mask is None:
            terms, offset = terms_of(store.offset)
            if isinstance(offset, Size):
                continue
            groups.setdefault((store.buffer, terms), {})[offset] = store
    found = list[tuple[Store, ...]]()
    for (_, terms), stores in groups.items():
        step, first = dict(terms).get(index, 0), min(stores)
        if isinstance(step, Size):
            continue
        together = range(first, first + step)
        steady = not any(index in a.free for a, _ in terms if a is not index)
        if 1 < step == len(stores) and steady and all(n in stores for n in together):
            found.append(tuple(stores[n] for n in together))
    return found


def local_buffers(body: tuple[Stmt, ...]) -> tuple[Buffer, ...]:
    """The memory that statements keep values in."""
    flat = (*body, *(stmt for loop in loops(body) for stmt in loop.body))
    stores = (stmt for stmt in flat if isinstance(stmt, Store))
    kept = (store.buffer for store in stores if store.buffer.role in LOCAL)
    return tuple(dict.fromkeys(kept))


def launch_buffers(launches: tuple[Launch | Sort, ...]) -> tuple[Buffer, ...]:
    """The memory that launches and sorts keep values in."""
    found: dict[Buffer, None] = {}
    for each in launches:
        match each:
            case Launch(body=body):
                found |= dict.fromkeys(local_buffers(body))
            case Sort(ordered=ordered, places=places):
                found |= {ordered: None, places: None}
    return tuple(found)


def parallel_loops(kernel: Kernel) -> tuple[Loop, ...]:
    """The outermost loops of a kernel whose rounds may run in any order at once.

    Not those whose rounds may store to the same element or read what another one
    stores. What a fold combines may be computed at once too where that is one value a
    round: where the loop has no lanes and no inner loop carries the same fold.
    """
    outer = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
    return tuple(loop for loop in outer if _rounds_apart(loop) and _folds_apart(loop))


def _rounds_apart(loop: Loop) -> bool:
    stmts = [stmt for each in loops((loop,)) for stmt in each.body]
    stores = [s for s in stmts if isinstance(s, Store) and s.buffer.role != "local"]
    written = {store.buffer: store.offset for store in stores}
    loads = [s.expr for s in stmts if isinstance(s, Eval) and isinstance(s.expr, Load)]
    return all(
        loop.index in store.offset.free
        and store.combine is None
        and not depends_on_data(store.offset)
        for store in stores
    ) and all(written.get(load.buffer, load.offset) is load.offset for load in loads)


def _folds_apart(loop: Loop) -> bool:
    inner = {fold for each in loops(loop.body) for fold in each.folds}
    if loop.scans:
        return False
    return not loop.folds or (loop.width == 1 and inner.isdisjoint(loop.folds))


def fold_identity(combine: str, number: int, dtype: DType) -> bool | int | float:
    """What changes nothing when it is combined with body `number` of a fold.

    For floating sums it is -0.0, so that a sum of negative zeros keeps its sign; the
    position of argmax and argmin starts beyond every other.
    """
    if combine.startswith("arg"):
        combine = "min" if number == 1 else combine[3:]
    if combine == "complex_mul":
        return 1 - number
    is_float = dtypes.is_float(dtype)
    match combine:
        case "add":
            return -0.0 if is_float else 0
        case "mul":
            return 1
        case "or":
            return 0
        case "and":
            return dtype is dtypes.bool_ or -1
        case "max" if is_float:
            return -float("inf")
        case "min" if is_float:
            return float("inf")
    if dtype is dtypes.bool_:
        return combine == "min"
    info = np.iinfo(dtype)
    return int(info.max if combine == "min" else info.min)
