"""Special functions as primitives, a row each, with derivatives in all arguments.

Gamma, beta, zeta, Bessel, error, hypergeometric functions and their kin. They compute
in float64 whatever the dtype is, and round the result once. Where a derivative written
with the function itself would cancel, it is a member of a family of its own with an
integer `order` (`bessel_moment`, `erfcx_moment`, `dawsn_derivative`, …).
Receives arrays of equal shapes and dtypes, gives one of the same shape. Next on the
walk: `shape.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fnx import dtypes, errors
from fnx.kernel.special import evaluate
from fnx.ops import formulas
from fnx.ops.arithmetic import (
    Partial,
    Smooth,
    add,
    mul,
    mul_strong_zero,
    mul_tangents,
    neg,
    scale,
    select,
    sub,
)
from fnx.ops.elementwise import (
    cos,
    div,
    erf,
    exp,
    log,
    log1p,
    lt,
    max,
    sign,
    sin,
    sqrt,
)
from fnx.ops.elementwise import square as squared
from fnx.ops.families import COMPLEX, FLOAT, Stepwise
from fnx.ops.parts import and_

# ---------------------------------------------------------------- the family


def _scalar(row: str) -> Callable[..., Any]:
    """The row's function of elements, which is in float64, and of a constant order."""

    def element(k: Any, *xs: Any, order: int | None = None) -> Any:
        wide = [k.convert(x, dtypes.float64) for x in xs]
        if order is not None:
            wide.append(k.constant(float(order), dtypes.float64))
        return k.convert(k.op(row, *wide), xs[0].dtype)

    return element


def _numpy(row: str) -> Callable[..., Any]:
    """The same on arrays."""

    def function(*xs: Any, order: int | None = None) -> Any:
        return evaluate(row, *xs, *([] if order is None else [order]))

    return function


# From so many elements on the compiled kernel computes eagerly, too: NumPy under masks
# takes as long as compiling, or (for functions of long loops) many times as long.
_MANY, _MANY_OF_LONG = 4096, 32


def _special(
    name: str,
    *partials: Partial | None,
    row: str = "",
    bounded: bool = False,
    is_long: bool = False,
) -> Smooth:
    row = row or name
    made = Smooth(
        name, FLOAT, _numpy(row), *partials, bounded=bounded, scalar=_scalar(row)
    )
    made.compiled_from = _MANY_OF_LONG if is_long else _MANY
    return made


def _refused(name: str, argument: str) -> Partial:
    """The derivative that a function does not have."""

    def partial(*operands: Any, **params: Any) -> Any:
        raise errors.ArgumentError(
            errors.explain(
                f"a derivative of {name} in {argument}",
                "fnx has none of this order",
                "hold the argument fixed with fnx.lax.stop_gradient",
            )
        )

    return partial


# ---------------------------------------------------------------- gamma and beta

lgamma = Smooth("lgamma", FLOAT, formulas.row("lgamma"), lambda out, x: digamma(x))
digamma: Smooth = Smooth(
    "digamma", FLOAT, formulas.row("digamma"), lambda out, x: polygamma(1.0, x)
)
polygamma: Smooth = _special(
    "polygamma",
    _refused("polygamma", "n"),
    lambda out, n, x: polygamma(add(n, 1), x),
)
gamma = _special("gamma", lambda out, x: mul(out, digamma(x)))
gamma_sign = Stepwise(
    "gamma_sign", FLOAT, _numpy("gamma_sign"), scalar=_scalar("gamma_sign")
)
# digamma(m + q) - digamma(m)
digamma_difference = _special(
    "digamma_difference",
    lambda out, m, q: sub(polygamma(1.0, add(m, q)), polygamma(1.0, m)),
    lambda out, m, q: polygamma(1.0, add(m, q)),
)


def _digamma_step(m: Any, q: Any) -> Any:
    """The difference of digamma, by its own function where both are positive."""
    known = and_(lt(0.0, m), lt(0.0, q))
    near = digamma_difference(select(known, m, 1), select(known, q, 1))
    return select(known, near, sub(digamma(add(m, q)), digamma(m)))


