"""The elementwise functions: a table of primitives, one a line, with their derivatives.

Receives arrays of equal shapes and dtypes, gives one of the same shape. A `Smooth` row
names the dtypes, the NumPy function and a partial derivative for each operand, written
from existing primitives so that it can be differentiated again.
Derivatives are written for relative accuracy in the tails: from the input, never as
1 - y*y of a saturated output. Where no existing function does it, a helper primitive
with a name and a derivative of its own does (`sech_squared`, `exp_neg_square`, …).
Next on the walk: `shape.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.core.faults import DIVISION, Fault
from fnx.core.primitive import is_linear
from fnx.core.program import Literal
from fnx.core.types import ArrayType
from fnx.ops import formulas
from fnx.ops.arithmetic import (
    Smooth,
    add,
    eq,
    mul,
    mul_strong_zero,
    mul_tangents,
    neg,
    plus,
    scale,
    select,
    sub,
)
from fnx.ops.families import (
    ANY,
    BOOL,
    FLOAT,
    INEXACT,
    INTEGER,
    NUMBER,
    REAL,
    Elementwise,
    Predicate,
    Stepwise,
    kind,
)
from fnx.ops.parts import and_, complex_, imag, or_, real, stop_gradient

# ---------------------------------------------------------------- comparisons


def _order(name: str, numpy: Callable[..., Any]) -> Predicate:
    element = formulas.compared_element(name)
    return Predicate(name, BOOL + REAL, numpy, scalar=element, cheap=True)


ne = Predicate("ne", ANY, np.not_equal, commutative=True, cheap=True)
lt = _order("lt", np.less)
le = _order("le", np.less_equal)
gt = _order("gt", np.greater)
ge = _order("ge", np.greater_equal)


# ---------------------------------------------------------------- conversion


class _Convert(Elementwise):
    """convert(x, dtype, weak): the same values in another dtype.

    Floats saturate on the way to integers and NaN becomes 0; to bool is `x != 0`; a
    complex number loses its imaginary part on the way to the reals.
    """

    linear = True

    def __call__(self, x: Any, *, dtype: Any, weak: bool = False) -> Any:
        """Gives equal conversions equal params."""
        return super().__call__(x, dtype=dtypes.as_dtype(dtype), weak=weak)

    def infer(self, x: ArrayType, *, dtype: np.dtype[Any], weak: bool) -> ArrayType:
        """The shape of the operand with the dtype and weakness asked for."""
        return ArrayType(x.shape, dtype, weak)

    def reference(self, x: Any, *, dtype: np.dtype[Any], weak: bool) -> Any:
        """NumPy's astype, but for the corners named above."""
        if dtypes.is_complex(x.dtype) and not (
            dtypes.is_complex(dtype) or dtypes.is_bool(dtype)
        ):
            x = x.real
        if dtypes.is_stored_integer(x.dtype):
            x = x.astype(np.int32)
        elif dtypes.is_storage(x.dtype):
            x = x.astype(np.float32)  # which has all of its numbers
        if dtypes.is_stored_integer(dtype):
            return np.asarray(self._narrowed(x, dtype))
        if dtypes.is_storage(dtype):
            with np.errstate(all="ignore"):
                return np.asarray(x.astype(np.float32).astype(dtype))
        return np.asarray(self.numpy(x, dtype))

    def _narrowed(self, x: Any, dtype: np.dtype[Any]) -> Any:
        """As integers of few bits: floats saturate, integers wrap."""
        whole = self.numpy(x, dtypes.int32)
        if dtypes.is_float(x.dtype):
            limits = dtypes.limits(dtype)
            whole = np.clip(whole, limits.min, limits.max)
        return whole.astype(np.int8).astype(dtype)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Linear between floats and complex numbers, flat elsewhere."""
        (t,) = tangents
        smooth = dtypes.is_inexact(params["dtype"])
        return convert(*primals, **params), convert(t, **params) if smooth else None

    def transpose(self, ct: Any, x: Any, **params: Any) -> Sequence[Any]:
        """Converts back."""
        return (convert(ct, dtype=x.dtype, weak=x.type.weak),)

    def element(self, k: Any, index: Any, x: Any, **params: Any) -> Any:
        """The scalar conversion."""
        return k.convert(x(index), params["dtype"])

    def identity(self, inputs: Sequence[Any], **params: Any) -> Any:
        """A conversion to the same type."""
        return inputs[0]


convert = _Convert("convert", ANY, formulas.row("convert"), cheap=True)


# ---------------------------------------------------------------- choices


class _Chosen(Elementwise):
    """Gives one of its operands: max, min, clamp.

    `passes` say for each operand where its tangent passes: from the tangent and the
    operands they give a tangent of the output.
    """

    def __init__(
        self,
        name: str,
        kinds: str,
        numpy: Callable[..., Any],
        *passes: Callable[..., Any],
        scalar: Callable[..., Any],
        commutative: bool = False,
    ) -> None:
        super().__init__(
            name, kinds, numpy, scalar=scalar, commutative=commutative, cheap=True
        )
        self.passes = passes

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The sum of the tangents that pass."""
        total = None
        for passing, t in zip(self.passes, tangents, strict=True):
            if t is not None:
                total = plus(total, passing(t, *primals))
        return self(*primals), total


