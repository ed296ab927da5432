"""The Gumbel distribution: noise whose argmax is a categorical sample.

Receives a key, gives -log(-log(u)) of uniform u, in three resolutions. Next on the
walk: `choosing.py`.
"""

from __future__ import annotations

from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.ops.arithmetic import add, eq, mul, neg, select, sub
from fnx.ops.elementwise import convert, ge, log, log1p, lt
from fnx.ops.parts import and_, bitcast, clz, not_, or_, shift_left, shift_right_logical
from fnx.random.arguments import DType, Shape, finfo, float_dtype, shape_of
from fnx.random.drawing import draw
from fnx.random.interval import uniform_between, unit_uniform
from fnx.random.keys import Words, key_words, row
from fnx.random.stream import random_bits

MODES = (None, "low", "high", "highest")


def gumbel(
    key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None
) -> Array:
    """Gumbel distributed numbers: density exp(-x - exp(-x)).

    `mode` is the resolution of the uniform numbers behind them: "low" (the default)
    that of the dtype, "high" its square, "highest" 64 bits for float32 (else "high").

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> gumbel(PRNGKey(0), (2, 3)).shape
    (2, 3)
    """
    dtype = float_dtype("gumbel", dtype)
    return gumbel_of(key_words("gumbel", key), shape_of("gumbel", shape), dtype, mode)


def gumbel_of(words: Words, shape: Shape, dtype: DType, mode: str | None) -> Any:
    """Gumbel distributed numbers from the words of a key."""
    if mode not in MODES:
        raise errors.OptionError(
            f"gumbel: mode is 'low', 'high' or 'highest', got {mode!r}"
        )
    return draw(_gumbel, words, (), shape, dtype, mode)


def _gumbel(words: Words, shape: Shape, dtype: DType, mode: str | None) -> Any:
    if mode in (None, "low"):
        tiny = float(finfo(dtype).tiny)
        u = uniform_between(words, shape, dtype, tiny, 1.0)
        return neg(log(neg(log(u))))
    if mode == "highest" and dtype == dtypes.float32:
        return _highest(words, shape)
    return neg(log(neg(log1p(neg(_fine_uniform(words, shape, dtype))))))


def _fine_uniform(words: Words, shape: Shape, dtype: DType) -> Any:
    """Uniform numbers in (0, 1) that are twice as fine where they are below 1/2."""
    info = finfo(dtype)
    both = unit_uniform(words, (2, *shape), dtype)
    high, low = row(both, 0), row(both, 1)
    fine = add(add(mul(low, 2.0**-info.nmant), high), float(info.tiny))
    return select(ge(high, 0.5), high, fine)


def _highest(words: Words, shape: Shape) -> Any:
    """From 64-bit fixed-point numbers u: by u itself below 1/2, else by 1 - u."""
    both = random_bits(words, 32, (2, *shape))
    high, low = row(both, 0), row(both, 1)
    below = lt(high, 1 << 31)
    carry = convert(eq(low, (1 << 32) - 1), dtype=dtypes.uint32)
    opposite = add(not_(high), carry), add(not_(low), 1)
    pair = zip((high, low), opposite, strict=True)
    x = _fixed_to_float(*[select(below, word, other) for word, other in pair])
    return neg(log(neg(select(below, log1p(neg(x)), log(x)))))


def _fixed_to_float(high: Any, low: Any) -> Any:
    """A 64-bit fixed-point number in [0, 1) as float32, without rounding up."""
    zeros, more = clz(high), clz(low)
    empty = eq(zeros, 32)
    rest = select(
        empty, shift_left(low, more), shift_right_logical(low, sub(32, zeros))
    )
    mantissa = shift_right_logical(or_(shift_left(high, zeros), rest), 8)
    mantissa = and_(mantissa, (1 << 23) - 1)
    exponent = sub(126, select(empty, add(more, 32), zeros))
    exponent = and_(shift_left(exponent, 23), (1 << 30) - (1 << 22))
    return bitcast(or_(exponent, mantissa), dtype=dtypes.float32)
