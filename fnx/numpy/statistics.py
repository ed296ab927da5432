"""Statistics, integrals and differences: cov, trapezoid, gradient, convolve.

Receives arrays, gives arrays. Next on the walk: `unique.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import on_numpy, reductions, ufuncs
from fnx.numpy.choices import choose_where, clip
from fnx.numpy.contractions import contract
from fnx.numpy.counting import diff
from fnx.numpy.creation import full
from fnx.numpy.grids import diagonal
from fnx.numpy.indexing import get
from fnx.numpy.joining import concatenate, stack
from fnx.numpy.mathematics import conj, mod, real, root
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    axis_index,
    broadcast,
    cast,
    inexact_dtype,
    promoted,
    typed,
)
from fnx.numpy.shaping import atleast_2d, expand_dims, flip, reshape, transpose
from fnx.ops.pieces import part_of


@becomes_native
def cov(
    m: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: ArrayLike | None = None,
    aweights: ArrayLike | None = None,
    dtype: DTypeLike = None,
) -> Array:
    """The covariances of variables, one a row (or a column without `rowvar`).

    The sums are divided by the number of observations minus `ddof`: 1, or 0 if `bias`.
    An observation counts `fweights` times, and `aweights` say how important it is.
    `dtype` is computed in.

    >>> cov(np.array([[1.0, 3.0], [2.0, 6.0]])).tolist()
    [[2.0, 4.0], [4.0, 8.0]]
    """
    x = _variables(m, rowvar)
    if y is not None:
        x = concatenate([x, _variables(y, rowvar)], 0)
    if dtype is not None:
        x = cast(x, dtypes.as_dtype(dtype))
    missing = ddof if ddof is not None else int(not bias)
    weights = _observations(x, fweights, aweights)
    if weights is None:
        gap = ufuncs.subtract(x, reductions.mean(x, 1, keepdims=True))
        weighted = gap
        count: Any = float(max(x.shape[1] - missing, 0))
    else:
        total = reductions.sum(weights)
        mean = ufuncs.divide(reductions.sum(ufuncs.multiply(x, weights), 1), total)
        gap = ufuncs.subtract(x, expand_dims(mean, 1))
        weighted = ufuncs.multiply(gap, weights)
        count = ufuncs.subtract(total, missing)
        if aweights is not None and missing:
            squares = ufuncs.multiply(weights, as_array("cov", aweights))
            lost = ufuncs.divide(reductions.sum(squares), total)
            count = ufuncs.subtract(total, ufuncs.multiply(missing, lost))
    sums = contract("cov", weighted, conj(gap), ((1,), (1,)))
    out = ufuncs.divide(sums, count)
    return reshape(out, ()) if out.shape == (1, 1) else out


def _observations(x: Array, fweights: Any, aweights: Any) -> Array | None:
    """What each observation counts; None if all count 1."""
    found = None
    real_dtype = dtypes.real_dtype(x.dtype)
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        weights = as_array("cov", given)
        if name == "fweights" and not dtypes.is_integer(weights.dtype):
            raise errors.DTypeError(f"cov: fweights are integers, got {weights.type}")
        if weights.shape != x.shape[1:]:
            raise errors.ShapeError(
                f"cov: {name} {weights.type} is not one number for each of the "
                f"{x.shape[1]} observations"
            )
        weights = cast(weights, real_dtype)
        found = weights if found is None else ufuncs.multiply(found, weights)
    return found


def _variables(m: ArrayLike, rowvar: bool) -> Array:
    x = as_array("cov", m)
    if x.ndim > 2:
        raise errors.ShapeError(f"cov takes arrays of at most rank 2, got {x.type}")
    x = cast(atleast_2d(x), inexact_dtype(x.dtype))
    return x if rowvar or x.shape[0] == 1 else transpose(x)


@becomes_native
def corrcoef(
    x: ArrayLike,
    y: ArrayLike | None = None,
    rowvar: bool = True,
    dtype: DTypeLike = None,
) -> Array:
    """The correlations of variables: covariances divided by both deviations.

    >>> corrcoef(np.array([[1.0, 3.0], [6.0, 2.0]])).round(3).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return ufuncs.divide(c, c)
    deviation = root(real(diagonal(c)))
    c = ufuncs.divide(c, expand_dims(deviation, 1))
    c = ufuncs.divide(c, expand_dims(deviation, 0))
    return c if dtypes.is_complex(c.dtype) else clip(c, -1, 1)


@becomes_native
def trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
) -> Array:
    """The integral of the broken line through the points (x, y), along an axis.

    >>> trapezoid(np.array([1.0, 2.0, 3.0])).item()
    4.0
    """
    given, dtype, _ = promoted("trapezoid", (y, y if x is None else x), inexact=True)
    values, places = [typed("trapezoid", v, dtype) for v in given]
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
        widths = diff(places)
        if widths.ndim == 1:
            sizes = [n - 1 if i == place else 1 for i in range(values.ndim)]
            widths = reshape(widths, sizes)
    return reductions.sum(ufuncs.multiply(heights, widths), place)


