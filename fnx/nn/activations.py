"""Activation functions: relu, gelu, silu, softplus, elu and their kin.

Receives arrays or scalars of any shape, gives arrays of that shape; integers are
computed in floating point where the function needs it. Values and derivatives keep
their relative precision where a function saturates, and every kink has one derivative:
0 for relu at 0, that of `clip` for the functions made of clips. Next on the walk:
`normalizing.py`.
"""

from __future__ import annotations

import math

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import ufuncs
from fnx.numpy.choices import choose_where
from fnx.numpy.joining import split
from fnx.numpy.operands import ArrayLike, as_array, axis_index, cast, inexact_dtype
from fnx.ops import elementwise as ops
from fnx.ops.arithmetic import add, mul, neg, select

tanh = ufuncs.tanh


def _inexact(function: str, x: ArrayLike) -> Array:
    """The argument in floating point."""
    array = as_array(function, x)
    if dtypes.is_inexact(array.dtype):
        return array
    return cast(array, inexact_dtype(array.dtype, array.weak_type), array.weak_type)


def _number(function: str, x: ArrayLike) -> Array:
    """The argument, booleans as integers."""
    array = as_array(function, x)
    return cast(array, dtypes.default_int()) if dtypes.is_bool(array.dtype) else array


@becomes_native
def identity(x: ArrayLike) -> Array:
    """X itself."""
    return as_array("identity", x)


# ---------------------------------------------------------------- piecewise linear


@becomes_native
def relu(x: ArrayLike) -> Array:
    """max(x, 0); the derivative at 0 is 0, NaN stays NaN.

    >>> import numpy as np
    >>> relu(np.array([-1.0, 0.0, 2.0])).tolist()
    [0.0, 0.0, 2.0]
    """
    array = _number("relu", x)
    return select(ops.le(array, 0), 0, array)


@becomes_native
def relu6(x: ArrayLike) -> Array:
    """min(max(x, 0), 6), in floating point; the derivative is 1 on [0, 6].

    Source: A. Krizhevsky, "Convolutional deep belief networks on CIFAR-10", 2010.

    >>> relu6(7.0).item()
    6.0
    """
    return ops.clamp(0, _inexact("relu6", x), 6)


@becomes_native
def leaky_relu(x: ArrayLike, negative_slope: ArrayLike = 0.01) -> Array:
    """X where it is at least 0, else `negative_slope` x.

    >>> leaky_relu(-2.0, 0.5).item()
    -1.0
    """
    array = _inexact("leaky_relu", x)
    below = ufuncs.multiply(array, negative_slope)
    return choose_where(ops.ge(array, 0), array, below)


@becomes_native
def hard_tanh(x: ArrayLike) -> Array:
    """min(max(x, -1), 1); the derivative is 1 on [-1, 1].

    >>> hard_tanh(3.0).item()
    1.0
    """
    array = _number("hard_tanh", x)
    return ops.clamp(0 if dtypes.is_unsigned(array.dtype) else -1, array, 1)


@becomes_native
def hard_sigmoid(x: ArrayLike) -> Array:
    """relu6(x + 3) / 6.

    >>> hard_sigmoid(0.0).item()
    0.5
    """
    return ops.div(relu6(add(_inexact("hard_sigmoid", x), 3)), 6)


@becomes_native
def hard_silu(x: ArrayLike) -> Array:
    """X times `hard_sigmoid(x)`; also called hard_swish.

    >>> hard_silu(3.0).item()
    3.0
    """
    array = _inexact("hard_silu", x)
    return mul(array, hard_sigmoid(array))


hard_swish = hard_silu


# ---------------------------------------------------------------- sigmoid and softplus


@becomes_native
def sigmoid(x: ArrayLike) -> Array:
    """1 / (1 + exp(-x)).

    >>> sigmoid(0.0).item()
    0.5
    """
    return ops.logistic(_inexact("sigmoid", x))


@becomes_native
def log_sigmoid(x: ArrayLike) -> Array:
    """log(sigmoid(x)), which is -softplus(-x).

    >>> log_sigmoid(1000.0).item()
    -0.0
    """
    return neg(softplus(neg(_inexact("log_sigmoid", x))))


@becomes_native
def softplus(x: ArrayLike) -> Array:
    """log(1 + exp(x)), a smooth relu, without overflow.

    >>> softplus(1000.0).item()
    1000.0
    """
    array = _inexact("softplus", x)
    # One formula on each side, both with all derivatives at 0; neither can overflow.
    positive = ops.gt(array, 0)
    near = ops.log1p(ops.exp(select(positive, neg(array), array)))
    return select(positive, add(array, near), near)


@becomes_native
def squareplus(x: ArrayLike, b: ArrayLike = 4) -> Array:
    """(x + sqrt(x² + b)) / 2, an algebraic softplus.

    Source: J. Barron, "Squareplus: a softplus-like algebraic rectifier", 2021.

    >>> squareplus(0.0).item()
    1.0
    """
    array = _inexact("squareplus", x)
    size = ufuncs.sqrt(ufuncs.add(ops.square(array), b))
    # Below 0 the sum cancels; there it is written as a quotient.
    safe = choose_where(ops.lt(array, 0), ufuncs.subtract(size, array), 1)
    below = ufuncs.divide(ufuncs.multiply(b, 0.5), safe)
    above = ufuncs.multiply(ufuncs.add(array, size), 0.5)
    return choose_where(ops.lt(array, 0), below, above)


