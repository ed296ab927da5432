"""Modified Bessel functions of the first kind, and what their derivatives are made of.

I_n(x) by its series of positive terms, and beyond 30 from the asymptotic one. Scaled by
exp(-|x|), I_0 is J_0 of J_m = 1/pi integral (1 - cos t)^m exp(-|x| (1 - cos t)) dt over
0 < t < pi, whose derivative is -J_(m+1): no digit is lost to differences.
Receives and gives `Value`s of float64; next: `special_error.py`.
"""

from __future__ import annotations

import math

from fnx.kernel.math_value import Value, select
from fnx.kernel.routine import branch, repeat

_FAR = 30.0
_NODES = 40  # of the trapezoidal rule, exact for cosines up to order 2 * 40


def _series(a: Value, n: Value) -> Value:
    """I_n(a) for 0 <= a <= 30."""
    z = 0.25 * a * a

    def start(k: Value, term: Value) -> tuple[tuple[Value, Value], Value]:
        going = k <= n
        return (k + 1.0, select(going, term * (0.5 * a / k), term)), k < n

    def step(k: Value, term: Value, total: Value) -> tuple[tuple[Value, ...], Value]:
        term = term * z / (k * (k + n))
        total = total + term
        return (k + 1.0, term, total), term > 1e-18 * total

    first = repeat((a.like(1.0), 1.0), start, 100)[1]
    return first * repeat((a.like(1.0), 1.0, 1.0), step, 200)[2]


def _asymptotic(a: Value, n: Value) -> Value:
    """exp(-a) I_n(a) for a > 30 and a low n."""
    mu = 4.0 * n * n

    def step(k: Value, term: Value, total: Value) -> tuple[tuple[Value, ...], Value]:
        odd = 2.0 * k - 1.0
        term = term * ((odd * odd - mu) / (8.0 * k * a))
        return (k + 1.0, term, total + term), abs(term) > 1e-18

    total = repeat((a.like(1.0), 1.0, 1.0), step, 40)[2]
    return total / (a * (2 * math.pi)).op("sqrt")


def _signed(value: Value, x: Value, n: Value) -> Value:
    """I_n of a negative argument has the sign (-1)^n."""
    odd = (n * 0.5).op("floor").differs(n * 0.5) & (x < 0.0)
    return branch(odd, lambda: -value, lambda: value)


def bessel_i(x: Value, n: Value) -> Value:
    """I_n(x) for an integer n >= 0."""
    a = abs(x)

    def far() -> Value:
        # exp(a) by two factors: it overflows before the product does.
        half = (0.5 * a).op("exp")
        value = _asymptotic(a, n) * half * half
        return branch(a < math.inf, lambda: value, lambda: a)

    value = branch(a <= _FAR, lambda: _series(a, n), far)
    return _signed(value, x, n)


def bessel_ie(x: Value, n: Value) -> Value:
    """exp(-|x|) I_n(x) for an integer n >= 0."""
    a = abs(x)

    def far() -> Value:
        return _asymptotic(a, n)

    def infinite() -> Value:
        return branch(a.equals(math.inf), lambda: a.like(0.0), far)

    value = branch(a <= _FAR, lambda: _series(a, n) * (-a).op("exp"), infinite)
    return _signed(value, x, n)


def bessel_moment(x: Value, m: Value) -> Value:
    """J_m(x) of this file's opening, for an integer m >= 0."""
    a = abs(x)

    def near() -> Value:
        def step(k: Value, total: Value) -> tuple[tuple[Value, Value], Value]:
            half = ((k + 0.5) * (0.5 * math.pi / _NODES)).op("sin")
            rise = 2.0 * half * half
            term = rise.op("pow", m) * (-a * rise).op("exp")
            return (k + 1.0, total + term), k < _NODES - 1.0

        return repeat((a.like(0.0), 0.0), step, _NODES)[1] / float(_NODES)

    def far() -> Value:
        # 1 - cos t = y^2 / a; the trapezoidal rule in y
        def step(y: Value, total: Value) -> tuple[tuple[Value, Value], Value]:
            square = y * y
            bend = 1.0 / (1.0 - 0.5 * square / a).op("sqrt")
            term = (square / a).op("pow", m) * (-square).op("exp") * bend
            return (y + 0.375, total + term), y < 6.3

        first = branch(m.equals(0.0), lambda: m.like(0.5), lambda: m.like(0.0))
        total = repeat((a.like(0.375), first), step, 20)[1]
        return 0.75 * total * (1.0 / math.pi) / (2.0 * a).op("sqrt")

    def infinite() -> Value:
        return branch(a.equals(math.inf), lambda: a.like(0.0), far)

    return branch(a <= _FAR, near, infinite)
