"""Operations on the bits of numbers: reduce_precision, mulhi, rng_bit_generator.

Receives arrays, gives arrays. Next on the walk: `accuracy.py`.
"""

from __future__ import annotations

import enum
import math
from typing import Any

import ml_dtypes
import numpy as np

from fnx import dtypes, errors
from fnx.api.custom import custom_jvp
from fnx.api.custom_rule import linear_call
from fnx.core.array import Array
from fnx.lax.elementwise import operands
from fnx.numpy import ufuncs
from fnx.numpy.creation import full
from fnx.numpy.indexing import get
from fnx.numpy.joining import stack
from fnx.numpy.mathematics import copysign
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array, cast, shape_tuple
from fnx.numpy.shaping import ravel, reshape
from fnx.ops import elementwise as ops
from fnx.ops import parts
from fnx.ops.arithmetic import add, mul, select, sub
from fnx.ops.rng import threefry2x32
from fnx.ops.shape import iota

# ---------------------------------------------------------------- precision


def reduce_precision(
    operand: ArrayLike, exponent_bits: int, mantissa_bits: int
) -> Array:
    """The nearest numbers with fewer bits of exponent and mantissa, in the same dtype.

    Ties go to the even one. With fewer bits of exponent, what is too large becomes
    infinite, what would be subnormal becomes 0. A tangent is rounded likewise.

    >>> reduce_precision(1.2345678, 8, 7).item()
    1.234375
    """
    x = as_array("reduce_precision", operand)
    if not dtypes.is_float(x.dtype):
        raise errors.DTypeError(f"reduce_precision takes real floats, got {x.type}")
    if exponent_bits < 1 or mantissa_bits < 0:
        raise errors.OptionError(
            f"reduce_precision: {exponent_bits=} is 1 at least, {mantissa_bits=} is 0"
        )
    return _reduced(x, int(exponent_bits), int(mantissa_bits))


def _with_fewer_bits(x: Array, exponent_bits: int, mantissa_bits: int) -> Array:
    info = ml_dtypes.finfo(x.dtype)
    dropped = info.nmant - mantissa_bits
    y = x
    if dropped > 0:
        raw = parts.bitcast(x, dtype=_word(x.dtype))
        last = parts.and_(parts.shift_right_logical(raw, dropped), 1)
        half = add(last, (1 << (dropped - 1)) - 1)
        mask = (1 << (8 * x.dtype.itemsize)) - (1 << dropped)
        y = parts.bitcast(parts.and_(add(raw, half), mask), dtype=x.dtype)
    if exponent_bits < info.nexp:
        most = (1 << (exponent_bits - 1)) - 1
        infinite = copysign(full(x.shape, math.inf, x.dtype), x)
        if most + 1 < info.maxexp:
            y = select(ops.ge(ops.abs(y), 2.0 ** (most + 1)), infinite, y)
        y = select(ops.lt(ops.abs(y), 2.0 ** (1 - most)), copysign(0.0, x), y)
    return select(ops.ne(x, x), x, y)


