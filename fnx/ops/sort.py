"""sort and top_k: orders along an axis, and their derivatives.

Receives arrays of one shape, gives them in the order of the first ones. The order is
JAX's: NaN last, -0.0 and 0.0 equal, complex numbers by real, then imaginary part; equal
elements keep their order. A derivative follows the permutation.
Next on the walk: `largest.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis
from fnx.core.trace import bind
from fnx.core.types import ArrayType
from fnx.ops.families import OnHost, widened
from fnx.ops.gather import gather
from fnx.ops.largest import largest_places
from fnx.ops.prefix import extreme, filled
from fnx.ops.rearrange import check_axes
from fnx.ops.shape import all_along, iota, kept_axes, reshape
from fnx.ops.window_dims import WindowDims


class _Sort(OnHost):
    """sort(*operands, axis, num_keys, stable): all operands in the order of the keys.

    The first `num_keys` operands are the keys, the first of them the most significant.
    """

    multiple = True
    routine = "sort"

    def __call__(
        self, *operands: Any, axis: int, num_keys: int = 1, stable: bool = True
    ) -> Any:
        return bind(
            self, operands, {"axis": axis, "num_keys": num_keys, "stable": stable}
        )

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        axis: int,
        **params: Any,
    ) -> Flow:
        """The other axes run along the outputs."""
        return kept_axes(types, outs, (axis,))

    def infer(
        self, *types: ArrayType, axis: int, num_keys: int = 1, stable: bool = True
    ) -> tuple[ArrayType, ...]:
        """The operands' types; their shapes are equal."""
        asked = f"sort({', '.join(map(str, types))}, axis={axis}, num_keys={num_keys})"
        if not types or any(t.shape != types[0].shape for t in types):
            raise errors.ShapeError(
                errors.explain(asked, "it takes one or more arrays of equal shapes")
            )
        check_axes(asked, types[0], (axis,))
        if not 1 <= num_keys <= len(types):
            raise errors.OptionError(
                errors.explain(asked, f"num_keys must be from 1 to {len(types)}")
            )
        return types

    def reference(
        self, *operands: Any, axis: int, num_keys: int = 1, stable: bool = True
    ) -> tuple[Any, ...]:
        """NumPy's sorts."""
        if len(operands) == 1:
            (x,) = operands
            if _is_short(x, axis):
                return (np.sort(x, axis, kind="stable"),)
            if _sorts_by_value(x, stable):
                return (np.sort(x, axis),)
            if dtypes.is_complex(x.dtype) and not np.isnan(x).any():
                return (np.sort(x, axis, kind="stable"),)
        order = sorting_order(operands[:num_keys], axis)
        if order.ndim == 1:
            return tuple([x[order] for x in operands])
        return tuple([np.take_along_axis(x, order, axis) for x in operands])

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        axis: int,
        num_keys: int = 1,
        stable: bool = True,
    ) -> tuple[Any, Any]:
        """The tangents in the order of the values."""
        shape = primals[0].type.shape
        places = iota(shape=shape, dtype=dtypes.int32, axis=axis)
        *outputs, order = self(
            *primals, places, axis=axis, num_keys=num_keys, stable=stable
        )
        moved = [None if t is None else take_along(t, order, axis) for t in tangents]
        return tuple(outputs), tuple(moved)

    def padded(
        self,
        pads: Pads,
        *operands: Padded,
        axis: int,
        num_keys: int = 1,
        stable: bool = True,
    ) -> Any:
        """Keys behind the prefix are the greatest, and come last among their equals."""
        keys = [
            filled(pads, x, _greatest(x.array.dtype), (axis,))
            for x in operands[:num_keys]
        ]
        rest = [x.array for x in operands[num_keys:]]
        return self(*keys, *rest, axis=axis, num_keys=num_keys, stable=True)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        /,  # the params have an axis, too
        **params: Any,
    ) -> tuple[Any, Any]:
        """The next axis; operands without the new axis are repeated along it."""
        args, raised, is_mapped = _raised(axis, args, mapped, params)
        return self(*args, **raised), (is_mapped,) * len(args)


class _TopK(OnHost):
    """top_k(x, k, axis): the k largest elements, in descending order, and their places.

    NaN counts as larger than every number; of equal elements the first come first.
    """

    multiple = True
    routine = "top_k"
    sized = ("k",)

    def padded(self, pads: Pads, x: Padded, *, k: int, axis: int) -> Any:
        """What is behind the prefix is the least, and comes last among its equals."""
        least = extreme(x.array.dtype, lowest=True)
        return self(filled(pads, x, least, (axis,)), k=k, axis=axis)

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        axis: int,
        **params: Any,
    ) -> Flow:
        """The other axes run along the outputs."""
        return kept_axes(types, outs, (axis,))

    def infer(self, x: ArrayType, *, k: int, axis: int) -> tuple[ArrayType, ArrayType]:
        """Values, and indices as int32."""
        asked = f"top_k({x}, k={k}, axis={axis})"
        check_axes(asked, x, (axis,))
        if dtypes.is_complex(x.dtype):
            raise errors.DTypeError(
                errors.explain(
                    asked, "complex numbers have no order", "take their absolute values"
                )
            )
        if not 0 <= k <= x.shape[axis]:
            raise errors.ShapeError(
                errors.explain(asked, f"k must be from 0 to {x.shape[axis]}")
            )
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return x.with_shape(shape), ArrayType(shape, dtypes.int32)

    def reference(self, x: Any, *, k: int, axis: int) -> tuple[Any, Any]:
        """A stable sort of the reversed array, read from its end, if it has to be."""
        found = largest_places(np.moveaxis(widened(x), axis, -1), k)
        if found is None:
            order = sorting_order([np.flip(x, axis)], axis)
            last = np.flip(order, axis).take(range(k), axis)
            places = x.shape[axis] - 1 - last
        else:
            places = np.moveaxis(found, -1, axis)
        return np.take_along_axis(x, places, axis), places.astype(np.int32)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], *, k: int, axis: int
    ) -> tuple[Any, Any]:
        """The tangents of the elements that were taken."""
        values, places = self(*primals, k=k, axis=axis)
        return (values, places), (take_along(tangents[0], places, axis), None)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        /,  # the params have an axis, too
        **params: Any,
    ) -> tuple[Any, Any]:
        """The next axis."""
        args, raised, is_mapped = _raised(axis, args, mapped, params)
        return self(*args, **raised), (is_mapped, is_mapped)


