"""Reductions and a scan, alone and with what comes before them in one kernel.

Receives whether to be quick (leaves out the largest arrays), gives cases: the sum of
squares, row and column sums, argmax and the cumulative sum. Next on the walk:
`norms.py`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.harness import Case, everywhere, normal


def sum_of_squares(xp: Any) -> Any:
    return lambda x: xp.sum(x * x)


def row_sums(xp: Any) -> Any:
    return lambda x: x.sum(1)


def column_sums(xp: Any) -> Any:
    return lambda x: x.sum(0)


def argmax(xp: Any) -> Any:
    return lambda x: x.argmax()


def cumsum(xp: Any) -> Any:
    return lambda x: x.cumsum(0)


def cases(quick: bool) -> list[Case]:
    """The cases of this question."""
    sides = {"1e6": (1000, 1000)} | ({} if quick else {"1e7": (2500, 4000)})
    # what only reads moves half of what a copy moves; a vector, or a matrix by an axis
    named = [
        ("sum(x*x)", sum_of_squares, 1, 4),
        ("row sums", row_sums, 2, 4),
        ("column sums", column_sums, 2, 4),
        ("argmax", argmax, 1, 4),
        ("cumsum", cumsum, 1, 8),
    ]
    return [
        Case(
            f"{name}, {text}",
            normal(rows, columns) if ndim == 2 else normal(rows * columns),
            everywhere(make),
            tolerance=1e-4,
            moved=moved * rows * columns,
        )
        for name, make, ndim, moved in named
        for text, (rows, columns) in sides.items()
    ]
