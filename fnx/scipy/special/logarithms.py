"""Logarithms and exponentials: logit, entropies, Box and Cox's transformations.

Receives arrays or scalars, which are promoted to floating point and broadcast; gives
arrays. Next on the walk: `fnx/scipy/stats`.
"""

from __future__ import annotations

import math
from typing import Any

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import elementwise as ops
from fnx.ops import special_integrals
from fnx.ops.arithmetic import add, eq, mul, mul_strong_zero, neg, select, sub
from fnx.ops.parts import and_, or_
from fnx.scipy.special.operands import array, arrays


@becomes_native
def expit(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x)), the inverse of `logit`.

    >>> expit(0.0).item()
    0.5
    """
    return ops.logistic(array("expit", x=x))


@becomes_native
def logit(x: ArrayLike) -> Array:
    """log(x / (1 - x)), precise about 1/2 too.

    >>> logit(0.5).item()
    0.0
    """
    return log_odds(array("logit", x=x))


def log_odds(x: Array) -> Array:
    """log(x / (1 - x)): 2 atanh(2x - 1) about 1/2, a difference elsewhere."""
    middle = and_(ops.gt(x, 0.25), ops.lt(x, 0.75))
    near = mul(ops.atanh(sub(mul(select(middle, x, 0.5), 2), 1)), 2)
    outer = select(middle, 0.25, x)
    return select(middle, near, sub(ops.log(outer), ops.log1p(neg(outer))))


def times_log(x: Any, log: Any, y: Any) -> Any:
    """X times a logarithm of y: 0 where x is 0, unless y is NaN."""
    # With a strong zero in x, in the derivatives too.
    return select(ops.ne(y, y), y, mul_strong_zero(log, x))


@becomes_native
def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """X log(y), and 0 where x is 0.

    >>> xlogy(0.0, 0.0).item()
    0.0
    """
    x, y = arrays("xlogy", x=x, y=y)
    return times_log(x, ops.log(y), y)


@becomes_native
def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """X log(1 + y), and 0 where x is 0.

    >>> xlog1py(0.0, -1.0).item()
    0.0
    """
    x, y = arrays("xlog1py", x=x, y=y)
    return times_log(x, ops.log1p(y), y)


@becomes_native
def entr(x: ArrayLike) -> Array:
    """-x log(x), 0 at 0 and -inf below.

    >>> entr(1.0).item()
    -0.0
    """
    value = array("entr", x=x)
    inside = neg(mul_strong_zero(ops.log(value), value))
    return select(ops.lt(value, 0), -math.inf, inside)


@becomes_native
def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """P log(p / q), 0 where p is 0 and q is not negative, else infinite.

    >>> rel_entr(0.0, 1.0).item()
    0.0
    """
    return _relative(arrays("rel_entr", p=p, q=q), rest=False)


@becomes_native
def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """P log(p / q) - p + q, precise where p and q are close.

    >>> kl_div(1.0, 2.0).item()
    0.3068528175354004
    """
    return _relative(arrays("kl_div", p=p, q=q), rest=True)


def _relative(operands: list[Array], rest: bool) -> Array:
    p, q = operands
    inside = and_(ops.gt(p, 0), ops.gt(q, 0))
    nothing = and_(eq(p, 0), ops.ge(q, 0))
    p1, q1 = select(inside, p, 1), select(inside, q, 1)
    u = ops.div(sub(q1, p1), p1)
    if rest:
        # -p (log(1 + u) - u), where 1 + u = q / p; far from there as it is written
        close = ops.lt(ops.abs(u), 0.5)
        near = neg(mul(p1, special_integrals.log1p_rest(select(close, u, 0))))
        far = add(sub(mul(p1, _log_ratio(p1, q1)), p1), q1)
        value, at_zero = select(close, near, far), q
    else:
        value, at_zero = mul(p1, _log_ratio(p1, q1)), mul(q1, 0)
    value = select(inside, value, select(nothing, at_zero, math.inf))
    bad = or_(ops.ne(p, p), ops.ne(q, q))
    return select(bad, math.nan, value)


def _log_ratio(p: Array, q: Array) -> Array:
    """log(p / q), which neither overflows nor cancels."""
    u = ops.div(sub(p, q), q)
    close = ops.lt(ops.abs(u), 0.5)
    return select(close, ops.log1p(select(close, u, 0)), sub(ops.log(p), ops.log(q)))


@becomes_native
def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """(x**lmbda - 1) / lmbda, log(x) where lmbda is 0; NaN for negative x.

    >>> boxcox(4.0, 0.5).item()
    2.0
    """
    x, lmbda = arrays("boxcox", x=x, lmbda=lmbda)
    return _transformed(ops.log(x), lmbda)


@becomes_native
def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """((1 + x)**lmbda - 1) / lmbda, log1p(x) where lmbda is 0; NaN for x < -1.

    >>> boxcox1p(3.0, 0.5).item()
    2.0
    """
    x, lmbda = arrays("boxcox1p", x=x, lmbda=lmbda)
    return _transformed(ops.log1p(x), lmbda)


def _transformed(log: Array, lmbda: Array) -> Array:
    """expm1(lmbda log) / lmbda, with derivatives in lmbda at 0."""
    power = mul_strong_zero(log, lmbda)
    small = ops.lt(ops.abs(power), 1)
    near = mul(log, special_integrals.expm1_ratio(select(small, power, 0), order=0))
    far = ops.div(ops.expm1(power), select(small, 1, lmbda))
    return select(small, near, far)
