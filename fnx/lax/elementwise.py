"""The elementwise operations under the names of `jax.lax`, as two tables.

Unlike `fnx.numpy` they do not promote: the arrays beside each other must have one dtype
and one shape, except that scalars (also arrays of rank 0) stand for any shape. Receives
arrays and scalars, gives what the primitive gives. Next on the walk: `structure.py`.
"""

from __future__ import annotations

import enum
from typing import Any

from fnx import dtypes, errors, tree
from fnx.api.key_arrays import takes_keys
from fnx.core.array import Array
from fnx.core.program import Literal
from fnx.core.trace import constant
from fnx.lax.tolerance import check_accuracy
from fnx.numpy import complex_order
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array, broadcast, cast, read
from fnx.ops import arithmetic, parts
from fnx.ops import elementwise as ops
from fnx.ops.marks import barrier
from fnx.ops.shape import full
from fnx.ops.widths import with_width


def operands(function: str, *args: ArrayLike) -> list[Any]:
    """The arguments as a primitive takes them: scalars repeated, nothing promoted."""
    values = [read(function, x, i) for i, x in enumerate(args)]
    arrays = [x for x in values if isinstance(x, Array)]
    if not arrays:
        return [constant(Literal(x)) for x in values]
    shape = next((x.shape for x in arrays if x.shape), ())
    return [
        broadcast(x, shape) if isinstance(x, Array) and not x.shape else x
        for x in values
    ]


def _named(function: Any, name: str, summary: str, args: str, result: Any) -> Any:
    """The function under its public name, with a docstring made of a table's row."""
    function.__name__ = function.__qualname__ = name
    example = f"{name}({args}).item()\n    {result!r}"
    function.__doc__ = f"{summary}\n\n    >>> {example}\n    "
    return function


def _unary(name: str, op: Any, summary: str, args: str, result: Any) -> Any:
    def function(x: ArrayLike) -> Array:
        return op(as_array(name, x))

    return _named(function, name, summary, args, result)


def _accurate(name: str, op: Any, summary: str, args: str, result: Any) -> Any:
    """An elementary function, which may be asked how exact it is."""

    def function(x: ArrayLike, *, accuracy: Any = None) -> Array:
        array = as_array(name, x)
        if accuracy is not None:
            check_accuracy(name, accuracy, array.dtype)
        return op(array)

    return _named(function, name, summary, args, result)


def _binary(name: str, op: Any, summary: str, args: str, result: Any) -> Any:
    def function(x: ArrayLike, y: ArrayLike) -> Array:
        return op(*operands(name, x, y))

    return _named(function, name, summary, args, result)


def _extreme(of_reals: Any, of_complex: Any) -> Any:
    """Maximum or minimum, of complex numbers by their order."""

    def chosen(x: Any, y: Any) -> Any:
        array = x if isinstance(x, Array) else y
        if not dtypes.is_complex(array.dtype):
            return of_reals(x, y)
        x, y = [
            v if isinstance(v, Array) else full(array.shape, array.dtype, v)
            for v in (x, y)
        ]
        return of_complex(x, y)

    return chosen


def _angle(y: Any, x: Any) -> Any:
    array = x if isinstance(x, Array) else y
    if not dtypes.is_complex(array.dtype):
        return ops.atan2(y, x)
    point = arithmetic.add(x, arithmetic.mul(y, 1j))
    size = ops.sqrt(arithmetic.add(arithmetic.mul(x, x), arithmetic.mul(y, y)))
    return arithmetic.mul(ops.log(ops.div(point, size)), -1j)


def _reciprocal(x: Array) -> Array:
    return ops.integer_pow(x, y=-1)


# ---------------------------------------------------------------- arithmetic

