"""Hurwitz' zeta function and its derivatives in s, and polygamma by it.

A sum up to where Euler and Maclaurin's series is precise; a negative q with an integer
s is reflected. Receives and gives `Value`s of float64; next: `special_bessel.py`.
"""

from __future__ import annotations

import math

from fnx.kernel.math_value import Value, fma, select
from fnx.kernel.routine import branch, repeat
from fnx.kernel.special_tools import BERNOULLI, is_whole

_FACTORS = [b / math.factorial(2 * k + 2) for k, b in enumerate(BERNOULLI)]


def _derivative(value: Value, slope: Value, bend: Value | float, order: int) -> Value:
    """A derivative of exp(g) = value, given those of g."""
    match order:
        case 0:
            return value
        case 1:
            return value * slope
    return value * (slope * slope + bend)


def zeta_positive(s: Value, q: Value, order: int) -> Value:
    """The derivative of some order (0 to 2) of zeta(s, q) in s, for s > 1, q > 0."""
    least = fma(s, 0.5, 10.0)

    def step(w: Value, total: Value, size: Value) -> tuple[tuple[Value, ...], Value]:
        going = w < least
        power = w.op("pow", -s)
        term = _derivative(power, -w.op("log"), 0.0, order)
        total = select(going, total + term, total)
        size = select(going, size + power, size)
        w = select(going, w + 1.0, w)
        return (w, total, size), (w < least) & (power > 1e-18 * size)

    w, total, size = repeat((q, 0.0, 0.0), step, 10000)
    log = w.op("log")
    power = w.op("pow", -s)
    inverse = 1.0 / (s - 1.0)
    tail = _derivative(w * power * inverse, -log - inverse, inverse * inverse, order)
    tail = tail + 0.5 * _derivative(power, -log, 0.0, order)
    term, slope, bend = s * power / w, 1.0 / s - log, -1.0 / (s * s)
    for k, factor in enumerate(_FACTORS):
        tail = tail + factor * _derivative(term, slope, bend, order)
        u, v = s + float(2 * k + 1), s + float(2 * k + 2)
        term = term * u * v / (w * w)
        slope = slope + (1.0 / u + 1.0 / v)
        bend = bend - (1.0 / (u * u) + 1.0 / (v * v))
    # The sum may have ended since its terms no longer count: nor does the tail then.
    tail = select(power > 1e-18 * size, tail, 0.0)
    return total + select(w < math.inf, tail, 0.0)


def zeta_derivative(s: Value, q: Value, order: int) -> Value:
    """The derivative of some order (0 to 2) of zeta(s, q) in s.

    Infinite at s = 1 and where q is 0, -1, …; NaN for s < 1, and for a negative q
    unless s is an integer (and of order 0).
    """

    def negative() -> Value:
        # sum over all integers k of (f + k)^-s, less those from -1 - floor(q) down
        floor = q.op("floor")
        f = q - floor
        odd = (s * 0.5).op("floor").differs(s * 0.5)
        sign = select(odd, s.like(-1.0), 1.0)

        def step(n: Value, total: Value) -> tuple[tuple[Value, Value], Value]:
            first, second = n.equals(0.0), n.equals(1.0)
            at = select(first, f, select(second, 1.0 - f, 1.0 - q))
            factor = select(first, 1.0, select(second, sign, -sign))
            return (n + 1.0, fma(factor, zeta_positive(s, at, 0), total)), n < 2.0

        return repeat((s.like(0.0), 0.0), step, 3)[1]

    def not_positive() -> Value:
        pole = is_whole(q)
        known = is_whole(s) & (s < math.inf)
        value = branch(known & ~pole, negative, lambda: s.like(math.nan))
        return select(pole, math.inf, value)

    def below() -> Value:
        return select(s.equals(1.0), math.inf, s.like(math.nan))

    nan = s.like(math.nan)

    def above() -> Value:
        if order:
            return branch(q > 0.0, lambda: zeta_positive(s, q, order), lambda: nan)
        return branch(q > 0.0, lambda: zeta_positive(s, q, 0), not_positive)

    return branch(s > 1.0, above, below)


def zeta(s: Value, q: Value) -> Value:
    """Hurwitz' zeta function."""
    return zeta_derivative(s, q, 0)


def zeta_1(s: Value, q: Value) -> Value:
    """The derivative of zeta(s, q) in s."""
    return zeta_derivative(s, q, 1)


def zeta_2(s: Value, q: Value) -> Value:
    """The second derivative of zeta(s, q) in s."""
    return zeta_derivative(s, q, 2)


def polygamma(n: Value, x: Value) -> Value:
    """The derivative of order n of digamma: (-1)^(n+1) n! zeta(n + 1, x)."""

    def higher() -> Value:
        even = (n * 0.5).op("floor").equals(n * 0.5)
        factorial = _factorial(n)
        value = factorial * zeta_derivative(n + 1.0, x, 0)
        return select(even, -value, value)

    def other() -> Value:
        return branch(n.equals(0.0), lambda: x.op("digamma"), lambda: x.like(math.nan))

    return branch((n >= 1.0) & is_whole(n), higher, other)


def _factorial(n: Value) -> Value:
    def step(k: Value, product: Value) -> tuple[tuple[Value, Value], Value]:
        return (k + 1.0, product * k), k < n

    return repeat((n.like(1.0), 1.0), step, 171)[1]
