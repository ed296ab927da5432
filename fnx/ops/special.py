"""Special functions as primitives, a row each, with derivatives in all arguments.

Gamma, beta, zeta, Bessel, error functions and their kin. They compute in float64
whatever the dtype is, and round the result once. Where a derivative written with the
function itself would cancel, it is a member of a family of its own with an integer
`order` (`bessel_moment`, `erfcx_moment`, `dawsn_derivative`, …).
Receives arrays of equal shapes and dtypes, gives one of the same shape. Next on the
walk: `special_integrals.py`, which has the integrals and hypergeometric functions.
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
from fnx.ops.elementwise import div, erf, log, log1p, lt, max, sign, sqrt
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


def special_function(
    name: str,
    *partials: Partial | None,
    row: str = "",
    bounded: bool = False,
    is_long: bool = False,
) -> Smooth:
    """A function with a row of that name (or another), and its partial derivatives."""
    row = row or name
    made = Smooth(
        name, FLOAT, _numpy(row), *partials, bounded=bounded, scalar=_scalar(row)
    )
    made.compiled_from = _MANY_OF_LONG if is_long else _MANY
    return made


def refused(name: str, argument: str) -> Partial:
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
polygamma: Smooth = special_function(
    "polygamma",
    refused("polygamma", "n"),
    lambda out, n, x: polygamma(add(n, 1), x),
)
gamma = special_function("gamma", lambda out, x: mul(out, digamma(x)))
gamma_sign = Stepwise(
    "gamma_sign", FLOAT, _numpy("gamma_sign"), scalar=_scalar("gamma_sign")
)
# digamma(m + q) - digamma(m)
digamma_difference = special_function(
    "digamma_difference",
    lambda out, m, q: sub(polygamma(1.0, add(m, q)), polygamma(1.0, m)),
    lambda out, m, q: polygamma(1.0, add(m, q)),
)


def _digamma_step(m: Any, q: Any) -> Any:
    """The difference of digamma, by its own function where both are positive."""
    known = and_(lt(0.0, m), lt(0.0, q))
    near = digamma_difference(select(known, m, 1), select(known, q, 1))
    return select(known, near, sub(digamma(add(m, q)), digamma(m)))


betaln = special_function(
    "betaln",
    lambda out, a, b: neg(_digamma_step(a, b)),
    lambda out, a, b: neg(_digamma_step(b, a)),
)
beta = special_function(
    "beta",
    lambda out, a, b: neg(mul(out, _digamma_step(a, b))),
    lambda out, a, b: neg(mul(out, _digamma_step(b, a))),
)
combinations = special_function(
    "combinations",
    lambda out, n, k: mul(out, _digamma_step(add(sub(n, k), 1), k)),
    lambda out, n, k: mul(out, sub(digamma(add(sub(n, k), 1)), digamma(add(k, 1)))),
)
poch = special_function(
    "poch",
    lambda out, z, m: mul(out, _digamma_step(z, m)),
    lambda out, z, m: mul(out, digamma(add(z, m))),
)
# lgamma(z + m) - lgamma(z)
lgamma_difference = special_function(
    "lgamma_difference",
    lambda out, z, m: _digamma_step(z, m),
    lambda out, z, m: digamma(add(z, m)),
)


def _log_slope(a: Any, x: Any) -> Any:
    """The derivative of log(gamma_pdf) in a."""
    return sub(log(x), digamma(a))


igamma = special_function(
    "igamma",
    lambda out, a, x: igamma_grad_a(a, x),
    lambda out, a, x: gamma_pdf(a, x),
    is_long=True,
)
igammac = special_function(
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
gamma_pdf: Smooth = special_function(
    "gamma_pdf",
    lambda out, a, x: mul_strong_zero(_log_slope(a, x), out),
    _gamma_pdf_x,
)
igamma_grad_a: Smooth = special_function(
    "igamma_grad_a",
    lambda out, a, x: igamma_grad_aa(a, x),
    lambda out, a, x: mul_strong_zero(_log_slope(a, x), gamma_pdf(a, x)),
    is_long=True,
)


def _pdf_aa(out: Any, a: Any, x: Any) -> Any:
    bend = sub(squared(_log_slope(a, x)), polygamma(1.0, a))
    return mul_strong_zero(bend, gamma_pdf(a, x))


igamma_grad_aa: Smooth = special_function(
    "igamma_grad_aa",
    refused("the incomplete gamma function", "a"),
    _pdf_aa,
    is_long=True,
)


def _sample_a(out: Any, a: Any, x: Any) -> Any:
    return neg(add(igamma_ratio_aa(a, x), mul(out, _log_slope(a, x))))


def _sample_x(out: Any, a: Any, x: Any) -> Any:
    rise = sub(div(sub(a, 1), x), 1)
    return neg(add(_log_slope(a, x), mul(out, rise)))


random_gamma_grad = special_function(
    "random_gamma_grad", _sample_a, _sample_x, is_long=True
)
igamma_ratio_aa = special_function(
    "igamma_ratio_aa",
    refused("random_gamma_grad", "a"),
    lambda out, a, x: sub(
        sub(squared(_log_slope(a, x)), polygamma(1.0, a)),
        mul(out, sub(div(sub(a, 1), x), 1)),
    ),
    is_long=True,
)


def _entropy_slope(out: Any, mu: Any, order: int) -> Any:
    if order == 2:
        refused("poisson.entropy", "mu")()
    return poisson_entropy(mu, order=order + 1)


# the derivative of some order of the entropy of Poisson's distribution
poisson_entropy: Smooth = special_function(
    "poisson_entropy", _entropy_slope, is_long=True
)


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
            refusal = refused("the incomplete beta function", "ab"[position])
            refusal(None, a, b, x)
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


betainc = special_function(
    "betainc",
    lambda out, a, b, x: betainc_derivative(a, b, x, i=1, j=0),
    lambda out, a, b, x: betainc_derivative(a, b, x, i=0, j=1),
    lambda out, a, b, x: beta_pdf(a, b, x),
    is_long=True,
)
betainc_derivative: _BetaDerivative = _BetaDerivative()
# x^(a-1) (1-x)^(b-1) / B(a, b)
beta_pdf: Smooth = special_function(
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
                refused("zeta", "x")(None, s, q)
            total = scale(self(s, q, order=order + 1), ts)
        if tq is not None:
            t = add(s, 1)
            lower = zeta(t, q) if order == 1 else self(t, q, order=order - 1)
            slope = add(mul(s, self(t, q, order=order)), mul(lower, float(order)))
            term = scale(neg(slope), tq)
            total = term if total is None else add(total, term)
        return output, total


zeta: Smooth = special_function(
    "zeta",
    lambda out, s, q: zeta_derivative(s, q, order=1),
    lambda out, s, q: neg(mul(s, zeta(add(s, 1), q))),
)
zeta_derivative: _Zeta = _Zeta()

# ---------------------------------------------------------------- Bessel

# I_n(x) for a constant order n >= 0
bessel_i: Smooth = Smooth(
    "bessel_i",
    FLOAT,
    formulas.bessel_i,
    lambda out, x, order: mul(
        add(bessel_i(x, order=abs(order - 1)), bessel_i(x, order=order + 1)),
        0.5,
    ),
    scalar=_scalar("bessel_i"),
)
bessel_i.compiled_from = _MANY
# J_n(x) for a constant order n >= 0
bessel_j: Smooth = special_function(
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
legendre_on_sphere: Smooth = special_function(
    "legendre_on_sphere",
    refused("sph_harm_y", "n"),
    refused("sph_harm_y", "m"),
    _sphere_slope,
    is_long=True,
)
# 1/pi integral (1 - cos t)^order exp(-|x| (1 - cos t)) dt over 0 < t < pi
bessel_moment: Smooth = special_function(
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
            return formulas.bessel_i(x, order, "e")

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
bell = special_function("bell", lambda out, x: neg(mul_strong_zero(x, out)))
ndtr = special_function(
    "ndtr", lambda out, x: mul(bell(x), 1 / _ROOT_2PI), bounded=True
)
ndtri = special_function("ndtri", lambda out, p: div(_ROOT_2PI, bell(out)))
erfcx = special_function("erfcx", lambda out, x: mul(erfcx_moment(x, order=1), -2.0))
# 2/sqrt(pi) integral t^order exp(-t^2 - 2xt) dt over t > 0
erfcx_moment: Smooth = special_function(
    "erfcx_moment",
    lambda out, x, order: mul(erfcx_moment(x, order=order + 1), -2.0),
    is_long=True,
)
dawsn_derivative: Smooth = special_function(
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


owens_t = special_function(
    "owens_t",
    _owens_h,
    _owens_a,
    is_long=True,
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
    "complex_digamma", COMPLEX, _scipy("psi"), refused("loggamma", "a complex number")
)
