"""The regularized incomplete beta function and its derivatives in all its arguments.

With t the logistic function of u, I_x(a, b) = D integral exp(-a v - (a + b) l) over
v > 0, where l = log(1 + x expm1(-v)) and D = x^a (1 - x)^b / B(a, b). The exponent is
linear in a and b, so that derivatives are moments of the same integral, as with the
gamma functions. The smaller of I_x(a, b) and I_(1-x)(b, a) is integrated; where the
parameter on the side of x (or 1 - x) is small, a series gives both.
Receives and gives `Value`s of float64; next on the walk: `special_zeta.py`.
"""

from __future__ import annotations

import math

from fnx.kernel.math_value import Value, fma, select
from fnx.kernel.routine import branch, repeat
from fnx.kernel.special_tools import (
    LARGE,
    digamma_difference,
    expm1_rest,
    gamma_ratio_rest,
    lgamma1p,
    log1p_rest,
    log_minus_digamma,
    stirling_rest,
    tail_integrals,
    trigamma,
)

Order = tuple[int, int]
_ORDERS: tuple[Order, ...] = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
"""The derivatives of order i in a and j in b that there are."""


def _log(x: Value, y: Value) -> Value:
    """log(x), given y = 1 - x."""
    return select(x < 0.5, x.op("log"), (-y).op("log1p"))


def beta_density(a: Value, b: Value, x: Value, y: Value) -> Value:
    """x^a y^b / B(a, b), for a, b > 0 and x + y = 1."""

    def both_large() -> Value:
        # About the mean a / (a + b) the linear terms of the logarithms cancel.
        shift = x * b - y * a
        u, w = shift / a, -shift / b
        far = fma(a, u.op("log1p") - u, b * (w.op("log1p") - w))
        near = fma(a, log1p_rest(u), b * log1p_rest(w))
        rest = select((abs(u) < 0.5) & (abs(w) < 0.5), near, far)
        rest = rest - (stirling_rest(a) + stirling_rest(b) - stirling_rest(a + b))
        root = (a / (a + b) * b * (0.5 / math.pi)).op("sqrt")
        return root * rest.op("exp")

    def one_small() -> Value:
        swap = a < b
        m, q = select(swap, b, a), select(swap, a, b)
        xm, xq = select(swap, y, x), select(swap, x, y)
        log = m * _log(xm, xq) + q * (_log(xq, xm) + (m + q).op("log"))
        return q * (log + (gamma_ratio_rest(m, q) - lgamma1p(q))).op("exp")

    return branch((a >= LARGE) & (b >= LARGE), both_large, one_small)


def _log_slope(a: Value, b: Value, x: Value, y: Value) -> Value:
    """The derivative of log(D) in a: log(x) - digamma(a) + digamma(a + b)."""

    def large() -> Value:
        u = (x * b - y * a) / a
        log = select(abs(u) < 0.5, u.op("log1p"), (x / a * (a + b)).op("log"))
        return log + (log_minus_digamma(a) - log_minus_digamma(a + b))

    return branch(a >= LARGE, large, lambda: _log(x, y) + digamma_difference(a, b))


def _bend(total: Value, part: Value | None) -> Value:
    """Second derivatives of log(D): those of digamma(a + b), less digamma(part)."""
    slope = trigamma(total)
    return slope if part is None else slope - trigamma(part)


