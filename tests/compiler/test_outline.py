"""Outlining: repeated groups share a kernel, and compute what they did alone."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx.compiler.pipeline import plan_program
from fnx.runtime.plan import KernelStep


def kernel_steps(f, *args):
    plan = plan_program(fnx.make_jaxpr(f)(*args))
    return plan, [step for step in plan.steps if isinstance(step, KernelStep)]


def layers(x, weights):
    for w in weights:
        x = fnp.tanh(x @ w) * 0.5 + x
    return x


def test_layers_share_a_kernel(rng):
    x = rng.standard_normal((5, 7), dtype=np.float32)
    weights = [rng.standard_normal((7, 7), dtype=np.float32) for _ in range(6)]
    _plan, steps = kernel_steps(layers, x, weights)
    assert len(steps) == 6
    assert len({id(step.kernel) for step in steps}) == 1
    wanted = x
    for w in weights:
        wanted = np.tanh(wanted @ w) * np.float32(0.5) + wanted
    np.testing.assert_allclose(fnx.jit(layers)(x, weights), wanted, rtol=1e-5)


# Groups that look alike, and must not share a kernel: (function, kernels).
DIFFERENT = {
    "another constant": lambda x, w: fnp.sin((x @ w) * 2.0) @ w * 3.0,
    "another operand": lambda x, w: ((x @ w) * 2.0 + x) @ w * 2.0 + w,
    "another order": lambda x, w: ((x @ w) / (w @ x)) @ (w / (x @ x)),
    "another view": lambda x, w: (x @ w + fnp.ravel(x)[:9].reshape(3, 3)) @ w + x.T,
    "two outputs": lambda x, w: [(x @ w + 1, fnp.exp(x @ w + 1)), (w @ x + 1) @ x],
}


@pytest.mark.parametrize("f", DIFFERENT.values(), ids=DIFFERENT)
def test_groups_that_look_alike(f, rng):
    x, w = (rng.standard_normal((3, 3), dtype=np.float32) for _ in range(2))
    with fnx.disable_jit():
        wanted = f(fnp.array(x), fnp.array(w))
    for a, b in zip(
        fnx.tree.leaves(fnx.jit(f)(x, w)), fnx.tree.leaves(wanted), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


def test_operands_keep_their_places(rng):
    x, y, z = (rng.standard_normal(9, dtype=np.float32) for _ in range(3))

    def f(x, y, z):
        a, b, c = (fnp.sort(v) for v in (x, y, z))  # not fused: stored values
        return fnp.sort(a - 2 * b), fnp.sort(b - 2 * a), fnp.sort(c - 2 * a), a - 2 * a

    a, b, c = (np.sort(v) for v in (x, y, z))
    wanted = np.sort(a - 2 * b), np.sort(b - 2 * a), np.sort(c - 2 * a), a - 2 * a
    for found, expected in zip(fnx.jit(f)(x, y, z), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
    _, steps = kernel_steps(f, x, y, z)
    assert len(steps) == 4
    assert len({id(step.kernel) for step in steps}) == 2
