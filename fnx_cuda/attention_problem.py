"""Attentions as cuDNN is asked for them: arrays by sizes and strides, and the band.

Which attentions are steps at all is said here, too: those of 16 bits in which every
query sees a key, where the library is there. It has the axes batch, heads, positions
and numbers of a head, which lie as in fnx's arrays of batch, positions, heads, numbers.
Receives an `AttentionStep`, gives a `Problem`. Next on the walk: `cudnn_graph.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx import dtypes
from fnx.records import record
from fnx.runtime.plan import GRADIENTS, ArrayType, Attended, AttentionStep
from fnx_cuda.cudnn_graph import LIBRARY

LEAST_PRODUCTS = 1024
"""So many products of a head are worth a call: fewer fuse with what is around them."""

_WIDTHS = range(8, 257, 8)
"""Numbers of a head that the library has; more than 128 not on every device."""


@record
class Strided:
    """Sizes and strides of an array, in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@record
class Problem:
    """One attention, or its gradients: with the same numbers it is the same call.

    `left` counts the query's own position. `inputs` and `outputs` are in the order of
    the step; a logsumexp is the one array that is float32.
    """

    gradients: bool
    dtype: str
    scale: float
    left: int | None
    right: int | None
    inputs: tuple[Strided, ...]
    outputs: tuple[Strided, ...]


def attends(part: str, attended: Attended, types: Sequence[ArrayType]) -> bool:
    """Whether an attention is a step: one that the library may have, where that is."""
    q, k = types[0], types[1]
    queries, keys = q.shape[1], k.shape[1]
    return (
        q.dtype in (dtypes.float16, dtypes.bfloat16)
        and all(type.size for type in types)
        and queries * keys >= LEAST_PRODUCTS
        and q.shape[3] in _WIDTHS
        and 0 < attended.scale < math.inf
        and attended.sees_some(queries, keys)
        # A band that has an end to the left is for as many keys at least.
        and (attended.left is None or queries <= keys)
        and LIBRARY.serves()
    )


def problem(step: AttentionStep) -> Problem:
    """What the library is asked for."""
    attended = step.attended
    return Problem(
        gradients=step.part == GRADIENTS,
        dtype=dtypes.short(step.input_types[0].dtype),
        scale=attended.scale,
        left=None if attended.left is None else attended.left + 1,
        right=attended.right,
        inputs=tuple(map(_strided, step.input_types)),
        outputs=tuple(map(_strided, step.output_types)),
    )


def _strided(type: ArrayType) -> Strided:
    if len(type.shape) == 3:  # the logsumexp: batch, heads, positions
        batch, heads, length = type.shape
        return Strided((batch, heads, length, 1), (heads * length, length, 1, 1))
    batch, length, heads, width = type.shape
    row = heads * width
    return Strided((batch, heads, length, width), (length * row, width, row, 1))
