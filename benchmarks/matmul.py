"""Matrix products: sizes, batches, transposed operands, a vector, two dtypes.

Receives whether to be quick (leaves out the largest), gives cases in float32 and
float64; fnx and JAX run compiled functions, PyTorch and NumPy their operators.
Next on the walk: `mlp.py`.
"""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from benchmarks.harness import Case, everywhere, normals

Shape = tuple[int, ...]


def product(xp: Any) -> Any:
    return lambda x, y: x @ y


def left_transposed(xp: Any) -> Any:
    return lambda x, y: x.T @ y


def right_transposed(xp: Any) -> Any:
    return lambda x, y: x @ y.T


def wide(library: Any) -> AbstractContextManager[Any]:
    """Where a library has 64-bit dtypes: JAX has them only inside such a scope."""
    if library.__name__ != "jax":
        return nullcontext()
    if not hasattr(library, "enable_x64"):
        library = importlib.import_module("jax.experimental")
    return library.enable_x64(True)


def case(name: str, make: Any, x: Shape, y: Shape, dtype: str) -> Case:
    flops, moved = 2 * x[0] * y[-1] * x[-1], 0
    if len(x) > 2:
        flops = 2 * y[-1]
        for length in x:
            flops *= length
    if len(y) == 1:  # the matrix is read once: half of a copy's traffic
        flops, moved = 2 * x[0] * x[1], x[0] * x[1] * (8 if dtype == "float64" else 4)
    return Case(
        f"{name}, {dtype}",
        normals(x, y, dtype=dtype),
        everywhere(make),
        tolerance=1e-4 if dtype == "float32" else 1e-11,
        flops=flops,
        moved=moved,
        dtype=dtype,
        scope=wide if dtype == "float64" else nullcontext,
    )


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    sides = (64, 256, 512) if quick else (64, 128, 256, 512, 1024, 2048)
    side = 256 if quick else 1024
    square = (side, side)
    named: list[tuple[str, Any, Shape, Shape]] = [
        *((f"{n}x{n}", product, (n, n), (n, n)) for n in sides),
        ("64x64 of 64x64", product, (64, 64, 64, 64), (64, 64, 64, 64)),
        ("32 of 128x128", product, (32, 128, 128), (32, 128, 128)),
        (f"x.T @ y, {side}x{side}", left_transposed, square, square),
        (f"x @ y.T, {side}x{side}", right_transposed, square, square),
        (f"{side}x{side} @ {side}", product, square, (side,)),
    ]
    return [
        case(name, make, x, y, dtype)
        for dtype in ("float32", "float64")
        for name, make, x, y in named
    ]
