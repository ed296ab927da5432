"""Special functions under the names of `jax.lax`: gamma, beta, zeta, Bessel.

As all of `fnx.lax` they do not promote: floating-point arrays of one dtype and shape,
beside scalars. Receives arrays and scalars, gives what the primitive gives. Next on the
walk: `structure.py`.
"""

from __future__ import annotations

from fnx.core.array import Array
from fnx.lax.elementwise import operands
from fnx.numpy.operands import ArrayLike, as_array
from fnx.ops import special


def lgamma(x: ArrayLike) -> Array:
    """Log |gamma(x)|.

    >>> lgamma(1.0).item()
    0.0
    """
    return special.lgamma(as_array("lgamma", x))


def digamma(x: ArrayLike) -> Array:
    """The derivative of `lgamma`.

    >>> digamma(1.0).item()
    -0.5772156715393066
    """
    return special.digamma(as_array("digamma", x))


def polygamma(m: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of order m of `digamma`; m is a whole number in floating point.

    >>> polygamma(1.0, 1.0).item()
    1.644934058189392
    """
    return special.polygamma(*operands("polygamma", m, x))


def igamma(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized lower incomplete gamma function.

    >>> igamma(1.0, 0.0).item()
    0.0
    """
    return special.igamma(*operands("igamma", a, x))


def igammac(a: ArrayLike, x: ArrayLike) -> Array:
    """The regularized upper incomplete gamma function.

    >>> igammac(1.0, 0.0).item()
    1.0
    """
    return special.igammac(*operands("igammac", a, x))


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of `igamma` in a.

    >>> igamma_grad_a(1.0, 0.0).item()
    0.0
    """
    return special.igamma_grad_a(*operands("igamma_grad_a", a, x))


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Array:
    """The derivative in a of a sample x of the gamma distribution of that parameter.

    >>> round(random_gamma_grad(1.0, 1.0).item(), 4)
    1.1736
    """
    return special.random_gamma_grad(*operands("random_gamma_grad", a, x))


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """The regularized incomplete beta function.

    >>> betainc(1.0, 2.0, 0.5).item()
    0.75
    """
    return special.betainc(*operands("betainc", a, b, x))


def zeta(x: ArrayLike, q: ArrayLike) -> Array:
    """Hurwitz' zeta function.

    >>> zeta(2.0, 1.0).item()
    1.644934058189392
    """
    return special.zeta(*operands("zeta", x, q))


def bessel_i0e(x: ArrayLike) -> Array:
    """exp(-|x|) times the modified Bessel function of order 0.

    >>> bessel_i0e(0.0).item()
    1.0
    """
    return special.bessel_i0e(as_array("bessel_i0e", x))


def bessel_i1e(x: ArrayLike) -> Array:
    """exp(-|x|) times the modified Bessel function of order 1.

    >>> bessel_i1e(0.0).item()
    0.0
    """
    return special.bessel_i1e(as_array("bessel_i1e", x))
