"""Reductions over axes: sum, prod, max, min, or, and, argmax, argmin.

Receives an array and the axes to reduce; gives the array without them. 16-bit floats
accumulate in float32 and round once; sums and products of integers keep their dtype.
Over nothing a reduction gives the element that changes nothing (0, 1, -inf, …).
Next on the walk: `rewriting.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis, Primitive
from fnx.core.program import Atom, Eqn
from fnx.core.types import ArrayType
from fnx.errors import AxisError, DTypeError, ShapeError, explain
from fnx.ops.arithmetic import add, eq, mul, scale, select
from fnx.ops.elementwise import div
from fnx.ops.families import BOOL, INTEGER, NUMBER, REAL, kind, widened
from fnx.ops.pieces import padded_along, part_of
from fnx.ops.prefix import extreme, filled
from fnx.ops.rearrange import Ints, check_axes, shifted, without
from fnx.ops.shape import permute, reshaped, restored, scalar


class Reduction(Primitive):
    """Combines the elements along some axes, given in increasing order.

    `kinds` are the dtypes it takes, as letters; `combine` is what a kernel calls it.
    """

    reads = "folded"

    def __init__(self, name: str, kinds: str, combine: str, numpy: np.ufunc) -> None:
        super().__init__(name)
        self.kinds = kinds
        self.combine = combine
        self.numpy = numpy

    def infer(self, x: ArrayType, *, axes: Ints) -> ArrayType:
        """The operand's type without the axes."""
        asked = f"{self.name}({x}, axes={axes})"
        check_kind(asked, x, self.kinds)
        check_axes(asked, x, axes)
        if list(axes) != sorted(axes):
            raise AxisError(explain(asked, "the axes must be in increasing order"))
        kept = [n for d, n in enumerate(x.shape) if d not in axes]
        return x.with_shape(tuple(kept))

    def initial(self, dtype: np.dtype[Any], count: int) -> Any:
        """What NumPy starts from for `count` elements; `None` is its own choice."""
        return None

    def neutral(self, dtype: np.dtype[Any]) -> Any:
        """The number that changes no result."""
        initial = self.initial(dtype, 1)
        if initial is None:
            return np.asarray(self.numpy.identity).astype(dtype).item()
        return initial

    def padded(self, pads: Pads, x: Padded, *, axes: Ints) -> Any:
        """What is behind a prefix that is reduced changes nothing."""
        return self(filled(pads, x, self.neutral(x.array.dtype), axes), axes=axes)

    def reference(self, x: Any, *, axes: Ints) -> Any:
        """NumPy's reduction in the dtype that is computed in."""
        wide = widened(x)
        count = math.prod([np.shape(x)[d] for d in axes])
        initial = self.initial(wide.dtype, count)
        options = {} if initial is None else {"initial": initial}
        value = self.numpy.reduce(wide, axis=axes, dtype=wide.dtype, **options)
        return value.astype(x.dtype, copy=False)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        axes: Ints,
    ) -> tuple[Any, bool]:
        """The same reduction of the axes after the new one."""
        return self(*args, axes=shifted(axes) if mapped[0] else axes), mapped[0]

    def alignment(
        self, position: int, types: Sequence[ArrayType], *, axes: Ints
    ) -> tuple[int | None, ...]:
        """The axes that are kept run along the output, the others are folded."""
        kept = iter(range(types[position].ndim))
        every = range(types[position].ndim)
        return tuple([None if axis in axes else next(kept) for axis in every])

    def element(self, k: Any, index: Any, x: Any, *, axes: Ints) -> Any:
        """A fold over the reduced axes."""
        extents = [x.shape[d] for d in axes]
        ndim = x.type.ndim

        def body(inner: Any) -> Any:
            outer, folded = iter(index), iter(inner)
            at = [next(folded if d in axes else outer) for d in range(ndim)]
            return x(tuple(at))

        return k.fold(self.combine, fold_tag(index), extents, body)

    def identity(self, inputs: Sequence[Atom], *, axes: Ints) -> Atom | None:
        """The operand, if no axis is reduced."""
        return None if axes else inputs[0]


