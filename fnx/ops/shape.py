"""Operations that give the same elements in another order or shape, and iota.

All are linear: a broadcast transposes to the `reduce_sum` of `reduce.py`, the others to
themselves with other params. Here are also the small tools of other rules that are made
of a broadcast, as `full` and `zeros_like`. Receives arrays, gives arrays of the same
dtype. Next on the walk: `pieces.py`, which cuts arrays and puts them together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.layout import Layout, reshaped_layout
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis, primitive
from fnx.core.program import Atom, Eqn, Literal, Var
from fnx.core.types import ArrayType
from fnx.errors import AxisError, DTypeError, ShapeError, explain
from fnx.kernel.expr import linear_offset, unravel
from fnx.ops.families import Nullary, along
from fnx.ops.prefix import padded_reshape, padded_reverse
from fnx.ops.rearrange import (
    Ints,
    Rearrangement,
    check_axes,
    check_sizes,
    inverse,
    shifted,
)


class _Broadcast(Rearrangement):
    """broadcast_in_dim(x, shape, dims): axis i of x becomes axis dims[i] of the output.

    Axes of size 1 are repeated, and so is x along all other axes. `dims` increase.
    x may be a Python scalar.
    """

    reads = "many"
    sized = ("shape",)

    def infer(self, x: ArrayType, *, shape: Ints, dims: Ints) -> ArrayType:
        """The operand's dtype with the new shape."""
        asked = f"broadcast_in_dim({x}, shape={shape}, dims={dims})"
        if len(dims) != x.ndim or list(dims) != sorted(set(dims)):
            reason = f"dims must name {x.ndim} axes in increasing order"
            raise ShapeError(explain(asked, reason, "permute first"))
        if dims and not (dims[0] >= 0 and dims[-1] < len(shape)):
            raise AxisError(explain(asked, f"dims must be in [0, {len(shape)})"))
        check_sizes(asked, shape)
        for size, dim in zip(x.shape, dims, strict=True):
            if size not in (1, shape[dim]):
                reason = f"size {size} does not fit size {shape[dim]} of axis {dim}"
                raise ShapeError(explain(asked, reason, "only size 1 is repeated"))
        return x.with_shape(shape)

    def reference(self, x: Any, *, shape: Ints, dims: Ints) -> Any:
        """NumPy's broadcast, after the missing axes were put in."""
        inner = [1] * len(shape)
        for size, dim in zip(np.shape(x), dims, strict=True):
            inner[dim] = size
        return np.broadcast_to(np.reshape(x, inner), shape)

    def transpose(self, ct: Any, x: Any, *, shape: Ints, dims: Ints) -> tuple[Any]:
        """Sums over what was repeated."""
        kept = {d for d, n in zip(dims, x.shape, strict=True) if n == shape[d]}
        axes = tuple([d for d in range(len(shape)) if d not in kept])
        if axes:
            # By name: reductions are defined from the operations in this file.
            ct = primitive("reduce_sum")(ct, axes=axes)
        return (reshaped(ct, x.shape),)

    def raised(self, size: int, *, shape: Ints, dims: Ints) -> dict[str, Any]:
        """Maps the new axis to the new axis."""
        return {"shape": (size, *shape), "dims": (0, *shifted(dims))}

    def alignment(
        self, position: int, types: Sequence[ArrayType], *, shape: Ints, dims: Ints
    ) -> Ints:
        """Each axis of the operand runs along its axis of the output."""
        return dims

    def viewed(
        self, layout: Layout, x: ArrayType, *, shape: Ints, dims: Ints
    ) -> Layout:
        """Along an axis that is repeated, every element lies at the same place."""
        strides = [0] * len(shape)
        for d, size, stride in zip(dims, x.shape, layout.strides, strict=True):
            strides[d] = 0 if size == 1 else stride
        return Layout(layout.offset, tuple(strides))

    def element(self, k: Any, index: Any, x: Any, *, shape: Ints, dims: Ints) -> Any:
        """The element that is repeated."""
        sizes = zip(x.shape, dims, strict=True)
        return x(tuple([0 if n == 1 else index[d] for n, d in sizes]))

    def still(self, x: ArrayType, *, shape: Ints, dims: Ints) -> bool:
        """The same shape."""
        return x.shape == shape


