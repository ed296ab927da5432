"""Choices and truths: where, select, clip, the logical functions, closeness.

Receives conditions (anything but 0 is true) and values, promotes and broadcasts them,
gives arrays. The branch that `where` does not choose never poisons a gradient.
Next on the walk: `reductions.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.core.trace import constant
from fnx.numpy import ufuncs
from fnx.numpy.mathematics import absolute
from fnx.numpy.operands import (
    ArrayLike,
    as_array,
    broadcast,
    cast,
    common_shape,
    literal,
    operand,
    operands,
    promoted,
    read,
    refuse,
    typed,
)
from fnx.ops import elementwise as ops
from fnx.ops import parts
from fnx.ops.arithmetic import eq
from fnx.ops.arithmetic import select as select_
from fnx.ops.reduce import reduce_and
from fnx.ops.shape import full


def truth(function: str, x: ArrayLike, position: int = 0) -> Array:
    """An array of booleans: whether the elements are not 0."""
    array = as_array(function, x, position)
    return array if dtypes.is_bool(array.dtype) else ops.ne(array, 0)


def choose_where(condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> Array:
    """X where the condition holds, y elsewhere; see `where`."""
    mask = truth("where", condition)
    values, dtype, weak = promoted("where", (x, y))
    shape = common_shape("where", [mask, *values])
    mask = broadcast(mask, shape)
    chosen = [operand(value, dtype, weak, shape) for value in values]
    if shape or isinstance(chosen[0], Array):
        return select_(mask, *chosen)
    if not any(isinstance(value, Array) for value in chosen):
        chosen = [constant(literal(value, dtype, weak)) for value in values]
    return select_(mask, *chosen)


@becomes_native
def clip(
    arr: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None
) -> Array:
    """The elements moved into [min, max]; either end may be left out.

    The gradient passes on the closed interval.

    >>> clip(np.arange(4.0), 1, 2).tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    if min is None and max is None:
        return as_array("clip", arr)
    lowest, highest = _ends(arr, min, max)
    values = operands("clip", lowest, arr, highest)
    if not isinstance(values[1], Array):
        shape = next((v.shape for v in values if isinstance(v, Array)), ())
        values[1] = broadcast(constant(values[1]), shape)
    return ops.clamp(*values)


def _ends(arr: ArrayLike, low: Any, high: Any) -> tuple[Any, Any]:
    """The ends; one left out becomes the lowest or highest value there is."""
    given = [x for x in (arr, low, high) if x is not None]
    _, dtype, _ = promoted("clip", given)
    if dtypes.is_integer(dtype):
        info = np.iinfo(dtype)
        extremes: tuple[Any, Any] = (int(info.min), int(info.max))
        # A NumPy scalar, since a Python one would be too large for the default int.
        extremes = dtype.type(extremes[0]), dtype.type(extremes[1])
    elif dtypes.is_bool(dtype):
        raise errors.DTypeError("clip: booleans have no order; convert them first")
    else:
        extremes = -math.inf, math.inf
    return extremes[0] if low is None else low, extremes[1] if high is None else high


def select(
    condlist: Sequence[ArrayLike],
    choicelist: Sequence[ArrayLike],
    default: ArrayLike = 0,
) -> Array:
    """For each element the choice of the first condition that holds, else `default`.

    >>> x = np.arange(3)
    >>> select([x < 1, x < 2], [x, -x], 9).tolist()
    [0, -1, 9]
    """
    if len(condlist) != len(choicelist) or not condlist:
        raise errors.ArgumentError(
            f"select: {len(condlist)} conditions for {len(choicelist)} choices"
        )
    result = default
    for condition, choice in zip(condlist[::-1], choicelist[::-1], strict=True):
        result = choose_where(condition, choice, result)
    return result  # type: ignore[return-value]