class _Sum(Reduction):
    """reduce_sum(x, axes): the sum over some axes. Transposes to a broadcast."""

    linear = True

    def initial(self, dtype: np.dtype[Any], count: int) -> Any:
        """-0.0, which unlike 0.0 changes no number: kernels start from it, too."""
        if not count or not dtypes.is_inexact(dtype):
            return None
        return complex(-0.0, -0.0) if dtypes.is_complex(dtype) else -0.0

    def taken_by(self, maker: Eqn, *, axes: Ints) -> dict[str, Any] | None:
        """Matrix products can sum over their stack."""
        types = [atom.type for atom in maker.inputs]
        return maker.primitive.summed(axes, types, maker.params)

    def summed(
        self, axes: Sequence[int], types: Sequence[ArrayType], params: Any
    ) -> dict[str, Any]:
        """A sum over more axes."""
        (taken,) = params.values()
        ndim = len(taken) + 1 + max(axes)
        left = [d for d in range(ndim) if d not in taken]
        return {"axes": tuple(sorted([*taken, *[left[d] for d in axes]]))}

    def over_rows(self, *, axes: Ints) -> dict[str, Any]:
        """The new leading axis is summed over, too."""
        return {"axes": (0, *[axis + 1 for axis in axes])}

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, axes: Ints
    ) -> tuple[Any, Any]:
        """Linear."""
        return self(*primals, axes=axes), self(*tangents, axes=axes)

    def transpose(self, ct: Any, x: Any, *, axes: Ints) -> tuple[Any]:
        """Every element that was added gets the cotangent."""
        return (restored(ct, axes, x.shape),)


class _Extremum(Reduction):
    """reduce_max and reduce_min: NaN wins. The tied share the cotangent equally."""

    def initial(self, dtype: np.dtype[Any], count: int) -> Any:
        """The value that every other one beats."""
        lowest = self.combine == "max"
        if dtypes.is_float(dtype):
            return -math.inf if lowest else math.inf
        info = np.iinfo(dtype)
        return info.min if lowest else info.max

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, axes: Ints
    ) -> tuple[Any, Any]:
        """The mean of the tangents of the elements that are equal to the output."""
        (x,), (t,) = primals, tangents
        out = self(x, axes=axes)
        if not math.prod([x.type.shape[d] for d in axes]):
            return out, None
        mask = winners(x, restored(out, axes, x.type.shape))
        total = reduce_sum(select(mask, t, 0), axes=axes)
        count = reduce_sum(zero_or_one(mask, t.dtype), axes=axes)
        return out, div(total, count)


class _Product(Reduction):
    """reduce_prod(x, axes): the product. Its derivatives are right at zeros, too."""

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, axes: Ints
    ) -> tuple[Any, Any]:
        """The product rule up a tree of pairs.

        It divides by nothing, so that zeros in the data do no harm at any order.
        """
        (x,), (t,) = primals, tangents
        out = self(x, axes=axes)
        product, tangent = self._in_front(x, axes), self._in_front(t, axes)
        size = product.shape[0]
        if not size:
            return out, None
        while size > 1:
            if size % 2:
                product = padded_along(product, 0, 0, 1, 1)
                tangent = padded_along(tangent, 0, 0, 1)
            half = (size + 1) // 2
            a, b = [part_of(product, 0, i, i + half) for i in (0, half)]
            ta, tb = [part_of(tangent, 0, i, i + half) for i in (0, half)]
            product, tangent = mul(a, b), add(scale(b, ta), scale(a, tb))
            size = half
        return out, reshaped(tangent, out.shape)

    def _in_front(self, x: Any, axes: Ints) -> Any:
        """The reduced axes as one, before the others."""
        shape = x.type.shape
        kept = tuple([d for d in range(len(shape)) if d not in axes])
        size = math.prod([shape[d] for d in axes])
        moved = permute(x, dims=axes + kept)
        return reshaped(moved, (size, *[shape[d] for d in kept]))


class _Logical(Reduction):
    """reduce_or and reduce_and: of booleans, or of the bits of integers."""

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, axes: Ints
    ) -> tuple[Any, None]:
        """A step function has derivative zero."""
        return self(*primals, axes=axes), None


