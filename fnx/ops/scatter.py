"""scatter, scatter_add, scatter_mul, scatter_min, scatter_max: writes of windows.

The transposes of the reads in `gather.py`, with the same `WindowDims`. All updates are
applied in the order of the updates array; those whose window is not inside are moved
inside or dropped, by `mode`. Of several that set one element the last wins, and so it
does in the derivative. Next on the walk: `index.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.faults import Fault
from fnx.core.links import Links, copied, same
from fnx.core.padding import Extent, Padded, Pads
from fnx.core.primitive import Flow, MappedAxis, Primitive, Pulled, is_linear, primitive
from fnx.core.program import Literal
from fnx.core.types import ArrayType
from fnx.errors import DTypeError, ShapeError, explain
from fnx.ops.arithmetic import eq, plus, scale, select
from fnx.ops.bounds import vectors_outside
from fnx.ops.cumulative import Parts, before, product_rule, scanned
from fnx.ops.elementwise import convert, div
from fnx.ops.families import ANY, NUMBER, REAL, STORED, Copying, literal, widened
from fnx.ops.gather import POINTS, gather, points
from fnx.ops.prefix import filled
from fnx.ops.rearrange import Ints
from fnx.ops.reduce import check_kind, winners, zero_or_one
from fnx.ops.shape import all_along, full, iota, reshape, zeros_like
from fnx.ops.window_dims import (
    Rows,
    WindowDims,
    window_labels,
    window_place,
    windows_shape,
)
from fnx.ops.window_prefix import padded_vectors


class Scatter(Primitive):
    """scatter…(operand, indices, updates, dims, mode, unique).

    `dims` are read as for a gather whose output has the shape of the updates. Updates
    whose window is not entirely inside the operand are moved inside (`clip`, and
    `promise_in_bounds`, where they do not occur) or dropped (`fill`). `unique` promises
    that no element is written twice; derivatives are simpler then. `combine` is what a
    kernel calls the operation, None for setting; `numpy` applies it in place.
    """

    def __init__(
        self,
        name: str,
        kinds: str,
        combine: str | None,
        numpy: Callable[[Any, Any, Any], None],
    ) -> None:
        super().__init__(name)
        self.kinds = kinds
        self.combine = combine
        self.numpy = numpy

    def __call__(
        self,
        operand: Any,
        indices: Any,
        updates: Any,
        *,
        dims: WindowDims,
        mode: str = "clip",
        unique: bool = False,
    ) -> Any:
        """Applies the operation; sums and products of 16-bit floats in float32."""
        params = {"dims": dims, "mode": mode, "unique": unique}
        dtype = operand.type.dtype
        wide = dtypes.compute_dtype(dtype)
        if wide is dtype or self.combine not in ("add", "mul"):
            return super().__call__(operand, indices, updates, **params)
        operand, updates = [convert(x, dtype=wide) for x in (operand, updates)]
        out = super().__call__(operand, indices, updates, **params)
        return convert(out, dtype=dtype)

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        dims: WindowDims,
        **params: Any,
    ) -> Flow:
        """Axes that windows have all of run along the output."""
        x, places, updates = types
        operand, indices, windows = window_labels(x, places, updates, dims)
        batching = {indices[axis] for axis in dims.start_indices_batching_dims}
        # Updates of other index vectors meet in the operand: they have to be there.
        kept = tuple([x if x in batching else None for x in indices])
        ends = tuple([x if x in batching or x in operand else None for x in windows])
        return Flow((operand, kept, ends), (operand,))

    def infer(
        self,
        operand: ArrayType,
        indices: ArrayType,
        updates: ArrayType,
        *,
        dims: WindowDims,
        mode: str,
        unique: bool,
    ) -> ArrayType:
        """The operand's type."""
        asked = f"{self.name}({operand}, {indices}, {updates}, {dims}, mode={mode!r})"
        check_kind(asked, operand, self.kinds)
        if operand.dtype != updates.dtype:
            raise DTypeError(explain(asked, "the dtypes differ", "convert the updates"))
        sizes = _sizes(asked, operand, indices, updates, dims)
        shape = windows_shape(asked, operand, indices, dims, sizes, mode)
        if shape != updates.shape:
            reason = f"the shape of the updates must be {shape}"
            raise ShapeError(explain(asked, reason))
        return ArrayType(operand.shape, operand.dtype, operand.weak and updates.weak)

    def reference(
        self,
        operand: Any,
        indices: Any,
        updates: Any,
        *,
        dims: WindowDims,
        mode: str,
        unique: bool,
    ) -> Any:
        """Writes row by row, in order, into a copy of the operand as a matrix."""
        if not operand.size:
            return operand
        sizes = dims.window_sizes(updates.shape, operand.ndim)
        rows = Rows(operand.shape, indices, dims, sizes)
        matrix = np.array(rows.of_operand(widened(operand)), order="C")
        numbers, values = rows.numbers, rows.of_windows(widened(updates))
        if mode == "fill":
            numbers, values = numbers[rows.inside], values[rows.inside]
        self.numpy(matrix, numbers, values)
        return rows.as_operand(matrix).astype(operand.dtype, copy=False)

    def padded(
        self,
        pads: Pads,
        operand: Padded,
        indices: Padded,
        updates: Padded,
        *,
        dims: WindowDims,
        mode: str,
        unique: bool,
    ) -> Any:
        """Indices are moved inside of the prefix; padding among them writes nothing."""
        ndim = operand.array.type.ndim
        shapes = zip(*updates.sizes, strict=True) if updates.sizes else [()] * 3
        columns = [dims.window_sizes(tuple(shape), ndim) for shape in shapes]
        windows = [Extent(*row) for row in zip(*columns, strict=True)]
        for axis, window in enumerate(windows):
            if window.varies and window != operand.sizes[axis]:
                raise pads.cannot(f"a window varies along axis {axis}, not all of it")
        drops = bool(indices.varying)
        moves = drops and mode != "fill"
        places = padded_vectors(pads, operand, indices, dims, windows, mode, moves)
        if drops:
            mode = "fill"
            outside = literal(max(operand.array.type.shape), places.type.dtype)
            places = filled(pads, indices.with_array(places), outside)
        return self(
            operand.array,
            places,
            updates.array,
            dims=dims,
            mode=mode,
            unique=unique,
        )

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        dims: WindowDims,
        **params: Any,
    ) -> tuple[Any, bool]:
        """A batching axis if the indices have it, else one more axis of the windows."""
        if not any(mapped):
            return self(*args, dims=dims, **params), False
        operand, indices, updates = args
        ends = (operand, updates), (mapped[0], mapped[2])
        operand, updates = all_along(axis, *ends)
        dims = dims.raised(True, mapped[1])
        return self(operand, indices, updates, dims=dims, **params), True

    def _is_native(self, operand: ArrayType) -> bool:
        """Kernels combine complex elements by sums only."""
        return self.combine != "mul" or not dtypes.is_complex(operand.dtype)

    def steps(
        self,
        plan: Any,
        operand: Any,
        indices: Any,
        updates: Any,
        *,
        dims: WindowDims,
        mode: str,
        unique: bool,
    ) -> None:
        """A copy of the operand, then the updates in order."""
        if not self._is_native(operand.type):
            plan.host()
            return
        shape, domain = operand.type.shape, updates.type.shape
        sizes = dims.window_sizes(domain, len(shape))

        def element(k: Any, index: Any, indices: Any, updates: Any) -> Any:
            place, inside = window_place(
                k, index, shape, indices, dims, sizes, moves=mode != "fill"
            )
            return place, updates(index), inside if mode == "fill" else None

        if isinstance(operand, Literal):
            operand = plan.filled(operand, ())
        domain = domain if operand.type.size else (0,)
        plan.update(operand, (1, 2), domain, element, self.combine, unique)

    def shared_by_threads(self, types: Sequence[ArrayType], params: Any) -> bool:
        """Updates of a stack are applied member by member, by several threads."""
        return self._is_native(types[0])

    def faults(
        self, inputs: Sequence[Any], outputs: Sequence[ArrayType], **params: Any
    ) -> Iterable[Fault]:
        """A window that is not inside of the operand."""
        operand, places, updates = inputs
        dims, shape = params["dims"], operand.type.shape
        sizes = dims.window_sizes(updates.type.shape, len(shape))
        return vectors_outside(places, dims.start_index_map, shape, sizes)

    def pulled(self, types: Sequence[ArrayType], params: Any) -> dict[int, Pulled]:
        """The updates, and the indices where the windows lie one after the other."""
        if not self._is_native(types[0]):
            return {}
        outer = params["dims"].batch_axes(types[2].ndim)
        in_order = outer == tuple(range(len(outer)))
        how = Pulled(ordered=True, serial=True)
        return {1: how, 2: how} if in_order else {2: how}


