"""Hypergeometric functions: 1F1 and 2F1 of real numbers, and derivatives in parameters.

Their series where its terms are positive or few; Kummer's, Pfaff's and Gauss'
transformations bring the argument there, and 1F1 has an asymptotic series. The
derivatives in the parameters come with the series, term by term.
Receives and gives `Value`s of float64; next: `special.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.kernel.math_value import Value, fma, select
from fnx.kernel.routine import branch, repeat
from fnx.kernel.special_tools import gamma_sign, is_whole

Values = tuple[Value, ...]


def _series(
    top: Sequence[Value], bottom: Sequence[Value], x: Value, count: int
) -> Values:
    """The sum of (top)_k / (bottom)_k x^k / k!, and its derivatives in the parameters.

    Those asked for come first among `top`, then `bottom`: `count` of them.
    """
    parameters = [*top, *bottom]
    signs = [1.0] * len(top) + [-1.0] * len(bottom)

    def step(k: Value, term: Value, *rest: Value) -> tuple[Values, Value]:
        slopes, sums = rest[:count], rest[count:]
        ratio = x / (k + 1.0)
        for p in top:
            ratio = ratio * (p + k)
        for p in bottom:
            ratio = ratio / (p + k)
        # t' = t r' + t' r, where r' = r / (p + k), also where p + k is 0
        grown = []
        for n in range(count):
            if signs[n] > 0:
                others = x / (k + 1.0)
                for m, p in enumerate(top):
                    others = others * (p + k) if m != n else others
                for p in bottom:
                    others = others / (p + k)
                slope = others
            else:
                slope = -ratio / (parameters[n] + k)
            grown.append(fma(slopes[n], ratio, term * slope))
        term = term * ratio
        totals = [s + t for s, t in zip(sums, [term, *grown], strict=True)]
        size, least = abs(term), abs(totals[0])
        for t, total in zip(grown, totals[1:], strict=True):
            size, least = size + abs(t), least + abs(total)
        # The terms may grow again while a parameter is negative.
        going = (size > 1e-17 * least) | (k < fma(abs(x), 1.0, 2.0)) & (size > 0.0)
        for p in parameters:
            going = going | ((p + k < 0.0) & (size > 0.0))
        return (k + 1.0, term, *grown, *totals), going

    zeros = [0.0] * count
    state = repeat((x.like(0.0), 1.0, *zeros, 1.0, *zeros), step, 100000)
    return tuple(state[2 + count :])


def _is_pole(c: Value) -> Value:
    return (c <= 0.0) & is_whole(c)


# ---------------------------------------------------------------- 1F1


def _1f1_asymptotic(a: Value, b: Value, x: Value) -> Value:
    """For a large x > 0: gamma(b)/gamma(a) e^x x^(a-b) 2F0(b - a, 1 - a; 1/x)."""

    def step(k: Value, term: Value, total: Value) -> tuple[Values, Value]:
        factor = (b - a + k) * (1.0 - a + k) / ((k + 1.0) * x)
        term = term * factor
        total = total + term
        return (k + 1.0, term, total), abs(term) > 1e-17 * abs(total)

    total = repeat((x.like(0.0), 1.0, 1.0), step, 200)[2]
    log = b.op("lgamma") - a.op("lgamma") + (a - b) * x.op("log")
    half = (0.5 * (x + log)).op("exp")
    sign = gamma_sign(a) * gamma_sign(b)
    value = total * sign * half * half
    return select(_is_pole(a), 0.0, value)


def _1f1_positive(a: Value, b: Value, x: Value) -> Value:
    terminating = _is_pole(a)
    size = abs(a) * abs(a) + abs(b) * abs(b)
    far = (x > 50.0) & (size < x) & ~terminating
    return branch(
        far,
        lambda: _1f1_asymptotic(a, b, x),
        lambda: _series((a,), (b,), x, 0)[0],
    )


def hyp1f1(a: Value, b: Value, x: Value) -> Value:
    """Kummer's function M(a, b, x)."""

    def far_negative() -> Value:
        # gamma(b) / gamma(b - a) (-x)^(-a) 2F0(a, 1 + a - b; -1/x)
        c, y = b - a, -x

        def step(k: Value, term: Value, total: Value) -> tuple[Values, Value]:
            factor = (a + k) * (1.0 - c + k) / ((k + 1.0) * y)
            term = term * factor
            total = total + term
            return (k + 1.0, term, total), abs(term) > 1e-17 * abs(total)

        total = repeat((x.like(0.0), 1.0, 1.0), step, 200)[2]
        log = b.op("lgamma") - c.op("lgamma") - a * y.op("log")
        return total * gamma_sign(b) * gamma_sign(c) * log.op("exp")

    def negative() -> Value:
        size = abs(b - a) * abs(b - a) + abs(b) * abs(b)
        far = (-x > 50.0) & (size < -x) & ~_is_pole(b - a)
        return branch(
            far, far_negative, lambda: x.op("exp") * _1f1_positive(b - a, b, -x)
        )

    def regular() -> Value:
        plain = (x >= 0.0) | _is_pole(a)
        return branch(plain, lambda: _1f1_positive(a, b, x), negative)

    known = a.equals(a) & (abs(x) < math.inf)
    value = branch(_is_pole(b) | ~known, lambda: x.like(math.inf), regular)
    bad = a.differs(a) | x.differs(x) | b.differs(b)
    return select(bad, math.nan, value)


