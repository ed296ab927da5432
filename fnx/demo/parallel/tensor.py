"""Tensor parallel training: each replica has a part of every layer.

That is some of the heads of attention and some of the hidden units, by columns of the
first product and rows of the second, so that one sum over replicas closes each half of
a layer (Shoeybi et al., Megatron-LM, 2019). Next on the walk: `pipeline.py`.
"""

from __future__ import annotations

from typing import Any

import fnx
from fnx import optim
from fnx.demo.parallel.model import Layers, apply, squared_error

# The axis along which an array of all layers is cut; the others are copied.
CUT = {"query": 2, "key": 2, "value": 2, "mix": 1, "up": 2, "up_bias": 1, "down": 1}


def total(x: Any) -> Any:
    """The sum of what replicas have of a product."""
    return fnx.lax.psum(x, "tensor")


def summed(grads: Layers) -> Layers:
    """Gradients of parameters that replicas have copies of are shares: their sum."""
    return {name: g if name in CUT else total(g) for name, g in grads.items()}


def tensor_parallel(optimizer: optim.GradientTransformation) -> Any:
    """A replica's step; all replicas get the whole batch."""

    def share(layers: Layers, x: Any, y: Any) -> Any:
        # each replica computes the whole loss: its share is one of so many
        loss = squared_error(apply(layers, x, total=total), y) / y.size
        return loss / fnx.lax.axis_size("tensor")

    def step(layers: Layers, state: Any, x: Any, y: Any) -> Any:
        value, grads = fnx.value_and_grad(share)(layers, x, y)
        updates, state = optimizer.update(summed(grads), state, layers)
        return optim.apply_updates(layers, updates), state, total(value)

    return step
