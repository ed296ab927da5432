"""The arithmetic that derivatives are made of: add, sub, neg, mul, select, and the
product with a strong zero.

A *strong zero* is a tangent or cotangent that is exactly 0: it stays 0 where the local
derivative is infinite or NaN, so that the branch that `where` did not choose, a masked
entry or an overflowed term never poisons a gradient. `mul_strong_zero` is that product;
`Smooth` is the family of elementwise functions with partial derivatives, which
multiplies by it. Next on the walk: `elementwise.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.config import config
from fnx.core.array import Array
from fnx.core.links import Links, same
from fnx.core.primitive import is_linear
from fnx.core.program import Literal
from fnx.core.types import ArrayType
from fnx.ops.families import ANY, NUMBER, STORED, Elementwise, Predicate

Partial = Callable[..., Any]


class _Sum(Elementwise):
    """add and sub: linear in both operands."""

    linear = True

    def __init__(self, name: str, numpy: Callable[..., Any], sign: int) -> None:
        super().__init__(name, NUMBER, numpy, commutative=sign > 0, cheap=True)
        self.sign = sign

    def _signed(self, t: Any) -> Any:
        return t if t is None or self.sign > 0 else neg(t)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The same sum of the tangents."""
        left, right = tangents
        if left is not None and right is not None:
            return self(*primals), self(left, right)
        return self(*primals), left if right is None else self._signed(right)

    def transpose(self, ct: Any, x: Any, y: Any) -> Sequence[Any]:
        """The cotangent goes to each linear operand, with its sign."""
        return (
            ct if is_linear(x) else None,
            self._signed(ct) if is_linear(y) else None,
        )

    def identity(self, inputs: Sequence[Any]) -> Any:
        """The other operand of x + (-0.0), x - 0.0, and x ± 0 of integers."""
        x, y = inputs
        if not isinstance(y, Literal) or y.value != 0:
            return None
        if y.type.dtype.kind in "iu":
            return x
        negative = math.copysign(1.0, float(y.value.real)) < 0
        exact = y.type.dtype.kind != "c" and negative == (self.sign > 0)
        return x if exact else None


class _Neg(Elementwise):
    linear = True

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Linear."""
        return neg(*primals), neg(*tangents)

    def transpose(self, ct: Any, x: Any) -> Sequence[Any]:
        """Its own transpose."""
        return (neg(ct),)


class _Product(Elementwise):
    """What products have in common."""

    linear = True

    def links(
        self,
        position: int,
        types: Sequence[ArrayType],
        out: ArrayType,
        known: Sequence[Any],
        **params: Any,
    ) -> Links | None:
        """None where the other factor is known to be 0."""
        return nonzero(known[1 - position], out.shape)


class _Mul(_Product):
    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The product rule, each term with a strong zero."""
        x, y = primals
        tx, ty = tangents
        left = None if tx is None else scale(y, tx)
        return mul(x, y), plus(left, None if ty is None else scale(x, ty))

    def jet(self, primals: Sequence[Any], series: Sequence[Any]) -> tuple[Any, Any]:
        """Leibniz' rule, each term with a strong zero."""
        both = mul_tangents if config.strong_zero else mul
        return mul(*primals), leibniz(primals, series, scale, scale, both)

    def transpose(self, ct: Any, x: Any, y: Any) -> Sequence[Any]:
        """Multiplies the cotangent by the operand that is not linear."""
        return (mul(ct, y), None) if is_linear(x) else (None, mul(x, ct))

    def identity(self, inputs: Sequence[Any]) -> Any:
        """The other operand of a product with 1."""
        for one, other in (inputs, inputs[::-1]):
            if isinstance(one, Literal) and one.value == 1:
                return other
        return None


