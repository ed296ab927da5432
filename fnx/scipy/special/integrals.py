"""Exponential, sine, cosine and Fresnel integrals, the dilogarithm.

Receives arrays or scalars, which are promoted to floating point and broadcast; gives
arrays. Next on the walk: `bessel.py`.
"""

from __future__ import annotations

from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike
from fnx.ops import special_integrals as ops
from fnx.scipy.special.operands import array, arrays


@becomes_native
def exp1(x: ArrayLike) -> Array:
    """E_1(x), the integral of exp(-t) / t over t > x, for x >= 0.

    >>> exp1(1.0).item()
    0.21938394010066986
    """
    return ops.expn(1.0, array("exp1", x=x))


@becomes_native
def expi(x: ArrayLike) -> Array:
    """Ei(x), the principal value of the integral of exp(t) / t over t < x.

    >>> expi(1.0).item()
    1.8951177597045898
    """
    return ops.expi(array("expi", x=x))


@becomes_native
def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """E_n(x), the integral of exp(-xt) / tⁿ over t > 1, for whole n and x >= 0.

    It has a derivative in x alone.

    >>> expn(2, 0.0).item()
    1.0
    """
    return ops.expn(*arrays("expn", n=n, x=x))


@becomes_native
def sici(x: ArrayLike) -> tuple[Array, Array]:
    """The sine integral Si(x) and the cosine integral Ci(x), NaN for negative x.

    >>> sici(1.0)[0].item()
    0.9460830688476562
    """
    value = array("sici", x=x)
    return ops.sine_integral(value), ops.cosine_integral(value)


@becomes_native
def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """Fresnel's S(x) and C(x), the integrals of sin(πt²/2), cos(πt²/2) over 0 < t < x.

    >>> fresnel(0.0)[1].item()
    0.0
    """
    value = array("fresnel", x=x)
    return ops.fresnel_sine(value), ops.fresnel_cosine(value)


@becomes_native
def spence(x: ArrayLike) -> Array:
    """The dilogarithm Li2(1 - x), for x >= 0.

    >>> spence(2.0).item()
    -0.822467029094696
    """
    return ops.spence(array("spence", x=x))
