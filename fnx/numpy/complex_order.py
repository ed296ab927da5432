"""The order of complex numbers: by their real parts, then by their imaginary ones.

NumPy's order, for comparisons and extrema. A number with a NaN in it is not before or
behind any other; extrema are the first such number. Receives arrays of one dtype and
shape. Next on the walk: `ufuncs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fnx import dtypes
from fnx.core.array import Array
from fnx.ops import parts
from fnx.ops.arithmetic import eq, select
from fnx.ops.elementwise import ge, gt, le, lt, ne, round
from fnx.ops.reduce import argmax, reduce_max, reduce_min, reduce_or
from fnx.ops.shape import broadcast_in_dim, full, permute, reshape
from fnx.ops.sort import take_along

Test = Callable[[Any, Any], Array]


def _ordered(whole: Test, rest: Test) -> Test:
    """The comparison that asks the imaginary parts where the real ones are equal."""

    def test(x: Any, y: Any) -> Array:
        a, b, c, d = parts.real(x), parts.imag(x), parts.real(y), parts.imag(y)
        known = parts.and_(eq(b, b), eq(d, d))
        by_real = parts.and_(whole(a, c), known)
        return parts.or_(by_real, parts.and_(eq(a, c), rest(b, d)))

    return test


less = _ordered(lt, lt)
less_equal = _ordered(lt, le)
greater = _ordered(gt, gt)
greater_equal = _ordered(gt, ge)


def maximum(x: Any, y: Any) -> Array:
    """The one that comes later, the first of equal ones, or one with a NaN in it."""
    return select(parts.or_(ne(x, x), greater_equal(x, y)), x, y)


def minimum(x: Any, y: Any) -> Array:
    """The one that comes first, the first of equal ones, or one with a NaN in it."""
    return select(parts.or_(ne(x, x), less_equal(x, y)), x, y)


def rint(x: Any) -> Array:
    """Both parts rounded."""
    return parts.complex_(round(parts.real(x)), round(parts.imag(x)))


def largest(x: Any, axes: tuple[int, ...]) -> Array:
    """The last element over axes, or the first one with a NaN in it."""
    return _extreme(reduce_max, x, axes)


def smallest(x: Any, axes: tuple[int, ...]) -> Array:
    """The first element over axes, or the first one with a NaN in it."""
    return _extreme(reduce_min, x, axes)


def _extreme(extreme: Any, x: Any, axes: tuple[int, ...]) -> Array:
    kept = tuple([axis for axis in range(x.ndim) if axis not in axes])
    shape = tuple([x.shape[axis] for axis in kept])
    count = math.prod([x.shape[axis] for axis in axes])
    if not count:  # the neutral element, which `initial` replaces
        worst = -math.inf if extreme is reduce_max else math.inf
        return full(shape, x.dtype, complex(worst, worst))
    rows = reshape(permute(x, dims=(*kept, *axes)), shape=(*shape, count))
    place = _place(extreme, rows, len(kept), dtypes.int32)
    column = reshape(place, shape=(*shape, 1))
    return reshape(take_along(rows, column, len(kept)), shape=shape)


def place_of_largest(x: Any, *, axis: int, index_dtype: Any) -> Array:
    """The first place of the last element along an axis, or of a NaN."""
    return _place(reduce_max, x, axis, index_dtype)


def place_of_smallest(x: Any, *, axis: int, index_dtype: Any) -> Array:
    """The first place of the first element along an axis, or of a NaN."""
    return _place(reduce_min, x, axis, index_dtype)


def _place(extreme: Any, x: Any, axis: int, index_dtype: Any) -> Array:
    nan, a, b = ne(x, x), parts.real(x), parts.imag(x)
    worst = -math.inf if extreme is reduce_max else math.inf
    # Where there is a NaN it alone counts, whatever the others are.
    a = select(nan, worst, a)
    has_top = parts.and_(eq(a, _spread(extreme(a, axes=(axis,)), x, axis)), eq(b, b))
    b = select(has_top, b, worst)
    is_top = parts.and_(has_top, eq(b, _spread(extreme(b, axes=(axis,)), x, axis)))
    any_nan = _spread(reduce_or(nan, axes=(axis,)), x, axis)
    return argmax(select(any_nan, nan, is_top), axis=axis, index_dtype=index_dtype)


def _spread(x: Any, like: Any, axis: int) -> Array:
    """A reduced array along the axis that it lacks."""
    dims = tuple([d for d in range(like.ndim) if d != axis])
    return broadcast_in_dim(x, shape=like.shape, dims=dims)
