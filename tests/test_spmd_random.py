"""Random programs of replicas that meet in collectives: as NumPy has them.

A map over named axes is a loop over replicas, gradients included, whether it is taken
on each replica or of all of them together, whether compiled or not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as fnp
from tests.spmd_programs import GRID, MOVES, SHAPE, Steps, on_grid, programs, replica
from tests.spmd_programs import whole as in_numpy

FULL = (*GRID.values(), *SHAPE)
seeds = st.integers(0, 1000)


def close(found: Any, wanted: Any) -> None:
    size = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(found, wanted, 0, 1e-12 * size)


@pytest.mark.parametrize("name", sorted(MOVES))
@pytest.mark.parametrize("axis", ["i", "j", ("i", "j")])
def test_each_move(name, axis):
    """Every move along every axis, in the forms that its seed tells."""
    x = np.random.default_rng(0).standard_normal(FULL)
    for seed in range(3):
        steps: Steps = ((name, axis, 0, seed),)
        close(on_grid(replica(steps))(fnp.array(x)), in_numpy(steps, x))


@settings(max_examples=60)
@given(programs, seeds)
def test_a_map_over_named_axes_is_a_loop_over_replicas(steps, seed):
    x = np.random.default_rng(seed).standard_normal(FULL)
    function = on_grid(replica(steps))
    found = function(fnp.array(x))
    close(found, in_numpy(steps, x))
    np.testing.assert_allclose(fnx.jit(function)(x), found, 0, 1e-12)


@settings(max_examples=40)
@given(programs, seeds)
def test_gradients_on_replicas_are_those_of_their_sum(steps, seed):
    """Each replica's share differentiated on it: the derivative of the shares' sum."""
    rng = np.random.default_rng(seed)
    x, weights, change = rng.standard_normal((3, *FULL))
    function = replica(steps)

    def share(x, weights):
        return (weights * function(x)).sum()

    inside = on_grid(fnx.grad(share))(fnp.array(x), fnp.array(weights))
    outside = fnx.grad(lambda x: on_grid(share)(x, fnp.array(weights)).sum())(x)
    close(inside, np.asarray(outside))
    h = 1e-6
    ends = [(weights * in_numpy(steps, x + s * h * change)).sum() for s in (1, -1)]
    slope = float((np.asarray(inside) * change).sum())
    assert abs(slope - (ends[0] - ends[1]) / (2 * h)) <= 1e-5 * max(1.0, abs(slope))


@settings(max_examples=30)
@given(programs, seeds)
def test_tangents_on_replicas_are_those_of_all(steps, seed):
    """<J t, ct> = <t, Jᵀ ct> over all replicas."""
    rng = np.random.default_rng(seed)
    x, t, ct = map(fnp.array, rng.standard_normal((3, *FULL)))
    function = replica(steps)

    def forward(x, t):
        return fnx.jvp(function, (x,), (t,))[1]

    def back(x, ct):
        return fnx.vjp(function, x)[1](ct)[0]

    left = float((on_grid(forward)(x, t) * ct).sum())
    right = float((t * on_grid(back)(x, ct)).sum())
    assert abs(left - right) <= 1e-10 * max(1.0, abs(left))
