"""Collectives go on beside what GPUs compute, and what reads them waits for them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.runtime import device_replicas
from fnx.transforms.combine import early
from fnx_cuda import frame, run
from fnx_cuda.instructions import Meet
from tests import cuda_emulator as emulator
from tests.cuda.test_replicas import machine, random

pytestmark = [pytest.mark.cuda, pytest.mark.multi_device]

WIDTH = 160  # whose weights are not laid together with others


def step(weights, x):
    """All gradients first, then their sums, in the order of the layers."""

    def loss(weights):
        h = x
        for w in weights:
            h = fnp.tanh(h @ w)
        return (h * h).mean()

    slopes = fnx.grad(loss)(weights)
    slopes = [lax.pmean(g, "i") for g in slopes]
    return [w - 0.1 * g for w, g in zip(weights, slopes, strict=True)]


def arguments(layers=3):
    weights = [random(WIDTH, WIDTH, seed=n) / 40 for n in range(layers)]
    return weights, random(2, 4, WIDTH, seed=9) / 10


def compiled(gpus):
    """The instructions of a replica's program, and what it gives."""
    weights, x = arguments()
    mapped = fnx.pmap(step, "i", in_axes=(None, 0), out_axes=None, devices=gpus)
    found = mapped(weights, x)
    (spread, _) = next(iter(mapped._entries.values()))
    ready = device_replicas.prepared(
        spread.program, spread.mesh.axes, spread.ins, spread.outs, "cuda"
    )
    arrays = [np.asarray(y) for y in found]
    return ready.executable.native.compiled.body.instructions, arrays


def test_sums_begin_when_their_gradient_is_known():
    with machine(devices=2) as gpus:
        instructions, found = compiled(gpus)
    weights, x = arguments()
    over = fnx.vmap(step, axis_name="i", in_axes=(None, 0), out_axes=None)
    for got, want in zip(found, over(weights, x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    meets = [n for n, each in enumerate(instructions) if isinstance(each, Meet)]
    assert len(meets) == 3
    ends = frame.ends_of_collectives(instructions)
    # The last layer's gradient is summed while those before it are computed.
    for meet, later in pairwise(meets):
        assert later - meet > 1
        assert ends[meet] > later


def test_an_equation_moves_to_where_its_operand_is_known():
    with fnx.core.axes.bound_axis("i", 2):
        program = fnx.make_jaxpr(
            lambda x, y: (
                lax.psum(fnp.sin(x), "i"),
                lax.psum(y, "i"),
                lax.psum(lax.psum(fnp.cos(x), "i") + y, "i"),
                lax.all_gather(x, "i"),
            )
        )(np.ones(3, "float32"), np.ones(3, "float32"))
    names = [eqn.primitive.name for eqn in early(program).eqns]
    assert names == ["psum", "sin", "psum", "cos", "psum", "add", "psum", "all_gather"]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_whoever_does_not_wait_is_found(seed, monkeypatch):
    """The emulator runs streams in another order wherever no event forbids it."""
    monkeypatch.setattr(run.Aside, "join", lambda self, stream: None)
    weights, x = arguments(layers=1)
    with (
        pytest.raises((emulator.Finding, AssertionError)),
        machine(seed, devices=2) as gpus,
    ):
        mapped = fnx.pmap(step, "i", in_axes=(None, 0), out_axes=None, devices=gpus)
        for _ in range(3):
            np.asarray(mapped(weights, x)[0])
