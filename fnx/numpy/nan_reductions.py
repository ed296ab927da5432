"""Reductions that leave NaNs out: nansum, nanmean, nanstd, nanmax and the like.

Receives what the functions of `reductions.py` receive, calls them with the NaNs
replaced by what changes nothing. Next on the walk: `shaping.py`.
"""

from __future__ import annotations

import math
from typing import Any

from fnx import dtypes
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import reductions, ufuncs
from fnx.numpy.choices import choose_where, truth
from fnx.numpy.mathematics import root
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    broadcast,
    cast,
    refuse,
)
from fnx.numpy.reductions import Axis, worst
from fnx.ops import parts


def _without_nan(a: ArrayLike, function: str, value: Any) -> tuple[Array, Array]:
    """The array with NaNs replaced, and where there were none."""
    x = as_array(function, a)
    bad = ufuncs.isnan(x)
    return cast(choose_where(bad, value, x), x.dtype, x.weak_type), parts.not_(bad)


def _narrowed(there: Array, function: str, where: ArrayLike | None) -> Array:
    """Where elements count: neither NaN nor left out by `where`."""
    if where is None:
        return there
    return parts.and_(there, broadcast(truth(function, where), there.shape))


@becomes_native
def nansum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The sum of the elements that are not NaN.

    >>> import numpy as np
    >>> nansum(np.array([1.0, math.nan])).item()
    1.0
    """
    x, _ = _without_nan(a, "nansum", 0)
    return reductions.sum(x, axis, dtype, out, keepdims, initial, where)


@becomes_native
def nanprod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The product of the elements that are not NaN."""
    x, _ = _without_nan(a, "nanprod", 1)
    return reductions.prod(x, axis, dtype, out, keepdims, initial, where)


@becomes_native
def nanmean(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    out: None = None,
    keepdims: bool = False,
    where: ArrayLike | None = None,
) -> Array:
    """The mean of the elements that are not NaN; NaN where all are."""
    refuse("nanmean", out=out)
    x, there = _without_nan(a, "nanmean", 0)
    there = _narrowed(there, "nanmean", where)
    return reductions.mean(x, axis, dtype, None, keepdims, where=there)


@becomes_native
def nanvar(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """The variance of the elements that are not NaN, around `mean` if it is known."""
    refuse("nanvar", out=out)
    x, there = _without_nan(a, "nanvar", 0)
    there = _narrowed(there, "nanvar", where)
    return reductions.var(x, axis, dtype, None, ddof, keepdims, where=there, mean=mean)


@becomes_native
def nanstd(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DTypeLike = None,
    out: None = None,
    ddof: int = 0,
    keepdims: bool = False,
    where: ArrayLike | None = None,
    mean: ArrayLike | None = None,
) -> Array:
    """The standard deviation of the elements that are not NaN; see `nanvar`."""
    return root(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


@becomes_native
def nanmax(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The largest element that is not NaN; NaN where all are."""
    return _nan_extremum(
        "nanmax", reductions.max, a, axis, out, keepdims, initial, where
    )


@becomes_native
def nanmin(
    a: ArrayLike,
    axis: Axis = None,
    out: None = None,
    keepdims: bool = False,
    initial: ArrayLike | None = None,
    where: ArrayLike | None = None,
) -> Array:
    """The smallest element that is not NaN; NaN where all are."""
    return _nan_extremum(
        "nanmin", reductions.min, a, axis, out, keepdims, initial, where
    )


def _nan_extremum(
    name: str,
    function: Any,
    a: ArrayLike,
    axis: Axis,
    out: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
) -> Array:
    x = as_array(name, a)
    if not dtypes.is_inexact(x.dtype):
        return function(x, axis, out, keepdims, initial, where)
    filled, there = _without_nan(x, name, worst(x.dtype, name == "nanmax"))
    found = function(filled, axis, out, keepdims, initial, where)
    if initial is not None:
        return found
    return choose_where(reductions.any(there, axis, keepdims=keepdims), found, math.nan)


@becomes_native
def nanargmax(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False
) -> Array:
    """The index of the first largest element that is not NaN; -1 where all are."""
    return _nan_place("nanargmax", reductions.argmax, a, axis, out, keepdims)


@becomes_native
def nanargmin(
    a: ArrayLike, axis: int | None = None, out: None = None, keepdims: bool = False
) -> Array:
    """The index of the first smallest element that is not NaN; -1 where all are."""
    return _nan_place("nanargmin", reductions.argmin, a, axis, out, keepdims)


def _nan_place(
    name: str, function: Any, a: ArrayLike, axis: Any, out: Any, keepdims: bool
) -> Array:
    x = as_array(name, a)
    if not dtypes.is_inexact(x.dtype):
        return function(x, axis, out, keepdims)
    filled, there = _without_nan(x, name, worst(x.dtype, name == "nanargmax"))
    found = function(filled, axis, out, keepdims)
    return choose_where(reductions.any(there, axis, keepdims=keepdims), found, -1)
