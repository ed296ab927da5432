"""Making arrays: from Python and NumPy values, filled, counted.

Receives values, shapes and dtypes, gives arrays. Explicit dtypes are honoured without
any flag: NumPy's float64 stays float64. Python scalars become the default dtypes
(32 bit unless `fnx.default_dtypes(64)`). Next on the walk: `grids.py`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.key_arrays import is_key, takes_keys
from fnx.api.promote import becomes_native
from fnx.config import busy
from fnx.core.array import Array
from fnx.core.program import Literal
from fnx.core.trace import constant, tracing
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    Shape,
    as_array,
    broadcast,
    cast,
    is_scalar,
    literal,
    pair,
    shape_tuple,
)
from fnx.ops.arithmetic import add, mul, sub
from fnx.ops.pieces import concatenate
from fnx.ops.shape import broadcast_in_dim, iota, reshape
from fnx.runtime import array as making
from fnx.runtime.array import ConcreteArray
from fnx.runtime.device import CPU, Device, defaulting, named, others, placed
from fnx.runtime.device_array import beside, made_at, on_default, put, taken

if TYPE_CHECKING:
    from fnx.runtime.sharding import Sharding

# ---------------------------------------------------------------- from values


@takes_keys()
def array(
    object: Any,
    dtype: DTypeLike = None,
    copy: bool = True,
    order: str | None = "K",
    ndmin: int = 0,
    *,
    device: Device | Sharding | None = None,
) -> Array:
    """An array of the elements of nested lists, a NumPy array, an array or a scalar.

    Shape and dtype are those of the value: NumPy dtypes are kept, Python numbers take
    the defaults (a scalar alone is weakly typed). Raises `DTypeError` for elements that
    are no numbers, `ShapeError` for ragged lists. Memory is always row-major and never
    shared with a NumPy array, so `copy` and `order` make no difference there. An array
    of another library on a GPU (`__cuda_array_interface__`, DLPack) is copied there, or
    shared with `copy=False`. The result is on the default device, or on `device`,
    which may be a sharding.

    >>> array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    >>> array(np.arange(2.0)).dtype
    dtype('float64')
    """
    if order not in ("K", "A", "C", None):
        raise errors.OptionError(f"array: memory is row-major, order={order!r} is not")
    if device is not None:
        make = functools.partial(array, object, dtype, copy, order, ndmin)
        return made_on(device, "array", make, new=False)
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    kind = object.__class__
    if kind is np.ndarray:  # the usual kinds cost no more than this
        found: Array = making.own(object)
        if wanted is not None:
            found = cast(found, wanted)
    elif kind is list or kind is tuple:
        found = _from_list(object, wanted)
    else:
        found = _from_other(object, wanted, copy)
    if busy:
        found = _on_default(found)
    if ndmin and ndmin > found.ndim:
        return reshape(found, shape=(1,) * (ndmin - found.ndim) + found.shape)
    return found


@takes_keys()
def asarray(
    a: Any,
    dtype: DTypeLike = None,
    order: str | None = None,
    *,
    copy: bool | None = None,
    device: Device | Sharding | None = None,
) -> Array:
    """The value as an array, itself if it is one of that dtype; else as `array`.

    An array of another library on a GPU is not copied, unless `copy` is true.

    >>> asarray(1.5)
    Array(1.5, dtype=float32, weak_type=True)
    """
    if device is not None:
        make = functools.partial(asarray, a, dtype, order, copy=copy)
        return made_on(device, "asarray", make, new=False)
    if isinstance(a, Array):
        same = a if dtype is None else array(a, dtype, order=order)
        if copy is False and same.dtype != a.dtype:
            raise errors.OptionError(
                f"asarray: copy=False, but {a.type} must be copied to be {same.dtype}"
            )
        return same
    found = _shared(a, None if dtype is None else dtypes.as_dtype(dtype), bool(copy))
    if found is not None:
        return found
    if copy is False:
        raise errors.OptionError(
            f"asarray: copy=False, but {type(a).__name__} must be copied: it can change"
        )
    return array(a, dtype, True, order)


def copy(a: ArrayLike, order: str | None = None) -> Array:
    """The array itself: arrays never change, so no copy is ever needed."""
    return asarray(a, order=order)


@becomes_native
def astype(
    x: ArrayLike,
    dtype: DTypeLike,
    /,
    *,
    copy: bool = False,
    device: Device | Sharding | None = None,
) -> Array:
    """The array converted to a dtype (`None`: the default float), on `device` if given.

    Floats become integers towards zero, saturating at the ends, NaN gives 0; complex
    ones lose their imaginary part; anything but 0 is True.

    >>> astype(array([1.7, -1.7]), "int8")
    Array([ 1, -1], dtype=int8)
    """
    if device is not None:
        make = functools.partial(astype, x, dtype)
        return made_on(device, "astype", make, new=False)
    wanted = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    return cast(as_array("astype", x), wanted)


def from_dlpack(
    x: Any, /, *, device: Device | Sharding | None = None, copy: bool | None = None
) -> Array:
    """An array that shares the memory of another library's array, where that is.

    With `copy=True` it has memory of its own; `device` puts it elsewhere, for which
    `copy=False` raises.

    It is committed to its device, if that is a GPU. Nobody may write to the memory
    afterwards. Raises `DeviceError` for an array on a GPU that fnx cannot use.

    >>> from_dlpack(np.arange(3, dtype="int32"))
    Array([0, 1, 2], dtype=int32)
    """
    if device is not None:
        here: Any = from_dlpack(x)
        if copy is False and here.devices() != {named(device, "from_dlpack")}:
            raise errors.OptionError(
                f"from_dlpack: copy=False, but the array must be copied to {device}"
            )
        make = functools.partial(from_dlpack, x, copy=copy)
        return made_on(device, "from_dlpack", make, new=False)
    if isinstance(x, Array):
        return x
    found = taken(x)
    if found is not None:
        return found.copied() if copy else found
    data = np.from_dlpack(x)
    return making.own(data) if copy else making.from_numpy(data)


def made_on(
    device: Any, function: str, make: Callable[[], Any], new: bool = True
) -> Any:
    """What a function makes, on a device and committed to it, or as a sharding says.

    `new` says that nobody else can have the array that it gives. Raises
    `ArgumentError` for what is no device, and while tracing (but for shardings, which
    are constraints there).
    """
    if not isinstance(device, Device):
        # lazy: few have several devices
        from fnx.api.device import device_put
        from fnx.runtime.sharding import PartitionSpec, Sharding  # lazy: see above

        if isinstance(device, Sharding | PartitionSpec):
            return device_put(make(), device)
    where = named(device, function, names=False)
    if tracing():
        raise errors.ArgumentError(
            errors.explain(
                f"{function}(device={where}) in a function that is traced",
                "a transformed function runs as a whole, where its arguments are",
                "make the array outside, or leave the device out",
            )
        )
    with defaulting(where):
        found = make()
    placement = placed(where, where is not CPU or others())
    return made_at(found, placement) if new else put(found, placement)


# NumPy counts in int64, beyond which it goes on in floats.
_LARGEST = 2**63 - 1
# What is surely no array on a device.
_HERE = (np.ndarray, np.generic, list, tuple, bool, int, float, complex)


def _shared(value: Any, dtype: np.dtype[Any] | None, copied: bool) -> Array | None:
    """An array on the memory of another library's array, if that is on a device."""
    found = None if isinstance(value, _HERE) else taken(value)
    if found is None:
        return None
    own = found.copied() if copied else found
    return own if dtype is None else cast(own, dtype)


