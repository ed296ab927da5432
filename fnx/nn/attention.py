"""Attention: dot_product_attention.

Receives queries, keys and values (and biases and masks), gives for each query the mean
of the values, weighted by the softmax of its products with the keys. Next on the walk:
`scaled.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import fnx.numpy as np_
from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.core.attended import Attended
from fnx.nn.attending import attend, band, means, scaled_products, weights_of
from fnx.nn.normalizing import logsumexp
from fnx.numpy.operands import ArrayLike, as_array
from fnx.ops.parts import stop_gradient

Sizes = Sequence[int | None]


def dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: ArrayLike | None = None,
    key_value_seq_lengths: ArrayLike | None = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """softmax(scale · query keyᵀ + bias) value, head by head.

    `query` has shape (batch, T, N, H) for T positions, N heads of H numbers; `key` and
    `value` (batch, S, K, H). N is a multiple of K, and so many heads of the query share
    one of the keys (grouped queries). The batch may be left out. The result has the
    shape of `query`, and the dtype that all three have.

    * `bias` is added to the products, `mask` (bool) says which take part; both have
      shape (batch, N, T, S), whose sizes may be 1.
    * `scale` is 1/sqrt(H) unless given.
    * `is_causal` lets position t see positions up to t, and `local_window_size` (left,
      right), or one number for both, so many before and after itself.
    * `query_seq_lengths` and `key_value_seq_lengths` are integers of shape (batch,):
      positions from there on take no part, and the results for such queries are 0.
    * `implementation` may name the only one there is, "xla", the one of the compiler.
    * with `return_residual` the result is a pair, with the logsumexp of the products
      (batch, T, N); it has no derivative.

    A query that sees no key gets 0, with derivative 0. Products and softmax are in
    float32 for 16-bit floats.

    Raises `ShapeError`, `DTypeError`, `OptionError`, each by the argument's name.

    Source: A. Vaswani et al., "Attention is all you need", 2017; J. Ainslie et al.,
    "GQA: training generalized multi-query transformer models", 2023.

    >>> import numpy as np
    >>> q, k = np.ones((2, 3, 4, 8)), np.ones((2, 5, 2, 8))
    >>> dot_product_attention(q, k, k, is_causal=True).shape
    (2, 3, 4, 8)
    """
    asker = "dot_product_attention"
    if implementation not in (None, "xla"):
        raise errors.OptionError(
            errors.explain(
                f"{asker}: implementation={implementation!r}",
                "the one implementation is that of the compiler",
                "leave it out",
            )
        )
    q, k, v = [_in_batch(x, name) for x, name in _named(query, key, value)]
    batch, _, shared, width = k.shape
    check_sizes(asker, "value", v, (batch, k.shape[1], shared, width))
    check_sizes(asker, "query", q, (batch, None, None, width))
    _check_same_dtype(q, k, v)
    if not shared or q.shape[2] % shared:
        raise errors.ShapeError(
            f"{asker}: the {q.shape[2]} heads of query are no multiple of the {shared} "
            f"of key"
        )
    factor = 1 / math.sqrt(width) if scale is None else scale
    left, right = _bounds(is_causal, local_window_size)
    lengths = (
        _lengths("query_seq_lengths", query_seq_lengths, batch),
        _lengths("key_value_seq_lengths", key_value_seq_lengths, batch),
    )
    shape = as_array(asker, query).shape
    plain = not return_residual and _is_number(factor)
    if plain and all(x is None for x in (bias, mask, *lengths)):
        attended = Attended(float(factor), left, right)
        return np_.reshape(attend(q, k, v, attended), shape)
    taken = _within(band(q.shape[1], k.shape[1], left, right), q, k, lengths)
    if mask is not None:
        chosen = _grouped(_of_products("mask", mask, q, k), shared)
        if not dtypes.is_bool(chosen.dtype):
            raise errors.DTypeError(
                errors.explain(
                    f"{asker}: mask is {chosen.type}",
                    "it says which products take part",
                    "pass bools, or add numbers by bias=",
                )
            )
        taken = chosen if taken is None else np_.logical_and(taken, chosen)
    added = None
    if bias is not None:
        added = _grouped(_of_products("bias", bias, q, k), shared)
    out, residual = _attention(q, k, v, factor, added, taken, return_residual)
    out = np_.reshape(out, shape)
    if not return_residual:
        return out
    return out, stop_gradient(np_.reshape(residual, shape[:-1]))


def _attention(
    q: Array,
    k: Array,
    v: Array,
    scale: Any,
    bias: Array | None,
    taken: Array | None,
    with_residual: bool,
) -> tuple[Array, Array]:
    """The mean of the values for each query, and the logsumexp of its products.

    Heads are apart by the head of the keys that they share: axes b, t, k, g, h.
    """
    products = scaled_products(q, k, scale)
    if bias is not None:
        products = np_.asarray(np_.add(products, bias), products.dtype)
    out = means(weights_of(products, taken), v)
    if not with_residual:
        return out, out
    sums = np_.asarray(logsumexp(products, -1, where=taken), q.dtype)
    return out, np_.transpose(sums, (0, 3, 1, 2))


def _is_number(scale: Any) -> bool:
    """Whether a factor is known while a function is traced."""
    return isinstance(scale, int | float | np.floating)


def _bounds(causal: bool, window: Any) -> tuple[int | None, int | None]:
    """How many positions before and after itself a query sees, if there are bounds."""
    left, right = (None, None) if window is None else _window(window)
    return left, 0 if causal else right


def _within(
    taken: Array | None,
    q: Array,
    k: Array,
    lengths: Sequence[Array | None],
) -> Array | None:
    """What is taken of queries and keys, of which sequences have so many."""
    rows = np_.reshape(np_.arange(q.shape[1]), (1, 1, 1, q.shape[1], 1))
    columns = np_.reshape(np_.arange(k.shape[1]), (1, 1, 1, 1, k.shape[1]))
    for places, ends in zip((rows, columns), lengths, strict=True):
        if ends is not None:
            inside = np_.less(places, np_.reshape(ends, (-1, 1, 1, 1, 1)))
            taken = inside if taken is None else np_.logical_and(taken, inside)
    return taken


def _window(window: Any) -> tuple[int, int]:
    many = (window, window) if isinstance(window, int) else window
    if (
        not isinstance(many, tuple | list)
        or len(many) != 2
        or not all(isinstance(size, int) and size >= 0 for size in many)
    ):
        raise errors.OptionError(
            f"dot_product_attention: local_window_size is a number of positions or a "
            f"pair of them, got {window!r}"
        )
    left, right = many
    return left, right


# ---------------------------------------------------------------- arguments


def _named(query: Any, key: Any, value: Any) -> list[tuple[Any, str]]:
    return [(query, "query"), (key, "key"), (value, "value")]


def _in_batch(x: Any, name: str) -> Array:
    """An argument with four axes, the first of which may have been left out."""
    array = as_array("dot_product_attention", x)
    if array.ndim not in (3, 4):
        raise errors.ShapeError(
            errors.explain(
                f"dot_product_attention: {name} is {array.type}",
                "it has axes for the batch, positions, heads, and numbers of a head",
                "the batch alone may be left out",
            )
        )
    return array if array.ndim == 4 else np_.expand_dims(array, 0)


def _of_products(name: str, x: Any, q: Array, k: Array) -> Array:
    """A bias or a mask with the four axes of the products, of their sizes or 1."""
    array = as_array("dot_product_attention", x)
    array = np_.expand_dims(array, tuple(range(4 - array.ndim)))
    sizes = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    fits = array.ndim == 4 and all(
        n in (1, size) for n, size in zip(array.shape, sizes, strict=True)
    )
    if not fits:
        raise errors.ShapeError(
            errors.explain(
                f"dot_product_attention: {name} is {as_array(name, x).type}",
                f"the products are {sizes}: batch, heads, queries, keys",
                "its sizes must be those or 1",
            )
        )
    return array


def _grouped(x: Array, shared: int) -> Array:
    """The axis of heads as two: that of the keys, and those that share it."""
    batch, heads, rows, columns = x.shape
    first = 1 if heads == 1 else shared
    return np_.reshape(x, (batch, first, heads // first, rows, columns))


def _lengths(name: str, x: Any, batch: int) -> Array | None:
    if x is None:
        return None
    array = as_array("dot_product_attention", x)
    check_sizes("dot_product_attention", name, array, (batch,))
    if not dtypes.is_integer(array.dtype):
        raise errors.DTypeError(
            f"dot_product_attention: {name} must be integers, got {array.type}"
        )
    return array


def _check_same_dtype(q: Array, k: Array, v: Array) -> None:
    if not (q.dtype == k.dtype == v.dtype and dtypes.is_float(q.dtype)):
        raise errors.DTypeError(
            errors.explain(
                "dot_product_attention: query, key and value have one float dtype",
                f"they are {q.type}, {k.type} and {v.type}",
                "convert them",
            )
        )


def check_sizes(asker: str, name: str, x: Array, sizes: Sizes) -> None:
    """Raises unless an array has a shape, of which `None` is any size."""
    fits = x.ndim == len(sizes) and all(
        size in (None, n) for n, size in zip(x.shape, sizes, strict=True)
    )
    if not fits:
        shown = ", ".join(["…" if size is None else str(size) for size in sizes])
        raise errors.ShapeError(f"{asker}: {name} must be ({shown}), got {x.type}")
