"""CUDA graphs: when something is captured, what a replay reads, and what cannot be.

The machine counts what is launched, so that a test sees which way a run went.
"""

from __future__ import annotations

import ctypes
import warnings

import numpy as np
import pytest

from fnx import errors
from fnx.core.types import ArrayType
from fnx.runtime import plan as steps
from fnx.runtime.plan import Carry, LoopStep, Rows
from fnx_cuda import _cupy, device, graph
from fnx_cuda import program as programs
from fnx_cuda.instructions import Copy, Loop
from fnx_cuda.memory import Buffer
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
)
from tests.cuda.test_run import counting, host_program, scan, scanned

pytestmark = pytest.mark.cuda

N = 77


@pytest.fixture
def calls(monkeypatch):
    """The numbers of launches, captures and replays so far."""
    made = {"launch": 0, "begin_capture": 0, "launch_graph": 0}
    for name in made:
        counted(monkeypatch, made, name)
    return made


def counted(monkeypatch, made, name):
    real = getattr(_cupy, name)

    def count(*args):
        made[name] += 1
        return real(*args)

    monkeypatch.setattr(_cupy, name, count)


def two_steps(n=N, scratch=512):
    """out = (x * 2 + y) * 3 + y"""
    (a, b), (out,) = inputs(0, 1), outputs(0)
    return program(
        plan([f32(n)] * 2, [f32(n)], scratch),
        [scale_add(a, b, arena(0), 2.0, n), scale_add(arena(0), b, out, 3.0, n)],
    )


def want(x, y):
    return (x * F32.type(2) + y) * F32.type(3) + y


def write(buffer, values):
    """New values in the same memory, behind everything that was started."""
    _cupy.wait_for_device(buffer.device)
    ctypes.memmove(buffer.pointer, values.ctypes.data, values.nbytes)


def test_the_second_time_is_captured_and_later_ones_replayed(machine, calls):
    run, held = two_steps(), put(numbers(1, N), numbers(2, N))
    first = None
    for number in range(6):
        x, y = numbers(number, N), numbers(number + 9, N)
        write(held[0], x)
        write(held[1], y)
        del first  # so that the output is where it was
        (first,) = run(held, 0)
        np.testing.assert_array_equal(got(first, x), want(x, y))
    assert calls == {"launch": 4, "begin_capture": 1, "launch_graph": 5}


def test_a_replay_needs_nothing_of_the_arena(machine):
    run, held = two_steps(), put(numbers(1, N), numbers(2, N))
    x, y = numbers(1, N), numbers(2, N)
    for _ in range(5):
        (found,) = run(held, 0)
        np.testing.assert_array_equal(got(found, x), want(x, y))
        (loaded,) = run._loaded.values()
        memory = loaded.memory
        emulator.cupy_module().cuda.runtime.fnx_poison(memory.pointer, memory.nbytes)
        _cupy.wait_for_device(0)


def test_outputs_that_alternate_have_a_graph_each(machine, calls):
    run = two_steps()
    x, y = numbers(1, N), numbers(2, N)
    (state,) = put(x)
    (second,) = put(y)
    for _ in range(12):
        (state,) = run([state, second], 0)
        x = want(x, y)
        x, y = x / np.abs(x).max(), y
        write(state, x)
    assert calls["launch_graph"] >= 12 - 2 * 3
    np.testing.assert_array_equal(got(state, x), x)


def test_only_so_many_graphs_are_kept(machine, monkeypatch):
    monkeypatch.setattr(graph, "KEPT", 3)
    monkeypatch.setattr(programs, "STAGED_BYTES", 0)
    run = two_steps()
    y = numbers(2, N)
    (second,) = put(y)
    kept = [put(numbers(seed, N))[0] for seed in range(6)]
    for _ in range(3):
        for seed, first in enumerate(kept):
            (found,) = run([first, second], 0)
            np.testing.assert_array_equal(got(found, y), want(numbers(seed, N), y))
            del found
    (loaded,) = run._loaded.values()
    ((_, _, stretch),) = loaded.body.parts
    assert len(stretch.graphs.graphs) == 3


