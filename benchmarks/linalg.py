"""Linear algebra: many small matrices at once, and single large ones.

Receives whether to be quick (fewer and smaller matrices), gives cases in float32 and
float64; fnx and JAX run compiled functions of the same names, NumPy and PyTorch their
own. Next on the walk: `matmul.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from benchmarks.harness import Case, Inputs, everywhere
from benchmarks.matmul import wide


def solve(xp: Any) -> Any:
    return lambda a, b: xp.linalg.solve(a, b)


def inverse(xp: Any) -> Any:
    return lambda a: xp.linalg.inv(a)


def determinant(xp: Any) -> Any:
    return lambda a: xp.linalg.det(a)


def cholesky(xp: Any) -> Any:
    return lambda a: xp.linalg.cholesky(a)


def eigenvalues(xp: Any) -> Any:
    # Vectors are compared by what they make of the matrix: their signs are free.
    def function(a: Any) -> Any:
        w, v = xp.linalg.eigh(a)
        return w, (v * w) @ v.swapaxes(-1, -2)

    return function


def singular_values(xp: Any) -> Any:
    def function(a: Any) -> Any:
        u, s, vh = xp.linalg.svd(a, full_matrices=False)
        return s, (u * s) @ vh

    return function


def orthogonal(xp: Any) -> Any:
    def function(a: Any) -> Any:
        q, r = xp.linalg.qr(a)
        return q @ r

    return function


Draw = Callable[[np.random.Generator], Inputs]


def regular(count: int, n: int, sides: int, dtype: str) -> Draw:
    """Matrices far from singular ones, and right sides if there are to be some."""
    stack = (count,) if count > 1 else ()

    def draw(rng: np.random.Generator) -> Inputs:
        a = rng.standard_normal((*stack, n, n)) + 3 * np.sqrt(n) * np.eye(n)
        b = rng.standard_normal((*stack, n, sides))
        arrays = (a, b) if sides else (a,)
        return tuple(x.astype(dtype) for x in arrays)

    return draw


def positive(count: int, n: int, dtype: str) -> Draw:
    """Symmetric matrices with eigenvalues of about n."""
    stack = (count,) if count > 1 else ()

    def draw(rng: np.random.Generator) -> Inputs:
        a = rng.standard_normal((*stack, n, n))
        return ((a @ a.swapaxes(-1, -2) + n * np.eye(n)).astype(dtype),)

    return draw


def case(name: str, make: Any, inputs: Draw, dtype: str) -> Case:
    return Case(
        f"{name}, {dtype}",
        inputs,
        everywhere(make),
        tolerance=2e-3 if dtype == "float32" else 1e-9,
        dtype=dtype,
        scope=wide if dtype == "float64" else nullcontext,
    )


def cases_of(dtype: str, quick: bool) -> list[Case]:
    many, few = (10_000, 1_000) if quick else (100_000, 10_000)
    large, middle = (128, 64) if quick else (512, 256)
    rows: list[tuple[str, Any, Draw]] = [
        (f"solve, {many} of 3x3", solve, regular(many, 3, 1, dtype)),
        (f"solve, {few} of 8x8", solve, regular(few, 8, 1, dtype)),
        (f"inv, {many} of 3x3", inverse, regular(many, 3, 0, dtype)),
        (f"det, {many} of 4x4", determinant, regular(many, 4, 0, dtype)),
        (f"cholesky, {many} of 3x3", cholesky, positive(many, 3, dtype)),
        (f"cholesky, {few} of 8x8", cholesky, positive(few, 8, dtype)),
        (f"solve, {few // 10} of 32x32", solve, regular(few // 10, 32, 1, dtype)),
        (f"solve, {large}x{large}", solve, regular(1, large, 1, dtype)),
        (f"cholesky, {large}x{large}", cholesky, positive(1, large, dtype)),
        (f"qr, {large}x{large}", orthogonal, regular(1, large, 0, dtype)),
        (f"eigh, {middle}x{middle}", eigenvalues, positive(1, middle, dtype)),
        (f"svd, {middle}x{middle}", singular_values, regular(1, middle, 0, dtype)),
    ]
    return [case(name, make, draw, dtype) for name, make, draw in rows]


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    return [c for dtype in ("float32", "float64") for c in cases_of(dtype, quick)]
