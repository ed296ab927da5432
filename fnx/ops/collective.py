"""Collectives: operations between the replicas along a named axis.

Each replica computes with its own values; a collective gives it those of the others.
Under `vmap(axis_name=...)` the replicas lie along one array axis, and the `batch` rule
of that axis turns the collective into array operations; `pmap` and `shard_map` run it
between devices. Convention of derivatives: the cotangents of all replicas count, so
that the transpose of a sum over replicas is the sum over replicas.
Next on the walk: `sending.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core import axes
from fnx.core.communicator import Communicator
from fnx.core.primitive import Flow, MappedAxis, Primitive
from fnx.core.program import Atom, Literal
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add, mul, select
from fnx.ops.elementwise import convert, div
from fnx.ops.families import along
from fnx.ops.groups import (
    Groups,
    checked_groups,
    for_members,
    into_groups,
    member_count,
    out_of_groups,
)
from fnx.ops.meeting import members, whole
from fnx.ops.pieces import part_of
from fnx.ops.reduce import (
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_sum,
    winners,
    zero_or_one,
)
from fnx.ops.shape import broadcast_in_dim, permute, reshaped


class _Collective(Primitive):
    """What all collectives share: the axis is looked up when they are called.

    The size is a param, so that the equation has its meaning wherever it is read.
    `groups` are the groups of replicas that do it each on its own, or None.
    """

    linear = True
    sees_axes = True
    meets = True

    def __call__(
        self,
        x: Any,
        *,
        axis_name: Hashable,
        axis_size: int | None = None,
        groups: Sequence[Sequence[int]] | None = None,
    ) -> Any:
        size = axes.axis_size(axis_name) if axis_size is None else axis_size
        found = checked_groups(groups, axis_name, size)
        return bind(self, (x,), _axis(axis_name, size, found))

    # How many leading axes of operand and result are for the replicas.
    rows: tuple[int, int] = (0, 0)

    def flow(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], **params: Any
    ) -> Flow:
        """Along other axes of a mesh, all but the rows for replicas run along."""
        (x,), (before, after) = types, self.rows
        kept = tuple(range(x.ndim - before))
        return Flow((((None,) * before + kept),), (((None,) * after + kept),))

    def reference(
        self, x: Any, *, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> Any:
        """This replica's value, by exchange with the others."""
        axis = _axis(axis_name, axis_size, groups)
        type = self.infer(ArrayType(np.shape(x), np.asarray(x).dtype), **axis)
        out = np.empty(type.shape, type.dtype)
        self.write((out,), x, **axis)
        return out

    def write(
        self,
        outputs: Sequence[Any],
        x: Any,
        *,
        axis_name: Hashable,
        axis_size: int,
        groups: Groups,
    ) -> None:
        """Meets the other replicas, each on its thread; the axis may be one alone."""
        others = members(self, axis_name, axis_size)
        if groups is not None:
            others = others.split(groups)
        self.exchange(others, whole(x), outputs[0])

    def exchange(self, others: Communicator, x: Any, out: Any) -> None:
        """The collective of this replica's array and those of others."""
        raise self.missing("exchange")

    def steps(self, plan: Any, x: Any, **params: Any) -> None:
        """A call of the communicator of the thread that runs the plan."""
        plan.host()

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        axis_name: Hashable,
        axis_size: int,
        groups: Groups,
    ) -> tuple[Any, Any]:
        """Array operations on its own axis; itself, one axis up, on any other."""
        ((x,), (is_mapped,)) = args, mapped
        if axis.name is not None and axis.name == axis_name:
            if groups is None:
                return self.resolved(axis, x, is_mapped)
            rows = x if is_mapped else along(axis, x)
            found = self.grouped(axis, into_groups(rows, groups))
            return out_of_groups(found, groups), True
        if not is_mapped:
            return self(x, **_axis(axis_name, axis_size, groups)), False
        return self.shifted(x, axis_name, axis_size, groups), True

    def resolved(self, axis: MappedAxis, x: Any, is_mapped: bool) -> tuple[Any, bool]:
        """The collective as array operations; the replicas' values lie along axis 0."""
        raise self.missing("resolved")

    def grouped(self, axis: MappedAxis, x: Any) -> Any:
        """The collective of each group's values: (groups, members, …) in and out."""
        raise self.missing("grouped")

    def shifted(
        self, x: Any, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> Any:
        """The collective of an array with an unrelated leading axis."""
        return self(x, **_axis(axis_name, axis_size, groups))

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        axis_name: Hashable,
        axis_size: int,
        groups: Groups,
    ) -> tuple[Any, Any]:
        """Linear: the same collective of the tangents."""
        axis = _axis(axis_name, axis_size, groups)
        return self(*primals, **axis), self(*tangents, **axis)


