"""Arrays that are written as an index: mgrid, ogrid, r_ and c_.

Receives slices, numbers and arrays between brackets, gives arrays. A step that is an
imaginary number is how many values there are, both ends included. Loaded when it is
first used. Next on the walk: `universal.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy.creation import arange, asarray
from fnx.numpy.grids import linspace, meshgrid
from fnx.numpy.joining import concatenate, stack
from fnx.numpy.operands import cast
from fnx.numpy.shaping import expand_dims, reshape


def _values(function: str, part: slice) -> Array:
    """The vector that a slice means."""
    start = 0 if part.start is None else part.start
    if part.stop is None:
        raise errors.ArgumentError(f"{function}: the slice {part} has no end")
    step = 1 if part.step is None else part.step
    if isinstance(step, complex):
        return linspace(start, part.stop, int(abs(step)))
    return arange(start, part.stop, step)


def _common(vectors: Sequence[Array]) -> list[Array]:
    dtype, _ = dtypes.promote(*[(v.dtype, v.weak_type) for v in vectors])
    return [cast(v, dtype) for v in vectors]


class _Grid:
    """`mgrid` or `ogrid`."""

    def __init__(self, name: str, sparse: bool) -> None:
        self.name, self.sparse = name, sparse

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _values(self.name, key)
        grids = meshgrid(
            *_common([_values(self.name, part) for part in key]),
            sparse=self.sparse,
            indexing="ij",
        )
        return grids if self.sparse else stack(grids)

    def __repr__(self) -> str:
        return f"<fnx.numpy.{self.name}>"


class _Joined:
    """`r_` or `c_`; `axis`, `rank` and `first` are what a string would say."""

    def __init__(self, name: str, axis: int, rank: int, first: int) -> None:
        self.name = name
        self.default = (axis, rank, first)

    def __getitem__(self, key: Any) -> Any:
        parts = list(key) if isinstance(key, tuple) else [key]
        (axis, rank, first), as_matrix = self.default, ""
        if parts and isinstance(parts[0], str):
            directive = parts.pop(0)
            if directive in ("r", "c"):
                as_matrix = directive
            else:
                axis, rank, first = _directive(self.name, directive, self.default)
        rows = _common([self._part(part) for part in parts])
        if as_matrix:
            rows = [_matrix(row, as_matrix) for row in rows]
            return concatenate(rows, 1 if as_matrix == "r" else 0)
        return concatenate([_raised(row, rank, first) for row in rows], axis)

    def _part(self, part: Any) -> Array:
        if isinstance(part, slice):
            return _values(self.name, part)
        found = asarray(part)
        return found if found.ndim else reshape(found, (1,))

    def __repr__(self) -> str:
        return f"<fnx.numpy.{self.name}>"


def _directive(name: str, text: str, default: tuple[int, int, int]) -> tuple[int, ...]:
    """Axis, least rank, and where the axes of lower ranks go, of "0,2,-1"."""
    try:
        given = [int(number) for number in text.split(",")]
    except ValueError:
        given = []
    if not 1 <= len(given) <= 3:
        raise errors.ArgumentError(
            f"{name}: {text!r} is neither 'r' nor 'c' nor up to three integers"
        )
    return (*given, *default[len(given) :])


def _matrix(x: Array, kind: str) -> Array:
    """A vector as a row, or as a column."""
    return expand_dims(x, 0 if kind == "r" else 1) if x.ndim < 2 else x


def _raised(x: Array, rank: int, first: int) -> Array:
    """The array with at least so many axes, its own beginning at a place."""
    missing = rank - x.ndim
    if missing <= 0:
        return x
    start = first if first >= 0 else missing + 1 + first
    shape = (1,) * start + x.shape + (1,) * (missing - start)
    return reshape(x, shape)


mgrid = _Grid("mgrid", sparse=False)
"""Coordinates of a grid, all of its points: an array for each axis, stacked.

>>> mgrid[0:2, 0:3][1].tolist()
[[0, 1, 2], [0, 1, 2]]
"""
ogrid = _Grid("ogrid", sparse=True)
"""Coordinates of a grid, to be broadcast: a list of an array for each axis.

>>> [x.shape for x in ogrid[0:2, 0:3]]
[(2, 1), (1, 3)]
"""
r_ = _Joined("r_", 0, 1, -1)
"""Slices, numbers and arrays one after the other.

>>> r_[np.array([1, 2]), 0, 3:5].tolist()
[1, 2, 0, 3, 4]
"""
c_ = _Joined("c_", -1, 2, 0)
"""Vectors as the columns of a matrix.

>>> c_[np.array([1, 2]), np.array([3, 4])].tolist()
[[1, 3], [2, 4]]
"""
