"""Functions over axes, choices by number, places on a grid, and windows.

Receives functions and arrays, gives arrays: functions are mapped by `vmap`, windows
computed by NumPy. Next on the walk: `linalg.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.at_once import at_once
from fnx.api.key_arrays import takes_keys
from fnx.api.promote import becomes_native
from fnx.api.vmap import vmap
from fnx.core.array import Array
from fnx.core.trace import Tracer
from fnx.numpy import on_numpy
from fnx.numpy.choices import choose_where, clip
from fnx.numpy.counting import nonzero
from fnx.numpy.creation import arange, asarray, zeros_like
from fnx.numpy.grids import indices, tril_indices, triu_indices
from fnx.numpy.mathematics import mod
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array, axis_index, cast, refuse
from fnx.numpy.reductions import sum
from fnx.numpy.shaping import (
    broadcast_arrays,
    broadcast_to,
    moveaxis,
    ravel,
    reshape,
)
from fnx.numpy.taking import take
from fnx.numpy.ufuncs import equal, less, not_equal
from fnx.numpy.updating import At
from fnx.runtime.array import from_numpy
from fnx.runtime.device_array import beside

s_ = np.s_
index_exp = np.index_exp


# ---------------------------------------------------------------- windows


def _window(name: str, summary: str) -> Any:
    """A window of signal processing, of the default float dtype."""
    function = getattr(np, name)

    def make(M: int) -> Array:
        return beside(function(M).astype(dtypes.default_float()))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"The {summary} window of M points."
    return make


bartlett = _window("bartlett", "triangular")
blackman = _window("blackman", "Blackman")
hamming = _window("hamming", "Hamming")
hanning = _window("hanning", "Hann")


@becomes_native
def kaiser(M: int, beta: ArrayLike) -> Array:
    """The Kaiser window of M points; a larger beta makes it narrower.

    >>> kaiser(3, 0.0).tolist()
    [1.0, 1.0, 1.0]
    """
    width = np.asarray(as_array("kaiser", beta, 1)).item()
    values = np.kaiser(M, width)
    return beside(values.astype(dtypes.default_float()))


# ---------------------------------------------------------------- functions over axes


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **kwargs: Any
) -> Any:
    """A function of vectors applied along an axis, by `vmap` over all others.

    >>> apply_along_axis(lambda row: row.sum(), 1, np.ones((2, 3))).tolist()
    [3.0, 3.0]
    """
    x = as_array("apply_along_axis", arr)
    place = axis_index("apply_along_axis", axis, x.ndim)

    def function(row: Array) -> Any:
        return func1d(row, *args, **kwargs)

    for _ in range(x.ndim - 1):
        function = vmap(function)
    out = function(moveaxis(x, place, -1))
    # The axes of the results stand where the axis was.
    new = range(x.ndim - 1, out.ndim)
    return moveaxis(out, tuple(new), tuple([place + i for i in range(len(new))]))


def fromfunction(
    function: Callable[..., Any],
    shape: Sequence[int],
    *,
    dtype: DTypeLike = float,
    **kwargs: Any,
) -> Any:
    """A function of index arrays, one for each axis of a shape.

    >>> fromfunction(lambda i, j: i + j, (2, 2), dtype=int).tolist()
    [[0, 1], [1, 2]]
    """
    grids = indices(shape, dtypes.as_dtype(dtype))
    return function(*[grids[i] for i in range(len(shape))], **kwargs)  # type: ignore[index]


@becomes_native
def piecewise(
    x: ArrayLike, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any
) -> Array:
    """For each element the function (or value) of the last condition that holds.

    One more function than conditions is for the rest, which is 0 otherwise.

    >>> piecewise(np.array([-1.0, 2.0]), [np.array([True, False])], [0.0, 5.0]).tolist()
    [0.0, 5.0]
    """
    value = as_array("piecewise", x)
    conditions = condlist if isinstance(condlist, list | tuple) else [condlist]
    functions = list(funclist)
    extra = len(functions) - len(conditions)
    if extra not in (0, 1):
        raise errors.ArgumentError(
            f"piecewise: {len(functions)} functions for {len(conditions)} conditions"
        )
    default = functions.pop() if extra else 0

    def of(f: Any) -> Any:
        return f(value, *args, **kw) if callable(f) else f

    result = of(default)
    for condition, function in zip(conditions, functions, strict=True):
        result = choose_where(condition, of(function), result)
    return cast(broadcast_to(as_array("piecewise", result), value.shape), value.dtype)


@becomes_native
def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Vectors of places reshaped so that together they index a grid.

    >>> [i.shape for i in ix_(np.array([0, 1]), np.array([2, 3, 4]))]
    [(2, 1), (1, 3)]
    """
    found = []
    for d, arg in enumerate(args):
        x = as_array("ix_", arg, d)
        places = nonzero(x)[0] if dtypes.is_bool(x.dtype) else x
        sizes = [places.size if i == d else 1 for i in range(len(args))]
        found.append(reshape(places, sizes))
    return tuple(found)


