"""Lanes: samplers that draw until they accept, all elements of an array at once.

Receives keys, one for each element (or for each row of them), and gives new keys and
numbers of theirs, element by element; a loop of rounds then runs over whole arrays,
which is fast on vector units and on GPUs. Next on the walk: `gammas.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as np_
from fnx import dtypes
from fnx.api.custom_vmap import custom_vmap
from fnx.ops.rng import threefry2x32
from fnx.ops.shape import full
from fnx.random.arguments import DType
from fnx.random.continuous import normal_of
from fnx.random.counters import counters
from fnx.random.interval import unit_of
from fnx.random.keys import Words


def key_number(words: Words, number: int) -> Words:
    """Of each key the one that `split` gives at that place."""
    shape = words[0].shape
    zero, place = [full(shape, dtypes.uint32, n) for n in (0, number)]
    high, low = threefry2x32(*words, zero, place)
    return high, low


def chosen(mask: Any, ours: Sequence[Any], theirs: Sequence[Any]) -> Any:
    """`where` for several arrays, such as the words of keys."""
    return tuple([np_.where(mask, x, y) for x, y in zip(ours, theirs, strict=True)])


def lane_uniform(words: Words, dtype: DType) -> Any:
    """`uniform(key, (), dtype)` for each of the keys."""
    return unit_of(key_number(words, 0), dtype)


def lane_normal(words: Words, dtype: DType) -> Any:
    """`normal(key, (), dtype)` for each of the keys."""
    return normal_of(lane_uniform(words, dtype), dtype)


def row_uniform(words: Words, width: int, dtype: DType) -> Any:
    """`uniform(key, (width,), dtype)` for each of the keys of a vector, as rows."""
    shape = (words[0].shape[0], width)
    keys = [np_.broadcast_to(word[:, None], shape) for word in words]
    places = [np_.broadcast_to(word, shape) for word in counters((width,))]
    high, low = threefry2x32(*keys, *places)
    return unit_of((high, low), dtype)


def by_elements(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function of arrays of one shape that goes element by element.

    Members of a `vmap` then are more elements, where a batched loop would have to mask
    those that have finished.
    """
    mapped = custom_vmap(draw)

    def rule(size: int, are_mapped: Sequence[bool], *arrays: Any) -> Any:
        whole = [
            x if is_mapped else np_.broadcast_to(x, (size, *x.shape))
            for x, is_mapped in zip(arrays, are_mapped, strict=True)
        ]
        return mapped(*whole), True

    mapped.def_vmap(rule)
    return mapped


def by_rows(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function of two vectors of words, and of parameters with a row each.

    Members of a `vmap` are more rows.
    """
    mapped = custom_vmap(draw)

    def rule(size: int, are_mapped: Sequence[bool], *arrays: Any) -> Any:
        whole = [
            x if is_mapped else np_.broadcast_to(x, (size, *x.shape))
            for x, is_mapped in zip(arrays, are_mapped, strict=True)
        ]
        rows: list[Any] = [np_.reshape(x, (-1, *x.shape[2:])) for x in whole]
        result = mapped(*rows)
        return result.reshape(size, -1, *result.shape[1:]), True

    mapped.def_vmap(rule)
    return mapped
