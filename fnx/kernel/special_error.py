"""Relatives of the error function: erfcx, ndtri, Dawson's integral, Owen's T.

Derivatives are of families that are closed under them: the moments 2/sqrt(pi) integral
t^n exp(-t^2 - 2xt) dt of erfcx lose no digits, those of Dawson's integral about
2x^2 units where x is between 1 and 6.
Receives and gives `Value`s of float64; next: `special_integral.py`.
"""

from __future__ import annotations

import math

from fnx.kernel.math_error import erfcx_ratio
from fnx.kernel.math_value import Value, fma, select, two_product
from fnx.kernel.routine import branch, repeat
from fnx.kernel.special_tools import horner, tail_integrals

_ROOT_PI = math.sqrt(math.pi)


def _erfcx_positive(a: Value) -> Value:
    """exp(a^2) erfc(a) for a >= 0."""

    def far() -> Value:
        z = -0.5 / (a * a)
        series = horner(z, [1.0, 1.0, 3.0, 15.0, 105.0, 945.0, 10395.0])
        return series / (a * _ROOT_PI)

    return branch(a < 27.0, lambda: erfcx_ratio(a), far)


def _exp_square(x: Value) -> Value:
    """exp(x^2), precise where the square is large."""
    square, rest = two_product(x, x)
    power = square.op("exp")
    finite = power < math.inf
    return select(finite, fma(power, select(finite, rest, 0.0), power), power)


def erfcx(x: Value) -> Value:
    """exp(x^2) erfc(x)."""
    value = _erfcx_positive(abs(x))
    return branch(x < 0.0, lambda: 2.0 * _exp_square(x) - value, lambda: value)


def erfcx_moment(x: Value, n: Value) -> Value:
    """2/sqrt(pi) times the integral of t^n exp(-t^2 - 2xt) over t > 0; n an integer."""

    def integral() -> Value:
        def integrand(t: Value) -> tuple[Value, ...]:
            return (t.op("pow", n) * (-t * (t + 2.0 * x)).op("exp"),)

        width = 1.0 / (2.0 * x + 1.0)
        (value,) = tail_integrals(width, integrand, 1, 0.0625)
        return value * (2.0 / _ROOT_PI)

    def recurrence() -> Value:
        # 2 M(k+1) = k M(k-1) - 2x M(k): sums of positive terms for a negative x
        first = erfcx(x)

        def step(
            k: Value, before: Value, last: Value
        ) -> tuple[tuple[Value, ...], Value]:
            following = fma(-x, last, 0.5 * k * before)
            return (k + 1.0, last, following), k + 1.0 < n

        second = fma(-x, first, 1.0 / _ROOT_PI)
        return branch(
            n < 2.0,
            lambda: select(n < 1.0, first, second),
            lambda: repeat((x.like(1.0), first, second), step, 200)[2],
        )

    def zero() -> Value:
        return x.like(0.0)

    return branch(x >= 0.0, lambda: branch(x < math.inf, integral, zero), recurrence)


def bell(x: Value) -> Value:
    """exp(-x^2 / 2), precise where the square is large."""
    a = abs(x)
    a = select(a > 40.0, 40.0, a)
    square, rest = two_product(a, a)
    power = (-0.5 * square).op("exp")
    return fma(-0.5 * rest, power, power)


def ndtr(x: Value) -> Value:
    """The distribution function of the normal distribution."""
    value = _upper(abs(x))
    value = select(x > 0.0, 1.0 - value, value)
    return select(x.equals(x), value, x)


def ndtri(p: Value) -> Value:
    """The quantile of the normal distribution at p."""

    def center() -> Value:
        return (2.0 * p - 1.0).op("erf_inv") * math.sqrt(2.0)

    def tail() -> Value:
        low = p < 0.5
        q = select(low, p, 1.0 - p)
        log = q.op("log")
        size = (-2.0 * log).op("sqrt")
        start = size - (size.op("log") + 0.5 * math.log(2 * math.pi)) / size

        def step(a: Value, _: Value) -> tuple[tuple[Value, Value], Value]:
            # Halley's rule for log ndtr(-a) = log q, whose slope is -2 / (c erfcx).
            tail = _erfcx_positive(a * math.sqrt(0.5))
            rest = (0.5 * tail).op("log") - 0.5 * a * a - log
            slope = math.sqrt(2 / math.pi) / tail
            newton = rest / slope
            following = a + newton / (1.0 - 0.5 * newton * (slope - a))
            change = abs(following - a)
            return (following, change), change > 1e-9 * a

        value = repeat((start, 0.0), step, 10)[0]
        return select(low, -value, value)

    def outside() -> Value:
        right = select(p.equals(1.0), math.inf, p.like(math.nan))
        return select(p.equals(0.0), -math.inf, right)

    inside = (p > 0.0) & (p < 1.0)
    middle = (p > 0.1) & (p < 0.9)
    return branch(inside, lambda: branch(middle, center, tail), outside)