betaln = _special(
    "betaln",
    lambda out, a, b: neg(_digamma_step(a, b)),
    lambda out, a, b: neg(_digamma_step(b, a)),
)
beta = _special(
    "beta",
    lambda out, a, b: neg(mul(out, _digamma_step(a, b))),
    lambda out, a, b: neg(mul(out, _digamma_step(b, a))),
)
combinations = _special(
    "combinations",
    lambda out, n, k: mul(out, _digamma_step(add(sub(n, k), 1), k)),
    lambda out, n, k: mul(out, sub(digamma(add(sub(n, k), 1)), digamma(add(k, 1)))),
)
poch = _special(
    "poch",
    lambda out, z, m: mul(out, _digamma_step(z, m)),
    lambda out, z, m: mul(out, digamma(add(z, m))),
)
# lgamma(z + m) - lgamma(z)
lgamma_difference = _special(
    "lgamma_difference",
    lambda out, z, m: _digamma_step(z, m),
    lambda out, z, m: digamma(add(z, m)),
)


def _log_slope(a: Any, x: Any) -> Any:
    """The derivative of log(gamma_pdf) in a."""
    return sub(log(x), digamma(a))


igamma = _special(
    "igamma",
    lambda out, a, x: igamma_grad_a(a, x),
    lambda out, a, x: gamma_pdf(a, x),
    is_long=True,
)
igammac = _special(
    "igammac",
    lambda out, a, x: neg(igamma_grad_a(a, x)),
    lambda out, a, x: neg(gamma_pdf(a, x)),
    is_long=True,
)


def _gamma_pdf_x(out: Any, a: Any, x: Any) -> Any:
    """(a - 1)/x times the density, less itself: that of a - 1 where it can be."""
    above = lt(1.0, a)
    near = gamma_pdf(select(above, sub(a, 1), 1), x)
    rise = select(above, near, mul_strong_zero(div(out, x), sub(a, 1)))
    return sub(rise, out)


# The logarithm in a slope is infinite where the density is 0.
gamma_pdf: Smooth = _special(
    "gamma_pdf",
    lambda out, a, x: mul_strong_zero(_log_slope(a, x), out),
    _gamma_pdf_x,
)
igamma_grad_a: Smooth = _special(
    "igamma_grad_a",
    lambda out, a, x: igamma_grad_aa(a, x),
    lambda out, a, x: mul_strong_zero(_log_slope(a, x), gamma_pdf(a, x)),
    is_long=True,
)


def _pdf_aa(out: Any, a: Any, x: Any) -> Any:
    bend = sub(squared(_log_slope(a, x)), polygamma(1.0, a))
    return mul_strong_zero(bend, gamma_pdf(a, x))


igamma_grad_aa: Smooth = _special(
    "igamma_grad_aa",
    _refused("the incomplete gamma function", "a"),
    _pdf_aa,
    is_long=True,
)


def _sample_a(out: Any, a: Any, x: Any) -> Any:
    return neg(add(igamma_ratio_aa(a, x), mul(out, _log_slope(a, x))))


def _sample_x(out: Any, a: Any, x: Any) -> Any:
    rise = sub(div(sub(a, 1), x), 1)
    return neg(add(_log_slope(a, x), mul(out, rise)))


random_gamma_grad = _special("random_gamma_grad", _sample_a, _sample_x, is_long=True)
igamma_ratio_aa = _special(
    "igamma_ratio_aa",
    _refused("random_gamma_grad", "a"),
    lambda out, a, x: sub(
        sub(squared(_log_slope(a, x)), polygamma(1.0, a)),
        mul(out, sub(div(sub(a, 1), x), 1)),
    ),
    is_long=True,
)


def _entropy_slope(out: Any, mu: Any, order: int) -> Any:
    if order == 2:
        _refused("poisson.entropy", "mu")()
    return poisson_entropy(mu, order=order + 1)


# the derivative of some order of the entropy of Poisson's distribution
poisson_entropy: Smooth = _special("poisson_entropy", _entropy_slope, is_long=True)


class _BetaDerivative(Smooth):
    """betainc_derivative(a, b, x, i, j): of order i in a and j in b, i + j <= 2."""

    compiled_from = _MANY_OF_LONG

    def __init__(self) -> None:
        super().__init__("betainc_derivative", FLOAT, self._values, scalar=self._scalar)

    @staticmethod
    def _row(i: int, j: int) -> str:
        return f"betainc_{i}{j}"

    def _values(self, *xs: Any, i: int, j: int) -> Any:
        return evaluate(self._row(i, j), *xs)

    def _scalar(self, k: Any, *xs: Any, i: int, j: int) -> Any:
        return _scalar(self._row(i, j))(k, *xs)

    def jvp(self, primals: Any, tangents: Any, *, i: int, j: int) -> tuple[Any, Any]:
        """Of one order more in a and b; in x that of the density."""
        output = self(*primals, i=i, j=j)
        total = None
        for n, t in enumerate(tangents):
            if t is not None:
                term = scale(_beta_partial(tuple(primals), i, j, n), t)
                total = term if total is None else add(total, term)
        return output, total