class _Set(Copying, Scatter):
    linear = True

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """Linear in operand and updates together."""
        return self(*primals, **params), self(*_moved(primals, tangents), **params)

    def transpose(
        self,
        ct: Any,
        operand: Any,
        indices: Any,
        updates: Any,
        *,
        dims: WindowDims,
        mode: str,
        unique: bool,
    ) -> tuple[Any, None, Any]:
        """To the operand where nothing was written, else to the update that won."""
        params: dict[str, Any] = {"dims": dims, "mode": mode}
        to_operand = to_updates = None
        if is_linear(operand):
            zeros = zeros_like(updates)
            to_operand = self(ct, indices, zeros, unique=unique, **params)
        if is_linear(updates):
            sizes = dims.window_sizes(updates.shape, len(operand.type.shape))
            to_updates = gather(ct, indices, sizes=sizes, fill_value=0, **params)
            if not unique:
                ids = _numbered(updates.shape)
                none = full(ct.shape, ids.dtype, -1)
                last = self(none, indices, ids, **params)
                winner = gather(last, indices, sizes=sizes, fill_value=-1, **params)
                to_updates = select(eq(winner, ids), to_updates, 0)
        return to_operand, None, to_updates


class _Add(Scatter):
    linear = True

    jvp = _Set.jvp

    def links(
        self,
        position: int,
        types: Sequence[ArrayType],
        out: ArrayType,
        known: Sequence[Any],
        *,
        dims: WindowDims,
        mode: str,
        unique: bool,
    ) -> Links | None:
        """Each element of the operand to its place, each update to where it is added.

        A gather of the places' numbers tells where that is.
        """
        if position == 0:
            return same(out.shape)
        sizes = dims.window_sizes(types[2].shape, out.ndim)
        params = {"dims": dims, "sizes": sizes, "mode": mode, "fill_value": None}
        given = [out, types[1]]
        found = copied(gather, 0, [None, known[1]], given, params)
        return None if found is None else found[::-1]

    def transpose(
        self,
        ct: Any,
        operand: Any,
        indices: Any,
        updates: Any,
        *,
        dims: WindowDims,
        mode: str,
        unique: bool,
    ) -> tuple[Any, None, Any]:
        """To the operand as it is, to the updates where they were added."""
        to_updates = None
        if is_linear(updates):
            sizes = dims.window_sizes(updates.shape, ct.ndim)
            to_updates = gather(
                ct, indices, dims=dims, sizes=sizes, mode=mode, fill_value=0
            )
        return ct if is_linear(operand) else None, None, to_updates


