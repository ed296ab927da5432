"""What operations that read and write by index say of an index that is outside.

Receives the indices and the axis that they are of; gives `Fault`s, for the rule
`Primitive.faults`. Next on the walk: `gather.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fnx.core.faults import INDEX, Fault
from fnx.core.program import Literal
from fnx.ops.elementwise import gt, lt
from fnx.ops.parts import or_
from fnx.ops.pieces import part_of
from fnx.ops.shape import reshape, scalar


def outside(values: Any, axis: int, size: int, window: int) -> Iterator[Fault]:
    """An index at which a window of an axis begins, and does not lie entirely in it."""
    dtype, highest = values.type.dtype, size - window
    if isinstance(values, Literal) and 0 <= values.value <= highest:
        return
    if not values.type.size:
        return
    bad = lt(values, scalar(0, dtype))
    if highest <= np.iinfo(dtype).max:
        bad = or_(bad, gt(values, scalar(highest, dtype)))
    text = f"index {{value}} is out of bounds for axis {axis} with size {size}"
    yield Fault(INDEX, text, bad, values)


def vectors_outside(
    places: Any, axes: Sequence[int], shape: Sequence[int], sizes: Sequence[int]
) -> Iterator[Fault]:
    """The same of index vectors, whose entries are of these axes of an operand.

    `shape` and `sizes` are the operand's and the window's.
    """
    last = len(places.type.shape) - 1
    for number, axis in enumerate(axes):
        part = part_of(places, last, number, number + 1)
        values = reshape(part, shape=places.type.shape[:last])
        yield from outside(values, axis, shape[axis], sizes[axis])


def starts_outside(
    starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int]
) -> Iterator[Fault]:
    """The same of one window, by a scalar for each axis."""
    for axis, start in enumerate(starts):
        yield from outside(start, axis, shape[axis], sizes[axis])