def _shared(wins: Any, x: Any, y: Any, t: Any) -> Any:
    """All of the tangent where the operand wins, half of it on a tie."""
    return select(wins, t, select(eq(x, y), mul(t, 0.5), 0))


# NaN wins over numbers; elements that are equal share the tangent.
max = _Chosen(
    "max",
    BOOL + REAL,
    np.maximum,
    lambda t, x, y: _shared(gt(x, y), x, y, t),
    lambda t, x, y: _shared(gt(y, x), x, y, t),
    scalar=formulas.extremum_element("max", "or"),
    commutative=True,
)
min = _Chosen(
    "min",
    BOOL + REAL,
    np.minimum,
    lambda t, x, y: _shared(lt(x, y), x, y, t),
    lambda t, x, y: _shared(lt(y, x), x, y, t),
    scalar=formulas.extremum_element("min", "and"),
    commutative=True,
)
# clamp(low, x, high): the tangent of x passes on the closed interval.
clamp = _Chosen(
    "clamp",
    REAL,
    formulas.clamp,
    lambda t, low, x, high: select(and_(lt(x, low), le(low, high)), t, 0),
    lambda t, low, x, high: select(and_(le(low, x), le(x, high)), t, 0),
    lambda t, low, x, high: select(or_(gt(x, high), gt(low, high)), t, 0),
    scalar=formulas.clamp_element,
)


# ---------------------------------------------------------------- signs and rounding


