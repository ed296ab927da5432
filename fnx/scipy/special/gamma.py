"""Gamma, beta and zeta functions, and counting by them.

Receives arrays or scalars, which are promoted to floating point and broadcast; gives
arrays. Everything is differentiable, `betainc` and `gammainc` in all their arguments.
Next on the walk: `error.py`.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike, as_array
from fnx.ops import elementwise as ops
from fnx.ops import special
from fnx.ops.arithmetic import add, eq, mul, select, sub
from fnx.ops.parts import and_
from fnx.runtime.array import from_numpy
from fnx.scipy.special.operands import array, arrays

# ---------------------------------------------------------------- gamma


@becomes_native
def gammaln(x: ArrayLike) -> Array:
    """Log |gamma(x)|, for real numbers.

    >>> gammaln(4.0).item()
    1.7917594909667969
    """
    return special.lgamma(array("gammaln", x=x))


@becomes_native
def gammasgn(x: ArrayLike) -> Array:
    """The sign of gamma(x); that of x at 0, NaN at -1, -2, …

    >>> gammasgn(-0.5).item()
    -1.0
    """
    return special.gamma_sign(array("gammasgn", x=x))


@becomes_native
def loggamma(x: ArrayLike) -> Array:
    """The principal branch of log(gamma(x)); of a negative real number NaN.

    Complex numbers are computed on the host, by SciPy.

    >>> loggamma(4.0).item()
    1.7917594909667969
    """
    value = as_array("loggamma", x)
    if dtypes.is_complex(value.dtype):
        return special.loggamma(value)
    value = array("loggamma", x=value)
    return select(ops.lt(value, 0), math.nan, special.lgamma(value))


@becomes_native
def gamma(x: ArrayLike) -> Array:
    """The gamma function; of a complex number exp(loggamma(x)).

    >>> gamma(5.0).item()
    24.0
    """
    value = as_array("gamma", x)
    if dtypes.is_complex(value.dtype):
        return ops.exp(special.loggamma(value))
    return special.gamma(array("gamma", x=value))


@becomes_native
def digamma(x: ArrayLike) -> Array:
    """The derivative of log(gamma(x)).

    >>> digamma(1.0).item()
    -0.5772156715393066
    """
    return special.digamma(array("digamma", x=x))


@becomes_native
def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """The derivative of order n of digamma, for whole n >= 0.

    >>> polygamma(1, 1.0).item()
    1.644934058189392
    """
    return special.polygamma(*arrays("polygamma", n=n, x=x))


@becomes_native
def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """Pochhammer's symbol gamma(z + m) / gamma(z).

    >>> poch(3.0, 2.0).item()
    12.0
    """
    return special.poch(*arrays("poch", z=z, m=m))


@becomes_native
def gammainc(a: ArrayLike, x: ArrayLike) -> Array:
    """P(a, x), the regularized lower incomplete gamma function, for a, x >= 0.

    Small values keep their relative precision; it can be derived twice in a.

    >>> gammainc(1.0, 1.0).item()
    0.6321205496788025
    """
    return special.igamma(*arrays("gammainc", a=a, x=x))


@becomes_native
def gammaincc(a: ArrayLike, x: ArrayLike) -> Array:
    """Q(a, x) = 1 - P(a, x), the regularized upper incomplete gamma function.

    >>> gammaincc(1.0, 1.0).item()
    0.3678794503211975
    """
    return special.igammac(*arrays("gammaincc", a=a, x=x))


@becomes_native
def multigammaln(a: ArrayLike, d: int) -> Array:
    """The logarithm of the multivariate gamma function of dimension d, a Python int.

    >>> multigammaln(2.0, 2).item()
    0.451582670211792
    """
    value = array("multigammaln", a=a)
    try:
        dimension = d.__index__()
    except AttributeError:
        raise errors.ArgumentError(
            f"multigammaln: argument 'd' must be a Python integer, got {d!r}"
        ) from None
    total = mul(eq(value, value), 0.0) if dimension == 0 else None
    for i in range(dimension):
        term = special.lgamma(sub(value, i / 2))
        total = term if total is None else add(total, term)
    assert total is not None
    return add(total, dimension * (dimension - 1) / 4 * math.log(math.pi))


# ---------------------------------------------------------------- beta


@becomes_native
def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """Log |B(a, b)|, precise where one argument is far larger than the other.

    >>> betaln(2.0, 3.0).item()
    -2.4849066734313965
    """
    return special.betaln(*arrays("betaln", a=a, b=b))


@becomes_native
def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """The beta function gamma(a) gamma(b) / gamma(a + b).

    >>> beta(1.0, 2.0).item()
    0.5
    """
    return special.beta(*arrays("beta", a=a, b=b))


@becomes_native
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """I_x(a, b), the regularized incomplete beta function, for a, b >= 0, 0 <= x <= 1.

    It has derivatives in a and b too, of first and second order.

    >>> betainc(1.0, 2.0, 0.5).item()
    0.75
    """
    return special.betainc(*arrays("betainc", a=a, b=b, x=x))


# ---------------------------------------------------------------- counting


@becomes_native
def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """n!, which is gamma(n + 1), and 0 for a negative n; in floating point.

    >>> factorial(5).item()
    120.0
    """
    if exact:
        raise errors.OptionError(
            "factorial: exact=True is not supported, as arrays hold no large integers; "
            "leave it out, or use math.factorial"
        )
    value = array("factorial", n=n)
    return select(ops.lt(value, 0), 0, special.gamma(add(value, 1)))


@becomes_native
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """How many ways there are to choose k of N things, in floating point.

    With `repetition`, a thing may be chosen several times. It is 0 unless 0 <= k <= N.

    >>> comb(5, 2).item()
    10.0
    """
    n, k = arrays("comb", N=N, k=k)
    if repetition:
        value = special.combinations(sub(add(n, k), 1), k)
        return select(and_(eq(k, 0), ops.ge(n, 0)), 1, value)
    return special.combinations(n, k)


@becomes_native
def bernoulli(n: int) -> Array:
    """The Bernoulli numbers B_0 … B_n, with B_1 = -1/2; n is a Python integer.

    >>> bernoulli(4)[2].item()
    0.1666666716337204
    """
    try:
        count = n.__index__()
    except AttributeError:
        raise errors.ArgumentError(
            f"bernoulli: argument 'n' must be a Python integer, got {n!r}"
        ) from None
    if count < 0:
        raise errors.OptionError(f"bernoulli: n must not be negative, got {n}")
    numbers: list[Fraction] = []
    for m in range(count + 1):
        total = sum(math.comb(m + 1, k) * b for k, b in enumerate(numbers))
        numbers.append((Fraction(m == 0) - total) / (m + 1))
    dtype = dtypes.default_float()
    return from_numpy(np.array([float(b) for b in numbers], dtype))


# ---------------------------------------------------------------- zeta


@becomes_native
def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Hurwitz' zeta function, the sum of (k + q)^-x over k >= 0, for x > 1.

    Without q it is Riemann's (q = 1). Infinite at x = 1 and where q is 0, -1, …; NaN
    for x < 1. It can be derived twice in x.

    >>> zeta(2.0, 1.0).item()
    1.644934058189392
    """
    return special.zeta(*arrays("zeta", x=x, q=1.0 if q is None else q))
