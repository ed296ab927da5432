"""Statistics, integrals and polynomials: histogram, cov, trapezoid, gradient, polyval.

Receives arrays, gives arrays. Next on the walk: `sets.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy import reductions, ufuncs
from fnx.numpy.choices import choose_where, clip
from fnx.numpy.contractions import contract
from fnx.numpy.counting import bincount, diff
from fnx.numpy.creation import array, full
from fnx.numpy.grids import diagonal, linspace
from fnx.numpy.indexing import get
from fnx.numpy.joining import concatenate, stack
from fnx.numpy.mathematics import conj, mod, real, root
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    axis_index,
    cast,
    inexact_dtype,
    typed,
)
from fnx.numpy.shaping import atleast_2d, expand_dims, flip, ravel, reshape, transpose
from fnx.numpy.sorting import searchsorted
from fnx.ops.shape import part_of


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
    n = edges.size - 1
    place = searchsorted(edges, x, side="right")
    # The last bin holds its right edge too; what is outside is not counted.
    place = choose_where(ufuncs.equal(x, get(edges, -1)), n, place)
    float_dtype = inexact_dtype(x.dtype)
    amounts = full(x.shape, 1.0, float_dtype) if weights is None else ravel(weights)
    counts = get(bincount(place, amounts, length=n + 2), slice(1, n + 1))
    if density:
        widths = diff(edges)
        total = reductions.sum(counts)
        counts = ufuncs.divide(ufuncs.divide(counts, widths), total)
    return counts, edges


def histogram_bin_edges(
    a: ArrayLike, bins: Any = 10, range: Sequence[Any] | None = None
) -> Array:
    """The edges of the bins that `histogram` uses."""
    x = ravel(a)
    x = cast(x, inexact_dtype(x.dtype))
    if not isinstance(bins, int):
        return cast(array(bins), x.dtype)
    if range is None:
        low, high = reductions.min(x), reductions.max(x)
    else:
        low, high = [typed("histogram", end, x.dtype) for end in range]
    same = ufuncs.equal(low, high)
    half = choose_where(same, 0.5, 0.0)
    return linspace(ufuncs.subtract(low, half), ufuncs.add(high, half), bins + 1)


def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
) -> Array:
    """The covariances of variables, one a row (or a column without `rowvar`).

    The sums are divided by the number of observations minus `ddof`: 1, or 0 if `bias`.

    >>> cov(np.array([[1.0, 3.0], [2.0, 6.0]])).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    x = _variables(m, rowvar)
    if y is not None:
        x = concatenate([x, _variables(y, rowvar)], 0)
    count = x.shape[1] - (ddof if ddof is not None else int(not bias))
    gap = ufuncs.subtract(x, reductions.mean(x, 1, keepdims=True))
    total = contract("cov", gap, conj(gap), ((1,), (1,)))
    out = ufuncs.divide(total, float(max(count, 0)))
    return reshape(out, ()) if out.shape == (1, 1) else out


def _variables(m: ArrayLike, rowvar: bool) -> Array:
    x = as_array("cov", m)
    if x.ndim > 2:
        raise errors.ShapeError(f"cov takes arrays of at most rank 2, got {x.type}")
    x = cast(atleast_2d(x), inexact_dtype(x.dtype))
    return x if rowvar or x.shape[0] == 1 else transpose(x)


