"""The scalar-op table: every operation that a kernel's expressions are made of.

One row per op: name, arity, result dtype, allowed dtypes, and its meaning three times:
in NumPy (the oracle of the tests), as LLVM IR (`scalar_llvm.py`) and as CUDA C
(`scalar_cuda.py`). Rows whose printers are `None` are not machine operations:
`math.py` expands them into arithmetic. Receives nothing, gives `TABLE`; next on the
walk: `fnx/kernel/math.py`.

The three meanings agree on the corners (README, "Numerics"): integers wrap, integer
division by zero gives 0, shifts by the width or more give 0 (or the sign), min and max
propagate NaN, float to integer saturates and sends NaN to 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.kernel import math_huge
from fnx.kernel import scalar_cuda as cuda
from fnx.kernel import scalar_llvm as llvm
from fnx.records import record

DType = np.dtype[Any]
Array = np.ndarray[Any, DType]
ResultRule = Callable[[tuple[DType, ...]], DType]


@record
class ScalarOp:
    """One row of the table.

    `dtypes` are those of the value operands (the condition of `select` is always bool
    and not among them). 16-bit floats appear only where bits are moved, not computed
    with: the builder computes them in float32. `result` gets the operands' dtypes; for
    `convert` and `bitcast` the target is chosen by the caller, who passes it to `numpy`
    too. `llvm` and `cuda` are `None` for what `math.py` expands. `operations` is how
    many of a float unit it takes.
    """

    name: str
    arity: int
    result: ResultRule
    dtypes: tuple[DType, ...]
    numpy: Callable[..., Array]
    llvm: llvm.Printer | None
    cuda: cuda.Printer | None
    operations: int = 1


BOOL = (dtypes.bool_,)
SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
UNSIGNED = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
INTEGERS = SIGNED + UNSIGNED
FLOATS = (dtypes.float32, dtypes.float64)
NUMBERS = INTEGERS + FLOATS
STORED = BOOL + NUMBERS + (dtypes.float16, dtypes.bfloat16)


def _same(operands: tuple[DType, ...]) -> DType:
    return operands[-1]


def _bool(operands: tuple[DType, ...]) -> DType:
    return dtypes.bool_


# --- the meaning in NumPy, where NumPy has no function of exactly this meaning


def _quiet(function: Callable[..., Array]) -> Callable[..., Array]:
    """`function` without NumPy's floating-point and overflow warnings."""

    @functools.wraps(function)
    def wrapped(*args: Any) -> Array:
        with np.errstate(all="ignore"):
            return function(*args)

    return wrapped


def _divide(x: Array, y: Array) -> Array:
    """Quotient; of integers truncated toward zero, and 0 where `y` is 0."""
    x, y = np.asarray(x), np.asarray(y)
    if dtypes.is_float(x.dtype):
        return np.asarray(np.divide(x, y))
    exact = x - np.fmod(x, y)
    quotient = np.floor_divide(exact, y)
    return np.asarray(np.where(y == 0, x.dtype.type(0), quotient))


def _remainder(x: Array, y: Array) -> Array:
    """Remainder with the sign of `x` (C's `fmod`); of integers 0 where `y` is 0."""
    x, y = np.asanyarray(x), np.asanyarray(y)
    remainder = np.fmod(x, y)
    if dtypes.is_float(x.dtype):
        return np.asarray(remainder)
    return np.where(y == 0, x.dtype.type(0), remainder)


def _unsigned_view(x: Array) -> Array:
    x = np.asarray(x)
    return x.view(f"u{x.dtype.itemsize}")


def _shr_logical(x: Array, y: Array) -> Array:
    shifted = np.right_shift(_unsigned_view(x), _unsigned_view(y))
    return np.asarray(shifted).view(np.asarray(x).dtype)


def _shr_arithmetic(x: Array, y: Array) -> Array:
    signed = f"i{np.asarray(x).dtype.itemsize}"
    shifted = np.right_shift(np.asarray(x).view(signed), np.asarray(y).view(signed))
    return np.asarray(shifted).view(np.asarray(x).dtype)


def _population_count(x: Array) -> Array:
    # bitwise_count counts the bits of |x|, hence the view.
    return np.bitwise_count(_unsigned_view(x)).astype(np.asarray(x).dtype)


