"""What the special functions share: small differences, Stirling's series, a quadrature.

Receives and gives `Value`s of float64, inside of a routine; next on the walk:
`special_gamma.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from fnx.kernel.math_trig import sin_cos_pi
from fnx.kernel.math_value import Value, fma, select
from fnx.kernel.routine import branch, lookup, repeat

_BERNOULLI = (
    Fraction(1, 6),
    Fraction(-1, 30),
    Fraction(1, 42),
    Fraction(-1, 30),
    Fraction(5, 66),
    Fraction(-691, 2730),
    Fraction(7, 6),
    Fraction(-3617, 510),
    Fraction(43867, 798),
    Fraction(-174611, 330),
    Fraction(854513, 138),
    Fraction(-236364091, 2730),
)
BERNOULLI = tuple([float(b) for b in _BERNOULLI])
"""B_2, B_4, … B_24."""

_STIRLING = [float(b / ((2 * k + 2) * (2 * k + 1))) for k, b in enumerate(_BERNOULLI)]
_DIGAMMA = [float(b / (2 * k + 2)) for k, b in enumerate(_BERNOULLI)]
LARGE = 10.0
"""From here on eight terms of Stirling's series are enough."""


def horner(x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with these coefficients, lowest power first."""
    result = x.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = fma(result, x, coefficient)
    return result


def is_whole(x: Value) -> Value:
    """Whether x is an integer."""
    return x.op("trunc").equals(x)


# ---------------------------------------------------------------- small differences

_ODD = [1 / (2 * k + 3) for k in range(16)]


def log1p_rest(u: Value) -> Value:
    """log(1 + u) - u, with all digits: of u = 2r/(1 - r) it is 2 atanh(r) - u."""

    def near() -> Value:
        r = u / (u + 2.0)
        return r * (2.0 * r * r * horner(r * r, _ODD) - u)

    return branch(abs(u) < 0.5, near, lambda: u.op("log1p") - u)


_EXPM1_REST = [1 / math.factorial(k) for k in range(2, 18)]


def expm1_rest(v: Value) -> Value:
    """exp(v) - 1 - v, with all digits."""
    return branch(
        abs(v) < 0.5,
        lambda: v * v * horner(v, _EXPM1_REST),
        lambda: v.op("expm1") - v,
    )


# ---------------------------------------------------------------- gamma functions


def stirling_rest(a: Value) -> Value:
    """lgamma(a) - (a - 1/2) log(a) + a - log(2 pi)/2, for a large a."""
    return horner(1.0 / (a * a), _STIRLING[:8]) / a


def log_minus_digamma(a: Value) -> Value:
    """log(a) - digamma(a), for a large a."""
    z = 1.0 / (a * a)
    return 0.5 / a + z * horner(z, _DIGAMMA[:8])


def lgamma1p(a: Value) -> Value:
    """lgamma(1 + a), for a >= 0; relative precision near 0."""
    # Near 0 by its Taylor series: -gamma a + zeta(2)/2 a^2 - zeta(3)/3 a^3 + ...
    return branch(
        a < 0.2,
        lambda: a * horner(a, _LGAMMA1P),
        lambda: (a + 1.0).op("lgamma"),
    )


def _zeta(s: int) -> float:
    """Riemann's zeta at an integer from 2 on, by Euler and Maclaurin's sum."""
    n = 20
    head = math.fsum(k**-s for k in range(1, n)) + float(n) ** (1 - s) / (s - 1)
    tail, factor = float(n) ** -s / 2, s * float(n) ** (-s - 1) / 2
    for j, bernoulli in enumerate(BERNOULLI[:6]):
        tail += bernoulli * factor
        k = 2 * j + 3
        factor *= (s + k - 2) * (s + k - 1) / (k * (k + 1)) / (n * n)
    return head + tail


EULER_GAMMA = 0.57721566490153286061
_LGAMMA1P = [-EULER_GAMMA, *[(-1) ** k * _zeta(k) / k for k in range(2, 22)]]


def _divided(z1: Value, z2: Value, coefficients: Sequence[float]) -> Value:
    """The divided difference of a polynomial between two points."""
    difference, value = z1.like(0.0), z1.like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        difference = fma(difference, z2, value)
        value = fma(value, z1, coefficient)
    return difference


def gamma_ratio_rest(m: Value, q: Value) -> Value:
    """lgamma(m + q) - lgamma(m) - q log(m + q): precise also for a small q >= 0."""

    def up(m: Value, total: Value) -> tuple[tuple[Value, Value], Value]:
        step = m < LARGE
        log = (q / m).op("log1p")
        following = select(step, m + 1.0, m), select(step, total - log, total)
        return following, following[0] < LARGE

    big, total = repeat((m, 0.0), up, 11)
    r1, r2 = 1.0 / big, 1.0 / (big + q)
    z1, z2 = r1 * r1, r2 * r2
    series = horner(z2, _STIRLING[:8])
    series = series + r1 * (r1 + r2) * _divided(z1, z2, _STIRLING[:8])
    series = -q * r1 * r2 * series
    rest = (big - 0.5) * (q / big).op("log1p") - q + series
    shift = q * ((big - m) / (m + q)).op("log1p")
    return total + rest + shift


def digamma_difference(m: Value, q: Value) -> Value:
    """digamma(m + q) - digamma(m): precise also for a small q >= 0."""

    def up(m: Value, total: Value) -> tuple[tuple[Value, Value], Value]:
        step = m < LARGE
        term = q / (m * (m + q))
        following = select(step, m + 1.0, m), select(step, total + term, total)
        return following, following[0] < LARGE

    big, total = repeat((m, 0.0), up, 11)
    r1, r2 = 1.0 / big, 1.0 / (big + q)
    z1, z2 = r1 * r1, r2 * r2
    # -1/2 (r2 - r1) - (z2 p(z2) - z1 p(z1)), where r2 - r1 = -q r1 r2
    inner = _divided(z1, z2, [0.0, *_DIGAMMA[:8]])
    series = q * r1 * r2 * (0.5 + (r1 + r2) * inner)
    return total + (q / big).op("log1p") + series


def trigamma(x: Value) -> Value:
    """The derivative of digamma for x > 0: steps up, then its asymptotic series."""

    def up(x: Value, total: Value) -> tuple[tuple[Value, Value], Value]:
        step = x < LARGE
        following = (
            select(step, x + 1.0, x),
            select(step, total + 1.0 / (x * x), total),
        )
        return following, following[0] < LARGE

    big, total = repeat((x, 0.0), up, 11)
    z = 1.0 / (big * big)
    return total + (1.0 + 0.5 / big + z * horner(z, BERNOULLI[:9])) / big


def lgamma_difference(z: Value, m: Value) -> Value:
    """lgamma(z + m) - lgamma(z): for positive numbers precise also for a small m."""

    def known() -> Value:
        # Downwards it is the negative of the difference upwards.
        down = m < 0.0
        low, q = select(down, z + m, z), abs(m)
        value = fma(q, (low + q).op("log"), gamma_ratio_rest(low, q))
        return select(down, -value, value)

    def other() -> Value:
        return (z + m).op("lgamma") - z.op("lgamma")

    inside = (z > 0.0) & (z + m > 0.0) & (z < math.inf) & (abs(m) < math.inf)
    return branch(inside, known, other)


def betaln(a: Value, b: Value) -> Value:
    """Log |B(a, b)|."""

    def known() -> Value:
        swap = a < b
        large, small = select(swap, b, a), select(swap, a, b)
        ratio = fma(small, (large + small).op("log"), gamma_ratio_rest(large, small))
        return small.op("lgamma") - ratio

    def other() -> Value:
        return a.op("lgamma") + b.op("lgamma") - (a + b).op("lgamma")

    inside = (a > 0.0) & (b > 0.0) & (a < math.inf) & (b < math.inf)
    return branch(inside, known, other)


def gamma(x: Value) -> Value:
    """Gamma(x): a product down to [1, 2], Stirling's series, or reflected."""
    a = abs(x)

    def small(a: Value) -> Value:
        def down(t: Value, product: Value) -> tuple[tuple[Value, Value], Value]:
            going = t > 2.0
            t = select(going, t - 1.0, t)
            return (t, select(going, product * t, product)), t > 2.0

        low = a < 1.0
        t, product = repeat((select(low, a + 1.0, a), 1.0), down, 12)
        value = product * t.op("lgamma").op("exp")
        return select(low, value / a, value)

    def large(a: Value) -> Value:
        power = a.op("pow", 0.5 * a - 0.25)
        rest = (stirling_rest(a)).op("exp") * math.sqrt(2 * math.pi)
        return power * (-a).op("exp") * power * rest

    def positive(a: Value) -> Value:
        finite = branch(a < LARGE, lambda: small(a), lambda: large(a))
        return branch(a < 172.0, lambda: finite, lambda: a.like(math.inf))

    def negative() -> Value:
        # gamma(-a) gamma(a + 1) = -pi / sin(pi a)
        sin, _ = sin_cos_pi(a)
        odd = (0.5 * a.op("round")).op("floor").differs(0.5 * a.op("round"))
        sin = select(odd, -sin, sin)
        size = positive(a)
        value = -math.pi / (sin * a * size)
        value = select(a > 200.0, 0.0, value)
        return select(is_whole(a), math.nan, value)

    def nonzero() -> Value:
        return branch(x < 0.0, negative, lambda: positive(a))

    def zero() -> Value:
        return select(x.equals(0.0), x.like(math.inf).copysign(x), x)

    return branch(x.equals(0.0) | x.differs(x), zero, nonzero)


def gamma_sign(x: Value) -> Value:
    """The sign of gamma(x); at 0 that of the zero, NaN at negative integers."""
    floor = x.op("floor")
    odd = (0.5 * floor).op("floor").differs(0.5 * floor)
    sign = select((x < 0.0) & odd, x.like(-1.0), 1.0)
    sign = select(x.equals(0.0), x.like(1.0).copysign(x), sign)
    pole = (x < 0.0) & is_whole(x)
    return select(pole, math.nan, select(x.equals(x), sign, x))


def beta(a: Value, b: Value) -> Value:
    """B(a, b), with its sign."""
    sign = gamma_sign(a) * gamma_sign(b) * gamma_sign(a + b)
    return sign * betaln(a, b).op("exp")


def poch(z: Value, m: Value) -> Value:
    """gamma(z + m) / gamma(z), 1 for m = 0."""
    sign = gamma_sign(z + m) * gamma_sign(z)
    value = sign * lgamma_difference(z, m).op("exp")
    return select(m.equals(0.0), select(z.equals(z), 1.0, z), value)


def combinations(n: Value, k: Value) -> Value:
    """gamma(n + 1) / (gamma(k + 1) gamma(n - k + 1)) for 0 <= k <= n, else 0."""
    inside = (k <= n) & (n >= 0.0) & (k >= 0.0)

    def chosen() -> Value:
        fewer = n - k
        small = select(k < fewer, k, fewer)

        def step(i: Value, product: Value) -> tuple[tuple[Value, Value], Value]:
            going = i <= small
            value = select(going, product * (n - small + i) / i, product)
            return (i + 1.0, value), i < small

        whole = is_whole(n) & is_whole(k) & (small < 50.0)
        general = (-betaln(fewer + 1.0, k + 1.0)).op("exp") / (n + 1.0)
        return branch(
            whole, lambda: repeat((n.like(1.0), 1.0), step, 50)[1], lambda: general
        )

    missing = select(n.equals(n) & k.equals(k), 0.0, n + k)
    return branch(inside, chosen, lambda: missing)


# ---------------------------------------------------------------- quadrature

_LOW, _HIGH = -3.625, 4.0  # exp(s - exp(-s)) is 1e-18 and 54 there


def _nodes(step: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """exp(s - exp(-s)) and its derivative times the step, for s from low to high."""
    count = round((_HIGH - _LOW) / step) + 1
    s = [_LOW + step * n for n in range(count)]
    points = [math.exp(x - math.exp(-x)) for x in s]
    weights = [p * (1 + math.exp(-x)) * step for p, x in zip(points, s, strict=True)]
    return tuple(points), tuple(weights)


def tail_integrals(
    width: Value,
    integrand: Callable[[Value], tuple[Value, ...]],
    count: int,
    step: float = 0.125,
) -> list[Value]:
    """Integrals over v > 0 of so many integrands that fall off within the width.

    By the trapezoidal rule in s, where v = width exp(s - exp(-s)) (Takahasi and Mori
    1974). The integrands are 1 or so at 0 and analytic about the positive axis. A step
    of 1/8 gives 1e-16 for what falls off as exp(-v*v), or slower.
    """
    points, weights = _nodes(step)
    middle, last = -_LOW / step, float(len(points) - 1)

    def node(n: Value, *sums: Value) -> tuple[tuple[Value, ...], Value]:
        weight = lookup(weights, n)
        values = integrand(width * lookup(points, n))
        pairs = zip(sums, values, strict=True)
        following = [fma(weight, value, total) for total, value in pairs]
        going = n < middle + 1.0 / step
        for value, total in zip(values, following, strict=True):
            going = going | (abs(value) * weight > 1e-18 * abs(total))
        return (n + 1.0, *following), (n < last) & going

    state = repeat((width.like(0.0), *[0.0] * count), node, len(points))
    return [total * width for total in state[1:]]
