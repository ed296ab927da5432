"""Reductions: sums, products, extrema, truths, means, deviations, cumulative sums.

Receives an array and the axes to reduce (`None`: all), gives the array without them, or
with size 1 in their places if `keepdims`. `where` leaves elements out, `initial` is
combined with the result. Small integers are summed in the default int.
Next on the walk: `nan_reductions.py`.
"""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import complex_order, on_numpy, ufuncs
from fnx.numpy.choices import choose_where, truth
from fnx.numpy.mathematics import conj, real, root
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    Shape,
    as_array,
    axes_tuple,
    axis_index,
    broadcast,
    cast,
    inexact_dtype,
    refuse,
    strong,
    typed,
)
from fnx.ops import cumulative, reduce
from fnx.ops.arithmetic import mul, select, sub
from fnx.ops.elementwise import div, gt
from fnx.ops.pieces import padded_along
from fnx.ops.shape import full, permute, reshape

Axis = int | tuple[int, ...] | None


def _reduced(
    function: str,
    op: Any,
    x: Array,
    axis: Axis,
    keepdims: bool,
    where: ArrayLike | None = None,
    neutral: Any = None,
) -> Array:
    """The reduction; elements that `where` leaves out become `neutral`."""
    axes = tuple(sorted(axes_tuple(function, axis, x.ndim)))
    if where is not None:
        x = cast(choose_where(where, x, neutral), x.dtype)
    out = op(strong(x), axes=axes)
    return _kept(out, x.shape, axes) if keepdims else out


def _kept(out: Array, shape: Shape, axes: Shape) -> Array:
    """The result with size 1 in the places of the reduced axes."""
    sizes = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    return out if out.shape == sizes else reshape(out, shape=sizes)


def _summed_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Integers below the default int, and booleans, are summed in it."""
    default = dtypes.default_int()
    if dtypes.is_bool(dtype):
        return default
    if not dtypes.is_integer(dtype) or dtype.itemsize >= default.itemsize:
        return dtype
    return default if dtypes.is_signed(dtype) else np.dtype(f"u{default.itemsize}")


def _accumulated(
    function: str, a: ArrayLike, dtype: DTypeLike, promote_integers: bool = True
) -> Array:
    """The array in the dtype that it is summed or multiplied in."""
    x = as_array(function, a)
    if dtype is not None:
        return cast(x, dtypes.as_dtype(dtype))
    if promote_integers or dtypes.is_bool(x.dtype):
        return cast(x, _summed_dtype(x.dtype))
    return strong(x)


@becomes_native
def sum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """The sum over axes.

    16-bit floats accumulate in float32; small integers are summed in the default int.

    >>> sum(np.ones((2, 3)), axis=1).tolist()
    [3.0, 3.0]
    """
    refuse("sum", out=out)
    x = _accumulated("sum", a, dtype, promote_integers)
    total = _reduced("sum", reduce.reduce_sum, x, axis, keepdims, where, 0)
    return total if initial is None else ufuncs.add(total, initial)


@becomes_native
def prod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
    promote_integers: bool = True,
) -> Array:
    """The product over axes; its gradients are right where elements are 0.

    >>> prod(np.array([2.0, 3.0])).item()
    6.0
    """
    refuse("prod", out=out)
    x = _accumulated("prod", a, dtype, promote_integers)
    total = _reduced("prod", reduce.reduce_prod, x, axis, keepdims, where, 1)
    return total if initial is None else ufuncs.multiply(total, initial)


@becomes_native
def max(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The largest element over axes; NaN wins. Tied elements share the gradient.

    >>> max(np.array([1.0, 3.0, 2.0])).item()
    3.0
    """
    refuse("max", out=out)
    return _extremum("max", a, axis, keepdims, initial, where)


