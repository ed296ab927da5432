"""fnx.scipy.interpolate: RegularGridInterpolator.

Receives a grid and values on it, gives a function of points. Next on the walk:
`ndimage.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

import fnx.numpy as np_
from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy.operands import ArrayLike, as_array, inexact_dtype
from fnx.runtime.array import ConcreteArray
from fnx.tree import register_pytree_node_class

METHODS = ("linear", "nearest")


@register_pytree_node_class
class RegularGridInterpolator:
    """Values between the points of a rectangular grid.

    `points` are vectors, one for each axis of the grid, that rise strictly; the first
    axes of `values` go along them, and others are carried along. `method` is "linear"
    or "nearest" (the lower neighbour where both are equally near). Called with points
    of shape (..., axes), or with a tuple of an array for each axis, it gives the values
    there, and `fill_value` for points outside of the grid; with `fill_value=None` the
    outermost cells go on without end. A tree, whose leaves are the arrays, so that it
    passes through transformations; differentiable by them all.

    Raises `ShapeError` where sizes do not fit, `ArgumentError` for points that do not
    rise (if they are known), `OptionError` for other methods and for `bounds_error`,
    which compiled code cannot raise.

    >>> import numpy as np
    >>> x, y = np.array([0.0, 1.0]), np.array([0.0, 2.0])
    >>> f = RegularGridInterpolator((x, y), np.array([[0.0, 2.0], [10.0, 12.0]]))
    >>> f(np.array([[0.5, 1.0], [0.0, 3.0]])).tolist()
    [6.0, nan]
    """

    def __init__(
        self,
        points: Sequence[ArrayLike],
        values: ArrayLike,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: ArrayLike | None = np.nan,
    ) -> None:
        if bounds_error:
            raise errors.OptionError(
                errors.explain(
                    "RegularGridInterpolator: bounds_error=True",
                    "compiled code cannot raise",
                    "look for the fill_value in the result",
                )
            )
        self.method = _method(method)
        array = as_array("RegularGridInterpolator", values)
        self.values = np_.asarray(array, inexact_dtype(array.dtype))
        axes = [as_array("RegularGridInterpolator", x) for x in points]
        self.grid = tuple([np_.asarray(x, inexact_dtype(x.dtype)) for x in axes])
        _check_grid(self.grid, self.values)
        self.fill_value = fill_value
        if fill_value is not None:
            fill = as_array("RegularGridInterpolator", fill_value)
            complex_ = dtypes.is_complex(fill.dtype)
            if complex_ and not dtypes.is_complex(self.values.dtype):
                raise errors.DTypeError(
                    f"RegularGridInterpolator: fill_value is {fill.type}, and values "
                    f"are real"
                )
            self.fill_value = np_.asarray(fill, self.values.dtype)

    def tree_flatten(self) -> tuple[Any, str]:
        """The arrays are children, the method is static."""
        return (self.grid, self.values, self.fill_value), self.method

    @classmethod
    def tree_unflatten(cls, method: str, children: Any) -> RegularGridInterpolator:
        """An interpolator of whatever stands for the arrays."""
        made = object.__new__(cls)
        made.method = method
        made.grid, made.values, made.fill_value = children
        return made

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """The values at points; `method` as in the constructor, for this call."""
        chosen = self.method if method is None else _method(method)
        count = len(self.grid)
        points = _points(xi, count)
        shape = points.shape[:-1]
        cells, parts = [], []
        outside: Any = np_.zeros(shape, bool)
        for number, axis in enumerate(self.grid):
            x = points[..., number]
            last = axis.shape[0] - 2
            cell: Any = np_.clip(np_.searchsorted(axis, x) - 1, 0, last)
            below, above = axis[cell], axis[cell + 1]
            cells.append(cell)
            parts.append((x - below) / (above - below))
            outside = outside | ~((x >= axis[0]) & (x <= axis[-1]))
        read = self._nearest if chosen == "nearest" else self._linear
        result = read(cells, parts)
        if self.fill_value is None:
            return result
        whole = np_.reshape(outside, shape + (1,) * (result.ndim - len(shape)))
        return np_.where(whole, self.fill_value, result)

    def _nearest(self, cells: list[Any], parts: list[Any]) -> Array:
        places = [
            np_.where(part <= 0.5, cell, cell + 1)
            for cell, part in zip(cells, parts, strict=True)
        ]
        return self.values[tuple(places)]  # type: ignore[index]

    def _linear(self, cells: list[Any], parts: list[Any]) -> Array:
        """The corners of each cell, weighted by how near they are."""
        carried = (1,) * (self.values.ndim - len(cells))
        total: Any = 0
        for corner in itertools.product((0, 1), repeat=len(cells)):
            weight: Any = 1
            for side, part in zip(corner, parts, strict=True):
                weight = weight * (part if side else 1 - part)
            places = [cell + side for cell, side in zip(cells, corner, strict=True)]
            value: Any = self.values[tuple(places)]  # type: ignore[index]
            total = total + value * np_.reshape(weight, (*weight.shape, *carried))
        return np_.asarray(total, self.values.dtype)


def _method(method: str) -> str:
    if method not in METHODS:
        raise errors.OptionError(
            f"RegularGridInterpolator: method {method!r} is none of "
            f"{', '.join(METHODS)}"
        )
    return method


def _check_grid(grid: Sequence[Array], values: Array) -> None:
    sizes = tuple([x.shape[0] if x.ndim == 1 else -1 for x in grid])
    if sizes != values.shape[: len(grid)] or any(size < 2 for size in sizes):
        types = ", ".join([str(x.type) for x in grid])
        raise errors.ShapeError(
            errors.explain(
                f"RegularGridInterpolator: points are {types}, values is {values.type}",
                "there is a vector of at least two points for each of its first axes",
            )
        )
    for number, x in enumerate(grid):
        if isinstance(x, ConcreteArray) and not (np.diff(np.asarray(x)) > 0).all():
            raise errors.ArgumentError(
                errors.explain(
                    f"RegularGridInterpolator: points[{number}] do not rise strictly",
                    "",
                    "sort them, and the axis of values alike",
                )
            )


def _points(xi: Any, count: int) -> Any:
    """Points with their coordinates along the last axis."""
    if isinstance(xi, tuple):
        if len(xi) == 1:
            return _points(xi[0], count)
        arrays = [as_array("RegularGridInterpolator", x) for x in xi]
        points = np_.stack(np_.broadcast_arrays(*arrays), -1)
    else:
        points = as_array("RegularGridInterpolator", xi)
        if points.ndim == 1 and (count == 1 or points.shape[0] % count == 0):
            points = np_.reshape(points, (-1, count))
    if not points.ndim or points.shape[-1] != count:
        raise errors.ShapeError(
            f"RegularGridInterpolator: the grid has {count} axes, and xi is "
            f"{points.type}: its last axis has the coordinates"
        )
    return np_.asarray(points, inexact_dtype(points.dtype))