def dawsn_derivative(x: Value, n: Value) -> Value:
    """The derivative of order n of exp(-x^2) integral exp(t^2) dt over 0 < t < x."""
    a = abs(x)

    def near() -> Value:
        square = a * a

        def term(
            k: Value, power: Value, total: Value
        ) -> tuple[tuple[Value, ...], Value]:
            power = power * (square / k)
            part = power / (2.0 * k + 1.0)
            total = total + part
            return (k + 1.0, power, total), part > 1e-18 * total

        series = repeat((a.like(1.0), 1.0, 1.0), term, 300)[2]
        first = a * series * (-square).op("exp")

        def step(
            k: Value, before: Value, last: Value
        ) -> tuple[tuple[Value, ...], Value]:
            following = -2.0 * fma(a, last, k * before)
            return (k + 1.0, last, following), k + 1.0 < n

        second = fma(-2.0 * a, first, 1.0)
        return branch(
            n < 2.0,
            lambda: select(n < 1.0, first, second),
            lambda: repeat((a.like(1.0), first, second), step, 200)[2],
        )

    def far() -> Value:
        # sum of (2k - 1)!! / (2^(k+1) a^(2k+1)); of order n times (-1)^n (2k+1)_n / a^n
        inverse = 1.0 / a

        def start(k: Value, term: Value) -> tuple[tuple[Value, Value], Value]:
            going = k < n
            term = select(going, term * (-(k + 1.0) * inverse), term)
            k = select(going, k + 1.0, k)
            return (k, term), k < n

        first = repeat((a.like(0.0), 0.5 * inverse), start, 200)[1]

        def step(
            k: Value, term: Value, total: Value
        ) -> tuple[tuple[Value, ...], Value]:
            odd = 2.0 * k - 1.0
            grown = (odd + n) * (odd + n + 1.0) / (odd * (odd + 1.0))
            term = term * (0.5 * odd * inverse * inverse) * grown
            total = total + term
            going = (abs(term) > 1e-18 * abs(total)) & (k < a * a)
            return (k + 1.0, term, total), going

        return repeat((a.like(1.0), first, first), step, 100)[2]

    odd = (n * 0.5).op("floor").differs(n * 0.5)
    value = branch(a < 6.3, near, far)
    flips = (x < 0.0) & ~odd
    return branch(flips, lambda: -value, lambda: value)


def owens_t(h: Value, a: Value) -> Value:
    """1/(2 pi) integral of exp(-h^2 (1 + x^2) / 2) / (1 + x^2) over 0 < x < a."""
    size, slope = abs(h), abs(a)
    far = size * slope
    swap = slope > 1.0
    u, b = select(swap, far, size), select(swap, 1.0 / slope, slope)
    half = 0.5 * u * u

    def integral() -> Value:
        # Gauss and Legendre's rule would need a table: here x = b tanh(pi/2 sinh(s))
        def step(s: Value, total: Value) -> tuple[tuple[Value, Value], Value]:
            e = s.op("exp")
            angle = (math.pi / 2) * 0.5 * (e - 1.0 / e)
            slope = (math.pi / 2) * 0.5 * (e + 1.0 / e)
            g = (-2.0 * angle).op("exp")
            point = b / (1.0 + g)
            weight = 2.0 * g * slope / ((1.0 + g) * (1.0 + g))
            one = fma(point, point, 1.0)
            term = weight * (-half * point * point).op("exp") / one
            return (s + 0.0625, total + term), s < 3.4

        total = repeat((b.like(-3.4), 0.0), step, 200)[1]
        return total * b * bell(u) * (0.0625 * 0.5 / math.pi)

    inner = branch(u < math.inf, integral, lambda: u.like(0.0))

    def mirrored() -> Value:
        # T(h, a) + T(ah, 1/a) = (Q(h) + Q(ah)) / 2 - Q(h) Q(ah), where Q = ndtr(-.)
        p, q = _upper(size), _upper(far)
        return 0.5 * (p + q) - p * q - inner

    value = branch(swap, mirrored, lambda: inner)
    value = select(size.equals(0.0), slope.op("atan") * (0.5 / math.pi), value)
    return select(a < 0.0, -value, select(h.equals(h), value, h))


def _upper(x: Value) -> Value:
    """ndtr(-x) for x >= 0."""
    value = 0.5 * _erfcx_positive(x * math.sqrt(0.5)) * bell(x)
    return branch(x < 40.0, lambda: value, lambda: x.like(0.0))
