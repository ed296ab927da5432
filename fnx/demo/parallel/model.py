"""A small transformer, as one device runs it; the recipes run the same blocks.

Receives sequences of vectors, gives sequences of vectors. What a recipe does in another
way is an argument: `attend` (attention of the heads that are here) and `total` (the sum
of what the replicas have of a product that is cut). Next on the walk: `replicas.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fnx
import fnx.numpy as fnp
from fnx import nn, optim, random

Layers = dict[str, Any]
Attend = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of the network and of its batches."""

    layers: int = 4
    width: int = 16
    heads: int = 4
    hidden: int = 32
    batch: int = 16
    positions: int = 16


def init_layers(key: Any, sizes: Sizes, dtype: Any = "float32") -> Layers:
    """Random weights; the layers lie along axis 0 of each array."""
    width, heads, hidden = sizes.width, sizes.heads, sizes.hidden
    head = width // heads
    weights = {
        "query": (width, heads, head),
        "key": (width, heads, head),
        "value": (width, heads, head),
        "mix": (heads, head, width),
        "up": (width, hidden),
        "down": (hidden, width),
    }
    keys = dict(zip(weights, random.split(key, len(weights)), strict=True))
    scale = 0.5 * width**-0.5
    layers = {
        name: scale * random.normal(keys[name], (sizes.layers, *shape), dtype)
        for name, shape in weights.items()
    }
    layers["scale"] = fnp.ones((sizes.layers, 2, width), dtype)
    layers["up_bias"] = fnp.zeros((sizes.layers, hidden), dtype)
    layers["down_bias"] = fnp.zeros((sizes.layers, width), dtype)
    return layers


def make_batch(key: Any, sizes: Sizes, dtype: Any = "float32") -> tuple[Any, Any]:
    """Random sequences; the target is the running mean, mixed by a fixed matrix."""
    shape = (sizes.batch, sizes.positions, sizes.width)
    of_x, of_matrix = random.split(key)
    x: Any = random.normal(of_x, shape, dtype)
    matrix: Any = random.normal(of_matrix, (sizes.width, sizes.width), dtype)
    number = fnp.arange(1, sizes.positions + 1, dtype=dtype)[:, None]
    return x, fnp.cumsum(x, 1) / number @ matrix * sizes.width**-0.5


def normalized(x: Any, scale: Any) -> Any:
    """Each vector with mean 0 and variance 1, times `scale`."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * fnx.lax.rsqrt(variance + 1e-5) * scale


def attention(query: Any, key: Any, value: Any) -> Any:
    """Causal attention of arrays [batch, positions, heads, size]."""
    scores = fnp.einsum("bqhd,bkhd->bhqk", query, key) * query.shape[-1] ** -0.5
    position = fnp.arange(query.shape[1])
    seen = position[:, None] >= position
    weights: Any = nn.softmax(fnp.where(seen, scores, -fnp.inf))
    return fnp.einsum("bhqk,bkhd->bqhd", weights, value)


def same(x: Any) -> Any:
    """The sum of what replicas have, where one has it all."""
    return x


def block(
    layer: Layers,
    x: Any,
    attend: Attend = attention,
    total: Callable[[Any], Any] = same,
) -> Any:
    """Attention and a network of two products, each added to x."""
    y = normalized(x, layer["scale"][0])
    query, key, value = (
        fnp.einsum("bpw,whd->bphd", y, layer[name])
        for name in ("query", "key", "value")
    )
    mixed = fnp.einsum("bphd,hdw->bpw", attend(query, key, value), layer["mix"])
    x = x + total(mixed)
    y = normalized(x, layer["scale"][1])
    hidden = nn.relu(y @ layer["up"] + layer["up_bias"])
    return x + total(hidden @ layer["down"]) + layer["down_bias"]


def apply(
    layers: Layers,
    x: Any,
    attend: Attend = attention,
    total: Callable[[Any], Any] = same,
) -> Any:
    """The layers, one after the other."""

    def step(x: Any, layer: Layers) -> tuple[Any, None]:
        return block(layer, x, attend, total), None

    return fnx.lax.scan(step, x, layers)[0]


def squared_error(found: Any, wanted: Any) -> Any:
    """The sum of squares: that of a batch is the sum over its parts."""
    return ((found - wanted) ** 2).sum()


def make_step(optimizer: optim.GradientTransformation) -> Any:
    """One step of training on one device: new parameters, new state, the loss."""

    def loss(layers: Layers, x: Any, y: Any) -> Any:
        return squared_error(apply(layers, x), y) / y.size

    @fnx.jit
    def step(layers: Layers, state: Any, x: Any, y: Any) -> Any:
        value, grads = fnx.value_and_grad(loss)(layers, x, y)
        updates, state = optimizer.update(grads, state, layers)
        return optim.apply_updates(layers, updates), state, value

    return step
