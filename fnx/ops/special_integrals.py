"""Exponential, trigonometric and hypergeometric integrals, as `special.py` has others.

With what their derivatives are made of: ratios such as sin(x) / x with derivatives of
any order, and slopes in the parameters of the hypergeometric functions. Receives arrays
of equal shapes and dtypes, gives one of the same shape. Next on the walk: `shape.py`.
"""

from __future__ import annotations

import math
from typing import Any

from fnx.ops.arithmetic import Partial, Smooth, add, mul, neg, select, sub
from fnx.ops.elementwise import cos, div, exp, log, lt, sin
from fnx.ops.elementwise import square as squared
from fnx.ops.special import refused, special_function

# ---------------------------------------------------------------- integrals

expi = special_function("expi", lambda out, x: div(exp(x), x), is_long=True)
expn: Smooth = special_function(
    "expn",
    refused("expn", "n"),
    lambda out, n, x: neg(expn(sub(n, 1), x)),
    is_long=True,
)
# sin(x) / x and log(1 + x) / x, and their derivatives of some order
sin_ratio: Smooth = special_function(
    "sin_ratio", lambda out, x, order: sin_ratio(x, order=order + 1), bounded=True
)
log1p_ratio: Smooth = special_function(
    "log1p_ratio", lambda out, x, order: log1p_ratio(x, order=order + 1)
)
# (exp(t) - 1) / t and its derivatives; log(1 + u) - u
expm1_ratio: Smooth = special_function(
    "expm1_ratio", lambda out, t, order: expm1_ratio(t, order=order + 1)
)
log1p_rest = special_function("log1p_rest", lambda out, u: neg(div(u, add(u, 1))))
sine_integral = special_function(
    "sine_integral", lambda out, x: sin_ratio(x, order=0), bounded=True, is_long=True
)
cosine_integral = special_function(
    "cosine_integral", lambda out, x: div(cos(x), x), is_long=True
)


def _half_turns(x: Any) -> Any:
    return mul(squared(x), math.pi / 2)


fresnel_sine = special_function(
    "fresnel_sine", lambda out, x: sin(_half_turns(x)), is_long=True
)
fresnel_cosine = special_function(
    "fresnel_cosine", lambda out, x: cos(_half_turns(x)), is_long=True
)


def _spence_partial(out: Any, x: Any) -> Any:
    """log(x) / (1 - x); about 1 from log1p(x - 1)."""
    low = lt(x, 0.5)
    near = neg(log1p_ratio(sub(select(low, 1, x), 1), order=0))
    return select(low, div(log(x), sub(1, select(low, x, 0))), near)


spence = special_function("spence", _spence_partial)


# ---------------------------------------------------------------- hypergeometric


def _next_1f1(out: Any, a: Any, b: Any, x: Any) -> Any:
    return mul(div(a, b), hyp1f1(add(a, 1), add(b, 1), x))


hyp1f1: Smooth = special_function(
    "hyp1f1",
    lambda out, a, b, x: hyp1f1_slope_a(a, b, x),
    lambda out, a, b, x: hyp1f1_slope_b(a, b, x),
    _next_1f1,
    is_long=True,
)


def _1f1_xa(out: Any, a: Any, b: Any, x: Any) -> Any:
    following = add(a, 1), add(b, 1), x
    total = add(hyp1f1(*following), mul(a, hyp1f1_slope_a(*following)))
    return div(total, b)


def _1f1_xb(out: Any, a: Any, b: Any, x: Any) -> Any:
    following = add(a, 1), add(b, 1), x
    total = sub(hyp1f1_slope_b(*following), div(hyp1f1(*following), b))
    return mul(div(a, b), total)


hyp1f1_slope_a: Smooth = special_function(
    "hyp1f1_slope_a",
    refused("hyp1f1", "a"),
    refused("hyp1f1", "b"),
    _1f1_xa,
    is_long=True,
)
hyp1f1_slope_b: Smooth = special_function(
    "hyp1f1_slope_b",
    refused("hyp1f1", "a"),
    refused("hyp1f1", "b"),
    _1f1_xb,
    is_long=True,
)


def _next_2f1(out: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    factor = div(mul(a, b), c)
    return mul(factor, hyp2f1(add(a, 1), add(b, 1), add(c, 1), x))


hyp2f1: Smooth = special_function(
    "hyp2f1",
    lambda out, a, b, c, x: hyp2f1_slope_a(a, b, c, x),
    lambda out, a, b, c, x: hyp2f1_slope_a(b, a, c, x),
    lambda out, a, b, c, x: hyp2f1_slope_c(a, b, c, x),
    _next_2f1,
    is_long=True,
)


def _2f1_xa(out: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    following = add(a, 1), add(b, 1), add(c, 1), x
    total = add(hyp2f1(*following), mul(a, hyp2f1_slope_a(*following)))
    return mul(div(b, c), total)


def _2f1_xc(out: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    following = add(a, 1), add(b, 1), add(c, 1), x
    total = sub(hyp2f1_slope_c(*following), div(hyp2f1(*following), c))
    return mul(div(mul(a, b), c), total)


def _2f1_refused() -> list[Partial]:
    return [refused("hyp2f1", argument) for argument in "abc"]


hyp2f1_slope_a: Smooth = special_function(
    "hyp2f1_slope_a", *_2f1_refused(), _2f1_xa, is_long=True
)
hyp2f1_slope_c: Smooth = special_function(
    "hyp2f1_slope_c", *_2f1_refused(), _2f1_xc, is_long=True
)
