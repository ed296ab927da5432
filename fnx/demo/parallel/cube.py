"""Data, tensor and pipeline parallel training at once, on a cube of replicas.

Each stage has some layers, each of its replicas a part of them, and there are as many
such pipelines as parts of the batch. Next on the walk: `checks.py`.
"""

from __future__ import annotations

from typing import Any

from fnx import lax, optim
from fnx.demo.parallel import tensor
from fnx.demo.parallel.model import Layers, apply, squared_error
from fnx.demo.parallel.pipeline import Schedule, micro_batches

AXES = ("data", "tensor", "stage")


def cube(
    optimizer: optim.GradientTransformation,
    schedule: Schedule,
    micro: int,
    elements: int,
) -> Any:
    """A replica's step on its layers' parts and its part of the batch.

    `elements` is the size of the targets of the whole batch.
    """

    def stage(layers: Layers, x: Any) -> Any:
        return apply(layers, x, total=tensor.total)

    def step(layers: Layers, state: Any, x: Any, y: Any) -> Any:
        replicas = lax.axis_size("tensor")

        def share(found: Any, wanted: Any) -> Any:
            return squared_error(found, wanted) / (elements * replicas)

        rows = micro_batches(x, micro), micro_batches(y, micro)
        value, grads = schedule(stage, share, layers, *rows, "stage")
        grads = lax.psum(tensor.summed(grads), "data")
        updates, state = optimizer.update(grads, state, layers)
        return optim.apply_updates(layers, updates), state, lax.psum(value, AXES)

    return step
