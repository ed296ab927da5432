"""Integrals of elementary functions: exponential, sine, cosine, Fresnel's, dilogarithm.

Series about 0, and beyond continued fractions by Lentz' rule (complex ones with their
real and imaginary parts). Receives and gives `Value`s of float64; next:
`special_hyper.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.kernel.math_trig import sin_cos_pi
from fnx.kernel.math_value import Value, fma, select
from fnx.kernel.routine import branch, repeat
from fnx.kernel.special_tools import (
    BERNOULLI,
    EULER_GAMMA,
    horner,
    is_whole,
    tail_integrals,
)

Values = tuple[Value, ...]

# ---------------------------------------------------------------- exponential


def expn(n: Value, x: Value) -> Value:
    """E_n(x): the integral of exp(-xt) / t^n over t > 1, for an integer n."""

    def series() -> Value:
        # With psi = digamma(n): (-x)^(n-1)/(n-1)! (psi - log x) - sum (-x)^k/(k-n+1)/k!
        def step(
            k: Value, term: Value, psi: Value, total: Value
        ) -> tuple[Values, Value]:
            m = k - n + 1.0
            special = m.equals(0.0)
            part = select(special, (psi - x.op("log")) * term, -term / m)
            psi = select(m < 0.0, psi + 1.0 / (k + 1.0), psi)
            total = total + part
            going = (abs(part) > 1e-18 * abs(total)) | (m <= 0.0)
            return (k + 1.0, term * (-x / (k + 1.0)), psi, total), going

        return repeat((x.like(0.0), 1.0, -EULER_GAMMA, 0.0), step, 2000)[3]

    def integral() -> Value:
        # exp(-x) times the integral of exp(-xt) / (1 + t)^n
        def integrand(t: Value) -> Values:
            return (fma(-x, t, -n * t.op("log1p")).op("exp"),)

        return tail_integrals(1.0 / (x + 0.125 * n), integrand, 1, 0.1)[0] * (-x).op(
            "exp"
        )

    def positive() -> Value:
        near = (x < 1.0) & (n < 1000.0)
        return branch(near, series, integral)

    def general() -> Value:
        return branch(x < math.inf, positive, lambda: x.like(0.0))

    def at_zero() -> Value:
        return select(n > 1.0, 1.0 / (n - 1.0), math.inf)

    def elementary() -> Value:
        # E_-m = (exp(-x) + m E_(1-m)) / x
        power = (-x).op("exp")

        def step(m: Value, value: Value) -> tuple[Values, Value]:
            following = select(m < -n, fma(m + 1.0, value, power) / x, value)
            return (m + 1.0, following), m + 1.0 < -n

        value = repeat((x.like(0.0), power / x), step, 1000)[1]
        return branch(x < math.inf, lambda: value, lambda: x.like(0.0))

    value = branch(n > 0.0, general, elementary)
    value = select(x.equals(0.0), at_zero(), value)
    return select((x >= 0.0) & is_whole(n), value, math.nan)


def expi(x: Value) -> Value:
    """Ei(x), the principal value of the integral of exp(t) / t over t < x."""

    def near() -> Value:
        def step(k: Value, term: Value, total: Value) -> tuple[Values, Value]:
            term = term * (x / k)
            part = term / k
            total = total + part
            return (k + 1.0, term, total), abs(part) > 1e-18 * abs(total)

        total = repeat((x.like(1.0), 1.0, 0.0), step, 300)[2]
        return (total + x.op("log")) + EULER_GAMMA

    def about_root() -> Value:
        # Ei(r + d) from its root: the integral of exp(t) / t from r, as log(t) and more
        d = (x - _EI_ROOT) - _EI_ROOT_LOW

        def step(k: Value, p: Value, q: Value, total: Value) -> tuple[Values, Value]:
            # (x^k - r^k) / (k k!), the difference with all its digits
            p, q = fma(p, x, d * q), q * _EI_ROOT
            return (k + 1.0, p / k, q / k, total + p / (k * k)), k < 25.0

        total = repeat((x.like(1.0), 0.0, 1.0, 0.0), step, 30)[3]
        return total + (d / _EI_ROOT).op("log1p")

    def far() -> Value:
        def step(k: Value, term: Value, total: Value) -> tuple[Values, Value]:
            term = term * (k / x)
            return (k + 1.0, term, total + term), (term > 1e-18) & (k < x)

        total = repeat((x.like(1.0), 1.0, 1.0), step, 60)[2]
        half = (0.5 * x).op("exp")
        return total / x * half * half

    def beyond() -> Value:
        return branch(x < math.inf, far, lambda: x)

    def positive() -> Value:
        root = abs(x - _EI_ROOT) < 0.15
        small = branch(root, about_root, near)
        return branch(x < 40.0, lambda: small, beyond)

    def negative() -> Value:
        return -expn(x.like(1.0), -x)

    return branch(x > 0.0, positive, negative)


_EI_ROOT, _EI_ROOT_LOW = 0.3725074107813666, 1.3140183414386028e-17


# ---------------------------------------------------------------- oscillating


def _complex_fraction(
    im: Value, rise: float, top: Callable[[Value], Value]
) -> tuple[Value, Value]:
    """1/(z + top(1)/(z + rise + top(2)/(z + 2 rise + …))), where z = 1 + i im."""

    def step(
        i: Value,
        br: Value,
        cr: Value,
        ci: Value,
        dr: Value,
        di: Value,
        hr: Value,
        hi: Value,
    ) -> tuple[Values, Value]:
        above = top(i)
        br = br + rise
        dr, di = fma(above, dr, br), fma(above, di, im)
        size = dr * dr + di * di
        dr, di = dr / size, -di / size
        size = cr * cr + ci * ci
        cr, ci = br + above * cr / size, im - above * ci / size
        er, ei = cr * dr - ci * di, cr * di + ci * dr
        following = hr * er - hi * ei, hr * ei + hi * er
        going = abs(er - 1.0) + abs(ei) > 2e-16
        return (i + 1.0, br, cr, ci, dr, di, *following), going

    size = im * im + 1.0
    first = 1.0 / size, -im / size
    state = (im.like(1.0), im.like(1.0), 1e150, 0.0, *first, *first)
    return tuple(repeat(state, step, 1000)[6:])  # type: ignore[return-value]


def _si_ci_far(t: Value) -> tuple[Value, Value]:
    # E_1(it) exp(it) = 1/(1+it - 1/(3+it - 4/(5+it - …)))
    re, im = _complex_fraction(t, 2.0, lambda i: -i * i)
    cos, sin = t.op("cos"), t.op("sin")
    # h = (cos t - i sin t)(re + i im)
    return fma(cos, im, -sin * re), -(cos * re + sin * im)


def _sum_of(t: Value, first: Value, start: float) -> Value:
    """First + sum of (-1)^j t^k / (k k!) over every other k from `start` on."""
    square = -t * t

    def step(k: Value, term: Value, total: Value) -> tuple[Values, Value]:
        term = term * (square / ((k - 1.0) * k))
        part = term / k
        total = total + part
        return (k + 2.0, term, total), abs(part) > 1e-18 * abs(total)

    term = t if start == 3.0 else t.like(1.0)
    return repeat((t.like(start), term, first), step, 100)[2]


def sine_integral(x: Value) -> Value:
    """Si(x), the integral of sin(t) / t over 0 < t < x."""
    t = abs(x)

    def far() -> Value:
        return _si_ci_far(t)[0] + math.pi / 2

    def beyond() -> Value:
        return branch(t < math.inf, far, lambda: t.like(math.pi / 2))

    value = branch(t < 3.0, lambda: _sum_of(t, t, 3.0), beyond)
    return select(x < 0.0, -value, select(x.equals(x), value, x))


def cosine_integral(x: Value) -> Value:
    """Ci(x) = gamma + log x + the integral of (cos(t) - 1) / t over 0 < t < x."""

    def near() -> Value:
        return (_sum_of(x, x.like(0.0), 2.0) + x.op("log")) + EULER_GAMMA

    def beyond() -> Value:
        return branch(x < math.inf, lambda: _si_ci_far(x)[1], lambda: x.like(0.0))

    value = branch(x < 3.0, near, beyond)
    return select(x < 0.0, math.nan, value)


def _fresnel_far(a: Value) -> tuple[Value, Value]:
    """S and C of a large a, from the continued fraction of erfc(sqrt(pi)/2 (1-i) a)."""
    # w = erfcx(z) z sqrt(pi), z^2 = -i pi a^2 / 2: 1/(1 + (1/2)/z^2/(1 + (2/2)/z^2…))
    # that is 2z^2 + 1 - 1*2/(2z^2 + 5 - 3*4/(2z^2 + 9 - …))
    im = a * a * -math.pi
    hr, hi = _complex_fraction(im, 4.0, lambda i: -(2.0 * i - 1.0) * (2.0 * i))
    # times a (1 - i), then C + iS = (1 + i)/2 (1 - (cos + i sin)(pi a^2 / 2) h)
    hr, hi = a * (hr + hi), a * (hi - hr)
    high = a * a
    low = fma(a, a, -high)
    turn = 0.5 * (high - 4.0 * (0.25 * high).op("floor"))
    sin, cos = sin_cos_pi(turn)  # with the sign of an even number of half turns
    half_turns = turn.op("round") * 0.5
    odd = half_turns.op("floor").differs(half_turns)
    sin, cos = select(odd, -sin, sin), select(odd, -cos, cos)
    sin, cos = (
        fma(cos, low * (math.pi / 2), sin),
        fma(-sin, low * (math.pi / 2), cos),
    )
    re, im = 1.0 - (cos * hr - sin * hi), -(cos * hi + sin * hr)
    return 0.5 * (re + im), 0.5 * (re - im)


def _fresnel_series(a: Value, start: float) -> Value:
    square = a * a * (math.pi / 2)
    minus = -square * square
    first = a * square / 3.0 if start == 3.0 else a

    def step(k: Value, term: Value, total: Value) -> tuple[Values, Value]:
        # the power of square is j = (k - 1) / 2, by two more, over j!
        j = 0.5 * (k - 1.0) + 2.0
        term = term * (minus / (j * (j - 1.0)))
        part = term / (k + 4.0)
        total = total + part
        return (k + 4.0, term, total), abs(part) > 1e-18 * abs(total)

    term = a * square if start == 3.0 else a
    return repeat((a.like(start), term, first), step, 60)[2]


def _fresnel(x: Value, sine: bool) -> Value:
    a = abs(x)

    def far() -> Value:
        sin, cos = _fresnel_far(a)
        return sin if sine else cos

    def beyond() -> Value:
        return branch(a < 1e8, far, lambda: a.like(0.5))

    start = 3.0 if sine else 1.0
    value = branch(a < 1.6, lambda: _fresnel_series(a, start), beyond)
    return select(x < 0.0, -value, select(x.equals(x), value, x))


def fresnel_sine(x: Value) -> Value:
    """S(x), the integral of sin(pi t^2 / 2) over 0 < t < x."""
    return _fresnel(x, sine=True)


def fresnel_cosine(x: Value) -> Value:
    """C(x), the integral of cos(pi t^2 / 2) over 0 < t < x."""
    return _fresnel(x, sine=False)


def sin_ratio(x: Value, n: Value) -> Value:
    """The derivative of order n of sin(x) / x."""

    def near() -> Value:
        half = (0.5 * (n + 1.0)).op("floor")
        odd = (2.0 * half).differs(n)
        sign = select((0.5 * half).op("floor").differs(0.5 * half), -1.0, x.like(1.0))
        first = sign / (2.0 * half + 1.0) * select(odd, x, 1.0)
        square = -x * x

        def step(m: Value, term: Value, total: Value) -> tuple[Values, Value]:
            # m = 2k of the terms (-1)^k x^(2k-n) / ((2k+1) (2k-n)!)
            bottom = (m + 3.0) * (m + 2.0 - n) * (m + 1.0 - n)
            term = term * (square * (m + 1.0) / bottom)
            total = total + term
            return (m + 2.0, term, total), abs(term) > 1e-18 * abs(total)

        return repeat((2.0 * half, first, first), step, 100)[2]

    def far() -> Value:
        # x f_n = (sin x)^(n) - n f_(n-1)
        sin, cos = x.op("sin"), x.op("cos")

        def step(k: Value, s: Value, c: Value, last: Value) -> tuple[Values, Value]:
            going = k <= n
            following = select(going, (c - k * last) / x, last)
            return (k + 1.0, c, -s, following), k < n

        return repeat((x.like(1.0), sin, cos, sin / x), step, 200)[3]

    def beyond() -> Value:
        return branch(abs(x) < math.inf, far, lambda: x.like(0.0))

    return branch(abs(x) < 3.0, near, beyond)


# ---------------------------------------------------------------- dilogarithm

# Li2(1 - exp(-u)) = u - u^2/4 + sum B_2k u^(2k+1) / (2k+1)!
_DILOGARITHM = [b / math.factorial(2 * k + 3) for k, b in enumerate(BERNOULLI)]


def spence(x: Value) -> Value:
    """The dilogarithm Li2(1 - x): minus the integral of log(t) / (t - 1), 1 < t < x."""

    def middle(x: Value) -> Value:
        # Of 1/2 <= x <= 2: u = -log(x) is at most log(2).
        u = -(x - 1.0).op("log1p")
        square = u * u
        return fma(u * square, horner(square, _DILOGARITHM), fma(square, -0.25, u))

    def low(x: Value) -> Value:
        # Li2(z) + Li2(1 - z) = pi^2/6 - log(z) log(1 - z)
        return math.pi**2 / 6 - x.op("log") * (-x).op("log1p") - middle(1.0 - x)

    def high() -> Value:
        log = x.op("log")
        return -0.5 * log * log - low(1.0 / x)

    def positive() -> Value:
        return branch(
            x < 0.5, lambda: low(x), lambda: branch(x <= 2.0, lambda: middle(x), high)
        )

    def edge() -> Value:
        value = select(x.equals(0.0), math.pi**2 / 6, x.like(math.nan))
        return select(x.equals(math.inf), -math.inf, value)

    return branch((x > 0.0) & (x < math.inf), positive, edge)


def log1p_ratio(u: Value, n: Value) -> Value:
    """The derivative of order n of log(1 + u) / u, for u >= -1."""

    def near() -> Value:
        # (-1)^k k! / (k - n)! u^(k - n) / (k + 1) over k >= n
        def start(k: Value, term: Value) -> tuple[tuple[Value, Value], Value]:
            going = k <= n
            return (k + 1.0, select(going, -term * k, term)), k < n

        first = repeat((u.like(1.0), 1.0), start, 200)[1]

        def step(j: Value, term: Value, total: Value) -> tuple[Values, Value]:
            term = term * (-u * (j + n) / j)
            part = term / (j + n + 1.0)
            total = total + part
            return (j + 1.0, term, total), abs(part) > 1e-18 * abs(total)

        return repeat((u.like(1.0), first, first / (n + 1.0)), step, 200)[2]

    def far() -> Value:
        # u f_n = (log1p)^(n) - n f_(n-1)
        inverse, one = 1.0 / u, 1.0 / (u + 1.0)

        def step(
            k: Value, power: Value, last: Value
        ) -> tuple[tuple[Value, ...], Value]:
            going = k <= n
            following = (power - k * last) * inverse
            power = select(going, -power * k * one, power)
            return (k + 1.0, power, select(going, following, last)), k < n

        return repeat((u.like(1.0), one, u.op("log1p") * inverse), step, 200)[2]

    return branch(abs(u) < 0.5, near, far)


def expm1_ratio(t: Value, n: Value) -> Value:
    """The derivative of order n of (exp(t) - 1) / t: sum of t^k / (k! (k + n + 1))."""
    a = abs(t)

    def right() -> Value:
        def step(k: Value, term: Value, total: Value) -> tuple[Values, Value]:
            term = term * (a / k)
            part = term / (k + n + 1.0)
            total = total + part
            return (k + 1.0, term, total), part > 1e-18 * total

        return repeat((a.like(1.0), 1.0, 1.0 / (n + 1.0)), step, 200)[2]

    def left() -> Value:
        # Kummer: exp(-a) sum of a^k / ((n + 1) … (n + k + 1)), of positive terms
        def step(k: Value, term: Value, total: Value) -> tuple[Values, Value]:
            term = term * (a / (n + k + 1.0))
            total = total + term
            return (k + 1.0, term, total), term > 1e-18 * total

        first = 1.0 / (n + 1.0)
        return repeat((a.like(1.0), first, first), step, 200)[2] * (-a).op("exp")

    def far() -> Value:
        # t f_n = exp(t) - n f_(n-1)
        power = t.op("exp")

        def step(k: Value, last: Value) -> tuple[Values, Value]:
            following = select(k <= n, (power - k * last) / t, last)
            return (k + 1.0, following), k < n

        return repeat((t.like(1.0), t.op("expm1") / t), step, 200)[1]

    def near() -> Value:
        return branch(t < 0.0, left, right)

    return branch(a < 30.0, near, far)
