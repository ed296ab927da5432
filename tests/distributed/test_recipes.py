"""The recipes of `fnx.demo.parallel` on the devices of two processes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.distributed import jobs

pytestmark = pytest.mark.multi_device

TRAIN = """
from fnx import optim, random
from fnx.demo.parallel import checks, model
from fnx.demo.parallel.replicas import on_devices, spread

sizes, optimizer = model.Sizes(), optim.adam(3e-3)
layers = model.init_layers(random.key(0), sizes)
batches = [model.make_batch(random.key(1 + i), sizes) for i in range(3)]
recipes = checks.recipes(sizes, layers, optimizer)

def train(step, layers, state, place):
    losses = []
    for x, y in batches:
        layers, state, loss = step(layers, state, place(x), place(y))
        first = getattr(loss, "addressable_shards", None)
        losses.append(float(np.asarray(first[0].data if first else loss).flat[0]))
    return losses

step, state = model.make_step(optimizer), optimizer.init(layers)
found = {"alone": train(step, layers, state, lambda x: x)}
for name in NAMES:
    recipe = recipes[name]
    parts = recipe.split(layers)
    state = on_devices(optimizer.init, recipe.axes)(parts)
    step = on_devices(recipe.step, recipe.axes)
    place = lambda x: spread(x, recipe.axes, recipe.batch)
    found[name] = train(step, parts, state, place)
report(found)
fnx.distributed.shutdown()
"""


@pytest.mark.parametrize(
    ("names", "devices"),
    [
        (["data", "sharded data", "sequence"], 2),
        (["data x tensor x pipeline, 1F1B"], 4),
    ],
)
def test_recipes_of_two_processes_are_those_of_one_device(names, devices, tmp_path):
    program = f"NAMES = {names!r}\n{TRAIN}"
    job = jobs.run("tcp", 2, program, tmp_path, 150, FNX_CPU_DEVICES=str(devices))
    assert job.codes == [0, 0], job.printed
    for report in job.reports:
        for name in names:
            np.testing.assert_allclose(report[name], report["alone"], 1e-5)