class _Sign(Elementwise):
    """sign(x): -1, 0 or 1; of a complex number z/|z|, and 0 at 0."""

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Flat for real numbers; z/|z| turns by im(t conj(sign z)) / |z|."""
        (z,), (t,) = primals, tangents
        s = sign(z)
        if not dtypes.is_complex(z.dtype):
            return s, None
        turn = sub(mul(real(s), imag(t)), mul(imag(s), real(t)))
        turn = mul_strong_zero(div(1.0, abs(z)), turn)
        return s, complex_(neg(mul(imag(s), turn)), mul(real(s), turn))


class _Abs(Smooth):
    """abs(x); its gradient at 0 is 0, for complex numbers too."""

    def result_dtype(self, *operands: np.dtype[Any]) -> np.dtype[Any]:
        """Real."""
        return dtypes.real_dtype(operands[0])

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """sign(x) t; for complex numbers re(conj(z) t) / |z|."""
        (z,), (t,) = primals, tangents
        if not dtypes.is_complex(z.dtype):
            return super().jvp(primals, tangents)
        size = abs(z)
        divisor = select(eq(size, 0), 1, size)
        along_real = scale(div(real(z), divisor), real(t))
        return size, plus(along_real, scale(div(imag(z), divisor), imag(t)))


sign = _Sign("sign", NUMBER, np.sign, scalar=formulas.sign_element, cheap=True)
abs = _Abs("abs", NUMBER, np.abs, lambda out, x: sign(x), bounded=True, cheap=True)
copysign: Smooth = Smooth(
    "copysign",
    FLOAT,
    np.copysign,
    lambda out, x, y: mul(copysign(1.0, x), copysign(1.0, y)),
    None,
    bounded=True,
    cheap=True,
)
floor = Stepwise("floor", FLOAT, np.floor, cheap=True)
ceil = Stepwise("ceil", FLOAT, np.ceil, cheap=True)
trunc = Stepwise("trunc", FLOAT, np.trunc, cheap=True)
round = Stepwise("round", FLOAT, np.rint, cheap=True)


# ---------------------------------------------------------------- quotients and powers


class _Div(Smooth):
    """x / y; of integers truncated toward zero, and 0 where y is 0."""

    linear = True

    def transpose(self, ct: Any, x: Any, y: Any) -> Sequence[Any]:
        """Linear in x."""
        if is_linear(y):
            raise errors.ArgumentError("div: it is not linear in what it divides by")
        return div(ct, y), None

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The quotient t / y by one rounding where y is a constant, else t * (1/y)."""
        x, y = primals
        if isinstance(y, Literal) and y.value != 0:
            return div(x, y), div(tangents[0], y)
        return super().jvp(primals, tangents)

    def jet(self, primals: Sequence[Any], series: Sequence[Any]) -> tuple[Any, Any]:
        """From Leibniz' rule for x = q y, which is solved for each derivative of q."""
        (x, y), (xs, ys) = primals, series
        output = div(x, y)
        if isinstance(y, Literal) and y.value != 0:
            return output, [div(t, y) for t in xs]
        inverse = div(1, y)
        terms: list[Any] = []
        for k in range(len(xs if ys is None else ys)):
            rest = None if xs is None else xs[k]
            if ys is not None:
                rest = plus(rest, neg(scale(output, ys[k])))
                for j in range(k):
                    term = mul_tangents(terms[j], ys[k - 1 - j])
                    rest = sub(rest, mul(term, float(math.comb(k + 1, j + 1))))
            terms.append(scale(inverse, rest))
        return output, terms

    def identity(self, inputs: Sequence[Any]) -> Any:
        """A quotient by 1."""
        x, y = inputs
        return x if isinstance(y, Literal) and y.value == 1 else None

    def faults(
        self, inputs: Sequence[Any], outputs: Sequence[ArrayType]
    ) -> Iterable[Fault]:
        """A divisor of 0."""
        return _zero_divisor(inputs[1])


class _Rem(Smooth):
    """x - y trunc(x / y), of the sign of x; of integers 0 where y is 0."""

    def faults(
        self, inputs: Sequence[Any], outputs: Sequence[ArrayType]
    ) -> Iterable[Fault]:
        """A divisor of 0."""
        return _zero_divisor(inputs[1])


def _zero_divisor(divisor: Any) -> list[Fault]:
    if isinstance(divisor, Literal) and divisor.value != 0:
        return []
    zero = Literal(0, divisor.type.with_shape(()))
    return [Fault(DIVISION, "division by zero", eq(divisor, zero))]


class _IntegerPow(Smooth):
    """integer_pow(x, y): x to a constant integer power, by repeated squaring."""

    def infer(self, x: ArrayType, *, y: int) -> ArrayType:
        """The type of the operand; an integer has no negative powers."""
        self.check_dtypes((x,))
        if y < 0 and kind(x.dtype) in INTEGER:
            raise errors.OptionError(
                f"integer_pow: {x} to the power {y}: an integer has no negative "
                "powers; convert it to a float dtype"
            )
        return x

    def identity(self, inputs: Sequence[Any], *, y: int) -> Any:
        """The first power."""
        return inputs[0] if y == 1 else None

    def is_cheap(self, *, y: int) -> bool:
        """A low power is one or two multiplications."""
        return 0 <= y <= 4