def _on_default(x: Array) -> Array:
    return on_default(x) if x.__class__ is ConcreteArray else x


def _from_other(
    value: Any, dtype: np.dtype[Any] | None, copied: bool | None = True
) -> Array:
    """An array of what is neither a list nor exactly a NumPy array."""
    if isinstance(value, Array):
        return value if dtype is None else cast(value, dtype)
    if is_scalar(value):
        number = Literal(value) if dtype is None else literal(value, dtype, False)
        return constant(number)
    if isinstance(value, list | tuple):
        return _from_list(value, dtype)
    if value is None:
        raise errors.ArgumentError("array: None is no value of an array")
    shared = _shared(value, dtype, bool(copied))
    if shared is not None:
        return shared
    data = value if isinstance(value, np.ndarray | np.generic) else np.asarray(value)
    owned = making.own(data)
    return owned if dtype is None else cast(owned, dtype)


def _from_list(value: Sequence[Any], dtype: np.dtype[Any] | None) -> Array:
    if dtype is None:
        dtype = _common_dtype(value)
    if busy and tracing() and _has_arrays(value):
        return _stacked([array(item, dtype) for item in value])
    try:
        return making.from_numpy(np.array(value, dtype))
    except ValueError as error:
        raise errors.ShapeError(
            f"array: the nested lists are ragged: {error}"
        ) from None


def _has_arrays(value: Sequence[Any]) -> bool:
    return any(isinstance(leaf, Array) for leaf in _leaves(value))


