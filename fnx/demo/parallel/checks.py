"""Each recipe beside one device: the same losses, the same parameters.

Receives how replicas are run and for how many steps, gives rows of a table, and text.
Next on the walk: `../__main__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from fnx import optim, random
from fnx.demo.parallel import data, model, pipeline, sequence, tensor
from fnx.demo.parallel.cube import cube
from fnx.demo.parallel.model import Layers
from fnx.demo.parallel.replicas import Axes, Cuts, spread, together

MICRO = 4
RATE = 3e-3
# Of float32, after some steps of Adam: its first are little more than signs.
ROUNDING = 1e-5
SCHEDULES = {
    "GPipe": pipeline.gpipe_gradient,
    "1F1B": pipeline.one_forward_one_backward,
}
# How a function of one replica becomes one of arrays with a leading axis for each axis.
Runner = Callable[[Callable[..., Any], Axes], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A replica's step, the axes it names, and how arrays come to replicas and back."""

    step: Callable[..., Any]
    axes: Axes
    batch: Cuts
    split: Callable[[Layers], Layers]
    join: Callable[[Layers], Layers]


@dataclass(frozen=True, slots=True)
class Check:
    """A recipe's losses, and how far it is from one device.

    The differences are the largest ones, relative to the largest number of the array.
    """

    name: str
    replicas: int
    losses: tuple[float, ...]
    loss_difference: float
    layer_difference: float


# ---------------------------------------------------------------- the recipes


def recipes(
    sizes: model.Sizes, layers: Layers, optimizer: optim.GradientTransformation
) -> dict[str, Recipe]:
    """All of them by name; `layers` tell the shapes."""
    elements = sizes.batch * sizes.positions * sizes.width
    copied: dict[str, Cuts] = {name: {} for name in layers}
    staged: dict[str, Cuts] = {name: {"stage": 0} for name in layers}
    parts: dict[str, Cuts] = {name: {"tensor": n} for name, n in tensor.CUT.items()}
    found = {
        "data": _recipe(
            data.data_parallel(optimizer, elements), {"data": 4}, copied, {"data": 0}
        ),
        "sharded data": _sharded(optimizer, elements, layers),
        "tensor": _recipe(
            tensor.tensor_parallel(optimizer), {"tensor": 2}, copied | parts, {}
        ),
        "sequence": _recipe(
            sequence.sequence_parallel(optimizer, elements),
            {"sequence": 4},
            copied,
            {"sequence": 1},
        ),
    }
    for name, schedule in SCHEDULES.items():
        step = pipeline.pipeline_parallel(optimizer, schedule, MICRO)
        found[f"pipeline, {name}"] = _recipe(step, {"stage": 4}, staged, {})
    both: dict[str, Cuts] = {
        name: {**staged[name], **parts.get(name, {})} for name in layers
    }
    for name, schedule in SCHEDULES.items():
        found[f"data x tensor x pipeline, {name}"] = _recipe(
            cube(optimizer, schedule, MICRO, elements),
            {"data": 2, "tensor": 2, "stage": 2},
            both,
            {"data": 0},
        )
    return found


def _recipe(
    step: Callable[..., Any], axes: Axes, cuts: Mapping[str, Cuts], batch: Cuts
) -> Recipe:
    def split(layers: Layers) -> Layers:
        return {name: spread(x, axes, cuts[name]) for name, x in layers.items()}

    def join(layers: Layers) -> Layers:
        return {name: together(x, axes, cuts[name]) for name, x in layers.items()}

    return Recipe(step, axes, batch, split, join)


def _sharded(
    optimizer: optim.GradientTransformation, elements: int, layers: Layers
) -> Recipe:
    shapes = {name: x.shape[1:] for name, x in layers.items()}
    axes = {"data": 4}
    return Recipe(
        data.sharded(optimizer, elements, shapes),
        axes,
        {"data": 0},
        partial(data.shard, replicas=axes["data"]),
        partial(data.unshard, shapes=shapes),
    )


# ---------------------------------------------------------------- the checks


def checks(
    run: Runner,
    steps: int = 10,
    dtype: Any = "float32",
    only: str = "",
) -> Iterator[Check]:
    """Trains with each recipe whose name begins with `only`, and on one device."""
    sizes = model.Sizes()
    optimizer = optim.adam(RATE)
    layers = model.init_layers(random.key(0), sizes, dtype)
    batches = [model.make_batch(random.key(1 + i), sizes, dtype) for i in range(steps)]
    alone = model.make_step(optimizer)
    losses, final = _train(alone, layers, optimizer.init(layers), batches)
    for name, recipe in recipes(sizes, layers, optimizer).items():
        if not name.startswith(only):
            continue
        place = partial(spread, axes=recipe.axes, cuts=recipe.batch)
        parts = recipe.split(layers)
        found, trained = _train(
            run(recipe.step, recipe.axes),
            parts,
            run(optimizer.init, recipe.axes)(parts),
            [(place(x), place(y)) for x, y in batches],
        )
        joined = recipe.join(trained)
        yield Check(
            name,
            prod(recipe.axes.values()),
            tuple([float(loss.flat[0]) for loss in found]),
            difference(np.stack([loss.flat[0] for loss in found]), np.stack(losses)),
            max([difference(joined[key], final[key]) for key in final]),
        )


def _train(
    step: Callable[..., Any], layers: Layers, state: Any, batches: Any
) -> tuple[list[Any], Layers]:
    losses = []
    for x, y in batches:
        layers, state, loss = step(layers, state, x, y)
        losses.append(np.asarray(loss))
    return losses, layers


def difference(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest number of `wanted`."""
    wanted = np.asarray(wanted)
    return float(np.abs(np.asarray(found) - wanted).max() / np.abs(wanted).max())


def report(rows: Iterator[Check], tolerance: float) -> tuple[str, bool]:
    """A table, and whether all differences are within the tolerance."""
    lines = [
        f"{'recipe':34}{'replicas':>9}{'loss':>18}{'differences from one device':>40}"
    ]
    good = True
    for row in rows:
        losses = f"{row.losses[0]:.4f} -> {row.losses[-1]:.4f}"
        apart = f"losses {row.loss_difference:.1e}, layers {row.layer_difference:.1e}"
        equal = max(row.loss_difference, row.layer_difference) <= tolerance
        good &= equal
        mark = "equal" if equal else "DIFFERENT"
        lines.append(f"{row.name:34}{row.replicas:>9}{losses:>18}{apart:>40}  {mark}")
    return "\n".join(lines), good