def _integer_pow_partial(out: Any, x: Any, y: int) -> Any:
    return mul(integer_pow(x, y=y - 1), float(y)) if y not in (0, 1) else float(y)


def _pow_partial(out: Any, x: Any, p: Any) -> Any:
    """The product p x^(p-1), which is 0 for p = 0, at x = 0 too."""
    if isinstance(p, Array):
        return mul_strong_zero(pow(x, sub(p, 1)), p)
    return mul(pow(x, sub(p, 1)), p) if p.value != 0 else 0.0


def _exponent_partial(out: Any, x: Any, p: Any) -> Any:
    """x^p log(x), and 0 at x = 0 whatever p is."""
    return mul_strong_zero(out, log(select(eq(x, 0), 1, x)))


div: _Div = _Div(
    "div",
    NUMBER,
    formulas.divide,
    lambda out, x, y: div(1, y),
    lambda out, x, y: neg(div(out, y)),
)
rem = _Rem(
    "rem",
    REAL,
    formulas.row("rem"),
    lambda out, x, y: 1.0,
    lambda out, x, y: neg(round(div(sub(x, out), y))),
)
integer_pow = _IntegerPow(
    "integer_pow",
    NUMBER,
    formulas.integer_pow,
    _integer_pow_partial,
    scalar=formulas.integer_pow_element,
)
wrapped_pow = Stepwise(
    "wrapped_pow", INTEGER, formulas.wrapped_pow, scalar=formulas.wrapped_pow_element
)
pow = Smooth("pow", INEXACT, np.power, _pow_partial, _exponent_partial)


def square(x: Any) -> Any:
    """The product x * x, as one primitive whose gradient is 2 x ct."""
    return integer_pow(x, y=2)


sqrt = Smooth("sqrt", INEXACT, np.sqrt, lambda out, x: div(0.5, out))
rsqrt = Smooth("rsqrt", INEXACT, formulas.rsqrt, lambda out, x: div(mul(out, -0.5), x))
div.division = sqrt.division = True
cbrt = Smooth("cbrt", FLOAT, np.cbrt, lambda out, x: div(1 / 3, square(out)))


# ---------------------------------------------------------------- derivatives' helpers

sech_squared = Smooth(
    "sech_squared",
    FLOAT,
    formulas.sech_squared,
    lambda out, x: mul(mul(out, tanh(x)), -2.0),
    scalar=formulas.sech_squared_element,
    bounded=True,
)
one_minus_square = Smooth(
    "one_minus_square",
    INEXACT,
    formulas.one_minus_square,
    lambda out, x: mul(x, -2.0),
    scalar=formulas.one_minus_square_element,
)
rsqrt_one_plus_square = Smooth(
    "rsqrt_one_plus_square",
    FLOAT,
    formulas.rsqrt_one_plus_square,
    lambda out, x: neg(mul(mul(x, out), square(out))),
    scalar=formulas.rsqrt_one_plus_square_element,
)
exp_neg_square = Smooth(
    "exp_neg_square",
    FLOAT,
    formulas.exp_neg_square,
    lambda out, x: mul(mul(x, out), -2.0),
    scalar=formulas.exp_neg_square_element,
)


# ---------------------------------------------------------------- exponentials and logs

exp = Smooth("exp", INEXACT, np.exp, lambda out, x: out)
exp2 = Smooth("exp2", INEXACT, np.exp2, lambda out, x: mul(out, math.log(2)))
expm1 = Smooth("expm1", INEXACT, formulas.expm1, lambda out, x: exp(x))
log = Smooth("log", INEXACT, np.log, lambda out, x: div(1, x))
log1p = Smooth("log1p", INEXACT, formulas.log1p, lambda out, x: div(1, add(x, 1)))


