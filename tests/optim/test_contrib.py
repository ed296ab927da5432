"""Schedule-free optimizers and SAM, against their papers' rules and optax."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim, tree
from fnx.errors import ArgumentError, OptionError
from fnx.optim import contrib

RATE, B1 = 0.1, 0.8
RNG = np.random.default_rng(2)
START = RNG.normal(size=(3, 2))
GRADS = RNG.normal(size=(8, 3, 2))


def run(o, contribution, optimizer, asarray, jit):
    params = {"w": asarray(START)}
    state, update = optimizer.init(params), jit(optimizer.update)
    visited = []
    for g in GRADS:
        updates, state = update({"w": asarray(g)}, state, params)
        params = o.apply_updates(params, updates)
        visited.append(np.asarray(params["w"]))
    return np.array(visited), params, state


@pytest.mark.parametrize("warmup", [None, 3])
def test_schedule_free_is_the_papers_rule(warmup):
    optimizer = contrib.schedule_free_sgd(RATE, warmup, b1=B1)
    visited, params, state = run(optim, contrib, optimizer, fnp.asarray, fnx.jit)
    z = x = y = START
    weights = 0.0
    for t, g in enumerate(GRADS, 1):
        rate = RATE * min(1, (t - 1) / warmup) if warmup else RATE
        z = z - rate * g
        weights += rate**2
        part = rate**2 / weights if weights else 0
        x = (1 - part) * x + part * z
        y = (1 - B1) * z + B1 * x
        np.testing.assert_allclose(visited[t - 1], y, rtol=1e-6)
    found = contrib.schedule_free_eval_params(state, params)
    np.testing.assert_allclose(found["w"], x, rtol=1e-6)


OPTIMIZERS = {
    "sgd": lambda o, c: c.schedule_free_sgd(RATE, weight_decay=0.1),
    "adamw": lambda o, c: c.schedule_free_adamw(RATE, weight_decay=0.1),
    "sam": lambda o, c: c.sam(o.adam(RATE), o.chain(c.normalize(), o.sgd(0.3))),
    "sam of 3": lambda o, c: c.sam(
        o.sgd(RATE), o.sgd(0.1, momentum=0.5), sync_period=3, reset_state=False
    ),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optax_does_the_same(name, jax):
    optax = pytest.importorskip("optax", reason="the oracle of optimizers")
    import optax.contrib as theirs

    make = OPTIMIZERS[name]
    found, *_ = run(optim, contrib, make(optim, contrib), fnp.asarray, fnx.jit)
    asarray = jax.numpy.asarray
    expected, *_ = run(optax, theirs, make(optax, theirs), asarray, jax.jit)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_types_are_kept(name):
    optimizer = OPTIMIZERS[name](optim, contrib)
    params = {"w": fnp.ones((2, 2), "bfloat16"), "none": None, "b": fnp.ones(0)}
    state = optimizer.init(params)
    updates, new = fnx.jit(optimizer.update)(params, state, params)
    for found, wanted in ((updates, params), (new, state)):
        types = [[x.type for x in tree.leaves(t)] for t in (found, wanted)]
        assert types[0] == types[1]


def test_bad_arguments():
    with pytest.raises(OptionError, match="schedule_free: b1 must be above 0 and belo"):
        contrib.schedule_free(optim.sgd(0.1), 0.1, b1=0.0)
    with pytest.raises(OptionError, match="sam: sync_period must be 2 or more"):
        contrib.sam(optim.sgd(0.1), optim.sgd(0.1), 1)
    with pytest.raises(ArgumentError, match="state must be that of schedule_free"):
        contrib.schedule_free_eval_params((), fnp.ones(2))
    optimizer = contrib.schedule_free_sgd(0.1)
    with pytest.raises(ArgumentError, match="schedule_free: the average needs the par"):
        optimizer.update(fnp.ones(2), optimizer.init(fnp.ones(2)))