def _beta_partial(operands: tuple[Any, ...], i: int, j: int, position: int) -> Any:
    a, b, x = operands
    if position < 2:
        if i + j == 2:
            refused = _refused("the incomplete beta function", "ab"[position])
            refused(None, a, b, x)
        following = (i + 1, j) if position == 0 else (i, j + 1)
        return betainc_derivative(a, b, x, i=following[0], j=following[1])
    return _beta_pdf(a, b, x, i, j)


def _beta_pdf(a: Any, b: Any, x: Any, i: int, j: int) -> Any:
    """The derivative of the beta density of order i in a and j in b."""
    density = beta_pdf(a, b, x)
    if i + j == 0:
        return density
    slopes = [_beta_slope(a, b, x, 0)] * i + [_beta_slope(a, b, x, 1)] * j
    if i + j == 1:
        return mul_strong_zero(slopes[0], density)
    bend = polygamma(1.0, add(a, b))
    if i != j:
        bend = sub(bend, polygamma(1.0, a if i else b))
    return mul_strong_zero(add(mul(*slopes), bend), density)


def _beta_slope(a: Any, b: Any, x: Any, position: int) -> Any:
    """The derivative of the logarithm of the density in a or b."""
    if position == 0:
        return add(log(x), _digamma_step(a, b))
    return add(log1p(neg(x)), _digamma_step(b, a))


betainc = _special(
    "betainc",
    lambda out, a, b, x: betainc_derivative(a, b, x, i=1, j=0),
    lambda out, a, b, x: betainc_derivative(a, b, x, i=0, j=1),
    lambda out, a, b, x: beta_pdf(a, b, x),
    is_long=True,
)
betainc_derivative: _BetaDerivative = _BetaDerivative()
# x^(a-1) (1-x)^(b-1) / B(a, b)
beta_pdf: Smooth = _special(
    "beta_pdf",
    lambda out, a, b, x: mul_strong_zero(_beta_slope(a, b, x, 0), out),
    lambda out, a, b, x: mul_strong_zero(_beta_slope(a, b, x, 1), out),
    lambda out, a, b, x: _beta_pdf_x(out, a, b, x),
)


def _beta_pdf_x(out: Any, a: Any, b: Any, x: Any) -> Any:
    """((a - 1)/x - (b - 1)/(1 - x)) times the density, by those of a - 1 and b - 1."""
    total = sub(add(a, b), 1)
    left, right = lt(1.0, a), lt(1.0, b)
    less = beta_pdf(select(left, sub(a, 1), 1), b, x)
    rise = mul_strong_zero(div(out, x), sub(a, 1))
    rise = select(left, mul_strong_zero(less, total), rise)
    more = beta_pdf(a, select(right, sub(b, 1), 1), x)
    fall = mul_strong_zero(div(out, sub(1, x)), sub(b, 1))
    fall = select(right, mul_strong_zero(more, total), fall)
    return sub(rise, fall)


# ---------------------------------------------------------------- zeta


class _Zeta(Smooth):
    """zeta_derivative(s, q, order): of order 1 or 2 in s."""

    compiled_from = _MANY

    def __init__(self) -> None:
        super().__init__("zeta_derivative", FLOAT, self._values, scalar=self._scalar)

    def _values(self, s: Any, q: Any, order: int) -> Any:
        return evaluate(f"zeta_{order}", s, q)

    def _scalar(self, k: Any, s: Any, q: Any, order: int) -> Any:
        return _scalar(f"zeta_{order}")(k, s, q)

    def jvp(self, primals: Any, tangents: Any, *, order: int) -> tuple[Any, Any]:
        """Of one order more in s; in q that of -s zeta(s + 1, q)."""
        (s, q), (ts, tq) = primals, tangents
        output, total = self(s, q, order=order), None
        if ts is not None:
            if order == 2:
                _refused("zeta", "x")(None, s, q)
            total = scale(self(s, q, order=order + 1), ts)
        if tq is not None:
            t = add(s, 1)
            lower = zeta(t, q) if order == 1 else self(t, q, order=order - 1)
            slope = add(mul(s, self(t, q, order=order)), mul(lower, float(order)))
            term = scale(neg(slope), tq)
            total = term if total is None else add(total, term)
        return output, total


