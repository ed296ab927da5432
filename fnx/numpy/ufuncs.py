"""The elementwise functions that are one primitive each, as two tables.

Receives arrays, NumPy arrays and Python scalars; promotes their dtypes (a Python scalar
is weak: it takes the array's), broadcasts their shapes, and applies the primitive.
`_unary` and `_binary` make a function of a row; "inexact" rows compute integers in
floating point. Functions made of several primitives are in `mathematics.py`, the next
file of the walk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fnx import dtypes
from fnx.api.at_once import at_once
from fnx.api.promote import becomes_native, becomes_native_with_numbers
from fnx.core.array import Array
from fnx.numpy import complex_order, on_numpy
from fnx.numpy.operands import ArrayLike, as_array, cast, inexact_dtype, operands
from fnx.ops import arithmetic, parts
from fnx.ops import elementwise as ops
from fnx.ops.shape import full

Unary = Callable[[ArrayLike], Array]
Binary = Callable[[ArrayLike, ArrayLike], Array]

_FLOATS = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64})
_COMPLEX = frozenset({dtypes.complex64, dtypes.complex128})
_INTEGERS = frozenset(filter(dtypes.is_integer, dtypes.SUPPORTED))
# The dtypes of an array that a Python scalar of that class leaves alone.
_LEAVES = {
    int: _INTEGERS | _FLOATS | _COMPLEX,
    float: _FLOATS | _COMPLEX,
    complex: _COMPLEX,
}
_NONE: frozenset[Any] = frozenset()


def _named(
    function: Any,
    name: str,
    summary: str,
    args: Any,
    result: Any,
    decorate: Callable[[Any], Any] = becomes_native,
) -> Any:
    """The function under its public name, with a docstring made of a table's row."""
    function.__name__ = function.__qualname__ = name
    shown = ", ".join(map(repr, args if isinstance(args, tuple) else (args,)))
    function.__doc__ = (
        f"{summary}\n\n    >>> {name}({shown}).item()\n    {result!r}\n    "
    )
    return decorate(function)


def _unary(
    name: str,
    op: Any,
    summary: str,
    args: Any,
    result: Any,
    *,
    inexact: bool = False,
    decorate: Callable[[Any], Any] = becomes_native,
) -> Unary:
    """An elementwise function of one argument; any shape, the same shape out."""

    def function(x: ArrayLike, /) -> Array:
        array = as_array(name, x)
        if inexact and not dtypes.is_inexact(array.dtype):
            weak = array.type.weak
            array = cast(array, inexact_dtype(array.dtype, weak), weak)
        return op(array)

    return _named(function, name, summary, args, result, decorate)


def _binary(
    name: str,
    op: Any,
    summary: str,
    args: Any,
    result: Any,
    *,
    inexact: bool = False,
    on_bool: Any = None,
    on_complex: Any = None,
) -> Binary:
    """An elementwise function of two arguments, promoted and broadcast.

    `on_bool` and `on_complex` serve booleans and complex numbers where `op` does not.
    """
    direct = _FLOATS | _COMPLEX if inexact else frozenset(dtypes.SUPPORTED)
    if on_bool is not None:
        direct -= {dtypes.bool_}
    if on_complex is not None:
        direct -= _COMPLEX

    def function(x1: ArrayLike, x2: ArrayLike, /) -> Array:
        # The common cases first: two arrays of one type, an array and a scalar.
        if isinstance(x1, Array):
            type = x1.type
            if isinstance(x2, Array):
                if type is x2.type and type.dtype in direct:
                    return op(x1, x2)
            elif (
                type.dtype in _LEAVES.get(x2.__class__, _NONE)
                and type.dtype in direct
                and not type.weak
            ):
                return op(x1, x2)
        a, b = operands(name, x1, x2, inexact=inexact)
        if on_bool is not None and a.type.dtype is dtypes.bool_:
            return on_bool(a, b)
        if on_complex is not None and dtypes.is_complex(a.type.dtype):
            shape = a.type.shape or b.type.shape
            return on_complex(*[_written_out(x, shape) for x in (a, b)])
        return op(a, b)

    return _named(function, name, summary, args, result, becomes_native_with_numbers)


def _written_out(x: Any, shape: tuple[int, ...]) -> Array:
    """An operand, which may be a number, as an array of a shape."""
    if isinstance(x, Array):
        return x
    return full(shape, x.type.dtype, x.value)


def _predicate(
    name: str, op: Any, otherwise: bool, summary: str, args: Any, result: Any
) -> Unary:
    """A test of floating-point values; integers and booleans all answer alike."""

    def function(x: ArrayLike, /) -> Array:
        array = as_array(name, x)
        if dtypes.is_inexact(array.dtype):
            return op(array)
        return full(array.shape, dtypes.bool_, otherwise)

    return _named(function, name, summary, args, result)


