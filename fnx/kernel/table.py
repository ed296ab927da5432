"""`ExprTable`: makes every expression of a kernel, keeps one of each, and simplifies.

Values are interned as they are; index expressions are brought into a normal form (sums
of atoms with coefficients, divisions only where ranges cannot decide them), which is
what lets offsets of reshaped, sliced and padded arrays simplify by themselves.
Used by `build.py`, next on the walk, and by the rewrites of `loops.py`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from fnx import dtypes
from fnx.dtypes import DType
from fnx.errors import InternalError
from fnx.kernel.expr import (
    AsIndex,
    Buffer,
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
    Scan,
    as_index_expr,
    terms_of,
    walk,
)
from fnx.sizes import Size, surely_at_most, surely_below

E = TypeVar("E", bound=Expr)


class ExprTable:
    """Makes expressions and keeps one of each; also the home of index arithmetic.

    >>> table = ExprTable()
    >>> i, j = table.loop("i", 4), table.loop("j", 8)
    >>> (i * 8 + j) // 8 is i, (i * 8 + j) % 8 is j
    (True, True)
    """

    def __init__(self) -> None:
        self._interned: dict[Hashable, Expr] = {}

    def forget(self) -> None:
        """Let go of all expressions: those that a kernel uses are kept by it."""
        self._interned.clear()

    def _new(self, key: Hashable, expr: E) -> E:
        expr.order = len(self._interned)
        self._interned[key] = expr
        return expr

    # -- values

    def constant(self, value: bool | int | float, dtype: DType) -> Const:
        """A constant, rounded or wrapped to the dtype."""
        value = canonical_value(value, dtype)
        text = value.hex() if isinstance(value, float) else value
        key = (Const, dtype.num, text)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, Const(value, dtype))
        assert isinstance(found, Const)
        return found

    def op(self, name: str, args: tuple[Expr, ...], dtype: DType) -> Expr:
        """A row of the scalar table applied to values."""
        key = (name, args, dtype.num)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, Op(name, args, dtype))
        return found

    def load(self, buffer: Buffer, offset: IndexExpr, mask: Expr | None) -> Expr:
        """A load; 0 where the mask is false."""
        if isinstance(mask, Const):
            if not mask.value:
                return self.constant(0, buffer.dtype)
            mask = None
        key = (Load, buffer, offset, mask)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, Load(buffer, offset, mask))
        return found

    def fold(
        self, combine: str, indices: tuple[LoopIndex, ...], bodies: tuple[Expr, ...]
    ) -> Fold:
        """A reduction over at least one loop index."""
        key = (Fold, combine, indices, bodies)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, Fold(combine, indices, bodies))
        assert isinstance(found, Fold)
        return found

    def scan(self, combine: str, indices: tuple[LoopIndex, ...], body: Expr) -> Expr:
        """The running value of a reduction over at least one loop index."""
        key = (Scan, combine, indices, body)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, Scan(combine, indices, body))
        return found

    def part(self, fold: Fold, number: int) -> Expr:
        """One value of a fold."""
        key = (Part, fold, number)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, Part(fold, number))
        return found

    def index_value(self, index: IndexExpr, dtype: DType) -> Expr:
        """An index expression as a value."""
        if index.lo == index.hi and not isinstance(index.lo, Size):
            return self.constant(index.lo, dtype)
        key = (IndexValue, index, dtype.num)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, IndexValue(index, dtype))
        return found

    def inside(self, index: IndexExpr, lo: int, hi: int) -> Expr:
        """The boolean value of `lo <= index < hi`, constant where ranges tell."""
        if surely_at_most(lo, index.lo) and surely_below(index.hi, hi):
            return self.constant(True, dtypes.bool_)
        if surely_at_most(hi, lo) or surely_below(index.hi, lo):
            return self.constant(False, dtypes.bool_)
        if surely_at_most(hi, index.lo):
            return self.constant(False, dtypes.bool_)
        end = index.hi + 1 if surely_at_most(index.hi + 1, hi) else hi
        extent = end - lo
        index = index - lo
        key = (Inside, index, extent)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, Inside(index, extent))
        return found

    # -- index expressions

    def loop(self, tag: Hashable, extent: int | Size) -> IndexExpr:
        """A loop index; the constant 0 where the loop runs once.

        A loop that may run once or never, depending on a size, stays one.
        """
        if not isinstance(extent, Size) and extent <= 1:
            return self.number(0)
        key = (LoopIndex, tag, extent)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, LoopIndex(self, tag, extent))
        return as_index_expr(found)

    def number(self, value: int | Size) -> IndexExpr:
        """A constant index."""
        return self._linear((), value)

    def as_index(self, value: Expr, lo: int, hi: int) -> IndexExpr:
        """An integer value as an index known to lie in `lo..hi` inclusive."""
        if isinstance(value, Const):
            return self.number(int(value.value))
        if isinstance(value, IndexValue):  # it holds its index if its dtype can
            info = np.iinfo(value.dtype)
            least, most = value.index.range
            if surely_at_most(info.min, least) and surely_at_most(most, info.max):
                return value.index
        if lo == hi:
            return self.number(lo)
        key = (AsIndex, value, lo, hi)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, AsIndex(self, value, lo, hi))
        return as_index_expr(found)

    def add(self, *parts: tuple[IndexExpr | int, int]) -> IndexExpr:
        """The sum of index expressions times integers, in normal form."""
        sums: dict[IndexExpr, int] = {}
        offset = 0
        for part, factor in parts:
            if isinstance(part, int | Size):
                offset += part * factor
                continue
            terms, constant = terms_of(part)
            offset += constant * factor
            for atom, c in terms:
                sums[atom] = sums.get(atom, 0) + c * factor
        return self._normal(sums, offset)

    def _normal(self, sums: dict[IndexExpr, int], offset: int) -> IndexExpr:
        for atom in sums:
            if isinstance(atom, Mod) and (c := sums[atom]) != 0:
                whole = self._recombined(atom, c, sums)
                if whole is not None:
                    return whole + offset
        pairs = [(atom, c) for atom, c in sums.items() if c != 0]
        if len(pairs) > 1:
            pairs.sort(key=lambda pair: pair[0].order)
        return self._linear(tuple(pairs), offset)

    def _recombined(
        self, mod: Mod, c: int, sums: Mapping[IndexExpr, int]
    ) -> IndexExpr | None:
        """`c*n*(x // n) + c*(x % n) + rest` as `c*x + rest`, or None without such."""
        quotient = self.floordiv(mod.index, mod.divisor)
        if sums.get(quotient) != c * mod.divisor:
            return None
        rest = [(a, f) for a, f in sums.items() if a is not mod and a is not quotient]
        return self.add((mod.index, c), *rest)

    def _linear(
        self, terms: tuple[tuple[IndexExpr, int], ...], offset: int | Size
    ) -> IndexExpr:
        if offset == 0 and len(terms) == 1 and terms[0][1] == 1:
            return terms[0][0]
        key = (Linear, terms, offset)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, Linear(self, terms, offset))
        return as_index_expr(found)

    def floordiv(self, index: IndexExpr, n: int) -> IndexExpr:
        """`index // n`, rounded down, for n > 0."""
        quotient, rest = self._divided(index, n)
        if rest.lo // n == rest.hi // n:
            return quotient + rest.lo // n
        common, small, _ = self._reduced(rest, n)
        if common > 1:
            return quotient + self.floordiv(small, n // common)
        if isinstance(rest, FloorDiv):
            return quotient + self.floordiv(rest.index, rest.divisor * n)
        if isinstance(rest, Mod) and rest.divisor % n == 0:
            return quotient + self.mod(self.floordiv(rest.index, n), rest.divisor // n)
        return quotient + self._division(FloorDiv, rest, n)

    def mod(self, index: IndexExpr, n: int) -> IndexExpr:
        """`index % n`, in `0..n-1`, for n > 0."""
        _, rest = self._divided(index, n)
        if rest.lo // n == rest.hi // n:
            return rest - rest.lo // n * n
        common, small, offset = self._reduced(rest, n)
        if common > 1:
            return self.mod(small, n // common) * common + offset
        if isinstance(rest, Mod) and rest.divisor % n == 0:
            return self.mod(rest.index, n)
        return self._division(Mod, rest, n)

    def _divided(self, index: IndexExpr, n: int) -> tuple[IndexExpr, IndexExpr]:
        """`(q, r)` with `index == n*q + r`: all that n divides is in q."""
        if n <= 0:
            raise InternalError(f"index division by {n}; the divisor must be positive")
        terms, offset = terms_of(index)
        whole = {atom: c // n for atom, c in terms if c % n == 0}
        rest = {atom: c for atom, c in terms if c % n != 0}
        return self._normal(whole, offset // n), self._normal(rest, offset % n)

    def _reduced(self, rest: IndexExpr, n: int) -> tuple[int, IndexExpr, int]:
        """`(g, small, o)` with `rest == g*small + o`, `0 <= o < g`, g dividing n."""
        terms, offset = terms_of(rest)
        factors = [n, *(c for _, c in terms)]
        known = all(isinstance(factor, int) for factor in factors)
        common = math.gcd(*factors) if known else 1
        if common == 1:
            return 1, rest, 0
        small = {atom: c // common for atom, c in terms}
        return common, self._normal(small, offset // common), offset % common

    def _division(
        self, kind: type[FloorDiv] | type[Mod], index: IndexExpr, n: int
    ) -> IndexExpr:
        key = (kind, index, n)
        found = self._interned.get(key)
        if found is None:
            found = self._new(key, kind(self, index, n))
        return as_index_expr(found)

    # -- rewriting

    def rebuilt(self, expr: Expr, children: Sequence[Expr]) -> Expr:
        """The same expression over other children."""
        match expr:
            case Op():
                return self.op(expr.name, tuple(children), expr.dtype)
            case Load():
                mask = children[1] if len(children) > 1 else None
                return self.load(expr.buffer, as_index_expr(children[0]), mask)
            case Fold():
                return self.fold(expr.combine, expr.indices, tuple(children))
            case Scan():
                return self.scan(expr.combine, expr.indices, children[0])
            case AsIndex():
                return self.as_index(children[0], expr.lo, expr.hi)
            case Part():
                fold = children[0]
                assert isinstance(fold, Fold)
                return self.part(fold, expr.number)
        return self._rebuilt_of_indices(expr, [as_index_expr(c) for c in children])

    def _rebuilt_of_indices(self, expr: Expr, indices: Sequence[IndexExpr]) -> Expr:
        match expr:
            case Linear():
                factors = (c for _, c in expr.terms)
                return self.add((expr.offset, 1), *zip(indices, factors, strict=True))
            case FloorDiv():
                return self.floordiv(indices[0], expr.divisor)
            case Mod():
                return self.mod(indices[0], expr.divisor)
            case IndexValue():
                return self.index_value(indices[0], expr.dtype)
            case Inside():
                return self.inside(indices[0], 0, expr.extent)
        return expr  # it has no children

    def substitute(
        self, roots: Sequence[Expr], mapping: Mapping[Expr, IndexExpr]
    ) -> list[Expr]:
        """The roots with index expressions in place of free loop indices.

        An index that a fold inside binds itself stays as it is in there.
        """
        done: dict[Expr, Expr] = {**mapping}
        for expr in walk(roots):
            if expr in done:
                continue
            if expr.free.isdisjoint(mapping):
                done[expr] = expr
            else:
                children = [done[child] for child in expr.children]
                done[expr] = self.rebuilt(expr, children)
        return [done[root] for root in roots]


def canonical_value(
    value: bool | int | float | np.generic, dtype: DType
) -> bool | int | float:
    """A Python number that the dtype holds: rounded, or wrapped for integers."""
    if dtype is dtypes.bool_:
        return bool(value)
    if dtypes.is_integer(dtype):
        bits = dtype.itemsize * 8
        low = int(value) & ((1 << bits) - 1)
        signed = dtypes.is_signed(dtype) and low >> (bits - 1)
        return low - (1 << bits) if signed else low
    if dtype is dtypes.float64:
        return float(value)
    if dtype is dtypes.float32:
        return ctypes.c_float(float(value)).value
    with np.errstate(all="ignore"):
        return float(np.float64(value).astype(dtype))
