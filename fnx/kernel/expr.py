"""Scalar expressions of a kernel: immutable, interned, so that equal means identical.

Extents, offsets and coefficients are integers; in a kernel for many sizes they may be
formulas (`fnx.sizes.Size`), which do all that is done with integers here.

Two families share one base: *values* (Const, Op, Load, Fold, Scan, Inside, …) and
*index expressions* (LoopIndex, Linear, FloorDiv, Mod, AsIndex), which know their range.
Here is what they are; `table.py`, next on the walk, is the only place that makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fnx import dtypes
from fnx.dtypes import DType
from fnx.records import record

if TYPE_CHECKING:
    from fnx.kernel.table import ExprTable

COMBINES = ("add", "mul", "max", "min", "and", "or", "argmax", "argmin", "complex_mul")
"""How a fold may combine; all are associative and commutative."""


@record(eq=False)
class Buffer:
    """One array of a kernel in memory: `size` elements (at least one) of `dtype`.

    The role is 'in', 'out' or 'inout', 'local' for memory of the kernel's own, 'shared'
    for such memory that each group of threads has for itself, or 'row' where the
    threads of a group hold the elements in registers, each those of its own rounds; two
    buffers never overlap.
    """

    name: str
    dtype: DType
    size: int
    role: str


class Expr:
    """Base of all expressions. `free` is the set of loop indices it depends on.

    `order` counts the expressions of a table: children come before their parents.
    """

    __slots__ = ("children", "dtype", "free", "order")

    dtype: DType
    order: int
    children: tuple[Expr, ...]
    free: frozenset[LoopIndex]

    def __init__(self, dtype: DType, children: tuple[Expr, ...]) -> None:
        self.dtype, self.children = dtype, children
        self.free = _free(children)


_NOTHING: frozenset[LoopIndex] = frozenset()


def _free(children: Iterable[Expr]) -> frozenset[LoopIndex]:
    free = _NOTHING
    for child in children:
        if child.free is not free:
            free = free | child.free if free else child.free
    return free


# ---------------------------------------------------------------- values


class Const(Expr):
    """A number known at compile time; NaN, inf and -0.0 are kept and told apart."""

    __slots__ = ("value",)

    def __init__(self, value: bool | int | float, dtype: DType) -> None:
        super().__init__(dtype, ())
        self.value = value


class Op(Expr):
    """A row of the scalar table applied to values."""

    __slots__ = ("name",)

    def __init__(self, name: str, args: tuple[Expr, ...], dtype: DType) -> None:
        super().__init__(dtype, args)
        self.name = name

    @property
    def args(self) -> tuple[Expr, ...]:
        """The operands."""
        return self.children


class Load(Expr):
    """The element of a buffer; 0, without touching memory, where masked off."""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Buffer, offset: IndexExpr, mask: Expr | None) -> None:
        super().__init__(buffer.dtype, (offset,) if mask is None else (offset, mask))
        self.buffer = buffer

    @property
    def offset(self) -> IndexExpr:
        """Which element, counted from the start of the buffer."""
        return as_index_expr(self.children[0])

    @property
    def mask(self) -> Expr | None:
        """A boolean value that must be true for memory to be read."""
        return self.children[1] if len(self.children) > 1 else None


class Fold(Expr):
    """A reduction of its bodies over loop indices; its values are read through `Part`.

    Each body is combined by itself, but for two kinds of `joint` bodies. Those of
    argmax and argmin are a value and its position: the best value and its position win,
    the first NaN beats all, ties go to the lowest position. Those of complex_mul are
    the parts of a complex number.
    """

    __slots__ = ("combine", "indices")

    def __init__(
        self, combine: str, indices: tuple[LoopIndex, ...], bodies: tuple[Expr, ...]
    ) -> None:
        super().__init__(bodies[0].dtype, bodies)
        self.combine, self.indices = combine, indices
        self.free -= frozenset(indices)

    @property
    def joint(self) -> bool:
        """Whether what a body combines to depends on the other bodies."""
        return self.combine in ("argmax", "argmin", "complex_mul")

    @property
    def bodies(self) -> tuple[Expr, ...]:
        """The values that are combined."""
        return self.children


class Scan(Expr):
    """The running value of a reduction: the bodies of all rounds so far combined.

    Its loops are the innermost ones of the domain and run one round after the other.
    """

    __slots__ = ("combine", "indices")

    def __init__(
        self, combine: str, indices: tuple[LoopIndex, ...], body: Expr
    ) -> None:
        super().__init__(body.dtype, (body,))
        self.combine, self.indices = combine, indices
        self.free |= frozenset(indices)

    @property
    def bodies(self) -> tuple[Expr, ...]:
        """The one value that is combined."""
        return self.children


class Part(Expr):
    """One of the values of a fold."""

    __slots__ = ("number",)

    def __init__(self, fold: Fold, number: int) -> None:
        super().__init__(fold.bodies[number].dtype, (fold,))
        self.number = number

    @property
    def fold(self) -> Fold:
        """The fold it belongs to."""
        fold = self.children[0]
        assert isinstance(fold, Fold)
        return fold


class IndexValue(Expr):
    """An index expression as a value of a numeric dtype (iota)."""

    __slots__ = ()

    def __init__(self, index: IndexExpr, dtype: DType) -> None:
        super().__init__(dtype, (index,))

    @property
    def index(self) -> IndexExpr:
        """The index expression."""
        return as_index_expr(self.children[0])


class Inside(Expr):
    """The boolean value of `0 <= index < extent`."""

    __slots__ = ("extent",)

    def __init__(self, index: IndexExpr, extent: int) -> None:
        super().__init__(dtypes.bool_, (index,))
        self.extent = extent

    @property
    def index(self) -> IndexExpr:
        """The index that is tested."""
        return as_index_expr(self.children[0])


# ---------------------------------------------------------------- index expressions


class IndexExpr(Expr):
    """Base of index expressions: int64, range `lo..hi` inclusive, with operators."""

    __slots__ = ("hi", "lo", "table")

    def __init__(
        self, table: ExprTable, children: tuple[Expr, ...], lo: int, hi: int
    ) -> None:
        super().__init__(dtypes.int64, children)
        self.table, self.lo, self.hi = table, lo, hi

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest value it can take."""
        return self.lo, self.hi

    def __add__(self, other: IndexExpr | int) -> IndexExpr:
        return self.table.add((self, 1), (other, 1))

    def __sub__(self, other: IndexExpr | int) -> IndexExpr:
        return self.table.add((self, 1), (other, -1))

    def __rsub__(self, other: int) -> IndexExpr:
        return self.table.add((other, 1), (self, -1))

    def __mul__(self, factor: int) -> IndexExpr:
        return self.table.add((self, factor))

    def __neg__(self) -> IndexExpr:
        return self.table.add((self, -1))

    def __floordiv__(self, divisor: int) -> IndexExpr:
        return self.table.floordiv(self, divisor)

    def __mod__(self, divisor: int) -> IndexExpr:
        return self.table.mod(self, divisor)

    __radd__ = __add__
    __rmul__ = __mul__


