"""Meeting: whom a replica meets along a named axis, and its number there.

Receives an axis; gives the communicator of the thread that runs a replica, and arrays
as it takes them. Next on the walk: `collective.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core import axes
from fnx.core.communicator import Alone, Communicator, OnDevice
from fnx.core.primitive import MappedAxis, Primitive
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.shape import iota


def members(primitive: Primitive, axis_name: Hashable, axis_size: int) -> Communicator:
    """Who is met along an axis; raises where the other replicas are not there."""
    found = axes.communicator(axis_name)
    if found is not None:
        return found
    if axis_size == 1:
        return Alone()
    raise errors.AxisError(
        errors.explain(
            f"{primitive.name} over the axis {axis_name!r} of size {axis_size}",
            "only one replica is here to compute it",
            "run it inside the vmap, pmap or shard_map that binds the axis",
        )
    )


def whole(x: Any) -> Any:
    """A value as a communicator takes it: contiguous; a literal is a number."""
    if isinstance(x, OnDevice):
        return x
    return np.ascontiguousarray(x).reshape(np.shape(x))


class _AxisIndex(Primitive):
    """axis_index: the number of this replica, an int32."""

    sees_axes = True
    routine = "axis_index"

    def __call__(self, *, axis_name: Hashable, axis_size: int | None = None) -> Any:
        size = axes.axis_size(axis_name) if axis_size is None else axis_size
        return bind(self, (), {"axis_name": axis_name, "axis_size": size})

    def infer(self, *, axis_name: Hashable, axis_size: int) -> ArrayType:
        """int32, as in JAX."""
        return ArrayType((), dtypes.int32)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        axis_name: Hashable,
        axis_size: int,
    ) -> tuple[Any, None]:
        """It has no operand that could move."""
        return self(axis_name=axis_name, axis_size=axis_size), None

    def reference(self, *, axis_name: Hashable, axis_size: int) -> Any:
        """The rank of this replica."""
        return np.asarray(members(self, axis_name, axis_size).rank, np.int32)

    def steps(self, plan: Any, **params: Any) -> None:
        """The rank of the thread that runs the plan."""
        plan.host()

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        axis_name: Hashable,
        axis_size: int,
    ) -> tuple[Any, Any]:
        """0, 1, 2… along its own axis."""
        if axis.name is None or axis.name != axis_name:
            return self(axis_name=axis_name, axis_size=axis_size), False
        return iota(shape=(axis.size,), dtype=dtypes.int32, axis=0), True


axis_index = _AxisIndex("axis_index")
