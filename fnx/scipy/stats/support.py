"""What the distributions share: arguments, supports, and logarithms of differences.

Outside of a support a density is 0. There its formula is evaluated at a point inside,
so that no derivative of it is NaN, and the result chosen by the support. Next on the
walk: `norm.py`, then the other distributions by their names.
"""

from __future__ import annotations

import math
from typing import Any

from fnx import dtypes
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike, cast
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, eq, mul, mul_strong_zero, neg, select, sub
from fnx.ops.parts import and_
from fnx.ops.special_integrals import expm1_ratio
from fnx.scipy.special.operands import arrays


def standard(
    function: str, x: ArrayLike, loc: ArrayLike, scale: ArrayLike, **parameters: Any
) -> list[Array]:
    """(x - loc) / scale, the scale and the parameters: of one dtype, broadcast.

    NaN where the scale is not positive: there is no such distribution.
    """
    x, loc, scale, *rest = arrays(function, x=x, loc=loc, scale=scale, **parameters)
    z = select(ops.gt(scale, 0), ops.div(sub(x, loc), scale), math.nan)
    return [z, scale, *rest]


def known(z: Array, *parameters: Array) -> Array:
    """Z, but NaN where one of the parameters is not positive."""
    for parameter in parameters:
        z = select(ops.gt(parameter, 0), z, math.nan)
    return z


def shifted(
    function: str, k: ArrayLike, loc: ArrayLike, **parameters: Any
) -> list[Array]:
    """K - loc and the parameters: of one dtype, broadcast."""
    k, loc, *rest = arrays(function, k=k, loc=loc, **parameters)
    return [sub(k, loc), *rest]


def within(inside: Any, value: Any, outside: float) -> Any:
    """The value inside of the support, else a number; NaN stays."""
    return select(inside, value, select(ops.ne(value, value), value, outside))


def log_times(x: Any, log: Any) -> Any:
    """X times a logarithm, 0 where x is 0: with a strong zero, in derivatives too."""
    return mul_strong_zero(log, x)


def log1m_exp(t: Any) -> Any:
    """log(1 - exp(-t)) for t >= 0, precise for small and for large t."""
    small = ops.lt(t, math.log(2))
    near = ops.log(neg(ops.expm1(neg(select(small, t, 0.5)))))
    far = ops.log1p(neg(ops.exp(neg(select(small, 1, t)))))
    return select(small, near, far)


def log1m_exp_exp(w: Any) -> Any:
    """log(1 - exp(-exp(w))), where exp(w) may vanish."""
    low = ops.lt(w, -1)
    t = ops.exp(select(low, w, -1))
    near = add(w, ops.log(expm1_ratio(neg(t), order=0)))
    return select(low, near, log1m_exp(ops.exp(select(low, 0, w))))


def log_of(share: Any, rest: Any) -> Any:
    """The logarithm of a probability, given that of its complement: precise near 1."""
    low = ops.lt(share, 0.5)
    near = ops.log1p(neg(select(low, 0.5, rest)))
    return select(low, ops.log(select(low, share, 0.5)), near)


def log_of_shares(share: Any, rest: Any, *xs: Any) -> Any:
    """The logarithm of share(*xs), given that of its complement, computed in float64.

    A probability that float32 cannot hold has a logarithm that it can.
    """
    dtype, weak = xs[0].dtype, xs[0].weak_type
    wide = [cast(x, dtypes.float64) for x in xs]
    return cast(log_of(share(*wide), rest(*wide)), dtype, weak)


def log_of_density(density: Any, direct: Any) -> Any:
    """The logarithm of a density, and the formula for it where that underflows.

    The densities of `fnx.ops.special` do not cancel, as sums of large logarithms do.
    """
    least = 1e-300 if density.dtype == dtypes.float64 else 1e-30
    if density.dtype.itemsize == 2:
        least = 1e-4
    normal = and_(ops.gt(density, least), ops.lt(density, math.inf))
    return select(normal, ops.log(select(normal, density, 1)), direct)


def is_whole(k: Any) -> Any:
    """Whether k is an integer."""
    return eq(ops.floor(k), k)


def log1p_square(z: Any) -> Any:
    """log(1 + z^2), without an overflow of the square."""
    size = ops.abs(z)
    large = ops.gt(size, 1)
    near = ops.log1p(ops.square(select(large, 0, z)))
    far = select(large, size, 1)
    inverse = ops.log1p(ops.square(ops.div(1, far)))
    return select(large, add(mul(ops.log(far), 2), inverse), near)


def square_of_half_sine(x: Any) -> Any:
    """1 - cos(x), as 2 sin(x/2)^2."""
    return mul(ops.square(ops.sin(mul(x, 0.5))), 2)
