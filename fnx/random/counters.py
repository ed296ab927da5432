"""Counters: the numbers 0, 1, 2, … of the samples, in two words of 32 bits.

Receives a shape, gives what `threefry2x32` encrypts: the row-major number of every
element. Next on the walk: `keys.py`, whose `split` counts keys.
"""

from __future__ import annotations

import math
from typing import Any

from fnx import dtypes
from fnx.ops.elementwise import convert
from fnx.ops.parts import shift_right_logical
from fnx.ops.shape import full, iota, reshaped


def counters(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The high and the low word of each element's number.

    >>> import fnx.runtime.eager
    >>> counters((2, 2))[1]
    Array([[0, 1],
           [2, 3]], dtype=uint32)
    """
    size = math.prod(shape)
    if size <= 2**32:
        low = iota(shape=(size,), dtype=dtypes.uint32, axis=0)
        return full(shape, dtypes.uint32, 0), reshaped(low, shape)
    numbers = reshaped(iota(shape=(size,), dtype=dtypes.uint64, axis=0), shape)
    high = shift_right_logical(numbers, 32)
    return tuple([convert(word, dtype=dtypes.uint32) for word in (high, numbers)])
