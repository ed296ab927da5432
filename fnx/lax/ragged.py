"""Products of groups of rows with a matrix each, and of operands with scales.

Receives operands and the sizes of groups, which may be traced, gives arrays of known
shape. Next on the walk: `tokens.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.core.array import Array
from fnx.lax.accuracy import DotDimensionNumbers, PrecisionLike
from fnx.lax.reducing import dot_general
from fnx.numpy import ufuncs
from fnx.numpy.choices import choose_where
from fnx.numpy.creation import arange
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array, broadcast, cast
from fnx.numpy.reductions import cumsum
from fnx.numpy.shaping import expand_dims, moveaxis, reshape
from fnx.numpy.taking import repeat
from fnx.records import record


@record
class RaggedDotDimensionNumbers:
    """Which axes mean what in `ragged_dot_general`.

    `dot_dimension_numbers` are those of `dot_general`; one axis of the first operand is
    cut in groups, and at most one axis of the second counts groups.
    """

    dot_dimension_numbers: DotDimensionNumbers
    lhs_ragged_dimensions: Sequence[int]
    rhs_group_dimensions: Sequence[int]


def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
    group_offset: None = None,
) -> Array:
    """Groups of rows, each times a matrix of its own; rows of no group give 0.

    `lhs` is (m, k), `rhs` (g, k, n), and `group_sizes` says how many of the rows belong
    to each of the g groups.

    >>> import numpy as np
    >>> rhs = np.stack([np.eye(2), 3 * np.eye(2)])
    >>> ragged_dot(np.ones((3, 2)), rhs, np.array([1, 2])).tolist()
    [[1.0, 1.0], [3.0, 3.0], [3.0, 3.0]]
    """
    numbers = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))
    return ragged_dot_general(
        lhs, rhs, group_sizes, numbers, precision, preferred_element_type, group_offset
    )


def ragged_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
    group_offset: None = None,
) -> Array:
    """`dot_general` where one axis of the first operand is cut in groups.

    An axis that is neither contracted nor a batch: each group has a part of the second
    operand of its own, along its group axis. A contracted axis: there is a product for
    each group, along a new first axis. A batch axis: as `dot_general`. `group_sizes`
    has the groups along its last axis; before it there may be the batch axes and those
    of the same kind that come before the ragged one.

    >>> import numpy as np
    >>> numbers = RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), (0,), ())
    >>> x, sizes = np.ones((3, 2)), np.array([1, 2])
    >>> ragged_dot_general(x, x, sizes, numbers)[:, 0, 0].tolist()
    [1.0, 2.0]
    """
    name = "ragged_dot_general"
    if group_offset is not None:
        raise errors.OptionError(f"{name}: group_offset is not there; leave it out")
    x, y, sizes = [as_array(name, v, i) for i, v in enumerate((lhs, rhs, group_sizes))]
    numbers = ragged_dot_dimension_numbers
    (left, right), (left_batch, right_batch) = numbers.dot_dimension_numbers
    ragged = _one(name, "lhs_ragged_dimensions", numbers.lhs_ragged_dimensions)
    groups = numbers.rhs_group_dimensions
    options = precision, preferred_element_type
    if not dtypes.is_integer(sizes.dtype):
        raise errors.DTypeError(f"{name}: group_sizes are integers, got {sizes.type}")
    if ragged in left_batch:
        if groups:
            raise errors.ArgumentError(
                f"{name}: with a ragged batch axis there is no group axis of rhs"
            )
        return dot_general(x, y, numbers.dot_dimension_numbers, *options)
    is_contracted = ragged in left
    kind = left if is_contracted else _free(x.ndim, left, left_batch)
    before = (*left_batch, *[axis for axis in kind if axis < ragged])
    masked = _by_group(name, x, sizes, ragged, before)
    pairs = (_later(left), tuple(right)), (_later(left_batch), tuple(right_batch))
    if not is_contracted:
        group = _one(name, "rhs_group_dimensions", groups)
        (i, j), batch = pairs
        return dot_general(masked, y, (((0, *i), (group, *j)), batch), *options)
    if groups:
        raise errors.ArgumentError(
            f"{name}: with a ragged contracted axis there is no group axis of rhs"
        )
    return moveaxis(dot_general(masked, y, pairs, *options), len(left_batch), 0)


def _one(name: str, what: str, axes: Sequence[int]) -> int:
    if len(axes) != 1:
        raise errors.ArgumentError(f"{name}: {what} is one axis, got {tuple(axes)}")
    return axes[0]


def _free(ndim: int, *taken: Sequence[int]) -> tuple[int, ...]:
    others = [axis for axes in taken for axis in axes]
    return tuple([axis for axis in range(ndim) if axis not in others])


def _later(axes: Sequence[int]) -> tuple[int, ...]:
    """The axes behind a new first one."""
    return tuple([axis + 1 for axis in axes])


def _by_group(
    name: str, x: Array, sizes: Array, ragged: int, before: tuple[int, ...]
) -> Array:
    """For each group the operand with 0 in the place of all other groups."""
    wanted = tuple([x.shape[axis] for axis in before])
    if sizes.ndim == 1:
        sizes = broadcast(sizes, (*wanted, sizes.size))
    if sizes.shape[:-1] != wanted:
        raise errors.ShapeError(
            f"{name}: group_sizes {sizes.type} has other axes than {list(wanted)} "
            "before that of the groups"
        )
    ends = cumsum(sizes, -1)
    starts = ufuncs.subtract(ends, sizes)
    place = arange(x.shape[ragged], dtype=ends.dtype)
    inside = ufuncs.bitwise_and(
        ufuncs.greater_equal(place, expand_dims(starts, -1)),
        ufuncs.less(place, expand_dims(ends, -1)),
    )
    # From (before, group, place) to (group, the axes of x).
    mask = moveaxis(inside, len(before), 0)
    order = sorted(range(len(before) + 1), key=lambda i: (*before, ragged)[i])
    mask = moveaxis(mask, [1 + i for i in order], list(range(1, len(order) + 1)))
    kept = {*before, ragged}
    thin = [n if axis in kept else 1 for axis, n in enumerate(x.shape)]
    return choose_where(reshape(mask, (mask.shape[0], *thin)), x, 0)


def scaled_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    lhs_scale: ArrayLike | None = None,
    rhs_scale: ArrayLike | None = None,
    dimension_numbers: DotDimensionNumbers | None = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """The product of operands times their scales, bfloat16 unless another is preferred.

    A scale has the axes of its operand; along a contracted axis one number may stand
    for a block of several. By default the last two axes are multiplied as matrices,
    those before them are batches.

    >>> import numpy as np
    >>> x, scale = np.ones((1, 4), "float32"), np.full((1, 2), 3.0, "float32")
    >>> scaled_dot(x, x.T, lhs_scale=scale, preferred_element_type="float32").item()
    12.0
    """
    x, y = as_array("scaled_dot", lhs), as_array("scaled_dot", rhs, 1)
    wanted = dtypes.as_dtype(
        dtypes.bfloat16 if preferred_element_type is None else preferred_element_type
    )
    if dimension_numbers is None:
        if x.ndim < 2 or x.ndim != y.ndim:
            raise errors.ShapeError(
                f"scaled_dot takes matrices, or batches of them, got {x.type} and "
                f"{y.type}; other axes need dimension_numbers"
            )
        batch = tuple(range(x.ndim - 2))
        dimension_numbers = (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch))
    (left, right), _ = dimension_numbers
    x = _scaled(x, lhs_scale, left, wanted)
    y = _scaled(y, rhs_scale, right, wanted)
    return dot_general(x, y, dimension_numbers, None, wanted)


def _scaled(
    x: Array, scale: ArrayLike | None, contracted: Sequence[int], dtype: Any
) -> Array:
    value = cast(x, dtype)
    if scale is None:
        return value
    factor = cast(as_array("scaled_dot", scale), dtype)
    for axis, (n, m) in enumerate(zip(x.shape, factor.shape, strict=True)):
        fits = n % max(m, 1) == 0 if axis in contracted else n == m
        if not fits:
            raise errors.ShapeError(
                f"scaled_dot: the scale {factor.type} does not fit axis {axis} of "
                f"{x.type}"
            )
        if n != m:
            factor = repeat(factor, n // m, axis)
    return ufuncs.multiply(value, factor)