def corrcoef(x: ArrayLike, y: ArrayLike | None = None, rowvar: bool = True) -> Array:
    """The correlations of variables: covariances divided by both deviations.

    >>> corrcoef(np.array([[1.0, 3.0], [6.0, 2.0]])).round(3).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    c = cov(x, y, rowvar)
    if not c.ndim:
        return ufuncs.divide(c, c)
    deviation = root(real(diagonal(c)))
    c = ufuncs.divide(c, expand_dims(deviation, 1))
    c = ufuncs.divide(c, expand_dims(deviation, 0))
    return c if dtypes.is_complex(c.dtype) else clip(c, -1, 1)


def trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
) -> Array:
    """The integral of the broken line through the points (x, y), along an axis.

    >>> trapezoid(np.array([1.0, 2.0, 3.0])).item()
    4.0
    """
    values = as_array("trapezoid", y)
    place = axis_index("trapezoid", axis, values.ndim)
    n = values.shape[place]
    pair = (
        part_of(values, place, min(1, n), n),
        part_of(values, place, 0, max(n - 1, 0)),
    )
    heights = ufuncs.multiply(ufuncs.add(*pair), 0.5)
    if x is None:
        widths: Any = dx
    else:
        widths = diff(x)
        if widths.ndim == 1:
            sizes = [n - 1 if i == place else 1 for i in range(values.ndim)]
            widths = reshape(widths, sizes)
    return reductions.sum(ufuncs.multiply(heights, widths), place)


def gradient(f: ArrayLike, *varargs: Any, axis: Any = None) -> Any:
    """The slopes of samples along each axis: central, one-sided at the ends.

    Spacings are numbers, one for all axes or one for each.

    >>> gradient(np.array([1.0, 4.0, 9.0])).tolist()
    [3.0, 4.0, 5.0]
    """
    x = as_array("gradient", f)
    x = cast(x, inexact_dtype(x.dtype))
    many = range(x.ndim) if axis is None else axis
    axes = [many] if isinstance(many, int) else list(many)
    places = [axis_index("gradient", a, x.ndim) for a in axes]
    spacings = list(varargs) or [1.0]
    spacings = spacings * len(places) if len(spacings) == 1 else spacings
    if len(spacings) != len(places):
        raise errors.ArgumentError(
            f"gradient: {len(spacings)} spacings for {len(places)} axes"
        )
    slopes = [_slope(x, p, h) for p, h in zip(places, spacings, strict=True)]
    return slopes[0] if len(slopes) == 1 else slopes


def _slope(x: Array, axis: int, spacing: ArrayLike) -> Array:
    n = x.shape[axis]
    if n < 2:
        raise errors.ShapeError(f"gradient: axis {axis} of {x.type} has no neighbours")
    steps = ufuncs.subtract(part_of(x, axis, 1, n), part_of(x, axis, 0, n - 1))
    first, last = part_of(steps, axis, 0, 1), part_of(steps, axis, n - 2, n - 1)
    inner = ufuncs.add(part_of(steps, axis, 1, n - 1), part_of(steps, axis, 0, n - 2))
    rows = [first, ufuncs.multiply(inner, 0.5), last]
    return ufuncs.divide(concatenate(rows, axis), spacing)


def unwrap(
    p: ArrayLike,
    discont: ArrayLike | None = None,
    axis: int = -1,
    period: ArrayLike = 2 * np.pi,
) -> Array:
    """Phases without jumps: steps larger than half a period are made smaller ones."""
    x = as_array("unwrap", p)
    x = cast(x, inexact_dtype(x.dtype))
    place = axis_index("unwrap", axis, x.ndim)
    step = diff(x, axis=place)
    half = ufuncs.divide(period, 2)
    folded = ufuncs.subtract(mod(ufuncs.add(step, half), period), half)
    at_end = ufuncs.bitwise_and(
        ufuncs.equal(folded, ufuncs.negative(half)), ufuncs.greater(step, 0)
    )
    folded = choose_where(at_end, half, folded)
    change = ufuncs.subtract(folded, step)
    limit = half if discont is None else ufuncs.maximum(discont, half)
    small = ufuncs.less(ufuncs.maximum(step, ufuncs.negative(step)), limit)
    change = choose_where(small, 0.0, change)
    first = part_of(x, place, 0, 1)
    rest = part_of(x, place, 1, x.shape[place])
    moved = ufuncs.add(rest, reductions.cumsum(change, place))
    return concatenate([first, moved], place)


# ---------------------------------------------------------------- polynomials


def polyval(p: ArrayLike, x: ArrayLike) -> Array:
    """The value at x of the polynomial with coefficients p, highest power first.

    >>> polyval(np.array([1.0, 2.0, 3.0]), 2.0).item()
    11.0
    """
    coefficients = as_array("polyval", p)
    value: Any = 0
    for i in range(coefficients.shape[0]):
        value = ufuncs.add(ufuncs.multiply(value, x), get(coefficients, i))
    return as_array("polyval", value)


def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """The powers of the elements as the columns of a matrix, highest first.

    >>> vander(np.array([2, 3]), 3).tolist()
    [[4, 2, 1], [9, 3, 1]]
    """
    base = as_array("vander", x)
    count = base.size if N is None else N
    powers = [full(base.shape, 1, base.dtype)]
    for _ in range(count - 1):
        powers.append(ufuncs.multiply(powers[-1], base))
    columns = (
        stack(powers[:count], -1) if count else full((base.size, 0), 1, base.dtype)
    )
    return columns if increasing else flip(columns, -1)


def convolve(a: ArrayLike, v: ArrayLike, mode: str = "full") -> Array:
    """The sums of products of a with v turned round and moved along it.

    "full" has all places where they meet, "same" as many as the longer one, "valid"
    those where they overlap completely.

    >>> convolve(np.array([1.0, 2.0]), np.array([1.0, 1.0])).tolist()
    [1.0, 3.0, 2.0]
    """
    x, y = as_array("convolve", a), as_array("convolve", v, 1)
    if x.ndim != 1 or y.ndim != 1 or not x.size or not y.size:
        raise errors.ShapeError(
            f"convolve takes two vectors, got {x.type} and {y.type}"
        )
    if mode not in ("full", "same", "valid"):
        raise errors.OptionError(f"convolve: mode {mode!r} is not full, same or valid")
    if x.size < y.size:
        x, y = y, x
    n, k = x.size, y.size
    full_size = n + k - 1
    # Row i of the windows holds the k elements that meet y at place i.
    zeros = full((k - 1,), 0, x.dtype)
    padded = concatenate([zeros, x, zeros])
    places = np.arange(full_size)[:, None] + np.arange(k)[None, :]
    out = contract("convolve", get(padded, places), flip(y), ((1,), (0,)))
    if mode == "full":
        return out
    if mode == "same":
        start = (k - 1) // 2
        return part_of(out, 0, start, start + n)
    return part_of(out, 0, k - 1, n)


def correlate(a: ArrayLike, v: ArrayLike, mode: str = "valid") -> Array:
    """The sums of products of a with conj(v) moved along it; modes as in `convolve`.

    >>> correlate(np.array([1.0, 2.0]), np.array([1.0, 3.0])).tolist()
    [7.0]
    """
    x, y = as_array("correlate", a), as_array("correlate", v, 1)
    out = convolve(x, flip(conj(y)), mode)
    return out


def nancumsum(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: None = None
) -> Array:
    """`cumsum` with NaN as 0."""
    x = as_array("nancumsum", a)
    x = cast(choose_where(ufuncs.isnan(x), 0, x), x.dtype)
    return reductions.cumsum(x, axis, dtype, out)


def nancumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: None = None
) -> Array:
    """`cumprod` with NaN as 1."""
    x = as_array("nancumprod", a)
    x = cast(choose_where(ufuncs.isnan(x), 1, x), x.dtype)
    return reductions.cumprod(x, axis, dtype, out)
