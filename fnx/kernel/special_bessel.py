"""Bessel functions of the first kind and spherical harmonics.

I_n(x) by its series of positive terms, and beyond 30 from the asymptotic one. Scaled by
exp(-|x|), I_0 is J_0 of J_m = 1/pi integral (1 - cos t)^m exp(-|x| (1 - cos t)) dt over
0 < t < pi, whose derivative is -J_(m+1): no digit is lost to differences.
Receives and gives `Value`s of float64; next: `special_error.py`.
"""

from __future__ import annotations

import math

from fnx.kernel.math_value import Value, fma, select
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


# ---------------------------------------------------------------- J_n


def bessel_j(x: Value, n: Value) -> Value:
    """J_n(x) for an integer n >= 0: Miller's recurrence, and Hankel's series far."""
    a = abs(x)

    def near() -> Value:
        start = 2.0 * (0.5 * (select(a > n, a, n) * 1.1 + 40.0)).op("floor")

        def step(
            k: Value, after: Value, here: Value, total: Value, value: Value
        ) -> tuple[tuple[Value, ...], Value]:
            before = 2.0 * k / a * here - after
            k = k - 1.0
            even = (0.5 * k).op("floor").equals(0.5 * k)
            total = select(even, total + 2.0 * before, total)
            value = select(k.equals(n), before, value)
            scale = select(abs(before) > 1e200, 1e-200, a.like(1.0))
            state = here * scale, before * scale, total * scale, value * scale
            return (k, *state), k > 0.0

        state = (start, 0.0, 1e-250, 0.0, 0.0)
        _, _, last, total, value = repeat(state, step, 4000)
        return value / (total - last)

    def tiny() -> Value:
        # The first term (a/2)^n / n!, where the recurrence would overflow.
        half = 0.5 * a
        high = select(n.equals(2.0), half * half * 0.5, half * half * half / 6.0)
        low = select(n.equals(0.0), 1.0, half)
        return select(n < 2.0, low, select(n < 4.0, high, a.like(0.0)))

    def far() -> Value:
        mu = 4.0 * n * n

        def step(
            k: Value, term: Value, p: Value, q: Value, sign: Value
        ) -> tuple[tuple[Value, ...], Value]:
            odd = 2.0 * k - 1.0
            term = term * ((mu - odd * odd) / (8.0 * k * a))
            even = (0.5 * k).op("floor").equals(0.5 * k)
            sign = select(even, -sign, sign)
            p = select(even, p + sign * term, p)
            q = select(even, q, q + sign * term)
            return (k + 1.0, term, p, q, sign), abs(term) > 1e-18

        _, _, p, q, _ = repeat((a.like(1.0), 1.0, 1.0, 0.0, 1.0), step, 40)
        # cos(a - (2n + 1) pi/4) and sin, by quarter turns of a - pi/4
        cos, sin = a.op("cos"), a.op("sin")
        c, s = (cos + sin) * math.sqrt(0.5), (sin - cos) * math.sqrt(0.5)
        turn = n - 4.0 * (0.25 * n).op("floor")
        swap = turn.equals(1.0) | turn.equals(3.0)
        c, s = select(swap, s, c), select(swap, -c, s)
        flip = turn >= 2.0
        c, s = select(flip, -c, c), select(flip, -s, s)
        return (p * c - q * s) * (2.0 / (math.pi * a)).op("sqrt")

    def beyond() -> Value:
        close = (a < 1000.0) | (n * n > 4.0 * a)
        return branch(a < 1e-100, tiny, lambda: branch(close, near, far))

    value = branch(a < math.inf, beyond, lambda: a.like(0.0))
    return _signed(select(x.equals(x), value, x), x, n)


# ---------------------------------------------------------------- the sphere


def legendre_on_sphere(n: Value, m: Value, theta: Value) -> Value:
    """The spherical harmonic Y_n^m(theta, 0), real; 0 for |m| > n, NaN from 10000."""
    # Anything else would take that many rounds, or more.
    known = (abs(n) < 10000.0) & (abs(m) < 10000.0)
    n, m = select(known, n, 0.0), select(known, m, 0.0)
    order = abs(m)
    sin, cos = theta.op("sin"), theta.op("cos")

    def start(k: Value, value: Value) -> tuple[tuple[Value, Value], Value]:
        going = k <= order
        factor = -sin * ((2.0 * k + 1.0) / (2.0 * k)).op("sqrt")
        return (k + 1.0, select(going, value * factor, value)), k < order

    first = repeat((n.like(1.0), math.sqrt(0.25 / math.pi)), start, 100000)[1]

    def step(k: Value, before: Value, here: Value) -> tuple[tuple[Value, ...], Value]:
        # P_k from P_(k-1) and P_(k-2)
        square, below = k * k, (k - 1.0) * (k - 1.0)
        bottom = square - order * order
        up = ((4.0 * square - 1.0) / bottom).op("sqrt")
        down = (below - order * order) / (4.0 * below - 1.0)
        rest = select(k > order + 1.0, down.op("sqrt") * before, 0.0)
        following = up * fma(cos, here, -rest)
        going = k <= n
        here, before = select(going, following, here), select(going, here, before)
        return (k + 1.0, before, here), k < n

    value = repeat((order + 1.0, 0.0, first), step, 100000)[2]
    odd = (0.5 * order).op("floor").differs(0.5 * order)
    value = select((m < 0.0) & odd, -value, value)
    value = select((n >= 0.0) & (order <= n), value, 0.0)
    return select(known, value, math.nan)
