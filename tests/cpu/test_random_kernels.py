"""Random kernels against an interpreter of what was built, before any scheduling.

Integers only, so that every order of a fold gives the same result: what is tested is
that splitting, collapsing, tiling, reordering and vector loops change nothing.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import numpy as np
import pytest

from fnx import dtypes
from fnx.cpu import emit, jit
from fnx.kernel import columns, keep, loops, pieces, scalar
from fnx.kernel.build import KernelBuilder
from fnx.kernel.check import check_kernel
from fnx.kernel.expr import (
    Const,
    Expr,
    FloorDiv,
    Fold,
    IndexExpr,
    IndexValue,
    Inside,
    Linear,
    Load,
    LoopIndex,
    Mod,
    Op,
    Part,
    linear_offset,
)
from tests.chunks import run_in_chunks

EXTENTS = [1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 33]
Element = Callable[[tuple[IndexExpr, ...]], Expr]


class Interpreter:
    """The value of an expression for given loop indices."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    def index(self, index: IndexExpr, at: dict) -> int:
        match index:
            case LoopIndex():
                return at[index]
            case Linear():
                return index.offset + sum(c * self.index(a, at) for a, c in index.terms)
            case FloorDiv():
                return self.index(index.index, at) // index.divisor
            case Mod():
                return self.index(index.index, at) % index.divisor
        return int(self.value(index.children[0], at))

    def value(self, expr: Expr, at: dict) -> np.generic:
        match expr:
            case Const():
                return expr.dtype.type(expr.value)
            case Op(name="select"):
                chosen, a, b = expr.args
                return self.value(a if self.value(chosen, at) else b, at)
            case Op():
                args = [self.value(arg, at) for arg in expr.args]
                extra = [expr.dtype] if expr.name == "convert" else []
                return scalar.TABLE[expr.name].numpy(*args, *extra)[()]
            case Load():
                if expr.mask is not None and not self.value(expr.mask, at):
                    return expr.dtype.type(0)
                return self.arrays[expr.buffer.name][self.index(expr.offset, at)]
            case IndexValue():
                return np.int64(self.index(expr.index, at)).astype(expr.dtype)
            case Inside():
                return np.bool_(0 <= self.index(expr.index, at) < expr.extent)
            case Part():
                return self.fold(expr.fold, at)
        raise AssertionError(expr)

    def fold(self, fold: Fold, at: dict) -> np.generic:
        (body,) = fold.bodies
        total = None
        for point in itertools.product(*(range(i.extent) for i in fold.indices)):
            value = self.value(
                body, {**at, **dict(zip(fold.indices, point, strict=True))}
            )
            combine = scalar.TABLE[fold.combine].numpy
            total = value if total is None else combine(total, value)[()]
        return total