@becomes_native
def fmax(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The larger of x1 and x2; NaN only if both are."""
    return _ignoring_nan("fmax", ufuncs.maximum, x1, x2)


@becomes_native
def fmin(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The smaller of x1 and x2; NaN only if both are.

    >>> fmin(1.0, math.nan).item()
    1.0
    """
    return _ignoring_nan("fmin", ufuncs.minimum, x1, x2)


def _ignoring_nan(name: str, better: Any, x1: ArrayLike, x2: ArrayLike) -> Array:
    a, b = read(name, x1, 0), read(name, x2, 1)
    one_is_nan = choose_where(ufuncs.isnan(a), b, a)
    return choose_where(
        ufuncs.bitwise_or(ufuncs.isnan(a), ufuncs.isnan(b)), one_is_nan, better(a, b)
    )


@becomes_native
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """NaN replaced by 0, infinities by the largest finite numbers, unless given.

    >>> nan_to_num(np.array([math.nan, 1.0])).tolist()
    [0.0, 1.0]
    """
    array = as_array("nan_to_num", x)
    if not dtypes.is_inexact(array.dtype):
        return array
    if dtypes.is_complex(array.dtype):
        sides = parts.real(array), parts.imag(array)
        return parts.complex_(
            *[nan_to_num(s, copy, nan, posinf, neginf) for s in sides]
        )
    largest = float(ml_dtypes.finfo(array.dtype).max)
    high = largest if posinf is None else posinf
    low = -largest if neginf is None else neginf
    array = _keeping_dtype(ufuncs.isnan(array), nan, array)
    array = _keeping_dtype(eq(array, math.inf), high, array)
    return _keeping_dtype(eq(array, -math.inf), low, array)


def _keeping_dtype(mask: Array, value: Any, array: Array) -> Array:
    return cast(choose_where(mask, value, array), array.dtype, array.weak_type)


# ---------------------------------------------------------------- logic


@becomes_native
def logical_and(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Whether neither is 0.

    >>> logical_and(2, 0).item()
    False
    """
    return ufuncs.bitwise_and(truth("logical_and", x1), truth("logical_and", x2, 1))


@becomes_native
def logical_or(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Whether one of them is not 0."""
    return ufuncs.bitwise_or(truth("logical_or", x1), truth("logical_or", x2, 1))


@becomes_native
def logical_xor(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Whether exactly one of them is not 0."""
    return ufuncs.bitwise_xor(truth("logical_xor", x1), truth("logical_xor", x2, 1))


@becomes_native
def logical_not(x: ArrayLike, /) -> Array:
    """Whether the element is 0."""
    return parts.not_(truth("logical_not", x))


@becomes_native
def isposinf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether x is +inf."""
    refuse("isposinf", out=out)
    return _equals_infinity("isposinf", x, math.inf)


@becomes_native
def isneginf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether x is -inf."""
    refuse("isneginf", out=out)
    return _equals_infinity("isneginf", x, -math.inf)


def _equals_infinity(function: str, x: ArrayLike, value: float) -> Array:
    array = as_array(function, x)
    if dtypes.is_complex(array.dtype):
        raise errors.DTypeError(
            f"{function}: the infinity of a complex number {array.type} has no sign"
        )
    if not dtypes.is_float(array.dtype):
        return full(array.shape, dtypes.bool_, False)
    return eq(array, value)


@becomes_native
def isreal(x: ArrayLike) -> Array:
    """Whether the imaginary part is 0."""
    array = as_array("isreal", x)
    if dtypes.is_complex(array.dtype):
        return eq(parts.imag(array), 0)
    return full(array.shape, dtypes.bool_, True)


@becomes_native
def iscomplex(x: ArrayLike) -> Array:
    """Whether the imaginary part is not 0."""
    return parts.not_(isreal(x))


@becomes_native
def isclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1e-05,
    atol: ArrayLike = 1e-08,
    equal_nan: bool = False,
) -> Array:
    """Whether |a - b| <= atol + rtol * |b|; equal infinities are close.

    >>> isclose(1.0, 1.0 + 1e-7).item()
    True
    """
    (x, y), dtype, _ = promoted("isclose", (a, b))
    # Integers in float64, which holds them and the tolerances.
    dtype = dtype if dtypes.is_inexact(dtype) else dtypes.float64
    x, y = typed("isclose", x, dtype), typed("isclose", y, dtype)
    gap = absolute(ufuncs.subtract(x, y))
    allowed = ufuncs.add(atol, ufuncs.multiply(rtol, absolute(y)))
    both_finite = ufuncs.bitwise_and(ufuncs.isfinite(x), ufuncs.isfinite(y))
    near = ufuncs.bitwise_and(ufuncs.less_equal(gap, allowed), both_finite)
    near = ufuncs.bitwise_or(near, ufuncs.equal(x, y))
    if equal_nan:
        both = ufuncs.bitwise_and(ufuncs.isnan(x), ufuncs.isnan(y))
        near = ufuncs.bitwise_or(near, both)
    return near


@becomes_native
def allclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1e-05,
    atol: ArrayLike = 1e-08,
    equal_nan: bool = False,
) -> Array:
    """Whether all elements are close; see `isclose`."""
    return _all(isclose(a, b, rtol, atol, equal_nan))


@becomes_native
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> Array:
    """Whether the arrays have the same shape and elements.

    >>> array_equal(np.arange(2), np.arange(3)).item()
    False
    """
    x, y = as_array("array_equal", a1), as_array("array_equal", a2, 1)
    if x.shape != y.shape:
        return full((), dtypes.bool_, False)
    same = ufuncs.equal(x, y)
    if equal_nan:
        both = ufuncs.bitwise_and(ufuncs.isnan(x), ufuncs.isnan(y))
        same = ufuncs.bitwise_or(same, both)
    return _all(same)


@becomes_native
def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Whether the arrays are equal after being broadcast."""
    x, y = as_array("array_equiv", a1), as_array("array_equiv", a2, 1)
    try:
        return _all(ufuncs.equal(x, y))
    except errors.ShapeError:
        return full((), dtypes.bool_, False)


def _all(x: Array) -> Array:
    return reduce_and(x, axes=tuple(range(x.ndim)))
