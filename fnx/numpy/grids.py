"""Grids: evenly spaced values, coordinate arrays, and masks of diagonals.

Receives bounds and sizes, gives arrays; bounds may be traced and have gradients.
Next on the walk: `ufuncs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.core.trace import constant
from fnx.numpy.creation import arange, array, astype, full, made_on
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    Shape,
    as_array,
    axes_tuple,
    axis_index,
    broadcast,
    cast,
    operands,
    shape_tuple,
)
from fnx.ops.arithmetic import add, eq, mul, select, sub
from fnx.ops.elementwise import div, exp, floor, ge, log, pow
from fnx.ops.pieces import concatenate, pad, part_of
from fnx.ops.shape import broadcast_in_dim, iota, permute, reshape
from fnx.runtime.device import Device
from fnx.runtime.device_array import beside

if TYPE_CHECKING:
    from fnx.runtime.sharding import Sharding

# ---------------------------------------------------------------- evenly spaced


@becomes_native
def linspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike = None,
    axis: int = 0,
    *,
    device: Device | Sharding | None = None,
) -> Any:
    """`num` evenly spaced values from `start` to `stop`, along a new axis.

    Without `endpoint` the last one is left out. `retstep` gives the spacing too.
    Integer dtypes round towards minus infinity.

    >>> linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    if device is not None:
        bounds = start, stop, num, endpoint
        values = made_on(
            device, "linspace", lambda: linspace(*bounds, False, dtype, axis)
        )
        return (values, linspace(*bounds, True, dtype)[1]) if retstep else values
    num = num.__index__()
    if num < 0:
        raise errors.OptionError(f"linspace: num={num} is negative")
    low, high, computed = _bounds("linspace", start, stop, dtype)
    wanted = computed if dtype is None else dtypes.as_dtype(dtype)
    between = _stepped if dtypes.is_integer(wanted) else _interpolated
    values = between(low, high, num, num - 1 if endpoint else num)
    axis = axis_index("linspace", axis, values.ndim)
    values = cast(_axis_from_front(values, axis), wanted)
    if not retstep:
        return values
    count = num - 1 if endpoint else num
    step = (
        div(sub(high, low), count) if count > 0 else full(low.shape, np.nan, computed)
    )
    return values, step


def _bounds(
    function: str, start: Any, stop: Any, wanted: DTypeLike = None
) -> tuple[Array, Array, Any]:
    """Two arrays of one shape, and their dtype: as wide as the values asked for."""
    low, high = operands(function, start, stop, inexact=True)
    computed = low.type.dtype
    wide = dtypes.promote((computed, False), (_inexact(wanted, computed), False))[0]
    if wide != computed:
        low, high = operands(function, array(start, wide), array(stop, wide))
    # A literal stands for an array of rank 0 beside one that has axes.
    shape = next((x.shape for x in (low, high) if isinstance(x, Array)), ())
    low, high = [
        x if isinstance(x, Array) else broadcast(constant(x), shape)
        for x in (low, high)
    ]
    dtype = low.dtype
    return cast(low, dtype), cast(high, dtype), dtype


def _inexact(wanted: DTypeLike, computed: np.dtype[Any]) -> np.dtype[Any]:
    """The inexact dtype that holds the values of a dtype, or else the computed one."""
    if wanted is None:
        return computed
    found = dtypes.as_dtype(wanted)
    if dtypes.is_integer(found) and found.itemsize >= 4:
        return dtypes.float64
    return found if dtypes.is_inexact(found) else computed


def _interpolated(low: Array, high: Array, num: int, intervals: int) -> Array:
    """Low + (high - low) * i / intervals for i in range(num), along axis 0."""
    shape = (num, *low.shape)
    dtype = low.dtype
    real = dtypes.compute_dtype(dtypes.real_dtype(dtype))
    index = iota(shape=shape, dtype=real, axis=0)
    part = cast(div(index, max(intervals, 1)), dtype)
    rest = cast(div(sub(float(max(intervals, 1)), index), max(intervals, 1)), dtype)
    low, high = broadcast(low, shape), broadcast(high, shape)
    return add(mul(low, rest), mul(high, part)) if num > 1 else low


def _stepped(low: Array, high: Array, num: int, intervals: int) -> Array:
    """The integers below, in NumPy's order: what it reaches exactly is reached here."""
    dtype = dtypes.compute_dtype(low.dtype)
    low, high = cast(low, dtype), cast(high, dtype)
    index = iota(shape=(num, *low.shape), dtype=dtype, axis=0)
    step = broadcast(div(sub(high, low), max(intervals, 1)), index.shape)
    values = floor(add(mul(index, step), broadcast(low, index.shape)))
    last = eq(index, float(max(intervals, 1)))
    return select(last, floor(broadcast(high, index.shape)), values)


