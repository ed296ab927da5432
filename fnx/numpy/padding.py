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
from fnx.numpy.grids import linspace
from fnx.numpy.mapping import apply_along_axis
from fnx.numpy.mathematics import round as rounded
from fnx.numpy.operands import ArrayLike, as_array, broadcast, cast, typed
from fnx.numpy.quantiles import median
from fnx.numpy.reductions import max as largest
from fnx.numpy.reductions import mean as average
from fnx.numpy.reductions import min as smallest
from fnx.ops import pieces
from fnx.ops.arithmetic import add, sub
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import reshape, reverse

Widths = tuple[tuple[int, int], ...]


@becomes_native
def pad(
    array: ArrayLike,
    pad_width: Any,
    mode: str | Callable[..., Any] = "constant",
    *,
    constant_values: Any = 0,
    end_values: Any = 0,
    stat_length: Any = None,
    reflect_type: str = "even",
) -> Array:
    """The array with `pad_width` elements added before and after each axis.

    `pad_width` is one number, a pair (before, after), or such a pair for each axis; so
    are the other values. Modes: "constant" (`constant_values`), "edge" (the end
    repeated), "linear_ramp" (from the end to `end_values`), "reflect" and "symmetric"
    (mirrored without and with the end; with `reflect_type="odd"` twice the end less
    the mirrored), "wrap" (periodic), "maximum", "minimum", "mean" and "median" (of
    `stat_length` elements at that end; `None`: of all), "empty" (zeros). A function
    gets each vector with zeros at its ends, the pair of the axis, the axis and an empty
    dict, and returns a vector of that size.

    Raises `OptionError` for other modes, and for an option that the mode does not use.

    >>> pad(np.array([1, 2, 3]), 2, "reflect").tolist()
    [3, 2, 1, 2, 3, 2, 1]
    """
    x = as_array("pad", array)
    widths = _pairs("pad_width", pad_width, x.ndim)
    if any(n < 0 for pair in widths for n in pair):
        raise errors.OptionError(f"pad: pad_width={pad_width} must not be negative")
    if callable(mode):
        return _by_function(x, widths, mode)
    if not isinstance(mode, str) or mode not in _MODES:
        names = ", ".join(repr(name) for name in _MODES)
        raise errors.OptionError(f"pad: mode {mode!r} is none of {names}")
    given = {
        "constant_values": constant_values,
        "end_values": end_values,
        "stat_length": stat_length,
        "reflect_type": reflect_type,
    }
    option, function = _MODES[mode]
    for name, value in given.items():
        if name != option and value is not _DEFAULTS[name]:
            raise errors.OptionError(
                f"pad: {name}={value!r} has no meaning for mode {mode!r}"
            )
    if mode in ("constant", "empty"):
        return _constant(x, widths, _pairs("constant_values", constant_values, x.ndim))
    if option == "reflect_type" and reflect_type not in ("even", "odd"):
        raise errors.OptionError(
            f"pad: reflect_type {reflect_type!r} is none of 'even', 'odd'"
        )
    if option in ("end_values", "stat_length"):
        settings: Any = _pairs(option, given[option], x.ndim)
    else:
        settings = (reflect_type,) * x.ndim
    for axis, ((low, high), setting) in enumerate(zip(widths, settings, strict=True)):
        if low or high:
            x = function(x, axis, low, high, setting)
    return x


def _by_function(x: Array, widths: Widths, function: Callable[..., Any]) -> Array:
    """Pads with zeros, and gives each vector, axis after axis, to a function."""
    x = _constant(x, widths, ((0, 0),) * x.ndim)
    for axis, pair in enumerate(widths):
        x = apply_along_axis(lambda v: function(v, pair, axis, {}), axis, x)  # noqa: B023
    return x


