"""Attention as programs: what `attention` and `attention_gradients` stand for.

Receives queries, keys and values, and which keys a query sees by their positions
(`Attended`); gives the means of the values, or records the equation that a backend may
have a routine for, with these programs in it. A CPU has programs of its own: it
computes by blocks, and differentiates that; else gradients are the usual formula, which
needs no weights but the logsumexp of each query's products.
Next on the walk: `blocked.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as np_
from fnx import dtypes
from fnx.config import traced_options
from fnx.control.attention import attention
from fnx.core.array import Array
from fnx.core.attended import Attended
from fnx.core.program import Program
from fnx.core.simplify import simplify
from fnx.core.trace import trace
from fnx.core.types import ArrayType
from fnx.nn.blocked import blocked, pays, seen
from fnx.nn.normalizing import logsumexp, softmax

Types = tuple[ArrayType, ...]


def attend(q: Array, k: Array, v: Array, attended: Attended) -> Array:
    """The mean of the values for each query, as one equation.

    The arrays are checked, and have axes for the batch, positions, heads, and numbers.
    """
    types = tuple([ArrayType(x.shape, x.dtype) for x in (q, k, v)])
    programs = _programs(types, attended, traced_options())
    out: Array
    (out,) = attention(q, k, v, attended=attended, **programs)
    return out


@functools.lru_cache(maxsize=256)
def _programs(
    types: Types, attended: Attended, options: tuple[Any, ...]
) -> dict[str, Program]:
    """The program of an attention, which gives the logsumexp too, and its gradients'.

    One for CPUs as well, whose gradients follow from it. They depend on all of the
    arguments, also on those that only tracing reads.
    """
    program = _held(functools.partial(means_and_sums, attended=attended), types)
    out, sums = program.output_types
    wider = *types, out, sums, out
    return {
        "program": program,
        "cpu": _held(functools.partial(on_cpu, attended=attended), types),
        "gradients": _held(functools.partial(by_formula, attended=attended), wider),
    }


def _held(function: Callable[..., Sequence[Any]], types: Types) -> Program:
    return simplify(trace(function, types, rule=True).program)


# ---------------------------------------------------------------- by positions


def band(length: int, count: int, left: int | None, right: int | None) -> Array | None:
    """Which of `count` keys each of `length` queries sees: axes b, k, g, t, s, or None.

    >>> print(band(3, 4, 1, 0)[0, 0, 0])
    [[ True False False False]
     [ True  True False False]
     [False  True  True False]]
    """
    rows = np_.reshape(np_.arange(length), (1, 1, 1, length, 1))
    columns = np_.reshape(np_.arange(count), (1, 1, 1, 1, count))
    return seen(rows, columns, left, right)


# ---------------------------------------------------------------- values


def grouped(q: Array, shared: int) -> Array:
    """The heads of queries by the head of keys that they share: axes b, t, k, g, h.

    >>> grouped(np_.zeros((2, 3, 6, 8)), 2).shape
    (2, 3, 2, 3, 8)
    """
    batch, length, heads, width = q.shape
    return np_.reshape(q, (batch, length, shared, heads // shared, width))


def scaled_products(q: Array, k: Array, scale: Any) -> Array:
    """The products of queries and keys, of axes b, k, g, t, s, in float32 at least."""
    groups = grouped(q, k.shape[2])
    wide = np_.promote_types(q.dtype, dtypes.float32)
    products = np_.einsum("btkgh,bskh->bkgts", groups, k, preferred_element_type=wide)
    return np_.multiply(products, np_.asarray(scale, wide))


def means(weights: Array, v: Array) -> Array:
    """The values' means by weights of axes b, k, g, t, s; axes b, t, k, g, h."""
    return np_.einsum("bkgts,bskh->btkgh", np_.asarray(weights, v.dtype), v)


def weights_of(products: Array, taken: Array | None) -> Array:
    """The softmax of each row, 0 for a row of which nothing is taken."""
    if taken is None:
        return softmax(products)
    some = np_.any(taken, -1, keepdims=True)
    return np_.where(some, softmax(products, where=_or_all(taken)), 0)


def _or_all(taken: Array) -> Array:
    """What is taken, and all of a row of which nothing is.

    Such a row is computed as if all were taken: its derivatives are finite then.
    """
    return np_.logical_or(taken, np_.logical_not(np_.any(taken, -1, keepdims=True)))


def means_and_sums(
    q: Array, k: Array, v: Array, attended: Attended
) -> tuple[Array, Array]:
    """The means, and the logsumexp of each query's products: axes b, n, t.

    >>> q, k = np_.zeros((2, 3, 4, 8)), np_.zeros((2, 5, 2, 8))
    >>> out, sums = means_and_sums(q, k, k, Attended(1.0))
    >>> out.shape, sums.shape
    ((2, 3, 4, 8), (2, 4, 3))
    """
    taken = band(q.shape[1], k.shape[1], attended.left, attended.right)
    products = scaled_products(q, k, attended.scale)
    out = np_.reshape(means(weights_of(products, taken), v), q.shape)
    sums = logsumexp(products, -1, where=None if taken is None else _or_all(taken))
    return out, np_.reshape(sums, (q.shape[0], q.shape[2], q.shape[1]))


def on_cpu(q: Array, k: Array, v: Array, attended: Attended) -> tuple[Array, Array]:
    """The same by blocks, where that pays."""
    way = blocked if pays(q.shape[1], k.shape[1], attended) else means_and_sums
    return way(q, k, v, attended)


# ---------------------------------------------------------------- derivatives


def by_formula(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    sums: Array,
    ct: Array,
    attended: Attended,
) -> tuple[Array, Array, Array]:
    """The cotangents of q, k and v, for one of the output.

    The weights are exponentials once more: nothing as large as the products is kept.
    """
    wide, shared = sums.dtype, k.shape[2]
    groups, batch = q.shape[2] // shared, q.shape[0]
    rows = (batch, shared, groups, q.shape[1], 1)
    products = scaled_products(q, k, attended.scale)
    exponents = np_.subtract(products, np_.reshape(sums, rows))
    taken = band(q.shape[1], k.shape[1], attended.left, attended.right)
    if taken is not None:
        exponents = np_.where(taken, exponents, -np_.inf)
    weights = np_.exp(exponents)
    moves = grouped(ct, shared)
    dv = np_.einsum("bkgts,btkgh->bskh", np_.asarray(weights, v.dtype), moves)
    dweights = np_.einsum("btkgh,bskh->bkgts", moves, v, preferred_element_type=wide)
    parts = np_.multiply(np_.asarray(ct, wide), np_.asarray(out, wide))
    steady = np_.reshape(np_.transpose(np_.sum(parts, -1), (0, 2, 1)), rows)
    dproducts = np_.multiply(weights, np_.subtract(dweights, steady))
    scaled = np_.asarray(np_.multiply(dproducts, attended.scale), q.dtype)
    dq = np_.einsum("bkgts,bskh->btkgh", scaled, k)
    dk = np_.einsum("bkgts,btkgh->bskh", scaled, grouped(q, shared))
    return np_.reshape(dq, q.shape), dk, dv
