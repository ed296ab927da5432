"""Random programs of replicas that meet in collectives: as NumPy has them.

A map over named axes is a loop over replicas, gradients included, whether it is taken
on each replica or of all of them together, whether compiled or not, on one device by
`vmap` or on six by `shard_map`, or on two that have three replicas each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as fnp
from fnx.control import joint
from tests.spmd_programs import (
    GRID,
    MOVES,
    SHAPE,
    Steps,
    on_a_row,
    on_devices,
    on_grid,
    programs,
    replica,
)
from tests.spmd_programs import whole as in_numpy

pytestmark = pytest.mark.multi_device

FULL = (*GRID.values(), *SHAPE)
seeds = st.integers(0, 1000)
RUNNERS = {"vmap": on_grid, "shard_map": on_devices, "pmap of vmap": on_a_row}
every_way = pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)


@pytest.fixture(autouse=True, scope="module")
def six():
    """A device for each replica, each with its thread, however little they do."""
    fnx.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joint, "runs_as_one", lambda *_: False)
        with fnx.config.override(cpu_devices=6):
            yield
    fnx.clear_caches()


def close(found: Any, wanted: Any) -> None:
    size = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, 0, 1e-12 * size)


@every_way
@pytest.mark.parametrize("name", sorted(MOVES))
@pytest.mark.parametrize("axis", ["i", "j", ("i", "j")])
def test_each_move(name, axis, run):
    """Every move along every axis, in the forms that its seed tells."""
    x = np.random.default_rng(0).standard_normal(FULL)
    for seed in range(3):
        steps: Steps = ((name, axis, 0, seed),)
        close(run(replica(steps))(fnp.array(x)), in_numpy(steps, x))


@every_way
def test_a_map_over_named_axes_is_a_loop_over_replicas(run):
    @settings(max_examples=40)
    @given(programs, seeds)
    def check(steps, seed):
        x = np.random.default_rng(seed).standard_normal(FULL)
        function = run(replica(steps))
        found = function(fnp.array(x))
        close(found, in_numpy(steps, x))
        np.testing.assert_allclose(fnx.jit(function)(x), found, 0, 1e-12)

    check()


@every_way
def test_gradients_on_replicas_are_those_of_their_sum(run):
    """Each replica's share differentiated on it: the derivative of the shares' sum."""

    @settings(max_examples=25)
    @given(programs, seeds)
    def check(steps, seed):
        rng = np.random.default_rng(seed)
        x, weights, change = rng.standard_normal((3, *FULL))
        function = replica(steps)

        def share(x, weights):
            return (weights * function(x)).sum()

        def shares(x, weights):
            return weights * function(x)

        ct = fnp.array(weights)
        inside = run(fnx.grad(share))(fnp.array(x), ct)
        outside = fnx.grad(lambda x: run(shares)(x, ct).sum())(fnp.array(x))
        close(inside, np.asarray(outside))
        h = 1e-6
        ends = [(weights * in_numpy(steps, x + s * h * change)).sum() for s in (1, -1)]
        slope = float((np.asarray(inside) * change).sum())
        difference = (ends[0] - ends[1]) / (2 * h)
        assert abs(slope - difference) <= 1e-5 * max(1.0, abs(slope))

    check()


@every_way
def test_tangents_on_replicas_are_those_of_all(run):
    """<J t, ct> = <t, Jᵀ ct> over all replicas."""

    @settings(max_examples=20)
    @given(programs, seeds)
    def check(steps, seed):
        rng = np.random.default_rng(seed)
        x, t, ct = map(fnp.array, rng.standard_normal((3, *FULL)))
        function = replica(steps)

        def forward(x, t):
            return fnx.jvp(function, (x,), (t,))[1]

        def back(x, ct):
            return fnx.vjp(function, x)[1](ct)[0]

        left = float((np.asarray(run(forward)(x, t)) * np.asarray(ct)).sum())
        right = float((np.asarray(t) * np.asarray(run(back)(x, ct))).sum())
        assert abs(left - right) <= 1e-10 * max(1.0, abs(left))

    check()
