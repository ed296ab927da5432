"""Uniform real numbers, from which the other distributions are made.

Receives a key; the highest bits of its stream become the mantissa of a number in
[1, 2), less 1. Next on the walk: `integers.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.ops.arithmetic import add, mul, select, sub
from fnx.ops.elementwise import convert, ge, lt, max
from fnx.ops.families import literal
from fnx.ops.parts import and_, bitcast, nextafter, or_, shift_right_logical
from fnx.random.arguments import DType, Shape, finfo, float_dtype, parameters
from fnx.random.keys import Words, hashed, key_words
from fnx.random.stream import bits_of


def uniform(
    key: Any,
    shape: Any = (),
    dtype: Any = None,
    minval: Any = 0.0,
    maxval: Any = 1.0,
) -> Array:
    """Uniform numbers in [minval, maxval), of a float dtype (float32 by default).

    The bounds broadcast to `shape`. The upper one is never given, even where rounding
    leads to it; where `maxval <= minval` every sample is `minval`.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> uniform(PRNGKey(0), (2,))
    Array([0.947667 , 0.9785799], dtype=float32)
    """
    dtype = float_dtype("uniform", dtype)
    bounds = {"minval": minval, "maxval": maxval}
    shape, (low, high) = parameters("uniform", shape, dtype, **bounds)
    unit = unit_uniform(key_words("uniform", key), shape, dtype)
    if minval.__class__ is maxval.__class__ is float and (minval, maxval) == (0, 1):
        return unit
    x = between(unit, low, high)
    reached = and_(ge(x, high), lt(low, high))
    return select(reached, nextafter(high, low), x)


def unit_uniform(words: Words, shape: Shape, dtype: DType) -> Any:
    """Uniform numbers in [0, 1): the multiples of the dtype's epsilon."""
    return unit_of(hashed(words, shape), dtype)


def unit_of(words: Words, dtype: DType) -> Any:
    """Uniform numbers in [0, 1) from the two words of a stream's elements."""
    info = finfo(dtype)
    width = 8 if info.nmant < 8 else info.bits
    random = bits_of(words, width)
    integer = np.dtype(f"uint{info.bits}")
    random = convert(random, dtype=integer) if width != info.bits else random
    mantissa = shift_right_logical(random, width - info.nmant)
    one = np.asarray(1, dtype).view(integer).item()
    return sub(bitcast(or_(mantissa, one), dtype=dtype), 1.0)


def between(unit: Any, low: Any, high: Any) -> Any:
    """Numbers in [0, 1) stretched to [low, high], as JAX rounds it."""
    return max(low, add(mul(unit, sub(high, low)), low))


def uniform_between(
    words: Words, shape: Shape, dtype: DType, low: float, high: float
) -> Any:
    """Uniform numbers between constants, for the samplers that transform them."""
    unit = unit_uniform(words, shape, dtype)
    return between(unit, literal(low, dtype), literal(high, dtype))
