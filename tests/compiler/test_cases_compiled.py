"""Every case of every primitive, compiled, against its reference rule.

Exact operations must agree bit for bit, the others within the case's ulp.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fnx import dtypes
from fnx.compiler.pipeline import plan_program
from fnx.core.primitive import primitive
from fnx.core.reference import run_reference
from fnx.core.trace import trace
from fnx.cpu.backend import BACKEND
from fnx.runtime.array import from_numpy
from fnx.runtime.executable import Executable
from tests.cases import Case
from tests.rules import arguments, operands
from tests.test_primitives import CASES, each


def compiled(case: Case) -> tuple[list[Any], list[Any], Executable]:
    """The outputs by machine code, those by reference, and the executable."""
    args = operands(case, arguments(case))
    arrays = [x for x in args if hasattr(x, "block_until_ready")]

    def run(*given: Any) -> list[Any]:
        rest = iter(given)
        filled = [next(rest) if hasattr(x, "block_until_ready") else x for x in args]
        result = primitive(case.primitive)(*filled, **case.params)
        return list(result) if primitive(case.primitive).multiple else [result]

    program = trace(run, [x.type for x in arrays]).program
    plan = plan_program(program)
    executable = Executable(program, BACKEND.load(BACKEND.compile(plan)), plan)
    found = [np.asarray(x) for x in executable.run(arrays)]
    wanted = run_reference(program, [np.asarray(x) for x in arrays])
    return found, [np.asarray(x) for x in wanted], executable


def distance(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """The largest distance in units of the last place; inf where NaN, inf differ."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if not found.size:
        return 0.0
    if not dtypes.is_inexact(found.dtype):
        return 0.0 if np.array_equal(found, wanted) else float("inf")
    if dtypes.is_complex(found.dtype):
        return complex_distance(found, wanted)
    wide_found, wide_wanted = found.astype("f8"), wanted.astype("f8")
    same = (wide_found == wide_wanted) | (np.isnan(wide_found) & np.isnan(wide_wanted))
    with np.errstate(all="ignore"):
        steps = np.abs(wide_found - wide_wanted) / np.spacing(np.abs(wanted)).astype(
            "f8"
        )
    steps = np.where(same, 0.0, np.where(np.isnan(steps), np.inf, steps))
    return float(steps.max())


def complex_distance(
    found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]
) -> float:
    """The same for complex numbers, whose parts are as accurate as their modulus."""
    real = dtypes.real_dtype(found.dtype)
    pairs = found.ravel().view(real), wanted.ravel().view(real)
    same = (pairs[0] == pairs[1]) | (np.isnan(pairs[0]) & np.isnan(pairs[1]))
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(wanted.real), np.abs(wanted.imag)).ravel()
        steps = np.abs(pairs[0] - pairs[1]) / np.repeat(np.spacing(size), 2)
    steps = np.where(same, 0.0, np.where(np.isnan(steps), np.inf, steps))
    return float(steps.max())


@each(CASES)
def test_compiled_equals_reference(case: Case) -> None:
    found, wanted, _ = compiled(case)
    for x, y in zip(found, wanted, strict=True):
        # A complex product errs by as much as two real ones.
        parts = 2 if dtypes.is_complex(y.dtype) else 1
        assert distance(x, y) <= case.ulp * parts


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4)])
def test_views_and_literals_as_outputs(shape: tuple[int, ...]) -> None:
    """Outputs that are inputs, literals, views or the same value twice."""
    x = from_numpy(np.arange(np.prod(shape, dtype=int), dtype="f4").reshape(shape))
    reshape, neg = primitive("reshape"), primitive("neg")

    def run(a: Any) -> list[Any]:
        flat = reshape(a, shape=(a.size,))
        b = neg(flat)
        return [a, flat, b, b, reshape(b, shape=shape), 2.5]

    program = trace(run, [x.type]).program
    plan = plan_program(program)
    executable = Executable(program, BACKEND.load(BACKEND.compile(plan)), plan)
    wanted = run_reference(program, [np.asarray(x)])
    for found, value in zip(executable.run([x]), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(found), value)
    assert len(plan.steps) == 1