def _whole(name: str, op: Any, summary: str, args: Any, result: Any) -> Unary:
    """A rounding function; integers and booleans are whole already."""

    def function(x: ArrayLike, /) -> Array:
        array = as_array(name, x)
        return op(array) if dtypes.is_inexact(array.dtype) else array

    return _named(function, name, summary, args, result)


def _is_finite(x: Array) -> Array:
    if not dtypes.is_complex(x.dtype):
        return parts.is_finite(x)
    both = parts.is_finite(parts.real(x)), parts.is_finite(parts.imag(x))
    return parts.and_(*both)


def _is_nan(x: Array) -> Array:
    return ops.ne(x, x)


def _is_infinite(x: Array) -> Array:
    if dtypes.is_complex(x.dtype):
        sides = _is_infinite(parts.real(x)), _is_infinite(parts.imag(x))
        return parts.or_(*sides)
    return arithmetic.eq(ops.abs(x), math.inf)


def _count_bits(x: Array) -> Array:
    if dtypes.is_bool(x.dtype):
        return cast(x, dtypes.uint8)
    signed = dtypes.is_signed(x.dtype)
    return cast(parts.population_count(ops.abs(x) if signed else x), dtypes.uint8)


def _rint(x: Array) -> Array:
    return (complex_order.rint if dtypes.is_complex(x.dtype) else ops.round)(x)


def _log2(x: Array) -> Array:
    return _over(ops.log(x), math.log(2))


def _log10(x: Array) -> Array:
    return _over(ops.log(x), math.log(10))


def _over(x: Array, number: float) -> Array:
    """X / number, part by part: an infinite part of x leaves the other one alone."""
    if not dtypes.is_complex(x.dtype):
        return ops.div(x, number)
    sides = [ops.div(part(x), number) for part in (parts.real, parts.imag)]
    return parts.complex_(*sides)


# ---------------------------------------------------------------- arithmetic

add = _binary(
    "add",
    arithmetic.add,
    "x1 + x2; of booleans, or. Integers wrap.",
    (1, 2.5),
    3.5,
    on_bool=parts.or_,
)
subtract = _binary(
    "subtract",
    arithmetic.sub,
    "x1 - x2; integers wrap, booleans raise.",
    (1, 2.5),
    -1.5,
)
multiply = _binary(
    "multiply",
    arithmetic.mul,
    "x1 * x2; of booleans, and. Integers wrap.",
    (2, 2.5),
    5.0,
    on_bool=parts.and_,
)
divide = _binary(
    "divide",
    ops.div,
    "x1 / x2 in floating point, also of integers.",
    (1, 2),
    0.5,
    inexact=True,
)
true_divide = divide
negative = _unary("negative", arithmetic.neg, "-x; booleans raise.", 2, -2)
maximum = _binary(
    "maximum",
    ops.max,
    "The larger of x1 and x2; NaN if either is. Gradients are shared at ties.",
    (1, 2),
    2,
    on_bool=parts.or_,
    on_complex=complex_order.maximum,
)
minimum = _binary(
    "minimum",
    ops.min,
    "The smaller of x1 and x2; NaN if either is. Gradients are shared at ties.",
    (1, 2),
    1,
    on_bool=parts.and_,
    on_complex=complex_order.minimum,
)
sign = _unary(
    "sign",
    ops.sign,
    "-1, 0 or 1 by the sign of x; of complex numbers x / |x|. Gradient 0.",
    -2.5,
    -1.0,
)

# ---------------------------------------------------------------- comparisons

equal = _binary(
    "equal",
    arithmetic.eq,
    "Whether x1 == x2, element by element; False with NaN.",
    (1, 1.0),
    True,
)
not_equal = _binary(
    "not_equal",
    ops.ne,
    "Whether x1 != x2, element by element; True with NaN.",
    (1, 2),
    True,
)
less = _binary(
    "less",
    ops.lt,
    "Whether x1 < x2, element by element; False with NaN.",
    (1, 2),
    True,
    on_complex=complex_order.less,
)
less_equal = _binary(
    "less_equal",
    ops.le,
    "Whether x1 <= x2, element by element; False with NaN.",
    (1, 2),
    True,
    on_complex=complex_order.less_equal,
)
greater = _binary(
    "greater",
    ops.gt,
    "Whether x1 > x2, element by element; False with NaN.",
    (1, 2),
    False,
    on_complex=complex_order.greater,
)
greater_equal = _binary(
    "greater_equal",
    ops.ge,
    "Whether x1 >= x2, element by element; False with NaN.",
    (1, 2),
    False,
    on_complex=complex_order.greater_equal,
)
isfinite = _predicate(
    "isfinite", _is_finite, True, "Whether x is neither infinite nor NaN.", 1.0, True
)
isnan = _predicate("isnan", _is_nan, False, "Whether x is NaN.", 1.0, False)
isinf = _predicate("isinf", _is_infinite, False, "Whether x is infinite.", 1.0, False)

# ---------------------------------------------------------------- exponentials

