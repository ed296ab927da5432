"""fnx.scipy.ndimage: map_coordinates.

Receives an array and coordinates, gives the values there. Next on the walk:
`optimize.py`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as np_
from fnx import dtypes, errors, lax
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike, as_array, inexact_dtype


def map_coordinates(
    input: ArrayLike,
    coordinates: Sequence[ArrayLike],
    order: int,
    mode: str = "constant",
    cval: ArrayLike = 0.0,
) -> Array:
    """The values of an array at coordinates between its elements.

    `coordinates` has an array for each axis, of one shape (or shapes that broadcast),
    that of the result; the dtype is that of `input`, and integers are rounded. `order`
    0 takes the nearest element, 1 interpolates linearly. `mode` says what lies outside:
    "constant" `cval`, "nearest" the outermost element, "wrap" the array again,
    "mirror" its image about the centre of the outermost element, "reflect" about its
    outer edge. These are SciPy's modes of these names, but "constant" and "wrap", which
    SciPy calls "grid-constant" and "grid-wrap".

    Raises `ShapeError` for another number of coordinates, `OptionError` for other
    orders and modes.

    >>> import numpy as np
    >>> map_coordinates(np.array([0.0, 10.0]), [np.array([0.25, 2.0])], 1).tolist()
    [2.5, 0.0]
    """
    array: Any = as_array("map_coordinates", input)
    places = [as_array("map_coordinates", x, 1) for x in coordinates]
    if len(places) != array.ndim:
        raise errors.ShapeError(
            errors.explain(
                f"map_coordinates: there are {len(places)} coordinates",
                f"input is {array.type}",
                "pass an array for each axis",
            )
        )
    if order not in (0, 1):
        raise errors.OptionError(f"map_coordinates: order is 0 or 1, got {order!r}")
    if mode not in _FOLDED:
        raise errors.OptionError(
            f"map_coordinates: mode {mode!r} is none of {', '.join(_FOLDED)}"
        )
    if not array.ndim:
        return array
    fill = np_.asarray(cval, array.dtype)
    nodes = [
        [(_FOLDED[mode](i, size), (i >= 0) & (i < size), w) for i, w in near]
        for near, size in zip(
            [_neighbours(x, order) for x in places], array.shape, strict=True
        )
    ]
    total: Any = 0
    for corner in itertools.product(*nodes):
        index, known, weights = zip(*corner, strict=True)
        # Every index is inside, or its element is not used.
        value = array.at[index].get(mode="clip", wrap_negative_indices=False)
        if mode == "constant":
            value = np_.where(functools.reduce(np_.logical_and, known), value, fill)
        total = total + math.prod(weights) * value
    if dtypes.is_integer(array.dtype):
        total = lax.round(total, lax.RoundingMethod.AWAY_FROM_ZERO)
    return np_.asarray(total, array.dtype)


def _neighbours(x: Array, order: int) -> list[tuple[Any, Any]]:
    """The elements beside a coordinate, and their weights."""
    place: Any = np_.asarray(x, inexact_dtype(x.dtype))
    if order == 0:
        rounded = lax.round(place, lax.RoundingMethod.AWAY_FROM_ZERO)
        return [(np_.asarray(rounded, "int32"), np_.ones((), place.dtype))]
    lower = np_.floor(place)
    index: Any = np_.asarray(lower, "int32")
    part = place - lower
    return [(index, 1 - part), (index + 1, part)]


def _mirrored(index: Any, size: int) -> Any:
    """A triangular wave of the places, whose period is twice the size less one."""
    half = size - 1
    return np_.abs((index + half) % (2 * half) - half) if half else index * 0


def _reflected(index: Any, size: int) -> Any:
    """The same, of places twice as many: the edges between them are mirrors."""
    return (_mirrored(2 * index + 1, 2 * size + 1) - 1) // 2


_FOLDED: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: np_.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": _reflected,
}
"""What each mode makes of a place along an axis."""