def _tail(
    a: Value, b: Value, x: Value, y: Value, orders: tuple[Order, ...]
) -> dict[Order, Value]:
    """The integral of I_x(a, b) without D, and its derivatives in a and b."""
    p = y * a - x * b
    root = ((a + b) * x * y).op("sqrt")
    width = 1.0 / (p + select(root < a, root, a))
    variance = (a + b) * x * y

    def integrand(v: Value) -> tuple[Value, ...]:
        e = (-v).op("expm1")
        log = (x * e).op("log1p")

        def near() -> Value:
            # Cumulants of a Bernoulli variable.
            c = x * y
            k3, k4 = y - x, fma(c, -6.0, 1.0)
            k5 = k3 * fma(c, -12.0, 1.0)
            k6 = fma(c * fma(c, -4.0, 1.0), -30.0, 1.0)
            k7 = k3 * fma(c * fma(c, -6.0, 1.0), -60.0, 1.0)
            series = fma(v, -k7 / 5040.0, k6 / 720.0)
            series = fma(v, fma(v, series, -k5 / 120.0), k4 / 24.0)
            series = fma(v, fma(v, series, -k3 / 6.0), 0.5)
            return variance * v * v * series

        def far() -> Value:
            # log(1 + x expm1(-v)) + x v, by two differences that do not cancel
            rest = fma(x, expm1_rest(-v), log1p_rest(x * e))
            return (a + b) * rest

        exponent = fma(-p, v, -branch(v < 0.01, near, far))
        value = exponent.op("exp")
        da, db = -v - log, -log
        powers = {(0, 0): value}
        for i, j in orders[1:]:
            if i:
                powers[i, j] = da * powers[i - 1, j]
            else:
                powers[i, j] = db * powers[i, j - 1]
        return tuple([powers[order] for order in orders])

    # The smaller b is, the more suddenly the integrand ends.
    def fine() -> tuple[Value, ...]:
        return tuple(tail_integrals(width, integrand, len(orders), 0.05))

    def coarse() -> tuple[Value, ...]:
        return tuple(tail_integrals(width, integrand, len(orders)))

    sums = branch(b < 100.0, fine, coarse)
    return dict(zip(orders, sums, strict=True))


def _series(
    q: Value, m: Value, x: Value, orders: tuple[Order, ...]
) -> dict[Order, Value]:
    """Q sum of (1 - m)_k x^k / (k! (q + k)) over k > 0, and its derivatives."""
    top = max(j for _, j in orders)

    def step(k: Value, *state: Value) -> tuple[tuple[Value, ...], Value]:
        terms, sums = state[: top + 1], state[top + 1 :]
        ratio, slope = (k - m) / k * x, x / k
        # Derivatives of the term in m: that of the factor (k - m) is -1.
        following = [terms[0] * ratio]
        for j in range(1, top + 1):
            following.append(fma(terms[j], ratio, terms[j - 1] * slope * float(-j)))
        inverse = 1.0 / (q + k)
        totals = []
        for (i, j), total in zip(orders, sums, strict=True):
            # The derivatives of q / (q + k): k / (q + k)^2, -2k / (q + k)^3.
            if i == 0:
                factor = q * inverse
            elif i == 1:
                factor = k * inverse * inverse
            else:
                factor = -2.0 * k * inverse * inverse * inverse
            totals.append(fma(following[j], factor, total))
        size = abs(following[0])
        for each in following[1:]:
            size = size + abs(each)
        return (k + 1.0, *following, *totals), size > 1e-18

    zeros = [0.0] * (top + len(orders))
    state = repeat((q.like(1.0), 1.0, *zeros), step, 200)
    return dict(zip(orders, state[top + 2 :], strict=True))


def _product(
    slope_a: Value | None,
    slope_b: Value | None,
    bends: dict[Order, Value],
    sums: dict[Order, Value],
    order: Order,
) -> Value:
    """A derivative of exp(g) sums over exp(g), from the derivatives of g."""
    one = sums[0, 0]
    match order:
        case (0, 0):
            return one
        case (1, 0):
            assert slope_a is not None
            return fma(slope_a, one, sums[1, 0])
        case (0, 1):
            assert slope_b is not None
            return fma(slope_b, one, sums[0, 1])
        case (1, 1):
            assert slope_a is not None and slope_b is not None
            mixed = fma(slope_a, slope_b, bends[1, 1]) * one
            return mixed + slope_a * sums[0, 1] + slope_b * sums[1, 0] + sums[1, 1]
    slope = slope_a if order[0] else slope_b
    assert slope is not None
    first = sums[1, 0] if order[0] else sums[0, 1]
    return fma(fma(slope, slope, bends[order]), one, 2.0 * slope * first + sums[order])