def _common_dtype(value: Sequence[Any]) -> np.dtype[Any]:
    """The dtype that numbers in nested lists have together."""
    flat, kinds = value, {*map(type, value)}
    while len(kinds) == 1:  # the usual case: numbers of one kind, equally deep
        (kind,) = kinds
        if kind in _SCALARS:
            return dtypes.python_dtype(kind)
        if kind is not list and kind is not tuple:
            break
        flat = list(itertools.chain.from_iterable(flat))
        kinds = {*map(type, flat)}
    leaves = {leaf.__class__: leaf for leaf in _leaves(value)}
    if not leaves:
        return dtypes.default_float()
    if all(is_scalar(leaf) for leaf in leaves.values()):
        pairs = {pair(leaf) for leaf in leaves.values()}
    else:
        pairs = {_leaf_pair(leaf) for leaf in _leaves(value)}
    return dtypes.promote(*pairs)[0]


_SCALARS = frozenset({bool, int, float, complex})


def _leaf_pair(leaf: Any) -> tuple[np.dtype[Any], bool]:
    if isinstance(leaf, Array) or is_scalar(leaf):
        return pair(leaf)
    return dtypes.as_dtype(np.asarray(leaf).dtype), False


def _leaves(value: Sequence[Any]) -> Iterator[Any]:
    """The innermost items of nested lists."""
    for item in value:
        if isinstance(item, list | tuple):
            yield from _leaves(item)
        else:
            yield item


def _stacked(parts: Sequence[Array]) -> Array:
    shape = parts[0].shape
    if any(part.shape != shape for part in parts):
        types = ", ".join(str(part.type) for part in parts)
        raise errors.ShapeError(f"array: the nested lists are ragged: {types}")
    rows = [reshape(part, shape=(1, *shape)) for part in parts]
    return concatenate(*rows, axis=0)


# ---------------------------------------------------------------- filled


@becomes_native
@takes_keys(1)
def full(
    shape: Any,
    fill_value: ArrayLike,
    dtype: DTypeLike = None,
    *,
    device: Device | Sharding | None = None,
) -> Array:
    """An array of that shape with all elements equal to `fill_value`.

    The fill value may be an array that is broadcast to the shape; the dtype is its own
    unless given.

    >>> full((2,), 7)
    Array([7, 7], dtype=int32, weak_type=True)
    """
    if device is not None:
        return made_on(device, "full", lambda: full(shape, fill_value, dtype))
    return _filled("full", shape_tuple("full", shape), fill_value, dtype)


@becomes_native
def zeros(
    shape: Any, dtype: DTypeLike = None, *, device: Device | Sharding | None = None
) -> Array:
    """Zeros of that shape, of the default float dtype unless given.

    >>> zeros((2, 2), "int8")
    Array([[0, 0],
           [0, 0]], dtype=int8)
    """
    if device is not None:
        return made_on(device, "zeros", lambda: zeros(shape, dtype))
    return _constants("zeros", shape, dtype, 0)


@becomes_native
def ones(
    shape: Any, dtype: DTypeLike = None, *, device: Device | Sharding | None = None
) -> Array:
    """Ones of that shape, of the default float dtype unless given.

    >>> ones(3)
    Array([1., 1., 1.], dtype=float32)
    """
    if device is not None:
        return made_on(device, "ones", lambda: ones(shape, dtype))
    return _constants("ones", shape, dtype, 1)


@becomes_native
def empty(
    shape: Any, dtype: DTypeLike = None, *, device: Device | Sharding | None = None
) -> Array:
    """The same as `zeros`: nothing could be written into an empty array."""
    if device is not None:
        return made_on(device, "empty", lambda: empty(shape, dtype))
    return _constants("empty", shape, dtype, 0)


@becomes_native
@takes_keys()
def zeros_like(
    a: Any,
    dtype: DTypeLike = None,
    shape: Any = None,
    *,
    device: Device | Sharding | None = None,
) -> Array:
    """Zeros of the shape and dtype of another array, unless given.

    >>> zeros_like(array([1, 2]))
    Array([0, 0], dtype=int32)
    """
    return _alike("zeros_like", a, 0, dtype, shape, device)


@becomes_native
@takes_keys()
def ones_like(
    a: Any,
    dtype: DTypeLike = None,
    shape: Any = None,
    *,
    device: Device | Sharding | None = None,
) -> Array:
    """Ones of the shape and dtype of another array, unless given.

    >>> ones_like(array([1, 2]))
    Array([1, 1], dtype=int32)
    """
    return _alike("ones_like", a, 1, dtype, shape, device)