class LoopIndex(IndexExpr):
    """The index of a loop that counts from 0 to `extent - 1`."""

    __slots__ = ("extent", "tag")

    def __init__(self, table: ExprTable, tag: Hashable, extent: Any) -> None:
        super().__init__(table, (), 0, extent - 1)
        self.tag, self.extent = tag, extent
        self.free = frozenset((self,))


Terms = tuple[tuple[IndexExpr, int], ...]
"""The atoms of a sum, each with its coefficient."""


class Linear(IndexExpr):
    """A sum of atoms times coefficients, sorted, none of them 0, and an offset."""

    __slots__ = ("offset", "terms")

    def __init__(self, table: ExprTable, terms: Terms, offset: Any) -> None:
        lo = hi = offset
        for atom, c in terms:
            lo += c * (atom.lo if c >= 0 else atom.hi)
            hi += c * (atom.hi if c >= 0 else atom.lo)
        super().__init__(table, tuple(atom for atom, _ in terms), lo, hi)
        self.terms, self.offset = terms, offset


class FloorDiv(IndexExpr):
    """`index // divisor` rounded down, where ranges could not simplify it."""

    __slots__ = ("divisor",)

    def __init__(self, table: ExprTable, index: IndexExpr, divisor: int) -> None:
        super().__init__(table, (index,), index.lo // divisor, index.hi // divisor)
        self.divisor = divisor

    @property
    def index(self) -> IndexExpr:
        """The dividend."""
        return as_index_expr(self.children[0])


class Mod(IndexExpr):
    """`index % divisor`, never negative, where ranges could not simplify it."""

    __slots__ = ("divisor",)

    def __init__(self, table: ExprTable, index: IndexExpr, divisor: int) -> None:
        super().__init__(table, (index,), 0, divisor - 1)
        self.divisor = divisor

    @property
    def index(self) -> IndexExpr:
        """The dividend."""
        return as_index_expr(self.children[0])


class AsIndex(IndexExpr):
    """An integer value used as an index; the rule that made it has clipped it."""

    __slots__ = ()

    def __init__(self, table: ExprTable, value: Expr, lo: int, hi: int) -> None:
        super().__init__(table, (value,), lo, hi)

    @property
    def value(self) -> Expr:
        """The integer value."""
        return self.children[0]


def as_index_expr(expr: Expr) -> IndexExpr:
    """The same object, known to be an index expression."""
    assert isinstance(expr, IndexExpr)
    return expr


def is_trivial(expr: Expr) -> bool:
    """Whether it is printed where it is used rather than computed by a statement."""
    if isinstance(expr, Linear):
        return not expr.terms
    return isinstance(expr, Const | LoopIndex | Part)


def stride(index: IndexExpr, loop: LoopIndex) -> int | None:
    """How much the index grows when the loop's does by 1; None if not always alike."""
    total = 0
    for atom, c in terms_of(index)[0]:
        if atom is loop:
            total += c
        elif loop in atom.free:
            return None
    return total


def terms_of(index: IndexExpr) -> tuple[Terms, int]:
    """An index expression as (atom, coefficient) pairs and an offset."""
    if isinstance(index, Linear):
        return index.terms, index.offset
    return ((index, 1),), 0


def split_terms(terms: Terms, loops: Sequence[LoopIndex]) -> tuple[Terms, Terms]:
    """A sum's terms: what its innermost loop leaves alone, and the others.

    The schedule has the sum of the former, if it is one, computed outside of that loop.
    """
    for index in reversed(loops):
        inner = tuple(term for term in terms if index in term[0].free)
        if inner:
            return tuple(term for term in terms if index not in term[0].free), inner
    return (), terms


def depends_on_data(index: IndexExpr) -> bool:
    """Whether an index is computed from what was loaded."""
    return any(isinstance(expr, AsIndex) for expr in walk((index,)))


def walk(
    roots: Iterable[Expr], enters: Callable[[Expr], bool] | None = None
) -> list[Expr]:
    """Every expression reachable from the roots, once each, children first.

    Where `enters` is false for an expression, it comes without its children.
    """
    found = set(roots)
    stack = list(found)
    while stack:
        expr = stack.pop()
        if expr.children and (enters is None or enters(expr)):
            new = [child for child in expr.children if child not in found]
            found.update(new)
            stack += new
    return sorted(found, key=_order)


_order = attrgetter("order")


def linear_offset(
    index: Sequence[IndexExpr | int], shape: Sequence[int]
) -> IndexExpr | int:
    """The row-major offset of an index tuple in an array of this shape."""
    offset: IndexExpr | int = 0
    for i, extent in zip(index, shape, strict=True):
        offset = offset * extent + i
    return offset


def unravel(offset: IndexExpr, shape: Sequence[int]) -> tuple[IndexExpr, ...]:
    """The index tuple of a row-major offset: the inverse of `linear_offset`."""
    index: list[IndexExpr] = []
    for extent in reversed(shape[1:]):
        index.append(offset % extent)
        offset = offset // extent
    return (offset, *reversed(index)) if shape else ()