def _needed(order: Order) -> tuple[Order, ...]:
    """The derivatives of the integral that one of the product needs, lower first."""
    i, j = order
    return tuple([(n, m) for n, m in _ORDERS if n <= i and m <= j])


def _fraction(a: Value, b: Value, x: Value) -> Value:
    """The integral of I_x(a, b) without D, by its continued fraction (Lentz' rule)."""
    total = a + b

    def step(m: Value, c: Value, d: Value, h: Value) -> tuple[tuple[Value, ...], Value]:
        twice = a + m + m
        top = m * (b - m) * x / ((twice - 1.0) * twice)
        d = 1.0 / fma(top, d, 1.0)
        c = 1.0 + top / c
        h = h * d * c
        top = -(a + m) * (total + m) * x / (twice * (twice + 1.0))
        d = 1.0 / fma(top, d, 1.0)
        c = 1.0 + top / c
        change = d * c
        return (m + 1.0, c, d, h * change), abs(change - 1.0) > 2e-16

    first = 1.0 / (1.0 - total * x / (a + 1.0))
    return repeat((a.like(1.0), 1.0, first, first), step, 300)[3] / a


def _by_fraction(a: Value, b: Value, x: Value, y: Value) -> Value:
    return beta_density(a, b, x, y) * _fraction(a, b, x)


def _by_tail(a: Value, b: Value, x: Value, y: Value, order: Order) -> Value:
    """A derivative of I_x(a, b), where x is below the mean."""
    sums = _tail(a, b, x, y, _needed(order))
    i, j = order
    total = a + b
    bends = {
        (2, 0): lambda: _bend(total, a),
        (0, 2): lambda: _bend(total, b),
        (1, 1): lambda: _bend(total, None),
    }
    value = _product(
        _log_slope(a, b, x, y) if i else None,
        _log_slope(b, a, y, x) if j else None,
        {order: bends[order]()} if order in bends else {},
        sums,
        order,
    )
    return beta_density(a, b, x, y) * value


def _by_series(
    a: Value, b: Value, x: Value, y: Value, order: Order, complement: bool
) -> Value:
    """A derivative of I_x(a, b), or of 1 - I_x(a, b), where a is small."""
    total, c = a + b, a + 1.0
    log = a * (_log(x, y) + total.op("log")) + gamma_ratio_rest(b, a) - lgamma1p(a)
    sums = _series(a, b, x, _needed(order))
    power = log.op("exp")
    if order == (0, 0):
        if not complement:
            return fma(power, sums[0, 0], power)
        return -fma(power, sums[0, 0], log.op("expm1"))
    sums[0, 0] = sums[0, 0] + 1.0
    i, j = order
    bends = {
        (2, 0): lambda: _bend(total, c),
        (0, 2): lambda: _bend(total, b),
        (1, 1): lambda: _bend(total, None),
    }
    slope = _log(x, y) + total.op("digamma") - c.op("digamma") if i else None
    value = power * _product(
        slope,
        digamma_difference(b, a) if j else None,
        {order: bends[order]()} if order in bends else {},
        sums,
        order,
    )
    return -value if complement else value


def _small_side(a: Value, b: Value, x: Value) -> Value:
    """Whether the series in x is for these arguments."""
    return (a < 1.0) & (b * x < 1.1) & (x <= 0.7)


