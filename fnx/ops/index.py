"""Slices at places known only when the program runs, and the usual gathers.

dynamic_slice and dynamic_update_slice transpose to each other; their starts are moved
inside as in `jax.lax`. Where the starts differ along a batch they become the gathers
and scatters of `gather.py` and `scatter.py`. Receives arrays and integer starts; next
on the walk: `sort.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.array import Array
from fnx.core.faults import Fault
from fnx.core.padding import Extent, Padded, Pads
from fnx.core.primitive import Flow, MappedAxis, Pulled, is_linear
from fnx.core.program import Atom, Eqn, Literal
from fnx.core.types import ArrayType
from fnx.errors import DTypeError, ShapeError, explain
from fnx.ops.arithmetic import add, mul, select, sub
from fnx.ops.bounds import starts_outside
from fnx.ops.elementwise import clamp, convert, eq
from fnx.ops.families import Copying
from fnx.ops.gather import gather
from fnx.ops.pieces import concatenate
from fnx.ops.rearrange import Ints, all_of, check_axes
from fnx.ops.scatter import scatter
from fnx.ops.shape import all_along, broadcast_in_dim, iota, reshape, scalar, zeros_like
from fnx.ops.window_dims import WindowDims, clipped
from fnx.ops.window_prefix import wide_index
from fnx.sizes import usual

_SMALL_PART = 4
"""An update of at most a part like that is written in place rather than fused."""


class _DynamicSlice(Copying):
    """dynamic_slice(x, *starts, sizes): the part of these sizes that begins at starts.

    A start for each axis, integer scalars of one dtype (or Python ints). A part that
    is not inside is moved inside.
    """

    linear = True
    cheap = True
    sized = ("sizes",)

    def __call__(self, x: Any, *starts: Any, sizes: Ints) -> Any:
        return super().__call__(x, *_scalars(starts), sizes=sizes)

    def flow(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], *, sizes: Ints
    ) -> Flow:
        """Axes of which all is taken run along the output."""
        axes = _full_axes(types[0].shape, sizes)
        return Flow((axes, *[()] * (len(types) - 1)), (axes,))

    def localized(
        self, inputs: Sequence[Ints], outputs: Sequence[Ints], *, sizes: Ints
    ) -> dict[str, Any]:
        """All of an axis that is cut, too."""
        return {"sizes": outputs[0]}

    def infer(self, x: ArrayType, *starts: ArrayType, sizes: Ints) -> ArrayType:
        """The operand's dtype in the shape `sizes`."""
        asked = f"dynamic_slice({_shown(x, *starts)}, sizes={sizes})"
        _check_starts(asked, x, starts)
        if len(sizes) != x.ndim or not all(
            0 <= size <= n for size, n in zip(sizes, x.shape, strict=True)
        ):
            reason = f"the sizes must be at most those of the operand, {x.shape}"
            raise ShapeError(explain(asked, reason))
        return x.with_shape(sizes)

    def reference(self, x: Any, *starts: Any, sizes: Ints) -> Any:
        """NumPy's slice after the starts were clipped."""
        return x[_part(x.shape, starts, sizes)]

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The same part of the tangent."""
        return self(*primals, **params), self(tangents[0], *primals[1:], **params)

    def transpose(self, ct: Any, x: Any, *starts: Any, sizes: Ints) -> Sequence[Any]:
        """Puts the cotangent back among zeros."""
        at_x = dynamic_update_slice(zeros_like(x), ct, *starts)
        return at_x, *[None for _ in starts]

    def padded(self, pads: Pads, x: Padded, *starts: Padded, sizes: Ints) -> Any:
        """The start is moved inside of the prefix."""
        begin = _inside(pads, x, starts, pads.sizes[0])
        return self(x.array, *begin, sizes=sizes)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        sizes: Ints,
    ) -> tuple[Any, bool]:
        """The whole of the new axis; a gather where the starts differ along it."""
        x, *starts = args
        if not any(mapped):
            return self(*args, sizes=sizes), False
        if not any(mapped[1:]):
            sizes = (axis.size, *sizes)
            return self(x, _zero(starts), *starts, sizes=sizes), True
        dims = _whole_windows(len(starts)).raised(mapped[0], True)
        indices = _vectors(axis, starts, mapped[1:])
        sizes = (1, *sizes) if mapped[0] else sizes
        return gather(x, indices, dims=dims, sizes=sizes), True

    def element(self, k: Any, index: Any, x: Any, *starts: Any, sizes: Ints) -> Any:
        """The start plus the index."""
        begin = _starts(k, x.shape, starts, sizes)
        return x(tuple([i + low for i, low in zip(index, begin, strict=True)]))

    def faults(
        self, inputs: Sequence[Any], outputs: Sequence[ArrayType], *, sizes: Ints
    ) -> Iterable[Fault]:
        """A window that is not inside of the operand."""
        x, *starts = inputs
        return starts_outside(starts, x.type.shape, sizes)

    def identity(self, inputs: Sequence[Atom], *, sizes: Ints) -> Atom | None:
        """The operand, if the part is the whole."""
        return inputs[0] if sizes == inputs[0].type.shape else None


class _DynamicUpdateSlice(Copying):
    """dynamic_update_slice(x, update, *starts): x with a part replaced by `update`.

    Starts are those of `dynamic_slice`.
    """

    linear = True

    def __call__(self, x: Any, update: Any, *starts: Any) -> Any:
        return super().__call__(x, update, *_scalars(starts))

    def flow(self, types: Sequence[ArrayType], outs: Sequence[ArrayType]) -> Flow:
        """Axes of which all is replaced run along the output."""
        axes = _full_axes(types[0].shape, types[1].shape)
        return Flow((axes, axes, *[()] * (len(types) - 2)), (axes,))

    def cut(self, cutter: Any, eqn: Eqn, parts: Sequence[Any]) -> Any:
        """Along a cut axis each device replaces what it has of the part."""
        x, update, *starts = parts
        shape, sizes = [atom.type.shape for atom in eqn.inputs[:2]]
        rows = zip(x.spec, shape, sizes, strict=True)
        spec = tuple([names if size == n else () for names, n, size in rows])
        partial = [axis for axis, names in enumerate(x.spec) if names != spec[axis]]
        if not partial:
            return None
        new, begin = cutter.moved(update, spec).value, [s.value for s in starts]
        inside = []
        for axis in partial:
            length = x.value.shape[axis]
            start = clamp(begin[axis], 0, shape[axis] - sizes[axis])
            first = mul(cutter.place(x.spec[axis]), scalar(length, dtypes.int32))
            places = iota(shape=(length,), dtype=dtypes.int32, axis=0)
            offset = sub(first, convert(start, dtype=dtypes.int32))
            places = add(places, broadcast_in_dim(offset, shape=(length,), dims=()))
            new = take(new, places, axis)
            inside.append((axis, eq(clamp(places, 0, sizes[axis] - 1), places)))
            begin[axis] = scalar(0, eqn.inputs[2 + axis].type.dtype)
        old = dynamic_slice(x.value, *begin, sizes=new.shape)
        for axis, flags in inside:
            mask = broadcast_in_dim(flags, shape=new.shape, dims=(axis,))
            new = select(mask, new, old)
        return [type(x)(self(x.value, new, *begin), x.spec)]

    def infer(self, x: ArrayType, update: ArrayType, *starts: ArrayType) -> ArrayType:
        """The operand's type."""
        asked = f"dynamic_update_slice({_shown(x, update, *starts)})"
        _check_starts(asked, x, starts)
        if x.dtype != update.dtype:
            raise DTypeError(explain(asked, "the dtypes differ", "convert the update"))
        if update.ndim != x.ndim or not all(
            size <= n for size, n in zip(update.shape, x.shape, strict=True)
        ):
            raise ShapeError(explain(asked, "the update is larger than the operand"))
        return ArrayType(x.shape, x.dtype, x.weak and update.weak)

    def reference(self, x: Any, update: Any, *starts: Any) -> Any:
        """Writes into a copy."""
        out = np.array(x)
        out[_part(out.shape, starts, np.shape(update))] = update
        return out

    def jvp(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        """Linear in both arrays together."""
        pairs = zip(primals[:2], tangents[:2], strict=True)
        moved = [zeros_like(x) if t is None else t for x, t in pairs]
        return self(*primals), self(*moved, *primals[2:])

    def transpose(self, ct: Any, x: Any, update: Any, *starts: Any) -> Sequence[Any]:
        """The part goes to the update, the rest to the operand."""
        at_x = at_update = None
        if is_linear(x):
            at_x = self(ct, zeros_like(update), *starts)
        if is_linear(update):
            at_update = dynamic_slice(ct, *starts, sizes=update.shape)
        return at_x, at_update, *[None for _ in starts]

    def padded(self, pads: Pads, x: Padded, update: Padded, *starts: Padded) -> Any:
        """The start is moved inside of the prefix; an update that varies is all of it.

        Of another one the padding would be written, too.
        """
        for axis in update.varying:
            if x.sizes[axis] != update.sizes[axis]:
                raise pads.cannot(f"axis {axis} of a part that is written varies")
        begin = _inside(pads, x, starts, update.sizes)
        return self(x.array, update.array, *begin)

    def batch(
        self, axis: MappedAxis, args: Sequence[Any], mapped: Sequence[bool]
    ) -> tuple[Any, bool]:
        """The whole of the new axis; a scatter where the starts differ along it."""
        if not any(mapped):
            return self(*args), False
        x, update = all_along(axis, args[:2], mapped[:2])
        starts = args[2:]
        if not any(mapped[2:]):
            return self(x, update, _zero(starts), *starts), True
        dims = _whole_windows(len(starts)).raised(True, True)
        indices = _vectors(axis, starts, mapped[2:])
        return scatter(x, indices, update, dims=dims, unique=True), True

    def element(self, k: Any, index: Any, x: Any, update: Any, *starts: Any) -> Any:
        """The update where the index is inside its part, else the operand."""
        begin = _starts(k, x.shape, starts, update.shape)
        place = tuple([i - low for i, low in zip(index, begin, strict=True)])
        rows = zip(place, update.shape, strict=True)
        inside = all_of(k, [k.inside(i, 0, size) for i, size in rows])
        return k.where(inside, lambda: update(place), lambda: x(index))

    def fusible(self, types: Sequence[ArrayType], params: Any) -> bool:
        """Not where a small part of a large array is written, in a copy or in place."""
        x, update = types[:2]
        return bool(usual(update.size) * _SMALL_PART > usual(x.size))

    def steps(self, plan: Any, x: Any, update: Any, *starts: Any) -> None:
        """Writes the part; the rest need not be touched where the operand ends."""

        def element(k: Any, index: Any, pulled: Any, *lows: Any) -> Any:
            begin = _starts(k, x.type.shape, lows, update.type.shape)
            place = tuple([i + low for i, low in zip(index, begin, strict=True)])
            return place, pulled(index), None

        pulled = tuple(range(1, 2 + len(starts)))
        plan.update(x, pulled, update.type.shape, element, None)

    def pulled(self, types: Sequence[ArrayType], params: Any) -> dict[int, Pulled]:
        """The update, in order."""
        return {1: Pulled(ordered=True, serial=True)}

    def faults(
        self, inputs: Sequence[Any], outputs: Sequence[ArrayType]
    ) -> Iterable[Fault]:
        """A window that is not inside of the operand."""
        x, update, *starts = inputs
        return starts_outside(starts, x.type.shape, update.type.shape)

    def identity(self, inputs: Sequence[Atom]) -> Atom | None:
        """The update, if it replaces everything."""
        x, update = inputs[:2]
        return update if update.type.shape == x.type.shape else None


def _inside(
    pads: Pads, x: Padded, starts: Sequence[Padded], sizes: Sequence[Extent]
) -> list[Any]:
    """Starts from which a part of these sizes is inside of the prefix."""
    moved = [wide_index(start.array) for start in starts]
    for axis in x.varying:
        start, last = moved[axis], x.sizes[axis].minus(sizes[axis])
        if last.now > last.largest:
            raise pads.cannot(f"the part grows more than axis {axis}")
        most = convert(pads.number(last), dtype=start.type.dtype)
        moved[axis] = clamp(scalar(0, start.type.dtype), start, most)
    return moved


dynamic_slice = _DynamicSlice("dynamic_slice")
dynamic_update_slice = _DynamicUpdateSlice("dynamic_update_slice")


# ---------------------------------------------------------------- the usual gathers


def take(
    x: Any, indices: Any, axis: int, mode: str = "clip", fill_value: Any = None
) -> Any:
    """The slices of an array at these places of one axis, which become its new axes.

    >>> import fnx.runtime.eager
    >>> from fnx.runtime.array import from_numpy
    >>> x = from_numpy(np.arange(12).reshape(3, 4))
    >>> take(x, from_numpy(np.array([2, 0])), 1)
    Array([[ 2,  0],
           [ 6,  4],
           [10,  8]], dtype=int64)
    """
    ndim, count = len(x.type.shape), len(indices.type.shape)
    check_axes(f"take({_shown(x.type, indices.type)}, axis={axis})", x.type, (axis,))
    window = (*range(axis), *range(axis + count, ndim - 1 + count))
    dims = WindowDims(window, (axis,), (axis,))
    sizes = tuple([1 if d == axis else n for d, n in enumerate(x.type.shape)])
    vectors = reshape(indices, shape=(*indices.type.shape, 1))
    return gather(x, vectors, dims=dims, sizes=sizes, mode=mode, fill_value=fill_value)


def take_along(
    x: Any, indices: Any, axis: int, mode: str = "clip", fill_value: Any = None
) -> Any:
    """The elements of an array at places of one axis that differ along the others.

    `indices` has the shape of x but for the axis.

    >>> import fnx.runtime.eager
    >>> from fnx.runtime.array import from_numpy
    >>> x = from_numpy(np.array([[5, 6], [7, 8]]))
    >>> take_along(x, from_numpy(np.array([[1], [0]])), 1)
    Array([[6],
           [7]], dtype=int64)
    """
    ndim = len(x.type.shape)
    asked = f"take_along({_shown(x.type, indices.type)}, axis={axis})"
    check_axes(asked, x.type, (axis,))
    if len(indices.type.shape) != ndim:
        raise ShapeError(explain(asked, "the ranks differ", "broadcast the indices"))
    others = tuple([d for d in range(ndim) if d != axis])
    dims = WindowDims((), (axis,), (axis,), others, others)
    vectors = reshape(indices, shape=(*indices.type.shape, 1))
    ones = (1,) * ndim
    return gather(x, vectors, dims=dims, sizes=ones, mode=mode, fill_value=fill_value)


# ---------------------------------------------------------------- the rules' parts


def _full_axes(shape: Ints, sizes: Ints) -> tuple[int | None, ...]:
    """The axes of which a part has all, by their numbers; `None` for others."""
    rows = enumerate(zip(shape, sizes, strict=True))
    return tuple([axis if size == n else None for axis, (n, size) in rows])


def _scalars(starts: Sequence[Any]) -> list[Any]:
    """Python ints as literals of the dtype of the arrays beside them."""
    given = [start.type.dtype for start in starts if isinstance(start, Array | Literal)]
    dtype = given[0] if given else dtypes.default_int()
    return [
        start if isinstance(start, Array | Literal) else scalar(start, dtype)
        for start in starts
    ]


def _check_starts(asked: str, x: ArrayType, starts: Sequence[ArrayType]) -> None:
    if len(starts) != x.ndim:
        reason = f"it needs {x.ndim} starts, one for each axis"
        raise ShapeError(explain(asked, reason))
    if any(start.shape for start in starts):
        raise ShapeError(explain(asked, "the starts must be scalars"))
    if any(not dtypes.is_integer(start.dtype) for start in starts):
        raise DTypeError(explain(asked, "the starts must be integers", "convert them"))
    if len({start.dtype for start in starts}) > 1:
        raise DTypeError(explain(asked, "the starts' dtypes differ", "convert them"))


def _shown(*types: ArrayType) -> str:
    return ", ".join(map(str, types))


def _part(shape: Ints, starts: Sequence[Any], sizes: Ints) -> tuple[slice, ...]:
    """The part as a NumPy index."""
    rows = zip(shape, starts, sizes, strict=True)
    begin = [min(max(int(start), 0), n - size) for n, start, size in rows]
    return tuple(
        [slice(low, low + size) for low, size in zip(begin, sizes, strict=True)]
    )


def _starts(k: Any, shape: Ints, starts: Sequence[Any], sizes: Ints) -> list[Any]:
    """The clipped starts as index expressions."""
    rows = zip(shape, starts, sizes, strict=True)
    return [clipped(k, start(()), n - size)[0] for n, start, size in rows]


def _zero(starts: Sequence[Any]) -> Literal:
    """A start at 0 of the dtype of the others."""
    dtype = starts[0].type.dtype if starts else dtypes.default_int()
    return scalar(0, dtype)


def _whole_windows(ndim: int) -> WindowDims:
    """One window that begins anywhere and keeps all axes."""
    axes = tuple(range(ndim))
    return WindowDims(axes, (), axes)


def _vectors(axis: MappedAxis, starts: Sequence[Any], mapped: Sequence[bool]) -> Any:
    """Starts along the new axis as an array of index vectors."""
    shape = (axis.size, 1)
    columns = [
        reshape(x, shape=shape)
        if is_mapped
        else broadcast_in_dim(x, shape=shape, dims=())
        for x, is_mapped in zip(starts, mapped, strict=True)
    ]
    return concatenate(*columns, axis=1)
