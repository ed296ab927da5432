"""LAPACK inside of plans: no call of Python, stacks, threads, loops, borders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx.cpu.lapack_table import ROUTINES
from fnx.ops import linalg as ops
from tests.cases import CASES
from tests.rules import arguments, named, operands

RNG = np.random.default_rng(2)


def text(function: Any, *args: Any) -> str:
    shown: str = fnx.jit(function).lower(*args).as_text("llvm")
    return shown


@pytest.mark.parametrize("name", ROUTINES)
def test_no_routine_calls_python(name: str) -> None:
    for case in (case for case in CASES if case.primitive == name):
        args = operands(case, arguments(case))
        if any(x.type.size == 0 for x in args):
            continue
        shown = text(lambda *xs, c=case: named(c.primitive)(*xs, **c.params), *args)
        assert "call_python" not in shown, case.id


def test_every_routine_is_one_of_a_primitive() -> None:
    routines = {p.routine for p in vars(ops).values() if hasattr(p, "routine")}
    assert {*ROUTINES} == routines - {"lu_permutation"}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize(
    "shape",
    [(1, 6), (6, 1), (3, 3), (4, 8), (8, 4), (5, 7), (33, 35), (36, 40), (70, 37)],
)
def test_matrices_are_transposed_to_their_borders(shape: Any, dtype: str) -> None:
    x = RNG.standard_normal((2, *shape))
    x = (x + 1j * x[::-1] if dtype.startswith("c") else x).astype(dtype)
    factors, _, order = map(np.asarray, fnx.jit(ops.lu)(x))
    k = min(shape)
    low = np.tril(factors[..., :k], -1) + np.eye(shape[0], k)
    wanted = np.take_along_axis(x, order[..., None], 1)
    tolerance = 200 * np.finfo(dtype).eps
    np.testing.assert_allclose(low @ np.triu(factors[:, :k]), wanted, 0, tolerance)


@pytest.mark.parametrize("n", [3, 20])
def test_threads_do_not_change_the_bits(n: int) -> None:
    x = RNG.standard_normal((500, n, n))
    x = x @ x.swapaxes(-1, -2) + np.eye(n)
    functions = fnp.linalg.cholesky, fnp.linalg.eigvalsh, fnp.linalg.inv, ops.lu
    before = fnx.num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            fnx.set_num_threads(threads)
            found.append([fnx.jit(f)(x) for f in functions])
    finally:
        fnx.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            for first, second in zip(
                fnx.tree.leaves(a), fnx.tree.leaves(b), strict=True
            ):
                np.testing.assert_array_equal(first, second)


def test_inside_of_loops_and_branches() -> None:
    a = RNG.standard_normal((10, 10)) / 10 + np.eye(10)

    def refine(x: Any, b: Any) -> Any:
        def corrected(x: Any) -> Any:
            return x + fnp.linalg.solve(a, b - a @ x)

        x = fnx.lax.cond(b[0] > 0, corrected, lambda x: fnp.linalg.solve(a, b), x)
        return x, fnp.linalg.det(fnp.outer(b, b) + a)

    rows = RNG.standard_normal((6, 10))

    def run(rows: Any) -> Any:
        return fnx.lax.scan(refine, fnp.zeros(10, "float64"), rows)

    x, dets = fnx.jit(run)(rows)
    np.testing.assert_allclose(x, np.linalg.solve(a, rows[-1]), 1e-9, 1e-9)
    wanted = [np.linalg.det(np.outer(row, row) + a) for row in rows]
    np.testing.assert_allclose(dets, wanted, 1e-9)
    assert "call_python" not in text(run, rows)