def _clz(x: Array) -> Array:
    smeared = _unsigned_view(x)
    bits = smeared.dtype.itemsize * 8
    distance = 1
    while distance < bits:
        smeared = smeared | (smeared >> smeared.dtype.type(distance))
        distance *= 2
    return (bits - np.bitwise_count(smeared)).astype(np.asarray(x).dtype)


def _fma(x: Array, y: Array, z: Array) -> Array:
    """x*y + z rounded once.

    In a wider type both ends of what the exact value may be are mostly rounded to the
    same number. Double precision needs an extended `np.longdouble`, as on x86.
    """
    wide, slack = _WIDER[x.dtype]
    product = x.astype(wide) * y.astype(wide)
    total = product + z.astype(wide)
    error = (np.abs(product) + np.abs(total)) * slack
    low = np.asarray((total - error).astype(x.dtype))
    certain = (low == (total + error).astype(x.dtype)) & (low != 0)
    if not certain.all():
        rest = ~certain
        low[rest] = _exact_fma(*[a[rest] for a in np.broadcast_arrays(x, y, z)])
    return low


# A wider type, and more than its sums and products are off, relative to their size.
_WIDER: dict[DType, tuple[DType, Any]] = {
    dtypes.float32: (np.dtype(np.float64), 2 * np.finfo(np.float64).eps),
    dtypes.float64: (np.dtype(np.longdouble), 2 * np.finfo(np.longdouble).eps),
}


def _exact_fma(x: Array, y: Array, z: Array) -> Array:
    """x*y + z, where a wider type is not enough, or there is no sign of zero.

    The product is exact in pieces of the wider type; the sum is made in it and rounded
    to odd, after which rounding to nearest is right (Boldo and Melquiond 2008).
    """
    wide, _ = _WIDER[x.dtype]
    pieces = [z.astype(wide)]
    for a in _halves(x) if x.dtype == dtypes.float64 else (x,):
        for b in _halves(y) if x.dtype == dtypes.float64 else (y,):
            pieces.append(a.astype(wide) * b.astype(wide))
    total, rest = pieces[0], np.zeros_like(pieces[0])
    for piece in pieces[1:]:
        sum_ = total + piece
        shadow = sum_ - total
        rest = rest + ((total - (sum_ - shadow)) + (piece - shadow))
        total = sum_
    rounded = total + rest
    rest = (total - rounded) + rest
    direction = np.where(rest > 0, np.inf, -np.inf).astype(wide)
    inexact = np.isfinite(rounded) & (rest != 0) & np.isfinite(rest)
    even = _is_even(rounded)
    odd = np.where(inexact & even, np.nextafter(rounded, direction), rounded)
    simple = x.astype(wide) * y.astype(wide) + z.astype(wide)
    # The simple sum has the right infinities, NaNs and signs of zero.
    return np.where(np.isfinite(simple) & (odd != 0), odd, simple).astype(x.dtype)


def _halves(x: Array) -> tuple[Array, Array]:
    """A float64 array as an exact sum of two with at most 27 bits each."""
    high = (x.view(np.int64) & np.int64(-(1 << 27))).view(np.float64)
    return high, np.where(np.isfinite(x), x - high, 0.0)


def _is_even(x: Array) -> Array:
    """Is the last bit of the significand 0?"""
    words = np.ascontiguousarray(x).view(np.uint64)
    # A longdouble is stored in 16 bytes, its significand in the first 8.
    significand = words.reshape(*x.shape, -1)[..., 0]
    return np.asarray((significand & np.uint64(1)) == 0)


def _select(condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition, x, y)


def _convert(x: Array, dtype: DType) -> Array:
    """`x` as `dtype`: floats saturate on the way to integers and NaN becomes 0."""
    x = np.asanyarray(x)
    if dtypes.is_float(x.dtype) and dtypes.is_integer(dtype):
        return saturated(x, dtype)
    return x.astype(dtype)


