"""What only moves elements: transpose, slice, concatenate, pad, gather and scatter.

Receives whether to be quick (a quarter of the elements), gives cases of a million
elements; every result is laid out in memory, where PyTorch and NumPy would give views.
Next on the walk: `conv.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Case, Inputs, everywhere, normal, normals


def contiguous(xp: Any) -> Callable[[Any], Any]:
    """What lays a view out in memory; the compilers do it unasked."""
    if xp.__name__ == "torch":
        return lambda x: x.contiguous()
    return np.ascontiguousarray if xp is np else lambda x: x


def transpose(xp: Any) -> Any:
    laid_out = contiguous(xp)
    return lambda x: laid_out(x.T)


def strided(xp: Any) -> Any:
    laid_out = contiguous(xp)
    return lambda x: laid_out(x[::2, ::2])


def concatenate(xp: Any) -> Any:
    return lambda x, y: xp.concatenate([x, y])


def pad(xp: Any) -> Any:
    if xp.__name__ == "torch":
        return lambda x: xp.nn.functional.pad(x, (1, 1, 1, 1))
    return lambda x: xp.pad(x, 1)


def gather(xp: Any) -> Any:
    return lambda x, index: x[index]


def scatter_add(xp: Any) -> Any:
    """Add values to elements of an array; an index may come many times."""
    if xp.__name__ == "torch":
        return lambda x, index, values: x.index_add(0, index, values)
    if xp is not np:
        return lambda x, index, values: x.at[index].add(values)

    def function(x: Any, index: Any, values: Any) -> Any:
        x = x.copy()
        np.add.at(x, index, values)
        return x

    return function


def indexed(
    shape: tuple[int, ...], count: int, *others: tuple[int, ...]
) -> Callable[[np.random.Generator], Inputs]:
    """Inputs: an array, indices of its first axis, further arrays."""

    def draw(rng: np.random.Generator) -> Inputs:
        array, *more = normals(shape, *others)(rng)
        return array, rng.integers(shape[0], size=count, dtype=np.int32), *more

    return draw


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    side = 500 if quick else 1000
    n, square = side * side, normal(side, side)
    halves = normals((side // 2, side), (side // 2, side))
    # bytes that have to move; of a strided slice, all of every second row
    named = [
        ("transpose", square, transpose, 8 * n),
        ("x[::2, ::2]", square, strided, 3 * n),
        ("concatenate two halves", halves, concatenate, 8 * n),
        ("pad by 1", square, pad, 8 * n),
        ("gather rows", indexed((side, side), side), gather, 8 * n),
        ("gather elements", indexed((n,), n), gather, 12 * n),
        ("scatter-add elements", indexed((n,), n, (n,)), scatter_add, 16 * n),
    ]
    return [
        Case(f"{name}, {n:.3g} elements", inputs, everywhere(make), moved=moved)
        for name, inputs, make, moved in named
    ]
