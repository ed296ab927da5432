"""Attention by blocks of queries: what a CPU computes of it fits in its caches.

Receives queries, keys and values; gives the mean of the values for each query, weighted
by the softmax of its products with the keys. The products of a block of queries are
made, used and forgotten; the backward pass makes them again. A block sees only keys
that one of its queries may see. Threads take whole heads. Next on the walk:
`attention.py`.

Source: T. Dao et al., "FlashAttention: Fast and memory-efficient exact attention with
IO-awareness", 2022, whose blocks of keys a CPU's larger caches can do without.
"""

from __future__ import annotations

from typing import Any

import fnx.numpy as np_
from fnx import dtypes, lax
from fnx.api.loops import map_locally
from fnx.api.remat import checkpoint
from fnx.config import for_any_size
from fnx.core.array import Array
from fnx.core.attended import Attended
from fnx.nn.normalizing import logsumexp, softmax
from fnx.ops.pieces import part_of

ROWS = 128
"""Queries of a block: their products with all keys fit in the second cache, mostly."""

SEGMENTS = 8
"""Where there is a bound on what queries see, heads are cut into at most so many
segments, each with the keys that it sees."""


def pays(queries: int, keys: int, attended: Attended) -> bool:
    """Whether so many queries are worth blocks, and see keys each.

    Blocks of other sizes are another program: one for any size makes none.
    """
    if for_any_size.get():
        return False
    least = 1 if _is_bounded(attended) else 2
    long = min(queries, keys) >= ROWS // 2 and queries * keys >= least * ROWS**2
    return long and attended.sees_some(queries, keys)


def blocked(q: Array, k: Array, v: Array, attended: Attended) -> tuple[Array, Array]:
    """Attention of queries which see a key each, and the logsumexp of their products.

    q has shape (batch, T, N, H), k and v (batch, S, K, H) with a multiple N of K; the
    first result is like q, the second one (batch, N, T). Products and softmax of 16-bit
    floats are in float32.
    """
    batch, length, heads, width = q.shape
    shared = k.shape[2]
    groups = np_.reshape(q, (batch, length, shared, heads // shared, width))
    rows = _heads(groups, 0, 2, 3, 1, 4), _heads(k, 0, 2, 1, 3), _heads(v, 0, 2, 1, 3)

    @checkpoint
    def head(row: Any) -> tuple[Array, Array]:
        q, k, v = row
        return _head(q, k, v, attended)

    means, sums = map_locally(head, rows)
    means = np_.reshape(means, (batch, heads, length, width))
    return np_.transpose(means, (0, 2, 1, 3)), np_.reshape(sums, (batch, heads, length))


def _heads(x: Array, *order: int) -> Array:
    """The heads of all members of a batch, one after the other."""
    turned = np_.transpose(x, order)
    return np_.reshape(turned, (turned.shape[0] * turned.shape[1], *turned.shape[2:]))


def _head(q: Array, k: Array, v: Array, attended: Attended) -> tuple[Array, Array]:
    """The queries (groups, T, H) of heads that share keys and values (S, H)."""
    length, count = q.shape[1], k.shape[0]
    parts = []
    for begin, end in _segments(length, attended):
        low, high = _keys(begin, end, count, attended)
        both = part_of(k, 0, low, high), part_of(v, 0, low, high)
        parts.append(_segment(part_of(q, 1, begin, end), *both, begin, low, attended))
    means, sums = zip(*parts, strict=True)
    return np_.concatenate(means, axis=1), np_.concatenate(sums, axis=1)


def _segment(
    q: Array, k: Array, v: Array, begin: int, low: int, attended: Attended
) -> tuple[Array, Array]:
    """Queries (groups, T, H) from position `begin` on, with keys from `low` on."""

    @checkpoint
    def block(q: Array, first: Array, k: Array, v: Array) -> tuple[Array, Array]:
        return _block(q, first, k, v, low, attended)

    groups, length, width = q.shape
    size = next(size for size in (ROWS, ROWS // 2, length) if length % size == 0)
    if length == size:
        return block(q, np_.asarray(begin, dtypes.int32), k, v)
    rows = np_.moveaxis(np_.reshape(q, (groups, -1, size, width)), 1, 0)
    firsts = np_.arange(begin, begin + length, size, dtype=dtypes.int32)

    def each(row: Any) -> tuple[Array, Array]:
        q, first = row
        return block(q, first, k, v)

    means, sums = [np_.moveaxis(x, 0, 1) for x in map_locally(each, (rows, firsts))]
    return np_.reshape(means, q.shape), np_.reshape(sums, (groups, length))


def _block(
    q: Array, first: Array, k: Array, v: Array, low: int, attended: Attended
) -> tuple[Array, Array]:
    """Queries of which the first is at position `first`, with keys from `low` on."""
    left, right = attended.left, attended.right
    length, count = q.shape[1], k.shape[0]
    start = np_.asarray(low, dtypes.int32)
    if left is not None and right is not None and length + left + right < count:
        most = length + left + right
        there = np_.clip(np_.subtract(first, left + low), 0, count - most)
        k, v = [lax.dynamic_slice_in_dim(x, there, most) for x in (k, v)]
        start, count = np_.add(start, there), most
    wide = np_.promote_types(q.dtype, dtypes.float32)
    products = np_.einsum("gth,sh->gts", q, k, preferred_element_type=wide)
    products = np_.multiply(products, np_.asarray(attended.scale, wide))
    rows = np_.add(first, np_.arange(length, dtype=dtypes.int32))[:, None]
    columns = np_.add(start, np_.arange(count, dtype=dtypes.int32))
    taken = seen(rows, columns, left, right)
    weights = np_.asarray(softmax(products, where=taken), v.dtype)
    means = np_.einsum("gts,sh->gth", weights, v)
    return means, logsumexp(products, -1, where=taken)


# ---------------------------------------------------------------- positions


def seen(
    rows: Array, columns: Array, left: int | None, right: int | None
) -> Array | None:
    """Which keys in columns the queries in rows see by their positions, if not all."""
    found = None
    if right is not None:
        found = _within(np_.subtract(columns, rows), right)
    if left is not None:
        late = _within(np_.subtract(rows, columns), left)
        found = late if found is None else np_.logical_and(found, late)
    return found


def _within(distances: Array, bound: int) -> Array:
    """Which of some distances are within a bound, which may be larger than any."""
    return np_.less_equal(distances, min(bound, 2**31 - 1))


def _is_bounded(attended: Attended) -> bool:
    return attended.left is not None or attended.right is not None


def _segments(length: int, attended: Attended) -> list[tuple[int, int]]:
    """Where segments begin and end; the last one has what is left.

    >>> _segments(300, Attended(1.0, right=0))
    [(0, 64), (64, 128), (128, 192), (192, 256), (256, 300)]
    >>> _segments(300, Attended(1.0))
    [(0, 256), (256, 300)]
    """
    least, most = (ROWS // 2, SEGMENTS) if _is_bounded(attended) else (ROWS, 1)
    whole = length // least * least
    step = max(-(-whole // (least * most)), 1) * least
    ends = [*range(step, whole, step), whole, length]
    begins = [0, *ends[:-1]]
    return [pair for pair in zip(begins, ends, strict=True) if pair[0] < pair[1]]


def _keys(begin: int, end: int, count: int, attended: Attended) -> tuple[int, int]:
    """The first of so many keys that some queries see, and the one behind the last."""
    left, right = attended.left, attended.right
    low = 0 if left is None else max(begin - left, 0)
    high = count if right is None else min(end + right, count)
    return min(low, count), high
