"""`KernelBuilder`: the vocabulary of `element` rules, and the only way to make kernels.

A rule receives a builder `k` and index expressions and gives the value at that index:
an expression, or a pair of them (`complex.py`) where it is complex.
16-bit floats are widened, computed in float32 and rounded after each operation, so that
a fused kernel gives the bits of eager evaluation. `k.finish(name)` hands the stores to
`schedule.py`, next on the walk, and gives the scheduled `Kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.dtypes import DType
from fnx.errors import InternalError
from fnx.kernel import complex, math, scalar, special, storage  # noqa: F401  special adds rows
from fnx.kernel.complex import Complex, ComplexBuffer
from fnx.kernel.expr import (
    COMBINES,
    Buffer,
    Const,
    Expr,
    IndexExpr,
    IndexValue,
    LoopIndex,
    Op,
)
from fnx.kernel.ir import Kernel, Store, fold_identity
from fnx.kernel.schedule import Schedule, schedule
from fnx.kernel.storage import Stored, StoredBuffer
from fnx.kernel.table import ExprTable, canonical_value
from fnx.sizes import Size, surely_at_most, surely_below

Index = IndexExpr | int | Size
AnyBuffer = Buffer | ComplexBuffer | StoredBuffer


def _method(name: str) -> Callable[..., Any]:
    """A method that applies one row of the scalar table."""

    def method(self: KernelBuilder, *args: Any) -> Any:
        return self.op(name, *args)

    method.__name__, method.__doc__ = name, f"The scalar operation {name!r}."
    return method


class KernelBuilder:
    """Builds one kernel: buffers, the values of their elements, and stores.

    >>> k = KernelBuilder()
    >>> x = k.buffer("x", np.dtype("float32"), 10, "in")
    >>> y = k.buffer("y", np.dtype("float32"), 10, "out")
    >>> (i,) = k.domain((10,))
    >>> value = k.load(x, i)
    >>> k.store(y, i, k.mul(value, value))
    >>> kernel = k.finish("square")
    """

    def __init__(self) -> None:
        self.table = ExprTable()
        self._buffers: list[Buffer] = []
        self._domain: tuple[IndexExpr, ...] | None = None
        self._empty = False
        self._stores: list[Store] = []
        self._mask: Expr | None = None
        self._depth = 0

    @property
    def mask(self) -> Expr | None:
        """What guards the loads being built: the branches of `where` around them."""
        return self._mask

    # -- buffers, domain, loads and stores

    def buffer(self, name: str, dtype: DType, size: int, role: str) -> Any:
        """Declare the next parameter of the kernel; its role is in, out or inout.

        What it gives is for `load` and `store`.
        """
        if dtypes.is_complex(dtype):
            parts = self.buffer(name, dtypes.real_dtype(dtype), 2 * size, role)
            return ComplexBuffer(parts, dtype)
        if dtypes.is_storage(dtype):
            return StoredBuffer(self.buffer(name, dtypes.uint8, size, role), dtype)
        buffer = Buffer(name, dtype, max(size, 1), role)
        self._buffers.append(buffer)
        return buffer

    def domain(self, shape: Sequence[int]) -> tuple[IndexExpr, ...]:
        """The indices of the kernel's outer loops; every store runs once for each."""
        if self._domain is not None:
            raise InternalError("a kernel has one domain; k.domain was called twice")
        self._domain = tuple(self.table.loop(("d", n), e) for n, e in enumerate(shape))
        self._empty = 0 in shape
        return self._domain

    def load(self, buffer: AnyBuffer, offset: Index) -> Any:
        """The element of a buffer; inside `where`, only where the branch is taken."""
        if isinstance(buffer, ComplexBuffer):
            places = (offset * 2, offset * 2 + 1)
            return Complex(*[self.load(buffer.parts, place) for place in places])
        if isinstance(buffer, StoredBuffer):
            return Stored(self.load(buffer.bits, offset), buffer.dtype)
        offset = self._index(offset)
        lo, hi = offset.range
        in_range = surely_at_most(0, lo) and surely_below(hi, buffer.size)
        return self.table.load(buffer, offset, None if in_range else self._mask)

    def store(
        self,
        buffer: AnyBuffer,
        offset: Index,
        value: Any,
        combine: str | None = None,
        mask: Expr | None = None,
        apart: bool = False,
    ) -> None:
        """Write an element (or combine it with what is there), where the mask is true.

        Stores that combine run one after the other in the order of the domain, unless
        they are known to lie `apart`: no two of them are to one element. Of complex
        numbers these are sums.
        """
        if isinstance(buffer, ComplexBuffer):
            assert combine in (None, "add"), f"complex numbers combined by {combine}"
            for part, each in enumerate((value.re, value.im)):
                place = offset * 2 + part
                self.store(buffer.parts, place, each, combine, mask, apart)
            return
        if isinstance(buffer, StoredBuffer):
            assert combine is None, f"{buffer.dtype.name} combined by {combine}"
            self.store(buffer.bits, offset, value.bits, None, mask, apart)
            return
        if value.dtype is not buffer.dtype:
            raise InternalError(
                f"store of {dtypes.short(value.dtype)} into {buffer.name}: "
                f"{dtypes.short(buffer.dtype)}"
            )
        if isinstance(mask, Const):
            if not mask.value:
                return
            mask = None
        place = self._index(offset)
        self._stores.append(Store(buffer, place, value, combine, mask, apart))

    def finish(self, name: str, schedule: Schedule = schedule) -> Kernel:
        """Schedule what was built; the builder is of no more use then."""
        buffers, stores = tuple(self._buffers), tuple(self._stores)
        if self._empty:
            stores = ()
        domain = tuple(i for i in self._domain or () if isinstance(i, LoopIndex))
        kernel = schedule(name, self.table, buffers, domain, stores)
        self.table.forget()
        return kernel

    # -- indices

    def _index(self, index: Index) -> IndexExpr:
        return index if isinstance(index, IndexExpr) else self.table.number(index)

    def index_value(self, index: Index, dtype: DType) -> Any:
        """An index as a value (iota)."""
        if dtypes.is_complex(dtype):
            real = self.index_value(index, dtypes.real_dtype(dtype))
            return self.convert(real, dtype)
        wide = dtypes.compute_dtype(dtype)
        return self.convert(self.table.index_value(self._index(index), wide), dtype)

    def as_index(self, value: Expr, lo: int, hi: int) -> IndexExpr:
        """An integer value as an index; the caller has clipped it to `lo..hi`."""
        return self.table.as_index(value, lo, hi)

    def inside(self, index: Index, lo: int, hi: int) -> Expr:
        """The boolean `lo <= index < hi`, constant where the ranges tell."""
        return self.table.inside(self._index(index), lo, hi)

    # -- values

    def constant(self, value: Any, dtype: DType) -> Any:
        """A constant of the dtype."""
        if isinstance(value, Size):
            return self.index_value(value, dtype)
        if dtypes.is_complex(dtype):
            real = dtypes.real_dtype(dtype)
            parts = (value.real, value.imag)
            return Complex(*[self.table.constant(part, real) for part in parts])
        if dtypes.is_storage(dtype):
            return storage.constant(self, value, dtype)
        return self.table.constant(value, dtype)

    def op(self, name: str, *args: Any) -> Any:
        """A row of the scalar table, or a function of `math.py`, on values.

        16-bit floats are computed in float32 and the result is rounded to 16 bits.
        """
        if isinstance(args[-1], Complex):
            return complex.apply(self, name, args)
        if isinstance(args[-1], Stored):
            return storage.select(self, name, args)
        row = scalar.TABLE[name]
        dtype = args[-1].dtype
        wide = dtypes.compute_dtype(dtype)
        if wide is not dtype and name != "select":
            result = self.op(name, *(self.convert(arg, wide) for arg in args))
            return self.convert(result, dtype) if result.dtype is wide else result
        if row.llvm is None:
            function: Callable[..., Expr] = getattr(math, name)
            return function(self, *args)
        if name == "select":
            return self._select(*args)
        self._check(row, args)
        target = row.result(tuple(arg.dtype for arg in args))
        known = self._known(row, args, target)
        return self.table.op(name, args, target) if known is None else known

    def _known(
        self, row: scalar.ScalarOp, args: tuple[Expr, ...], result: DType
    ) -> Expr | None:
        """The result where constants tell its bits: those of a NaN they do not."""
        constants = [arg for arg in args if isinstance(arg, Const)]
        if not constants:
            return None
        if len(constants) == len(args) and not row.name.endswith("_if_huge"):
            value = row.numpy(*(np.asarray(c.value, c.dtype) for c in constants)).item()
            return None if value != value else self.constant(value, result)
        if len(args) != 2:
            return None
        if row.name in _ORDER and dtypes.is_integer(args[0].dtype):
            return self._index_test(row.name, *args)
        x, y = args
        if isinstance(y, Const) and _is_neutral(row.name, y):
            return x
        if isinstance(x, Const) and row.name in _COMMUTE and _is_neutral(row.name, x):
            return y
        return None

    def _index_test(self, name: str, x: Expr, y: Expr) -> Expr | None:
        """A comparison of an index with a number, as what ranges and cuts decide."""
        if isinstance(x, Const):
            x, y, name = y, x, _ORDER[name]
        if not isinstance(x, IndexValue) or not isinstance(y, Const):
            return None
        lo, hi = x.index.range
        info, bound = np.iinfo(x.dtype), int(y.value)
        if not (surely_at_most(info.min, lo) and surely_at_most(hi, info.max)):
            return None  # the index wraps around in this dtype
        bound += name in ("le", "gt")
        above = name in ("gt", "ge")
        return self.inside(x.index, *((bound, hi + 1) if above else (lo, bound)))

    def _check(self, row: scalar.ScalarOp, args: tuple[Expr, ...]) -> None:
        types = {arg.dtype for arg in args}
        if len(args) == row.arity and len(types) == 1 and types <= set(row.dtypes):
            return
        given = ", ".join(dtypes.short(arg.dtype) for arg in args)
        raise InternalError(f"scalar operation {row.name}({given}) is not in the table")

    def _select(self, cond: Expr, a: Expr, b: Expr) -> Expr:
        if cond.dtype is not dtypes.bool_ or a.dtype is not b.dtype:
            given = ", ".join(dtypes.short(x.dtype) for x in (cond, a, b))
            raise InternalError(f"select({given}): needs a bool and two equal dtypes")
        if isinstance(cond, Const):
            return a if cond.value else b
        return a if a is b else self.table.op("select", (cond, a, b), a.dtype)

    def convert(self, x: Any, dtype: DType) -> Any:
        """Another dtype: float to int saturates, NaN gives 0; to bool is `x != 0`."""
        if x.dtype is dtype:
            return x
        if isinstance(x, Complex) or dtypes.is_complex(dtype):
            return complex.convert(self, x, dtype)
        if isinstance(x, Stored) or dtypes.is_storage(dtype):
            return storage.convert(self, x, dtype)
        if isinstance(x, Const):
            return self.constant(_converted(x, dtype), dtype)
        if _is_widening_of(x, dtype):
            return x.children[0]
        return self.table.op("convert", (x,), dtype)

    def bitcast(self, x: Any, dtype: DType) -> Any:
        """The same bits as another dtype of the same size."""
        if x.dtype is dtype:
            return x
        if isinstance(x, Stored):
            return self.bitcast(x.bits, dtype)
        if dtypes.is_storage(dtype):
            return Stored(self.bitcast(x, dtypes.uint8), dtype)
        if isinstance(x, Const):
            bits = np.array(x.value, x.dtype).view(dtype)
            return self.table.constant(bits.item(), dtype)
        return self.table.op("bitcast", (x,), dtype)

    def where(
        self, cond: Expr, then: Callable[[], Any], otherwise: Callable[[], Any]
    ) -> Any:
        """One of two values; the loads of the branch not taken touch no memory."""
        if isinstance(cond, Const):
            return then() if cond.value else otherwise()
        with self._masked(cond):
            a = then()
        with self._masked(self.op("not", cond)):
            b = otherwise()
        return self.op("select", cond, a, b)

    @contextmanager
    def _masked(self, cond: Expr) -> Iterator[None]:
        outer = self._mask
        self._mask = cond if outer is None else self.op("and", outer, cond)
        try:
            yield
        finally:
            self._mask = outer

    # -- folds

    def fold(
        self,
        combine: str,
        tag: Hashable,
        extents: Sequence[int],
        body: Callable[[tuple[IndexExpr, ...]], Any],
    ) -> Any:
        """Reduce a body over indices; one value for one body, a tuple for a tuple.

        Complex bodies can be added up or multiplied. The bodies of argmax and argmin
        are a value and its position. Folds with the same tag and extents share their
        loop where they can. Over nothing, the result is the identity. 16-bit floats
        accumulate in float32 and are rounded once.
        """
        if combine not in COMBINES:
            raise InternalError(f"fold by {combine!r}; it must be one of {COMBINES}")
        # A fold inside the body of another must not share its index.
        depth = self._depth
        indices = tuple(
            self.table.loop((tag, depth, n), e) for n, e in enumerate(extents)
        )
        self._depth = depth + 1
        given = body(indices)
        self._depth = depth
        bodies = given if isinstance(given, tuple) else (given,)
        if isinstance(given, Complex):
            bodies = given.re, given.im
            combine = "complex_mul" if combine == "mul" else combine
        if 0 in extents:
            values = [
                self.constant(fold_identity(combine, n, b.dtype) or 0, b.dtype)
                for n, b in enumerate(bodies)
            ]
        else:
            loops = tuple(i for i in indices if isinstance(i, LoopIndex))
            values = self._folded(combine, loops, bodies)
        if isinstance(given, Complex):
            return Complex(*values)
        return tuple(values) if isinstance(given, tuple) else values[0]

    def _folded(
        self, combine: str, loops: tuple[LoopIndex, ...], bodies: tuple[Expr, ...]
    ) -> list[Expr]:
        if not loops:
            return list(bodies)
        wide = tuple(self.convert(b, _fold_dtype(b.dtype)) for b in bodies)
        fold = self.table.fold(combine, loops, wide)
        parts = [self.table.part(fold, n) for n in range(len(bodies))]
        return [self.convert(p, b.dtype) for p, b in zip(parts, bodies, strict=True)]

    def scan(self, combine: str, index: Index, body: Any) -> Any:
        """What a body combines to up to this value of the domain's last index.

        Values are combined one after the other. 16-bit floats accumulate in float32,
        and what is given is rounded. Complex bodies can be added up.
        """
        if isinstance(body, Complex):
            assert combine == "add", f"complex numbers scanned by {combine}"
            parts = (body.re, body.im)
            return Complex(*[self.scan(combine, index, part) for part in parts])
        if not isinstance(index, LoopIndex):
            return body  # of a loop that runs once
        wide = self.convert(body, dtypes.compute_dtype(body.dtype))
        return self.convert(self.table.scan(combine, (index,), wide), body.dtype)

    # -- the machine operations of the scalar table as methods

    add = _method("add")
    sub = _method("sub")
    mul = _method("mul")
    div = _method("div")
    rem = _method("rem")
    neg = _method("neg")
    abs = _method("abs")
    fma = _method("fma")
    min = _method("min")
    max = _method("max")
    floor = _method("floor")
    ceil = _method("ceil")
    round = _method("round")
    trunc = _method("trunc")
    sqrt = _method("sqrt")
    copysign = _method("copysign")
    and_ = _method("and")
    or_ = _method("or")
    xor = _method("xor")
    not_ = _method("not")
    shl = _method("shl")
    shr_logical = _method("shr_logical")
    shr_arithmetic = _method("shr_arithmetic")
    eq = _method("eq")
    ne = _method("ne")
    lt = _method("lt")
    le = _method("le")
    gt = _method("gt")
    ge = _method("ge")
    select = _method("select")