class Maker:
    """Makes random elements over one kernel's buffers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.k = KernelBuilder()
        self.dtype = self.rng.choice([dtypes.int32, dtypes.int16, dtypes.int64])
        self.arrays: dict[str, np.ndarray] = {}

    def affine(self, indices: tuple[IndexExpr, ...]) -> IndexExpr:
        """A random index expression, not negative."""
        rng = self.rng
        total = self.k.table.number(rng.choice([0, 0, 1, 3]))
        for index in indices:
            stride = rng.choice([0, 1, 1, -1, 2, index.hi + 1, 5])
            total = total + index * stride
        if rng.random() < 0.3:
            total = total // rng.choice([2, 3, 4, 8])
        if rng.random() < 0.3:
            total = total % rng.choice([2, 4, 5, 8, 16])
        return total - total.lo

    def row_major(self, indices: tuple[IndexExpr, ...]) -> IndexExpr:
        """The offset in an array whose axes are the indices in some order."""
        shuffled = list(indices)
        if self.rng.random() < 0.5:
            self.rng.shuffle(shuffled)
        total = self.k.table.number(0)
        for index in shuffled:
            total = total * (index.hi + 1) + index
        return total

    def load(self, indices: tuple[IndexExpr, ...]) -> Expr:
        offset = self.rng.choice([self.affine, self.row_major, self.row_major])(indices)
        name = f"x{len(self.arrays)}"
        size = max(offset.hi + 1, 1)
        missing = self.rng.choice([0, 0, 0, 2])  # must be guarded by `where`
        buffer = self.k.buffer(name, self.dtype, max(size - missing, 1), "in")
        numbers = np.random.default_rng(len(self.arrays))
        self.arrays[name] = numbers.integers(-99, 99, buffer.size, self.dtype)
        shifted = offset - missing // 2
        return self.k.where(
            self.k.inside(shifted, 0, buffer.size),
            lambda: self.k.load(buffer, shifted),
            lambda: self.k.index_value(offset, self.dtype),
        )

    def element(self, indices: tuple[IndexExpr, ...], depth: int, budget: int) -> Expr:
        choice = self.rng.random()
        if depth == 0 or choice < 0.2:
            return self.load(indices)
        if choice < 0.3:
            return self.k.index_value(self.affine(indices), self.dtype)
        if choice < 0.6 and budget > 3:
            return self.fold(indices, depth, budget)
        a, b = (self.element(indices, depth - 1, budget) for _ in range(2))
        name = self.rng.choice(["add", "mul", "sub", "max", "select"])
        if name == "select":
            return self.k.select(self.k.lt(a, b), b, self.load(indices))
        return self.k.op(name, a, b)

    def fold(self, indices: tuple[IndexExpr, ...], depth: int, budget: int) -> Expr:
        extents = [self.rng.choice([e for e in EXTENTS if e <= budget])]
        if self.rng.random() < 0.4:
            extents.append(self.rng.choice([2, 3, 4]))
        outer = self.rng.sample(indices, self.rng.randint(0, len(indices)))
        combine = self.rng.choice(["add", "add", "max", "min", "mul", "or"])

        def body(inner: tuple[IndexExpr, ...]) -> Expr:
            return self.element((*outer, *inner), depth - 1, budget // extents[0])

        return self.k.fold(combine, self.rng.choice("ab"), extents, body)

    def row_program(self, index: tuple[IndexExpr, ...]) -> Expr:
        """Folds over a row of values that it then uses itself."""
        k, rng = self.k, self.rng
        *outer, last = index
        numbers = np.random.default_rng(self.dtype.itemsize)
        size = math.prod(i.hi + 1 for i in index)
        buffer = k.buffer("row", self.dtype, size, "in")
        self.arrays["row"] = numbers.integers(-99, 99, size, self.dtype)

        def term(m: IndexExpr) -> Expr:
            at = (*outer, m)
            offset = linear_offset(at, [i.hi + 1 for i in index])
            x = k.load(buffer, offset)
            return k.op("mul", x, k.op("add", x, k.index_value(m, self.dtype)))

        total = term(last)
        for tag in rng.choices("ab", k=rng.randint(1, 3)):
            combine = rng.choice(["add", "max", "min", "mul"])
            total = k.fold(
                combine,
                tag,
                [last.hi + 1],
                lambda m, before=total: (
                    k.op("sub", term(m[0]), before)
                    if before.free.isdisjoint({last})
                    else term(m[0])
                ),
            )
        return k.op("sub", term(last), total)

    def column_program(self, index: tuple[IndexExpr, ...]) -> Expr:
        """Folds down the columns of matrices."""
        k, rows = self.k, self.rng.choice([4, 7, 12, 15, 26])
        shape = (rows, *(i.hi + 1 for i in index))
        numbers = np.random.default_rng(rows)
        buffer = k.buffer("rows", self.dtype, math.prod(shape), "in")
        self.arrays["rows"] = numbers.integers(-99, 99, math.prod(shape), self.dtype)

        def row(m: tuple[IndexExpr, ...]) -> Expr:
            return k.load(buffer, linear_offset((*m, *index), shape))

        total = k.fold("add", "rows", [rows], lambda m: k.op("mul", row(m), row(m)))
        if self.rng.random() < 0.5:
            return total
        return k.op("sub", total, k.fold("max", "rows", [rows], row))


@pytest.mark.parametrize("seed", [*range(80), 2473])
def test_random_kernels(seed, monkeypatch):
    if seed % 2:  # as if the loops were long
        monkeypatch.setattr(loops, "BLOCK", 8)
        monkeypatch.setattr(loops, "LONG", 4)
        monkeypatch.setattr(loops, "_is_long", is_long)
        monkeypatch.setattr(pieces, "LEAST", 1)
        monkeypatch.setattr(pieces, "NARROW", seed % 4)
        monkeypatch.setattr(columns, "LEAST", 1)
        monkeypatch.setattr(columns, "ROWS", 2)
        monkeypatch.setattr(columns, "BLOCKS", (2, 5))
        monkeypatch.setattr(columns, "GROUP", 1 + seed % 3)
        monkeypatch.setattr(columns, "SHORT", 0)
    if seed % 3:  # as if everything were costly
        monkeypatch.setattr(keep, "WORTH", 0.0)
    maker = Maker(seed)
    k = maker.k
    shape = [maker.rng.choice(EXTENTS) for _ in range(maker.rng.randint(0, 3))]
    while np.prod(shape) > 300:
        shape[shape.index(max(shape))] = 2
    index = k.domain(shape)
    value = maker.element(index, 3, 40)
    if seed % 3 and shape:
        value = k.op("add", value, maker.row_program(index))
    elif shape:
        value = k.op("sub", value, maker.column_program(index))
    size = int(np.prod(shape))
    offset = maker.row_major(index)
    target = k.buffer("out", maker.dtype, size, "out")
    k.store(target, offset, value)
    expected = interpreted(maker, shape, index, offset, value)
    kernel = check_kernel(k.finish("random"))
    module = emit.Module()
    count = len(kernel.buffers)
    module.define(emit.exported("main", module.add(kernel), count))
    library = jit.load(jit.assemble(module.text()), ["main"])
    out = np.empty(size, maker.dtype)
    arrays = [*maker.arrays.values(), out]
    library.function("main", count)(*[a.ctypes.data for a in arrays])
    np.testing.assert_array_equal(out, expected)
    out[:] = 0
    run_in_chunks(kernel, seed % 3 + 1, *arrays)
    np.testing.assert_array_equal(out, expected)


def is_long(fold: Fold) -> bool:
    length = math.prod(index.extent for index in fold.indices)
    return fold.combine == "add" and length > 2 * loops.BLOCK


def interpreted(maker, shape, index, offset, value) -> np.ndarray:
    interpreter = Interpreter(maker.arrays)
    expected = np.empty(int(np.prod(shape)), maker.dtype)
    with np.errstate(all="ignore"):
        for point in itertools.product(*map(range, shape)):
            at = dict(zip(index, point, strict=True))
            place = interpreter.index(offset, at)
            expected[place] = interpreter.value(value, at)
    return expected