@becomes_native
def gradient(
    f: ArrayLike, *varargs: Any, axis: Any = None, edge_order: int | None = None
) -> Any:
    """The slopes of samples along each axis: central, one-sided at the ends.

    Spacings are numbers, or vectors of coordinates; one for all axes or one for each.
    At the ends the slope is that of the line through two points, or of the parabola
    through three with `edge_order=2`.

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
    if edge_order not in (None, 1, 2):
        raise errors.OptionError(f"gradient: edge_order is 1 or 2, not {edge_order!r}")
    order = edge_order or 1
    slopes = [_slope(x, p, h, order) for p, h in zip(places, spacings, strict=True)]
    return slopes[0] if len(slopes) == 1 else slopes


def _slope(x: Array, axis: int, spacing: ArrayLike, order: int) -> Array:
    n = x.shape[axis]
    if n <= order:
        raise errors.ShapeError(
            f"gradient: axis {axis} of {x.type} has no {order + 1} samples"
        )
    steps = ufuncs.subtract(part_of(x, axis, 1, n), part_of(x, axis, 0, n - 1))
    widths = _widths(x, axis, spacing)
    slopes = ufuncs.divide(steps, widths)
    before, after = part_of(slopes, axis, 0, n - 2), part_of(slopes, axis, 1, n - 1)
    # The slope at a point: the nearer neighbour counts more.
    left, right = part_of(widths, axis, 0, n - 2), part_of(widths, axis, 1, n - 1)
    both = ufuncs.add(left, right)
    inner = ufuncs.divide(
        ufuncs.add(ufuncs.multiply(before, right), ufuncs.multiply(after, left)), both
    )
    first, last = part_of(slopes, axis, 0, 1), part_of(slopes, axis, n - 2, n - 1)
    if order == 2:
        # The slope changes as much on this side of the first step as on the other.
        change = ufuncs.divide(ufuncs.subtract(after, before), both)
        bends = part_of(change, axis, 0, 1), part_of(change, axis, n - 3, n - 2)
        steps_out = part_of(widths, axis, 0, 1), part_of(widths, axis, n - 2, n - 1)
        first = ufuncs.subtract(first, ufuncs.multiply(bends[0], steps_out[0]))
        last = ufuncs.add(last, ufuncs.multiply(bends[1], steps_out[1]))
    return concatenate([first, inner, last], axis)


def _widths(x: Array, axis: int, spacing: ArrayLike) -> Array:
    """The distances of neighbours along an axis, in the dtype of the samples."""
    n = x.shape[axis]
    given = typed("gradient", spacing, x.dtype, position=1)
    shape = tuple([n - 1 if i == axis else 1 for i in range(x.ndim)])
    if not given.ndim:
        return broadcast(reshape(given, (1,) * x.ndim), shape)
    if given.shape != (n,):
        raise errors.ShapeError(
            f"gradient: the coordinates {given.type} are not one for each of the {n} "
            f"samples along axis {axis}"
        )
    return reshape(diff(given), shape)


@becomes_native
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


# ---------------------------------------------------------------- vectors


@becomes_native
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


@at_once(on_numpy.convolve)
def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """The sums of products of a with v turned round and moved along it.

    "full" has all places where they meet, "same" as many as the longer one, "valid"
    those where they overlap completely. The other options are those of
    `fnx.lax.dot_general`.

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
    options = precision, preferred_element_type
    windows = get(padded, places)
    out = contract("convolve", windows, flip(y), ((1,), (0,)), ((), ()), *options)
    if mode == "full":
        return out
    if mode == "same":
        start = (k - 1) // 2
        return part_of(out, 0, start, start + n)
    return part_of(out, 0, k - 1, n)


@at_once(on_numpy.correlate)
def correlate(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "valid",
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """The sums of products of a with conj(v) moved along it; modes as in `convolve`.

    >>> correlate(np.array([1.0, 2.0]), np.array([1.0, 3.0])).tolist()
    [7.0]
    """
    x, y = as_array("correlate", a), as_array("correlate", v, 1)
    swapped = x.ndim == y.ndim == 1 and x.size < y.size
    if swapped:  # the middle of an even number of places is another one then
        x, y = y, x
    out = convolve(
        x,
        flip(conj(y)),
        mode,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    return flip(conj(out)) if swapped else out


@becomes_native
def nancumsum(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: None = None
) -> Array:
    """`cumsum` with NaN as 0."""
    x = as_array("nancumsum", a)
    x = cast(choose_where(ufuncs.isnan(x), 0, x), x.dtype)
    return reductions.cumsum(x, axis, dtype, out)


@becomes_native
def nancumprod(
    a: ArrayLike, axis: int | None = None, dtype: DTypeLike = None, out: None = None
) -> Array:
    """`cumprod` with NaN as 1."""
    x = as_array("nancumprod", a)
    x = cast(choose_where(ufuncs.isnan(x), 1, x), x.dtype)
    return reductions.cumprod(x, axis, dtype, out)
