"""Random bits: the key's stream, element by element.

Receives a key and a shape; element number n is the hash of n under the key, so that
every element can be computed alone, on any device. Next on the walk: `interval.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.ops.elementwise import convert
from fnx.ops.parts import or_, shift_left, xor
from fnx.random.arguments import Shape, shape_of
from fnx.random.keys import Words, hashed, key_words


def bits(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """Uniformly distributed bits as unsigned integers.

    `dtype` is an unsigned integer dtype; by default uint32 (uint64 under
    `default_dtypes(64)`).

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> bits(PRNGKey(0), (2,))
    Array([4070199207, 4202968722], dtype=uint32)
    """
    wide = dtypes.uint64 if dtypes.default_bits() == 64 else dtypes.uint32
    found = wide if dtype is None else dtypes.as_dtype(dtype)
    if not dtypes.is_unsigned(found):
        raise errors.DTypeError(
            errors.explain(f"bits: dtype={found}", "bits are unsigned integers")
        )
    words = key_words("bits", key)
    return random_bits(words, found.itemsize * 8, shape_of("bits", shape))


def random_bits(words: Words, width: int, shape: Shape) -> Any:
    """Bits of a key, given as its two words, in unsigned integers of that width."""
    return bits_of(hashed(words, shape), width)


def bits_of(words: Words, width: int) -> Any:
    """Unsigned integers of that width from the two words of a stream's elements."""
    high, low = words
    dtype = np.dtype(f"uint{width}")
    if width == 64:
        upper = shift_left(convert(high, dtype=dtype), 32)
        return or_(upper, convert(low, dtype=dtype))
    word = xor(high, low)
    return word if width == 32 else convert(word, dtype=dtype)
