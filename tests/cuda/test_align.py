"""Rows of odd sizes, and kernels that read four elements at once.

The emulator finds every access that is not aligned. Values are compared with NumPy's.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from fnx import errors
from fnx.runtime.plan import BranchStep, Carry, LoopStep, Place, Rows
from fnx_cuda.align import aligned, needed
from fnx_cuda.instructions import Branch, Copy, Launch, Loop
from fnx_cuda.program import Compiled, Program
from tests.cuda.parts import (
    F32,
    arena,
    body,
    f32,
    got,
    i32,
    inputs,
    numbers,
    outputs,
    plan,
    put,
    scale_add,
)

pytestmark = pytest.mark.cuda

FOURS = """
struct __align__(16) F4 { float at[4]; };
struct P { const float* x; const float* y; float* out; float factor; };
extern "C" __global__ void fours(const __grid_constant__ P p) {
  const F4 x = *(const F4*)p.x, y = *(const F4*)p.y;
  F4 out;
  for (int i = 0; i < 4; i++) out.at[i] = x.at[i] * p.factor + y.at[i];
  *(F4*)p.out = out;
}
"""


def fours(x: Place, y: Place, out: Place, factor: float) -> Launch:
    """out = x * factor + y, for four floats that are read at once."""
    numbers = struct.pack("f", factor)
    return Launch(FOURS, "fours", (1, 1, 1), 1, 0, (x, y, out), numbers)


def scan(n: int, inner: list, held, length: int = 3) -> tuple:
    """A scan over rows of n floats, whose results are rows of n floats, too.

    Inputs: the carry of four floats, the rows, an index.
    """
    step = LoopStep(
        held,
        tuple(inputs(2)),
        (Carry(inputs(0)[0], outputs(0)[0], arena(0), 16),),
        (Rows(inputs(1)[0], 4 * n),),
        (Rows(outputs(1)[0], 4 * n),),
        arena(256),
        length,
    )
    types = [f32(4), f32(length, n), i32()]
    whole = plan(types, [f32(4), f32(length, n)], 1024)
    return whole, body(Loop(step, body(*inner), None))


def simple(n: int) -> tuple:
    """carry = carry * 0.5 + row[:4], and the row with that in it."""
    _, carry, row = inputs(0, 1, 2)
    out, result = outputs(0, 1)
    held = plan([i32(), f32(4), f32(n)], [f32(4), f32(n)], 256)
    inner = [
        fours(carry, row, out, 0.5),
        Copy(result, row, 4 * n),
        fours(out, out, result, 1.0),
    ]
    return scan(n, inner, held)


def simple_by_numpy(carry, rows):
    results = rows.copy()
    for number, row in enumerate(rows):
        carry = carry * F32.type(0.5) + row[:4]
        results[number, :4] = carry + carry
    return carry, results


def run(whole, instructions, *arrays):
    program = Program(Compiled(whole, instructions, ()))
    for _ in range(3):
        found = program(put(*arrays), 0)
    return found


@pytest.mark.parametrize("n", [4, 5, 6, 7, 8])
def test_rows_of_any_size(machine, n):
    whole, instructions = simple(n)
    carry, rows = numbers(1, 4), numbers(2, 3, n)
    made = aligned(instructions)
    assert (made == instructions) == (n % 4 == 0)
    found = run(whole, made, carry, rows, np.int32(0))
    wanted = simple_by_numpy(carry, rows)
    np.testing.assert_array_equal(got(found[0], carry), wanted[0])
    np.testing.assert_array_equal(got(found[1], rows), wanted[1])


def test_without_copies_it_fails(machine):
    whole, instructions = simple(5)
    found = Program(Compiled(whole, instructions, ()))(
        put(numbers(1, 4), numbers(2, 3, 5), np.int32(0)), 0
    )
    with pytest.raises(errors.DeviceError, match="not aligned"):
        got(found[0], numbers(1, 4))
    machine.findings.clear()


def test_rows_that_are_read_one_by_one_stay(machine):
    n = 5
    _, carry, row = inputs(0, 1, 2)
    out, result = outputs(0, 1)
    held = plan([i32(), f32(4), f32(n)], [f32(4), f32(n)], 256)
    one = scale_add(row, row, result, 2.0, n)
    inner = [
        replace(one, alignment=4),
        Copy(out, carry, 16),
    ]
    _, instructions = scan(n, inner, held)
    assert aligned(instructions) == instructions


def test_branches_inside(machine):
    n = 5
    index, carry, row = inputs(0, 1, 2)
    out, result = outputs(0, 1)
    held = plan([i32(), f32(4), f32(n)], [f32(4), f32(n)], 256)
    branch = plan([f32(n), f32(4)], [f32(n), f32(4)], 0)
    step = BranchStep(index, (branch, branch), (row, carry), (result, out), arena(0))
    bodies = [
        body(
            Copy(outputs(0)[0], inputs(0)[0], 4 * n),
            fours(inputs(0)[0], inputs(1)[0], outputs(0)[0], factor),
            fours(inputs(1)[0], inputs(0)[0], outputs(1)[0], factor),
        )
        for factor in (2.0, 3.0)
    ]
    whole, instructions = scan(n, [Branch(step, tuple(bodies))], held)
    carry_in, rows = numbers(1, 4), numbers(2, 3, n)
    for chosen, factor in ((0, F32.type(2)), (1, F32.type(3))):
        made = aligned(instructions)
        found = run(whole, made, carry_in, rows, np.int32(chosen))
        state, results = carry_in, rows.copy()
        for number, each in enumerate(rows):
            results[number, :4] = each[:4] * factor + state
            state = state * factor + each[:4]
        np.testing.assert_array_equal(got(found[0], carry_in), state)
        np.testing.assert_array_equal(got(found[1], rows), results)


def test_loops_inside(machine):
    """A row is the rows of an inner loop, where it has them of 20 bytes, too."""
    n = 15
    _, carry, row = inputs(0, 1, 2)
    out, result = outputs(0, 1)
    held = plan([i32(), f32(4), f32(n)], [f32(4), f32(n)], 1024)
    inside = plan([f32(4), f32(5)], [f32(4), f32(5)], 0)
    step = LoopStep(
        inside,
        (),
        (Carry(carry, out, arena(0), 16),),
        (Rows(row, 20),),
        (Rows(result, 20),),
        arena(512),
        3,
    )
    inner = body(
        fours(inputs(0)[0], inputs(1)[0], outputs(0)[0], 0.5),
        Copy(outputs(1)[0], inputs(1)[0], 20),
        fours(outputs(0)[0], inputs(1)[0], outputs(1)[0], 2.0),
    )
    whole, instructions = scan(n, [Loop(step, inner, None)], held)
    whole = plan(whole.inputs, whole.buffers, 4096)
    carry_in, rows = numbers(1, 4), numbers(2, 3, n)
    found = run(whole, aligned(instructions), carry_in, rows, np.int32(0))
    state, results = carry_in, rows.copy().reshape(9, 5)
    for each in results:
        state = state * F32.type(0.5) + each[:4]
        each[:4] = state * F32.type(2) + each[:4]
    np.testing.assert_array_equal(got(found[0], carry_in), state)
    np.testing.assert_array_equal(got(found[1], rows), results.reshape(3, n))


def test_a_row_that_begins_an_inner_carry(machine):
    """What a held plan needs is found through whatever holds it."""
    row, end = inputs(0)[0], arena(0)
    inside = plan([f32(4)], [f32(4)], 0)
    inner = body(fours(inputs(0)[0], inputs(0)[0], outputs(0)[0], 0.5))
    step = LoopStep(
        inside, (), (Carry(row, end, arena(64), 16),), (), (), arena(128), 2
    )
    loop = body(Loop(step, inner, None))
    assert [needed(loop, place) for place in (row, end, arena(64))] == [16] * 3
    assert needed(loop, arena(128)) == 1
