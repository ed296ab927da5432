"""Other shapes of the same elements: reshape, transpose, broadcast, flip, roll.

Receives an array and what its axes become, gives an array of the same dtype. Axes may
be negative (counted from the end); errors name the function and the type.
Next on the walk: `joining.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.key_arrays import takes_keys
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.core.trace import Tracer
from fnx.numpy import ufuncs
from fnx.numpy.mathematics import remainder
from fnx.numpy.operands import (
    ArrayLike,
    Shape,
    as_array,
    axes_tuple,
    axis_index,
    broadcast,
    cast,
    common_shape,
    shape_tuple,
)
from fnx.ops import shape as ops
from fnx.ops.index import dynamic_slice
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import full, permute, reverse

Axes = int | Sequence[int]


@becomes_native
@takes_keys(0)
def reshape(a: ArrayLike, shape: Any, order: str = "C", *, copy: Any = None) -> Array:
    """The same elements, in row-major order, with another shape; one size may be -1.

    `order="F"` reads and writes them in column-major order.

    >>> reshape(np.arange(6), (2, -1)).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    x = as_array("reshape", a)
    sizes = _resolved(x, shape)
    if order == "F":
        turned = ops.reshape(transpose(x), shape=sizes[::-1])
        return transpose(turned)
    if order not in ("C", "A"):
        raise errors.OptionError(f"reshape: order is 'C', 'F' or 'A', not {order!r}")
    return x if sizes == x.shape else ops.reshape(x, shape=sizes)


def _resolved(x: Array, shape: Any) -> Shape:
    many = shape if isinstance(shape, tuple | list) else (shape,)
    if -1 not in many:
        sizes = shape_tuple("reshape", many)
    else:
        place = list(many).index(-1)
        rest = shape_tuple("reshape", (*many[:place], *many[place + 1 :]))
        known = math.prod(rest)
        size = x.size // known if known else 0
        sizes = (*rest[:place], size, *rest[place:])
    if math.prod(sizes) != x.size:
        raise errors.ShapeError(
            f"reshape: {x.type} has {x.size} elements, which cannot take the shape "
            f"{tuple(many)}"
        )
    return sizes


@becomes_native
@takes_keys(0)
def ravel(a: ArrayLike, order: str = "C") -> Array:
    """All elements in row-major order, along one axis.

    >>> ravel(np.eye(2, dtype="int32"))
    Array([1, 0, 0, 1], dtype=int32)
    """
    return reshape(a, (-1,) if as_array("ravel", a).size else (0,), order)


@becomes_native
@takes_keys(0)
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """The axes in the order `axes`; reversed where it is `None`.

    >>> transpose(np.zeros((2, 3, 4)), (1, 0, 2)).shape
    (3, 2, 4)
    """
    x = as_array("transpose", a)
    if axes is None:
        order = tuple(range(x.ndim))[::-1]
    else:
        order = axes_tuple("transpose", tuple(axes), x.ndim, "axes")
        if len(order) != x.ndim:
            raise errors.AxisError(
                f"transpose: axes={tuple(axes)} must name all {x.ndim} axes of {x.type}"
            )
    return x if order == tuple(range(x.ndim)) else permute(x, dims=order)


@becomes_native
@takes_keys(0)
def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """The same as `transpose`, under the name of the array API standard."""
    return transpose(a, axes)