def _axis_from_front(x: Array, axis: int) -> Array:
    """The first axis moved to a later place."""
    dims = (*range(1, axis + 1), 0, *range(axis + 1, x.ndim))
    return permute(x, dims=dims) if axis else x


@becomes_native
def logspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    base: ArrayLike = 10.0,
    dtype: DTypeLike = None,
    axis: int = 0,
) -> Array:
    """base**start to base**stop in equal ratios, along a new axis.

    >>> logspace(0, 2, 3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    low, high, _ = _bounds("logspace", start, stop, dtype)
    exponents = linspace(low, high, num, endpoint, axis=axis)
    values = pow(*operands("logspace", base, exponents))
    return values if dtype is None else astype(values, dtype)


@becomes_native
def geomspace(
    start: ArrayLike,
    stop: ArrayLike,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike = None,
    axis: int = 0,
) -> Array:
    """`start` to `stop` (both positive) in equal ratios, along a new axis.

    >>> geomspace(1, 16, 3)
    Array([ 1.,  4., 16.], dtype=float32)
    """
    low, high, _ = _bounds("geomspace", start, stop, dtype)
    ratio = linspace(0.0, log(div(high, low)), num, endpoint, axis=axis)
    values = mul(*operands("geomspace", low, exp(ratio)))
    return values if dtype is None else astype(values, dtype)


@becomes_native
def meshgrid(
    *xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> list[Array]:
    """Coordinate arrays of the grid spanned by arrays of rank 1.

    With `indexing="xy"` the first two axes are exchanged, as in plots; `"ij"` keeps
    them. `sparse` leaves axes of size 1 to be broadcast.

    >>> x, y = meshgrid(arange(2), arange(3))
    >>> x.shape, y.tolist()
    ((3, 2), [[0, 0], [1, 1], [2, 2]])
    """
    if indexing not in ("xy", "ij"):
        raise errors.OptionError(
            f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}"
        )
    arrays = [as_array("meshgrid", x, i) for i, x in enumerate(xi)]
    for x in arrays:
        if x.ndim > 1:
            raise errors.ShapeError(f"meshgrid takes arrays of rank 1, got {x.type}")
    places = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) >= 2:
        places[:2] = [1, 0]
    shape = [1] * len(arrays)
    for x, place in zip(arrays, places, strict=True):
        shape[place] = x.size
    return [
        _along(x, place, tuple(shape), sparse)
        for x, place in zip(arrays, places, strict=True)
    ]


def _along(x: Array, place: int, shape: tuple[int, ...], sparse: bool) -> Array:
    flat = reshape(x, shape=(x.size,)) if x.ndim != 1 else x
    thin = tuple([n if i == place else 1 for i, n in enumerate(shape)])
    return broadcast_in_dim(flat, shape=thin if sparse else shape, dims=(place,))


@becomes_native
def indices(
    dimensions: Sequence[int], dtype: DTypeLike = None, sparse: bool = False
) -> Any:
    """For each axis of a shape, the array of the indices along it.

    >>> indices((2, 3))[1].tolist()
    [[0, 1, 2], [0, 1, 2]]
    """
    shape = shape_tuple("indices", dimensions)
    wanted = dtypes.default_int() if dtype is None else dtypes.as_dtype(dtype)
    if sparse:
        thin = [
            tuple([n if i == d else 1 for i, n in enumerate(shape)])
            for d in range(len(shape))
        ]
        return tuple([iota(shape=s, dtype=wanted, axis=d) for d, s in enumerate(thin)])
    grids = [
        iota(shape=(1, *shape), dtype=wanted, axis=d + 1) for d in range(len(shape))
    ]
    if not grids:
        return full((0,), 0, wanted)
    return concatenate(*grids, axis=0)


# ---------------------------------------------------------------- diagonals


@becomes_native
def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike = None) -> Array:
    """Ones on and below the k-th diagonal of an N by M array, zeros above.

    >>> tri(2, 3)
    Array([[1., 0., 0.],
           [1., 1., 0.]], dtype=float32)
    """
    shape = shape_tuple("tri", (N, N if M is None else M))
    wanted = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    return cast(_lower(shape, k), wanted)


_FAR = 2**30


def _lower(shape: Shape, k: int) -> Array:
    """Whether an index lies on or below the k-th diagonal."""
    return ge(*_row_and_column(shape, k))


def _row_and_column(shape: Shape, k: int) -> tuple[Array, Array]:
    """Row index plus k, and column index: equal on the k-th diagonal."""
    row, column = [iota(shape=shape, dtype=dtypes.int32, axis=i) for i in (0, 1)]
    if k.__class__ is int:  # a diagonal so far out is beside every array: no overflow
        k = max(-_FAR, min(k, _FAR))
    return (add(row, k) if k else row), column


@becomes_native
def tril(m: ArrayLike, k: int = 0) -> Array:
    """The lower triangle of the last two axes: zeros above the k-th diagonal.

    >>> tril(full((2, 2), 5))
    Array([[5, 0],
           [5, 5]], dtype=int32, weak_type=True)
    """
    x = _matrices("tril", m)
    return select(broadcast(_lower(x.shape[-2:], k), x.shape), x, 0)


@becomes_native
def triu(m: ArrayLike, k: int = 0) -> Array:
    """The upper triangle of the last two axes: zeros below the k-th diagonal.

    >>> triu(full((2, 2), 5))
    Array([[5, 5],
           [0, 5]], dtype=int32, weak_type=True)
    """
    x = _matrices("triu", m)
    return select(broadcast(_lower(x.shape[-2:], k - 1), x.shape), 0, x)


def _matrices(function: str, m: ArrayLike) -> Array:
    x = as_array(function, m)
    if x.ndim < 2:
        raise errors.ShapeError(
            f"{function} takes arrays of rank 2 or more, got {x.type}"
        )
    return x


@becomes_native
def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: DTypeLike = None,
    *,
    device: Device | Sharding | None = None,
) -> Array:
    """Ones on the k-th diagonal of an N by M array, zeros elsewhere.

    >>> eye(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if device is not None:
        return made_on(device, "eye", lambda: eye(N, M, k, dtype))
    shape = shape_tuple("eye", (N, N if M is None else M))
    wanted = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    return cast(eq(*_row_and_column(shape, k)), wanted)


@becomes_native
def identity(n: int, dtype: DTypeLike = None) -> Array:
    """The identity matrix of size n."""
    return eye(n, dtype=dtype)


@becomes_native
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements a[..., i, i + offset] of two axes, along a new last axis.

    >>> diagonal(arange(4).reshape(2, 2))
    Array([0, 3], dtype=int32)
    """
    x = _matrices("diagonal", a)
    row, column = axes_tuple("diagonal", (axis1, axis2), x.ndim)
    rest = [i for i in range(x.ndim) if i not in (row, column)]
    x = permute(x, dims=(*rest, row, column))
    rows, columns = x.shape[-2:]
    size = max(
        0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    )
    # In row-major order the diagonal is every (columns + 1)-th element.
    first = offset if offset >= 0 else -offset * columns
    flat = reshape(x, shape=(*x.shape[:-2], rows * columns))
    if not size:
        return part_of(flat, flat.ndim - 1, 0, 0)
    last = first + (size - 1) * (columns + 1) + 1
    return part_of(flat, flat.ndim - 1, first, last, columns + 1)


@becomes_native
def diag(v: ArrayLike, k: int = 0) -> Array:
    """The k-th diagonal of a matrix, or the matrix with that k-th diagonal.

    >>> diag(arange(1, 3))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    x = as_array("diag", v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise errors.ShapeError(f"diag takes arrays of rank 1 or 2, got {x.type}")
    n = x.size + abs(k)
    low, high = max(-k, 0), max(k, 0)
    if k:
        x = pad(x, 0, low=(low,), high=(high,), interior=(0,))
    return select(
        eq(*_row_and_column((n, n), k)), broadcast_in_dim(x, shape=(n, n), dims=(0,)), 0
    )


@becomes_native
def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """The matrix with the elements of an array of any rank on its k-th diagonal."""
    x = as_array("diagflat", v)
    return diag(reshape(x, shape=(x.size,)), k)


@becomes_native
def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """The indices of the main diagonal of an array of `ndim` axes of size n."""
    return (arange(n),) * ndim


@becomes_native
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The indices of the lower triangle of an n by m array, row by row.

    >>> [i.tolist() for i in tril_indices(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    return _index_arrays(np.tril_indices(n, k, m))


@becomes_native
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """The indices of the upper triangle of an n by m array, row by row."""
    return _index_arrays(np.triu_indices(n, k, m))


def _index_arrays(found: tuple[Any, Any]) -> tuple[Array, Array]:
    dtype = dtypes.default_int()
    return beside(found[0].astype(dtype)), beside(found[1].astype(dtype))
