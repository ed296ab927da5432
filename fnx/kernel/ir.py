"""The scheduled kernel: one loop nest over scalar expressions, ready to be printed.

`schedule.py` makes it, `check.py` verifies it, `printer.py` shows it, and the backends
(`fnx/cpu/emit.py`, `fnx_cuda/emit.py`) print it as code. Every decision has been taken:
a backend walks the statements in order and chooses nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np

from fnx import dtypes
from fnx.dtypes import DType
from fnx.kernel.expr import (
    Buffer,
    Expr,
    Fold,
    IndexExpr,
    LoopIndex,
    depends_on_data,
)


@dataclass(frozen=True, slots=True, eq=False)
class Eval:
    """Compute an expression here; what it is made of has been computed before."""

    expr: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Write a value into a buffer, where the mask (if any) is true.

    With `combine` ('add', 'mul', 'max', 'min') the old element is read, combined and
    written back, in the order of the loop indices.
    """

    buffer: Buffer
    offset: IndexExpr
    value: Expr
    combine: str | None = None
    mask: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """Run the body for each value of the index.

    With `width` > 1 it is a vector loop: that many values of the index at once, one per
    lane (a backend splits vectors wider than its registers), and what remains, fewer
    than `width`, one by one. What depends on the index has lanes, all else is scalar.
    `folds` are the reductions this loop carries; one over several indices is carried by
    each of its nested loops.
    """

    index: LoopIndex
    body: tuple[Stmt, ...]
    folds: tuple[Fold, ...] = ()
    width: int = 1

    @property
    def extent(self) -> int:
        """How many values the index takes."""
        return self.index.extent


Stmt = Eval | Store | Loop


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A loop nest over buffers: each is written or read, in the order of parameters."""

    name: str
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    key: Hashable = field(default=None, repr=False)
    """Equal for kernels that differ in names only, which can share their code."""


def loops(body: tuple[Stmt, ...]) -> Iterator[Loop]:
    """Every loop of a kernel's body, outer ones first."""
    for stmt in body:
        if isinstance(stmt, Loop):
            yield stmt
            yield from loops(stmt.body)


def parallel_loop(kernel: Kernel) -> Loop | None:
    """The one outermost loop of a kernel, if its rounds may run in any order at once.

    None for folds over everything, for several loops one after the other, and where
    different rounds may store to the same element.
    """
    outer = [stmt for stmt in kernel.body if not isinstance(stmt, Eval)]
    if len(outer) != 1 or not isinstance(outer[0], Loop) or outer[0].folds:
        return None
    loop = outer[0]
    stores = [s for each in loops((loop,)) for s in each.body if isinstance(s, Store)]
    apart = all(
        loop.index in store.offset.free
        and store.combine is None
        and not depends_on_data(store.offset)
        for store in stores
    )
    return loop if apart else None


def fold_identity(combine: str, number: int, dtype: DType) -> bool | int | float:
    """What changes nothing when it is combined with body `number` of a fold.

    For floating sums it is -0.0, so that a sum of negative zeros keeps its sign; the
    position of argmax and argmin starts beyond every other.
    """
    if combine.startswith("arg"):
        combine = "min" if number == 1 else combine[3:]
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