zeta: Smooth = _special(
    "zeta",
    lambda out, s, q: zeta_derivative(s, q, order=1),
    lambda out, s, q: neg(mul(s, zeta(add(s, 1), q))),
)
zeta_derivative: _Zeta = _Zeta()

# ---------------------------------------------------------------- Bessel

# I_n(x) for a constant order n >= 0
bessel_i: Smooth = _special(
    "bessel_i",
    lambda out, x, order: mul(
        add(bessel_i(x, order=abs(order - 1)), bessel_i(x, order=order + 1)),
        0.5,
    ),
)
# J_n(x) for a constant order n >= 0
bessel_j: Smooth = _special(
    "bessel_j", lambda out, x, order: _bessel_j_slope(x, order), bounded=True
)


def _bessel_j_slope(x: Any, order: int) -> Any:
    if order == 0:
        return neg(bessel_j(x, order=1))
    return mul(sub(bessel_j(x, order=order - 1), bessel_j(x, order=order + 1)), 0.5)


def _sphere_slope(out: Any, n: Any, m: Any, theta: Any) -> Any:
    """Half the difference of the neighbours in m, which the ladder operators give."""
    up = sqrt(max(mul(sub(n, m), add(add(n, m), 1)), 0))
    down = sqrt(max(mul(add(n, m), add(sub(n, m), 1)), 0))
    above = mul(up, legendre_on_sphere(n, add(m, 1), theta))
    below = mul(down, legendre_on_sphere(n, sub(m, 1), theta))
    return mul(sub(above, below), 0.5)


# the spherical harmonic of degree n and order m at (theta, 0)
legendre_on_sphere: Smooth = _special(
    "legendre_on_sphere",
    _refused("sph_harm_y", "n"),
    _refused("sph_harm_y", "m"),
    _sphere_slope,
    is_long=True,
)
# 1/pi integral (1 - cos t)^order exp(-|x| (1 - cos t)) dt over 0 < t < pi
bessel_moment: Smooth = _special(
    "bessel_moment",
    lambda out, x, order: neg(mul(sign(x), bessel_moment(x, order=order + 1))),
    bounded=True,
)


class _ScaledBessel(Smooth):
    """exp(-|x|) I_n(x) for n = 0 or 1."""

    compiled_from = _MANY

    def __init__(self, name: str, order: int, partial: Partial) -> None:
        def scalar(k: Any, x: Any) -> Any:
            return _scalar("bessel_ie")(k, x, order=order)

        def values(x: Any) -> Any:
            return evaluate("bessel_ie", x, order)

        super().__init__(name, FLOAT, values, partial, bounded=True, scalar=scalar)


bessel_i0e = _ScaledBessel(
    "bessel_i0e", 0, lambda out, x: neg(mul(sign(x), bessel_moment(x, order=1)))
)
bessel_i1e = _ScaledBessel(
    "bessel_i1e",
    1,
    lambda out, x: sub(bessel_moment(x, order=2), bessel_moment(x, order=1)),
)

# ---------------------------------------------------------------- error functions

_ROOT_2PI = math.sqrt(2 * math.pi)

# exp(-x^2 / 2)
bell = _special("bell", lambda out, x: neg(mul_strong_zero(x, out)))
ndtr = _special("ndtr", lambda out, x: mul(bell(x), 1 / _ROOT_2PI), bounded=True)
ndtri = _special("ndtri", lambda out, p: div(_ROOT_2PI, bell(out)))
erfcx = _special("erfcx", lambda out, x: mul(erfcx_moment(x, order=1), -2.0))
# 2/sqrt(pi) integral t^order exp(-t^2 - 2xt) dt over t > 0
erfcx_moment: Smooth = _special(
    "erfcx_moment",
    lambda out, x, order: mul(erfcx_moment(x, order=order + 1), -2.0),
    is_long=True,
)
dawsn_derivative: Smooth = _special(
    "dawsn_derivative",
    lambda out, x, order: dawsn_derivative(x, order=order + 1),
    bounded=True,
)


def _owens_h(out: Any, h: Any, a: Any) -> Any:
    side = erf(mul(mul_tangents(h, a), math.sqrt(0.5)))
    return mul(mul(bell(h), side), -0.5 / _ROOT_2PI)


