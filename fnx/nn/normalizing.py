"""Functions over an axis: softmax, log_softmax, logsumexp, standardize, one_hot.

Receives arrays and axes, gives arrays. The shift by the maximum is part of what is
differentiated: so the derivative for a class that takes nearly everything is computed
from the others, and keeps its relative precision. Next on the walk: `attending.py`.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from fnx import dtypes
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import reductions, ufuncs
from fnx.numpy.choices import choose_where
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    axes_tuple,
    axis_index,
    broadcast,
    cast,
    inexact_dtype,
    strong,
    typed,
)
from fnx.numpy.shaping import expand_dims
from fnx.ops import elementwise as ops
from fnx.ops import parts
from fnx.ops.arithmetic import add, eq, mul, select, sub
from fnx.ops.reduce import reduce_max, reduce_sum
from fnx.ops.shape import iota, reshape, restored

Axis = int | tuple[int, ...] | None
Axes = tuple[int, ...]


def _argument(
    function: str, x: ArrayLike, axis: Axis, where: ArrayLike | None
) -> tuple[Array, Axes]:
    """The array in floating point, -inf where elements are left out, and the axes."""
    array = strong(as_array(function, x))
    array = cast(array, inexact_dtype(array.dtype))
    if where is not None:
        array = choose_where(where, array, -math.inf)
    return array, tuple(sorted(axes_tuple(function, axis, array.ndim)))


def _bounded(x: Array) -> Array:
    """X with the largest number for inf: what is infinitely likely shares equally."""
    largest = float(ml_dtypes.finfo(x.dtype).max)
    return select(eq(x, math.inf), largest, x)


def _shifted(x: Array, axes: Axes) -> tuple[Array, Array, Array]:
    """X minus its maximum (if that is finite), the maximum, and what was subtracted."""
    top = reduce_max(x, axes=axes)
    base = select(parts.is_finite(top), top, 0)
    return sub(x, restored(base, axes, x.shape)), top, base


def _log_of_sum(x: Array, shifted: Array, top: Array, axes: Axes) -> Array:
    """log(sum(exp(shifted))), precise also where one term is nearly all of it.

    The terms that are equal to the maximum are exactly 1: of their sum 1 is taken away,
    which is exact, and given back by log1p.
    """
    terms = ops.exp(shifted)
    at_top = eq(x, restored(top, axes, x.shape))
    ones = reduce_sum(select(at_top, terms, 0), axes=axes)
    rest = reduce_sum(select(at_top, 0, terms), axes=axes)
    return ops.log1p(add(rest, sub(ones, 1)))


@becomes_native
def softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """exp(x) divided by its sum over an axis (or axes); 0 where `where` leaves out.

    Infinite elements share the whole equally; of all -inf it is NaN.

    >>> import numpy as np
    >>> softmax(np.zeros(2)).tolist()
    [0.5, 0.5]
    """
    array, axes = _argument("softmax", x, axis, where)
    shifted, _, _ = _shifted(_bounded(array), axes)
    terms = ops.exp(shifted)
    total = reduce_sum(terms, axes=axes)
    out = ops.div(terms, restored(total, axes, array.shape))
    return out if where is None else choose_where(where, out, 0)


@becomes_native
def log_softmax(x: ArrayLike, axis: Axis = -1, where: ArrayLike | None = None) -> Array:
    """log(softmax(x)), precise also for the class that takes nearly everything.

    >>> import numpy as np
    >>> log_softmax(np.array([0.0, -800.0])).tolist()
    [0.0, -800.0]
    """
    array, axes = _argument("log_softmax", x, axis, where)
    bounded = _bounded(array)
    shifted, top, _ = _shifted(bounded, axes)
    total = _log_of_sum(bounded, shifted, top, axes)
    out = sub(shifted, restored(total, axes, array.shape))
    # Beside an infinite element the others have no chance at all.
    infinite = eq(reduce_max(array, axes=axes), math.inf)
    hopeless = parts.and_(
        restored(infinite, axes, array.shape), ops.lt(array, math.inf)
    )
    out = select(hopeless, -math.inf, out)
    return out if where is None else choose_where(where, out, -math.inf)


@becomes_native
def logsumexp(
    a: ArrayLike,
    axis: Axis = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """log(sum(b exp(a))) over axes, without overflow.

    Of all -inf it is -inf, with gradient 0. With `return_sign` it gives the logarithm
    of the size of the sum, and its sign; else negative sums give NaN.

    >>> import numpy as np
    >>> logsumexp(np.array([1000.0, -1000.0])).item()
    1000.0
    """
    if b is not None:
        a, b = _weighted(a, b)
    array, axes = _argument("logsumexp", a, axis, where)
    shifted, top, base = _shifted(array, axes)
    sign = None
    if b is None:
        value = add(base, _log_of_sum(array, shifted, top, axes))
    else:
        weights = broadcast(typed("logsumexp", b, array.dtype), array.shape)
        total = reduce_sum(mul(weights, ops.exp(shifted)), axes=axes)
        sign = ops.sign(total)
        size = ops.abs(total) if return_sign else total
        value = add(base, ops.log(size))
    value = select(eq(top, -math.inf), -math.inf, value)
    if sign is None and return_sign:
        sign = ops.sign(ops.exp(value))
    if keepdims:
        sizes = tuple([1 if i in axes else n for i, n in enumerate(array.shape)])
        value = reshape(value, shape=sizes)
        sign = None if sign is None else reshape(sign, shape=sizes)
    return (value, sign) if return_sign else value


def _weighted(a: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
    """The terms broadcast to each other; -inf where the weight is 0."""
    x, weights = as_array("logsumexp", a), as_array("logsumexp", b, 2)
    nothing = ufuncs.equal(weights, 0)
    x = choose_where(nothing, -math.inf, x)
    return x, weights


@becomes_native
def logmeanexp(
    x: ArrayLike,
    axis: Axis = None,
    where: ArrayLike | None = None,
    keepdims: bool = False,
) -> Array:
    """log(mean(exp(x))) over axes, without overflow.

    >>> import numpy as np
    >>> logmeanexp(np.array([3.0, 3.0])).item()
    3.0
    """
    value = logsumexp(x, axis, keepdims=keepdims, where=where)
    array = as_array("logmeanexp", x)
    there = True if where is None else where
    mask = broadcast(as_array("logmeanexp", there, 2), array.shape)
    return ufuncs.subtract(
        value, ufuncs.log(reductions.sum(mask, axis, value.dtype, keepdims=keepdims))
    )


@becomes_native
def standardize(
    x: ArrayLike,
    axis: Axis = -1,
    mean: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    epsilon: ArrayLike = 1e-5,
    where: ArrayLike | None = None,
) -> Array:
    """(x - mean) / sqrt(variance + epsilon), over axes; both computed unless given.

    >>> import numpy as np
    >>> standardize(np.array([1.0, 3.0]), epsilon=0.0).tolist()
    [-1.0, 1.0]
    """
    array = as_array("standardize", x)
    array = cast(array, inexact_dtype(array.dtype), array.weak_type)
    if mean is None:
        mean = reductions.mean(array, axis, keepdims=True, where=where)
    if variance is None:
        variance = reductions.var(array, axis, keepdims=True, where=where, mean=mean)
    scale = ops.rsqrt(ufuncs.add(variance, epsilon))
    return ufuncs.multiply(ufuncs.subtract(array, mean), scale)


@becomes_native
def one_hot(
    x: ArrayLike, num_classes: int, *, dtype: DTypeLike = None, axis: int = -1
) -> Array:
    """For each number a row of zeros with a one at that place, along a new axis.

    Numbers outside of [0, num_classes) give zeros only.

    >>> import numpy as np
    >>> one_hot(np.array([1, 5]), 3).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    numbers = strong(as_array("one_hot", x))
    place = axis_index("one_hot", axis, numbers.ndim + 1)
    shape = (*numbers.shape[:place], num_classes, *numbers.shape[place:])
    places = dtypes.int32 if dtypes.is_bool(numbers.dtype) else numbers.dtype
    wide = broadcast(expand_dims(cast(numbers, places), place), shape)
    hit = eq(wide, iota(shape=shape, dtype=places, axis=place))
    wanted = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    return cast(hit, wanted)