class _Mul(Scatter):
    """Derivatives are right where factors are 0: they divide by nothing."""

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The product rule over the operand and all its updates."""
        operand, indices, updates = primals
        moved, _, moved_updates = tangents
        total = None
        if moved is not None:
            ones = full(operand.type.shape, operand.type.dtype, 1)
            total = scale(self(ones, indices, updates, **params), moved)
        if moved_updates is not None:
            change = _change_of_products(
                operand, indices, updates, moved_updates, **params
            )
            total = plus(total, scale(operand, change))
        return self(*primals, **params), total


class _Extremum(Scatter):
    """scatter_min and scatter_max: NaN wins. The tied share the cotangent equally."""

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The mean of the tangents of all that are equal to the output."""
        operand, indices, updates = primals
        moved, _, moved_updates = _moved(primals, tangents)
        out = self(*primals, **params)
        dims, mode = params["dims"], params["mode"]
        sizes = dims.window_sizes(updates.type.shape, len(operand.type.shape))
        result = gather(out, indices, dims=dims, sizes=sizes, mode=mode)
        kept, won = winners(operand, out), winners(updates, result)
        total = scatter_add(
            select(kept, moved, 0), indices, select(won, moved_updates, 0), **params
        )
        dtype = total.dtype
        ends = zero_or_one(kept, dtype), indices, zero_or_one(won, dtype)
        return out, div(total, scatter_add(*ends, **params))


