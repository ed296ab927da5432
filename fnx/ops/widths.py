"""The bits of elements read as elements of another width, by shifts.

Receives an array and a dtype, gives an array with an axis more where the new elements
are narrower (they lie along it, the lowest bits first), or without its last axis where
they are wider. Next on the walk: `arithmetic.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.ops import parts
from fnx.ops.arithmetic import mul
from fnx.ops.elementwise import convert
from fnx.ops.reduce import reduce_sum
from fnx.ops.shape import broadcast_in_dim, full, iota


def with_width(x: Any, dtype: np.dtype[Any]) -> Any:
    """The bits of x as another dtype, of any width.

    Raises `ShapeError` where wider elements do not take up the last axis, `DTypeError`
    for booleans and complex numbers.
    """
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new or {x.dtype.kind, dtype.kind} & set("bc"):
        return parts.bitcast(x, dtype=dtype)
    return _narrow(x, dtype, old // new) if old > new else _wide(x, dtype, new // old)


def _narrow(x: Any, dtype: np.dtype[Any], count: int) -> Any:
    word, part = _word(x.dtype), _word(dtype)
    shape = (*x.shape, count)
    bits = parts.bitcast(x, dtype=word)
    bits = broadcast_in_dim(bits, shape=shape, dims=tuple(range(len(x.shape))))
    moved = parts.shift_right_logical(bits, _places(shape, word, part))
    kept = parts.and_(moved, full(shape, word, (1 << 8 * part.itemsize) - 1))
    return parts.bitcast(convert(kept, dtype=part), dtype=dtype)


def _wide(x: Any, dtype: np.dtype[Any], count: int) -> Any:
    if x.shape[-1:] != (count,):
        raise errors.ShapeError(
            f"bitcast: {x.type} to {dtypes.short(dtype)}: the last axis must have the "
            f"{count} parts of an element."
        )
    word, part = _word(dtype), _word(x.dtype)
    bits = convert(parts.bitcast(x, dtype=part), dtype=word)
    moved = parts.shift_left(bits, _places(x.shape, word, part))
    return parts.bitcast(reduce_sum(moved, axes=(len(x.shape) - 1,)), dtype=dtype)


def _places(shape: Any, word: np.dtype[Any], part: np.dtype[Any]) -> Any:
    """How many bits each part along the last axis is from the lowest."""
    number = iota(shape=shape, dtype=word, axis=len(shape) - 1)
    return mul(number, full(shape, word, 8 * part.itemsize))


def _word(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The unsigned integers of a dtype's width."""
    return np.dtype(f"uint{8 * dtype.itemsize}")
