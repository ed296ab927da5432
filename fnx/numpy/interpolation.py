"""Interpolation: the values of a broken line at given places, `interp`.

Receives places and the corners of the line, gives an array of the shape of the places.
Next on the walk: `unique.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.core.array import Array
from fnx.core.trace import Tracer
from fnx.numpy import on_numpy, ufuncs
from fnx.numpy.choices import choose_where
from fnx.numpy.indexing import get
from fnx.numpy.joining import concatenate
from fnx.numpy.mathematics import absolute, remainder
from fnx.numpy.operands import ArrayLike, as_array, cast, promoted, typed
from fnx.numpy.sorting import argsort, searchsorted
from fnx.numpy.taking import take
from fnx.ops.arithmetic import add, mul, select, sub
from fnx.ops.elementwise import div
from fnx.ops.elementwise import max as larger
from fnx.ops.elementwise import min as smaller
from fnx.ops.gather import points
from fnx.ops.pieces import part_of


@at_once(on_numpy.interp)
def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: ArrayLike | str | None = None,
    right: ArrayLike | str | None = None,
    period: ArrayLike | None = None,
) -> Array:
    """The values at x of the broken line through the points (xp, fp), xp ascending.

    Outside it is constant; or `left` and `right`, where "extrapolate" continues the
    first and the last piece. With `period`, a number other than 0 whose sign does not
    matter, the line is periodic, xp may be in any order, and there is no outside. x and
    xp are real, fp may be complex.

    >>> interp(1.5, np.array([1.0, 2.0]), np.array([10.0, 20.0])).item()
    15.0
    >>> ends = np.array([1.0, 2.0])
    >>> interp(3.0, ends, ends, right="extrapolate").item()
    3.0
    """
    for name, end in (("left", left), ("right", right)):
        if isinstance(end, str) and end != "extrapolate":
            raise errors.OptionError(
                f"interp: {name} is a value or 'extrapolate', not {end!r}"
            )
    at, places, values = _broken_line(x, xp, fp)
    if period is not None:
        at, places, values = _periodic(at, places, values, _known_period(period))
    n = places.size
    above = larger(
        smaller(searchsorted(places, at, side="right"), n - 1), min(1, n - 1)
    )
    below = larger(sub(above, 1), 0)
    x0, x1 = points(places, below), points(places, above)
    y0, y1 = points(values, below), points(values, above)
    width = sub(x1, x0)
    share = div(sub(at, x0), select(ufuncs.equal(width, 0), 1, width))
    line = add(y0, mul(cast(share, y0.dtype), sub(y1, y0)))
    line = select(ufuncs.equal(width, 0), y0, line)
    if period is not None:
        return line
    first, last = get(places, 0), get(places, -1)
    if not isinstance(left, str):
        lowest = get(values, 0) if left is None else left
        line = choose_where(ufuncs.less(at, first), lowest, line)
    if not isinstance(right, str):
        highest = get(values, -1) if right is None else right
        line = choose_where(ufuncs.greater(at, last), highest, line)
    return line


def _broken_line(x: Any, xp: Any, fp: Any) -> tuple[Array, Array, Array]:
    """The three arguments of `interp` in floating point, fp in complex if it is."""
    values, dtype, _ = promoted("interp", (x, xp, fp), inexact=True)
    for name, value in zip(("x", "xp"), values, strict=False):
        if dtypes.is_complex(as_array("interp", value).dtype):
            raise errors.DTypeError(
                f"interp: {name} is {value.type}: complex numbers lie on no line"
            )
    real = dtypes.real_dtype(dtype)
    at, places = [typed("interp", v, real) for v in values[:2]]
    heights = typed("interp", values[2], dtype)
    if places.ndim != 1 or places.shape != heights.shape or not places.size:
        raise errors.ShapeError(
            f"interp: xp {places.type} and fp {heights.type} must be vectors of the "
            "same size, with an element at least"
        )
    return at, places, heights


def _known_period(period: ArrayLike) -> Array:
    length = as_array("interp", period, 5)
    if length.ndim:
        raise errors.ShapeError(f"interp: period must be a number, got {length.type}")
    if not isinstance(length, Tracer) and not np.asarray(length):
        raise errors.OptionError("interp: period must not be 0")
    return absolute(length)


def _periodic(x: Array, places: Array, values: Array, period: Any) -> tuple[Array, ...]:
    """The arguments brought into one period, with a point added at either end."""
    from_zero = remainder(x, period)
    inside = remainder(places, period)
    order = argsort(inside)
    inside, values = take(inside, order, 0), take(values, order, 0)
    last, first = (
        part_of(inside, 0, inside.size - 1, inside.size),
        part_of(inside, 0, 0, 1),
    )
    places = concatenate(
        [ufuncs.subtract(last, period), inside, ufuncs.add(first, period)]
    )
    ends = part_of(values, 0, values.size - 1, values.size), part_of(values, 0, 0, 1)
    return from_zero, places, concatenate([ends[0], values, ends[1]])
