"""The operators, methods and properties of arrays, installed by importing this.

Receives nothing: `x + y` calls `add(x, y)`, `x.sum()` calls `sum(x)`, `x[i]` reads by
`indexing.py`, `x.at[i]` is in `updating.py`. Arrays never change, so `x[i] = v` raises
with the right way to say it. Next on the walk: `fnx/lax`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.promote import member_becomes_native
from fnx.core.array import Array, install
from fnx.core.trace import Tracer
from fnx.numpy import (
    contractions,
    counting,
    creation,
    grids,
    indexing,
    joining,
    mathematics,
    reductions,
    shaping,
    sorting,
    taking,
    ufuncs,
)
from fnx.numpy.choices import clip
from fnx.numpy.namespace import check_version
from fnx.numpy.operands import cast
from fnx.numpy.updating import At
from fnx.ops.parts import bitcast
from fnx.ops.widths import with_width
from fnx.runtime.array import ConcreteArray

_OPERANDS = (Array, np.ndarray, np.generic, bool, int, float, complex)
_USUAL = frozenset({ConcreteArray, Tracer, bool, int, float})


def _operator(function: Callable[..., Any], swapped: bool = False) -> Any:
    """A binary operator; operands of other kinds are left to their own operators."""

    def method(self: Array, other: Any) -> Any:
        if (
            other.__class__ not in _USUAL  # the usual ones cost no more than this
            and not isinstance(other, _OPERANDS)
            and not hasattr(other, "__jax_array__")
        ):
            if isinstance(other, list | tuple):
                raise errors.ArgumentError(
                    f"an array and a {type(other).__name__} have no operation "
                    f"{function.__name__!r}; convert it with fnx.numpy.array(...)"
                )
            return NotImplemented
        return function(other, self) if swapped else function(self, other)

    return method


_BINARY = {
    "add": ufuncs.add,
    "sub": ufuncs.subtract,
    "mul": ufuncs.multiply,
    "truediv": ufuncs.divide,
    "floordiv": mathematics.floor_divide,
    "mod": mathematics.remainder,
    "divmod": mathematics.divmod,
    "pow": mathematics.power,
    "matmul": contractions.matmul,
    "and": ufuncs.bitwise_and,
    "or": ufuncs.bitwise_or,
    "xor": ufuncs.bitwise_xor,
    "lshift": ufuncs.left_shift,
    "rshift": mathematics.right_shift,
}
_COMPARISONS = {
    "eq": ufuncs.equal,
    "ne": ufuncs.not_equal,
    "lt": ufuncs.less,
    "le": ufuncs.less_equal,
    "gt": ufuncs.greater,
    "ge": ufuncs.greater_equal,
}
_UNARY = {
    "neg": ufuncs.negative,
    "pos": mathematics.positive,
    "abs": mathematics.absolute,
    "invert": ufuncs.bitwise_not,
}


def _operators() -> dict[str, Any]:
    found = {f"__{name}__": _operator(f) for name, f in _BINARY.items()}
    found |= {f"__r{name}__": _operator(f, swapped=True) for name, f in _BINARY.items()}
    found |= {f"__{name}__": _operator(f) for name, f in _COMPARISONS.items()}
    return found | {f"__{name}__": _method(f) for name, f in _UNARY.items()}


def _method(function: Callable[..., Any]) -> Any:
    """A function whose first argument is the array, as a method."""

    def method(self: Array, *args: Any, **options: Any) -> Any:
        return function(self, *args, **options)

    method.__name__ = function.__name__
    method.__doc__ = function.__doc__
    return method


_METHODS: dict[str, Callable[..., Any]] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argpartition": sorting.argpartition,
    "argsort": sorting.argsort,
    "clip": clip,
    "conj": mathematics.conj,
    "conjugate": mathematics.conj,
    "cumprod": reductions.cumprod,
    "cumsum": reductions.cumsum,
    "diagonal": grids.diagonal,
    "dot": contractions.dot,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": counting.nonzero,
    "prod": reductions.prod,
    "ptp": reductions.ptp,
    "ravel": shaping.ravel,
    "repeat": taking.repeat,
    "round": mathematics.round,
    "searchsorted": sorting.searchsorted,
    "sort": sorting.sort,
    "squeeze": shaping.squeeze,
    "std": reductions.std,
    "sum": reductions.sum,
    "swapaxes": shaping.swapaxes,
    "take": taking.take,
    "trace": contractions.trace,
    "var": reductions.var,
    "__round__": mathematics.round,
}


# ---------------------------------------------------------------- methods of their own


def _reshape(self: Array, *shape: Any, order: str = "C", copy: Any = None) -> Array:
    """The same elements with another shape, `(2, -1)` or `2, -1`."""
    return shaping.reshape(self, shape[0] if len(shape) == 1 else shape, order)


def _transpose(self: Array, *axes: Any) -> Array:
    """The axes in another order, reversed by default."""
    if not axes or axes == (None,):
        return shaping.transpose(self)
    return shaping.transpose(
        self, axes[0] if isinstance(axes[0], tuple | list) else axes
    )


def _flatten(self: Array, order: str = "C") -> Array:
    """All elements along one axis."""
    return shaping.ravel(self, order)


def _astype(self: Array, dtype: Any, copy: bool = False) -> Array:
    """The array converted to a dtype; see `fnx.numpy.astype`."""
    return cast(
        self, dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    )


def _copy(self: Array, order: str | None = None) -> Array:
    """The array itself: it never changes."""
    return self


def _view(self: Array, dtype: Any = None) -> Array:
    """The bits of the elements read as another dtype; the last axis may change size."""
    if dtype is None:
        return self
    wanted = dtypes.as_dtype(dtype)
    old, new = self.dtype.itemsize, wanted.itemsize
    if old != new and not self.ndim:
        raise errors.ShapeError(
            f"view: {self.type} has no axis that could take the size of {wanted.name}"
        )
    if {self.dtype.kind, wanted.kind} & set("bc"):  # no numbers of one part
        return creation.array(np.ascontiguousarray(self._numpy()).view(wanted))
    if old == new:
        return bitcast(self, dtype=wanted)
    *rest, size = self.shape
    if old > new:
        return shaping.reshape(with_width(self, wanted), (*rest, size * (old // new)))
    count = new // old
    if size % count:
        raise errors.ShapeError(
            f"view: the last axis of {self.type} has no whole number of {wanted.name}"
        )
    return with_width(shaping.reshape(self, (*rest, size // count, count)), wanted)


def _to_device(self: Array, device: Any, /, *, stream: None = None) -> Array:
    """The array on a device, itself if it is there."""
    if stream is not None:
        raise errors.OptionError(
            "to_device: copies are ordered already, give no stream"
        )
    return creation.asarray(self, device=device)


def _namespace(self: Array, *, api_version: str | None = None) -> Any:
    """The module `fnx.numpy`, as the array API standard asks."""
    check_version(api_version)
    return sys.modules["fnx.numpy"]


def _get(self: Array, index: Any) -> Array:
    return indexing.get(self, index)


def _iterate(self: Array) -> Any:
    if not self.shape:
        raise errors.ArgumentError("an array of rank 0 cannot be iterated over")
    return iter(joining.unstack(self))


def _set(self: Array, index: Any, value: Any) -> None:
    raise errors.ImmutableError(
        "arrays never change, so x[i] = v cannot be; write x = x.at[i].set(v). For "
        "x[i] += v write x = x.at[i].add(v)."
    )


def _contains(self: Array, value: Any) -> bool:
    return bool(reductions.any(ufuncs.equal(self, value)))


def _block_until_ready(self: Array) -> Array:
    """The array itself, once its value is there."""
    return self


def _matrix_transpose(self: Array) -> Array:
    """The last two axes exchanged."""
    return shaping.matrix_transpose(self)


_PROPERTIES: dict[str, Callable[[Array], Any]] = {
    "T": shaping.transpose,
    "mT": _matrix_transpose,
    "real": mathematics.real,
    "imag": mathematics.imag,
    "at": At,
}

_MEMBERS: dict[str, Callable[..., Any]] = {
    **_operators(),
    **{name: _method(function) for name, function in _METHODS.items()},
    "reshape": _reshape,
    "transpose": _transpose,
    "flatten": _flatten,
    "astype": _astype,
    "__getitem__": _get,
}
# Operators that do with a Python number what they do with an array.
_ANY_NUMBER = "add sub mul truediv and or xor lshift eq ne lt le gt ge".split()
# Methods that NumPy computes at once, which no path does faster.
_AT_ONCE = "argmax argmin argsort nonzero searchsorted sort take".split()

install(
    **_MEMBERS,
    **{
        # The function's example calls it by its own name: only the summary fits here.
        name: property(function, doc=(function.__doc__ or "").partition("\n")[0])
        for name, function in _PROPERTIES.items()
    },
    __array_namespace__=_namespace,
    to_device=_to_device,
    copy=_copy,
    view=_view,
    __iter__=_iterate,
    __setitem__=_set,
    __contains__=_contains,
)
for _name, _function in _MEMBERS.items():
    _bare = _name.strip("_")
    _any = _bare in _ANY_NUMBER or _bare.removeprefix("r") in _ANY_NUMBER
    _free = "numbers" if _any else "index" if _name == "__getitem__" else ""
    if _name not in _AT_ONCE:
        member_becomes_native(_name, _function, free=_free)
for _name in ("T", "mT", "real", "imag"):
    member_becomes_native(_name, _PROPERTIES[_name], is_property=True)
# Concrete arrays have their own.
Tracer.block_until_ready = _block_until_ready  # type: ignore[attr-defined]
