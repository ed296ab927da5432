"""jit with shardings: random programs in parts against the same on one device."""

from __future__ import annotations

import random

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P

pytestmark = pytest.mark.multi_device

STEPS = [
    lambda x, y: fnp.sin(y) * 1.3,
    lambda x, y: y * y * 0.5 + x.sum() * 0.01,
    lambda x, y: fnp.where(y > 0.1, y, y * 0.3),
    lambda x, y: fnp.cumsum(y, 0) * 0.3,
    lambda x, y: fnp.sort(y, 1),
    lambda x, y: fnp.tanh(y @ y.T) @ y * 0.3,
    lambda x, y: y.T,
    lambda x, y: fnx.vmap(lambda r: fnp.cumsum(r) * 0.2 + r.max())(y),
    lambda x, y: lax.scan(lambda c, r: (fnp.tanh(c + r), c * r), y[0], y)[1],
    lambda x, y: lax.cond(y.sum() > 0, fnp.sin, lambda y: y * 2, y),
    lambda x, y: lax.fori_loop(0, 3, lambda i, y: fnp.sin(y) + 0.1 * y, y),
    lambda x, y: fnx.checkpoint(lambda y: fnp.sin(fnp.cos(y)))(y),
    lambda x, y: fnx.nn.softmax(y, axis=1),
    lambda x, y: y.at[3].multiply(0.5),
    lambda x, y: y.at[:, 1].add(y[:, 0] * 0.5),
    lambda x, y: fnp.concatenate([y[1:], y[:1] * 2], 0),
    lambda x, y: fnp.sin(y.reshape(-1)).reshape(y.shape),
    lambda x, y: y + fnx.random.normal(fnx.random.key(7), y.shape),
    lambda x, y: fnx.vmap(
        lambda r: lax.cond(r[0] > 0, lambda r: fnp.sqrt(fnp.abs(r) + 1), fnp.sin, r)
    )(y),
]

SPECS = [
    P("a"),
    P("a", "b"),
    P(None, "b"),
    P(("a", "b")),
    P("b", "a"),
    P(None, ("a", "b")),
]


@pytest.mark.parametrize("seed", range(16))
def test_random_programs(seed):
    chosen = random.Random(seed)
    steps = chosen.choices(STEPS, k=chosen.randint(3, 7))
    spec = chosen.choice(SPECS)

    def f(x):
        y = x
        for step in steps:
            y = step(x, y)
        return y

    x = np.random.default_rng(seed).standard_normal((8, 16)).astype("float32")
    run = f if seed % 2 else fnx.grad(lambda x: (f(x) ** 2).sum() * 0.1)
    want = np.asarray(fnx.jit(run)(x))
    with fnx.config.override(cpu_devices=8):
        mesh = fnx.make_mesh((2, 4), ("a", "b"))
        got = fnx.jit(run, in_shardings=NamedSharding(mesh, spec))(x)
        np.testing.assert_allclose(
            got, want, rtol=2e-3, atol=1e-3 * max(1, abs(want).max())
        )