@pytest.mark.parametrize("keep", [(), ("x",), ("out",), ("x", "out")])
def test_what_moves_about_gets_a_fixed_place(machine, calls, keep):
    run = two_steps()
    y = numbers(2, N)
    (second,) = put(y)
    kept = []
    for seed in range(20):
        x = numbers(seed, N)
        (first,) = put(x)
        (found,) = run([first, second], 0)
        kept += [first] if "x" in keep else []
        kept += [(found, want(x, y))] if "out" in keep else []
        np.testing.assert_array_equal(got(found, x), want(x, y))
    assert calls["launch_graph"] >= 20 - programs.PLACES - 4
    assert calls["begin_capture"] <= 4
    for item in kept:  # nothing was written again
        if isinstance(item, tuple):
            np.testing.assert_array_equal(got(item[0], y), item[1])


def test_large_inputs_that_move_stay_where_they_are(machine, calls, monkeypatch):
    monkeypatch.setattr(programs, "STAGED_BYTES", 4 * N - 1)
    run = two_steps()
    y = numbers(2, N)
    (second,) = put(y)
    held = []
    for seed in range(8):
        held += put(numbers(seed, N))
        run([held[-1], second], 0)
    assert calls["begin_capture"] == 0


def test_a_host_step_cuts_the_graph(machine, calls):
    n = 131
    run = host_program(lambda x, two, z: x * two + z)
    x, y = numbers(1, n), numbers(2, n)
    held = put(x, y)
    for _ in range(4):
        (found,) = run(held, 0)
        np.testing.assert_allclose(
            got(found, x), x * F32.type(2.5) + (x * F32.type(2) + y) + x, rtol=1e-6
        )
    # a launch by itself on either side
    assert calls == {"launch": 8, "begin_capture": 0, "launch_graph": 0}


def test_a_scan_is_captured_whole(machine, calls):
    run = scan(5, reverse=True)
    n = 131
    start, rows = numbers(1, n), numbers(2, 5, n)
    held = put(start, rows, np.int32(0))
    ends = None
    for number in range(4):
        write(held[0], numbers(number, n))
        del ends
        ends = run(held, 0)
        carry, results = scanned(numbers(number, n), rows, 5, True)
        np.testing.assert_array_equal(got(ends[0], start), carry)
        np.testing.assert_array_equal(got(ends[1], rows), results)
    assert calls == {"launch": 10, "begin_capture": 1, "launch_graph": 3}


def test_rounds_of_a_while_loop_are_graphs(machine, calls):
    run = counting(100)
    n = 131
    y, z = numbers(1, n), numbers(2, n)
    held = put(np.int32(70), y, z)
    for _ in range(3):
        found = run(held, 0)
        del found
    # ten rounds a run: those of even number, of odd number, and the first
    assert calls["begin_capture"] <= 4
    assert calls["launch_graph"] >= 30 - 2 * calls["begin_capture"]