@becomes_native
@takes_keys(0)
def matrix_transpose(x: ArrayLike, /) -> Array:
    """The last two axes exchanged.

    >>> matrix_transpose(np.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    array = as_array("matrix_transpose", x)
    if array.ndim < 2:
        raise errors.ShapeError(
            f"matrix_transpose takes arrays of rank 2 or more, got {array.type}"
        )
    return swapaxes(array, -1, -2)


@becomes_native
@takes_keys(0)
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Two axes exchanged.

    >>> swapaxes(np.zeros((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = as_array("swapaxes", a)
    i = axis_index("swapaxes", axis1, x.ndim, "axis1")
    j = axis_index("swapaxes", axis2, x.ndim, "axis2")
    order = list(range(x.ndim))
    order[i], order[j] = j, i
    return transpose(x, order)


@becomes_native
@takes_keys(0)
def moveaxis(a: ArrayLike, source: Axes, destination: Axes) -> Array:
    """Axes moved to other places; the rest keep their order.

    >>> moveaxis(np.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = as_array("moveaxis", a)
    old = axes_tuple("moveaxis", source, x.ndim, "source")
    new = axes_tuple("moveaxis", destination, x.ndim, "destination")
    if len(old) != len(new):
        raise errors.AxisError(
            f"moveaxis: source={source} and destination={destination} have different "
            "lengths"
        )
    order = [i for i in range(x.ndim) if i not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return transpose(x, order)


@becomes_native
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """One axis rolled back until it lies before place `start`; see `moveaxis`."""
    x = as_array("rollaxis", a)
    place = axis_index("rollaxis", axis, x.ndim)
    start = axis_index("rollaxis", start, x.ndim + 1, "start")
    return moveaxis(x, place, start - 1 if place < start else start)


@becomes_native
@takes_keys(0)
def expand_dims(a: ArrayLike, axis: Axes) -> Array:
    """New axes of size 1 at the given places of the result.

    >>> expand_dims(np.zeros(3), (0, 2)).shape
    (1, 3, 1)
    """
    x = as_array("expand_dims", a)
    count = len(axis) if isinstance(axis, Sequence) else 1
    new = axes_tuple("expand_dims", axis, x.ndim + count)
    sizes = iter(x.shape)
    shape = [1 if i in new else next(sizes) for i in range(x.ndim + count)]
    return ops.reshape(x, shape=tuple(shape)) if new else x


@becomes_native
@takes_keys(0)
def squeeze(a: ArrayLike, axis: Axes | None = None) -> Array:
    """The axes of size 1 removed: the given ones, or all.

    >>> squeeze(np.zeros((1, 3, 1)), 0).shape
    (3, 1)
    """
    x = as_array("squeeze", a)
    if axis is None:
        gone = tuple([i for i, n in enumerate(x.shape) if n == 1])
    else:
        gone = axes_tuple("squeeze", axis, x.ndim)
    for i in gone:
        if x.shape[i] != 1:
            raise errors.ShapeError(
                f"squeeze: axis {i} of {x.type} has size {x.shape[i]}, not 1"
            )
    shape = [n for i, n in enumerate(x.shape) if i not in gone]
    return ops.reshape(x, shape=tuple(shape)) if gone else x


@becomes_native
@takes_keys(0)
def broadcast_to(array: ArrayLike, shape: Any) -> Array:
    """The array repeated to a shape; axes of size 1 and missing leading axes repeat.

    >>> broadcast_to(np.arange(2), (2, 2)).tolist()
    [[0, 1], [0, 1]]
    """
    x = as_array("broadcast_to", array)
    wanted = shape_tuple("broadcast_to", shape)
    tail = wanted[len(wanted) - x.ndim :]
    fits = x.ndim <= len(wanted) and all(
        n in (1, m) for n, m in zip(x.shape, tail, strict=True)
    )
    if not fits:
        raise errors.ShapeError(
            f"broadcast_to: {x.type} cannot be broadcast to the shape {wanted}"
        )
    return broadcast(x, wanted)


@becomes_native
@takes_keys()
def broadcast_arrays(*args: ArrayLike) -> list[Array]:
    """The arrays, each repeated to their common shape.

    >>> [x.shape for x in broadcast_arrays(np.zeros((2, 1)), np.zeros(3))]
    [(2, 3), (2, 3)]
    """
    arrays = [as_array("broadcast_arrays", x, i) for i, x in enumerate(args)]
    shape = common_shape("broadcast_arrays", arrays)
    return [broadcast(x, shape) for x in arrays]


def broadcast_shapes(*shapes: Any) -> Shape:
    """The shape that arrays of these shapes are broadcast to.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    many = [shape_tuple("broadcast_shapes", shape) for shape in shapes]
    try:
        return np.broadcast_shapes(*many)
    except ValueError:
        shown = " and ".join(map(str, many))
        raise errors.ShapeError(
            f"broadcast_shapes: {shown} cannot be broadcast"
        ) from None


@becomes_native
@takes_keys()
def atleast_1d(*arys: ArrayLike) -> Any:
    """The arrays with at least one axis; one array alone is returned as it is."""
    return _each(arys, "atleast_1d", lambda x: x if x.ndim else reshape(x, (1,)))


@becomes_native
@takes_keys()
def atleast_2d(*arys: ArrayLike) -> Any:
    """The arrays with at least two axes; a vector becomes a row.

    >>> atleast_2d(np.zeros(3)).shape
    (1, 3)
    """
    return _each(arys, "atleast_2d", _matrix)


@becomes_native
@takes_keys()
def atleast_3d(*arys: ArrayLike) -> Any:
    """The arrays with at least three axes; a vector lies along the middle one."""
    return _each(arys, "atleast_3d", _cube)


def _each(arrays: Sequence[Any], name: str, function: Any) -> Any:
    found = [function(as_array(name, x, i)) for i, x in enumerate(arrays)]
    return found[0] if len(found) == 1 else found


def _matrix(x: Array) -> Array:
    return reshape(x, (1, x.size)) if x.ndim < 2 else x


def _cube(x: Array) -> Array:
    if x.ndim < 2:
        return reshape(x, (1, x.size, 1))
    return expand_dims(x, 2) if x.ndim == 2 else x


# ---------------------------------------------------------------- order along an axis


@becomes_native
@takes_keys(0)
def flip(m: ArrayLike, axis: Axes | None = None) -> Array:
    """The elements in opposite order along the given axes, or all of them.

    >>> flip(np.arange(3, dtype="int32"))
    Array([2, 1, 0], dtype=int32)
    """
    x = as_array("flip", m)
    axes = axes_tuple("flip", axis, x.ndim)
    return reverse(x, axes=axes) if axes else x


@becomes_native
@takes_keys(0)
def fliplr(m: ArrayLike) -> Array:
    """The columns in opposite order: `flip` along axis 1."""
    return flip(m, 1)


@becomes_native
@takes_keys(0)
def flipud(m: ArrayLike) -> Array:
    """The rows in opposite order: `flip` along axis 0."""
    return flip(m, 0)


@becomes_native
@takes_keys(0)
def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """The array turned by k quarter turns, from the first axis towards the second.

    >>> rot90(np.array([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    x = as_array("rot90", m)
    first, second = axes_tuple("rot90", axes, x.ndim, "axes")
    match k % 4:
        case 0:
            return x
        case 1:
            return swapaxes(flip(x, second), first, second)
        case 2:
            return flip(x, (first, second))
        case _:
            return flip(swapaxes(x, first, second), second)


@becomes_native
@takes_keys(0)
def roll(a: ArrayLike, shift: Any, axis: Axes | None = None) -> Array:
    """The elements moved along axes; those pushed out come in at the other end.

    Shifts and axes are numbers or several of them, which are broadcast; an axis that is
    named twice moves twice. Without an axis the array is rolled as if it had one. The
    shift may be an array, also a traced one.

    >>> roll(np.arange(4, dtype="int32"), 1)
    Array([3, 0, 1, 2], dtype=int32)
    """
    x = as_array("roll", a)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    axes = list(axis) if isinstance(axis, Sequence) else [axis]
    shifts = _shifts(shift)
    if not axes or not shifts:
        return x
    count = max(len(axes), len(shifts))
    for name, given in (("shift", shifts), ("axis", axes)):
        if len(given) not in (1, count):
            raise errors.ShapeError(
                f"roll: {name} has {len(given)} entries, where there are {count}"
            )
    for amount, place in zip(
        shifts * (count // len(shifts)), axes * (count // len(axes)), strict=True
    ):
        x = _rolled(x, amount, axis_index("roll", place, x.ndim))
    return x


def _shifts(shift: Any) -> list[Any]:
    """The numbers in a shift: known ones as they are, traced ones as scalars."""
    if isinstance(shift, tuple | list):
        return [one for part in shift for one in _shifts(part)]
    value = shift if isinstance(shift, Tracer) else np.asarray(shift)
    if value.dtype.kind not in "iub":
        given = as_array("roll", shift, 1).type
        raise errors.DTypeError(f"roll: a shift is an integer, got {given}")
    if not isinstance(value, Tracer):
        return [int(one) for one in np.ravel(value)]
    return [reshape(part_of(ravel(value), 0, i, i + 1), ()) for i in range(value.size)]


def _rolled(x: Array, shift: Any, axis: int) -> Array:
    n = x.shape[axis]
    if not n:
        return x
    if isinstance(shift, Tracer):  # a slice of the array behind itself
        back = ufuncs.negative(cast(shift, dtypes.int32))
        begin = remainder(back, n)
        zero = full((), begin.dtype, 0)
        starts = [begin if i == axis else zero for i in range(x.ndim)]
        return dynamic_slice(concatenate(x, x, axis=axis), *starts, sizes=x.shape)
    cut = -shift % n
    if cut == 0:
        return x
    return concatenate(part_of(x, axis, cut, n), part_of(x, axis, 0, cut), axis=axis)
