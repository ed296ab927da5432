"""Pipeline parallel training: each replica has some of the layers, a stage.

The batch is cut in micro-batches that go from stage to stage. `gpipe` runs all of them
forward, and the derivative of that runs them back (Huang et al., GPipe, 2019).
`one_forward_one_backward` starts each one's way back as soon as it can, so that a stage
holds the inputs of as many micro-batches as there are stages, however many come
(Narayanan et al., PipeDream, 2019). Both leave a share of (stages - 1) / (micro-batches
+ stages - 1) of the time unused. Next on the walk: `sequence.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fnx
import fnx.numpy as fnp
from fnx import lax, optim
from fnx.demo.parallel.model import Layers, apply, squared_error

# What a stage does to a micro-batch, and the share of the loss that its output has.
Stage = Callable[[Layers, Any], Any]
Share = Callable[[Any, Any], Any]


def micro_batches(x: Any, count: int) -> Any:
    """A batch as (micro-batches, rows of one, …)."""
    return x.reshape(count, -1, *x.shape[1:])


def onward(stages: int) -> list[tuple[int, int]]:
    """From each stage to the next."""
    return [(i, i + 1) for i in range(stages - 1)]


def back(stages: int) -> list[tuple[int, int]]:
    """From each stage to the one before."""
    return [(i + 1, i) for i in range(stages - 1)]


# ---------------------------------------------------------------- GPipe


def gpipe(stage: Stage, layers: Layers, micro: Any, axis: str) -> Any:
    """What leaves this stage, a row for each micro-batch."""
    stages, number = lax.axis_size(axis), lax.axis_index(axis)
    idle = fnp.zeros((stages - 1, *micro.shape[1:]), micro.dtype)

    def tick(received: Any, fresh: Any) -> tuple[Any, Any]:
        y = stage(layers, fnp.where(number == 0, fresh, received))
        return lax.ppermute(y, axis, onward(stages)), y

    ticks = fnp.concatenate([micro, idle])
    _, outputs = lax.scan(tick, fnp.zeros_like(micro[0]), ticks)
    return outputs[stages - 1 :]


def gpipe_gradient(
    stage: Stage, share: Share, layers: Layers, x: Any, y: Any, axis: str
) -> tuple[Any, Layers]:
    """The replica's share of the loss, and its gradient; only the last stage has one.

    `x` and `y` have a row for each micro-batch.
    """
    is_last = lax.axis_index(axis) == lax.axis_size(axis) - 1

    def loss(layers: Layers) -> Any:
        outputs = gpipe(stage, layers, x, axis)
        return fnp.where(is_last, fnx.vmap(share)(outputs, y).sum(), 0)

    return fnx.value_and_grad(loss)(layers)


# ---------------------------------------------------------------- 1F1B


def one_forward_one_backward(
    stage: Stage, share: Share, layers: Layers, x: Any, y: Any, axis: str
) -> tuple[Any, Layers]:
    """As `gpipe_gradient`: stage p runs micro-batch i in slot 2 i + p.

    Its way back it runs in slot 2 i + 2 stages - 1 - p, so that forward and backward
    slots alternate, and what a stage sends is used in the next slot.
    """
    stages, number = lax.axis_size(axis), lax.axis_index(axis)
    count = len(x)
    is_last = number == stages - 1
    still = fnp.zeros_like(x[0])

    def whose(slot: Any) -> tuple[Any, Any]:
        """The micro-batch of a slot, counted from this stage's first; and whether."""
        i = slot // 2
        return fnp.clip(i, 0, count - 1), (slot % 2 == 0) & (i >= 0) & (i < count)

    def forward(i: Any, kept: Any, received: Any, rest: Any) -> Any:
        x_in = fnp.where(number == 0, x[i], received)
        kept = lax.dynamic_update_index_in_dim(kept, x_in, i % stages, 0)
        return kept, stage(layers, x_in), still, rest

    def backward(i: Any, kept: Any, ct: Any, rest: Any) -> Any:
        value, grads = rest
        x_out, pull = fnx.vjp(stage, layers, kept[i % stages])
        mine, ct_last = fnx.value_and_grad(share)(x_out, y[i])
        change, ct_in = pull(fnp.where(is_last, ct_last, ct))
        value = value + fnp.where(is_last, mine, 0)
        return kept, still, ct_in, (value, fnx.tree.map(fnp.add, grads, change))

    def slot(carry: Any, t: Any) -> tuple[Any, None]:
        kept, received, ct, rest = carry
        i, is_forward = whose(t - number)
        j, is_backward = whose(t - (2 * stages - 1 - number))
        kept, x_out, ct_in, rest = lax.switch(
            fnp.where(is_forward, 1, fnp.where(is_backward, 2, 0)),
            [
                lambda: (kept, still, still, rest),
                lambda: forward(i, kept, received, rest),
                lambda: backward(j, kept, ct, rest),
            ],
        )
        received = lax.ppermute(x_out, axis, onward(stages))
        return (kept, received, lax.ppermute(ct_in, axis, back(stages)), rest), None

    kept = fnp.zeros((stages, *still.shape), still.dtype)
    nothing = fnp.zeros((), still.dtype), fnx.tree.map(fnp.zeros_like, layers)
    slots = fnp.arange(2 * (count + stages - 1))
    (_, _, _, found), _ = lax.scan(slot, (kept, still, still, nothing), slots)
    return found


# ---------------------------------------------------------------- the step

Schedule = Callable[[Stage, Share, Layers, Any, Any, str], tuple[Any, Layers]]


def pipeline_parallel(
    optimizer: optim.GradientTransformation, schedule: Schedule, micro: int
) -> Any:
    """A replica's step; all replicas get the whole batch, as `micro` micro-batches."""

    def step(layers: Layers, state: Any, x: Any, y: Any) -> Any:
        elements = y.size

        def share(found: Any, wanted: Any) -> Any:
            return squared_error(found, wanted) / elements

        rows = micro_batches(x, micro), micro_batches(y, micro)
        value, grads = schedule(apply, share, layers, *rows, "stage")
        updates, state = optimizer.update(grads, state, layers)
        return optim.apply_updates(layers, updates), state, lax.psum(value, "stage")

    return step