class _Reshape(Rearrangement):
    """reshape(x, shape): the same elements in row-major order with another shape."""

    sized = ("shape",)

    def infer(self, x: ArrayType, *, shape: Ints) -> ArrayType:
        """The operand's dtype with the new shape."""
        asked = f"reshape({x}, shape={shape})"
        check_sizes(asked, shape)
        if math.prod(shape) != x.size:
            reason = f"it has {x.size} elements, the new shape {math.prod(shape)}"
            raise ShapeError(explain(asked, reason))
        return x.with_shape(shape)

    def reference(self, x: Any, *, shape: Ints) -> Any:
        """NumPy's reshape."""
        return x.reshape(shape)

    def transpose(self, ct: Any, x: Any, *, shape: Ints) -> tuple[Any]:
        """The reshape back."""
        return (reshaped(ct, x.shape),)

    def padded(self, pads: Pads, x: Padded, *, shape: Ints) -> Any:
        """A prefix stays one, or its elements are looked up."""
        return padded_reshape(pads, x, shape)

    def raised(self, size: int, *, shape: Ints) -> dict[str, Any]:
        """Keeps the new axis."""
        return {"shape": (size, *shape)}

    def alignment(
        self, position: int, types: Sequence[ArrayType], *, shape: Ints
    ) -> Ints | None:
        """The axes keep their order where only axes of length 1 come and go."""
        before = types[position].shape
        long = [axis for axis, size in enumerate(shape) if size != 1]
        if [shape[axis] for axis in long] != [size for size in before if size != 1]:
            return None
        kept = iter(long)
        # The index of an axis of length 1 is 0, whatever it runs along.
        return tuple([next(kept) if size != 1 else 0 for size in before])

    def cut(self, cutter: Any, eqn: Any, parts: Sequence[Any]) -> Any:
        """Neighbours in the mesh stay neighbours in the array; others are gathered."""
        (part,), shape = parts, eqn.params["shape"]
        before = eqn.inputs[0].type.shape
        given: list[Any] = [()] * len(before)
        spec: list[Any] = [()] * len(shape)
        for old, new in merged_axes(before, shape):
            names = _leading(before, old, part.spec, cutter)
            rest = names
            for axis in new:
                spec[axis], rest = _dividing(shape[axis], rest, cutter)
                if cutter.count(spec[axis]) < shape[axis]:
                    break
            names = names[: len(names) - len(rest)]
            for axis in old:
                given[axis] = names[: len(part.spec[axis])]
                names = names[len(given[axis]) :]
        x = cutter.moved(part, tuple(given)).value
        local = cutter.local(shape, tuple(spec))
        return [type(part)(self(x, shape=local), tuple(spec))]

    def viewed(self, layout: Layout, x: ArrayType, *, shape: Ints) -> Layout | None:
        """Axes are merged and cut, if the strides allow it."""
        return reshaped_layout(layout, x.shape, shape)

    def element(self, k: Any, index: Any, x: Any, *, shape: Ints) -> Any:
        """The element at the same place in row-major order."""
        if x.type.size <= 1:
            return x((0,) * x.type.ndim)
        return x(unravel(linear_offset(index, shape), x.shape))  # type: ignore[arg-type]

    def still(self, x: ArrayType, *, shape: Ints) -> bool:
        """The same shape."""
        return x.shape == shape