@functools.singledispatch
def saturated(x: Array, dtype: DType) -> Array:
    """Floats as integers, by the class of the array; most are NumPy's own."""
    low, high = _ends(dtype)
    # Bounds that either dtype has; NaN fails, too.
    if x.dtype.char in "fd" and ((x >= float(low)) & (x < float(high) + 1)).all():
        return x.astype(dtype)
    wide = x.astype(np.float64)
    # float(high) may round up to high + 1, which is still the right threshold.
    below, above = wide <= float(low), wide >= float(high)
    inside = np.where(below | above | np.isnan(wide), 0.0, wide).astype(dtype)
    return np.where(below, dtype.type(low), np.where(above, dtype.type(high), inside))


@functools.cache
def _ends(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of a dtype."""
    info = np.iinfo(dtype)
    return info.min, info.max


def _bitcast(x: Array, dtype: DType) -> Array:
    return np.asarray(x).view(dtype)


def _logistic(x: Array) -> Array:
    # SciPy's float32 loop loses the subnormal end of the left tail.
    falling = np.exp(-np.abs(x))
    return np.asarray(np.where(np.less(x, 0), falling, np.ones_like(x)) / (1 + falling))


def _rsqrt(x: Array) -> Array:
    return np.asarray(1 / np.sqrt(x))


def _scipy(name: str) -> Callable[..., Array]:
    """A function of `scipy.special`, imported at its first call: it is slow to load."""

    def function(*args: Array) -> Array:
        import scipy.special  # lazy: it is slow to load

        return np.asarray(getattr(scipy.special, name)(*args))

    function.__name__ = name
    return function


def _lgamma(x: Array) -> Array:
    """SciPy's, but +inf at -inf, as in C, and finite at the smallest numbers."""
    value = _scipy("gammaln")(x)
    size = np.abs(x)
    near = -np.log(np.where(size > 0, size, 1), dtype=value.dtype)
    value = np.where((size < 1e-30) & (size > 0), near, value)
    return np.where(np.isneginf(x), np.asarray(np.inf, value.dtype), value)


# --- the table ----------------------------------------------------------------

TABLE: dict[str, ScalarOp] = {}
"""Every scalar operation by its name.

>>> TABLE["div"].numpy(np.int32(-7), np.int32(2))
array(-3, dtype=int32)
>>> TABLE["shl"].arity, TABLE["exp"].llvm is None
(2, True)
"""


def add_row(
    name: str,
    arity: int,
    allowed: tuple[DType, ...],
    meaning: Callable[..., Any],
    llvm_printer: llvm.Printer | None = None,
    cuda_printer: cuda.Printer | None = None,
    result: ResultRule = _same,
    operations: int = 1,
) -> None:
    """Add a row; `special.py` has more of them."""
    meaning = _quiet(meaning)
    printers = llvm_printer, cuda_printer
    TABLE[name] = ScalarOp(name, arity, result, allowed, meaning, *printers, operations)


# arithmetic
add_row("add", 2, NUMBERS, np.add, llvm.binary("fadd", "add"), cuda.infix("+"))
add_row("sub", 2, NUMBERS, np.subtract, llvm.binary("fsub", "sub"), cuda.infix("-"))
add_row("mul", 2, NUMBERS, np.multiply, llvm.binary("fmul", "mul"), cuda.infix("*"))
add_row("div", 2, NUMBERS, _divide, llvm.divide, cuda.divide)
add_row("rem", 2, NUMBERS, _remainder, llvm.remainder, cuda.remainder)
add_row("neg", 1, NUMBERS, np.negative, llvm.negate, cuda.negate, operations=0)
add_row("abs", 1, NUMBERS, np.abs, llvm.absolute, cuda.absolute, operations=0)
add_row("min", 2, NUMBERS, np.minimum, llvm.extremum("lt"), cuda.extremum("<"))
add_row("max", 2, NUMBERS, np.maximum, llvm.extremum("gt"), cuda.extremum(">"))
add_row("fma", 3, FLOATS, _fma, llvm.intrinsic("fma"), cuda.call("fma"), operations=2)
add_row("sqrt", 1, FLOATS, np.sqrt, llvm.intrinsic("sqrt"), cuda.call("sqrt"))

# rounding to an integral value of the same type; `round` is half to even
add_row("floor", 1, FLOATS, np.floor, llvm.intrinsic("floor"), cuda.call("floor"))
add_row("ceil", 1, FLOATS, np.ceil, llvm.intrinsic("ceil"), cuda.call("ceil"))
add_row("trunc", 1, FLOATS, np.trunc, llvm.intrinsic("trunc"), cuda.call("trunc"))
add_row("round", 1, FLOATS, np.rint, llvm.intrinsic("roundeven"), cuda.call("rint"))

# bits
BITS = BOOL + INTEGERS
add_row("and", 2, BITS, np.bitwise_and, llvm.binary("", "and"), cuda.infix("&"))
add_row("or", 2, BITS, np.bitwise_or, llvm.binary("", "or"), cuda.infix("|"))
add_row("xor", 2, BITS, np.bitwise_xor, llvm.binary("", "xor"), cuda.infix("^"))
add_row("not", 1, BITS, np.invert, llvm.complement, cuda.complement, operations=0)
add_row("shl", 2, INTEGERS, np.left_shift, llvm.shift("shl"), cuda.shl)
add_row("shr_logical", 2, INTEGERS, _shr_logical, llvm.shift("lshr"), cuda.shr_logical)
add_row(
    "shr_arithmetic",
    2,
    INTEGERS,
    _shr_arithmetic,
    llvm.shr_arithmetic,
    cuda.shr_arithmetic,
)
add_row(
    "population_count",
    1,
    INTEGERS,
    _population_count,
    llvm.intrinsic("ctpop"),
    cuda.population_count,
)
add_row("clz", 1, INTEGERS, _clz, llvm.intrinsic("ctlz", "false"), cuda.clz)
add_row(
    "copysign",
    2,
    FLOATS,
    np.copysign,
    llvm.intrinsic("copysign"),
    cuda.call("copysign"),
    operations=0,
)

# tests: comparisons are false if an operand is NaN, but for `ne`
add_row(
    "eq", 2, BOOL + NUMBERS, np.equal, llvm.compare("eq"), cuda.compare("=="), _bool
)
add_row(
    "ne", 2, BOOL + NUMBERS, np.not_equal, llvm.compare("ne"), cuda.compare("!="), _bool
)
add_row("lt", 2, NUMBERS, np.less, llvm.compare("lt"), cuda.compare("<"), _bool)
add_row("le", 2, NUMBERS, np.less_equal, llvm.compare("le"), cuda.compare("<="), _bool)
add_row("gt", 2, NUMBERS, np.greater, llvm.compare("gt"), cuda.compare(">"), _bool)
add_row(
    "ge", 2, NUMBERS, np.greater_equal, llvm.compare("ge"), cuda.compare(">="), _bool
)
add_row("is_finite", 1, FLOATS, np.isfinite, llvm.is_finite, cuda.is_finite, _bool)

# choosing and reinterpreting: the only ops on 16-bit floats
add_row("select", 3, STORED, _select, llvm.select, cuda.select, operations=0)
add_row("convert", 1, STORED, _convert, llvm.convert, cuda.convert, operations=0)
add_row("bitcast", 1, STORED[1:], _bitcast, llvm.bitcast, cuda.bitcast, operations=0)

# sin_if_huge(x, y): y, but sin(x) where |x| is too huge for math_trig's reduction
for _name in ("sin", "cos", "tan"):
    add_row(
        f"{_name}_if_huge",
        2,
        FLOATS,
        math_huge.meaning(_name),
        math_huge.llvm(_name),
        math_huge.cuda(_name),
    )

# expanded by kernel/math.py
_NUMPY = "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh cbrt"
for _name in _NUMPY.split():
    add_row(_name, 1, FLOATS, getattr(np, _name))
for _name in ("asin", "acos", "atan", "asinh", "acosh", "atanh"):
    add_row(_name, 1, FLOATS, getattr(np, "arc" + _name[1:]))
add_row("logistic", 1, FLOATS, _logistic)
add_row("erf", 1, FLOATS, _scipy("erf"))
add_row("erfc", 1, FLOATS, _scipy("erfc"))
add_row("erf_inv", 1, FLOATS, _scipy("erfinv"))
add_row("lgamma", 1, FLOATS, _lgamma)
add_row("digamma", 1, FLOATS, _scipy("psi"))
add_row("rsqrt", 1, FLOATS, _rsqrt)
add_row("pow", 2, FLOATS, np.power)
add_row("atan2", 2, FLOATS, np.arctan2)