def test_what_cannot_be_captured_runs_and_says_so_once(machine, monkeypatch):
    def refuse(*args):
        raise NotImplementedError("no capture today")

    run, held = two_steps(), put(numbers(1, N), numbers(2, N))
    x, y = numbers(1, N), numbers(2, N)
    monkeypatch.setattr(_cupy, "end_capture", refuse)
    found = run(held, 0)
    del found
    with pytest.warns(RuntimeWarning, match=r"kernel 'scale_add' and 1 more.*today"):
        (found,) = run(held, 0)
    np.testing.assert_array_equal(got(found, x), want(x, y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            (found,) = run(held, 0)
            np.testing.assert_array_equal(got(found, x), want(x, y))


def test_who_looks_for_a_kernel_gets_launches(machine, calls, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    run, held = two_steps(), put(numbers(1, N), numbers(2, N))
    for _ in range(3):
        found = run(held, 0)
        del found
    assert calls == {"launch": 6, "begin_capture": 0, "launch_graph": 0}


def test_a_launch_error_while_capturing_is_no_error_of_the_run(machine):
    run, held = two_steps(), put(numbers(1, N), numbers(2, N))
    x, y = numbers(1, N), numbers(2, N)
    found = run(held, 0)
    del found
    emulator.inject.launch_error(after=1)
    with pytest.warns(RuntimeWarning, match="cannot be a CUDA graph"):
        (found,) = run(held, 0)
    np.testing.assert_array_equal(got(found, x), want(x, y))


def test_capturing_allocates_nothing(machine, monkeypatch):
    run, held = two_steps(), put(numbers(1, N), numbers(2, N))
    found = run(held, 0)
    del found
    on = device.device(0)
    count = on.memory.count
    run(held, 0)
    assert on.memory.count == count  # the output is where it was


def test_long_loops_without_rows_are_replayed_in_one_run(machine, calls, monkeypatch):
    from fnx_cuda import flow, frame

    monkeypatch.setattr(flow, "MOST_NODES", 8)
    monkeypatch.setattr(frame, "MOST_NODES", 8)
    monkeypatch.setattr(flow, "CHUNK_NODES", 8)
    length = 90
    held = plan([f32(N)] * 2, [f32(N)])
    a, b = inputs(0, 1)
    inner = body(scale_add(b, a, outputs(0)[0], 0.5, N))
    step = LoopStep(
        held,
        tuple(inputs(1)),
        (Carry(inputs(0)[0], outputs(0)[0], arena(0), 4 * N),),
        (),
        (),
        arena(512),
        length,
    )
    run = program(plan([f32(N)] * 2, [f32(N)], 1024), [Loop(step, inner, None)])
    x, y = numbers(1, N), numbers(2, N)
    (found,) = run(put(x, y), 0)
    for _ in range(length):
        x = x * F32.type(0.5) + y
    np.testing.assert_array_equal(got(found, y), x)
    assert calls["launch_graph"] >= 8


def test_donated_memory_becomes_an_output(machine):
    n = 300
    (a, b), (first, second) = inputs(0, 1), outputs(0, 1)
    run = program(
        plan([f32(n)] * 2, [f32(n)] * 2, 2048),
        [
            scale_add(a, b, arena(0), 2.0, n),
            Copy(first, arena(0), 4 * n),  # x is read no more
            scale_add(arena(0), b, second, 1.0, n),  # y is read here
        ],
    )
    x, y = numbers(1, n), numbers(2, n)
    for _ in range(4):
        ins = put(x, y)
        where = ins[0].pointer
        outs = run(ins, 0, [0, 1])
        assert where == outs[0].pointer
        assert ins[1].pointer not in [out.pointer for out in outs]
        total = x * F32.type(2) + y
        np.testing.assert_array_equal(got(outs[0], x), total)
        np.testing.assert_array_equal(got(outs[1], x), total + y)


def test_donated_memory_that_is_given_twice_stays(machine):
    n = 300
    (a, b), (out,) = inputs(0, 1), outputs(0)
    run = program(
        plan([f32(n)] * 2, [f32(n)], 2048),
        [scale_add(a, a, arena(0), 2.0, n), scale_add(arena(0), b, out, 1.0, n)],
    )
    x = numbers(1, n)
    (both,) = put(x)
    (found,) = run([both, both], 0, [0])
    assert found.pointer != both.pointer
    np.testing.assert_array_equal(got(found, x), x * F32.type(3) + x)
    np.testing.assert_array_equal(got(both, x), x)


def test_rounds_that_record_rows_are_graphs(machine, calls):
    """Each round of a bounded loop keeps its carry."""
    held = plan([f32(N), i32(), f32(N)], [i32(), f32(N), f32(N)])
    z, x, y = inputs(0, 1, 2)
    ends = outputs(0, 1, 2)
    inner = body(
        count(x, ends[0], 1), scale_add(y, z, ends[1], 0.5, N), Copy(ends[2], y, 4 * N)
    )
    asked = plan([i32(), f32(N)], [ArrayType((), BOOL)])
    question = body(below(inputs(0)[0], outputs(0)[0], 9))
    step = LoopStep(
        held,
        tuple(inputs(2)),
        (
            Carry(inputs(0)[0], outputs(0)[0], arena(0), 4),
            Carry(inputs(1)[0], outputs(1)[0], arena(512), 4 * N),
        ),
        (),
        (Rows(outputs(2)[0], 4 * N),),
        arena(1024),
        20,
        test=steps.Test(asked, (), arena(256)),
        counter=outputs(3)[0],
        full=errors.StepLimitError("too many"),
    )
    types = [i32(), f32(N), f32(20, N), i32()]
    whole = plan([i32(), f32(N), f32(N)], types, 2048)
    run = program(whole, [Loop(step, inner, question)])
    first, second = numbers(1, N), numbers(2, N)
    for start in (0, 0, 3, 0):
        found = run(put(np.int32(start), first, second), 0)
        state, rows = first, []
        for _ in range(start, 9):
            rows.append(state)
            state = state * F32.type(0.5) + second
        made = 9 - start
        assert got(found[3], np.int32(0)) == made
        np.testing.assert_array_equal(got(found[1], state), state)
        part = Buffer(0, found[2].pointer, 4 * N * made, found[2])
        part.moment = found[2].moment
        np.testing.assert_array_equal(got(part, np.stack(rows)), np.stack(rows))
    assert calls["launch_graph"] >= 15
