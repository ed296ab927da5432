"""What fusion stores and what it computes inline, seen in the plan's steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
from fnx import numpy as np_
from fnx.compiler.pipeline import plan_program
from fnx.core.reference import run_reference
from fnx.cpu.backend import BACKEND
from fnx.kernel.expr import Load
from fnx.kernel.ir import Eval, Loop
from fnx.runtime.array import from_numpy
from fnx.runtime.executable import Executable
from fnx.runtime.plan import HostStep, KernelStep, MatmulStep, Plan


def planned(function: Any, *arrays: Any) -> Plan:
    """The plan of a function, checked to compute what the reference rules do."""
    program = fnx.make_jaxpr(function)(*arrays)
    plan = plan_program(program)
    executable = Executable(program, BACKEND.load(BACKEND.compile(plan)), plan)
    inputs = [from_numpy(np.asarray(a)) for a in arrays]
    found = executable.run(inputs)
    wanted = run_reference(program, [np.asarray(a) for a in arrays])
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=2e-5, atol=2e-5)
    return plan


def kinds(plan: Plan) -> list[str]:
    names = {KernelStep: "kernel", MatmulStep: "matmul", HostStep: "host"}
    return [names.get(type(step), type(step).__name__) for step in plan.steps]


def data(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("f4")


def softmax(x: Any) -> Any:
    top = np_.max(x, axis=-1, keepdims=True)
    weights = np_.exp(x - top)
    return weights / np_.sum(weights, axis=-1, keepdims=True)


def layer_norm(x: Any, scale: Any) -> Any:
    mean = np_.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    variance = np_.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np_.sqrt(variance + 1e-5) * scale


def test_a_chain_is_one_kernel() -> None:
    plan = planned(
        lambda x: np_.tanh(x) * np_.exp(-x * x) + 0.5 * np_.sin(x), data(9, 7)
    )
    assert kinds(plan) == ["kernel"]
    assert plan.arena == 0


def test_shape_operations_cost_nothing() -> None:
    def function(x: Any) -> Any:
        y = np_.transpose(x.reshape(4, 6, 5), (2, 0, 1))[::-1, 1:]
        return np_.pad(y, ((0, 1), (1, 0), (0, 0))) * 2.0

    assert kinds(planned(function, data(8, 15))) == ["kernel"]


@pytest.mark.parametrize("shape", [(5, 9), (2, 3, 4)])
def test_row_programs_are_one_kernel(shape: tuple[int, ...]) -> None:
    assert kinds(planned(softmax, data(*shape))) == ["kernel"]
    assert kinds(planned(layer_norm, data(*shape), data(shape[-1]))) == ["kernel"]


def test_a_column_statistic_is_stored_not_computed_for_every_element() -> None:
    plan = planned(lambda x: x - np_.mean(x, axis=0), data(6, 7))
    assert kinds(plan) == ["kernel", "kernel"]


def test_outputs_of_one_shape_share_a_kernel() -> None:
    def adam(p: Any, m: Any, v: Any, g: Any) -> Any:
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        return p - m / (np_.sqrt(v) + 1e-8), m, v

    plan = planned(adam, data(30), data(30), abs(data(30)), data(30))
    assert kinds(plan) == ["kernel"]


def test_an_expensive_value_with_two_kernels_is_stored() -> None:
    def function(x: Any) -> Any:
        y = np_.exp(np_.sin(x))
        return np_.sum(y, axis=0), np_.sum(y, axis=1)

    assert kinds(planned(function, data(5, 8))) == ["kernel"] * 3


def test_a_cheap_value_with_two_kernels_is_computed_twice() -> None:
    def function(x: Any) -> Any:
        y = x * 2.0
        return np_.sum(y, axis=0), np_.sum(y, axis=1)

    assert kinds(planned(function, data(5, 8))) == ["kernel"] * 2


def test_literals_and_low_powers_cost_next_to_nothing() -> None:
    def function(x: Any) -> Any:
        y = 0.5 * (x + 0.1 * x**3) * 2.0 - 1.0
        return np_.sum(y, axis=0), np_.sum(y, axis=1)

    plan = planned(function, data(30, 20))
    assert kinds(plan) == ["kernel"] * 2
    assert plan.arena == 0


def test_kernels_do_not_depend_on_each_other() -> None:
    """a and c could share a kernel, were it not for the product between them."""

    def function(x: Any) -> Any:
        a = np_.exp(x)
        b = a @ a
        c = np_.sin(b * 0.01) + x
        return a, c

    assert kinds(planned(function, data(40, 40))) == ["kernel", "matmul", "kernel"]


@pytest.mark.parametrize("n", [1, 4, 33])
def test_a_kernel_does_not_load_a_view_of_what_it_computes(n: int) -> None:
    def function(x: Any, y: Any) -> Any:
        column = np_.sin(x) * np_.cos(x)
        flat = column.reshape(-1)  # a view, which kernels of two shapes read
        a = (flat * 2.0 + 1.0).reshape(-1, 1) + column
        return a, np_.stack([flat * 3.0, np_.tanh(y[:, 0]) * flat], axis=1) * y + column

    x, y = data(n, 1), data(n, 2)
    column = np.sin(x) * np.cos(x)
    beside = np.concatenate([column * 3.0, np.tanh(y[:, :1]) * column], axis=1)
    wanted = column * 2.0 + 1.0 + column, beside * y + column
    for found, want in zip(fnx.jit(function)(x, y), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_a_product_reads_views_and_transposes_in_place() -> None:
    def function(x: Any, y: Any) -> Any:
        return x.reshape(40, 50).T @ y

    plan = planned(function, data(2000), data(40, 60))
    assert kinds(plan) == ["matmul"]


def test_a_fold_is_computed_for_its_part_of_an_array_alone() -> None:
    def function(w: Any, x: Any, y: Any) -> Any:
        return np_.concatenate([np_.tanh(w @ x), 2.0 * y, (x * x).sum(keepdims=True)])

    plan = planned(function, data(3, 7), data(7), data(200))
    assert kinds(plan) == ["kernel"] * 3
    *_, last = plan.steps
    assert isinstance(last, KernelStep)
    loops = [s for s in last.kernel.body if isinstance(s, Loop)]
    assert not any(isinstance(s, Loop) for loop in loops for s in loop.body)
    # Where little is beside it, one kernel is quicker.
    assert kinds(planned(function, data(3, 7), data(7), data(20))) == ["kernel"]


def test_a_shifted_read_of_an_expensive_value_is_stored() -> None:
    def function(x: Any) -> Any:
        for _ in range(6):
            x = np_.sin(x[1:] - x[:-1])
        return x

    plan = planned(function, data(60))
    assert len(plan.steps) == 6


def test_a_row_statistic_of_a_row_statistic() -> None:
    def function(x: Any) -> Any:
        return softmax(softmax(x) * 3.0).sum(-1) + layer_norm(x, 1.0).max(-1)

    planned(function, data(4, 11))


def test_zero_sizes_and_scalars() -> None:
    planned(lambda x: (np_.sum(x, axis=0), np_.exp(x)), data(0, 3))
    planned(lambda x: np_.sin(x) + np_.sum(x), data())


def test_long_chains_are_cut() -> None:
    def function(x: Any) -> Any:
        for n in range(700):
            x = x * 0.99 + float(n % 3)
        return x

    plan = planned(function, data(17))
    assert 3 <= len(plan.steps) <= 9


def test_the_arena_is_used_again() -> None:
    def function(x: Any, w: Any) -> Any:
        for _ in range(10):
            x = np_.sin(x @ w * 0.1)
        return x

    plan = planned(function, data(32, 32), data(32, 32))
    assert plan.arena <= 3 * 32 * 32 * 4


def places(count: int, bound: int) -> Any:
    numbers = np.random.default_rng(count).integers(-2 * bound, 2 * bound, count)
    return numbers.astype(np.int32)


def test_what_a_scatter_reads_is_computed_in_its_kernel() -> None:
    def function(x: Any, i: Any, u: Any) -> Any:
        return x.at[i + 1].add(u * u + 2)

    plan = planned(function, data(40), places(90, 40), data(90))
    assert kinds(plan) == ["CopyStep", "kernel"]


def test_functions_are_computed_with_lanes_before_a_serial_kernel() -> None:
    def added(x: Any, i: Any, u: Any) -> Any:
        return x.at[i].add(np_.sin(u))

    plan = planned(added, data(40), places(90, 40), data(90))
    assert kinds(plan) == ["kernel", "CopyStep", "kernel"]
    assert len(planned(lambda x: np_.cumsum(np_.sin(x)), data(90)).steps) == 2
    assert len(planned(lambda x: np_.cumsum(np_.sin(x), 0), data(90, 80)).steps) == 1


def test_what_a_scatter_and_another_kernel_read_is_stored() -> None:
    def function(x: Any, i: Any, u: Any) -> Any:
        u = np_.sin(u) * np_.exp(u)
        return x.at[i].add(u), u * 2

    plan = planned(function, data(40), places(90, 40), data(90))
    assert kinds(plan) == ["kernel", "CopyStep", "kernel"]


def test_a_value_read_by_its_own_update_is_copied() -> None:
    def function(x: Any, i: Any) -> Any:
        x = np_.exp(x)
        return x.at[i].add(x[::-1][:30])

    plan = planned(function, data(40), places(30, 40))
    assert kinds(plan) == ["kernel", "CopyStep", "kernel"]


def test_what_nothing_else_reads_is_updated_in_place() -> None:
    def function(x: Any, i: Any) -> Any:
        return (x * 2).at[i].add(1.0).at[i + 3].set(2.0)

    plan = planned(function, data(40), places(30, 40))
    assert kinds(plan) == ["kernel"] * 3
    assert plan.arena == 0


def test_an_input_is_not_updated_in_place() -> None:
    x, i = from_numpy(data(40)), from_numpy(places(30, 40))
    before = np.array(x)
    plan = planned(lambda x, i: (x.at[i].add(1.0), x), x, i)
    assert kinds(plan) == ["CopyStep", "kernel"]
    np.testing.assert_array_equal(x, before)


def test_indices_that_are_wrapped_are_not_stored() -> None:
    plan = planned(lambda x, i: x[i] * 2, data(40, 8), places(30, 40))
    assert kinds(plan) == ["kernel"]


def test_a_plan_describes_itself() -> None:
    plan = planned(lambda x: np_.exp(x) @ x, data(40, 40))
    text = str(plan)
    assert " = @0 @ input0  1×40×40×40 float32" in text
    assert "arena 6400 bytes" in text


def rows_read_again(x: Any, w: Any) -> Any:
    for _ in range(9):
        x = np_.tanh(w @ x)
    return x


def columns_read_again(x: Any, w: Any) -> Any:
    x = x[None, :]
    for _ in range(9):
        x = np_.tanh(x @ w)
    return x


def pairs_read_again(x: Any, w: Any) -> Any:
    while x.shape[0] > 1:
        x = x[::2] * 0.5 - x[1::2]
    return x


@pytest.mark.parametrize(
    "function", [rows_read_again, columns_read_again, pairs_read_again]
)
def test_nothing_is_computed_again_and_again(function: Any) -> None:
    """Chains whose every step reads the one before many times, or at two places."""
    plan = planned(function, data(8), data(8, 8) * 0.3)
    kernels = [step.kernel for step in plan.steps if isinstance(step, KernelStep)]
    assert max(_depth(kernel.body) for kernel in kernels) <= 3
    plan = planned(function, data(32), data(32, 32) * 0.2)
    loads = [sum(_loads(s.kernel)) for s in plan.steps if isinstance(s, KernelStep)]
    assert max(loads) <= 16


def _depth(body: Any) -> int:
    inner = [1 + _depth(s.body) for s in body if isinstance(s, Loop)]
    return max(inner, default=0)


def _loads(kernel: Any) -> Any:
    for stmt in statements(kernel.body):
        if isinstance(stmt, Eval) and isinstance(stmt.expr, Load):
            yield 1


def statements(body: Any) -> Any:
    for stmt in body:
        yield stmt
        if isinstance(stmt, Loop):
            yield from statements(stmt.body)


def test_row_statistics_are_stored_not_what_is_made_of_them() -> None:
    """The gradient of a layer norm by its input and its parameters."""

    def loss(x: Any, scale: Any, weights: Any) -> Any:
        return np_.sum(layer_norm(x, scale) * weights)

    shape = (300, 200)
    plan = planned(fnx.grad(loss, (0, 1)), data(*shape), data(200), data(*shape))
    sizes = [[b.size for b in s.kernel.buffers if b.role == "out"] for s in plan.steps]
    assert sorted(sizes) == [[200], [300, 300], [300 * 200]]


def test_sums_over_the_same_axes_of_common_values_share_a_kernel() -> None:
    plan = planned(
        lambda x, y: (np_.sum(x * y, axis=0), np_.sum(y, axis=0)),
        data(9, 7),
        data(9, 7),
    )
    assert kinds(plan) == ["kernel"]
    plan = planned(
        lambda x, y: np_.sum(x / np_.sum(y, axis=0) * y, axis=0), data(9, 7), data(9, 7)
    )
    assert kinds(plan) == ["kernel", "kernel"]