add = _binary("add", arithmetic.add, "x + y; integers wrap.", "1, 2", 3)
sub = _binary("sub", arithmetic.sub, "x - y; integers wrap.", "1, 2", -1)
div = _binary(
    "div",
    ops.div,
    "x / y; of integers truncated towards zero, and 0 where y is 0.",
    "-7, 2",
    -3,
)
rem = _binary(
    "rem", ops.rem, "The remainder of `div`, with the sign of x.", "-7, 2", -1
)
neg = _unary("neg", arithmetic.neg, "-x.", "1.0", -1.0)
abs = _unary(
    "abs",
    ops.abs,
    "|x|, real also of complex numbers; the gradient at 0 is 0.",
    "-1.5",
    1.5,
)
sign = _unary(
    "sign",
    ops.sign,
    "-1, 0 or 1 by the sign of x; of complex numbers x / |x|.",
    "-1.5",
    -1.0,
)
max = _greater = _binary(
    "max",
    _extreme(ops.max, complex_order.maximum),
    "The larger of x and y; NaN if either is. Ties share the gradient. Complex "
    "numbers go by their real, then by their imaginary parts.",
    "1, 2",
    2,
)
min = _lesser = _binary(
    "min",
    _extreme(ops.min, complex_order.minimum),
    "The smaller of x and y; NaN if either is. Ties share the gradient. Complex "
    "numbers go by their real, then by their imaginary parts.",
    "1, 2",
    1,
)
square = _unary("square", ops.square, "x * x.", "3.0", 9.0)
reciprocal = _unary("reciprocal", _reciprocal, "1 / x.", "4.0", 0.25)
floor = _unary(
    "floor",
    ops.floor,
    "The largest integer not above x, in the dtype of x.",
    "1.5",
    1.0,
)
ceil = _unary(
    "ceil", ops.ceil, "The smallest integer not below x, in the dtype of x.", "1.5", 2.0
)


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike = None) -> Array:
    """X * y; integers wrap. With `out_dtype` both are converted first.

    >>> mul(2, 3).item()
    6
    """
    a, b = operands("mul", x, y)
    if out_dtype is not None:
        wanted = dtypes.as_dtype(out_dtype)
        a, b = [cast(as_array("mul", v), wanted) for v in (a, b)]
    return arithmetic.mul(a, b)