class _Permute(Rearrangement):
    """permute(x, dims): axis dims[i] of x becomes axis i of the output."""

    def infer(self, x: ArrayType, *, dims: Ints) -> ArrayType:
        """The operand's type with its axes in the new order."""
        if sorted(dims) != list(range(x.ndim)):
            reason = f"dims must be a permutation of the {x.ndim} axes"
            raise AxisError(explain(f"permute({x}, dims={dims})", reason))
        return x.with_shape(tuple([x.shape[d] for d in dims]))

    def reference(self, x: Any, *, dims: Ints) -> Any:
        """NumPy's transpose."""
        return np.transpose(x, dims)

    def transpose(self, ct: Any, x: Any, *, dims: Ints) -> tuple[Any]:
        """The inverse permutation."""
        return (permute(ct, dims=inverse(dims)),)

    def raised(self, size: int, *, dims: Ints) -> dict[str, Any]:
        """Keeps the new axis in front."""
        return {"dims": (0, *shifted(dims))}

    def alignment(
        self, position: int, types: Sequence[ArrayType], *, dims: Ints
    ) -> Ints:
        """Each axis of the operand runs along the place where it is put."""
        return inverse(dims)

    def viewed(self, layout: Layout, x: ArrayType, *, dims: Ints) -> Layout:
        """The strides in the new order."""
        return Layout(layout.offset, tuple([layout.strides[d] for d in dims]))

    def written(self, layout: Layout, *, dims: Ints) -> Layout:
        """The strides in the old order."""
        return Layout(layout.offset, tuple([layout.strides[i] for i in inverse(dims)]))

    def element(self, k: Any, index: Any, x: Any, *, dims: Ints) -> Any:
        """The index in the operand's order."""
        return x(tuple([index[i] for i in inverse(dims)]))

    def absorb(
        self, inputs: Sequence[Atom], makers: Mapping[Var, Eqn], *, dims: Ints
    ) -> tuple[Sequence[Atom], dict[str, Any]] | None:
        """Two permutations are one."""
        (x,) = inputs
        maker = makers.get(x) if isinstance(x, Var) else None
        if maker is None or maker.primitive is not self:
            return None
        inner: Ints = maker.params["dims"]
        return maker.inputs, {"dims": tuple([inner[d] for d in dims])}

    def still(self, x: ArrayType, *, dims: Ints) -> bool:
        """The shape stays, and so does the order of the axes longer than 1."""
        long = [d for d in dims if x.shape[d] != 1]
        return long == sorted(long) and x.shape == tuple([x.shape[d] for d in dims])


class _Reverse(Rearrangement):
    """reverse(x, axes): the elements in opposite order along those axes."""

    def flow(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], *, axes: Ints
    ) -> Flow:
        """The other axes run along the output."""
        return kept_axes(types, outs, axes)

    def infer(self, x: ArrayType, *, axes: Ints) -> ArrayType:
        """The operand's type."""
        check_axes(f"reverse({x}, axes={axes})", x, axes)
        return x

    def reference(self, x: Any, *, axes: Ints) -> Any:
        """NumPy's flip."""
        return np.flip(x, axes)

    def transpose(self, ct: Any, x: Any, *, axes: Ints) -> tuple[Any]:
        """Its own transpose."""
        return (reverse(ct, axes=axes),)

    def padded(self, pads: Pads, x: Padded, *, axes: Ints) -> Any:
        """The padding, which comes first then, is cut off."""
        return padded_reverse(pads, x, axes)

    def raised(self, size: int, *, axes: Ints) -> dict[str, Any]:
        """Leaves the new axis alone."""
        return {"axes": shifted(axes)}

    def element(self, k: Any, index: Any, x: Any, *, axes: Ints) -> Any:
        """The index counted from the end."""
        rows = enumerate(zip(index, x.shape, strict=True))
        return x(tuple([n - 1 - i if d in axes else i for d, (i, n) in rows]))

    def still(self, x: ArrayType, *, axes: Ints) -> bool:
        """Only axes of at most one element are reversed."""
        return all(x.shape[d] <= 1 for d in axes)


class _Iota(Nullary):
    """iota(shape, dtype, axis): every element is its own index along the axis."""

    sized = ("shape",)
    cheap = True
    lanewise = True

    def infer(self, *, shape: Ints, dtype: np.dtype[Any], axis: int) -> ArrayType:
        """An array of that shape and dtype."""
        asked = f"iota(shape={shape}, dtype={dtype}, axis={axis})"
        if dtypes.is_bool(dtype):
            raise DTypeError(explain(asked, "an index is no bool", "compare integers"))
        check_sizes(asked, shape)
        type = ArrayType(shape, dtype)
        check_axes(asked, type, (axis,))
        return type

    def reference(self, *, shape: Ints, dtype: np.dtype[Any], axis: int) -> Any:
        """NumPy's arange, repeated along the other axes."""
        column = (shape[axis],) + (1,) * (len(shape) - axis - 1)
        counted = np.arange(shape[axis]).astype(dtype)
        return np.broadcast_to(counted.reshape(column), shape)

    def element(
        self, k: Any, index: Any, *, shape: Ints, dtype: np.dtype[Any], axis: int
    ) -> Any:
        """The index itself."""
        return k.index_value(index[axis], dtype)