def _word(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtypes.as_dtype(f"uint{8 * dtype.itemsize}")


_reduced = custom_jvp(_with_fewer_bits, nondiff_argnums=(1, 2))


@_reduced.defjvp
def _reduced_jvp(
    exponent_bits: int, mantissa_bits: int, primals: Any, tangents: Any
) -> tuple[Array, Array]:
    def rounded(_: Any, t: Array) -> Array:
        return _reduced(t, exponent_bits, mantissa_bits)

    # Rounding stands for the linear function that it is close to: the identity.
    (x,), (t,) = primals, tangents
    return rounded(None, x), linear_call(rounded, rounded, (), t)


# ---------------------------------------------------------------- products


def mulhi(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The upper half of the bits of products of integers, which have twice as many.

    >>> mulhi(1 << 30, 8).item()
    2
    """
    a, b = [as_array("mulhi", v) for v in operands("mulhi", x, y)]
    if a.dtype != b.dtype or not dtypes.is_integer(a.dtype):
        raise errors.DTypeError(
            f"mulhi takes integers of one dtype, got {a.type} and {b.type}"
        )
    width = 8 * a.dtype.itemsize
    if width == 64:
        return _high_of_64(a, b)
    kind = "int" if dtypes.is_signed(a.dtype) else "uint"
    wide = dtypes.as_dtype(f"{kind}{2 * width}")
    whole = mul(cast(a, wide), cast(b, wide))
    return cast(parts.shift_right_arithmetic(whole, width), a.dtype)


def _high_of_64(x: Array, y: Array) -> Array:
    """By products of halves, as on paper; signs are accounted for at the end."""
    a, b = [parts.bitcast(v, dtype=dtypes.uint64) for v in (x, y)]
    (a1, a0), (b1, b0) = _halves(a), _halves(b)
    carry = parts.shift_right_logical(mul(a0, b0), 32)
    middle, low = _halves(add(mul(a1, b0), carry))
    last = parts.shift_right_logical(add(mul(a0, b1), low), 32)
    high = add(add(mul(a1, b1), middle), last)
    if not dtypes.is_signed(x.dtype):
        return high
    # A negative number is read as itself and 2**64.
    high = sub(high, select(ops.lt(x, 0), b, 0))
    high = sub(high, select(ops.lt(y, 0), a, 0))
    return parts.bitcast(high, dtype=x.dtype)


def _halves(x: Array) -> tuple[Array, Array]:
    return parts.shift_right_logical(x, 32), parts.and_(x, 0xFFFFFFFF)


# ---------------------------------------------------------------- random bits


class RandomAlgorithm(enum.IntEnum):
    """How `rng_bit_generator` makes bits; Threefry-2x32 is what there is."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


def rng_bit_generator(
    key: ArrayLike,
    shape: Any,
    dtype: DTypeLike = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
) -> tuple[Array, Array]:
    """A new state, and random bits as unsigned integers.

    The state is two words of key and two of a counter, as uint32[4] or uint64[2]. The
    bits are those of Threefry-2x32, and no other library's; `fnx.random` is what
    programs should use.

    >>> state = np.array([1, 2, 0, 0], "uint32")
    >>> state, bits = rng_bit_generator(state, (3,))
    >>> state.tolist(), bits.shape
    ([1, 2, 2, 0], (3,))
    """
    if RandomAlgorithm(algorithm) is RandomAlgorithm.RNG_PHILOX:
        raise errors.OptionError("rng_bit_generator: only Threefry is there, no Philox")
    state, wanted = as_array("rng_bit_generator", key), dtypes.as_dtype(dtype)
    sizes = shape_tuple("rng_bit_generator", shape)
    words, counter = _state(state)
    if not dtypes.is_unsigned(wanted):
        raise errors.DTypeError(
            f"rng_bit_generator: bits are unsigned integers, not {wanted.name}"
        )
    size = math.prod(sizes)
    needed = 2 * size if wanted.itemsize == 8 else size
    blocks = -(-needed // 2)
    numbers = ufuncs.add(iota(shape=(blocks,), dtype=dtypes.uint64, axis=0), counter)
    both = [cast(half, dtypes.uint32) for half in _halves(numbers)]
    keys = [full((blocks,), word, dtypes.uint32) for word in words]
    flat = get(ravel(stack(threefry2x32(*keys, *both), 1)), slice(needed))
    if wanted.itemsize == 8:
        pairs = cast(reshape(flat, (size, 2)), dtypes.uint64)
        upper = parts.shift_left(get(pairs, (slice(None), 0)), 32)
        flat = parts.or_(upper, get(pairs, (slice(None), 1)))
    return _with_counter(state, add(counter, blocks)), reshape(
        cast(flat, wanted), sizes
    )


def _state(state: Array) -> tuple[list[Array], Array]:
    """The two words of the key, and the counter in 64 bits."""
    if state.dtype == dtypes.uint64 and state.shape == (2,):
        high, low = _halves(get(state, 0))
        return [cast(word, dtypes.uint32) for word in (low, high)], get(state, 1)
    if state.dtype == dtypes.uint32 and state.shape == (4,):
        low, high = [cast(get(state, i), dtypes.uint64) for i in (2, 3)]
        counter = parts.or_(parts.shift_left(high, 32), low)
        return [get(state, 0), get(state, 1)], counter
    raise errors.ShapeError(
        f"rng_bit_generator: the key is u32[4] or u64[2], got {state.type}"
    )


def _with_counter(state: Array, counter: Array) -> Array:
    if state.dtype == dtypes.uint64:
        return stack([get(state, 0), counter])
    high, low = [cast(half, dtypes.uint32) for half in _halves(counter)]
    return stack([get(state, 0), get(state, 1), low, high])
