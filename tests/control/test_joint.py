"""Which replicas run as one program, and that it is `vmap`'s, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.control import joint

pytestmark = pytest.mark.multi_device

REPLICAS = 2


@pytest.fixture(autouse=True)
def two():
    """Two CPU devices."""
    fnx.clear_caches()
    with fnx.config.override(cpu_devices=REPLICAS):
        yield


def dense(p, x):
    return fnp.tanh(x @ p["w"]) @ p["v"]


def embedded(p, x):
    """Rows of a table, at places some of which are outside of it, or the same."""
    places = (x * 100).astype("int32")
    return dense(p, p["table"].at[places].get(mode="fill", fill_value=0).mean(1))


def written(p, x):
    """A few rows of the hidden layer are set, which no kernel does."""
    h = fnp.tanh(x @ p["w"])
    return h.at[fnp.array([3, 1, 3])].set(0.5 * x[:3, :1]) @ p["v"]


def convolved(p, x, times=1):
    """A convolution over the batch that is made of matrix products."""
    (windows, *_) = lax.conv_general_dilated(
        fnp.broadcast_to(x, (times, *x.shape)),
        p["kernel"],
        (1,),
        "SAME",
        dimension_numbers=("NHC", "HIO", "NHC"),
    )
    return dense(p, windows)


def convolved_much(p, x):
    """So much that the gradient of its kernel is faster for each replica by itself."""
    return convolved(p, x, 200)


def looped(p, x):
    return lax.fori_loop(0, 3, lambda i, y: dense(p, x) + y, fnp.zeros(len(x)))


def sorted_(p, x):
    return dense(p, fnp.sort(x, -1))


MODELS = {
    dense: True,
    embedded: True,
    written: True,
    convolved: True,
    convolved_much: False,
    looped: False,
    sorted_: False,
}


def step(model):
    """A step of training, whose gradients replicas sum."""

    def train(p, x, y):
        slopes = fnx.grad(lambda p: ((model(p, x) - y) ** 2).mean())(p)
        return {k: p[k] - 0.1 * lax.pmean(slopes[k], "replicas") for k in p}

    return train


def arguments(rng):
    """For each replica its parameters and its part of the batch."""
    shapes = {"w": (17, 70), "v": (70,), "table": (90, 17), "kernel": (3, 17, 17)}
    p = {k: rng.standard_normal((REPLICAS, *s), "float32") for k, s in shapes.items()}
    x = rng.standard_normal((REPLICAS, 33, 17), "float32")
    return p, x, rng.standard_normal((REPLICAS, 33), "float32")


@pytest.mark.parametrize("model", MODELS)
def test_who_runs_as_one(model, rng):
    train = step(model)
    args = arguments(rng)
    one = fnx.tree.map(lambda x: x[0], args)
    axes = (("replicas", REPLICAS),)
    program = fnx.make_jaxpr(train, axis_env=list(axes))(*one)
    assert joint.runs_as_one(program, axes) == MODELS[model]


@pytest.mark.parametrize("model", [m for m, as_one in MODELS.items() if as_one])
def test_what_runs_as_one_is_vmap(model, rng):
    train, args = step(model), arguments(rng)
    found = fnx.pmap(train, "replicas")(*args)
    wanted = fnx.jit(fnx.vmap(train, axis_name="replicas"))(*args)
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name], name)
    assert not np.array_equal(found["w"], args[0]["w"])
