"""Sequence parallel training: each replica has a part of the positions.

All of a block but attention works on each position alone. For attention the keys and
values go round the ring of replicas, while each keeps a running softmax of the scores
that it has seen (Liu et al., Ring Attention, 2023; Milakov & Gimelshein, 2018).
Next on the walk: `cube.py`.
"""

from __future__ import annotations

from typing import Any

import fnx
import fnx.numpy as fnp
from fnx import lax, optim
from fnx.demo.parallel.model import Layers, apply, squared_error


def ring_attention(
    query: Any, key: Any, value: Any, axis: str = "sequence", causal: bool = True
) -> Any:
    """Attention of arrays [batch, positions, heads, size], cut along the positions."""
    replicas, number = lax.axis_size(axis), lax.axis_index(axis)
    batch, positions, heads, _ = query.shape
    scale = query.shape[-1] ** -0.5
    ring = [(i, (i + 1) % replicas) for i in range(replicas)]
    position = fnp.arange(positions)

    def meet(carry: Any, rounds: Any) -> tuple[Any, None]:
        (key, value), largest, weight, output = carry
        scores = fnp.einsum("bqhd,bkhd->bhqk", query, key) * scale
        if causal:
            # whose positions have come: those of the replica so many places before
            other = (number - rounds) % replicas
            seen = number * positions + position[:, None] >= (
                other * positions + position
            )
            scores = fnp.where(seen, scores, -fnp.inf)
        # Any number may be subtracted from scores: it has no derivative of its own.
        new_largest = lax.stop_gradient(fnp.maximum(largest, scores.max(-1)))
        weights: Any = fnp.exp(scores - new_largest[..., None])
        shrink = fnp.exp(largest - new_largest)
        weight = weight * shrink + weights.sum(-1)
        output = output * shrink[..., None] + fnp.einsum(
            "bhqk,bkhd->bhqd", weights, value
        )
        sent = lax.ppermute((key, value), axis, ring)
        return (sent, new_largest, weight, output), None

    # A replica begins with its own positions, so that no row has seen nothing.
    rows = (batch, heads, positions)
    start = (
        (key, value),
        fnp.full(rows, -fnp.inf, query.dtype),
        fnp.zeros(rows, query.dtype),
        fnp.zeros((*rows, value.shape[-1]), query.dtype),
    )
    # the scores are computed once more for the gradient: none is kept
    (_, _, weight, output), _ = lax.scan(
        fnx.checkpoint(meet), start, fnp.arange(replicas)
    )
    return fnp.moveaxis(output / weight[..., None], 1, 2)


def sequence_parallel(optimizer: optim.GradientTransformation, elements: int) -> Any:
    """A replica's step; `elements` is the size of the targets at all positions."""

    def share(layers: Layers, x: Any, y: Any) -> Any:
        return squared_error(apply(layers, x, ring_attention), y) / elements

    def step(layers: Layers, state: Any, x: Any, y: Any) -> Any:
        value, grads = fnx.value_and_grad(share)(layers, x, y)
        value, grads = lax.psum((value, grads), "sequence")
        updates, state = optimizer.update(grads, state, layers)
        return optim.apply_updates(layers, updates), state, value

    return step
