"""pad: an array with more elements at its ends, in NumPy's modes.

Receives an array and the number of elements before and after each axis, gives a larger
array of the same dtype. Next on the walk: `taking.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.mathematics import round as rounded
from fnx.numpy.operands import ArrayLike, as_array, broadcast, cast, typed
from fnx.numpy.reductions import max as largest
from fnx.numpy.reductions import mean as average
from fnx.numpy.reductions import min as smallest
from fnx.ops import shape as ops
from fnx.ops.shape import concatenate, part_of, reverse

Widths = tuple[tuple[int, int], ...]


@becomes_native
def pad(
    array: ArrayLike,
    pad_width: Any,
    mode: str | Callable[..., Any] = "constant",
    *,
    constant_values: Any = 0,
    stat_length: Any = None,
    reflect_type: str = "even",
) -> Array:
    """The array with `pad_width` elements added before and after each axis.

    `pad_width` is one number, a pair (before, after), or such a pair for each axis.
    Modes: "constant" (`constant_values`, like `pad_width`), "edge" (the end repeated),
    "reflect" and "symmetric" (mirrored without and with the end), "wrap" (periodic),
    "maximum", "minimum", "mean" (of the axis), "empty" (zeros).

    >>> pad(np.array([1, 2, 3]), 2, "reflect").tolist()
    [3, 2, 1, 2, 3, 2, 1]
    """
    x = as_array("pad", array)
    widths = _pairs("pad_width", pad_width, x.ndim)
    if any(n < 0 for pair in widths for n in pair):
        raise errors.OptionError(f"pad: pad_width={pad_width} must not be negative")
    if not isinstance(mode, str) or mode not in _MODES:
        names = ", ".join(repr(name) for name in _MODES)
        raise errors.OptionError(f"pad: mode {mode!r} is none of {names}")
    if reflect_type != "even" or stat_length is not None:
        raise errors.OptionError(
            "pad: only reflect_type='even' and stat_length=None are supported"
        )
    if mode in ("constant", "empty"):
        return _constant(x, widths, _pairs("constant_values", constant_values, x.ndim))
    for axis, (low, high) in enumerate(widths):
        if low or high:
            x = _MODES[mode](x, axis, low, high)
    return x


def _pairs(name: str, value: Any, ndim: int) -> tuple[tuple[Any, Any], ...]:
    """A pair for each axis out of one number, a pair, or a pair for each axis."""
    if isinstance(value, dict):
        full = {axis % ndim: pair for axis, pair in value.items()}
        return tuple([_pair(full.get(axis, 0)) for axis in range(ndim)])
    if isinstance(value, Array) and not value.shape:
        return ((value, value),) * ndim
    try:
        rows = np.broadcast_to(np.asarray(value), (ndim, 2))
    except ValueError:
        raise errors.ShapeError(
            f"pad: {name}={value!r} must be a number, a pair, or a pair for each of "
            f"{ndim} axes"
        ) from None
    return tuple([(row[0].item(), row[1].item()) for row in rows])


def _pair(value: Any) -> tuple[Any, Any]:
    return (value, value) if isinstance(value, int) else tuple(value)  # type: ignore[return-value]


def _constant(x: Array, widths: Widths, values: tuple[tuple[Any, Any], ...]) -> Array:
    none = (0,) * x.ndim
    if (
        len(
            {value for pair in values for value in pair if not isinstance(value, Array)}
        )
        == 1
    ):
        low, high = [tuple([pair[i] for pair in widths]) for i in (0, 1)]
        return ops.pad(x, _value(x, values[0][0]), low=low, high=high, interior=none)
    for axis, (pair, ends) in enumerate(zip(widths, values, strict=True)):
        x = ops.padded_along(x, axis, pair[0], 0, _value(x, ends[0]))
        x = ops.padded_along(x, axis, 0, pair[1], _value(x, ends[1]))
    return x


def _value(x: Array, value: Any) -> Any:
    """A padding value in the array's dtype."""
    return typed("pad", value, x.dtype, x.weak_type)


def _edge(x: Array, axis: int, low: int, high: int) -> Array:
    n = _length(x, axis)
    first, last = part_of(x, axis, 0, 1), part_of(x, axis, n - 1, n)
    return _around(x, axis, _repeated(first, axis, low), _repeated(last, axis, high))


def _repeated(x: Array, axis: int, count: int) -> Array:
    return broadcast(x, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _around(x: Array, axis: int, before: Array, after: Array) -> Array:
    parts = [part for part in (before, x, after) if part.shape[axis]]
    return concatenate(*parts, axis=axis) if len(parts) > 1 else x


def _length(x: Array, axis: int) -> int:
    n = x.shape[axis]
    if not n:
        raise errors.ShapeError(
            f"pad: axis {axis} of {x.type} has no elements to repeat"
        )
    return n


def _mirrored(skip: int) -> Callable[..., Array]:
    """Mirrors an axis at its ends, again and again; the end itself `skip`ped or not."""

    def mirror(x: Array, axis: int, low: int, high: int) -> Array:
        n = _length(x, axis)
        if n == 1 and skip:
            return _edge(x, axis, low, high)
        period = reverse(x, axes=(axis,))
        if skip:
            period = part_of(period, axis, 1, n - 1)
        return _wrapped(x, concatenate(x, period, axis=axis), axis, low, high)

    return mirror


def _wrap(x: Array, axis: int, low: int, high: int) -> Array:
    _length(x, axis)
    return _wrapped(x, x, axis, low, high)


def _wrapped(x: Array, period: Array, axis: int, low: int, high: int) -> Array:
    """X with a part of the endless repetition of `period`, which begins with x."""
    size = period.shape[axis]
    start, stop = -low, x.shape[axis] + high
    first = start // size
    copies = -(-(stop - first * size) // size)
    whole = concatenate(*[period] * copies, axis=axis) if copies > 1 else period
    return part_of(whole, axis, start - first * size, stop - first * size)


def _statistic(function: Callable[..., Array]) -> Callable[..., Array]:
    """Pads with a statistic of the axis."""

    def surround(x: Array, axis: int, low: int, high: int) -> Array:
        _length(x, axis)
        value = function(x, axis, keepdims=True)
        if dtypes.is_integer(x.dtype) and not dtypes.is_integer(value.dtype):
            value = rounded(value)
        value = cast(value, x.dtype)
        return _around(
            x, axis, _repeated(value, axis, low), _repeated(value, axis, high)
        )

    return surround


_MODES: dict[str, Any] = {
    "constant": None,
    "empty": None,
    "edge": _edge,
    "reflect": _mirrored(1),
    "symmetric": _mirrored(0),
    "wrap": _wrap,
    "maximum": _statistic(largest),
    "minimum": _statistic(smallest),
    "mean": _statistic(average),
}
