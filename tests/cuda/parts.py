"""Kernels and plans written by hand, for tests of what runs them.

Receives nothing; gives texts of CUDA C, and functions that make programs of them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.types import ArrayType
from fnx.runtime.plan import Output, Place, Plan
from fnx_cuda import transfer
from fnx_cuda.instructions import Body, Instruction, Launch
from fnx_cuda.memory import Buffer
from fnx_cuda.program import Compiled, Program

F32, I32, BOOL = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.bool_)

SCALE_ADD = """
struct P { const float* x; const float* y; float* out; float factor; int n; };
extern "C" __global__ void __launch_bounds__(64)
scale_add(const __grid_constant__ P p) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < p.n;
       i += gridDim.x * blockDim.x)
    p.out[i] = p.x[i] * p.factor + p.y[i];
}
"""

BELOW = """
struct P { const int* x; bool* out; int limit; };
extern "C" __global__ void below(const __grid_constant__ P p) {
  p.out[0] = p.x[0] < p.limit;
}
"""

COUNT = """
struct P { const int* x; int* out; int step; };
extern "C" __global__ void count(const __grid_constant__ P p) {
  p.out[0] = p.x[0] + p.step;
}
"""

WILD = """
struct P { float* out; long long offset; };
extern "C" __global__ void wild(const __grid_constant__ P p) {
  p.out[p.offset] = 1.0f;
}
"""


def inputs(*numbers: int) -> list[Place]:
    return [Place("input", number) for number in numbers]


def outputs(*numbers: int) -> list[Place]:
    return [Place("output", number) for number in numbers]


def arena(offset: int) -> Place:
    return Place("arena", offset)


def scale_add(x: Place, y: Place, out: Place, factor: float, n: int) -> Launch:
    """out = x * factor + y, for n floats."""
    numbers = struct.pack("fi", factor, n)
    return Launch(SCALE_ADD, "scale_add", (2, 1, 1), 64, 0, (x, y, out), numbers)


def below(x: Place, out: Place, limit: int) -> Launch:
    return Launch(BELOW, "below", (1, 1, 1), 1, 0, (x, out), struct.pack("i", limit))


def count(x: Place, out: Place, step: int = 1) -> Launch:
    return Launch(COUNT, "count", (1, 1, 1), 1, 0, (x, out), struct.pack("i", step))


def wild(out: Place, offset: int) -> Launch:
    return Launch(WILD, "wild", (1, 1, 1), 1, 0, (out,), struct.pack("q", offset))


def plan(ins: Sequence[ArrayType], outs: Sequence[ArrayType], arena: int = 0) -> Plan:
    """A plan without steps, each of whose outputs is a buffer."""
    ends = tuple([Output("buffer", n, None, type) for n, type in enumerate(outs)])
    return Plan(tuple(ins), ends, tuple(outs), (), arena)


def f32(*shape: int) -> ArrayType:
    return ArrayType(shape, F32)


def i32(*shape: int) -> ArrayType:
    return ArrayType(shape, I32)


def program(
    plan: Plan, instructions: Sequence[Instruction], work: int = 0, scopes: Any = ()
) -> Program:
    """The program of some instructions."""
    return Program(Compiled(plan, Body(tuple(instructions), work, tuple(scopes)), ()))


def body(*instructions: Instruction) -> Body:
    return Body(instructions, 0)


def numbers(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def put(*arrays: Any, device: int = 0) -> list[Buffer]:
    return [transfer.put(np.ascontiguousarray(x), device) for x in arrays]


def got(buffer: Buffer, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return transfer.get(buffer, like.shape, like.dtype)
