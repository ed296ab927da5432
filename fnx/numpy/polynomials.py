"""Polynomials as vectors of coefficients, the highest power first, and fits of them.

Receives vectors, gives vectors. Lengths depend on lengths alone, unless leading zeros
are asked to go, for which values must be known. Loaded when it is first used. Next on
the walk: `fitting.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.loops import scan
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import on_numpy, ufuncs
from fnx.numpy.creation import arange, asarray, zeros
from fnx.numpy.indexing import get
from fnx.numpy.joining import concatenate
from fnx.numpy.operands import (
    ArrayLike,
    as_array,
    cast,
    common_shape,
    promoted,
    typed,
)
from fnx.numpy.reductions import prod
from fnx.numpy.shaping import atleast_1d, broadcast_to, expand_dims
from fnx.numpy.statistics import convolve
from fnx.numpy.updating import At
from fnx.ops.pieces import padded_along


@at_once(on_numpy.polyadd)
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The sum of two polynomials.

    >>> polyadd(np.array([1, 2]), np.array([5, 0, 0])).tolist()
    [5, 1, 2]
    """
    x, y = _aligned("polyadd", a1, a2)
    return ufuncs.add(x, y)


@at_once(on_numpy.polysub)
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The difference of two polynomials.

    >>> polysub(np.array([1, 2]), np.array([5, 0, 0])).tolist()
    [-5, 1, 2]
    """
    x, y = _aligned("polysub", a1, a2)
    return ufuncs.subtract(x, y)


@becomes_native
def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials; leading zeros of known factors may be left out.

    >>> polymul(np.array([1, 2]), np.array([1, -2])).tolist()
    [1, 0, -4]
    """
    x, y = _pair("polymul", a1, a2)
    if trim_leading_zeros:
        x, y = trimmed("polymul", x), trimmed("polymul", y)
    if not (x.size and y.size):
        return zeros((0,), x.dtype)
    return convolve(x, y)


@becomes_native
def polydiv(
    u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False
) -> tuple[Array, Array]:
    """Quotient and remainder of two polynomials; v[0] is not 0.

    The remainder is as long as u, unless its leading zeros (of known values) are left
    out.

    >>> [x.tolist() for x in polydiv(np.array([1.0, 5.0]), np.array([2.0, 1.0]))]
    [[0.5], [0.0, 4.5]]
    """
    x, y = _pair("polydiv", u, v, inexact=True)
    if not y.size:
        raise errors.ShapeError("polydiv: the divisor has no coefficients")
    steps = max(x.size - y.size + 1, 0)
    rest, factors = x, []
    for i in range(steps):
        factor = ufuncs.divide(get(rest, i), get(y, 0))
        factors.append(expand_dims(factor, 0))
        place = slice(i, i + y.size)
        rest = At(rest)[place].add(ufuncs.negative(ufuncs.multiply(factor, y)))
    quotient = concatenate(factors) if factors else zeros((1,), x.dtype)
    if trim_leading_zeros:
        # One coefficient stays, also of what is 0.
        rest = concatenate([trimmed("polydiv", get(rest, slice(None, -1))), rest[-1:]])
    return quotient, rest


@becomes_native
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """The m-th derivative of a polynomial.

    >>> polyder(np.array([1.0, 1.0, 1.0])).tolist()
    [2.0, 1.0]
    """
    x = coefficients_of("polyder", p)
    _check_order("polyder", m)
    if not m:
        return x
    kept = max(x.size - m, 0)
    powers = arange(x.size - 1, x.size - 1 - kept, -1)
    falling = ufuncs.subtract(expand_dims(powers, 1), arange(m))
    if not dtypes.is_bool(x.dtype):  # which are numbers here
        falling = cast(falling, x.dtype)
    return ufuncs.multiply(get(x, slice(kept)), prod(falling, 1))


@becomes_native
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    """The m-th antiderivative of a polynomial, with the constants k (0 by default).

    `k` is a number, or one for each integration, the first first.

    >>> polyint(np.array([2.0, 1.0])).tolist()
    [1.0, 1.0, 0.0]
    """
    _check_order("polyint", m)
    x, constants = promoted(
        "polyint", (p, 0 if k is None else asarray(k)), inexact=True
    )[0]
    _, dtype, _ = promoted("polyint", (x, constants), inexact=True)
    x = atleast_1d(typed("polyint", x, dtype))
    each = atleast_1d(typed("polyint", constants, dtype))
    if each.size not in (1, m) and m:
        raise errors.ShapeError(
            f"polyint: k has {each.size} constants, m={m} needs {m}"
        )
    each = broadcast_to(each, (m,))
    for i in range(m):
        powers = cast(arange(x.size, 0, -1), dtype)
        x = concatenate([ufuncs.divide(x, powers), get(each, slice(i, i + 1))])
    return x


@becomes_native
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """The value at x of the polynomial with coefficients p, by Horner's scheme.

    `p` may have more axes, the first is that of the coefficients. Up to `unroll` of
    them are written out one after the other, more are a loop, unrolled as often.

    >>> polyval(np.array([1.0, 2.0, 3.0]), 2.0).item()
    11.0
    """
    values, dtype, _ = promoted("polyval", (p, x))
    coefficients, at = [typed("polyval", value, dtype) for value in values]
    coefficients = atleast_1d(coefficients)
    shape = (
        common_shape("polyval", [get(coefficients, 0), at])
        if coefficients.size
        else at.shape
    )
    value = broadcast_to(zeros((), dtype), shape)

    def step(carry: Array, coefficient: Array) -> tuple[Array, None]:
        return ufuncs.add(ufuncs.multiply(carry, at), coefficient), None

    count = coefficients.shape[0]
    if count > unroll:
        return scan(step, value, coefficients, unroll=unroll)[0]
    for i in range(count):
        value = step(value, get(coefficients, i))[0]
    return value


# ---------------------------------------------------------------- arguments


def _check_order(function: str, m: int) -> None:
    if m < 0:
        raise errors.OptionError(f"{function}: the order m={m} is negative")


def coefficients_of(function: str, p: ArrayLike) -> Array:
    """A polynomial as a vector."""
    x = atleast_1d(as_array(function, p))
    if x.ndim != 1:
        raise errors.ShapeError(f"{function} takes a vector, got {x.type}")
    return x


def _pair(
    function: str, a1: ArrayLike, a2: ArrayLike, inexact: bool = False
) -> list[Array]:
    values, dtype, _ = promoted(function, (a1, a2), inexact=inexact)
    return [coefficients_of(function, typed(function, x, dtype)) for x in values]


def _aligned(function: str, a1: ArrayLike, a2: ArrayLike) -> list[Array]:
    """Two polynomials as vectors of one length, 0 in front."""
    sides = _pair(function, a1, a2)
    size = max([x.size for x in sides])
    return [padded_along(x, 0, size - x.size, 0) for x in sides]


def known(function: str, x: Array) -> np.ndarray[Any, Any]:
    """The values, by which the number of zeros is known."""
    try:
        return np.asarray(x)
    except errors.TracerValueError as error:
        raise errors.TracerValueError(
            f"{function}: how many zeros there are depends on the values: {error}"
        ) from None


def trimmed(function: str, x: Array) -> Array:
    """Without leading zeros."""
    places = np.flatnonzero(known(function, x))
    return get(x, slice(places[0] if places.size else x.size, None))