def hyp1f1_slopes(a: Value, b: Value, x: Value) -> Values:
    """The derivatives of M(a, b, x) in a and in b."""

    def negative() -> Values:
        # M(a, b, x) = e^x M(b - a, b, -x)
        _, first, second = _series((b - a,), (b,), -x, 2)
        scale = x.op("exp")
        return -scale * first, scale * (first + second)

    def positive() -> Values:
        return _series((a,), (b,), x, 2)[1:]

    found: Values = branch(x < 0.0, negative, positive)
    return found


def hyp1f1_slope_a(a: Value, b: Value, x: Value) -> Value:
    """The derivative of M(a, b, x) in a."""
    return hyp1f1_slopes(a, b, x)[0]


def hyp1f1_slope_b(a: Value, b: Value, x: Value) -> Value:
    """The derivative of M(a, b, x) in b."""
    return hyp1f1_slopes(a, b, x)[1]


# ---------------------------------------------------------------- 2F1


def _gamma(x: Value) -> Value:
    return gamma_sign(x) * x.op("lgamma").op("exp")


def _over_gamma(x: Value) -> Value:
    """1 / gamma(x), 0 at the poles."""
    value = gamma_sign(x) * (-x.op("lgamma")).op("exp")
    return select(_is_pole(x), 0.0, value)


def _at_one(a: Value, b: Value, c: Value) -> Value:
    """Gauss' value at x = 1."""
    d = c - a - b
    finite = d > 0.0
    value = _gamma(c) * _gamma(d) * _over_gamma(c - a) * _over_gamma(c - b)
    ends = _is_pole(a) | _is_pole(b)
    return select(finite, value, select(ends, math.nan, c.like(math.inf)))


def _2f1_unit(a: Value, b: Value, c: Value, x: Value) -> Value:
    """For 0 <= x < 1."""

    def plain() -> Value:
        # Euler: (1 - x)^(c-a-b) F(c - a, c - b; c; x), whose terms fall off faster
        euler = (c - a - b < -0.5) & ~_is_pole(a) & ~_is_pole(b)
        u, v = select(euler, c - a, a), select(euler, c - b, b)
        value = _series((u, v), (c,), x, 0)[0]
        power = (1.0 - x).op("pow", c - a - b)
        return select(euler, value * power, value)

    def near_one() -> Value:
        d, y = c - a - b, 1.0 - x
        first = _series((a, b), (1.0 - d,), y, 0)[0]
        second = _series((c - a, c - b), (1.0 + d,), y, 0)[0]
        left = _gamma(d) * _over_gamma(c - a) * _over_gamma(c - b) * first
        right = _gamma(-d) * _over_gamma(a) * _over_gamma(b) * second
        return _gamma(c) * fma(y.op("pow", d), right, left)

    d = c - a - b
    apart = abs(d - d.op("round")) > 0.05
    ends = _is_pole(a) | _is_pole(b)
    return branch((x > 0.9) & apart & ~ends, near_one, plain)


def hyp2f1(a: Value, b: Value, c: Value, x: Value) -> Value:
    """Gauss' function F(a, b; c; x) for x <= 1; infinite beyond."""

    def negative() -> Value:
        # Pfaff: (1 - x)^-a F(a, c - b; c; x / (x - 1)), with the smaller of a and b
        swap = abs(b) < abs(a)
        u, v = select(swap, b, a), select(swap, a, b)
        return (1.0 - x).op("pow", -u) * _2f1_unit(u, c - v, c, x / (x - 1.0))

    def below() -> Value:
        ends = (_is_pole(a) | _is_pole(b)) & (x > -1.0)
        plain = (x >= 0.0) | ends
        return branch(plain, lambda: _2f1_unit(a, b, c, x), negative)

    def regular() -> Value:
        return branch(x.equals(1.0), lambda: _at_one(a, b, c), below)

    wrong = _is_pole(c) | (x > 1.0)
    value = branch(wrong, lambda: x.like(math.inf), regular)
    trivial = x.equals(0.0) | a.equals(0.0) | b.equals(0.0)
    value = select(trivial, 1.0, value)
    bad = a.differs(a) | b.differs(b) | c.differs(c) | x.differs(x)
    return select(bad, math.nan, value)


def hyp2f1_slopes(a: Value, b: Value, c: Value, x: Value) -> Values:
    """The derivatives of F(a, b; c; x) in a and in c, for x < 1."""

    def negative() -> Values:
        # F = (1 - x)^-b F(c - a, b; c; z): in a by the first parameter, in c by two
        z = x / (x - 1.0)
        scale = (1.0 - x).op("pow", -b)
        _, first, _, third = _series((c - a, b), (c,), z, 3)
        return -scale * first, scale * (first + third)

    def positive() -> Values:
        _, first, _, third = _series((a, b), (c,), x, 3)
        return first, third

    found: Values = branch(x < 0.0, negative, positive)
    return found


def hyp2f1_slope_a(a: Value, b: Value, c: Value, x: Value) -> Value:
    """The derivative of F(a, b; c; x) in a."""
    return hyp2f1_slopes(a, b, c, x)[0]


def hyp2f1_slope_c(a: Value, b: Value, c: Value, x: Value) -> Value:
    """The derivative of F(a, b; c; x) in c."""
    return hyp2f1_slopes(a, b, c, x)[1]