def _owens_a(out: Any, h: Any, a: Any) -> Any:
    bells = mul(bell(h), bell(mul_tangents(h, a)))
    return div(mul(bells, 0.5 / math.pi), add(squared(a), 1))


owens_t = _special(
    "owens_t",
    _owens_h,
    _owens_a,
    is_long=True,
)

# ---------------------------------------------------------------- integrals

expi = _special("expi", lambda out, x: div(exp(x), x), is_long=True)
expn: Smooth = _special(
    "expn",
    _refused("expn", "n"),
    lambda out, n, x: neg(expn(sub(n, 1), x)),
    is_long=True,
)
# sin(x) / x and log(1 + x) / x, and their derivatives of some order
sin_ratio: Smooth = _special(
    "sin_ratio", lambda out, x, order: sin_ratio(x, order=order + 1), bounded=True
)
log1p_ratio: Smooth = _special(
    "log1p_ratio", lambda out, x, order: log1p_ratio(x, order=order + 1)
)
# (exp(t) - 1) / t and its derivatives; log(1 + u) - u
expm1_ratio: Smooth = _special(
    "expm1_ratio", lambda out, t, order: expm1_ratio(t, order=order + 1)
)
log1p_rest = _special("log1p_rest", lambda out, u: neg(div(u, add(u, 1))))
sine_integral = _special(
    "sine_integral", lambda out, x: sin_ratio(x, order=0), bounded=True, is_long=True
)
cosine_integral = _special(
    "cosine_integral", lambda out, x: div(cos(x), x), is_long=True
)


def _half_turns(x: Any) -> Any:
    return mul(squared(x), math.pi / 2)


fresnel_sine = _special(
    "fresnel_sine", lambda out, x: sin(_half_turns(x)), is_long=True
)
fresnel_cosine = _special(
    "fresnel_cosine", lambda out, x: cos(_half_turns(x)), is_long=True
)


def _spence_partial(out: Any, x: Any) -> Any:
    """log(x) / (1 - x); about 1 from log1p(x - 1)."""
    low = lt(x, 0.5)
    near = neg(log1p_ratio(sub(select(low, 1, x), 1), order=0))
    return select(low, div(log(x), sub(1, select(low, x, 0))), near)


spence = _special("spence", _spence_partial)

# ---------------------------------------------------------------- hypergeometric


def _next_1f1(out: Any, a: Any, b: Any, x: Any) -> Any:
    return mul(div(a, b), hyp1f1(add(a, 1), add(b, 1), x))


hyp1f1: Smooth = _special(
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


hyp1f1_slope_a: Smooth = _special(
    "hyp1f1_slope_a",
    _refused("hyp1f1", "a"),
    _refused("hyp1f1", "b"),
    _1f1_xa,
    is_long=True,
)
hyp1f1_slope_b: Smooth = _special(
    "hyp1f1_slope_b",
    _refused("hyp1f1", "a"),
    _refused("hyp1f1", "b"),
    _1f1_xb,
    is_long=True,
)


def _next_2f1(out: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    factor = div(mul(a, b), c)
    return mul(factor, hyp2f1(add(a, 1), add(b, 1), add(c, 1), x))


hyp2f1: Smooth = _special(
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
    return [_refused("hyp2f1", argument) for argument in "abc"]


hyp2f1_slope_a: Smooth = _special(
    "hyp2f1_slope_a", *_2f1_refused(), _2f1_xa, is_long=True
)
hyp2f1_slope_c: Smooth = _special(
    "hyp2f1_slope_c", *_2f1_refused(), _2f1_xc, is_long=True
)

# ---------------------------------------------------------------- complex numbers


def _scipy(name: str) -> Callable[[Any], Any]:
    def function(z: Any) -> Any:
        from scipy import special  # lazy: SciPy is slow to load

        return getattr(special, name)(z)

    return function


# Complex numbers are computed by SciPy, on the host.
wofz: Smooth = Smooth(
    "wofz",
    COMPLEX,
    _scipy("wofz"),
    lambda out, z: add(mul(mul(z, out), -2.0), 2j / math.sqrt(math.pi)),
)
loggamma = Smooth(
    "loggamma", COMPLEX, _scipy("loggamma"), lambda out, z: complex_digamma(z)
)
complex_digamma: Smooth = Smooth(
    "complex_digamma", COMPLEX, _scipy("psi"), _refused("loggamma", "a complex number")
)