def nextafter(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The number beside x1 in the direction of x2.

    >>> nextafter(1.0, 1.0).item()
    1.0
    """
    return parts.nextafter(*operands("nextafter", x1, x2))


# ---------------------------------------------------------------- comparisons

eq = _binary("eq", arithmetic.eq, "Whether x == y.", "1, 2", False)
ne = _binary("ne", ops.ne, "Whether x != y.", "1, 2", True)
lt = _binary("lt", ops.lt, "Whether x < y.", "1, 2", True)
le = _binary("le", ops.le, "Whether x <= y.", "1, 2", True)
gt = _binary("gt", ops.gt, "Whether x > y.", "1, 2", False)
ge = _binary("ge", ops.ge, "Whether x >= y.", "1, 2", False)
# ---------------------------------------------------------------- exponentials

exp = _accurate("exp", ops.exp, "e to the power x.", "0.0", 1.0)
exp2 = _accurate("exp2", ops.exp2, "2 to the power x.", "3.0", 8.0)
expm1 = _accurate("expm1", ops.expm1, "exp(x) - 1, precise near 0.", "0.0", 0.0)
log = _accurate("log", ops.log, "The natural logarithm.", "1.0", 0.0)
log1p = _accurate("log1p", ops.log1p, "log(1 + x), precise near 0.", "0.0", 0.0)
sqrt = _accurate(
    "sqrt", ops.sqrt, "The square root; its gradient at 0 is infinite.", "4.0", 2.0
)
rsqrt = _accurate("rsqrt", ops.rsqrt, "1 / sqrt(x).", "4.0", 0.5)
cbrt = _accurate("cbrt", ops.cbrt, "The cube root.", "-8.0", -2.0)
logistic = _accurate("logistic", ops.logistic, "1 / (1 + exp(-x)).", "0.0", 0.5)
erf = _unary("erf", ops.erf, "The error function.", "0.0", 0.0)
erfc = _unary("erfc", ops.erfc, "1 - erf(x), precise for large x.", "0.0", 1.0)
erf_inv = _unary("erf_inv", ops.erf_inv, "The inverse of erf on (-1, 1).", "0.0", 0.0)
# ---------------------------------------------------------------- trigonometry

sin = _accurate("sin", ops.sin, "The sine of x in radians.", "0.0", 0.0)
cos = _accurate("cos", ops.cos, "The cosine of x in radians.", "0.0", 1.0)
tan = _accurate("tan", ops.tan, "The tangent of x in radians.", "0.0", 0.0)
asin = _unary("asin", ops.asin, "The inverse of sin on [-1, 1].", "0.0", 0.0)
acos = _unary("acos", ops.acos, "The inverse of cos on [-1, 1].", "1.0", 0.0)
atan = _unary("atan", ops.atan, "The inverse of tan.", "0.0", 0.0)
sinh = _unary("sinh", ops.sinh, "The hyperbolic sine.", "0.0", 0.0)
cosh = _unary("cosh", ops.cosh, "The hyperbolic cosine.", "0.0", 1.0)
tanh = _accurate("tanh", ops.tanh, "The hyperbolic tangent.", "0.0", 0.0)
asinh = _unary("asinh", ops.asinh, "The inverse of sinh.", "0.0", 0.0)
acosh = _unary("acosh", ops.acosh, "The inverse of cosh on [1, inf).", "1.0", 0.0)
atanh = _unary("atanh", ops.atanh, "The inverse of tanh on (-1, 1).", "0.0", 0.0)
atan2 = _binary(
    "atan2",
    _angle,
    "The angle of the point (y, x); gradient 0 at the origin. Of complex numbers "
    "-i log((x + iy) / √(x² + y²)).",
    "0.0, 1.0",
    0.0,
)
# ---------------------------------------------------------------- bits, complex parts

bitwise_and = _binary("bitwise_and", parts.and_, "The bits set in both.", "6, 3", 2)
bitwise_or = _binary("bitwise_or", parts.or_, "The bits set in one or both.", "6, 3", 7)
bitwise_xor = _binary(
    "bitwise_xor", parts.xor, "The bits set in one of both.", "6, 3", 5
)
bitwise_not = _unary("bitwise_not", parts.not_, "The bits inverted.", "6", -7)
shift_left = _binary(
    "shift_left", parts.shift_left, "x shifted y bits to the left.", "3, 2", 12
)
shift_right_logical = _binary(
    "shift_right_logical",
    parts.shift_right_logical,
    "x shifted y bits to the right; zeros fill in.",
    "-1, 28",
    15,
)
shift_right_arithmetic = _binary(
    "shift_right_arithmetic",
    parts.shift_right_arithmetic,
    "x shifted y bits to the right; the sign fills in.",
    "-8, 1",
    -4,
)
population_count = _unary(
    "population_count", parts.population_count, "The number of bits set.", "6", 2
)
clz = _unary("clz", parts.clz, "The number of leading bits that are not set.", "1", 31)
real = _unary("real", parts.real, "The real part of a complex number.", "1 + 2j", 1.0)
imag = _unary(
    "imag", parts.imag, "The imaginary part of a complex number.", "1 + 2j", 2.0
)
# ---------------------------------------------------------------- with options


class RoundingMethod(enum.Enum):
    """How `round` decides between two integers that are equally near."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(
    x: ArrayLike, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO
) -> Array:
    """The nearest integer, in the dtype of x; halves by `rounding_method`.

    >>> round(2.5).item(), round(2.5, RoundingMethod.TO_NEAREST_EVEN).item()
    (3.0, 2.0)
    """
    array = as_array("round", x)
    if RoundingMethod(rounding_method) is RoundingMethod.TO_NEAREST_EVEN:
        return ops.round(array)
    whole = ops.trunc(array)
    rest = ops.abs(arithmetic.sub(array, whole))
    away = arithmetic.add(whole, ops.copysign(1.0, array))
    return arithmetic.select(ops.ge(rest, 0.5), away, whole)


def integer_pow(x: ArrayLike, y: int) -> Array:
    """X to a constant integer power.

    >>> integer_pow(2.0, -1).item()
    0.5
    """
    return ops.integer_pow(as_array("integer_pow", x), y=y.__index__())


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """X to the power y, of floats; an integer y is converted.

    >>> pow(2.0, 3).item()
    8.0
    """
    if y.__class__ is int:
        return integer_pow(x, y)  # type: ignore[arg-type]
    base, exponent = as_array("pow", x), read("pow", y, 1)
    if isinstance(exponent, Array) and dtypes.is_integer(exponent.dtype):
        exponent = cast(exponent, base.dtype, exponent.weak_type)
    return ops.pow(*operands("pow", base, exponent))


