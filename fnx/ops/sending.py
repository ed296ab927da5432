"""Sending: collectives in which replicas send their values to some of the others.

Receives and gives what the other collectives do. Next on the walk:
`fnx/transforms/batch.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.core import axes
from fnx.core.primitive import Flow, MappedAxis, Primitive
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import eq, select
from fnx.ops.collective import psum
from fnx.ops.families import along
from fnx.ops.groups import rearranged
from fnx.ops.meeting import axis_index, members, whole
from fnx.ops.pieces import part_of
from fnx.ops.shape import broadcast_in_dim, kept_axes, reshaped

Pairs = tuple[tuple[int, int], ...]
"""(source, destination) pairs of replicas."""


class _Sending(Primitive):
    """What they share; each has one param beside the axis that says who sends."""

    linear = True
    sees_axes = True
    meets = True

    def pairs(self, size: int, params: Mapping[str, Any]) -> Pairs:
        """Who sends to whom among so many replicas."""
        raise self.missing("pairs")

    def rows(self, x: Any, is_mapped: bool, axis: MappedAxis, params: Any) -> Any:
        """What all replicas get as array operations, and whether it differs."""
        raise self.missing("rows")

    def flow(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], **params: Any
    ) -> Flow:
        """Along other axes of a mesh every axis runs along."""
        return kept_axes(types, outs, ())

    def reference(self, x: Any, **params: Any) -> Any:
        """What this replica is sent."""
        out = np.empty_like(np.asarray(x))
        self.write((out,), x, **params)
        return out

    def write(
        self,
        outputs: Sequence[Any],
        x: Any,
        *,
        axis_name: Hashable,
        axis_size: int,
        **params: Any,
    ) -> None:
        """Meets the other replicas."""
        others = members(self, axis_name, axis_size)
        others.permute(whole(x), outputs[0], self.pairs(axis_size, params))

    def steps(self, plan: Any, x: Any, **params: Any) -> None:
        """A call of the communicator of the thread that runs the plan."""
        plan.host()

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Linear."""
        return bind(self, primals, params), bind(self, tangents, params)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        **params: Any,
    ) -> tuple[Any, Any]:
        """Array operations on its own axis; itself on any other."""
        ((x,), (is_mapped,)) = args, mapped
        if axis.name is None or axis.name != params["axis_name"]:
            return bind(self, (x,), params), is_mapped
        return self.rows(x, is_mapped, axis, params)


class _Ppermute(_Sending):
    """ppermute: sends each replica's value on; `perm` has (source, destination) pairs.

    A replica that is no destination gets zeros.
    """

    def __call__(
        self,
        x: Any,
        *,
        axis_name: Hashable,
        perm: Sequence[tuple[int, int]],
        axis_size: int | None = None,
    ) -> Any:
        pairs = tuple(sorted([(int(i), int(j)) for i, j in perm]))
        return bind(self, (x,), {**_axis(axis_name, axis_size), "perm": pairs})

    def infer(
        self, x: ArrayType, *, axis_name: Hashable, axis_size: int, perm: Pairs
    ) -> ArrayType:
        """The same type; a replica sends and receives at most once."""
        for ends in zip(*perm, strict=True):
            if len(set(ends)) < len(ends) or not set(ends) <= set(range(axis_size)):
                raise errors.AxisError(
                    errors.explain(
                        f"ppermute({x}, axis_name={axis_name!r}, perm={perm})",
                        "sources and destinations must each be different numbers "
                        f"from 0 to {axis_size - 1}",
                    )
                )
        return x

    def pairs(self, size: int, params: Mapping[str, Any]) -> Pairs:
        """As they are."""
        found: Pairs = params["perm"]
        return found

    def transpose(
        self, ct: Any, x: Any, *, axis_name: Hashable, axis_size: int, perm: Pairs
    ) -> Sequence[Any]:
        """The cotangents travel back."""
        back = [(j, i) for i, j in perm]
        return (self(ct, axis_name=axis_name, axis_size=axis_size, perm=back),)

    def rows(self, x: Any, is_mapped: bool, axis: MappedAxis, params: Any) -> Any:
        """The rows in their new order."""
        perm = params["perm"]
        if not is_mapped and len(perm) == axis.size:
            return x, False
        values = x if is_mapped else along(axis, x)
        return rearranged(values, {j: i for i, j in perm}), True


class _Pbroadcast(_Sending):
    """pbroadcast: the value of replica `source`, on each."""

    def __call__(
        self,
        x: Any,
        *,
        axis_name: Hashable,
        source: int,
        axis_size: int | None = None,
    ) -> Any:
        params = {**_axis(axis_name, axis_size), "source": int(source)}
        return bind(self, (x,), params)

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

    def pairs(self, size: int, params: Mapping[str, Any]) -> Pairs:
        """The source sends to everyone, itself included."""
        return tuple([(params["source"], i) for i in range(size)])

    def transpose(
        self, ct: Any, x: Any, *, axis_name: Hashable, axis_size: int, source: int
    ) -> Sequence[Any]:
        """The source gets the sum of all cotangents, the others nothing."""
        total = psum(ct, axis_name=axis_name, axis_size=axis_size)
        number = axis_index(axis_name=axis_name, axis_size=axis_size)
        is_source = broadcast_in_dim(eq(number, source), shape=ct.shape, dims=())
        return (select(is_source, total, 0),)

    def rows(self, x: Any, is_mapped: bool, axis: MappedAxis, params: Any) -> Any:
        """The source's row, the same for all."""
        if not is_mapped:
            return x, False
        first = params["source"]
        return reshaped(part_of(x, 0, first, first + 1), x.shape[1:]), False


def _axis(axis_name: Hashable, axis_size: int | None) -> dict[str, Any]:
    size = axes.axis_size(axis_name) if axis_size is None else axis_size
    return {"axis_name": axis_name, "axis_size": size}


ppermute = _Ppermute("ppermute")
pbroadcast = _Pbroadcast("pbroadcast")
