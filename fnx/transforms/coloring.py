"""Colors for the columns of sparse matrices, so that few products tell all elements.

Columns of one color are added up in one product with the matrix. `columns` colors so
that no two of them have an element in the same row; `star` colors a symmetric matrix,
where an element may be read from the product with its row or with its column.
Receives and gives NumPy arrays; next on the walk: `fnx.control`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Ints = np.ndarray[Any, Any]


def columns(rows: Ints, cols: Ints, shape: tuple[int, int]) -> Ints:
    """A color for each column; two that share a row differ (greedy, distance 2)."""
    in_row = _grouped(cols, rows, shape[0])
    in_col = _grouped(rows, cols, shape[1])
    colors = np.full(shape[1], -1)
    for col in _by_degree([len(r) for r in in_col]):
        if len(in_col[col]):
            others = np.concatenate([in_row[row] for row in in_col[col]])
            colors[col] = _smallest(colors[others])
    return colors


def star(rows: Ints, cols: Ints, size: int) -> Ints:
    """A color for each column of a symmetric matrix (greedy star coloring).

    Neighbors differ, and every path over four columns has three colors.
    """
    off = rows != cols
    near = _grouped(cols[off], rows[off], size)
    used = np.unique(cols)
    colors = np.full(size, -1)
    degrees = [len(n) for n in near]
    for v in _by_degree(degrees):
        if v not in used:
            continue
        taken = [colors[near[v]]]
        for w in near[v]:
            seconds = near[w][near[w] != v]
            seconds = seconds[colors[seconds] >= 0]
            if colors[w] >= 0:
                seconds = np.array(
                    [
                        x
                        for x in seconds
                        if np.any(colors[near[x][near[x] != w]] == colors[w])
                    ],
                    np.int64,
                )
            taken.append(colors[seconds])
        colors[v] = _smallest(np.concatenate(taken))
    return colors


def star_reads(rows: Ints, cols: Ints, colors: Ints) -> tuple[Ints, Ints]:
    """For each element, which color's product has it, and in which row.

    That of its column, unless another column of that color has an element in its row.
    """
    keys = rows * np.int64(colors.max(initial=0) + 1) + colors[cols]
    _, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
    direct = counts[group] == 1
    return np.where(direct, colors[cols], colors[rows]), np.where(direct, rows, cols)


def _by_degree(degrees: list[int]) -> Ints:
    """The columns, those with many neighbors first; in order where they are equal."""
    return np.argsort(-np.asarray(degrees, np.int64), kind="stable")


def _grouped(values: Ints, groups: Ints, count: int) -> list[Ints]:
    """The values of each group."""
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups, minlength=count))
    return np.split(values[order], ends[:-1]) if count else []


def _smallest(taken: Ints) -> int:
    """The smallest color that is not taken."""
    free = np.ones(len(taken) + 1, bool)
    free[taken[(taken >= 0) & (taken <= len(taken))]] = False
    return int(np.argmax(free))
