"""Arrays with some elements changed, added or left out: put, place, trim_zeros.

NumPy changes the array itself; here it stays and the result is another, so that
`inplace=True`, the default as in JAX, raises. Receives arrays, gives arrays. Loaded
when it is first used. Next on the walk: `grid_objects.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import ufuncs
from fnx.numpy.choices import choose_where, truth
from fnx.numpy.counting import diff, nonzero
from fnx.numpy.creation import ones
from fnx.numpy.grids import diag_indices
from fnx.numpy.indexing import get
from fnx.numpy.joining import concatenate, tile
from fnx.numpy.mathematics import remainder
from fnx.numpy.operands import ArrayLike, as_array, axes_tuple, axis_index, cast
from fnx.numpy.reductions import cumsum
from fnx.numpy.shaping import expand_dims, ravel, reshape
from fnx.numpy.taking import take
from fnx.numpy.updating import At


def not_inplace(function: str, inplace: bool) -> None:
    """Raises if the argument is to change."""
    if inplace:
        raise errors.OptionError(
            f"{function}: arrays never change; give inplace=False and use the result"
        )


def put(
    a: ArrayLike,
    ind: ArrayLike,
    v: ArrayLike,
    mode: str | None = None,
    *,
    inplace: bool = True,
) -> Array:
    """The array with values at places of the flattened array; values repeat.

    `mode` for places out of range is "clip" (the default), "wrap", or "raise", for
    which places must be known.

    >>> put(np.zeros(4), np.array([1, 2]), np.array([5.0]), inplace=False).tolist()
    [0.0, 5.0, 5.0, 0.0]
    """
    not_inplace("put", inplace)
    x, places, values = as_array("put", a), ravel(ind), ravel(v)
    if mode not in (None, "clip", "wrap", "raise"):
        raise errors.OptionError(f"put: mode {mode!r} is not clip, wrap or raise")
    if not places.size:
        return x
    if not values.size:
        raise errors.ShapeError(f"put: {places.size} places and no value")
    values = _as_many(values, places.size)
    flat = ravel(x)
    if mode == "wrap":
        places = remainder(places, x.size)
    elif mode == "raise":
        np.asarray(places)  # traced places would be dropped where they are wrong
    else:
        places = ufuncs.minimum(ufuncs.maximum(places, -x.size), x.size - 1)
    return reshape(At(flat)[places].set(cast(values, x.dtype)), x.shape)


def _as_many(values: Array, count: int) -> Array:
    """So many values, taken from the beginning again and again."""
    repeats = -(-count // values.size)
    return get(tile(values, repeats), slice(count))


def place(
    arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True
) -> Array:
    """The array with one value after the other where a mask holds; values repeat.

    >>> place(np.zeros(3), np.array([True, False, True]), 7, inplace=False).tolist()
    [7.0, 0.0, 7.0]
    """
    not_inplace("place", inplace)
    x, holds, values = as_array("place", arr), truth("place", mask), ravel(vals)
    if holds.size != x.size:
        raise errors.ShapeError(
            f"place: mask {holds.type} has not as many elements as arr {x.type}"
        )
    if not values.size:
        raise errors.ShapeError("place: vals has no elements")
    flags = ravel(holds)
    number = ufuncs.subtract(cumsum(flags, dtype=dtypes.default_int()), 1)
    chosen = take(values, remainder(number, values.size), 0, mode="wrap")
    return reshape(choose_where(flags, cast(chosen, x.dtype), ravel(x)), x.shape)


@becomes_native
def fill_diagonal(
    a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = True
) -> Array:
    """The array with values on its main diagonal, one after the other; values repeat.

    `wrap` goes on after the last row that a tall matrix has of a square.

    >>> fill_diagonal(np.zeros((2, 2)), 5, inplace=False).tolist()
    [[5.0, 0.0], [0.0, 5.0]]
    """
    not_inplace("fill_diagonal", inplace)
    x, values = as_array("fill_diagonal", a), ravel(val)
    if x.ndim < 2:
        raise errors.ShapeError(f"fill_diagonal: rank 2 or more, got {x.type}")
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise errors.ShapeError(
            f"fill_diagonal: beyond rank 2 all axes have one size, got {x.type}"
        )
    columns = x.shape[1]
    step = columns + 1 if x.ndim == 2 else sum(x.shape[0] ** i for i in range(x.ndim))
    end = columns * columns if x.ndim == 2 and not wrap else x.size
    places = range(0, min(end, x.size), max(step, 1))
    if not len(places) or not values.size:
        return x
    part = slice(places.start, places.stop, places.step)
    filled = cast(_as_many(values, len(places)), x.dtype)
    return reshape(At(ravel(x))[part].set(filled), x.shape)


def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """The places of the main diagonal of an array whose axes have one size.

    >>> [i.tolist() for i in diag_indices_from(np.zeros((2, 2)))]
    [[0, 1], [0, 1]]
    """
    x = as_array("diag_indices_from", arr)
    if x.ndim < 2 or len(set(x.shape)) > 1:
        raise errors.ShapeError(
            f"diag_indices_from: two or more axes of one size, got {x.type}"
        )
    return diag_indices(x.shape[0], x.ndim)


@becomes_native
def mask_indices(
    n: int,
    mask_func: Callable[[Array, int], Array],
    k: int = 0,
    *,
    size: int | None = None,
) -> tuple[Array, ...]:
    """The places of an n by n matrix that a function such as `triu` does not make 0.

    >>> from fnx.numpy import triu
    >>> [i.tolist() for i in mask_indices(2, triu)]
    [[0, 0, 1], [0, 1, 1]]
    """
    return nonzero(mask_func(ones((n, n)), k), size=size)


def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: Any = None) -> Array:
    """The array without zeros at the front and back of its axes; values are known.

    `trim` is "f", "b" or both; `axis` is one axis, several, or all.

    >>> trim_zeros(np.array([0, 1, 0, 2, 0])).tolist()
    [1, 0, 2]
    """
    x = as_array("trim_zeros", filt)
    letters = trim.lower()
    if not letters or letters.strip("fb"):
        raise errors.OptionError(f"trim_zeros: trim is 'f', 'b' or 'fb', not {trim!r}")
    axes = axes_tuple("trim_zeros", axis, x.ndim)
    try:
        places = np.argwhere(np.asarray(x))
    except errors.TracerValueError as error:
        raise errors.TracerValueError(
            f"trim_zeros: the size of the result depends on the values: {error}"
        ) from None
    index = [slice(None)] * x.ndim
    for i in axes:
        first = places[:, i].min(initial=x.shape[i])
        last = places[:, i].max(initial=-1)
        start = int(first) if "f" in letters else None
        # Where all are zeros, trimming one side alone leaves nothing as well.
        end = int(last) + 1 if "b" in letters else None
        index[i] = slice(start, end)
    return get(x, tuple(index))


@becomes_native
def ediff1d(
    ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None
) -> Array:
    """The differences of neighbours in the flattened array, between two other parts.

    >>> ediff1d(np.array([1, 4, 9]), to_end=0).tolist()
    [3, 5, 0]
    """
    x = ravel(ary)
    parts = [to_begin, diff(x), to_end]
    return concatenate([cast(ravel(p), x.dtype) for p in parts if p is not None])


def apply_over_axes(
    func: Callable[[Array, int], Array], a: ArrayLike, axes: int | Sequence[int]
) -> Array:
    """A function of an array and an axis, applied for one axis after the other.

    What it gives has the axis with size 1, or not at all, and then gets it back.

    >>> from fnx.numpy import sum
    >>> apply_over_axes(sum, np.ones((2, 3)), (0, 1)).tolist()
    [[6.0]]
    """
    x = as_array("apply_over_axes", a)
    many = axes if isinstance(axes, Sequence) else (axes,)
    for axis in many:
        place = axis_index("apply_over_axes", axis, x.ndim)
        found = as_array("apply_over_axes", func(x, place))
        if found.ndim == x.ndim - 1:
            found = expand_dims(found, place)
        if found.ndim != x.ndim:
            raise errors.ShapeError(
                f"apply_over_axes: of {x.type} the function gave {found.type}, neither "
                "of that rank nor of one less"
            )
        x = found
    return x