def _pairs(name: str, value: Any, ndim: int) -> tuple[tuple[Any, Any], ...]:
    """A pair for each axis out of one number, a pair, or a pair for each axis."""
    if value is None:
        return ((None, None),) * ndim
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
    return tuple([tuple(row) for row in rows.tolist()])


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
        return pieces.pad(x, _value(x, values[0][0]), low=low, high=high, interior=none)
    for axis, (pair, ends) in enumerate(zip(widths, values, strict=True)):
        x = pieces.padded_along(x, axis, pair[0], 0, _value(x, ends[0]))
        x = pieces.padded_along(x, axis, 0, pair[1], _value(x, ends[1]))
    return x


def _value(x: Array, value: Any) -> Any:
    """A padding value in the array's dtype."""
    return typed("pad", value, x.dtype, x.weak_type)


def _edge(x: Array, axis: int, low: int, high: int, _: Any = None) -> Array:
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

    def mirror(x: Array, axis: int, low: int, high: int, kind: str) -> Array:
        n = _length(x, axis)
        if n == 1 and skip:
            return _edge(x, axis, low, high)
        if kind == "odd":
            backwards = _beyond(reverse(x, axes=(axis,)), axis, low, skip)
            before = reverse(backwards, axes=(axis,))
            return _around(x, axis, before, _beyond(x, axis, high, skip))
        period = reverse(x, axes=(axis,))
        if skip:
            period = part_of(period, axis, 1, n - 1)
        return _wrapped(x, concatenate(x, period, axis=axis), axis, low, high)

    return mirror


def _beyond(x: Array, axis: int, count: int, skip: int) -> Array:
    """So many elements after the last: twice the last less the mirrored."""
    n, found = x.shape[axis], x
    while found.shape[axis] < n + count:
        size = found.shape[axis]
        last = part_of(found, axis, size - 1, size)
        mirrored = reverse(part_of(found, axis, 0, size - skip), axes=(axis,))
        twice = broadcast(add(last, last), mirrored.shape)
        found = concatenate(found, sub(twice, mirrored), axis=axis)
    return part_of(found, axis, n, n + count)


def _ramp(x: Array, axis: int, low: int, high: int, ends: tuple[Any, Any]) -> Array:
    """From the ends of an axis to other values, which are reached."""
    n, sides = _length(x, axis), []
    for count, at, end in ((low, 0, ends[0]), (high, n - 1, ends[1])):
        edge = reshape(part_of(x, axis, at, at + 1), shape=_without(x.shape, axis))
        sides.append(linspace(end, edge, count, False, dtype=x.dtype, axis=axis))
    return _around(x, axis, sides[0], reverse(sides[1], axes=(axis,)))


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _wrap(x: Array, axis: int, low: int, high: int, _: Any) -> Array:
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

    def surround(
        x: Array, axis: int, low: int, high: int, lengths: tuple[Any, Any]
    ) -> Array:
        n = _length(x, axis)
        sides: list[Array] = []
        for count, length in ((low, lengths[0]), (high, lengths[1])):
            if length is not None and length < 1:
                raise errors.OptionError(f"pad: stat_length={length} must be positive")
            size = n if length is None else min(length, n)
            start = n - size if sides else 0
            part = part_of(x, axis, start, start + size)
            value = function(part, axis, keepdims=True)
            if dtypes.is_integer(x.dtype) and not dtypes.is_integer(value.dtype):
                value = rounded(value)
            sides.append(_repeated(cast(value, x.dtype), axis, count))
        return _around(x, axis, *sides)

    return surround


# Each mode: the option that it uses, and what pads one axis.
_MODES: dict[str, tuple[str | None, Any]] = {
    "constant": ("constant_values", None),
    "empty": (None, None),
    "edge": (None, _edge),
    "linear_ramp": ("end_values", _ramp),
    "reflect": ("reflect_type", _mirrored(1)),
    "symmetric": ("reflect_type", _mirrored(0)),
    "wrap": (None, _wrap),
    "maximum": ("stat_length", _statistic(largest)),
    "minimum": ("stat_length", _statistic(smallest)),
    "mean": ("stat_length", _statistic(average)),
    "median": ("stat_length", _statistic(median)),
}
_DEFAULTS = {
    "constant_values": 0,
    "end_values": 0,
    "stat_length": None,
    "reflect_type": "even",
}
