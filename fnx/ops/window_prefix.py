"""Windows over axes that vary: which of them see the padding, and as what.

What is behind a prefix is made what the padding of the windows is, so that the windows
of the prefix see no difference; index vectors of windows are moved inside of a prefix.
Receives padded arrays and how windows lie at the size of now and at the largest; raises
where they lie otherwise. Next on the walk: `window_dims.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import dtypes
from fnx.core.padding import Extent, Ints, Padded, Pads
from fnx.ops import elementwise
from fnx.ops.arithmetic import eq, select
from fnx.ops.families import literal
from fnx.ops.shape import broadcast_in_dim, iota


def check_windows_alike(pads: Pads, now: Any, largest: Any, varying: Ints = ()) -> None:
    """Raises unless windows lie alike but for what is put behind the axes.

    The windows themselves may vary in size along the axes that are `varying`.
    """
    for name in ("strides", "low", "base_dilation", "dilation", "size"):
        rows = zip(getattr(now, name), getattr(largest, name), strict=True)
        for axis, (one, other) in enumerate(rows):
            if one != other and not (name == "size" and axis in varying):
                raise pads.cannot(f"along axis {axis} the windows lie otherwise")


def check_apart(pads: Pads, windows: Any, *operands: Padded) -> None:
    """Raises unless each element of an axis that varies is a window by itself."""
    rows = list(windows.rows)
    for axis in {axis for x in operands for axis in x.varying}:
        if rows[axis] != (1, 1, (0, 0), 1, 1):
            raise pads.cannot(f"axis {axis} varies, over which windows lie")


def check_ungrouped(pads: Pads, lhs: Padded, rhs: Padded, convolution: Any) -> None:
    """Raises if the axis of features or the batch varies where it is in groups."""
    (batch, feature, *_), (outs, ins, *_), _ = convolution.dims
    left = [feature] * (convolution.feature_groups > 1)
    left += [batch] * (convolution.batch_groups > 1)
    right = [outs] * (convolution.groups > 1) + [ins] * (convolution.feature_groups > 1)
    if {*left} & {*lhs.varying} or {*right} & {*rhs.varying}:
        raise pads.cannot("an axis varies that is in groups")


def wide_index(x: Any) -> Any:
    """Indices in a dtype that holds the size of any axis."""
    if x.type.dtype.itemsize >= 4:
        return x
    return elementwise.convert(x, dtype=dtypes.int32)


def padded_vectors(
    pads: Pads,
    operand: Padded,
    indices: Padded,
    dims: Any,
    sizes: Sequence[Extent],
    mode: str,
    every: bool = False,
) -> Any:
    """Index vectors for windows of these sizes in a prefix.

    Where a window may be moved it is, else it is put behind everything. Along axes that
    do not vary it is left to the operation, unless `every` axis is asked for.
    """
    if indices.sizes[-1].varies:
        raise pads.cannot("the length of the index vectors varies")
    array = wide_index(indices.array)
    dtype, shape = array.type.dtype, array.type.shape
    for number, axis in enumerate(dims.start_index_map):
        size = operand.sizes[axis]
        if not (size.varies or every):
            continue
        last = size.minus(sizes[axis])
        if last.now > last.largest:
            raise pads.cannot(f"the window grows more than axis {axis}")
        most = literal(last.now, dtype)
        if last.varies:
            most = elementwise.convert(pads.number(last), dtype=dtype)
            most = broadcast_in_dim(most, shape=shape, dims=())
        own = eq(iota(shape=shape, dtype=dtypes.int32, axis=len(shape) - 1), number)
        if mode == "fill":
            beyond = elementwise.gt(array, most)
            moved = select(beyond, literal(size.largest, dtype), array)
        else:
            moved = elementwise.min(elementwise.max(array, 0), most)
        array = select(own, moved, array)
    return array