@becomes_native
def silu(x: ArrayLike) -> Array:
    """X times sigmoid(x); also called swish.

    Source: S. Elfwing et al., "Sigmoid-weighted linear units", 2017.

    >>> silu(0.0).item()
    0.0
    """
    array = _inexact("silu", x)
    return mul(array, ops.logistic(array))


swish = silu


@becomes_native
def mish(x: ArrayLike) -> Array:
    """X times tanh(softplus(x)).

    Source: D. Misra, "Mish: a self-regularized non-monotonic activation", 2019.
    """
    array = _inexact("mish", x)
    return mul(array, ops.tanh(softplus(array)))


@becomes_native
def soft_sign(x: ArrayLike) -> Array:
    """X / (|x| + 1).

    >>> soft_sign(1.0).item()
    0.5
    """
    array = _inexact("soft_sign", x)
    return ops.div(array, add(ops.abs(array), 1))


@becomes_native
def log1mexp(x: ArrayLike) -> Array:
    """log(1 - exp(-x)) for x > 0, precise at both ends.

    Source: M. Mächler, "Accurately computing log(1 - exp(-|a|))", 2012.

    >>> log1mexp(1e-10).item() < -23
    True
    """
    array = _inexact("log1mexp", x)
    small = ops.lt(array, math.log(2))
    near = ops.log(neg(ops.expm1(neg(select(small, array, 1)))))
    far = ops.log1p(neg(ops.exp(neg(select(small, 1, array)))))
    return select(small, near, far)


# ---------------------------------------------------------------- exponential units


@becomes_native
def elu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """X where it is positive, else alpha (exp(x) - 1).

    Source: D. Clevert et al., "Fast and accurate deep network learning by exponential
    linear units", 2015.

    >>> elu(2.0).item()
    2.0
    """
    array = _inexact("elu", x)
    positive = ops.gt(array, 0)
    below = ufuncs.multiply(alpha, ops.expm1(select(positive, 0, array)))
    return choose_where(positive, array, below)


@becomes_native
def celu(x: ArrayLike, alpha: ArrayLike = 1.0) -> Array:
    """X where it is positive, else alpha (exp(x / alpha) - 1).

    Source: J. Barron, "Continuously differentiable exponential linear units", 2017.

    >>> celu(2.0).item()
    2.0
    """
    array = _inexact("celu", x)
    positive = ops.gt(array, 0)
    scaled = ufuncs.divide(select(positive, 0, array), alpha)
    return choose_where(positive, array, ufuncs.multiply(alpha, ufuncs.expm1(scaled)))


_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


@becomes_native
def selu(x: ArrayLike) -> Array:
    """`elu` with the slope and scale that keep mean 0 and variance 1.

    Source: G. Klambauer et al., "Self-normalizing neural networks", 2017.
    """
    array = _inexact("selu", x)
    positive = ops.gt(array, 0)
    below = mul(ops.expm1(select(positive, 0, array)), _SELU_ALPHA * _SELU_SCALE)
    return select(positive, mul(array, _SELU_SCALE), below)


@becomes_native
def gelu(x: ArrayLike, approximate: bool = True) -> Array:
    """X Φ(x), with the normal distribution function Φ, or its usual approximation.

    Source: D. Hendrycks, K. Gimpel, "Gaussian error linear units", 2016.

    >>> gelu(0.0).item()
    0.0
    """
    array = _inexact("gelu", x)
    if not approximate:
        return mul(array, mul(ops.erfc(mul(array, -math.sqrt(0.5))), 0.5))
    # (1 + tanh(u)) / 2 is the logistic function of 2 u, without its loss in the tail.
    cubic = mul(add(array, mul(ops.integer_pow(array, y=3), 0.044715)), 2.0)
    return mul(array, ops.logistic(mul(cubic, math.sqrt(2 / math.pi))))


@becomes_native
def glu(x: ArrayLike, axis: int = -1) -> Array:
    """The first half along an axis times the sigmoid of the second.

    Source: Y. Dauphin et al., "Language modeling with gated convolutional networks",
    2016.
    """
    array = _inexact("glu", x)
    place = axis_index("glu", axis, array.ndim)
    if array.shape[place] % 2:
        raise errors.ShapeError(
            f"glu: axis {place} of {array.type} must have an even size to be halved"
        )
    value, gate = split(array, 2, place)
    return mul(value, ops.logistic(gate))


@becomes_native
def sparse_plus(x: ArrayLike) -> Array:
    """0 below -1, x above 1, and (x + 1)² / 4 between."""
    array = _inexact("sparse_plus", x)
    between = mul(ops.square(add(array, 1)), 0.25)
    above = select(ops.ge(array, 1), array, between)
    return select(ops.le(array, -1), 0, above)


@becomes_native
def sparse_sigmoid(x: ArrayLike) -> Array:
    """(x + 1) / 2 between 0 and 1: the derivative of `sparse_plus`."""
    array = _inexact("sparse_sigmoid", x)
    return mul(ops.clamp(0, add(array, 1), 2), 0.5)