exp = _unary("exp", ops.exp, "e to the power x.", 0, 1.0, inexact=True)
exp2 = _unary("exp2", ops.exp2, "2 to the power x.", 3, 8.0, inexact=True)
expm1 = _unary("expm1", ops.expm1, "exp(x) - 1, precise near 0.", 0, 0.0, inexact=True)
log = _unary(
    "log", ops.log, "The natural logarithm; -inf at 0, NaN below.", 1, 0.0, inexact=True
)
log2 = _unary("log2", _log2, "The logarithm to base 2.", 8, 3.0, inexact=True)
log10 = _unary("log10", _log10, "The logarithm to base 10.", 100, 2.0, inexact=True)
log1p = _unary("log1p", ops.log1p, "log(1 + x), precise near 0.", 0, 0.0, inexact=True)
sqrt = _unary(
    "sqrt",
    ops.sqrt,
    "The square root; NaN below 0, gradient infinite at 0.",
    4,
    2.0,
    inexact=True,
)
cbrt = _unary(
    "cbrt",
    ops.cbrt,
    "The cube root, negative for negative x.",
    -8.0,
    -2.0,
    inexact=True,
)

# ---------------------------------------------------------------- trigonometry

sin = _unary("sin", ops.sin, "The sine of x in radians.", 0, 0.0, inexact=True)
cos = _unary("cos", ops.cos, "The cosine of x in radians.", 0, 1.0, inexact=True)
tan = _unary("tan", ops.tan, "The tangent of x in radians.", 0, 0.0, inexact=True)
arcsin = _unary(
    "arcsin",
    ops.asin,
    "The angle in [-π/2, π/2] with sine x; NaN outside of [-1, 1].",
    0,
    0.0,
    inexact=True,
)
arccos = _unary(
    "arccos",
    ops.acos,
    "The angle in [0, π] with cosine x; NaN outside of [-1, 1].",
    1,
    0.0,
    inexact=True,
)
arctan = _unary(
    "arctan", ops.atan, "The angle in (-π/2, π/2) with tangent x.", 0, 0.0, inexact=True
)
sinh = _unary("sinh", ops.sinh, "The hyperbolic sine.", 0, 0.0, inexact=True)
cosh = _unary("cosh", ops.cosh, "The hyperbolic cosine.", 0, 1.0, inexact=True)
tanh = _unary(
    "tanh",
    ops.tanh,
    "The hyperbolic tangent; its gradient keeps its precision in the tails.",
    0,
    0.0,
    inexact=True,
)
arcsinh = _unary("arcsinh", ops.asinh, "The inverse of sinh.", 0, 0.0, inexact=True)
arccosh = _unary(
    "arccosh",
    ops.acosh,
    "The inverse of cosh on [1, inf); NaN below.",
    1,
    0.0,
    inexact=True,
)
arctanh = _unary(
    "arctanh",
    ops.atanh,
    "The inverse of tanh; NaN outside of [-1, 1].",
    0,
    0.0,
    inexact=True,
)
acos, asin, atan = arccos, arcsin, arctan
acosh, asinh, atanh = arccosh, arcsinh, arctanh
arctan2 = _binary(
    "arctan2",
    ops.atan2,
    "The angle in [-π, π] of the point (x2, x1); gradient 0 at the origin.",
    (0.0, 1.0),
    0.0,
    inexact=True,
)
atan2 = arctan2

# ---------------------------------------------------------------- rounding

floor = _whole(
    "floor", ops.floor, "The largest integer not above x, in the dtype of x.", 1.5, 1.0
)
ceil = _whole(
    "ceil", ops.ceil, "The smallest integer not below x, in the dtype of x.", 1.5, 2.0
)
trunc = _whole("trunc", ops.trunc, "The integer part of x, towards zero.", -1.5, -1.0)
rint = _unary(
    "rint",
    _rint,
    "The nearest integer, halves to even, as a float.",
    2.5,
    2.0,
    inexact=True,
)

# ---------------------------------------------------------------- bits

bitwise_and = _binary(
    "bitwise_and",
    parts.and_,
    "The bits set in both x1 and x2; of booleans, and.",
    (6, 3),
    2,
)
bitwise_or = _binary(
    "bitwise_or", parts.or_, "The bits set in x1 or x2; of booleans, or.", (6, 3), 7
)
bitwise_xor = _binary(
    "bitwise_xor", parts.xor, "The bits set in one of x1 and x2.", (6, 3), 5
)
left_shift = _binary(
    "left_shift",
    parts.shift_left,
    "x1 shifted x2 bits to the left; 0 from the width on.",
    (3, 2),
    12,
)
bitwise_not = _unary(
    "bitwise_not", parts.not_, "The bits of x inverted; of booleans, not.", 6, -7
)
bitwise_invert = invert = bitwise_not
bitwise_left_shift = left_shift
bitwise_count = _unary(
    "bitwise_count",
    _count_bits,
    "The number of bits set in |x|, as uint8.",
    6,
    2,
    decorate=at_once(on_numpy.bitwise_count),
)
