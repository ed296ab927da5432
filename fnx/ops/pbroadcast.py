"""pbroadcast: the value of one replica along a named axis, on each of them.

Receives and gives what the other collectives do. Next on the walk:
`fnx/transforms/batch.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.core import axes
from fnx.core.primitive import MappedAxis, Primitive
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import eq, select
from fnx.ops.collective import axis_index, members, psum, whole
from fnx.ops.shape import broadcast_in_dim, part_of, reshaped


class _Pbroadcast(Primitive):
    """pbroadcast: the value of replica `source`, on each."""

    linear = True
    sees_axes = True
    meets = True

    def __call__(
        self,
        x: Any,
        *,
        axis_name: Hashable,
        source: int,
        axis_size: int | None = None,
    ) -> Any:
        size = axes.axis_size(axis_name) if axis_size is None else axis_size
        return bind(self, (x,), _source(axis_name, size, int(source)))

    def infer(
        self, x: ArrayType, *, axis_name: Hashable, axis_size: int, source: int
    ) -> ArrayType:
        """The same type; the source is one of the replicas."""
        if not 0 <= source < axis_size:
            raise errors.AxisError(
                errors.explain(
                    f"pbroadcast({x}, axis_name={axis_name!r}, source={source})",
                    f"the source must be a number from 0 to {axis_size - 1}",
                )
            )
        return x

    def reference(
        self, x: Any, *, axis_name: Hashable, axis_size: int, source: int
    ) -> Any:
        """The source's value."""
        out = np.empty_like(np.asarray(x))
        self.write((out,), x, **_source(axis_name, axis_size, source))
        return out

    def write(
        self,
        outputs: Sequence[Any],
        x: Any,
        *,
        axis_name: Hashable,
        axis_size: int,
        source: int,
    ) -> None:
        """The source sends to everyone, itself included."""
        others = members(self, axis_name, axis_size)
        everyone = [(source, i) for i in range(axis_size)]
        others.permute(whole(x), outputs[0], everyone)

    def steps(self, plan: Any, x: Any, **params: Any) -> None:
        """A call of the communicator of the thread that runs the plan."""
        plan.host()

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        axis_name: Hashable,
        axis_size: int,
        source: int,
    ) -> tuple[Any, Any]:
        """Linear."""
        params = _source(axis_name, axis_size, source)
        return self(*primals, **params), self(*tangents, **params)

    def transpose(
        self, ct: Any, x: Any, *, axis_name: Hashable, axis_size: int, source: int
    ) -> Sequence[Any]:
        """The source gets the sum of all cotangents, the others nothing."""
        total = psum(ct, axis_name=axis_name, axis_size=axis_size)
        number = axis_index(axis_name=axis_name, axis_size=axis_size)
        is_source = broadcast_in_dim(eq(number, source), shape=ct.shape, dims=())
        return (select(is_source, total, 0),)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        axis_name: Hashable,
        axis_size: int,
        source: int,
    ) -> tuple[Any, Any]:
        """The source's row on its own axis, the same for all; itself on any other."""
        ((x,), (is_mapped,)) = args, mapped
        if axis.name is None or axis.name != axis_name:
            return self(x, **_source(axis_name, axis_size, source)), is_mapped
        if not is_mapped:
            return x, False
        return reshaped(part_of(x, 0, source, source + 1), x.shape[1:]), False


def _source(axis_name: Hashable, axis_size: int, source: int) -> dict[str, Any]:
    return {"axis_name": axis_name, "axis_size": axis_size, "source": source}


pbroadcast = _Pbroadcast("pbroadcast")
