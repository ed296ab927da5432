"""Functions of scalars as functions of arrays with reduce, accumulate, at and outer.

Receives a function of scalars and how many it takes and gives; gives a `ufunc`. The
functions of `fnx.numpy` that reduce well have the same methods (`add.reduce`), which
are put there at the end of this file. Next on the walk: `methods.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.numpy import choices, mathematics, reductions, ufuncs
from fnx.numpy.choices import choose_where, truth
from fnx.numpy.counting import where as either
from fnx.numpy.creation import arange, asarray, full
from fnx.numpy.indexing import get
from fnx.numpy.joining import concatenate
from fnx.numpy.mapping import vectorize
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    axes_tuple,
    axis_index,
    broadcast,
    cast,
    refuse,
)
from fnx.numpy.reductions import Axis
from fnx.numpy.shaping import expand_dims, moveaxis, ravel, reshape
from fnx.numpy.updating import At


class ufunc:
    """A function of scalars, applied to the elements of arrays that are broadcast.

    Functions of two arguments with one result can also fold: `reduce`, `accumulate`,
    `reduceat`, `outer`, `at`; `identity` is what a fold begins with, by default the
    first element. `call`, `reduce` and so on replace what this class would do.

    >>> larger = ufunc(lambda x, y: x + 2 * y, 2, 1, name="doubled")
    >>> larger(arange(3), 1).tolist(), larger.reduce(arange(4)).item()
    ([2, 3, 4], 12)
    """

    def __init__(
        self,
        func: Callable[..., Any],
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
        call: Callable[..., Any] | None = None,
        reduce: Callable[..., Any] | None = None,
        accumulate: Callable[..., Any] | None = None,
        at: Callable[..., Any] | None = None,
        reduceat: Callable[..., Any] | None = None,
    ) -> None:
        self.__name__ = name or str(getattr(func, "__name__", "ufunc"))
        self.__doc__ = func.__doc__
        self.nin, self.nout = nin, nout
        self.nargs = nin + nout if nargs is None else nargs
        self.identity = identity
        self._call = call or vectorize(func)
        self._reduce, self._accumulate = reduce, accumulate
        self._at, self._reduceat = at, reduceat

    def __repr__(self) -> str:
        return f"<fnx.numpy.ufunc {self.__name__!r}>"

    def __call__(self, *args: ArrayLike, out: None = None, where: None = None) -> Any:
        """The results for arrays that are broadcast."""
        refuse(self.__name__, out=out, where=where)
        if len(args) != self.nin:
            raise errors.ArgumentError(
                f"{self.__name__} takes {self.nin} arguments, got {len(args)}"
            )
        return self._call(*args)

    def reduce(
        self,
        a: ArrayLike,
        axis: Axis = 0,
        dtype: DTypeLike = None,
        out: None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        """The elements along axes (or all) folded, from the first to the last.

        `where` says which count; `initial`, or else the identity, comes first.
        """
        self._needs_two("reduce")
        if self._reduce is not None:
            return self._reduce(a, axis, dtype, out, keepdims, initial, where)
        refuse(f"{self.__name__}.reduce", out=out)
        x = self._read("reduce", a, dtype)
        axes = axes_tuple("reduce", axis, x.ndim)
        rows = _in_front(x, axes)
        counted = None
        if where is not None:
            counted = _in_front(broadcast(truth("reduce", where), x.shape), axes)
        first = self.identity if initial is None else initial
        if first is None and (counted is not None or not rows.shape[0]):
            raise errors.ArgumentError(
                f"{self.__name__}.reduce: without an identity, `where` and arrays with "
                "no elements need initial=..."
            )
        found = self._folded(rows, counted, first)
        if keepdims:
            found = expand_dims(found, axes)
        return found

    def accumulate(
        self, a: ArrayLike, axis: int = 0, dtype: DTypeLike = None, out: None = None
    ) -> Array:
        """The folds of the elements along an axis up to each place."""
        self._needs_two("accumulate")
        if self._accumulate is not None:
            return self._accumulate(a, axis, dtype, out)
        refuse(f"{self.__name__}.accumulate", out=out)
        x = self._read("accumulate", a, dtype)
        place = axis_index("accumulate", axis, x.ndim)
        rows = moveaxis(x, place, 0)
        if not rows.shape[0]:
            return x

        def step(carry: Array, row: Array) -> tuple[Array, Array]:
            new = cast(self._call(carry, row), carry.dtype)
            return new, new

        start = get(rows, 0)
        rest = _scan(step, start, get(rows, slice(1, None)))[1]
        return moveaxis(concatenate([expand_dims(start, 0), rest]), 0, place)

    def at(
        self,
        a: ArrayLike,
        indices: Any,
        b: ArrayLike | None = None,
        /,
        *,
        inplace: bool = True,
    ) -> Array:
        """The array with the function applied to `a[indices]` (and b), one by one.

        Where an index comes several times, it is applied as often. Arrays never change:
        `inplace=True`, the default as in JAX, raises.
        """
        if inplace:
            raise errors.OptionError(
                f"{self.__name__}.at: arrays never change; give inplace=False"
            )
        if (b is not None) != (self.nin == 2):
            raise errors.ArgumentError(
                f"{self.__name__}.at: a function of {self.nin} takes {self.nin - 1} "
                "values besides the array"
            )
        if self._at is not None:
            return self._at(a, indices, b)
        return self._one_by_one(as_array("at", a), indices, b)

    def reduceat(
        self,
        a: ArrayLike,
        indices: ArrayLike,
        axis: int = 0,
        dtype: DTypeLike = None,
        out: None = None,
    ) -> Array:
        """The folds of the parts of an axis that begin at each index.

        A part goes on to the next index, if that is larger; else it is one element.
        """
        self._needs_two("reduceat")
        if self._reduceat is not None:
            return self._reduceat(a, indices, axis, dtype, out)
        refuse(f"{self.__name__}.reduceat", out=out)
        x = self._read("reduceat", a, dtype)
        place = axis_index("reduceat", axis, x.ndim)
        rows, starts = moveaxis(x, place, 0), as_array("reduceat", indices, 1)
        if starts.ndim != 1 or not dtypes.is_integer(starts.dtype):
            raise errors.ArgumentError(
                f"reduceat: a vector of integers, got {starts.type}"
            )
        size = rows.shape[0]
        ends = concatenate(
            [get(starts, slice(1, None)), full((1,), size, starts.dtype)]
        )
        thin = (starts.size, *(1,) * (rows.ndim - 1))

        def step(carry: Array, number: Array) -> tuple[Array, None]:
            inside = ufuncs.bitwise_and(
                ufuncs.greater(number, starts), ufuncs.less(number, ends)
            )
            new = self._call(carry, expand_dims(get(rows, number), 0))
            return cast(
                choose_where(reshape(inside, thin), new, carry), carry.dtype
            ), None

        return moveaxis(_scan(step, get(rows, starts), arange(size))[0], 0, place)

    def outer(self, A: ArrayLike, B: ArrayLike, /) -> Array:
        """The results for all pairs; the axes of B come after those of A."""
        self._needs_two("outer")
        x, y = as_array("outer", A), as_array("outer", B, 1)
        return self._call(reshape(x, x.shape + (1,) * y.ndim), y)

    def _needs_two(self, method: str) -> None:
        if (self.nin, self.nout) != (2, 1):
            raise errors.ArgumentError(
                f"{self.__name__}.{method}: only functions of two arguments with one "
                f"result have it, this one has {self.nin} and {self.nout}"
            )

    def _read(self, method: str, a: ArrayLike, dtype: DTypeLike) -> Array:
        """The array in the dtype of the result."""
        x = as_array(method, a)
        if dtype is not None:
            return cast(x, dtypes.as_dtype(dtype))
        none = full((0,), 0, x.dtype)
        return cast(x, self._call(none, none).dtype)

    def _folded(self, rows: Array, counted: Array | None, first: Any) -> Array:
        if first is None:
            start, rows = get(rows, 0), get(rows, slice(1, None))
        else:
            # Converted, since -1 stands for all bits of unsigned integers too.
            start = cast(broadcast(asarray(first), rows.shape[1:]), rows.dtype)

        def step(carry: Array, row: Any) -> tuple[Array, None]:
            value, counts = row
            new = self._call(carry, value)
            new = new if counts is None else either(counts, new, carry)
            return cast(new, carry.dtype), None

        return _scan(step, start, (rows, counted))[0]

    def _one_by_one(self, x: Array, indices: Any, b: ArrayLike | None) -> Array:
        places = reshape(arange(x.size), x.shape)
        chosen = get(places, indices)
        values = None
        if b is not None:
            values = ravel(broadcast(as_array("at", b, 2), chosen.shape))

        def step(flat: Array, row: Any) -> tuple[Array, None]:
            number, value = row
            old = get(flat, number)
            new = self._call(old) if value is None else self._call(old, value)
            return At(flat)[number].set(cast(new, flat.dtype)), None

        flat = _scan(step, ravel(x), (ravel(chosen), values))[0]
        return reshape(flat, x.shape)


def frompyfunc(
    func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None
) -> ufunc:
    """A function of scalars as a `ufunc`; it must be one that can be traced.

    >>> frompyfunc(lambda x, y: x * y, 2, 1).outer(arange(2), arange(3)).tolist()
    [[0, 0, 0], [0, 1, 2]]
    """
    return ufunc(func, nin, nout, identity=identity)


def _scan(step: Any, start: Any, rows: Any) -> Any:
    # lazy: loops take long to load, and most programs fold nothing of their own.
    from fnx.api.loops import scan

    return scan(step, start, rows)


def _in_front(x: Array, axes: Sequence[int]) -> Array:
    """The array with some axes flattened into one, the first."""
    moved = moveaxis(x, axes, tuple(range(len(axes))))
    kept = moved.shape[len(axes) :]
    size = 1
    for n in moved.shape[: len(axes)]:
        size *= n
    return reshape(moved, (size, *kept))


# ---------------------------------------------------------------- of fnx.numpy

# The identity of each, and the functions that fold better than a loop does.
_FOLDS: dict[str, tuple[Any, Any, Any, Any]] = {
    "add": (ufuncs.add, 0, reductions.sum, reductions.cumsum),
    "multiply": (ufuncs.multiply, 1, reductions.prod, reductions.cumprod),
    "maximum": (ufuncs.maximum, None, None, None),
    "minimum": (ufuncs.minimum, None, None, None),
    "subtract": (ufuncs.subtract, None, None, None),
    "bitwise_and": (ufuncs.bitwise_and, -1, None, None),
    "bitwise_or": (ufuncs.bitwise_or, 0, None, None),
    "bitwise_xor": (ufuncs.bitwise_xor, 0, None, None),
    "logical_and": (choices.logical_and, True, None, None),
    "logical_or": (choices.logical_or, False, None, None),
    "logical_xor": (choices.logical_xor, False, None, None),
    "logaddexp": (mathematics.logaddexp, -float("inf"), None, None),
    "logaddexp2": (mathematics.logaddexp2, -float("inf"), None, None),
}
_METHODS = ("reduce", "accumulate", "at", "reduceat", "outer")
for _name, (_function, _identity, _reduce, _accumulate) in _FOLDS.items():
    _folding = ufunc(
        _function,
        2,
        1,
        name=_name,
        identity=_identity,
        call=_function,
        reduce=_reduce,
        accumulate=_accumulate,
    )
    for _method in _METHODS:
        setattr(_function, _method, getattr(_folding, _method))
    for _attribute in ("nin", "nout", "nargs", "identity"):
        setattr(_function, _attribute, getattr(_folding, _attribute))
