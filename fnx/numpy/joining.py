"""Arrays put together and taken apart: concatenate, stack, split, tile, repeat.

Receives sequences of arrays (promoted to one dtype), gives one array; or an array and
where to cut it, gives a list. Next on the walk: `padding.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.key_arrays import takes_keys
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    as_array,
    axis_index,
    promoted,
    refuse,
    shape_tuple,
    typed,
)
from fnx.numpy.shaping import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_to,
    expand_dims,
    ravel,
    reshape,
)
from fnx.ops import pieces
from fnx.ops import shape as ops
from fnx.ops.pieces import part_of

Arrays = Sequence[ArrayLike] | Array | np.ndarray


def _items(function: str, arrays: Arrays) -> list[Any]:
    """The arrays of a sequence, or along the first axis of one."""
    if isinstance(arrays, Array | np.ndarray):
        return list(unstack(arrays))
    if not isinstance(arrays, Sequence) or not arrays:
        raise errors.ArgumentError(
            f"{function} takes a sequence of at least one array, got {arrays!r}"
        )
    return list(arrays)


def _arrays(function: str, arrays: Arrays, dtype: DTypeLike = None) -> list[Array]:
    """The arrays of a sequence in one dtype."""
    values, found, weak = promoted(function, _items(function, arrays))
    wanted = found if dtype is None else dtypes.as_dtype(dtype)
    weak = weak and dtype is None
    return [typed(function, x, wanted, weak) for x in values]


@becomes_native
@takes_keys(0)
def concatenate(arrays: Arrays, axis: int | None = 0, dtype: DTypeLike = None) -> Array:
    """The arrays one after the other along an axis that they have.

    Their other sizes must be equal, their dtypes are promoted (or `dtype`). With
    `axis=None` they are flattened first.

    >>> concatenate([np.arange(2), np.arange(1)]).tolist()
    [0, 1, 0]
    """
    many = _arrays("concatenate", arrays, dtype)
    if axis is None:
        many, axis = [ravel(x) for x in many], 0
    if not many[0].ndim:
        raise errors.ShapeError(
            "concatenate: arrays of rank 0 have no axis to be joined along; use stack"
        )
    place = axis_index("concatenate", axis, many[0].ndim)
    return _joined("concatenate", many, place)


@becomes_native
def concat(arrays: Arrays, /, *, axis: int | None = 0) -> Array:
    """The same as `concatenate`, under the name of the array API standard."""
    return concatenate(arrays, axis)


def _joined(function: str, arrays: Sequence[Array], axis: int) -> Array:
    first = arrays[0]
    for x in arrays[1:]:
        rest = x.shape[:axis] + x.shape[axis + 1 :]
        if x.ndim != first.ndim or rest != first.shape[:axis] + first.shape[axis + 1 :]:
            shown = ", ".join(str(x.type) for x in arrays)
            raise errors.ShapeError(
                f"{function}: the arrays must have equal shapes except along axis "
                f"{axis}, got {shown}"
            )
    return pieces.concatenate(*arrays, axis=axis) if len(arrays) > 1 else first


@becomes_native
@takes_keys(0)
def stack(
    arrays: Arrays, axis: int = 0, out: None = None, dtype: DTypeLike = None
) -> Array:
    """The arrays, of one shape, along a new axis.

    >>> stack([np.zeros(3), np.ones(3)], axis=1).shape
    (3, 2)
    """
    refuse("stack", out=out)
    many = _arrays("stack", arrays, dtype)
    if any(x.shape != many[0].shape for x in many):
        shown = ", ".join(str(x.type) for x in many)
        raise errors.ShapeError(
            f"stack: the arrays must have equal shapes, got {shown}"
        )
    place = axis_index("stack", axis, many[0].ndim + 1)
    return _joined("stack", [expand_dims(x, place) for x in many], place)


@becomes_native
@takes_keys(0)
def vstack(tup: Arrays, dtype: DTypeLike = None) -> Array:
    """The arrays below each other; vectors are rows.

    >>> vstack([np.zeros(3), np.ones((2, 3))]).shape
    (3, 3)
    """
    return concatenate([atleast_2d(x) for x in _items("vstack", tup)], 0, dtype)


@becomes_native
@takes_keys(0)
def hstack(tup: Arrays, dtype: DTypeLike = None) -> Array:
    """The arrays beside each other; vectors end to end."""
    many = [atleast_1d(x) for x in _items("hstack", tup)]
    return concatenate(many, 0 if many[0].ndim == 1 else 1, dtype)


@becomes_native
@takes_keys(0)
def dstack(tup: Arrays, dtype: DTypeLike = None) -> Array:
    """The arrays behind each other, along the third axis."""
    return concatenate([atleast_3d(x) for x in _items("dstack", tup)], 2, dtype)


@becomes_native
@takes_keys(0)
def column_stack(tup: Arrays) -> Array:
    """Vectors as the columns of a matrix; matrices beside each other.

    >>> column_stack([np.zeros(3), np.ones(3)]).shape
    (3, 2)
    """
    many = [as_array("column_stack", x) for x in _items("column_stack", tup)]
    return concatenate([reshape(x, (x.size, 1)) if x.ndim < 2 else x for x in many], 1)


@becomes_native
@takes_keys(0, 1)
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """An array with others at its end, along an axis (flattened without one)."""
    return concatenate([arr, values], axis)  # type: ignore[list-item]


@becomes_native
def block(arrays: Any) -> Array:
    """An array put together from nested lists of blocks, innermost along the last axis.

    >>> block([[np.eye(2), np.zeros((2, 1))]]).shape
    (2, 3)
    """
    depth = _depth(arrays)
    rank = max([as_array("block", x).ndim for x in _flat(arrays)] + [depth])
    return _block(arrays, depth, rank)


def _block(item: Any, depth: int, rank: int) -> Array:
    if not isinstance(item, list):
        x = as_array("block", item)
        return reshape(x, (1,) * (rank - x.ndim) + x.shape)
    return concatenate([_block(part, depth - 1, rank) for part in item], -depth)


def _depth(item: Any) -> int:
    return 1 + _depth(item[0]) if isinstance(item, list) else 0


def _flat(item: Any) -> list[Any]:
    if not isinstance(item, list):
        return [item]
    return [leaf for part in item for leaf in _flat(part)]


# ---------------------------------------------------------------- cutting


@becomes_native
@takes_keys(0)
def split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """The parts of an array: so many equal ones, or those between given indices.

    Raises `ShapeError` where the axis cannot be cut in equal parts.

    >>> [part.tolist() for part in split(np.arange(4), 2)]
    [[0, 1], [2, 3]]
    """
    x = as_array("split", ary)
    place = axis_index("split", axis, x.ndim)
    if np.ndim(indices_or_sections) == 0:
        count = int(indices_or_sections)
        if count < 1 or x.shape[place] % count:
            raise errors.ShapeError(
                f"split: axis {place} of {x.type} cannot be cut in {count} equal parts;"
                " array_split allows unequal ones"
            )
    return array_split(x, indices_or_sections, place)


@becomes_native
@takes_keys(0)
def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """As `split`, with parts that differ by one where they cannot be equal.

    >>> [part.tolist() for part in array_split(np.arange(3), 2)]
    [[0, 1], [2]]
    """
    x = as_array("array_split", ary)
    place = axis_index("array_split", axis, x.ndim)
    size = x.shape[place]
    if np.ndim(indices_or_sections) == 0:
        count = int(indices_or_sections)
        each, more = divmod(size, count)
        ends = [i * each + min(i, more) for i in range(count + 1)]
    else:
        cuts = [int(i) for i in np.asarray(indices_or_sections)]
        ends = [0, *[slice(i).indices(size)[1] for i in cuts], size]
    return [part_of(x, place, a, max(a, b)) for a, b in pairwise(ends)]


@becomes_native
@takes_keys(0)
def vsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """`split` along axis 0."""
    return split(ary, indices_or_sections, 0)


@becomes_native
@takes_keys(0)
def hsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """`split` along axis 1, or 0 of a vector."""
    return split(ary, indices_or_sections, 1 if as_array("hsplit", ary).ndim > 1 else 0)


@becomes_native
@takes_keys(0)
def dsplit(ary: ArrayLike, indices_or_sections: Any) -> list[Array]:
    """`split` along axis 2."""
    return split(ary, indices_or_sections, 2)


@becomes_native
@takes_keys(0)
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The arrays along an axis, which they do not have any more.

    >>> [row.tolist() for row in unstack(np.eye(2))]
    [[1.0, 0.0], [0.0, 1.0]]
    """
    array = as_array("unstack", x)
    place = axis_index("unstack", axis, array.ndim)
    shape = array.shape[:place] + array.shape[place + 1 :]
    parts = [part_of(array, place, i, i + 1) for i in range(array.shape[place])]
    return tuple([ops.reshape(part, shape=shape) for part in parts])


# ---------------------------------------------------------------- repeating


@becomes_native
@takes_keys(0)
def tile(A: ArrayLike, reps: Any) -> Array:
    """The array repeated as a whole, `reps` times along each axis.

    >>> tile(np.array([1, 2]), (2, 2)).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    x = as_array("tile", A)
    counts = shape_tuple("tile", reps)
    rank = max(x.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - x.ndim) + x.shape
    # Each axis becomes (repetitions, size), a broadcast, and then one axis again.
    inner = [n for size in shape for n in (1, size)]
    outer = [n for row in zip(counts, shape, strict=True) for n in row]
    repeated = broadcast_to(reshape(x, inner), outer)
    return reshape(repeated, [a * b for a, b in zip(counts, shape, strict=True)])
