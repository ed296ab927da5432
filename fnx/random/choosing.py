"""Random choices: permutation, choice, categorical.

Receives a key and what to choose from; gives it in random order, some of it, or
indices. A permutation sorts by random bits, often enough that ties do not matter.
Next on the walk: `fnx/nn`, whose initializers draw from here.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.arguments import as_array
from fnx.core.array import Array
from fnx.ops.arithmetic import add, mul, select, sub
from fnx.ops.cumulative import cumsum
from fnx.ops.elementwise import convert, le, log, lt, min
from fnx.ops.families import literal
from fnx.ops.gather import gather
from fnx.ops.parts import and_
from fnx.ops.pieces import part_of
from fnx.ops.rearrange import without
from fnx.ops.reduce import argmax
from fnx.ops.shape import full, iota, permute, reshape, reshaped
from fnx.ops.sort import sort, top_k
from fnx.ops.window_dims import WindowDims
from fnx.random.arguments import Shape, shape_of, spread
from fnx.random.drawing import draw
from fnx.random.extreme import gumbel_of
from fnx.random.integers import integers_between
from fnx.random.interval import unit_uniform
from fnx.random.keys import Words, key_words, row, split_words
from fnx.random.stream import random_bits


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Array:
    """An array in random order along an axis, or, for an integer n, 0 to n - 1 so.

    `independent=True` shuffles every vector along the axis by itself, otherwise all are
    shuffled alike.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> permutation(PRNGKey(0), 5)
    Array([0, 1, 4, 3, 2], dtype=int32)
    """
    words = key_words("permutation", key)
    array = _population("permutation", x)
    axis = _axis("permutation", axis, array.ndim)
    if independent or array.ndim == 1:
        return _shuffled(words, array, axis)
    return taken(array, _shuffled(words, _range(array.shape[axis]), 0), axis)


def choice(
    key: Any,
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """Random elements of an array along an axis, or, for an integer n, of 0 to n - 1.

    The samples have the shape of `a` with `shape` in the place of the axis.
    `replace=False` takes no element twice. `p` has the probabilities, one for each
    element (they need not add up to 1); one of probability 0 is never taken as long as
    there are others. `mode` is that of `gumbel`, used with `p` and `replace=False`.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> choice(PRNGKey(0), 10, (4,))
    Array([9, 0, 2, 3], dtype=int32)
    """
    words = key_words("choice", key)
    array = _population("choice", a)
    axis = _axis("choice", axis, array.ndim)
    sizes, count = shape_of("choice", shape), array.shape[axis]
    draws = math.prod(sizes)
    if not draws:
        empty = (*array.shape[:axis], *sizes, *array.shape[axis + 1 :])
        return full(empty, array.dtype, 0)
    _check_draws(draws, count, replace)
    if p is None and replace:
        places = integers_between(words, sizes, 0, count, dtypes.default_int())
    elif p is None:
        places = part_of(_shuffled(words, _range(count), 0), 0, 0, draws)
    else:
        weights = _weights(p, count)
        places = _weighted(words, weights, sizes, draws, replace, mode)
    places = reshaped(places, sizes)
    is_range = not isinstance(a, Array | np.ndarray) or not a.ndim
    return places if is_range else taken(array, places, axis)


def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
) -> Array:
    """Indices along an axis, of probability proportional to exp(logits).

    The shape is that of `logits` without the axis, or one that it broadcasts to.
    `replace=False` draws the samples of leading axes of `shape` without repetition;
    then the others must be those of `logits`. `mode` is that of `gumbel`. A logit of
    -inf is never drawn as long as there are others.

    >>> import fnx.runtime.eager
    >>> from fnx.random import PRNGKey
    >>> never = -np.inf
    >>> logits = np.float32([[0.0, 0.0, never], [never, never, 0.0]])
    >>> categorical(PRNGKey(0), logits)
    Array([1, 2], dtype=int32)
    """
    words = key_words("categorical", key)
    scores = as_array(logits, "categorical", "logits")
    if not dtypes.is_float(scores.dtype):
        raise errors.DTypeError(
            errors.explain(
                f"categorical: logits is {scores.type}",
                "logits are floats",
                "convert them",
            )
        )
    axis = _axis("categorical", axis, scores.ndim)
    batch = without(scores.shape, axis)
    sizes = batch if shape is None else shape_of("categorical", shape)
    _check_batch(sizes, batch, scores, replace)
    prefix = sizes[: len(sizes) - len(batch)]
    if not replace:
        return _distinct(words, scores, axis, sizes, prefix, mode)
    inner = sizes[len(prefix) :]
    whole = (*prefix, *inner[:axis], scores.shape[axis], *inner[axis:])
    noise = gumbel_of(words, whole, scores.dtype, mode)
    total = add(noise, spread(scores, whole))
    index_dtype = dtypes.default_int()
    return argmax(total, axis=len(prefix) + axis, index_dtype=index_dtype)


# ---------------------------------------------------------------- parts


def _shuffled(words: Words, x: Any, axis: int) -> Any:
    """The array sorted by random bits along the axis, more than once if it is long.

    With r rounds the order is uniform unless two elements draw the same bits in each,
    whose probability is about 1/size: r is that of TensorFlow's `random_shuffle`.
    """
    rounds = math.ceil(3 * math.log(x.size or 1) / math.log(2**32 - 1))
    for _ in range(rounds):
        words, here = split_words(words, 2)
        random = random_bits(here, 32, x.shape)
        x = sort(random, x, axis=axis, num_keys=1, stable=True)[1]
    return x


def _distinct(
    words: Words,
    scores: Any,
    axis: int,
    sizes: Shape,
    prefix: Shape,
    mode: str | None,
) -> Any:
    """The places of the largest noisy scores (the Gumbel top-k trick)."""
    count = math.prod(prefix)
    if count > scores.shape[axis]:
        raise errors.ShapeError(
            errors.explain(
                f"categorical: {count} samples without replacement",
                f"there are {scores.shape[axis]} classes",
            )
        )
    noise = gumbel_of(words, scores.shape, scores.dtype, mode)
    _, places = top_k(add(noise, scores), k=count, axis=axis)
    others = [d for d in range(scores.ndim) if d != axis]
    return reshaped(permute(places, dims=(axis, *others)), sizes)


def _noisy_logarithms(words: Words, p: Any, shape: Shape, mode: str | None) -> Any:
    return add(gumbel_of(words, shape, p.dtype, mode), log(p))


def _weighted(
    words: Words, p: Any, sizes: Shape, draws: int, replace: bool, mode: str | None
) -> Any:
    """Indices of those probabilities, as default integers."""
    dtype = dtypes.default_int()
    if not replace:
        scores = draw(_noisy_logarithms, words, (p,), p.shape, mode)
        places = top_k(scores, k=draws, axis=0)[1]
        return convert(places, dtype=dtype)
    sums = cumsum(p, axis=0, reverse=False)
    total = spread(row(sums, p.shape[0] - 1), sizes)
    u = unit_uniform(words, sizes, p.dtype)
    return _first_at_least(sums, mul(total, sub(1.0, u)), dtype)


def _first_at_least(rising: Any, x: Any, dtype: np.dtype[Any]) -> Any:
    """For each x the place of the first element that is not smaller.

    Binary search by the bits of the place, the highest first.
    """
    size = rising.shape[0]
    place = full(x.shape, dtype, 0)
    for bit in reversed(range(size.bit_length())):
        ahead = add(place, literal(1 << bit, dtype))
        element = taken(rising, min(sub(ahead, 1), size - 1), 0)
        passed = and_(le(ahead, size), lt(element, x))
        place = select(passed, ahead, place)
    return place


def taken(x: Any, places: Any, axis: int) -> Any:
    """The elements at places along an axis; the axes of `places` come in its place."""
    first, last = axis, axis + places.ndim
    ndim = x.ndim - 1 + places.ndim
    dims = WindowDims(
        offset_dims=tuple([d for d in range(ndim) if not first <= d < last]),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    sizes = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    vectors = reshape(places, shape=(*places.shape, 1))
    return gather(x, vectors, dims=dims, sizes=sizes, mode="promise_in_bounds")


def _range(size: int) -> Any:
    return iota(shape=(size,), dtype=dtypes.default_int(), axis=0)


# ---------------------------------------------------------------- checks


def _population(sampler: str, x: Any) -> Any:
    """What is chosen from: an array with axes, or the numbers below an integer."""
    if isinstance(x, Array | np.ndarray) and x.ndim:
        return as_array(x, sampler, "the population")
    try:
        return _range(operator.index(x))
    except TypeError:
        raise errors.ArgumentError(
            errors.explain(
                f"{sampler} from {x!r}", "it takes an integer or an array with an axis"
            )
        ) from None


def _axis(sampler: str, axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise errors.AxisError(
            f"{sampler}: axis {axis} is out of range for an array of rank {ndim}"
        )
    return axis % ndim


def _check_draws(draws: int, count: int, replace: bool) -> None:
    if not count:
        raise errors.ShapeError("choice: there is nothing to choose from")
    if not replace and draws > count:
        raise errors.ShapeError(
            errors.explain(
                f"choice: {draws} samples without replacement",
                f"there are {count} elements",
                "draw fewer, or pass replace=True",
            )
        )


def _weights(p: Any, count: int) -> Any:
    """The probabilities as an array of floats."""
    array = as_array(p, "choice", "p")
    if array.shape != (count,):
        raise errors.ShapeError(
            errors.explain(
                f"choice: p is {array.type}", f"there are {count} elements to weigh"
            )
        )
    if dtypes.is_float(array.dtype):
        return array
    return convert(array, dtype=dtypes.default_float())


def _check_batch(sizes: Shape, batch: Shape, scores: Any, replace: bool) -> None:
    tail = sizes[len(sizes) - len(batch) :]
    fits = len(tail) == len(batch) and all(
        n == size or (n == 1 and replace) for n, size in zip(batch, tail, strict=True)
    )
    if not fits:
        raise errors.ShapeError(
            errors.explain(
                f"categorical: logits is {scores.type}",
                f"its shape without the axis, {batch}, does not fit shape={sizes}",
            )
        )
