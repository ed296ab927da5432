"""Error functions, the normal distribution's functions, and integrals of their kind.

Receives arrays or scalars, which are promoted to floating point and broadcast; gives
arrays. Values and derivatives keep their relative precision in the tails. Next on the
walk: `integrals.py`.
"""

from __future__ import annotations

import math

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.creation import full_like
from fnx.numpy.operands import ArrayLike, as_array, cast
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import add, mul, neg, select, sub
from fnx.scipy.special.operands import array, arrays


@becomes_native
def erf(x: ArrayLike) -> Array:
    """The error function.

    >>> erf(0.5).item()
    0.5204998850822449
    """
    return ops.erf(array("erf", x=x))


@becomes_native
def erfc(x: ArrayLike) -> Array:
    """1 - erf(x), precise for large x.

    >>> erfc(0.0).item()
    1.0
    """
    return ops.erfc(array("erfc", x=x))


@becomes_native
def erfinv(x: ArrayLike) -> Array:
    """The inverse of erf on (-1, 1).

    >>> erfinv(0.0).item()
    0.0
    """
    return ops.erf_inv(array("erfinv", x=x))


@becomes_native
def erfcx(x: ArrayLike) -> Array:
    """exp(x²) erfc(x), which falls off as 1/x only.

    >>> erfcx(0.0).item()
    1.0
    """
    return special.erfcx(array("erfcx", x=x))


@becomes_native
def dawsn(x: ArrayLike) -> Array:
    """Dawson's integral: exp(-x²) times the integral of exp(t²) over 0 < t < x.

    >>> dawsn(0.5).item()
    0.42443639039993286
    """
    return special.dawsn_derivative(array("dawsn", x=x), order=0)


@becomes_native
def wofz(z: ArrayLike) -> Array:
    """The Faddeeva function exp(-z²) erfc(-iz), complex.

    It is computed on the host, by SciPy.

    >>> wofz(0.0).item()
    (1+0j)
    """
    value = as_array("wofz", z)
    if not dtypes.is_complex(value.dtype):
        real = array("wofz", z=value)
        value = cast(real, dtypes.complex_dtype(real.dtype), real.weak_type)
    return special.wofz(value)


# ---------------------------------------------------------------- normal distribution


@becomes_native
def ndtr(x: ArrayLike) -> Array:
    """The distribution function of the normal distribution, precise in the left tail.

    >>> ndtr(0.0).item()
    0.5
    """
    return special.ndtr(array("ndtr", x=x))


@becomes_native
def ndtri(p: ArrayLike) -> Array:
    """The inverse of `ndtr`: the quantile at p; infinite at 0 and 1, else NaN.

    >>> ndtri(0.5).item()
    0.0
    """
    return special.ndtri(array("ndtri", p=p))


@becomes_native
def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """log(ndtr(x)), precise in both tails, and so are its derivatives.

    Nothing is cut off if `series_order` is 3, the default. Another one, from 0 to 30,
    is that of the asymptotic series which JAX takes far on the left: below -10, or -20
    for float64. Others raise.

    >>> log_ndtr(0.0).item()
    -0.6931471824645996
    """
    if series_order.__class__ is not int or not 0 <= series_order <= 30:
        raise errors.OptionError(
            "log_ndtr: series_order must be a Python integer from 0 to 30, got "
            f"{series_order!r}"
        )
    value = array("log_ndtr", x=x)
    exact = log_of_ndtr(value)
    if series_order == _NOTHING_CUT:
        return exact
    far = ops.lt(value, -20 if value.dtype == dtypes.float64 else -10)
    safe = select(far, value, -20)
    return select(far, _far_series(safe, series_order), exact)


_NOTHING_CUT = 3


def _far_series(x: Array, order: int) -> Array:
    """log(ndtr(x)) far on the left: of 1 - 1/x² + 3/x⁴ - 15/x⁶ …, `order` terms."""
    terms = [1.0]
    for n in range(1, order + 1):
        terms.append(-terms[-1] * (2 * n - 1))
    step, total = ops.div(1, ops.square(x)), full_like(x, 0)
    for term in terms[::-1]:
        total = add(mul(total, step), term)
    bell = mul(ops.square(x), -0.5)
    return sub(add(bell, ops.log(total)), add(ops.log(neg(x)), _LOG_ROOT_2PI))


_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


def log_of_ndtr(value: Array) -> Array:
    """log(ndtr(x)): that of the scaled erfc on the left, log1p on the right."""
    left = ops.lt(value, -1)
    x = select(left, value, -1)
    scaled = special.erfcx(mul(x, -math.sqrt(0.5)))
    low = sub(ops.log(mul(scaled, 0.5)), mul(ops.square(x), 0.5))
    high = ops.log1p(neg(special.ndtr(neg(select(left, -1, value)))))
    return select(left, low, high)


@becomes_native
def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Owen's T: the integral of exp(-h²(1 + t²)/2) / (1 + t²) over 0 < t < a, over 2π.

    >>> owens_t(0.0, 1.0).item()
    0.125
    """
    return special.owens_t(*arrays("owens_t", h=h, a=a))
