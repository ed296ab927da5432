"""Functions run on an emulated device and on the CPU, for tests that compare them.

Receives a function of arrays and the arrays; gives the NumPy values of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fnx
from fnx import dtypes
from fnx.compiler.pipeline import plan_program
from fnx.kernel.check import check_kernel
from fnx_cuda import transfer
from fnx_cuda.backend import BACKEND
from fnx_cuda.instructions import Host

Arrays = list[np.ndarray[Any, Any]]


def on_device(function: Callable[..., Any], *arrays: Any) -> Arrays:
    """What a function gives on an emulated device."""
    program = fnx.make_jaxpr(function)(*arrays)
    plan = plan_program(program, BACKEND.target)
    for kernel in plan.kernels:
        check_kernel(kernel)
    run = BACKEND.load(BACKEND.compile(plan))
    types = program.input_types
    given = [
        np.ascontiguousarray(x, type.dtype)
        for x, type in zip(arrays, types, strict=True)
    ]
    buffers = [transfer.put(x, 0) for x in given]
    outputs = run(buffers, 0)
    found = []
    for output in run.outputs:
        if output.role == "literal":
            value = np.full(output.type.shape, output.literal.value, output.type.dtype)
        else:
            source = outputs if output.role == "buffer" else buffers
            at, type = source[output.index], output.type
            value = transfer.get(at, type.shape, type.dtype)
        found.append(value)
    return found


def on_cpu(function: Callable[..., Any], *arrays: Any) -> Arrays:
    """What the function gives on the CPU."""
    given = [fnx.numpy.asarray(x) for x in arrays]
    outputs = fnx.jit(function)(*given)
    leaves = fnx.tree_util.tree_leaves(outputs)
    return [np.asarray(leaf) for leaf in leaves]


def bits(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array as bytes, so that zeros are told apart; all NaNs are one."""
    flat = np.ascontiguousarray(x).ravel()
    parts = flat.view(f"f{x.itemsize // 2}") if x.dtype.kind == "c" else flat
    if not dtypes.is_integer(parts.dtype):
        parts = np.where(parts == parts, parts, parts.dtype.type(np.nan))
    return np.frombuffer(parts.tobytes(), np.uint8)


def assert_same(function: Callable[..., Any], *arrays: Any) -> Arrays:
    """Both give the same bits; what they are."""
    found, expected = on_device(function, *arrays), on_cpu(function, *arrays)
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_array_equal(bits(x), bits(y))
    return found


def runs_on_the_host(
    function: Callable[..., Any], *arrays: Any, axes: Sequence[tuple[str, int]] = ()
) -> bool:
    """Whether some step of a function runs in Python; `axes` are bound around it."""
    program = fnx.make_jaxpr(function, axis_env=axes)(*arrays)
    plan = plan_program(program, BACKEND.target)
    body = BACKEND.compile(plan).body
    return any(isinstance(each, Host) for each in body.instructions)
