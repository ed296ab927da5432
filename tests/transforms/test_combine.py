"""Small reductions over replicas become one, and give the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.control import joint
from fnx.transforms import combine
from fnx.transforms.combine import combined

N = 3
RNG = np.random.default_rng(0)


def traced(function, *args):
    return fnx.make_jaxpr(function, axis_env=[("i", N), ("j", 2)])(*args)


def counts(program):
    return {name: str(program).count(f"{name}[") for name in ("psum", "pmax", "pmin")}


def step(x, y):
    """Reductions of two dtypes, of shapes of all kinds, some of results of others."""
    a, b, c = lax.psum((x, x[0], y), "i")
    d = lax.pmax(x * 2, "i")
    e = lax.psum(a.sum() * x, "i")
    f = lax.pmean(y[1:], "i")
    g = lax.psum(x, "j") + lax.psum(x, "i", axis_index_groups=[[2], [0], [1]])
    return a, b, c, d, e, f, g, lax.pmax(b, "i")


def test_those_that_need_no_others_are_one():
    x, y = np.ones((2, 3), "f4"), np.ones(4, "f8")
    before = traced(step, x, y)
    after = combined(before)
    assert counts(before) == {"psum": 7, "pmax": 2, "pmin": 0}
    # a and b; c; e, which needs a, so that c did not wait; f; over j, and in groups
    assert counts(after) == {"psum": 6, "pmax": 2, "pmin": 0}
    assert after.output_types == before.output_types


def test_nothing_to_be_done_leaves_the_program():
    program = traced(lambda x: lax.psum(lax.psum(x, "i") + 1, "i"), 1.0)
    assert combined(program) is program


def test_large_ones_stay_alone(monkeypatch):
    x = np.ones(100, "f4")

    def both(x):
        return lax.psum((x, x + 1, x + 2), "i")

    program = traced(both, x)
    assert counts(combined(program))["psum"] == 1
    monkeypatch.setattr(combine, "SMALL", 399)
    fnx.clear_caches()
    assert counts(combined(program))["psum"] == 3
    monkeypatch.setattr(combine, "SMALL", 400)
    monkeypatch.setattr(combine, "MOST", 800)
    fnx.clear_caches()
    assert counts(combined(program))["psum"] == 2
    fnx.clear_caches()


def test_what_acts_keeps_its_place():
    """A callback between two sums sees the first, and the second waits for it."""
    seen = []

    def acts(x):
        first = lax.psum(x, "i")
        fnx.debug.callback(lambda v: seen.append(float(v)), x)
        return first, lax.psum(x + 1, "i")

    assert counts(combined(traced(acts, 1.0)))["psum"] == 2


@pytest.mark.multi_device
def test_the_bits_are_those_of_each_alone(monkeypatch):
    monkeypatch.setattr(joint, "runs_as_one", lambda *_: False)
    x = fnp.array(RNG.standard_normal((N, 2, 2, 3)).astype("f4") * 1e3)
    y = fnp.array(RNG.standard_normal((N, 2, 4)))

    def run(map):
        return map(fnx.vmap(step, axis_name="j"), "i")(x, y)

    def plain(function, name):
        return fnx.vmap(function, axis_name=name)

    fnx.clear_caches()
    with fnx.config.override(cpu_devices=N):
        found = run(fnx.pmap)
        monkeypatch.setattr(combine, "SMALL", -1)
        fnx.clear_caches()
        apart = run(fnx.pmap)
    fnx.clear_caches()
    for a, b, c in zip(found, apart, run(plain), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, 1e-5, 1e-3)