class _StrongZero(_Product):
    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The product rule; where the coefficient moves, both factors are tangents."""
        c, t = primals
        dc, dt = tangents
        total = None if dt is None else mul_strong_zero(c, dt)
        if dc is not None:
            total = plus(total, mul_tangents(t, dc))
        return mul_strong_zero(c, t), total

    def jet(self, primals: Sequence[Any], series: Sequence[Any]) -> tuple[Any, Any]:
        """Leibniz' rule; where the coefficient moves, both factors are tangents."""
        terms = leibniz(primals, series, mul_tangents, mul_strong_zero, mul_tangents)
        return mul_strong_zero(*primals), terms

    def transpose(self, ct: Any, c: Any, t: Any) -> Sequence[Any]:
        """The same product with the cotangent."""
        return None, mul_strong_zero(c, ct)

    def identity(self, inputs: Sequence[Any]) -> Any:
        """A tangent of 1 leaves the coefficient; a coefficient of 1 the tangent."""
        return mul.identity(inputs)


class _TangentProduct(_Product):
    """The product of two tangents: 0 where either is, whatever the other.

    Unlike `mul_strong_zero` it is linear in both operands, so that its own derivative
    keeps the mixed term where one of them is 0.
    """

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """The product rule."""
        s, t = primals
        ds, dt = tangents
        left = None if ds is None else mul_tangents(ds, t)
        return mul_tangents(s, t), plus(
            left, None if dt is None else mul_tangents(s, dt)
        )

    def jet(self, primals: Sequence[Any], series: Sequence[Any]) -> tuple[Any, Any]:
        """Leibniz' rule."""
        terms = leibniz(primals, series, mul_tangents, mul_tangents, mul_tangents)
        return mul_tangents(*primals), terms

    def transpose(self, ct: Any, s: Any, t: Any) -> Sequence[Any]:
        """The product of the cotangent and the operand that is not linear."""
        if is_linear(s):
            return mul_tangents(ct, t), None
        return None, mul_tangents(s, ct)