broadcast_in_dim = _Broadcast("broadcast_in_dim")
reshape = _Reshape("reshape")
permute = _Permute("permute")
reverse = _Reverse("reverse")
iota = _Iota("iota")


# ---------------------------------------------------------------- for other rules


def full(shape: Ints, dtype: np.dtype[Any], value: Any) -> Any:
    """An array of that shape and dtype with all elements equal to a Python scalar.

    >>> import fnx.runtime.eager
    >>> full((2, 2), dtypes.int32, 7)
    Array([[7, 7],
           [7, 7]], dtype=int32)
    """
    return broadcast_in_dim(scalar(value, dtype), shape=shape, dims=())


def scalar(value: Any, dtype: np.dtype[Any]) -> Literal:
    """A literal of that dtype, which is not weak."""
    return Literal(value, ArrayType((), dtype))


def zeros_like(x: Any) -> Any:
    """Zeros of the shape and dtype of an array, a literal or a linear input."""
    return full(x.type.shape, x.type.dtype, 0)


def all_along(
    axis: MappedAxis, args: Sequence[Any], mapped: Sequence[bool]
) -> list[Any]:
    """The arguments, those that are not mapped repeated along the new axis."""
    rows = zip(args, mapped, strict=True)
    return [x if is_mapped else along(axis, x) for x, is_mapped in rows]


def restored(x: Any, axes: Ints, shape: Ints) -> Any:
    """A reduced array repeated along the axes of `shape` that were reduced."""
    dims = tuple([d for d in range(len(shape)) if d not in axes])
    return broadcast_in_dim(x, shape=shape, dims=dims)


def kept_axes(
    types: Sequence[ArrayType], outs: Sequence[ArrayType], whole: Sequence[int]
) -> Flow:
    """The flow of arrays of one rank, some of whose axes have to be whole."""
    axes = tuple([None if d in whole else d for d in range(outs[0].ndim)])
    return Flow((axes,) * len(types), (axes,) * len(outs))


def _leading(
    shape: Ints, axes: Sequence[int], spec: Sequence[Any], cutter: Any
) -> tuple[Any, ...]:
    """What cuts axes that are merged so that each device has one stretch of them."""
    found: list[Any] = []
    for axis in axes:
        found += spec[axis]
        if cutter.count(spec[axis]) < shape[axis]:
            break
    return tuple(found)


def _dividing(
    size: int, names: tuple[Any, ...], cutter: Any
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first names as far as they cut an axis in equal parts, and the others."""
    count = 0
    while count < len(names) and cutter.divides(size, names[: count + 1]):
        count += 1
    return names[:count], names[count:]


def merged_axes(before: Ints, after: Ints) -> list[tuple[list[int], list[int]]]:
    """Which neighbouring axes become which: the shortest groups of equal sizes.

    >>> merged_axes((2, 3, 4), (6, 2, 2))
    [([0, 1], [0]), ([2], [1, 2])]
    """
    groups = []
    i = j = 0
    while i < len(before) or j < len(after):
        start, begin = i, j
        left = right = 1
        while i < len(before) or j < len(after):
            if i < len(before) and (left <= right or j == len(after)):
                left, i = left * before[i], i + 1
            else:
                right, j = right * after[j], j + 1
            if left == right and i > start and j > begin:
                break
        groups.append((list(range(start, i)), list(range(begin, j))))
    return groups


def reshaped(x: Any, shape: Ints) -> Any:
    """The array with that shape; itself if it has it already."""
    return x if x.type.shape == shape else reshape(x, shape=shape)
