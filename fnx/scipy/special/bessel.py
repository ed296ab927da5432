"""Bessel functions, spherical harmonics, hypergeometric functions.

Receives arrays or scalars, which are promoted to floating point and broadcast; gives
arrays. Next on the walk: `logarithms.py`.
"""

from __future__ import annotations

from fnx import errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.creation import full_like
from fnx.numpy.joining import stack
from fnx.numpy.operands import ArrayLike, as_array
from fnx.ops import elementwise as ops
from fnx.ops import special, special_integrals
from fnx.ops.arithmetic import add, mul, select, sub
from fnx.ops.parts import complex_
from fnx.scipy.special.operands import array, arrays


@becomes_native
def i0(x: ArrayLike) -> Array:
    """The modified Bessel function of the first kind of order 0.

    >>> i0(0.0).item()
    1.0
    """
    return special.bessel_i(array("i0", x=x), order=0)


@becomes_native
def i1(x: ArrayLike) -> Array:
    """The modified Bessel function of the first kind of order 1.

    >>> i1(0.0).item()
    0.0
    """
    return special.bessel_i(array("i1", x=x), order=1)


@becomes_native
def i0e(x: ArrayLike) -> Array:
    """exp(-|x|) i0(x), without overflow.

    >>> i0e(0.0).item()
    1.0
    """
    return special.bessel_i0e(array("i0e", x=x))


@becomes_native
def i1e(x: ArrayLike) -> Array:
    """exp(-|x|) i1(x), without overflow.

    >>> i1e(0.0).item()
    0.0
    """
    return special.bessel_i1e(array("i1e", x=x))


@becomes_native
def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """The Bessel functions J_0(z) … J_v(z) along a new first axis, for an int v >= 0.

    As many terms are taken as z needs, if `n_iter` is 50, the default; with another
    `n_iter` the recurrence begins at the term of that number, as in JAX: it needs to be
    larger than z, and large enough for the precision.

    >>> bessel_jn(0.0, v=1).tolist()
    [1.0, 0.0]
    """
    value = array("bessel_jn", z=z)
    if v.__class__ is not int or v < 0:
        raise errors.OptionError(
            f"bessel_jn: v must be a Python integer from 0 on, got {v!r}"
        )
    if n_iter.__class__ is not int or n_iter < 1:
        raise errors.OptionError(
            f"bessel_jn: n_iter must be a positive Python integer, got {n_iter!r}"
        )
    if n_iter == _ALL_TERMS:
        return stack([special.bessel_j(value, order=n) for n in range(v + 1)])
    if n_iter < v:
        raise errors.OptionError(f"bessel_jn: n_iter={n_iter} is less than v={v}")
    return stack(_downwards(value, v, n_iter))


# Stands for as many terms as are needed.
_ALL_TERMS = 50


# Where the recurrence has larger values, it goes on with smaller ones in proportion.
_LARGE = 1e15


def _downwards(z: Array, v: int, first: int) -> list[Array]:
    """J_0(z) … J_v(z) by J_(k-1) = 2k/z J_k - J_(k+1) from k = `first` on (Miller).

    The values are in proportion; J_0 + 2 J_2 + 2 J_4 + … is 1. Next to 0 they would
    overflow, and are computed as by `bessel_j`.
    """
    tiny = ops.lt(ops.abs(z), 1e-18)
    safe = select(tiny, 1, z)
    nothing = full_like(safe, 0)
    # The last two values, the sum, and what is wanted.
    kept = [nothing, full_like(safe, 1), nothing, *[nothing] * (v + 1)]
    for k in range(first, -1, -1):
        after, here, total, *found = kept
        if k <= v:
            found[k] = here
        if k % 2 == 0:
            total = add(total, mul(here, 2.0 if k else 1.0))
        before = sub(mul(ops.div(here, safe), 2.0 * k), after)
        fits = ops.lt(ops.abs(before), _LARGE)
        scale = select(fits, full_like(safe, 1), 1 / _LARGE)
        kept = [mul(x, scale) for x in (here, before, total, *found)]
    _, _, total, *found = kept
    return [
        select(tiny, special.bessel_j(z, order=n), ops.div(x, total))
        for n, x in enumerate(found)
    ]


@becomes_native
def sph_harm_y(
    n: ArrayLike,
    m: ArrayLike,
    theta: ArrayLike,
    phi: ArrayLike,
    diff_n: int | None = None,
    n_max: int | None = None,
) -> Array:
    """The spherical harmonics of degree n and order m, complex; 0 for |m| > n.

    `theta` is the polar angle from 0 to π, `phi` the other one; the arguments are
    broadcast. Degrees above `n_max`, if it is given, are taken for `n_max`.

    >>> round(abs(sph_harm_y(0, 0, 0.5, 0.5).item()), 4)
    0.2821
    """
    if diff_n is not None:
        raise errors.OptionError(
            "sph_harm_y: diff_n is not supported; use fnx.jvp for derivatives"
        )
    degree = as_array("sph_harm_y", n)
    if n_max is not None:
        degree = ops.min(degree, n_max)
    numbers = arrays("sph_harm_y", n=degree, m=m, theta=theta, phi=phi)
    angle = mul(numbers[1], numbers[3])
    value = special.legendre_on_sphere(*numbers[:3])
    return complex_(mul(value, ops.cos(angle)), mul(value, ops.sin(angle)))


@becomes_native
def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Kummer's function 1F1(a; b; x).

    It has first derivatives in a and b, and all in x.

    >>> hyp1f1(1.0, 1.0, 0.0).item()
    1.0
    """
    return special_integrals.hyp1f1(*arrays("hyp1f1", a=a, b=b, x=x))


@becomes_native
def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike) -> Array:
    """Gauss' function 2F1(a, b; c; x) for x <= 1; infinite beyond.

    It has first derivatives in a, b and c, and all in x.

    >>> hyp2f1(1.0, 1.0, 2.0, 0.0).item()
    1.0
    """
    return special_integrals.hyp2f1(*arrays("hyp2f1", a=a, b=b, c=c, x=x))
