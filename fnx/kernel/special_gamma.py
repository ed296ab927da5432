"""Incomplete gamma functions and their derivatives in the parameter.

With t = x exp(-v), P(a, x) = D integral exp(-a v - x expm1(-v)) over v > 0, where
D = x^a exp(-x) / gamma(a): the integrand is near to a Gaussian or an exponential
function whatever a and x are, a is linear in its exponent, and so the derivatives in a
are moments of the same integral. Q has t = x + y instead. The smaller of P and Q is
integrated; where a and x are small, a series gives both.
Receives and gives `Value`s of float64; next on the walk: `special_beta.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.kernel.math_value import Value, fma, select
from fnx.kernel.routine import branch, repeat
from fnx.kernel.special_tools import (
    LARGE,
    expm1_rest,
    horner,
    lgamma1p,
    log1p_rest,
    log_minus_digamma,
    stirling_rest,
    tail_integrals,
    trigamma,
)

Values = tuple[Value, ...]


def gamma_density(a: Value, x: Value) -> Value:
    """x^a exp(-x) / gamma(a), for a, x > 0."""

    def large() -> Value:
        root = (a * (0.5 / math.pi)).op("sqrt")
        u = (x - a) / a
        rest = select(abs(u) < 0.5, log1p_rest(u), (x / a).op("log") - u)
        return root * fma(a, rest, -stirling_rest(a)).op("exp")

    def small() -> Value:
        return a * (a * x.op("log") - x - lgamma1p(a)).op("exp")

    return branch(a >= LARGE, large, small)


def _log_slope(a: Value, x: Value) -> Value:
    """The derivative of log(D) in a: log(x) - digamma(a)."""

    def large() -> Value:
        u = (x - a) / a
        log = select(abs(u) < 0.5, u.op("log1p"), (x / a).op("log"))
        return log + log_minus_digamma(a)

    return branch(a >= LARGE, large, lambda: x.op("log") - a.op("digamma"))


def _lower(a: Value, x: Value, count: int) -> Values:
    """The integral of P without D, and its derivatives in a."""
    p = a - x
    root = x.op("sqrt")
    width = 1.0 / (p + select(root < a, root, a))

    def integrand(v: Value) -> Values:
        moments = [fma(-p, v, -x * expm1_rest(-v)).op("exp")]
        for _ in range(count):
            moments.append(-v * moments[-1])
        return tuple(moments)

    return tuple(tail_integrals(width, integrand, count + 1))


def _upper(a: Value, x: Value, count: int) -> Values:
    """The integral of Q without D, and its derivatives in a."""
    # In units of x: y = x v; exp(-x v + (a - 1) log(1 + v)).
    p, b = x - a + 1.0, a - 1.0
    width = 1.0 / (p + select(b > 0.0, b, 0.0).op("sqrt"))

    def integrand(v: Value) -> Values:
        log = v.op("log1p")
        near = fma(-p, v, b * log1p_rest(v))
        moments = [near.op("exp")]
        for _ in range(count):
            moments.append(log * moments[-1])
        return tuple(moments)

    return tuple(tail_integrals(width, integrand, count + 1))


def _power_series(a: Value, x: Value) -> Value:
    """The integral of P without D: 1/a + x/(a (a + 1)) + …"""

    def step(k: Value, term: Value, total: Value) -> tuple[Values, Value]:
        term = term * (x / k)
        total = total + term
        return (k + 1.0, term, total), term > 1e-17 * total

    first = 1.0 / a
    return repeat((a + 1.0, first, first), step, 1000)[2]


def _fraction(a: Value, x: Value) -> Value:
    """The integral of Q without D: 1/(x + 1 - a - (1 - a)/(x + 3 - a - …))."""

    def step(i: Value, b: Value, c: Value, d: Value, h: Value) -> tuple[Values, Value]:
        top = i * (a - i)
        b = b + 2.0
        d = 1.0 / fma(top, d, b)
        c = b + top / c
        change = c * d
        return (i + 1.0, b, c, d, h * change), abs(change - 1.0) > 2e-16

    b = x + 1.0 - a
    return repeat((a.like(1.0), b, 1e300, 1.0 / b, 1.0 / b), step, 1000)[4]


def _series(a: Value, x: Value, count: int) -> Values:
    """Sum of (-x)^k / (k! (a + k)) over k > 0, and its derivatives in a."""

    def step(k: Value, term: Value, *sums: Value) -> tuple[Values, Value]:
        term = term * (-x / k)
        inverse = 1.0 / (a + k)
        part, following = term, []
        for n, total in enumerate(sums):
            part = part * (inverse * float(-n or 1))
            following.append(total + part)
        return (k + 1.0, term, *following), abs(term) > 1e-18

    state = repeat((a.like(1.0), a.like(1.0), *[0.0] * (count + 1)), step, 60)
    return tuple(state[2:])


def _leibniz(factors: Values, sums: Values) -> Value:
    """The highest derivative of a product from the derivatives of both factors."""
    order = len(sums) - 1
    total = factors[0] * sums[order]
    for n in range(1, order + 1):
        total = total + factors[n] * sums[order - n] * float(math.comb(order, n))
    return total


def _powers(one: Value, slope: Value, bend: Value | None, order: int) -> Values:
    """The derivatives of exp(g) over exp(g), given those of g."""
    factors = [one]
    if order > 0:
        factors.append(slope)
    if order > 1:
        assert bend is not None
        factors.append(fma(slope, slope, bend))
    return tuple(factors)


def _derivative_over_density(a: Value, x: Value, order: int) -> Value:
    """The derivative of P of order 1 or 2 in a, over D."""

    def of_lower() -> Value:
        return _leibniz(_density_factors(a, x, order), _lower(a, x, order))

    def of_upper() -> Value:
        return -_leibniz(_density_factors(a, x, order), _upper(a, x, order))

    def of_series() -> Value:
        # P = G (1 + a T) with G = x^a / gamma(1 + a), and D = a G exp(-x).
        sums = _series(a, x, order)
        inner = [fma(a, sums[0], 1.0)]
        inner += [fma(a, sums[n], sums[n - 1] * float(n)) for n in range(1, order + 1)]
        b = a + 1.0
        slope = x.op("log") - b.op("digamma")
        bend = -trigamma(b) if order > 1 else None
        factors = _powers(a.like(1.0), slope, bend, order)
        return _leibniz(factors, tuple(inner)) * x.op("exp") / a

    return branch(_is_small(a, x), of_series, lambda: branch(x < a, of_lower, of_upper))


def _density_factors(a: Value, x: Value, order: int) -> Values:
    bend = -trigamma(a) if order > 1 else None
    return _powers(a.like(1.0), _log_slope(a, x), bend, order)


def _is_small(a: Value, x: Value) -> Value:
    return (a < 1.0) & (x < 1.1)


def _lower_and_upper(a: Value, x: Value) -> tuple[Value, Value]:
    """P and Q, for finite a, x > 0."""

    def by_series() -> tuple[Value, Value]:
        log = a * x.op("log") - lgamma1p(a)
        part = a * _series(a, x, 0)[0]
        power = log.op("exp")
        return power * (part + 1.0), -(log.op("expm1") + power * part)

    moderate = a < 300.0  # else the series and the fraction take many terms

    def by_lower() -> tuple[Value, Value]:
        integral = branch(
            moderate, lambda: _power_series(a, x), lambda: _lower(a, x, 0)[0]
        )
        p = gamma_density(a, x) * integral
        return p, 1.0 - p

    def by_upper() -> tuple[Value, Value]:
        integral = branch(moderate, lambda: _fraction(a, x), lambda: _upper(a, x, 0)[0])
        q = gamma_density(a, x) * integral
        return 1.0 - q, q

    def by_integral() -> tuple[Value, Value]:
        # A bit above a, 1 - P loses little, and the fraction is slow.
        edge = select(moderate & (a > 1.0), a + a.op("sqrt"), a)
        return branch(x < edge, by_lower, by_upper)

    return branch(_is_small(a, x), by_series, by_integral)


def _guarded(
    a: Value, x: Value, left: float, right: float, function: Callable[[], Value]
) -> Value:
    """The function for 0 < a, x < inf; else the limits where P is 0 and where it is 1.

    Where both a and x are 0 or infinite, or one is negative, it is NaN.
    """
    at_left = (x.equals(0.0) & (a > 0.0)) | (a.equals(math.inf) & (x < math.inf))
    at_right = (x.equals(math.inf) & (a < math.inf)) | (a.equals(0.0) & (x > 0.0))
    limits = select(at_left, left, select(at_right, right, x.like(math.nan)))
    limits = select((x < 0.0) | (a < 0.0), math.nan, limits)
    inside = (a > 0.0) & (x > 0.0) & (a < math.inf) & (x < math.inf)
    return branch(inside, function, lambda: limits)


def igamma(a: Value, x: Value) -> Value:
    """P(a, x), the regularized lower incomplete gamma function."""
    return _guarded(a, x, 0.0, 1.0, lambda: _lower_and_upper(a, x)[0])


def igammac(a: Value, x: Value) -> Value:
    """Q(a, x) = 1 - P(a, x)."""
    return _guarded(a, x, 1.0, 0.0, lambda: _lower_and_upper(a, x)[1])


def gamma_pdf(a: Value, x: Value) -> Value:
    """x^(a-1) exp(-x) / gamma(a), the derivative of P in x."""
    at_zero = select(a < 1.0, math.inf, select(a.equals(1.0), x.like(1.0), 0.0))
    value = _guarded(a, x, 0.0, 0.0, lambda: gamma_density(a, x) / x)
    return select(x.equals(0.0) & (a > 0.0), at_zero, value)


def igamma_grad_a(a: Value, x: Value) -> Value:
    """The derivative of P in a."""

    def inside() -> Value:
        return gamma_density(a, x) * _derivative_over_density(a, x, 1)

    return _guarded(a, x, 0.0, 0.0, inside)


def igamma_grad_aa(a: Value, x: Value) -> Value:
    """The second derivative of P in a."""

    def inside() -> Value:
        return gamma_density(a, x) * _derivative_over_density(a, x, 2)

    return _guarded(a, x, 0.0, 0.0, inside)


def igamma_ratio_aa(a: Value, x: Value) -> Value:
    """The second derivative of P in a over that of first order in x."""
    return _guarded(a, x, 0.0, 0.0, lambda: x * _derivative_over_density(a, x, 2))


def random_gamma_grad(a: Value, x: Value) -> Value:
    """The derivative in a of a sample x of the gamma distribution: -P_a / P_x."""

    def inside() -> Value:
        return -x * _derivative_over_density(a, x, 1)

    return _guarded(a, x, 0.0, 0.0, inside)


def poisson_entropy(mu: Value, n: Value) -> Value:
    """The derivative of order n <= 2 of the entropy of Poisson's distribution in mu.

    It is mu - mu log(mu) + E log(k!), and the derivative of an expectation is that of
    the difference: E log(k + 1), E log((k + 2) / (k + 1)).
    """

    def term(k: Value) -> Value:
        one, two = (k + 1.0).op("log"), (1.0 / (k + 1.0)).op("log1p")
        return select(n < 1.0, (k + 1.0).op("lgamma"), select(n < 2.0, one, two))

    def summed() -> Value:
        def step(k: Value, share: Value, total: Value) -> tuple[Values, Value]:
            total = fma(share, term(k), total)
            k = k + 1.0
            share = share * mu / k
            return (k, share, total), (k < mu) | (share > 1e-18)

        total = repeat((mu.like(0.0), (-mu).op("exp"), 0.0), step, 2000)[2]
        log = mu.op("log")
        rest = select(n < 1.0, mu - mu * log, select(n < 2.0, -log, -1.0 / mu))
        return total + rest

    def large() -> Value:
        # log(2 pi e mu)/2 - 1/(12 mu) - 1/(24 mu^2) - 19/(360 mu^3) - 9/(80 mu^4)
        z = 1.0 / mu
        series = horner(z, [0.0, -1 / 12, -1 / 24, -19 / 360, -9 / 80])
        slope = z * z * horner(z, [1 / 12, 2 / 24, 3 * 19 / 360, 4 * 9 / 80])
        bend = -z * z * z * horner(z, [2 / 12, 6 / 24, 12 * 19 / 360, 20 * 9 / 80])
        value = 0.5 * (2 * math.pi * math.e * mu).op("log") + series
        first, second = fma(z, 0.5, slope), fma(z * z, -0.5, bend)
        return select(n < 1.0, value, select(n < 2.0, first, second))

    value = branch(mu < 500.0, summed, large)
    at_zero = select(n < 1.0, 0.0, select(n < 2.0, mu.like(math.inf), -math.inf))
    value = select(mu.equals(0.0), at_zero, value)
    return select(mu >= 0.0, value, math.nan)