def _set(matrix: Any, rows: Any, values: Any) -> None:
    matrix[rows] = values


scatter = _Set("scatter", ANY + STORED, None, _set)
scatter_add = _Add("scatter_add", NUMBER, "add", np.add.at)
scatter_mul = _Mul("scatter_mul", NUMBER, "mul", np.multiply.at)
scatter_min = _Extremum("scatter_min", REAL, "min", np.minimum.at)
scatter_max = _Extremum("scatter_max", REAL, "max", np.maximum.at)


# ---------------------------------------------------------------- the rules' parts


def _sizes(
    asked: str,
    operand: ArrayType,
    indices: ArrayType,
    updates: ArrayType,
    dims: WindowDims,
) -> Ints:
    """The window's sizes; raises where the ranks do not fit."""
    window, outer = len(dims.offset_dims), max(indices.ndim - 1, 0)
    axes = dims.window_axes(operand.ndim)
    if updates.ndim != window + outer or len(axes) != window:
        reason = (
            f"the updates need {outer} axes of the indices and {len(axes)} axes of "
            f"the operand, which offset_dims={dims.offset_dims} names"
        )
        raise ShapeError(explain(asked, reason))
    if not all(0 <= d < updates.ndim for d in dims.offset_dims):
        raise ShapeError(explain(asked, f"offset_dims must be in [0, {updates.ndim})"))
    return dims.window_sizes(updates.shape, operand.ndim)


def _moved(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any, Any]:
    """The tangents of operand and updates, zeros where there are none."""
    operand, indices, updates = primals
    moved, _, moved_updates = tangents
    return (
        zeros_like(operand) if moved is None else moved,
        indices,
        zeros_like(updates) if moved_updates is None else moved_updates,
    )


def _numbered(shape: Ints) -> Any:
    """An array whose elements are their own row-major offsets."""
    size = int(np.prod(shape, dtype=object))
    dtype = dtypes.int32 if size < 2**31 else dtypes.int64
    return reshape(iota(shape=(size,), dtype=dtype, axis=0), shape=shape)


def _change_of_products(
    operand: Any,
    indices: Any,
    updates: Any,
    moved: Any,
    *,
    dims: WindowDims,
    mode: str,
    unique: bool,
) -> Any:
    """How the product of the updates of each element of the operand changes.

    The updates are sorted by the element that they belong to; the product rule runs
    through each run of equal ones.
    """
    zeros = zeros_like(operand)
    if unique:
        return scatter_add(zeros, indices, moved, dims=dims, mode=mode, unique=True)
    shape, size = operand.type.shape, (updates.type.size,)
    sizes = dims.window_sizes(updates.type.shape, len(shape))
    offsets = _numbered(shape)
    target = gather(offsets, indices, dims=dims, sizes=sizes, mode=mode, fill_value=-1)
    places = iota(shape=size, dtype=dtypes.int32, axis=0)
    # By name: sorting is defined from gathers.
    target, order = primitive("sort")(
        reshape(target, shape=size), places, axis=0, num_keys=1, stable=True
    )
    parts = [points(reshape(x, shape=size), order) for x in (updates, moved)]
    same = eq(before(target, 1, -2, axis=0), target)
    neutral = (False, 1, 0)
    _, _, change = scanned(_product_rule_in_runs, (same, *parts), neutral, axis=0)
    ends = eq(before(target, 1, -2, axis=0, reverse=True), target)
    change = select(ends, 0, change)
    column = reshape(target, shape=(*size, 1))
    flat = reshape(zeros, shape=(operand.type.size,))
    summed = scatter_add(flat, column, change, dims=POINTS, mode="fill")
    return reshape(summed, shape=shape)


def _product_rule_in_runs(left: Parts, right: Parts) -> Parts:
    """(whether no run has begun in the right part, product, its change) in the run."""
    same, product, change = right
    joined, joined_change = product_rule(left[1:], right[1:])
    return (
        select(same, left[0], False),
        select(same, joined, product),
        select(same, joined_change, change),
    )
