"""Medians, percentiles and quantiles, of all elements or of those that are not NaN.

Receives arrays and shares, sorts along the axes and reads between two elements.
Next on the walk: `counting.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.promote import becomes_native
from fnx.config import for_any_size
from fnx.core.array import Array
from fnx.numpy import on_numpy, ufuncs
from fnx.numpy.joining import stack
from fnx.numpy.operands import (
    ArrayLike,
    as_array,
    axes_tuple,
    broadcast,
    cast,
    is_scalar,
    promoted,
    refuse,
    typed,
)
from fnx.numpy.reductions import Axis, any, cumsum, sum
from fnx.numpy.shaping import expand_dims, moveaxis, reshape
from fnx.numpy.sorting import sort
from fnx.numpy.taking import take, take_along_axis
from fnx.ops import parts
from fnx.ops import sort as sorts
from fnx.ops.arithmetic import add, mul, select, sub
from fnx.ops.elementwise import ceil, floor, ge
from fnx.ops.pieces import part_of
from fnx.ops.shape import full, iota
from fnx.runtime.array import ConcreteArray


@at_once(on_numpy.median)
def median(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """The middle of the sorted elements, over axes; NaN wins.

    Arrays never change, whatever `overwrite_input` permits.

    >>> import numpy as np
    >>> median(np.array([3.0, 1.0, 2.0])).item()
    2.0
    """
    return quantile(a, 0.5, axis, out, overwrite_input, keepdims=keepdims)


@at_once(on_numpy.nanmedian)
def nanmedian(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Array:
    """The middle of the elements that are not NaN; NaN where all are.

    >>> import numpy as np
    >>> nanmedian(np.array([3.0, np.nan, 2.0])).item()
    2.5
    """
    return nanquantile(a, 0.5, axis, out, overwrite_input, keepdims=keepdims)


@becomes_native
def percentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """As `quantile`, with q in [0, 100]."""
    share = _hundredth("percentile", q)
    return quantile(
        a, share, axis, out, overwrite_input, method, keepdims, weights=weights
    )


@becomes_native
def nanpercentile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """As `nanquantile`, with q in [0, 100]."""
    share = _hundredth("nanpercentile", q)
    return nanquantile(
        a, share, axis, out, overwrite_input, method, keepdims, weights=weights
    )


def _hundredth(name: str, q: ArrayLike) -> Any:
    # A scalar stays one, so that it is rounded to the dtype of the elements.
    if isinstance(q, int | float):
        return q / 100
    return ufuncs.divide(as_array(name, q, 1), 100)


@at_once(on_numpy.quantile)
def quantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """The value below which a share q (in [0, 1]) of the elements lies, over axes.

    Between two elements `method` decides: "linear", "lower", "higher", "midpoint",
    "nearest". Other definitions of a share are "hazen", "weibull", "median_unbiased",
    "normal_unbiased", "interpolated_inverted_cdf" and "inverted_cdf"; with the last one
    elements may have weights, in the shape of `a` or along its axis. The axes of q come
    first in the result. NaN wins.

    >>> import numpy as np
    >>> quantile(np.arange(5.0), 0.25).item()
    1.0
    """
    refuse("quantile", out=out)
    return _over_axes("quantile", a, q, axis, method, keepdims, weights, False)


@becomes_native
def nanquantile(
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis = None,
    out: None = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: ArrayLike | None = None,
) -> Array:
    """The `quantile` of the elements that are not NaN; NaN where all are.

    >>> import numpy as np
    >>> nanquantile(np.array([0.0, np.nan, 1.0]), 0.25).item()
    0.25
    """
    refuse("nanquantile", out=out)
    return _over_axes("nanquantile", a, q, axis, method, keepdims, weights, True)


def _over_axes(
    name: str,
    a: ArrayLike,
    q: ArrayLike,
    axis: Axis,
    method: str,
    keepdims: bool,
    weights: ArrayLike | None,
    without_nan: bool,
) -> Array:
    methods = (*_BETWEEN, *_SHARES, "inverted_cdf")
    if method not in methods:
        names = ", ".join(methods)
        raise errors.OptionError(f"{name}: method {method!r} is none of {names}")
    if weights is not None and method != "inverted_cdf":
        raise errors.OptionError(
            f"{name}: weights go with method='inverted_cdf', not {method!r}"
        )
    values, dtype, _ = promoted(name, (a, q), inexact=True)
    if dtypes.is_complex(dtype):
        raise errors.DTypeError(f"{name}: complex numbers have no order")
    x, shares = [typed(name, value, dtype) for value in values]
    axes = axes_tuple(name, axis, x.ndim)
    rows, flat = _rows(x, axes), reshape(shares, (shares.size,))
    if not rows.shape[-1]:
        raise errors.ShapeError(f"{name}: there are no elements")
    known = None if without_nan else _known(q, dtype)
    if known is not None and method != "inverted_cdf":
        found = _at_known(rows, known, method)
    elif method == "inverted_cdf":
        heavy = _rows(_weights(name, weights, x, axes), axes)
        found = _by_weight(rows, flat, heavy)
    else:
        found = _between(rows, flat, method, without_nan)
    if not without_nan and (known is None or method == "inverted_cdf"):
        found = select(
            broadcast(any(ufuncs.isnan(rows), -1), found.shape), math.nan, found
        )
    kept = [n for i, n in enumerate(x.shape) if i not in axes]
    thin = [1 if i in axes else n for i, n in enumerate(x.shape)]
    return reshape(found, (*shares.shape, *(thin if keepdims else kept)))


def _rows(x: Array, axes: tuple[int, ...]) -> Array:
    """The axes flattened into one, the last."""
    kept = [n for i, n in enumerate(x.shape) if i not in axes]
    moved = (
        moveaxis(x, axes, list(range(-len(axes), 0))) if axes else expand_dims(x, -1)
    )
    return reshape(moved, (*kept, math.prod([x.shape[i] for i in axes])))


def _before(shares: Array, rows: Array) -> Array:
    """A number for each share in front of the axes that rows have but for the last."""
    return reshape(shares, (shares.size,) + (1,) * (rows.ndim - 1))


def _weights(name: str, weights: Any, x: Array, axes: tuple[int, ...]) -> Array:
    if weights is None:
        return full(x.shape, x.dtype, 1)
    found = cast(as_array(name, weights), x.dtype)
    if found.ndim == 1 and len(axes) == 1 and x.ndim > 1:
        sizes = [found.size if i == axes[0] else 1 for i in range(x.ndim)]
        found = reshape(found, sizes)
    return broadcast(found, x.shape)


# ---------------------------------------------------------------- by known position

# So many shares are read one by one.
_MOST_KNOWN = 8


def _known(q: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any] | None:
    """A few shares that are known now, in the dtype of the elements."""
    if not (is_scalar(q) or q.__class__ in (ConcreteArray, np.ndarray)):
        return None
    shares = np.asarray(q).reshape(-1)
    return shares.astype(dtype) if shares.size <= _MOST_KNOWN else None


def _at_known(rows: Array, shares: np.ndarray[Any, Any], method: str) -> Array:
    """The values at known shares: parts of the sorted elements, and NaN if one is."""
    ordered, n = sort(rows, -1), rows.shape[-1]
    last = _column(ordered, n - 1)
    positions = _known_positions(shares, n, method)
    found = [_at_position(ordered, p, method) for p in positions]
    # NaNs come last.
    found = [select(ufuncs.isnan(last), math.nan, x) for x in found]
    if len(found) == 1:
        return found[0]
    shape = (0, *last.shape)
    return stack(found) if found else full(shape, last.dtype, 0)


def _known_positions(
    shares: np.ndarray[Any, Any], n: int, method: str
) -> np.ndarray[Any, Any]:
    """What `_position` gives, in the same dtype."""
    kind = shares.dtype.type
    with np.errstate(all="ignore"):
        if method in _BETWEEN:
            return shares * kind(n - 1)
        low, high = _SHARES[method]
        found = shares * kind(n + (1 - low - high)) + kind(low - 1)
        return np.clip(found, kind(0), kind(n - 1))


def _at_position(ordered: Array, position: Any, method: str) -> Array:
    """The values at one position between two columns."""
    place = float(position)
    if math.isnan(place):
        return full((*ordered.shape[:-1], 1), ordered.dtype, math.nan)
    final = float(ordered.shape[-1] - 1)
    low, high = math.floor(min(max(place, 0.0), final)), math.ceil(place)
    above = math.floor(min(max(high, 0.0), final))
    weight = float(position - position.dtype.type(math.floor(place)))
    match method:
        case "lower":
            return _column(ordered, low)
        case "higher":
            return _column(ordered, above)
        case "nearest":
            return _column(ordered, low if weight <= 0.5 else above)
        case "midpoint" if low == above:
            return _column(ordered, low)
        case "midpoint":
            return _middle(_column(ordered, low), _column(ordered, above))
    if not for_any_size.get():
        return _linear(_column(ordered, low), _column(ordered, above), weight)
    # A gather reads two, also where both are one.
    pair = iota(shape=(2,), dtype=dtypes.int32, axis=0)
    both = ufuncs.minimum(add(pair, low), above)
    ends = take(ordered, both, -1, mode="clip")
    return _linear(_column(ends, 0), _column(ends, 1), weight)


def _column(x: Array, place: int) -> Array:
    return part_of(x, x.ndim - 1, place, place + 1)


# ---------------------------------------------------------------- by position


def _between(rows: Array, shares: Array, method: str, without_nan: bool) -> Array:
    """The values at positions between two elements; the shares come first."""
    ordered, n = sort(rows, -1), rows.shape[-1]
    lead = (shares.size, *rows.shape[:-1])
    if without_nan:
        # NaNs are the last of the sorted elements: positions end before them.
        there = parts.not_(ufuncs.isnan(rows))
        counts = broadcast(sum(there, -1, rows.dtype), lead)
        each = broadcast(_before(shares, rows), lead)
        last = ufuncs.maximum(sub(counts, 1), 0)
        position = _position(each, counts, last, method)
    else:
        position = _position(shares, float(n), float(n - 1), method)
    low, high = floor(position), ceil(position)
    below, above = [_at(ordered, place) for place in (low, high)]
    weight = sub(position, low)
    if not without_nan:
        weight = _before(weight, rows)
    return _BETWEEN.get(method, _linear)(below, above, broadcast(weight, lead))


def _position(shares: Array, count: Any, last: Any, method: str) -> Array:
    if method in _BETWEEN:
        return mul(shares, last)
    low, high = _SHARES[method]
    found = ufuncs.multiply(shares, count + (1 - low - high))
    found = add(found, low - 1)
    return ufuncs.minimum(ufuncs.maximum(found, 0), last)


def _at(ordered: Array, places: Array) -> Array:
    """The elements at the same places of all rows, or at places of their own."""
    index = cast(places, dtypes.int32)
    if places.ndim == 1 and ordered.ndim != 1:
        return moveaxis(take(ordered, index, -1, mode="clip"), -1, 0)
    last = moveaxis(index, 0, -1) if places.ndim > 1 else index
    found = take_along_axis(ordered, last, -1, mode="clip")
    return moveaxis(found, -1, 0)


def _linear(below: Array, above: Array, weight: Any) -> Array:
    # Equal ends, infinite ones too, have nothing between them.
    gap = select(ge(below, above), 0, sub(above, below))
    return add(below, mul(gap, weight))


def _middle(below: Array, above: Array) -> Array:
    return mul(add(below, above), 0.5)


_BETWEEN: dict[str, Any] = {
    "linear": _linear,
    "lower": lambda below, above, weight: below,
    "higher": lambda below, above, weight: above,
    "midpoint": lambda below, above, weight: _middle(below, above),
    "nearest": lambda below, above, weight: select(
        ufuncs.less_equal(weight, 0.5), below, above
    ),
}
# The plotting positions (Hyndman and Fan, 1996): element k of n, counted from 1, has
# the share (k - low) / (n + 1 - low - high).
_SHARES = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}


# ---------------------------------------------------------------- by weight


def _by_weight(rows: Array, shares: Array, weights: Array) -> Array:
    """The first element up to which the weights reach the share of their sum."""
    n, lead = rows.shape[-1], (shares.size, *rows.shape[:-1])
    counted = select(ufuncs.isnan(rows), 0, weights)
    ordered, heavy = sorts.sort(
        rows, counted, axis=rows.ndim - 1, num_keys=1, stable=True
    )
    reached = cumsum(heavy, -1)
    wanted = mul(
        broadcast(_before(shares, rows), lead),
        broadcast(sum(counted, -1), lead),
    )
    before = ufuncs.less(reached, expand_dims(wanted, -1))
    # What has no weight is never chosen, also where the share is 0.
    before = ufuncs.bitwise_or(before, ufuncs.equal(reached, 0))
    place = ufuncs.minimum(sum(before, -1, dtypes.int32), n - 1)
    found = take_along_axis(ordered, moveaxis(place, 0, -1), -1, mode="clip")
    return moveaxis(found, -1, 0)
