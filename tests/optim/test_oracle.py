"""Trajectories of several steps against optax, on nested dicts of parameters."""

from __future__ import annotations

import numpy as np
import pytest

import fnx.numpy
from fnx import optim, tree

pytestmark = pytest.mark.oracle

STEPS = 7
MATRICES = {"dense": {"w": True, "b": False}, "scale": False}
# each is called with fnx.optim or optax
ALGORITHMS = {
    "sgd": lambda o: o.sgd(0.1),
    "momentum": lambda o: o.sgd(0.1, momentum=0.9),
    "nesterov": lambda o: o.sgd(0.1, momentum=0.9, nesterov=True),
    "adam": lambda o: o.adam(0.01),
    "adam options": lambda o: o.adam(0.01, b1=0.8, b2=0.9, eps=1e-3, eps_root=1e-4),
    "adam b1 0": lambda o: o.adam(0.01, b1=0.0),
    "nadam": lambda o: o.adam(0.01, nesterov=True),
    "adamw": lambda o: o.adamw(0.01, weight_decay=0.1),
    "adamw mask": lambda o: o.adamw(0.01, weight_decay=0.1, mask=MATRICES),
    "adamw mask prefix": lambda o: o.adamw(
        0.01, weight_decay=0.1, mask={"dense": True, "scale": False}
    ),
    "clipped adam": lambda o: o.chain(o.clip_by_global_norm(0.7), o.adam(0.01)),
    "clip": lambda o: o.chain(o.clip(0.3), o.scale(-0.1)),
    "trace": lambda o: o.chain(o.trace(0.7), o.scale_by_learning_rate(0.1)),
}
SCHEDULED = {
    "cosine": lambda o: o.sgd(o.cosine_decay_schedule(0.1, 5, alpha=0.1)),
    "warm-up": lambda o: o.adam(o.warmup_cosine_decay_schedule(0.001, 0.1, 3, 6, 0.01)),
    "linear": lambda o: o.sgd(o.linear_schedule(0.1, 0.01, 4, transition_begin=2)),
    "joined": lambda o: o.sgd(
        o.join_schedules(
            [o.constant_schedule(0.1), o.linear_schedule(1.0, 0.0, 3)], [2]
        )
    ),
    "decay schedule": lambda o: o.chain(
        o.add_decayed_weights(o.linear_schedule(0.0, 0.1, 4)),
        o.scale_by_schedule(lambda count: -0.1 / (1.0 + count)),
    ),
}


def trees(seed, dtype, count):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape).astype(dtype)  # noqa: E731
    return [
        {"dense": {"w": draw(4, 3), "b": draw(3)}, "scale": draw()}
        for _ in range(count)
    ]


def trajectory(library, optimizer, as_array, dtype):
    (params,), grads = trees(0, dtype, 1), trees(1, dtype, STEPS)
    params = tree.map(as_array, params)
    state = optimizer.init(params)
    visited = []
    for g in grads:
        updates, state = optimizer.update(tree.map(as_array, g), state, params)
        params = library.apply_updates(params, updates)
        visited.append(params)
    return [np.asarray(x) for x in tree.leaves(visited)]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_trajectory(name, jax):
    compare(ALGORITHMS[name], "float64", 1e-12, jax)


@pytest.mark.parametrize("name", [*SCHEDULED, "adam", "momentum"])
def test_trajectory_in_float32(name, jax):
    # here, since optax computes its schedules in float32 whatever the parameters are
    compare((ALGORITHMS | SCHEDULED)[name], "float32", 2e-5, jax)


def compare(make, dtype, rtol, jax):
    optax = pytest.importorskip("optax", reason="the oracle of optimizers")
    found = trajectory(optim, make(optim), fnx.numpy.asarray, dtype)
    expected = trajectory(optax, make(optax), jax.numpy.asarray, dtype)
    assert len(found) == 3 * STEPS
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)
