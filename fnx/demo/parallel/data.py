"""Data parallel training: each replica has a part of the batch.

`data_parallel` has all parameters on every replica. `sharded` has a part of them, and
of the optimizer's state, on each (Rajbhandari et al., ZeRO, 2020, stage 3): a layer's
parameters are gathered when it is computed, and forgotten after it. Since the transpose
of a gather is a scattered sum, its gradients arrive summed over replicas and cut.
Next on the walk: `tensor.py`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import fnx
import fnx.numpy as fnp
from fnx import optim
from fnx.demo.parallel.model import Layers, apply, block, squared_error
from fnx.demo.parallel.replicas import spread
from fnx.distributed import psum_in_buckets

Shapes = dict[str, tuple[int, ...]]


def data_parallel(optimizer: optim.GradientTransformation, elements: int) -> Any:
    """A replica's step; `elements` is the size of the targets of the whole batch."""

    def share(layers: Layers, x: Any, y: Any) -> Any:
        return squared_error(apply(layers, x), y) / elements

    def step(layers: Layers, state: Any, x: Any, y: Any) -> Any:
        value, grads = fnx.value_and_grad(share)(layers, x, y)
        # as `psum` would, in one collective for all of them
        value, grads = psum_in_buckets((value, grads), "data")
        updates, state = optimizer.update(grads, state, layers)
        return optim.apply_updates(layers, updates), state, value

    return step


def sharded(
    optimizer: optim.GradientTransformation, elements: int, shapes: Shapes
) -> Any:
    """A replica's step on its shards; `shapes` are those of one layer's arrays."""

    def layer(x: Any, shards: Layers) -> tuple[Any, None]:
        whole = {name: gather(shards[name], shape) for name, shape in shapes.items()}
        return block(whole, x), None

    def share(shards: Layers, x: Any, y: Any) -> Any:
        # gathered once more for the gradient, so that no layer is kept whole
        found, _ = fnx.lax.scan(fnx.checkpoint(layer), x, shards)
        return squared_error(found, y) / elements

    def step(shards: Layers, state: Any, x: Any, y: Any) -> Any:
        value, grads = fnx.value_and_grad(share)(shards, x, y)
        updates, state = optimizer.update(grads, state, shards)
        return optim.apply_updates(shards, updates), state, fnx.lax.psum(value, "data")

    return step


def gather(shard: Any, shape: tuple[int, ...]) -> Any:
    """An array of which each replica has a part of the elements."""
    flat = fnx.lax.all_gather(shard, "data", tiled=True)
    return flat[: prod(shape)].reshape(shape)


def shard(layers: Layers, replicas: int) -> Layers:
    """Each layer's arrays as (replicas, layers, elements of a part)."""

    def cut(x: Any) -> Any:
        flat = x.reshape(len(x), -1)
        missing = -flat.shape[1] % replicas
        even = fnp.pad(flat, ((0, 0), (0, missing)))
        return spread(even, {"data": replicas}, {"data": 1})

    return {name: cut(x) for name, x in layers.items()}


def unshard(shards: Layers, shapes: Shapes) -> Layers:
    """The layers' arrays of all parts."""

    def join(x: Any, shape: tuple[int, ...]) -> Any:
        flat = fnp.reshape(fnp.moveaxis(x, 0, 1), (x.shape[1], -1))
        return flat[:, : prod(shape)].reshape(-1, *shape)

    return {name: join(x, shapes[name]) for name, x in shards.items()}