class _Select(Elementwise):
    """select(condition, x, y): x where the condition holds, y elsewhere."""

    linear = True

    def _with_literals(self, args: tuple[Any, ...]) -> Sequence[Any]:
        condition, *values = args
        rest = super()._with_literals(tuple(values))
        return [condition, *rest]

    def result_dtype(self, *operands: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of the two values."""
        return operands[1]

    def infer(self, *types: ArrayType) -> ArrayType:
        """The common shape; weak if both values are."""
        condition, x, y = types
        if condition.dtype.kind != "b":
            raise errors.DTypeError(
                f"select: the condition must be bool, got {condition}"
            )
        self.check_dtypes((x, y))
        shape = self._common_shape(types)
        return ArrayType(shape, x.dtype, x.weak and y.weak)

    def reference(self, condition: Any, x: Any, y: Any) -> Any:
        """NumPy's where."""
        return np.where(condition, x, y)

    def links(
        self,
        position: int,
        types: Sequence[ArrayType],
        out: ArrayType,
        known: Sequence[Any],
        **params: Any,
    ) -> Links | None:
        """All that is chosen, if the condition is known."""
        condition = known[0]
        if condition is not None and position == 2:
            condition = ~condition
        return nonzero(condition, out.shape)

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Selects among the tangents."""
        condition, x, y = primals
        _, tx, ty = tangents
        tx = 0 if tx is None else tx
        ty = 0 if ty is None else ty
        return select(condition, x, y), select(condition, tx, ty)

    def transpose(self, ct: Any, condition: Any, x: Any, y: Any) -> Sequence[Any]:
        """Each operand gets the cotangent where it was chosen, 0 elsewhere."""
        return (
            None,
            select(condition, ct, 0) if is_linear(x) else None,
            select(condition, 0, ct) if is_linear(y) else None,
        )

    def identity(self, inputs: Sequence[Any]) -> Any:
        """A literal condition, or equal values, decide."""
        condition, x, y = inputs
        if x == y:
            return x
        if isinstance(condition, Literal):
            return x if condition.value else y
        return None


class Smooth(Elementwise):
    """An elementwise function with a partial derivative for each operand.

    `partials` give the local derivative from the output and the operands (`None` for an
    operand that has none). `bounded` promises that every partial is finite wherever the
    operands are real and not NaN, so that no strong zero is needed.
    """

    def __init__(
        self,
        name: str,
        kinds: str,
        numpy: Callable[..., Any],
        *partials: Partial | None,
        bounded: bool = False,
        scalar: str | Callable[..., Any] | None = None,
        commutative: bool = False,
        cheap: bool = False,
    ) -> None:
        super().__init__(
            name, kinds, numpy, scalar=scalar, commutative=commutative, cheap=cheap
        )
        self.partials = partials
        self.bounded = bounded

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The chain rule; the output is computed once and given to the partials."""
        output = self(*primals, **params)
        bounded = self.bounded and not dtypes.is_complex(output.dtype)
        total = None
        for partial, t in zip(self.partials, tangents, strict=True):
            if t is not None and partial is not None:
                coefficient = partial(output, *primals, **params)
                total = plus(total, scale(coefficient, t, bounded))
        return output, total


def plus(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents, of which `None` is zero."""
    if x is None or y is None:
        return y if x is None else x
    return add(x, y)


def leibniz(
    primals: Sequence[Any],
    series: Sequence[Any],
    left: Callable[..., Any],
    right: Callable[..., Any],
    both: Callable[..., Any],
) -> list[Any]:
    """The derivatives of order 1, 2, … of a product of two values along a curve.

    `left(y, dx)` and `right(x, dy)` multiply a derivative by the other value,
    `both(dx, dy)` two derivatives.
    """
    (x, y), (xs, ys) = primals, series
    terms = []
    for k in range(len(xs if ys is None else ys)):
        total = plus(
            None if xs is None else left(y, xs[k]),
            None if ys is None else right(x, ys[k]),
        )
        if xs is not None and ys is not None:
            for j in range(k):
                term = both(xs[j], ys[k - 1 - j])
                total = add(total, mul(term, float(math.comb(k + 1, j + 1))))
        terms.append(total)
    return terms


def nonzero(mask: Any, shape: tuple[int, ...]) -> Links:
    """Links from each element to its place, but where a known factor is 0."""
    if mask is None:
        return same(shape)
    places = np.flatnonzero(np.broadcast_to(mask, shape))
    return places, places


def scale(coefficient: Any, t: Any, bounded: bool = False) -> Any:
    """The tangent times a local derivative, with a strong zero unless it is finite."""
    if not isinstance(coefficient, Array):
        value = coefficient.value if isinstance(coefficient, Literal) else coefficient
        if np.isfinite(value):
            return mul(t, coefficient)
    if bounded or not config.strong_zero:
        return mul(coefficient, t)
    return mul_strong_zero(coefficient, t)


def _strong_product(coefficient: Any, t: Any) -> Any:
    return np.where(t == 0, np.zeros((), t.dtype), coefficient * t)


def _strong_element(k: Any, coefficient: Any, t: Any) -> Any:
    zero = k.constant(0, t.dtype)
    return k.select(k.eq(t, zero), zero, k.mul(coefficient, t))


def _tangent_product(s: Any, t: Any) -> Any:
    return np.where((s == 0) | (t == 0), np.zeros((), t.dtype), s * t)


def _tangent_element(k: Any, s: Any, t: Any) -> Any:
    zero = k.constant(0, t.dtype)
    none = k.or_(k.eq(s, zero), k.eq(t, zero))
    return k.select(none, zero, k.mul(s, t))


add = _Sum("add", np.add, +1)
sub = _Sum("sub", np.subtract, -1)
neg = _Neg("neg", NUMBER, np.negative, cheap=True)
mul = _Mul("mul", NUMBER, np.multiply, commutative=True, cheap=True)
mul_strong_zero = _StrongZero(
    "mul_strong_zero", NUMBER, _strong_product, scalar=_strong_element, cheap=True
)
mul_tangents = _TangentProduct(
    "mul_tangents",
    NUMBER,
    _tangent_product,
    scalar=_tangent_element,
    commutative=True,
    cheap=True,
)
select = _Select("select", ANY + STORED, np.where, cheap=True)
eq = Predicate("eq", ANY, np.equal, commutative=True, cheap=True)
