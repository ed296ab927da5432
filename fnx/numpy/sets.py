"""Sets, windows, files and functions over axes: what is computed by NumPy or `vmap`.

Sets need known values, since the size of the result depends on them. Receives arrays,
gives arrays. Next on the walk: `linalg.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.vmap import vmap
from fnx.core.array import Array
from fnx.numpy.choices import choose_where, clip
from fnx.numpy.counting import nonzero
from fnx.numpy.creation import array
from fnx.numpy.grids import indices, tril_indices, triu_indices
from fnx.numpy.mathematics import mod
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array, axis_index, cast
from fnx.numpy.shaping import (
    broadcast_arrays,
    broadcast_to,
    moveaxis,
    ravel,
    reshape,
)
from fnx.numpy.taking import take
from fnx.numpy.ufuncs import equal
from fnx.numpy.updating import At
from fnx.runtime.array import from_numpy
from fnx.runtime.device_array import beside

s_ = np.s_
index_exp = np.index_exp


def _set_function(name: str, summary: str, example: str) -> Any:
    """A function of two sets, computed by NumPy from known values."""
    function = getattr(np, name)

    def compute(ar1: ArrayLike, ar2: ArrayLike) -> Array:
        sides = [_known(name, x, i) for i, x in enumerate((ar1, ar2))]
        return beside(np.array(function(*sides)), ar1, ar2)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = (
        f"{summary}, sorted; the values must be known.\n\n"
        f"    >>> {name}(np.array([1, 2]), np.array([2, 3])).tolist()\n"
        f"    {example}\n    "
    )
    return compute


def _known(function: str, x: ArrayLike, position: int) -> np.ndarray:
    try:
        return np.asarray(as_array(function, x, position))
    except errors.TracerValueError as error:
        raise errors.TracerValueError(
            f"{function}: the size of the result depends on the values: {error}"
        ) from None


union1d = _set_function("union1d", "What is in one of both", "[1, 2, 3]")
intersect1d = _set_function("intersect1d", "What is in both", "[2]")
setdiff1d = _set_function("setdiff1d", "What is in the first only", "[1]")
setxor1d = _set_function("setxor1d", "What is in one only", "[1, 3]")


# ---------------------------------------------------------------- windows and files


def _window(name: str, summary: str) -> Any:
    """A window of signal processing, of the default float dtype."""
    function = getattr(np, name)

    def make(M: int, *shape: float) -> Array:
        return beside(function(M, *shape).astype(dtypes.default_float()))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"The {summary} window of M points."
    return make


bartlett = _window("bartlett", "triangular")
blackman = _window("blackman", "Blackman")
hamming = _window("hamming", "Hamming")
hanning = _window("hanning", "Hann")
kaiser = _window("kaiser", "Kaiser")


def load(file: Any, **options: Any) -> Any:
    """The array that `save` wrote; of a file with several, NumPy's mapping of them."""
    found = np.load(file, **options)
    return array(found) if isinstance(found, np.ndarray) else found


def save(file: Any, arr: ArrayLike) -> None:
    """Writes an array in NumPy's format."""
    np.save(file, np.asarray(as_array("save", arr)))


def savez(file: Any, *arrays: ArrayLike, **named: ArrayLike) -> None:
    """Writes several arrays into one file in NumPy's format."""
    rows = [np.asarray(as_array("savez", x, i)) for i, x in enumerate(arrays)]
    named_rows = {name: np.asarray(as_array("savez", x)) for name, x in named.items()}
    np.savez(file, *rows, **named_rows)  # type: ignore[arg-type]


def frombuffer(
    buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0
) -> Array:
    """The bytes of a buffer as a vector.

    >>> frombuffer(b"abc", "uint8").tolist()
    [97, 98, 99]
    """
    return array(np.frombuffer(buffer, dtypes.as_dtype(dtype), count, offset))


# ---------------------------------------------------------------- functions over axes


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: ArrayLike, *args: Any, **options: Any
) -> Any:
    """A function of vectors applied along an axis, by `vmap` over all others.

    >>> apply_along_axis(lambda row: row.sum(), 1, np.ones((2, 3))).tolist()
    [3.0, 3.0]
    """
    x = as_array("apply_along_axis", arr)
    place = axis_index("apply_along_axis", axis, x.ndim)

    def function(row: Array) -> Any:
        return func1d(row, *args, **options)

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
    **kw: Any,
) -> Any:
    """A function of index arrays, one for each axis of a shape.

    >>> fromfunction(lambda i, j: i + j, (2, 2), dtype=int).tolist()
    [[0, 1], [1, 2]]
    """
    grids = indices(shape, dtypes.as_dtype(dtype))
    return function(*[grids[i] for i in range(len(shape))], **kw)  # type: ignore[index]


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


def choose(a: ArrayLike, choices: Any, out: None = None, mode: str = "raise") -> Array:
    """For each element the choice of that number; all are broadcast.

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
    for i, row in enumerate(rows[1:], 1):
        result = choose_where(equal(number, i), row, result)
    return result


def compress(condition: Any, a: ArrayLike, axis: int | None = None) -> Array:
    """The slices along an axis where a known condition holds.

    >>> compress([True, False, True], np.arange(3)).tolist()
    [0, 2]
    """
    x = as_array("compress", a)
    if axis is None:
        x, axis = ravel(x), 0
    kept = np.flatnonzero(np.asarray(condition)).astype(np.int32)
    return take(x, from_numpy(kept), axis)


def extract(condition: ArrayLike, arr: ArrayLike) -> Array:
    """The elements where a known condition holds, as a vector."""
    return compress(np.ravel(_known("extract", condition, 0)), arr)


def put_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
    inplace: bool = False,
) -> Array:
    """A new array with values at places of an axis that differ along the others.

    NumPy changes its argument instead: `inplace=True` raises.

    >>> put_along_axis(np.zeros((2, 2)), np.array([[1], [0]]), 5, 1).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    if inplace:
        raise errors.OptionError("put_along_axis: arrays never change; use the result")
    x = as_array("put_along_axis", arr)
    if axis is None:
        return reshape(put_along_axis(ravel(x), indices, values, 0), x.shape)
    place = axis_index("put_along_axis", axis, x.ndim)
    places = as_array("put_along_axis", indices, 1)
    grid = [
        places if d == place else reshape(from_numpy(np.arange(n)), _thin(d, n, x.ndim))
        for d, n in enumerate(x.shape)
    ]
    return At(x)[tuple(grid)].set(values)


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


def resize(a: ArrayLike, new_shape: Any) -> Array:
    """The elements repeated as often as a new shape needs.

    >>> resize(np.array([1, 2]), (3,)).tolist()
    [1, 2, 1]
    """
    x = ravel(a)
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    size = int(np.prod(shape))
    if not x.size:
        raise errors.ShapeError("resize: there are no elements to repeat")
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
