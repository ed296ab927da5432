"""Random integers and booleans: randint, bernoulli, rademacher, geometric.

Receives a key and bounds or probabilities. `randint` gives JAX's numbers: the remainder
of 64 random bits (128 for 64-bit integers) by the span. Next on the walk:
`drawing.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.ops.arithmetic import add, eq, mul, neg, select, sub
from fnx.ops.elementwise import (
    clamp,
    convert,
    div,
    floor,
    gt,
    le,
    log,
    log1p,
    lt,
    rem,
)
from fnx.ops.families import literal
from fnx.ops.parts import and_
from fnx.ops.shape import scalar
from fnx.random.arguments import (
    SCALARS,
    DType,
    Shape,
    finfo,
    int_dtype,
    parameters,
    sample_shape,
    shape_of,
    spread,
    value_of,
)
from fnx.random.drawing import draw
from fnx.random.interval import unit_uniform
from fnx.random.keys import Words, key_words, row, split_words
from fnx.random.stream import random_bits


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Array:
    """Uniform integers in [minval, maxval), of an integer dtype (int32 by default).

    The bounds are integers that broadcast to `shape`; those that the dtype cannot hold
    are clipped to it, and a `maxval` above it includes the dtype's largest number.
    Where `maxval <= minval` every sample is `minval`.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> randint(PRNGKey(0), (4,), 0, 10)
    Array([9, 0, 2, 3], dtype=int32)
    """
    dtype = int_dtype("randint", dtype)
    bounds = {"minval": minval, "maxval": maxval}
    read = {name: _bound(name, x) for name, x in bounds.items()}
    sizes = shape_of("randint", shape)
    sample_shape("randint", sizes, **read)
    low, high = read["minval"], read["maxval"]
    words = key_words("randint", key)
    if dtype.itemsize >= 4:
        return integers_between(words, sizes, low, high, dtype)
    # Small integers are drawn as int32, so that the remainder is less biased.
    info = np.iinfo(dtype)
    low = _clipped(low, int(info.min), int(info.max), dtypes.int32)
    high = _clipped(high, int(info.min), int(info.max) + 1, dtypes.int32)
    drawn = integers_between(words, sizes, low, high, dtypes.int32)
    return convert(drawn, dtype=dtype)


def _bound(name: str, x: Any) -> Any:
    """A bound as a Python integer or an integer array."""
    value = value_of("randint", name, x)
    dtype = dtypes.scalar_dtype(value) if value.__class__ in SCALARS else value.dtype
    if not dtypes.is_integer(dtype):
        raise errors.DTypeError(
            errors.explain(
                f"randint: {name} is {getattr(value, 'type', value)}",
                "the bounds of integers are integers",
                "convert it",
            )
        )
    return value


def _clipped(x: Any, low: int, high: int, dtype: DType) -> Any:
    """A bound in another dtype, clipped to a range that the dtype holds."""
    if not isinstance(x, Array):
        value = x if isinstance(x, int) else int(x.value)
        return literal(min(max(value, low), high), dtype)
    info = np.iinfo(x.dtype)
    limits = max(low, int(info.min)), min(high, int(info.max))
    first, last = [literal(n, x.dtype) for n in limits]
    return convert(clamp(first, x, last), dtype=dtype)


def integers_between(
    words: Words, shape: Shape, low: Any, high: Any, dtype: DType
) -> Any:
    """Uniform integers between bounds of any integer dtype, as 32 or 64 bits."""
    info = np.iinfo(dtype)
    width = info.bits
    unsigned = np.dtype(f"uint{width}")
    beyond = _exceeds(high, int(info.max))
    limits = int(info.min), int(info.max)
    low, high = [_spread(_clipped(x, *limits, dtype), shape) for x in (low, high)]
    span = convert(sub(high, low), dtype=unsigned)
    span = select(le(high, low), 1, span)
    # One more than the largest number may be all 2**width of them: a span of 0.
    span = select(and_(_spread(beyond, shape), gt(high, low)), add(span, 1), span)
    upper, lower = [random_bits(w, width, shape) for w in split_words(words, 2)]
    half = rem(literal(2 ** (width // 2), unsigned), span)
    multiplier = rem(mul(half, half), span)
    offset = add(mul(rem(upper, span), multiplier), rem(lower, span))
    offset = select(eq(span, 0), lower, rem(offset, span))
    return add(low, convert(offset, dtype=dtype))


def _exceeds(high: Any, largest: int) -> Any:
    """Whether an upper bound lies beyond the largest number of the dtype."""
    if not isinstance(high, Array):
        value = high if isinstance(high, int) else int(high.value)
        return scalar(value > largest, dtypes.bool_)
    if largest >= np.iinfo(high.dtype).max:
        return scalar(False, dtypes.bool_)
    return gt(high, literal(largest, high.dtype))


def _spread(x: Any, shape: Shape) -> Any:
    return spread(x, shape) if isinstance(x, Array) else x


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Array:
    """True with probability `p`, a float or an array of floats.

    The default shape is that of `p`. `mode="low"` resolves probabilities to the epsilon
    of the dtype of `p`, `"high"` to its square.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> bernoulli(PRNGKey(0), 0.5, (3,))
    Array([False, False,  True], dtype=bool)
    """
    if mode not in ("low", "high"):
        raise errors.OptionError(f"bernoulli: mode is 'low' or 'high', got {mode!r}")
    value = value_of("bernoulli", "p", p)
    dtype = dtypes.scalar_dtype(value) if value.__class__ in SCALARS else value.dtype
    if not dtypes.is_float(dtype):
        raise errors.DTypeError(
            errors.explain(
                f"bernoulli: p is {getattr(value, 'type', value)}",
                "a probability is a float",
                "convert it",
            )
        )
    shape, (limit,) = parameters("bernoulli", shape, dtype, p=value)
    words = key_words("bernoulli", key)
    if mode == "low":
        return lt(unit_uniform(words, shape, dtype), limit)
    both = unit_uniform(words, (2, *shape), dtype)
    coarse, fine = row(both, 0), row(both, 1)
    return lt(mul(fine, 2.0 ** -finfo(dtype).nmant), sub(limit, coarse))


def rademacher(key: Any, shape: Any = (), dtype: Any = None) -> Array:
    """-1 and 1 with equal probability, of any dtype of numbers (int32 by default).

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> rademacher(PRNGKey(0), (3,))
    Array([-1, -1,  1], dtype=int32)
    """
    found = dtypes.as_dtype(int if dtype is None else dtype)
    words = key_words("rademacher", key)
    return random_signs(words, shape_of("rademacher", shape), found)


def random_signs(words: Words, shape: Shape, dtype: DType) -> Any:
    """-1 and 1 with equal probability."""
    heads = lt(unit_uniform(words, shape, dtypes.default_float()), 0.5)
    one = scalar(1, dtype)
    return select(heads, one, neg(one))


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None) -> Array:
    """The number of trials up to the first success, each of probability `p`.

    The default shape is that of `p`, the dtype an integer one (int32 by default).
    """
    dtype = int_dtype("geometric", dtype)
    value = value_of("geometric", "p", p)
    wide = dtypes.default_float() if value.__class__ in SCALARS else value.dtype
    wide = wide if dtypes.is_float(wide) else dtypes.default_float()
    shape, probability = parameters("geometric", shape, wide, p=value)
    words = key_words("geometric", key)
    return draw(_geometric, words, probability, shape, wide, dtype)


def _geometric(
    words: Words, probability: Any, shape: Shape, wide: DType, dtype: DType
) -> Any:
    u = unit_uniform(words, shape, wide)
    u = select(eq(u, 0), 1, u)  # log(0) would be no number of trials
    trials = div(log(u), log1p(neg(probability)))
    return convert(add(floor(trials), 1), dtype=dtype)