class _Psum(_Collective):
    """psum: the sum of all replicas' values, the same on each."""

    def infer(
        self, x: ArrayType, *, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> ArrayType:
        """The type of a replica's value; booleans have no sum."""
        if dtypes.is_bool(x.dtype):
            raise errors.DTypeError(
                errors.explain(
                    f"psum({x}, axis_name={axis_name!r})",
                    "booleans cannot be summed",
                    "convert them to an integer dtype",
                )
            )
        return x

    def exchange(self, others: Communicator, x: Any, out: Any) -> None:
        """A sum in the order of the replicas."""
        others.all_reduce(x, out, "sum")

    def transpose(
        self, ct: Any, x: Any, *, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> Sequence[Any]:
        """Each replica's value reaches all outputs: the sum of their cotangents."""
        return (psum(ct, **_axis(axis_name, axis_size, groups)),)

    def resolved(self, axis: MappedAxis, x: Any, is_mapped: bool) -> tuple[Any, bool]:
        """A sum along the axis; a value that all share is counted `size` times."""
        return _total(axis, x, 0) if is_mapped else _times(x, axis.size), False

    def grouped(self, axis: MappedAxis, x: Any) -> Any:
        """A group's sum, for each of its members."""
        return for_members(_total(axis, x, 1), x.shape[1])

    def identity(
        self,
        inputs: Sequence[Atom],
        *,
        axis_name: Hashable,
        axis_size: int,
        groups: Groups,
    ) -> Atom | None:
        """A literal is the same on all replicas, so that the sum is known."""
        (x,) = inputs
        if not isinstance(x, Literal):
            return x if axis_size == 1 else None
        size = _number(member_count(axis_size, groups), x.type.dtype).value
        with np.errstate(all="ignore"):
            return Literal(x.value * size, x.type)


class _Extreme(_Collective):
    """pmax and pmin: the largest or smallest of all replicas' values, on each."""

    linear = False

    def __init__(
        self,
        name: str,
        op: str,
        numbers: Callable[..., Any],
        booleans: Callable[..., Any],
    ) -> None:
        super().__init__(name)
        self.op = op
        self.numbers = numbers
        self.booleans = booleans

    def reduce(self, x: Any, *, axes: tuple[int, ...]) -> Any:
        """The extreme along axes of an array; of booleans "or" and "and"."""
        fold = self.booleans if dtypes.is_bool(x.dtype) else self.numbers
        return fold(x, axes=axes)

    def infer(
        self, x: ArrayType, *, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> ArrayType:
        """The type of a replica's value; complex numbers have no order."""
        if dtypes.is_complex(x.dtype):
            raise errors.DTypeError(
                errors.explain(
                    f"{self.name}({x}, axis_name={axis_name!r})",
                    "complex numbers have no order",
                    "compare their real, imaginary or absolute values",
                )
            )
        return x

    def exchange(self, others: Communicator, x: Any, out: Any) -> None:
        """The extreme of all."""
        others.all_reduce(x, out, self.op)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        axis_name: Hashable,
        axis_size: int,
        groups: Groups,
    ) -> tuple[Any, Any]:
        """The mean of the tangents of the replicas that have the extreme value."""
        ((x,), (t,)) = primals, tangents
        axis = _axis(axis_name, axis_size, groups)
        output = self(x, **axis)
        tied = winners(x, output)
        total = psum(select(tied, t, 0), **axis)
        count = psum(zero_or_one(tied, t.type.dtype), **axis)
        return output, mul(total, div(1, count))

    def resolved(self, axis: MappedAxis, x: Any, is_mapped: bool) -> tuple[Any, bool]:
        """The extreme along the axis; a value that all share is the extreme."""
        return self.reduce(x, axes=(0,)) if is_mapped else x, False

    def grouped(self, axis: MappedAxis, x: Any) -> Any:
        """A group's extreme, for each of its members."""
        return for_members(self.reduce(x, axes=(1,)), x.shape[1])

    def identity(
        self,
        inputs: Sequence[Atom],
        *,
        axis_name: Hashable,
        axis_size: int,
        groups: Groups,
    ) -> Atom | None:
        """A literal is the same on all replicas."""
        (x,) = inputs
        return x if isinstance(x, Literal) or axis_size == 1 else None


class _AllGather(_Collective):
    """all_gather: the values of all replicas, stacked along a new leading axis."""

    rows = (0, 1)

    def infer(
        self, x: ArrayType, *, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> ArrayType:
        """A new leading axis of the size of the named one, or of a group."""
        return x.with_shape((member_count(axis_size, groups), *x.shape))

    def exchange(self, others: Communicator, x: Any, out: Any) -> None:
        """The rows of all."""
        others.all_gather(x, out)

    def transpose(
        self, ct: Any, x: Any, *, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> Sequence[Any]:
        """Each replica gets the sum of the cotangents of its own row."""
        return (psum_scatter(ct, **_axis(axis_name, axis_size, groups)),)

    def resolved(self, axis: MappedAxis, x: Any, is_mapped: bool) -> tuple[Any, bool]:
        """The stacked array, the same for all."""
        return x if is_mapped else along(axis, x), False

    def grouped(self, axis: MappedAxis, x: Any) -> Any:
        """A group's values, for each of its members."""
        return for_members(x, x.shape[1])

    def shifted(
        self, x: Any, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> Any:
        """The gathered axis comes first, the unrelated one goes back in front."""
        return _swapped(self(x, **_axis(axis_name, axis_size, groups)))


class _Scattered(_Collective):
    """What reads an array with one row for each replica."""

    def check_rows(
        self, x: ArrayType, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> None:
        """Raises unless the leading axis has a row for each replica."""
        count = member_count(axis_size, groups)
        if x.ndim == 0 or x.shape[0] != count:
            raise errors.ShapeError(
                errors.explain(
                    f"{self.name}({x}, axis_name={axis_name!r})",
                    f"the leading axis must have size {count}, as the "
                    + ("named one" if groups is None else "groups"),
                )
            )


class _PsumScatter(_Scattered):
    """psum_scatter: replica i gets the sum of all replicas' rows i."""

    rows = (1, 0)

    def infer(
        self, x: ArrayType, *, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> ArrayType:
        """The type of one row."""
        self.check_rows(x, axis_name, axis_size, groups)
        return psum.infer(x, **_axis(axis_name, axis_size, groups)).with_shape(
            x.shape[1:]
        )

    def exchange(self, others: Communicator, x: Any, out: Any) -> None:
        """A sum in the order of the replicas."""
        others.reduce_scatter(x, out)

    def transpose(
        self, ct: Any, x: Any, *, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> Sequence[Any]:
        """All replicas' cotangents, stacked."""
        return (all_gather(ct, **_axis(axis_name, axis_size, groups)),)

    def resolved(self, axis: MappedAxis, x: Any, is_mapped: bool) -> tuple[Any, bool]:
        """The sum's rows, one for each replica."""
        return _total(axis, x, 0) if is_mapped else _times(x, axis.size), True

    def grouped(self, axis: MappedAxis, x: Any) -> Any:
        """The sum's rows, one for each member."""
        return _total(axis, x, 1)

    def shifted(
        self, x: Any, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> Any:
        """The rows come first."""
        return self(_swapped(x), **_axis(axis_name, axis_size, groups))


class _AllToAll(_Scattered):
    """all_to_all: row j of replica i becomes row i of replica j."""

    rows = (1, 1)

    def infer(
        self, x: ArrayType, *, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> ArrayType:
        """The same type."""
        self.check_rows(x, axis_name, axis_size, groups)
        return x

    def exchange(self, others: Communicator, x: Any, out: Any) -> None:
        """Rows for rows."""
        others.all_to_all(x, out)

    def transpose(
        self, ct: Any, x: Any, *, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> Sequence[Any]:
        """Its own inverse, so its own transpose."""
        return (all_to_all(ct, **_axis(axis_name, axis_size, groups)),)

    def resolved(self, axis: MappedAxis, x: Any, is_mapped: bool) -> tuple[Any, bool]:
        """The transposition of replicas and rows."""
        if is_mapped:
            return _swapped(x), True
        shape = x.type.shape
        dims = (0, *range(2, len(shape) + 1))
        spread = (axis.size, axis.size, *shape[1:])
        return broadcast_in_dim(x, shape=spread, dims=dims), True

    def grouped(self, axis: MappedAxis, x: Any) -> Any:
        """The transposition of members and rows."""
        return permute(x, dims=(0, 2, 1, *range(3, x.ndim)))

    def shifted(
        self, x: Any, axis_name: Hashable, axis_size: int, groups: Groups
    ) -> Any:
        """The rows come first, and go back."""
        return _swapped(self(_swapped(x), **_axis(axis_name, axis_size, groups)))


def pmean(
    x: Any, axis_name: Hashable, groups: Sequence[Sequence[int]] | None = None
) -> Any:
    """The mean of all replicas' floating-point values, or of each group's, on each."""
    size = axes.axis_size(axis_name)
    found = checked_groups(groups, axis_name, size)
    total = psum(x, axis_name=axis_name, groups=found)
    return div(total, _number(member_count(size, found), total.dtype))


def _axis(axis_name: Hashable, axis_size: int, groups: Groups) -> dict[str, Any]:
    return {"axis_name": axis_name, "axis_size": axis_size, "groups": groups}


def _number(n: int, dtype: np.dtype[Any]) -> Literal:
    """An integer in a dtype; it wraps like every integer there."""
    return Literal(np.asarray(n).astype(dtype), ArrayType((), dtype, True))


_FEW = 64
"""So many sums side by side are made in the order of what is summed."""


def _total(axis: MappedAxis, x: Any, along: int) -> Any:
    """The sum along an axis of replicas, in their order where that is asked for.

    Fewer sums than a vector has numbers would be made by halves.
    """
    size = x.shape[along]
    few = x.type.size < _FEW * size and dtypes.is_inexact(x.dtype)
    if not (axis.in_order and few and size > 2):
        return reduce_sum(x, axes=(along,))
    weak = x.type.weak
    wide = convert(x, dtype=dtypes.compute_dtype(x.dtype), weak=weak)
    rest = (*x.shape[:along], *x.shape[along + 1 :])
    rows = [reshaped(part_of(wide, along, n, n + 1), rest) for n in range(size)]
    return convert(functools.reduce(add, rows), dtype=x.dtype, weak=weak)


def _times(x: Any, n: int) -> Any:
    return mul(x, _number(n, x.type.dtype))


def _swapped(x: Any) -> Any:
    """The array with its two leading axes exchanged."""
    return permute(x, dims=(1, 0, *range(2, x.ndim)))


psum = _Psum("psum")
pmax = _Extreme("pmax", "max", reduce_max, reduce_or)
pmin = _Extreme("pmin", "min", reduce_min, reduce_and)
all_gather = _AllGather("all_gather")
psum_scatter = _PsumScatter("psum_scatter")
all_to_all = _AllToAll("all_to_all")