# Comparisons by order, each with the one that has its operands exchanged.
_ORDER = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_COMMUTE = {"add", "mul", "and", "or", "xor"}
# Where the neutral (second) operand is not that of a fold.
_NEUTRAL = {"sub": 0, "xor": 0, "shl": 0, "div": 1}
_NEUTRAL |= {"shr_logical": 0, "shr_arithmetic": 0}


def _is_neutral(name: str, constant: Const) -> bool:
    """Whether the operation with this second operand gives the first, bit by bit."""
    value, dtype = constant.value, constant.dtype
    if name in ("add", "mul", "and", "or"):
        neutral = canonical_value(fold_identity(name, 0, dtype), dtype)
    elif name in _NEUTRAL:
        neutral = _NEUTRAL[name]
    else:
        return False
    # Of the two zeros, which are equal, one is neutral for floats.
    return value == neutral and (value != 0 or str(float(value)) == str(float(neutral)))


def _fold_dtype(dtype: DType) -> DType:
    """What a fold accumulates in: bools as bytes, which have better vectors."""
    return dtypes.uint8 if dtype is dtypes.bool_ else dtypes.compute_dtype(dtype)


def _is_widening_of(x: Expr, dtype: DType) -> bool:
    """Whether x is a value of this 16-bit dtype widened: narrowing gives it back."""
    return (
        isinstance(x, Op)
        and x.name == "convert"
        and x.args[0].dtype is dtype
        and dtypes.compute_dtype(dtype) is x.dtype
    )


def _converted(x: Const, dtype: DType) -> bool | int | float:
    if dtypes.is_integer(dtype) and isinstance(x.value, float):
        if x.value != x.value:
            return 0
        info = np.iinfo(dtype)
        if x.value <= info.min or x.value >= info.max:
            return int(info.min if x.value <= info.min else info.max)
        return int(x.value)
    return canonical_value(x.value, dtype)