class _Place(Primitive):
    """argmax and argmin: the index of the first NaN, else of the first best element."""

    reads = "folded"

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        axis: int,
        **params: Any,
    ) -> Flow:
        """The other axes run along the output."""
        axes = list(range(outs[0].ndim))
        return Flow(((*axes[:axis], None, *axes[axis:]),), (tuple(axes),))

    def infer(
        self, x: ArrayType, *, axis: int, index_dtype: np.dtype[Any]
    ) -> ArrayType:
        """The operand's shape without the axis, in `index_dtype`."""
        asked = f"{self.name}({x}, axis={axis}, index_dtype={index_dtype})"
        check_kind(asked, x, BOOL + REAL)
        check_axes(asked, x, (axis,))
        size = x.shape[axis]
        if not size:
            raise ShapeError(explain(asked, f"axis {axis} has no elements"))
        if not dtypes.is_integer(index_dtype):
            raise DTypeError(explain(asked, "an index is an integer", "use int32"))
        if size - 1 > np.iinfo(index_dtype).max:
            raise DTypeError(explain(asked, "the indices do not fit", "use int64"))
        return ArrayType(without(x.shape, axis), index_dtype)

    def reference(self, x: Any, *, axis: int, index_dtype: np.dtype[Any]) -> Any:
        """NumPy's argmax and argmin."""
        # As a method: NumPy's function takes as long again.
        return np.asarray(getattr(widened(x), self.name)(axis), index_dtype)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """An index does not move."""
        return self(*primals, **params), None

    def padded(self, pads: Pads, x: Padded, *, axis: int, **params: Any) -> Any:
        """What is behind a prefix wins nowhere: of equal elements the first wins."""
        worst = extreme(x.array.dtype, lowest=self.name == "argmax")
        return self(filled(pads, x, worst, (axis,)), axis=axis, **params)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        /,  # the params have an axis, too
        **params: Any,
    ) -> tuple[Any, bool]:
        """The same of the next axis."""
        if mapped[0]:
            params["axis"] += 1
        return self(*args, **params), mapped[0]

    def element(
        self, k: Any, index: Any, x: Any, *, axis: int, index_dtype: np.dtype[Any]
    ) -> Any:
        """A fold of pairs of a value and its place."""

        def body(inner: Any) -> Any:
            value = x((*index[:axis], *inner, *index[axis:]))
            if dtypes.is_bool(x.dtype):
                value = k.convert(value, dtypes.int32)
            return value, k.index_value(inner[0], index_dtype)

        return k.fold(self.name, fold_tag(index), (x.shape[axis],), body)[1]


reduce_sum = _Sum("reduce_sum", NUMBER, "add", np.add)
reduce_prod = _Product("reduce_prod", NUMBER, "mul", np.multiply)
reduce_max = _Extremum("reduce_max", REAL, "max", np.maximum)
reduce_min = _Extremum("reduce_min", REAL, "min", np.minimum)
reduce_or = _Logical("reduce_or", BOOL + INTEGER, "or", np.bitwise_or)
reduce_and = _Logical("reduce_and", BOOL + INTEGER, "and", np.bitwise_and)
argmax = _Place("argmax")
argmin = _Place("argmin")


# ---------------------------------------------------------------- for other rules


def fold_tag(index: Sequence[Any]) -> tuple[str, int]:
    """The tag for the loops of a fold that computes the element at an index.

    It tells the fold's loops from those of the folds around it, whose indices stand in
    the index; folds side by side get the same tag, so that they can share a loop.
    """
    loops = [loop for i in index for loop in getattr(i, "free", ())]
    tags = [loop.tag[0] for loop in loops]
    depths = [tag[1] for tag in tags if isinstance(tag, tuple) and tag[0] == "fold"]
    return "fold", max(depths, default=0) + 1


def winners(x: Any, best: Any) -> Any:
    """Whether an element is equal to the best; a NaN, which beats all, always is."""
    return select(eq(x, x), eq(x, best), True)


def zero_or_one(mask: Any, dtype: np.dtype[Any]) -> Any:
    """A boolean array as numbers of that dtype."""
    return select(mask, scalar(1, dtype), scalar(0, dtype))


def check_kind(asked: str, x: ArrayType, kinds: str) -> None:
    """Raises unless the operation takes arrays of that dtype."""
    if kind(x.dtype) not in kinds:
        words = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}
        allowed = ", ".join([words[letter] for letter in kinds])
        reason = f"dtype {x.dtype} is not supported; it takes {allowed}"
        raise DTypeError(explain(asked, reason, "convert it"))