@becomes_native
def choose(a: ArrayLike, choices: Any, out: None = None, mode: str = "raise") -> Array:
    """For each element the choice of that number; all are broadcast.

    Known numbers out of range raise; traced ones give the first choice.

    >>> choose(np.array([1, 0]), [np.array([1, 2]), np.array([3, 4])]).tolist()
    [3, 2]
    """
    if out is not None or mode not in ("raise", "clip", "wrap"):
        raise errors.OptionError(f"choose: {out=} and {mode=} do not go together")
    number, *rows = broadcast_arrays(a, *choices)
    result: Array = rows[0]
    count = len(rows)
    if mode == "wrap":
        number = mod(number, count)
    elif mode == "clip":
        number = clip(number, 0, count - 1)
    elif not isinstance(number, Tracer):
        wrong = np.asarray(number)
        wrong = wrong[(wrong < 0) | (wrong >= count)]
        if wrong.size:
            raise errors.IndexOutOfRange(
                f"choose: {int(wrong.flat[0])} is none of the {count} choices"
            )
    for i, row in enumerate(rows[1:], 1):
        result = choose_where(equal(number, i), row, result)
    return result


@at_once(on_numpy.compress)
@takes_keys(1)
def compress(
    condition: Any,
    a: ArrayLike,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
    out: None = None,
) -> Array:
    """The slices along an axis where a condition holds; it may be shorter.

    The condition is known, or `size` says how many slices there are; those that are
    missing are `fill_value`.

    >>> compress([True, False, True], np.arange(3)).tolist()
    [0, 2]
    """
    refuse("compress", out=out)
    x = as_array("compress", a)
    x, place = (
        (ravel(x), 0) if axis is None else (x, axis_index("compress", axis, x.ndim))
    )
    holds = not_equal(asarray(condition), 0)
    if holds.ndim != 1:
        raise errors.ShapeError(f"compress: a vector of truths, got {holds.type}")
    if holds.size > x.shape[place]:
        beyond, holds = holds[x.shape[place] :], holds[: x.shape[place]]
        if size is None and np.asarray(beyond).any():
            raise errors.IndexOutOfRange(
                f"compress: the condition holds beyond the end of axis {place} of "
                f"{x.type}"
            )
    (places,) = nonzero(holds, size=size)
    found = take(x, places, place, mode="clip")
    if size is None:
        return found
    count = sum(holds, dtype=dtypes.default_int())
    there = reshape(less(arange(size), count), _thin(place, size, x.ndim))
    return cast(choose_where(there, found, fill_value), x.dtype)


@at_once(on_numpy.extract)
@takes_keys(1)
def extract(
    condition: ArrayLike,
    arr: ArrayLike,
    *,
    size: int | None = None,
    fill_value: ArrayLike = 0,
) -> Array:
    """The elements where a condition holds, as a vector; see `compress`.

    >>> extract(np.array([True, False, True]), np.arange(3)).tolist()
    [0, 2]
    """
    return compress(ravel(condition), arr, size=size, fill_value=fill_value)


