"""Histograms: how many points lie in each bin, in one dimension or several.

Receives vectors or rows of coordinates, gives counts and the edges of the bins. Bins
hold their left edge; the last one holds both. Loaded when it is first used. Next on
the walk: `editing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.core.array import Array
from fnx.numpy import on_numpy, reductions, ufuncs
from fnx.numpy.choices import choose_where
from fnx.numpy.counting import bincount, diff
from fnx.numpy.creation import arange, array, full
from fnx.numpy.indexing import get
from fnx.numpy.joining import append, unstack
from fnx.numpy.operands import ArrayLike, as_array, cast, inexact_dtype, typed
from fnx.numpy.shaping import expand_dims, ravel, reshape
from fnx.numpy.sorting import searchsorted


@at_once(on_numpy.histogram)
def histogram(
    a: ArrayLike,
    bins: Any = 10,
    range: Sequence[Any] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array]:
    """How many elements lie in each bin (or the sum of their weights), and its edges.

    `bins` is a number of equal bins over `range` (from the smallest to the largest
    element by default), or the edges. `density` divides so that the integral is 1.

    >>> counts, edges = histogram(np.array([0.0, 1.0, 1.0, 2.0]), 2)
    >>> counts.tolist(), edges.tolist()
    ([1.0, 3.0], [0.0, 1.0, 2.0])
    """
    x = ravel(a)
    edges = histogram_bin_edges(x, bins, range)
    amounts = _amounts(x, None if weights is None else ravel(weights))
    counts = _counted([x], [edges], amounts)
    return (_as_density(counts, [edges]) if density else counts), edges


def histogram_bin_edges(
    a: ArrayLike,
    bins: Any = 10,
    range: Sequence[Any] | None = None,
    weights: ArrayLike | None = None,
) -> Array:
    """The edges of the bins that `histogram` uses; they do not depend on `weights`.

    >>> histogram_bin_edges(np.array([0.0, 3.0]), 3).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    x = ravel(a)
    x = cast(x, inexact_dtype(x.dtype))
    if isinstance(bins, str):
        raise errors.OptionError(
            f"histogram: bins={bins!r} would make their number depend on the values; "
            "give a number or edges"
        )
    if not isinstance(bins, int | np.integer):
        return cast(array(bins), x.dtype)
    if bins < 1:
        raise errors.OptionError(f"histogram: bins={bins} is no number of bins")
    if range is not None:
        low, high = [typed("histogram", end, x.dtype) for end in range]
    elif x.size:
        low, high = reductions.min(x), reductions.max(x)
    else:
        low, high = full((), 0, x.dtype), full((), 1, x.dtype)
    half = choose_where(ufuncs.equal(low, high), 0.5, 0.0)
    return _equal_bins(ufuncs.subtract(low, half), ufuncs.add(high, half), int(bins))


def _equal_bins(low: Array, high: Array, count: int) -> Array:
    """The edges of equal bins, each as near as its dtype has numbers.

    An error of rounding in an edge at 1 would move all ones into the next bin, so this
    is float64 where `linspace` is not, and the sum that NumPy has for them.
    """
    first, last = cast(low, dtypes.float64), cast(high, dtypes.float64)
    width = ufuncs.divide(ufuncs.subtract(last, first), count)
    places = arange(count, dtype=np.float64)
    inner = ufuncs.add(ufuncs.multiply(places, width), first)
    return cast(append(inner, last), low.dtype)


def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: Any = 10,
    range: Any = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array, Array]:
    """The histogram of points (x, y), and the edges along both axes.

    `bins` is a number or edges for both axes, or a pair of them; `range` is a pair of
    ranges.

    >>> histogram2d(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 2)[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    left, right = ravel(x), ravel(y)
    if left.shape != right.shape:
        raise errors.ShapeError(
            f"histogram2d: x {left.type} and y {right.type} differ in length"
        )
    is_pair = isinstance(bins, tuple | list) and len(bins) == 2
    each = bins if is_pair else [bins, bins]
    counts, edges = histogramdd([left, right], each, range, weights, density)
    return counts, edges[0], edges[1]


def histogramdd(
    sample: ArrayLike | Sequence[ArrayLike],
    bins: Any = 10,
    range: Any = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, list[Array]]:
    """The histogram of points in several dimensions, and the edges along each axis.

    `sample` has a point in each row, or is a list with a vector for each dimension.
    `bins` is a number, or a list of numbers and edges; `range` a list of ranges.

    >>> counts, edges = histogramdd(np.array([[0.0, 0.0], [1.0, 2.0]]), 2)
    >>> counts.tolist(), edges[1].tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [0.0, 1.0, 2.0])
    """
    if isinstance(sample, list | tuple):
        columns = [as_array("histogramdd", x, i) for i, x in enumerate(sample)]
    else:
        points = as_array("histogramdd", sample)
        if points.ndim != 2:
            raise errors.ShapeError(f"histogramdd: rows of points, got {points.type}")
        columns = list(unstack(points, axis=1))
    count = len(columns)
    many = [bins] * count if isinstance(bins, int | np.integer) else list(bins)
    ranges = [None] * count if range is None else list(range)
    for what, given in (("bins", many), ("range", ranges)):
        if len(given) != count:
            raise errors.ShapeError(
                f"histogramdd: {what} has {len(given)} entries for {count} dimensions"
            )
    edges = [
        histogram_bin_edges(x, b, r)
        for x, b, r in zip(columns, many, ranges, strict=True)
    ]
    counts = _counted(columns, edges, _amounts(columns[0], weights))
    return (_as_density(counts, edges) if density else counts), edges


def _amounts(x: Array, weights: ArrayLike | None) -> Array:
    """What each point counts."""
    if weights is None:
        return full(x.shape, 1.0, dtypes.real_dtype(inexact_dtype(x.dtype)))
    found = as_array("histogram", weights)
    if found.shape != x.shape:
        raise errors.ShapeError(
            f"histogram: weights {found.type} are not one for each of {x.type}"
        )
    return found


def _counted(columns: list[Array], edges: list[Array], amounts: Array) -> Array:
    """The sum of the amounts in each bin; what lies outside is not counted."""
    sizes = [edge.size - 1 for edge in edges]
    total = math.prod(sizes)
    places = [_bins_of(x, edge) for x, edge in zip(columns, edges, strict=True)]
    flat: Any = full(amounts.shape, 0, dtypes.default_int())
    inside: Any = full(amounts.shape, True, dtypes.bool_)
    for place, n in zip(places, sizes, strict=True):
        flat = ufuncs.add(ufuncs.multiply(flat, n), place)
        there = ufuncs.bitwise_and(
            ufuncs.greater_equal(place, 0), ufuncs.less(place, n)
        )
        inside = ufuncs.bitwise_and(inside, there)
    counts = bincount(choose_where(inside, flat, total), amounts, length=total)
    return reshape(counts, sizes)


def _bins_of(x: Array, edges: Array) -> Array:
    """The number of the bin of each element: -1 below all, their number above."""
    place = ufuncs.subtract(searchsorted(edges, x, side="right"), 1)
    last = edges.size - 2
    return choose_where(ufuncs.equal(x, get(edges, -1)), last, place)


def _as_density(counts: Array, edges: list[Array]) -> Array:
    """The counts divided by their sum and by the volumes of the bins."""
    found = ufuncs.divide(counts, reductions.sum(counts))
    for axis, edge in enumerate(edges):
        widths = diff(edge)
        for _ in range(len(edges) - axis - 1):
            widths = expand_dims(widths, -1)
        found = ufuncs.divide(found, widths)
    return found