@becomes_native
@takes_keys()
def empty_like(
    prototype: Any,
    dtype: DTypeLike = None,
    shape: Any = None,
    *,
    device: Device | Sharding | None = None,
) -> Array:
    """The same as `zeros_like`."""
    return _alike("empty_like", prototype, 0, dtype, shape, device)


@becomes_native
@takes_keys(0, 1)
def full_like(
    a: Any,
    fill_value: ArrayLike,
    dtype: DTypeLike = None,
    shape: Any = None,
    *,
    device: Device | Sharding | None = None,
) -> Array:
    """An array of the shape and dtype of another one, unless given, all `fill_value`.

    >>> full_like(ones(2), 3)
    Array([3., 3.], dtype=float32)
    """
    return _alike("full_like", a, fill_value, dtype, shape, device)


def _constants(function: str, shape: Any, dtype: DTypeLike, value: int) -> Array:
    found = dtypes.default_float() if dtype is None else dtypes.as_dtype(dtype)
    sizes = shape_tuple(function, shape)
    if not busy:  # at once: no trace, no other device
        return making.from_numpy(np.full(sizes, value, found))
    return broadcast_in_dim(literal(value, found, False), shape=sizes, dims=())


def _filled(
    function: str, shape: Shape, value: Any, dtype: DTypeLike, weak: bool = False
) -> Array:
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    if is_scalar(value):
        found = Literal(value) if wanted is None else literal(value, wanted, weak)
        return broadcast_in_dim(found, shape=shape, dims=())
    filling = as_array(function, value, 1)
    return broadcast(filling if wanted is None else cast(filling, wanted, weak), shape)


def _alike(
    function: str,
    a: Any,
    value: Any,
    dtype: DTypeLike,
    shape: Any,
    device: Device | Sharding | None,
) -> Array:
    if is_key(a) and dtype is None and is_scalar(value):
        # Each word of the keys is the number.
        sizes = None if shape is None else (*shape_tuple(function, shape), 2)
        return type(a)(_alike(function, a.words, value, None, sizes, device))
    if not (hasattr(a, "shape") and hasattr(a, "dtype")):
        a = as_array(function, a)
    weak = dtype is None and getattr(a, "weak_type", False)
    sizes = tuple(a.shape) if shape is None else shape_tuple(function, shape)
    wanted = a.dtype if dtype is None else dtype
    if device is not None:
        make = functools.partial(_filled, function, sizes, value, wanted, weak)
        return made_on(device, function, make)
    placement = a.placement if isinstance(a, ConcreteArray) else None
    if placement is None or not placement.committed or tracing():
        return _filled(function, sizes, value, wanted, weak)
    with defaulting(placement.device):
        found: Any = _filled(function, sizes, value, wanted, weak)
    return made_at(found, placement)


# ---------------------------------------------------------------- counted


@becomes_native
def arange(
    start: Any,
    stop: Any = None,
    step: Any = None,
    dtype: DTypeLike = None,
    *,
    device: Device | Sharding | None = None,
) -> Array:
    """Evenly spaced values in [start, stop), as Python's range; the bounds are known.

    Integers give the default int, floats the default float; other dtypes are kept.

    >>> arange(2, 8, 2)
    Array([2, 4, 6], dtype=int32)
    """
    if device is not None:
        return made_on(device, "arange", lambda: arange(start, stop, step, dtype))
    bounds = [x for x in (start, stop, step) if x is not None]
    if dtype is None:
        pairs = [pair(as_array("arange", x, i)) for i, x in enumerate(bounds)]
        found = dtypes.promote(*pairs)[0]
    else:
        found = dtypes.as_dtype(dtype)
    values: list[Any] = [x if is_scalar(x) else np.asarray(x)[()] for x in bounds]
    if stop is None:
        values = [0, values[0], *values[1:]]
    if not dtypes.is_integer(found):
        return beside(np.arange(*values).astype(found))
    first, last, stride = [*values, 1][:3]
    if not busy and all(
        value.__class__ is int and abs(value) <= _LARGEST
        for value in (first, last, stride)
    ):
        return making.from_numpy(np.arange(first, last, stride).astype(found))
    size = max(0, -int((first - last) // stride))
    counted = iota(shape=(size,), dtype=found, axis=0)
    if stride < 0 and dtypes.is_unsigned(found):  # which have no negative stride
        return sub(int(first), mul(counted, -int(stride)))
    if stride != 1:
        counted = mul(counted, int(stride))
    return counted if first == 0 else add(counted, int(first))