@becomes_native
def put_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
    inplace: bool = True,
    *,
    mode: str | None = None,
) -> Array:
    """A new array with values at places of an axis that differ along the others.

    Arrays never change: `inplace=True`, the default as in JAX, raises. `mode` is that
    of `x.at[...]`.

    >>> put_along_axis(
    ...     np.zeros((2, 2)), np.array([[1], [0]]), 5, 1, inplace=False
    ... ).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    if inplace:
        raise errors.OptionError(
            "put_along_axis: arrays never change; give inplace=False and use the result"
        )
    x = as_array("put_along_axis", arr)
    if axis is None:
        flat = put_along_axis(ravel(x), indices, values, 0, False, mode=mode)
        return reshape(flat, x.shape)
    place = axis_index("put_along_axis", axis, x.ndim)
    places = as_array("put_along_axis", indices, 1)
    grid = [
        places if d == place else reshape(from_numpy(np.arange(n)), _thin(d, n, x.ndim))
        for d, n in enumerate(x.shape)
    ]
    return At(x)[tuple(grid)].set(values, mode=mode)


def _thin(axis: int, size: int, ndim: int) -> tuple[int, ...]:
    return tuple([size if i == axis else 1 for i in range(ndim)])


def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """`tril_indices` of the shape of a matrix."""
    n, m = as_array("tril_indices_from", arr).shape
    return tril_indices(n, k, m)


def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """`triu_indices` of the shape of a matrix."""
    n, m = as_array("triu_indices_from", arr).shape
    return triu_indices(n, k, m)


@becomes_native
@takes_keys(0)
def resize(a: ArrayLike, new_shape: Any) -> Array:
    """The elements repeated as often as a new shape needs; zeros where there are none.

    >>> resize(np.array([1, 2]), (3,)).tolist()
    [1, 2, 1]
    """
    x = ravel(a)
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    size = int(np.prod(shape))
    if not x.size:
        return zeros_like(x, shape=shape)
    places = from_numpy((np.arange(size) % x.size).astype(np.int32))
    return reshape(take(x, places, 0), shape)


class vectorize:
    """A function of scalars (or of arrays, by a signature) applied to whole arrays.

    Arguments are broadcast and mapped over by `vmap`. `signature` such as "(n),(n)->()"
    names the axes that the function itself takes; `excluded` arguments are passed on.

    >>> vectorize(lambda x, y: x * y)(np.arange(3), 2).tolist()
    [0, 2, 4]
    """

    def __init__(
        self,
        pyfunc: Callable[..., Any],
        *,
        excluded: Any = frozenset(),
        signature: str | None = None,
    ) -> None:
        self.function = pyfunc
        self.excluded = frozenset(excluded)
        self.ranks = None if signature is None else _ranks(signature)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The results, with the broadcast axes in front."""
        used = [i for i in range(len(args)) if i not in self.excluded]
        arrays = [as_array("vectorize", args[i], i) for i in used]
        ranks = self.ranks or [0] * len(arrays)
        if len(ranks) != len(arrays):
            raise errors.ArgumentError(
                f"vectorize: {len(arrays)} arguments for a signature of {len(ranks)}"
            )
        outer = [x.shape[: x.ndim - r] for x, r in zip(arrays, ranks, strict=True)]
        shape = np.broadcast_shapes(*outer)

        def function(*values: Any) -> Any:
            full = list(args)
            for i, value in zip(used, values, strict=True):
                full[i] = value
            return self.function(*full, **options)

        wide = [
            broadcast_to(x, (*shape, *x.shape[x.ndim - r :]))
            for x, r in zip(arrays, ranks, strict=True)
        ]
        for _ in shape:
            function = vmap(function)
        return function(*wide)


def _ranks(signature: str) -> list[int]:
    """The number of axes of each argument in a signature such as "(n,m),()->(m)"."""
    groups = signature.split("->")[0].strip()[1:-1].split("),(")
    return [
        len([name for name in group.split(",") if name.strip()]) for group in groups
    ]