def _inside(a: Value, b: Value, x: Value, order: Order) -> Value:
    y = 1.0 - x
    i, j = order
    mirrored = j, i

    def integral(a: Value, b: Value, x: Value, y: Value, order: Order) -> Value:
        if i + j:
            return _by_tail(a, b, x, y, order)
        # The fraction takes about as many rounds as the root of a or b.
        return branch(
            (a < 500.0) & (b < 500.0),
            lambda: _by_fraction(a, b, x, y),
            lambda: _by_tail(a, b, x, y, order),
        )

    def upper() -> Value:
        value = integral(b, a, y, x, mirrored)
        return -value if i + j else 1.0 - value

    def tails() -> Value:
        below = x * b <= y * a
        return branch(below, lambda: integral(a, b, x, y, order), upper)

    def right() -> Value:
        return branch(
            _small_side(b, a, y),
            lambda: _by_series(b, a, y, x, mirrored, complement=True),
            tails,
        )

    return branch(
        _small_side(a, b, x),
        lambda: _by_series(a, b, x, y, order, complement=False),
        right,
    )


def betainc_derivative(a: Value, b: Value, x: Value, i: int, j: int) -> Value:
    """The derivative of I_x(a, b) of order i in a and j in b, i + j <= 2.

    At x = 0 and 1, and where a parameter is 0 or infinite, it is the limit.
    """
    inside = (x > 0.0) & (x < 1.0) & (a > 0.0) & (b > 0.0)
    inside = inside & (a < math.inf) & (b < math.inf)
    at_left = (x.equals(0.0) & (a > 0.0)) | (b.equals(0.0) & (a > 0.0) & (x < 1.0))
    at_left = at_left | (a.equals(math.inf) & (b < math.inf) & (x < 1.0))
    at_right = (x.equals(1.0) & (b > 0.0)) | (a.equals(0.0) & (b > 0.0) & (x > 0.0))
    at_right = at_right | (b.equals(math.inf) & (a < math.inf) & (x > 0.0))
    limits = select(at_right, 0.0 if i + j else 1.0, x.like(math.nan))
    limits = select(at_left, 0.0, limits)
    wrong = (x < 0.0) | (x > 1.0) | (a < 0.0) | (b < 0.0)
    limits = select(wrong, math.nan, limits)
    return branch(inside, lambda: _inside(a, b, x, (i, j)), lambda: limits)


def beta_pdf(a: Value, b: Value, x: Value) -> Value:
    """x^(a-1) (1-x)^(b-1) / B(a, b), the derivative of I_x(a, b) in x."""
    y = 1.0 - x
    inside = (x > 0.0) & (y > 0.0) & (a > 0.0) & (b > 0.0)

    def edge(p: Value, q: Value) -> Value:
        # at 0: infinite, q, or 0, by the exponent p - 1
        return select(p < 1.0, math.inf, select(p.equals(1.0), q, 0.0))

    at_edge = select(x.equals(0.0), edge(a, b), edge(b, a))
    outside = (x < 0.0) | (x > 1.0)
    limits = select(outside, 0.0, at_edge)
    known = (a > 0.0) & (b > 0.0) & x.equals(x)
    limits = select(known, limits, math.nan)
    return branch(inside, lambda: beta_density(a, b, x, y) / x / y, lambda: limits)


def betainc(a: Value, b: Value, x: Value) -> Value:
    """I_x(a, b), the regularized incomplete beta function."""
    return betainc_derivative(a, b, x, 0, 0)


def betainc_10(a: Value, b: Value, x: Value) -> Value:
    """The derivative of I_x(a, b) in a."""
    return betainc_derivative(a, b, x, 1, 0)


def betainc_01(a: Value, b: Value, x: Value) -> Value:
    """The derivative of I_x(a, b) in b."""
    return betainc_derivative(a, b, x, 0, 1)


def betainc_20(a: Value, b: Value, x: Value) -> Value:
    """The second derivative of I_x(a, b) in a."""
    return betainc_derivative(a, b, x, 2, 0)


def betainc_11(a: Value, b: Value, x: Value) -> Value:
    """The derivative of I_x(a, b) in a and b."""
    return betainc_derivative(a, b, x, 1, 1)


def betainc_02(a: Value, b: Value, x: Value) -> Value:
    """The second derivative of I_x(a, b) in b."""
    return betainc_derivative(a, b, x, 0, 2)