@becomes_native
def min(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The smallest element over axes; NaN wins. Tied elements share the gradient."""
    refuse("min", out=out)
    return _extremum("min", a, axis, keepdims, initial, where)


amax, amin = max, min


def _extremum(
    name: str, a: ArrayLike, axis: Axis, keepdims: bool, initial: Any, where: Any
) -> Array:
    x = as_array(name, a)
    largest = name == "max"
    op: Any
    if dtypes.is_bool(x.dtype):
        op = reduce.reduce_or if largest else reduce.reduce_and
    elif dtypes.is_complex(x.dtype):
        op = complex_order.largest if largest else complex_order.smallest
    else:
        op = reduce.reduce_max if largest else reduce.reduce_min
    if initial is None:
        _check_not_empty(name, x, axis, where)
    neutral = initial if initial is not None else worst(x.dtype, largest)
    found = _reduced(name, op, x, axis, keepdims, where, neutral)
    if initial is None:
        return found
    beside = typed(name, initial, x.dtype)
    return (ufuncs.maximum if largest else ufuncs.minimum)(found, beside)


def _check_not_empty(name: str, x: Array, axis: Axis, where: Any) -> None:
    axes = axes_tuple(name, axis, x.ndim)
    if not math.prod([x.shape[i] for i in axes]):
        raise errors.ShapeError(
            f"{name}: {x.type} has no elements along axis {axis}; give initial=..."
        )
    if where is not None:
        raise errors.ArgumentError(
            f"{name}: where may leave out all elements, so initial=... must be given"
        )


def worst(dtype: np.dtype[Any], largest: bool) -> Any:
    """The value that every other one beats."""
    if dtypes.is_bool(dtype):
        return not largest
    if dtypes.is_integer(dtype):
        info = np.iinfo(dtype)
        return dtype.type(info.min if largest else info.max)
    return -math.inf if largest else math.inf


@becomes_native
def any(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Whether an element is not 0, over axes.

    >>> any(np.array([0, 2])).item()
    True
    """
    refuse("any", out=out)
    return _reduced(
        "any", reduce.reduce_or, truth("any", a), axis, keepdims, where, False
    )


@becomes_native
def all(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """Whether no element is 0, over axes."""
    refuse("all", out=out)
    return _reduced(
        "all", reduce.reduce_and, truth("all", a), axis, keepdims, where, True
    )


@becomes_native
def count_nonzero(a: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Array:
    """The number of elements that are not 0, over axes."""
    return sum(truth("count_nonzero", a), axis, keepdims=keepdims)


@becomes_native
def ptp(
    a: ArrayLike, axis: Axis = None, out: None = None, keepdims: bool = False
) -> Array:
    """The largest minus the smallest element, over axes."""
    refuse("ptp", out=out)
    return sub(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


# ---------------------------------------------------------------- means and deviations


@becomes_native
def mean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    out: None = None,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
) -> Array:
    """The mean over axes, in floating point; 16-bit floats are computed in float32.

    >>> mean(np.array([1, 2])).item()
    1.5
    """
    refuse("mean", out=out)
    x, result = _averaged("mean", a, dtype)
    axes = tuple(sorted(axes_tuple("mean", axis, x.ndim)))
    total = _reduced("mean", reduce.reduce_sum, x, axes, keepdims, where, 0)
    return cast(_divided(total, _count(x, axes, keepdims, where)), result)


def _averaged(function: str, a: ArrayLike, dtype: DTypeLike) -> tuple[Array, Any]:
    """The array in the dtype that its mean is computed in, and the mean's dtype."""
    x = as_array(function, a)
    result = inexact_dtype(x.dtype) if dtype is None else dtypes.as_dtype(dtype)
    return cast(x, dtypes.compute_dtype(inexact_dtype(result))), result


def _count(x: Array, axes: Shape, keepdims: bool, where: ArrayLike | None) -> Any:
    """The number of elements that are reduced; known unless there is a `where`."""
    if where is None:
        return math.prod([x.shape[i] for i in axes])
    mask = broadcast(truth("where", where), x.shape)
    return sum(cast(mask, dtypes.real_dtype(x.dtype)), axes, keepdims=keepdims)


def _divided(total: Array, count: Any) -> Array:
    if isinstance(count, Array):
        return ufuncs.divide(total, count)
    # By a float, since 0 elements have the mean NaN.
    return div(total, float(count))


@becomes_native
def var(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """The mean square distance from the mean, over axes.

    The sum is divided by the number of elements minus `ddof` (or `correction`); it is
    NaN if there are no more elements than that.

    >>> var(np.array([1.0, 3.0])).item()
    1.0
    """
    refuse("var", out=out)
    x, result = _averaged("var", a, dtype)
    axes = tuple(sorted(axes_tuple("var", axis, x.ndim)))
    count = _count(x, axes, True, where)
    if mean is None:
        total = _reduced("var", reduce.reduce_sum, x, axes, True, where, 0)
        centre = _divided(total, count)
    else:
        centre = typed("var", mean, x.dtype)
    gap = ufuncs.subtract(x, centre)
    square = mul(gap, gap)
    if dtypes.is_complex(x.dtype):
        square = real(mul(gap, conj(gap)))
    total = _reduced("var", reduce.reduce_sum, square, axes, True, where, 0)
    free = ufuncs.subtract(count, ddof if correction is None else correction)
    divisor = cast(ufuncs.maximum(free, 0), square.dtype)
    value = ufuncs.divide(total, select(gt(divisor, 0), divisor, np.nan))
    if not keepdims:
        value = reshape(
            value, shape=tuple([n for i, n in enumerate(x.shape) if i not in axes])
        )
    return cast(value, dtypes.real_dtype(result))


@becomes_native
def std(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    *,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
    correction: float | None = None,
) -> Array:
    """The square root of `var`; where that is 0 the gradient is 0."""
    refuse("std", out=out)
    return root(
        var(
            a,
            axis,
            dtype,
            None,
            ddof,
            keepdims,
            where=where,
            mean=mean,
            correction=correction,
        )
    )


@becomes_native
def average(
    a: ArrayLike,
    axis: Axis = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    keepdims: bool = False,
) -> Any:
    """The weighted mean over axes, and the sum of the weights if `returned`.

    Weights have the shape of the array, or the axes that `axis` names, in its order.

    >>> average(np.array([1.0, 3.0]), weights=np.array([3.0, 1.0])).item()
    1.5
    """
    x = as_array("average", a)
    if weights is None:
        value = mean(x, axis, keepdims=keepdims)
        total = full(
            value.shape,
            value.dtype,
            builtins.max(x.size, 1) // builtins.max(value.size, 1),
        )
        return (value, total) if returned else value
    w = as_array("average", weights, 2)
    if w.shape != x.shape:
        axes = () if axis is None else axes_tuple("average", axis, x.ndim)
        if not axes or w.shape != tuple([x.shape[i] for i in axes]):
            raise errors.ShapeError(
                f"average: weights {w.type} must have the shape of {x.type}, or the "
                "sizes of the axes in axis=..."
            )
        w = permute(w, dims=tuple(sorted(range(w.ndim), key=axes.__getitem__)))
        sizes = tuple([n if i in axes else 1 for i, n in enumerate(x.shape)])
        w = broadcast(reshape(w, shape=sizes), x.shape)
    total = sum(w, axis, keepdims=keepdims)
    product = sum(ufuncs.multiply(x, w), axis, keepdims=keepdims)
    value = ufuncs.divide(product, total)
    return (value, cast(total, value.dtype)) if returned else value


# ---------------------------------------------------------------- places


@at_once(on_numpy.argmax)
def argmax(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False
) -> Array:
    """The index of the first largest element (or NaN), along an axis or of all.

    >>> argmax(np.array([1, 3, 2])).item()
    1
    """
    refuse("argmax", out=out)
    return _place("argmax", reduce.argmax, a, axis, keepdims)


@at_once(on_numpy.argmin)
def argmin(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False
) -> Array:
    """The index of the first smallest element (or NaN), along an axis or of all."""
    refuse("argmin", out=out)
    return _place("argmin", reduce.argmin, a, axis, keepdims)


def _place(name: str, op: Any, a: ArrayLike, axis: Any, keepdims: bool | None) -> Array:
    x = as_array(name, a)
    if dtypes.is_complex(x.dtype):
        of_largest = op is reduce.argmax
        order = complex_order
        op = order.place_of_largest if of_largest else order.place_of_smallest
    flat = reshape(x, shape=(x.size,)) if axis is None else x
    place = 0 if axis is None else axis_index(name, axis, x.ndim)
    found = op(flat, axis=place, index_dtype=dtypes.default_int())
    axes = tuple(range(x.ndim)) if axis is None else (place,)
    return _kept(found, x.shape, axes) if keepdims else found


# ---------------------------------------------------------------- cumulative


@becomes_native
def cumsum(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: None = None
) -> Array:
    """The sums of the elements up to each place, along an axis or of all.

    >>> cumsum(np.array([1, 2, 3], "int32"))
    Array([1, 3, 6], dtype=int32)
    """
    refuse("cumsum", out=out)
    return _cumulative("cumsum", cumulative.cumsum, a, axis, dtype)


@becomes_native
def cumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: None = None
) -> Array:
    """The products of the elements up to each place; right gradients at zeros."""
    refuse("cumprod", out=out)
    return _cumulative("cumprod", cumulative.cumprod, a, axis, dtype)


def _cumulative(name: str, op: Any, a: ArrayLike, axis: Any, dtype: DTypeLike) -> Array:
    x = _accumulated(name, a, dtype, promote_integers=False)
    if axis is None:
        x = reshape(x, shape=(x.size,))
    return op(x, axis=axis_index(name, axis or 0, x.ndim), reverse=False)


@becomes_native
def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike = None,
    include_initial: bool = False,
) -> Array:
    """`cumsum` as in the array API standard; `include_initial` puts a 0 in front."""
    return _standard_cumulative(
        "cumulative_sum", cumsum, x, axis, dtype, include_initial, 0
    )


@becomes_native
def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike = None,
    include_initial: bool = False,
) -> Array:
    """`cumprod` as in the array API standard; `include_initial` puts a 1 in front."""
    return _standard_cumulative(
        "cumulative_prod", cumprod, x, axis, dtype, include_initial, 1
    )


def _standard_cumulative(
    name: str,
    function: Any,
    x: ArrayLike,
    axis: Any,
    dtype: Any,
    front: bool,
    first: int,
) -> Array:
    array = as_array(name, x)
    if axis is None and array.ndim != 1:
        raise errors.ArgumentError(f"{name}: {array.type} needs axis=...")
    place = axis_index(name, axis or 0, array.ndim)
    # Unlike `cumsum`, the standard asks for sums of small integers in the default int.
    wide = _accumulated(name, array, dtype)
    out = function(wide, place)
    return padded_along(out, place, 1, 0, first) if front else out