def _greatest(dtype: np.dtype[Any]) -> Any:
    """What is sorted to the end."""
    if dtypes.is_inexact(dtype):
        return complex("nan+nanj") if dtypes.is_complex(dtype) else float("nan")
    return extreme(dtype, lowest=False)


def _raised(
    axis: MappedAxis, args: Sequence[Any], mapped: Sequence[bool], params: Any
) -> tuple[Sequence[Any], Any, bool]:
    """Arguments and params one axis up, if any argument is mapped."""
    if not any(mapped):
        return args, params, False
    raised = {**params, "axis": params["axis"] + 1}
    return all_along(axis, args, mapped), raised, True


def take_along(x: Any, places: Any, axis: int) -> Any:
    """The elements at integer places along an axis; `places` has x's other axes.

    >>> import fnx.runtime.eager
    >>> from fnx.runtime.array import from_numpy
    >>> x = from_numpy(np.array([[1, 2, 3], [4, 5, 6]]))
    >>> take_along(x, from_numpy(np.array([[2], [0]])), 1)
    Array([[3],
           [4]], dtype=int64)
    """
    others = tuple([d for d in range(x.type.ndim) if d != axis])
    dims = WindowDims(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    vectors = reshape(places, shape=(*places.type.shape, 1))
    sizes = (1,) * x.type.ndim
    return gather(x, vectors, dims=dims, sizes=sizes, mode="promise_in_bounds")


def sorting_order(keys: Sequence[Any], axis: int) -> Any:
    """The permutation along an axis that sorts NumPy arrays stably, as indices.

    >>> sorting_order([np.array([2.0, np.nan, 1.0])], 0)
    array([2, 0, 1])
    """
    columns = [part for key in keys for part in _real_keys(key)]
    if len(columns) > 1:
        return np.lexsort(columns[::-1], axis)
    key = columns[0]
    packs = key.dtype.itemsize <= 4 and key.shape[axis] < 2**32
    if packs and not _is_short(key, axis):
        return _packed_order(key, axis)
    return np.argsort(key, axis, kind="stable")


# The longest axis on which a stable sort is the fast way.
_SHORT = 256


def _real_keys(key: Any) -> list[Any]:
    """A key as real keys of NumPy's own dtypes, the most significant first."""
    if dtypes.is_complex(key.dtype):
        return [key.real, key.imag]
    return [widened(key)]


def _packed_order(key: Any, axis: int) -> Any:
    """Sorts (key, place) pairs packed in 64 bits: several times as fast as argsort."""
    high = np.moveaxis(_ordered_bits(key), axis, -1).astype(np.uint64)
    pairs = (high << np.uint64(32)) | np.arange(high.shape[-1], dtype=np.uint64)
    pairs.sort(axis=-1)
    return np.moveaxis((pairs & np.uint64(0xFFFFFFFF)).astype(np.int64), -1, axis)


def _ordered_bits(key: Any) -> Any:
    """Unsigned integers of at most 32 bits in the order of the keys."""
    if not dtypes.is_float(key.dtype):
        return key if key.dtype.kind in "bu" else key.astype(np.int64) + 2**31
    one_zero = key.astype(np.float32) + np.float32(0)
    one_nan = np.where(np.isnan(one_zero), np.float32(np.nan), one_zero)
    bits = one_nan.view(np.uint32)
    sign = np.uint32(1 << 31)
    # Negative floats are ordered backwards.
    return np.where(bits & sign, ~bits, bits | sign)


def _is_short(x: Any, axis: int) -> bool:
    """Whether NumPy's stable sort takes less than to look at or to pack the elements.

    Only for dtypes of NumPy's own, whose order is the one that is meant.
    """
    return x.shape[axis] <= _SHORT and x.dtype.kind in "biuf" and x.dtype.isbuiltin == 1


def _sorts_by_value(x: Any, stable: bool) -> bool:
    """Whether equal elements, NaNs aside, are the same, so that any sort is stable."""
    if dtypes.is_complex(x.dtype) or x.dtype == dtypes.bfloat16:
        return False
    if not stable or not dtypes.is_float(x.dtype):
        return True
    return not (np.signbit(x) & (x == 0)).any()


sort = _Sort("sort")
top_k = _TopK("top_k")
