"""`Value`: a kernel expression that reads like arithmetic, for the math functions.

`math_exp.py`, `math_log.py`, `math_trig.py` and `math_special.py` are numerical
analysis; with operators and Python numbers their formulas can be compared with the
papers'. A `Value` holds the builder and an expression; each operator calls the builder
once. Receives expressions, gives expressions; next on the walk: `math_exp.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx import dtypes
from fnx.records import record

if TYPE_CHECKING:  # build.py imports math.py, which imports this file
    from fnx.kernel.build import KernelBuilder
    from fnx.kernel.expr import Expr

DType = np.dtype[Any]
Coefficients = Mapping[DType, Sequence[float]]


@record
class Format:
    """The layout of a binary floating-point format."""

    dtype: DType
    word: DType
    """The unsigned integer of as many bits."""
    fraction_bits: int
    bias: int

    @property
    def bits(self) -> int:
        """The width of the format."""
        return self.dtype.itemsize * 8

    @property
    def shifter(self) -> float:
        """1.5 * 2^fraction_bits: adding it rounds to an integer, in the low bits."""
        return 1.5 * 2.0**self.fraction_bits

    @property
    def smallest_normal(self) -> float:
        """Numbers below have fewer bits of significand."""
        return float(2.0 ** (1 - self.bias))


FORMATS = {
    dtypes.float32: Format(dtypes.float32, dtypes.uint32, 23, 127),
    dtypes.float64: Format(dtypes.float64, dtypes.uint64, 52, 1023),
}


class Value:
    """A scalar expression with operators; Python numbers take the other's dtype."""

    __slots__ = ("expr", "k")

    def __init__(self, k: KernelBuilder, expr: Expr) -> None:
        self.k, self.expr = k, expr

    @property
    def dtype(self) -> DType:
        """The expression's dtype."""
        return self.expr.dtype

    @property
    def format(self) -> Format:
        """The floating-point format of a float."""
        return FORMATS[self.dtype]

    def like(self, value: Value | bool | int | float) -> Value:
        """A constant of this dtype; a `Value` is given back as it is."""
        if isinstance(value, Value):
            return value
        return Value(self.k, self.k.constant(value, self.dtype))

    def op(self, name: str, *others: Value | bool | int | float) -> Value:
        """A row of the scalar table with this value as its first operand."""
        exprs = [self.like(other).expr for other in others]
        return Value(self.k, self.k.op(name, self.expr, *exprs))

    def __add__(self, other: Value | float) -> Value:
        return self.op("add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self.op("sub", other)

    def __mul__(self, other: Value | float) -> Value:
        return self.op("mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self.op("div", other)

    def __radd__(self, other: float) -> Value:
        return self.like(other) + self

    def __rsub__(self, other: float) -> Value:
        return self.like(other) - self

    def __rmul__(self, other: float) -> Value:
        return self.like(other) * self

    def __rtruediv__(self, other: float) -> Value:
        return self.like(other) / self

    def __neg__(self) -> Value:
        return self.op("neg")

    def __abs__(self) -> Value:
        return self.op("abs")

    def __and__(self, other: Value | int) -> Value:
        return self.op("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self.op("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self.op("xor", other)

    def __invert__(self) -> Value:
        return self.op("not")

    def __lshift__(self, other: int) -> Value:
        return self.op("shl", other)

    def __rshift__(self, other: int) -> Value:
        """Logical: zeros come in."""
        return self.op("shr_logical", other)

    def __lt__(self, other: Value | float) -> Value:
        return self.op("lt", other)

    def __le__(self, other: Value | float) -> Value:
        return self.op("le", other)

    def __gt__(self, other: Value | float) -> Value:
        return self.op("gt", other)

    def __ge__(self, other: Value | float) -> Value:
        return self.op("ge", other)

    def equals(self, other: Value | float) -> Value:
        """Equality; not `==`, as a `Value` is no Python truth value."""
        return self.op("eq", other)

    def differs(self, other: Value | float) -> Value:
        """Inequality; true for NaN."""
        return self.op("ne", other)

    def copysign(self, other: Value) -> Value:
        """This size with the sign of `other`."""
        return self.op("copysign", other)

    def word(self) -> Value:
        """The bits of a float, as an unsigned integer."""
        return Value(self.k, self.k.bitcast(self.expr, self.format.word))

    def as_float(self, format_: Format) -> Value:
        """The float with these bits."""
        return Value(self.k, self.k.bitcast(self.expr, format_.dtype))


def fma(x: Value, y: Value | float, z: Value | float) -> Value:
    """x*y + z, rounded once."""
    return x.op("fma", y, z)


def select(condition: Value, x: Value | float, y: Value | float) -> Value:
    """`x` where `condition`, else `y`; one of the two must be a `Value`."""
    sample = x if isinstance(x, Value) else y
    assert isinstance(sample, Value)
    k = condition.k
    chosen = k.select(condition.expr, sample.like(x).expr, sample.like(y).expr)
    return Value(k, chosen)


def clamp(x: Value, low: float, high: float) -> Value:
    """`x` in [low, high]; NaN stays. One instruction a side on x86."""
    x = select(x > high, high, x)
    return select(x < low, low, x)


def at_most(x: Value, high: float) -> Value:
    """The smaller of `x` and `high`; NaN stays."""
    return select(x > high, high, x)


def polynomial(x: Value, coefficients: Coefficients) -> Value:
    """The polynomial with these coefficients, lowest power first, by Horner's rule."""
    low_first = coefficients[x.dtype]
    result = x.like(low_first[-1])
    for coefficient in reversed(low_first[:-1]):
        result = fma(result, x, coefficient)
    return result


def two_sum(x: Value, y: Value) -> tuple[Value, Value]:
    """The sum rounded, and what rounding lost (Knuth)."""
    total = x + y
    rest = total - x
    return total, (x - (total - rest)) + (y - rest)


def fast_two_sum(large: Value, small: Value | float) -> tuple[Value, Value]:
    """As `two_sum`, for |large| >= |small| (Dekker)."""
    total = large + small
    return total, small - (total - large)


def two_product(x: Value, y: Value | float) -> tuple[Value, Value]:
    """The product rounded, and what rounding lost."""
    product = x * y
    return product, fma(x, y, -product)


def quotient(x: Value, y: Value, y_low: Value, x_low: Value | None = None) -> Value:
    """(x + x_low) / (y + y_low), about 0.6 ulp; the low parts are at most an ulp."""
    reciprocal = 1.0 / y
    rough = x * reciprocal
    rest = fma(-rough, y, x)
    if x_low is not None:
        rest = rest + x_low
    return fma(fma(-rough, y_low, rest), reciprocal, rough)


LN2 = "0.693147180559945309417232121458176568075500134360255254120680"
LOG2_E = "1.442695040888963407359924681001892137426645954152985934135449"
LOG10_2 = "0.301029995663981195213738894724493026768189881462108541310427"
LOG10_E = "0.434294481903251827651128918916605082294397005803666566114454"
PI = "3.141592653589793238462643383279502884197169399375105820974945"
HALF_PI = "1.570796326794896619231321691639751442098584699687552910487472"
TWO_OVER_PI = "0.636619772367581343075535053490057448137838582961825794990669"
TWO_OVER_SQRT_PI = "1.128379167095512573896158903121545171688101258657997713688172"
TWO_THIRDS = "0.666666666666666666666666666666666666666666666666666666666667"


@functools.cache
def parts(digits: str, dtype: DType, count: int = 2) -> tuple[float, ...]:
    """A number of 60 digits as a sum of `count` floats, each the best for the rest.

    >>> parts(PI, np.dtype("float32"))
    (3.1415927410125732, -8.742277657347586e-08)
    """
    rest, unit, result = *_ratio(digits), list[float]()
    for _ in range(count):
        result.append(float(dtype.type(rest / unit)))
        rest, unit = _less(rest, unit, result[-1])
    return tuple(result)


@functools.cache
def chopped(digits: str, dtype: DType, count: int) -> tuple[float, ...]:
    """As `parts` for a positive number, with no part too large: all are positive."""
    rest, unit, result = *_ratio(digits), list[float]()
    for _ in range(count):
        part = dtype.type(rest / unit)
        if _less(rest, unit, float(part))[0] < 0:
            part = np.nextafter(part, dtype.type(0))
        result.append(float(part))
        rest, unit = _less(rest, unit, result[-1])
    return tuple(result)


# Python divides integers exactly; to import `fractions` takes 8 ms.


def _ratio(digits: str) -> tuple[int, int]:
    """A decimal number as a numerator and a denominator."""
    whole, _, decimals = digits.partition(".")
    return int(whole + decimals), 10 ** len(decimals)


def _less(number: int, unit: int, part: float) -> tuple[int, int]:
    """What is left of such a number without a part of it."""
    p, q = part.as_integer_ratio()
    return number * q - p * unit, unit * q
