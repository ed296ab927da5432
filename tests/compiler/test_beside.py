"""Kernels of single numbers: which become one, and that they give the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
from fnx import numpy as np_
from fnx.kernel.ir import Loop
from tests.compiler.test_fuse import data, kinds, planned


def numbers(count: int) -> list[Any]:
    return [np.float32(x) for x in np.linspace(-1.5, 2.5, count)]


@pytest.mark.parametrize("count", [1, 2, 50])
def test_numbers_are_one_kernel(count):
    plan = planned(lambda *xs: [x * 2 + n for n, x in enumerate(xs)], *numbers(count))
    assert kinds(plan) == ["kernel"]
    assert len(plan.kernels[0].buffers) == 2 * count


def test_an_array_is_taken_apart_by_one_kernel():
    plan = planned(lambda x: [x[n] * (n + 2) for n in range(20)], data(20))
    assert kinds(plan) == ["kernel"]


def test_a_kernel_does_not_grow_for_ever():
    plan = planned(lambda *xs: [np_.sin(x) * 2 + x for x in xs], *numbers(150))
    assert 1 < len(plan.steps) < 10


def test_other_shapes_are_apart():
    plan = planned(lambda x, y: (x + 1, y.reshape(1) * 2), *numbers(2))
    assert kinds(plan) == ["kernel", "kernel"]


def test_what_is_folded_is_apart():
    plan = planned(lambda x, y: (x + 1, np_.sum(y * y)), np.float32(0.5), data(300))
    assert kinds(plan) == ["kernel", "kernel"]
    assert sum(any(isinstance(s, Loop) for s in k.body) for k in plan.kernels) == 1


def test_numbers_before_and_after_a_step():
    """What the product needs is computed before it, what needs the product after it."""

    def function(a: Any, b: Any, x: Any) -> Any:
        scale, shift = np_.exp(a), np_.exp(b)
        y = (x * scale) @ (x + shift)
        return scale, shift, y[0, 0] * a, y[1, 2] - b

    plan = planned(function, *numbers(2), data(80, 80) / 9)
    order = kinds(plan)
    assert "matmul" in order
    assert order[-1] == "kernel"
    assert len(order) <= 6


def test_a_loop_over_many_numbers_compiles_few_kernels():
    """Its carry is packed before the loop, and taken apart after it."""

    def body(carry: Any, _: Any) -> Any:
        return [x * 0.9 + 0.1 for x in carry], None

    def function(*carry: Any) -> Any:
        ends, _ = fnx.lax.scan(body, list(carry), None, 7)
        return [end * 3 for end in ends]

    xs = numbers(50)
    plan = planned(function, *xs)
    assert len(plan.steps) <= 5
    wanted = np.array(xs, np.float64)
    for _ in range(7):
        wanted = wanted * 0.9 + 0.1
    np.testing.assert_allclose(np.array(fnx.jit(function)(*xs)), 3 * wanted, atol=1e-5)