def is_finite(x: ArrayLike) -> Array:
    """Whether x is neither infinite nor NaN.

    >>> is_finite(1.0).item()
    True
    """
    return parts.is_finite(as_array("is_finite", x))


def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """The complex number x + iy.

    >>> complex(1.0, 2.0).item()
    (1+2j)
    """
    return parts.complex_(*operands("complex", x, y))


def conj(x: ArrayLike) -> Array:
    """The complex conjugate; a real array becomes complex."""
    array = as_array("conj", x)
    if dtypes.is_complex(array.dtype):
        return parts.conj(array)
    return cast(array, dtypes.complex_dtype(array.dtype))


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """X moved into [min, max]; the gradient passes on the closed interval.

    >>> clamp(0.0, 2.0, 1.0).item()
    1.0
    """
    low, value, high = operands("clamp", min, x, max)
    kind = value.dtype if isinstance(value, Array) else dtypes.float32
    if dtypes.is_complex(kind) or dtypes.is_bool(kind):
        return _lesser(_greater(value, low), high)
    return ops.clamp(low, value, high)


@takes_keys(1, 2)
def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """`on_true` where the condition holds, `on_false` elsewhere.

    >>> select(True, 1.0, 2.0).item()
    1.0
    """
    mask = as_array("select", pred)
    x, y = operands("select", on_true, on_false)
    shape = next((v.shape for v in (x, y) if isinstance(v, Array) and v.shape), ())
    return arithmetic.select(mask if mask.shape else broadcast(mask, shape), x, y)


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """The case whose number `which` is (False is 0, True is 1), element by element.

    >>> select_n(1, 10.0, 20.0, 30.0).item()
    20.0
    """
    number = as_array("select_n", which)
    if dtypes.is_bool(number.dtype):
        if len(cases) != 2:
            raise errors.ArgumentError(
                f"select_n: a boolean `which` chooses among 2 cases, got {len(cases)}"
            )
        return select(number, cases[1], cases[0])
    if not cases:
        raise errors.ArgumentError("select_n takes at least one case")
    result: Any = cases[-1]
    for i in range(len(cases) - 1, 0, -1):
        result = select(ops.lt(number, i), cases[i - 1], result)
    return as_array("select_n", result)


def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """The array in another dtype; Python's types mean the default dtypes.

    >>> convert_element_type(1.7, "int32").item()
    1
    """
    return cast(as_array("convert_element_type", operand), dtypes.as_dtype(new_dtype))


def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """The bits of the elements read as another dtype.

    Narrower elements lie along a new last axis, the lowest bits first; wider ones take
    up the last axis, which has the size of their parts. Raises `ShapeError` where it
    has not, `DTypeError` for booleans and complex numbers of another width.

    >>> bitcast_convert_type(1.0, "int32").item()
    1065353216
    >>> bitcast_convert_type(1.0, "uint8").tolist()
    [0, 0, 128, 63]
    """
    array, wanted = (
        as_array("bitcast_convert_type", operand),
        dtypes.as_dtype(new_dtype),
    )
    return with_width(array, wanted)


def stop_gradient(x: Any) -> Any:
    """The same values (of any tree), with derivative 0.

    >>> stop_gradient({"a": 1.0})["a"]
    1.0
    """
    return tree.map(_stopped, x)


def _stopped(x: Any) -> Any:
    if isinstance(x, Array) and dtypes.is_inexact(x.dtype):
        return parts.stop_gradient(x)
    return x


def optimization_barrier(operand: Any) -> Any:
    """The same values (of any tree of arrays), behind a barrier for the compiler.

    What is computed from them is neither merged nor fused with what is computed from
    the values before the barrier, and begins when all of them are there. Nothing is
    copied; derivatives and `vmap` go through.

    >>> optimization_barrier((1.0, 2.0))[1].item()
    2.0
    """
    leaves, treedef = tree.flatten(operand)
    arrays = [as_array("optimization_barrier", leaf) for leaf in leaves]
    return treedef.unflatten(barrier(*arrays, number=0))