# ---------------------------------------------------------------- circles, hyperbolas


def _sech2(x: Any) -> Any:
    if dtypes.is_complex(x.dtype):
        return integer_pow(cosh(x), y=-2)
    return sech_squared(x)


def _sec2(out: Any, x: Any) -> Any:
    if dtypes.is_complex(x.dtype):  # 1 + out*out cancels far from the real axis
        return integer_pow(cos(x), y=-2)
    return add(square(out), 1)


def _atan_partial(out: Any, x: Any) -> Any:
    if dtypes.is_complex(x.dtype):
        return div(1, add(square(x), 1))
    return square(rsqrt_one_plus_square(x))


def _asinh_partial(out: Any, x: Any) -> Any:
    if dtypes.is_complex(x.dtype):
        return rsqrt(add(square(x), 1))
    return rsqrt_one_plus_square(x)


def _atan2_partial(x: Any, y: Any) -> Any:
    """The quotient x / (x*x + y*y), scaled: the squares neither overflow nor vanish."""
    size = stop_gradient(max(abs(x), abs(y)))
    u, v = div(x, size), div(y, size)
    return div(div(u, add(square(u), square(v))), size)


sin = Smooth("sin", INEXACT, np.sin, lambda out, x: cos(x))
cos: Smooth = Smooth("cos", INEXACT, np.cos, lambda out, x: neg(sin(x)))
tan = Smooth("tan", INEXACT, np.tan, _sec2)
asin = Smooth("asin", INEXACT, np.arcsin, lambda out, x: rsqrt(one_minus_square(x)))
acos = Smooth(
    "acos", INEXACT, np.arccos, lambda out, x: neg(rsqrt(one_minus_square(x)))
)
atan = Smooth("atan", INEXACT, np.arctan, _atan_partial, bounded=True)
atan2 = Smooth(
    "atan2",
    FLOAT,
    np.arctan2,
    lambda out, y, x: _atan2_partial(x, y),
    lambda out, y, x: neg(_atan2_partial(y, x)),
)
sinh = Smooth("sinh", INEXACT, np.sinh, lambda out, x: cosh(x))
cosh: Smooth = Smooth("cosh", INEXACT, np.cosh, lambda out, x: sinh(x))
tanh: Smooth = Smooth("tanh", INEXACT, np.tanh, lambda out, x: _sech2(x), bounded=True)
asinh = Smooth("asinh", INEXACT, np.arcsinh, _asinh_partial, bounded=True)
acosh = Smooth(
    "acosh",
    INEXACT,
    np.arccosh,
    lambda out, x: mul(rsqrt(sub(x, 1)), rsqrt(add(x, 1))),
)
atanh = Smooth("atanh", INEXACT, np.arctanh, lambda out, x: div(1, one_minus_square(x)))


# ---------------------------------------------------------------- logistic and erf

logistic = Smooth(
    "logistic",
    INEXACT,
    formulas.logistic,
    lambda out, x: mul(_sech2(mul(x, 0.5)), 0.25),
    bounded=True,
)
erf = Smooth(
    "erf",
    FLOAT,
    formulas.row("erf"),
    lambda out, x: mul(exp_neg_square(x), 2 / math.sqrt(math.pi)),
    bounded=True,
)
erfc = Smooth(
    "erfc",
    FLOAT,
    formulas.erfc,
    lambda out, x: mul(exp_neg_square(x), -2 / math.sqrt(math.pi)),
    bounded=True,
)
erf_inv = Smooth(
    "erf_inv",
    FLOAT,
    formulas.erf_inv,
    lambda out, x: div(math.sqrt(math.pi) / 2, exp_neg_square(out)),
)
