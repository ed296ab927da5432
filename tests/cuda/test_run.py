"""Instructions run: launches, copies, steps on the host, branches, loops, errors."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np
import pytest

from fnx import errors
from fnx.core.program import Literal
from fnx.core.types import ArrayType
from fnx.runtime import plan as steps
from fnx.runtime.plan import BranchStep, Carry, HostStep, LoopStep, Place, Rows
from fnx_cuda.instructions import Branch, Copy, Host, Loop
from tests import cuda_emulator as emulator
from tests.cuda.parts import (
    BOOL,
    F32,
    arena,
    below,
    body,
    count,
    f32,
    got,
    i32,
    inputs,
    numbers,
    outputs,
    plan,
    program,
    put,
    scale_add,
    wild,
)

pytestmark = pytest.mark.cuda

N = 131


def test_launches_and_copies(machine):
    x, y = numbers(1, N), numbers(2, N)
    (a, b), (out, copy) = inputs(0, 1), outputs(0, 1)
    run = program(
        plan([f32(N)] * 2, [f32(N)] * 2, 2048),
        [
            scale_add(a, b, arena(512), 2.0, N),
            Copy(copy, arena(512), 4 * N),
            scale_add(arena(512), arena(512), out, -0.5, N),
        ],
    )
    for _ in range(4):
        first, second = run(put(x, y), 0)
        between = x * F32.type(2) + y
        np.testing.assert_array_equal(got(second, y), between)
        np.testing.assert_array_equal(got(first, x), between * F32.type(-0.5) + between)


def test_each_device_has_its_own(machine):
    x, y = numbers(1, N), numbers(2, N)
    (a, b), (out,) = inputs(0, 1), outputs(0)
    run = program(plan([f32(N)] * 2, [f32(N)]), [scale_add(a, b, out, 3.0, N)])
    for device in (1, 0, 1):
        (found,) = run(put(x, y, device=device), device)
        assert found.device == device
        np.testing.assert_array_equal(got(found, x), x * F32.type(3) + y)


def test_work_memory_is_shared_behind_the_arena(machine):
    x, y = numbers(1, N), numbers(2, N)
    (a, b), (out,) = inputs(0, 1), outputs(0)
    work = Place("work", 256)
    run = program(
        plan([f32(N)] * 2, [f32(N)], 1000),
        [scale_add(a, b, work, 2.0, N), scale_add(work, a, out, 1.0, N)],
        work=1024,
    )
    (found,) = run(put(x, y), 0)
    np.testing.assert_array_equal(got(found, x), x * F32.type(2) + y + x)


# ---------------------------------------------------------------- on the host


class Sum:
    """Stands for a primitive whose rule is all that matters."""

    name = "sum"

    def __init__(self, rule):
        self.rule = rule

    def write(self, outputs, *arrays, **params):
        outputs[0][...] = self.rule(*arrays, **params)


def host(rule, **params):
    type = f32(N)
    return Host(
        HostStep(
            Sum(rule),
            params,
            (inputs(0)[0], Literal(np.float32(2.5), ArrayType((), F32)), arena(0)),
            (type, ArrayType((), F32), type),
            (arena(1024),),
            (type,),
        )
    )


def host_program(rule, **params):
    (a, b), (out,) = inputs(0, 1), outputs(0)
    return program(
        plan([f32(N)] * 2, [f32(N)], 2048),
        [
            scale_add(a, b, arena(0), 2.0, N),
            host(rule, **params),
            scale_add(arena(1024), a, out, 1.0, N),
        ],
    )


def test_host_steps_stand_between_launches(machine):
    x, y = numbers(1, N), numbers(2, N)
    run = host_program(lambda x, two, z, power: (x + two * z) ** power, power=2)
    for _ in range(3):
        (found,) = run(put(x, y), 0)
        want = (x + F32.type(2.5) * (x * F32.type(2) + y)) ** 2 + x
        np.testing.assert_allclose(got(found, x), want, rtol=1e-6)


def test_an_error_of_a_host_step_is_the_runs(machine):
    x, y = numbers(1, N), numbers(2, N)
    fails = [True, False]

    def rule(x, two, z):
        if fails.pop(0):
            raise ValueError("not today")
        return x

    run = host_program(rule)
    with pytest.raises(ValueError, match="not today"):
        run(put(x, y), 0)
    (found,) = run(put(x, y), 0)
    np.testing.assert_array_equal(got(found, x), x + x)


def test_a_host_step_may_run_the_same_program(machine):
    x, y = numbers(1, N), numbers(2, N)
    depth = []

    def rule(x, two, z):
        if not depth:
            depth.append(1)
            (inner,) = run(put(y, y), 0)
            return got(inner, y) + z
        return x

    run = host_program(rule)
    (found,) = run(put(x, y), 0)
    want = (y + y) + (x * F32.type(2) + y) + x
    np.testing.assert_allclose(got(found, x), want, rtol=1e-6)


def test_a_host_step_gives_the_device_to_other_threads(machine):
    x, y = numbers(1, N), numbers(2, N)
    (a, b), (out,) = inputs(0, 1), outputs(0)
    other = program(plan([f32(N)] * 2, [f32(N)]), [scale_add(a, b, out, 3.0, N)])
    results = []

    def work():
        (found,) = other(put(x, y), 0)
        results.append(got(found, x))

    def rule(x, two, z):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        return x

    (found,) = host_program(rule)(put(x, y), 0)
    np.testing.assert_array_equal(got(found, x), x + x)
    np.testing.assert_array_equal(results[0], x * F32.type(3) + y)


# ---------------------------------------------------------------- branches


@pytest.mark.parametrize(("index", "factor"), [(0, 2), (1, 5), (-3, 2), (9, 5)])
def test_branches(machine, index, factor):
    x, y = numbers(1, N), numbers(2, N)
    (a, b), (out,) = inputs(0, 1), outputs(0)
    held = plan([f32(N)] * 2, [f32(N)], 512 + 4 * N)
    step = BranchStep(
        inputs(0)[0], (held, held), tuple(inputs(1, 2)), tuple(outputs(0)), arena(64)
    )
    branches = [
        body(
            scale_add(b, a, arena(512), number, N),
            scale_add(arena(512), a, out, 1.0, N),
        )
        for number in (2.0, 5.0)
    ]
    run = program(
        plan([i32(), f32(N), f32(N)], [f32(N)], 2048), [Branch(step, tuple(branches))]
    )
    for _ in range(3):
        (found,) = run(put(np.int32(index), x, y), 0)
        want = (y * F32.type(factor) + x) + x
        np.testing.assert_array_equal(got(found, x), want)


# ---------------------------------------------------------------- loops


def scan(length, *, reverse=False, count=None, spare=True, n=N):
    """carry, row -> carry * 0.5 + row, which is also a row of the result.

    Inputs: the carry, the rows, the count.
    """
    held = plan([f32(n)] * 2, [f32(n)] * 2, 4 * n)
    (carry, row), (out, result) = inputs(0, 1), outputs(0, 1)
    inner = body(
        scale_add(carry, row, arena(0), 0.5, n),
        Copy(out, arena(0), 4 * n),
        Copy(result, arena(0), 4 * n),
    )
    size = -(-4 * n // 64) * 64
    step = LoopStep(
        held,
        (),
        (Carry(inputs(0)[0], outputs(0)[0], arena(0), 4 * n),),
        (Rows(inputs(1)[0], 4 * n),),
        (Rows(outputs(1)[0], 4 * n),),
        arena(size),
        length,
        reverse,
        count,
    )
    types = [f32(n), f32(length, n), i32()]
    whole = plan(types, [f32(n), f32(length, n)], 2 * size)
    return program(whole, [Loop(step, inner, None)])


def scanned(carry, rows, length, reverse=False):
    """The same by NumPy; rows that no round makes are zero."""
    results = np.zeros_like(rows)
    for number in reversed(range(length)) if reverse else range(length):
        carry = carry * F32.type(0.5) + rows[number]
        results[number] = carry
    return carry, results


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_scans(machine, length, reverse):
    run = scan(length, reverse=reverse)
    for seed in range(4):
        start, rows = numbers(seed, N), numbers(seed + 9, length, N)
        carry, results = run(put(start, rows, np.int32(0)), 0)
        want = scanned(start, rows, length, reverse)
        np.testing.assert_array_equal(got(carry, start), want[0])
        np.testing.assert_array_equal(got(results, rows), want[1])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rounds", [-1, 0, 1, 2, 6, 99])
def test_a_count_on_the_device(machine, rounds, reverse):
    length = 6
    run = scan(length, reverse=reverse, count=inputs(2)[0])
    made = min(max(rounds, 0), length)
    for seed in range(3):
        start, rows = numbers(seed, N), numbers(seed + 9, length, N)
        carry, results = run(put(start, rows, np.int32(rounds)), 0)
        want = scanned(start, rows, made, reverse)
        np.testing.assert_array_equal(got(carry, start), want[0])
        if made == length:
            np.testing.assert_array_equal(got(results, rows), want[1])


@pytest.mark.parametrize("reverse", [False, True])
def test_many_rounds_are_several_graphs(machine, monkeypatch, reverse):
    from fnx_cuda import flow, frame

    monkeypatch.setattr(flow, "MOST_NODES", 13)
    monkeypatch.setattr(frame, "MOST_NODES", 13)
    monkeypatch.setattr(flow, "CHUNK_NODES", 13)
    n, length = 5, 23
    run = scan(length, reverse=reverse, n=n)
    for seed in range(3):
        start, rows = numbers(seed, n), numbers(seed + 9, length, n)
        carry, results = run(put(start, rows, np.int32(0)), 0)
        want = scanned(start, rows, length, reverse)
        np.testing.assert_array_equal(got(carry, start), want[0])
        np.testing.assert_array_equal(got(results, rows), want[1])


def counting(limit, length=None, full=None):
    """While x < limit: x + 3, y * 0.5 + z. Inputs: x, y, z."""
    held = plan([f32(N), i32(), f32(N)], [i32(), f32(N)], 0)
    z, x, y = inputs(0, 1, 2)
    inner = body(count(x, outputs(0)[0], 3), scale_add(y, z, outputs(1)[0], 0.5, N))
    asked = plan([i32(), f32(N)], [ArrayType((), BOOL)], 0)
    question = body(below(inputs(0)[0], outputs(0)[0], limit))
    size = -(-4 * N // 64) * 64
    step = LoopStep(
        held,
        tuple(inputs(2)),
        (
            Carry(inputs(0)[0], outputs(0)[0], arena(0), 4),
            Carry(inputs(1)[0], outputs(1)[0], arena(64), 4 * N),
        ),
        (),
        (),
        arena(64 + size),
        length,
        test=steps.Test(asked, (), arena(64 + size)),
        counter=None if length is None else outputs(2)[0],
        full=full,
    )
    ends = [i32(), f32(N)] + ([] if length is None else [i32()])
    whole = plan([i32(), f32(N), f32(N)], ends, 128 + size)
    return program(whole, [Loop(step, inner, question)])


@pytest.mark.parametrize("start", [100, 99, 97, 80])
def test_while_loops(machine, start):
    run = counting(100)
    y, z = numbers(1, N), numbers(2, N)
    for _ in range(3):
        x, found = run(put(np.int32(start), y, z), 0)
        at, want = start, y
        while at < 100:
            at, want = at + 3, want * F32.type(0.5) + z
        assert got(x, np.int32(0)) == at
        np.testing.assert_array_equal(got(found, y), want)


def test_a_bounded_loop_counts_and_may_be_full(machine):
    full = errors.StepLimitError("more than 7 steps")
    run = counting(100, 7, full)
    y, z = numbers(1, N), numbers(2, N)
    x, _, made = run(put(np.int32(82), y, z), 0)
    assert got(x, np.int32(0)) == 100
    assert got(made, np.int32(0)) == 6
    with pytest.raises(errors.StepLimitError, match="more than 7"):
        run(put(np.int32(50), y, z), 0)
    *_, made = run(put(np.int32(100), y, z), 0)
    assert got(made, np.int32(0)) == 0


# ---------------------------------------------------------------- errors


def two_scales():
    (a, b), (out,) = inputs(0, 1), outputs(0)
    return program(
        plan([f32(N)] * 2, [f32(N)], 1024),
        [
            scale_add(a, b, arena(0), 2.0, N),
            scale_add(arena(0), b, out, 1.0, N),
        ],
        scopes=["first", "model/second"],
    )


def check(run, device=0):
    x, y = numbers(1, N), numbers(2, N)
    (found,) = run(put(x, y, device=device), device)
    np.testing.assert_array_equal(got(found, x), (x * F32.type(2) + y) + y)


def test_a_launch_error_names_kernel_and_scope(machine):
    run = two_scales()
    for _ in range(2):
        held = put(numbers(1, N), numbers(2, N))
        emulator.inject.launch_error(after=1)
        with pytest.raises(
            errors.DeviceError, match=r"'scale_add'.*device 0.*model/second"
        ):
            run(held, 0)
        check(run)


def test_a_compile_error_leaves_nothing_behind(machine):
    (a,), (out,) = inputs(0), outputs(0)
    launch = scale_add(a, a, out, 2.0, N)
    text = launch.text + f"// {machine.settings.seed} is compiled nowhere else"
    run = program(plan([f32(N)], [f32(N)]), [dataclasses.replace(launch, text=text)])
    x = numbers(1, N)
    emulator.inject.compile_error(match="nowhere else")
    for _ in range(2):
        with pytest.raises(errors.CompileError):
            run(put(x), 0)
    emulator.inject.clear()
    (found,) = run(put(x), 0)
    np.testing.assert_array_equal(got(found, x), x * F32.type(2) + x)


def test_a_wild_write_is_reported_where_a_result_is_wanted(machine):
    (out,) = outputs(0)
    run = program(plan([], [f32(4)]), [wild(out, 4096)])
    (found,) = run([], 0)
    with pytest.raises(errors.DeviceError, match=r"kernel 'wild'(.|\n)*start it again"):
        got(found, np.zeros(4, F32))
    machine.findings.clear()


def test_a_lost_device_is_an_error_of_every_call(machine):
    run = two_scales()
    check(run)
    emulator.inject.device_lost()
    for _ in range(2):
        with pytest.raises(errors.DeviceError, match="lost"):
            check(run)
