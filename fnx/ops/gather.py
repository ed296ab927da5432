"""gather: windows of an array at places that are known only when the program runs.

How windows lie in the operand and in the gathered array is in `window_dims.py`. Reads
out of bounds follow `mode`, and a derivative is the exact adjoint of what was read.
Receives an operand and an array of index vectors; next on the walk: `scatter.py`, its
transpose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.faults import Fault
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis, primitive
from fnx.core.types import ArrayType
from fnx.ops.bounds import vectors_outside
from fnx.ops.families import Copying
from fnx.ops.rearrange import Ints
from fnx.ops.shape import reshape, zeros_like
from fnx.ops.window_dims import (
    Rows,
    WindowDims,
    shape_of_windows,
    window_labels,
    window_place,
    windows_shape,
)
from fnx.ops.window_prefix import padded_vectors


class _Gather(Copying):
    """gather(operand, indices, dims, sizes, mode, fill_value): windows of the operand.

    `sizes` is the window's size in each axis of the operand. A window that is not
    entirely inside is moved inside (`clip`, and `promise_in_bounds`, where it does not
    occur) or replaced by `fill_value` (`fill`; NaN, the lowest int, the highest uint or
    True by default). Transposes to `scatter_add`.
    """

    linear = True
    reads = "many"
    sized = ("sizes",)

    def __call__(
        self,
        operand: Any,
        indices: Any,
        *,
        dims: WindowDims,
        sizes: Ints,
        mode: str = "clip",
        fill_value: Any = None,
    ) -> Any:
        return super().__call__(
            operand, indices, dims=dims, sizes=sizes, mode=mode, fill_value=fill_value
        )

    def flow(
        self,
        types: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        dims: WindowDims,
        **params: Any,
    ) -> Flow:
        """Index vectors run along the output, and axes that windows have all of."""
        x, places = types
        operand, indices, windows = window_labels(x, places, outs[0], dims)
        return Flow((operand, indices), (windows,))

    def localized(
        self,
        inputs: Sequence[Ints],
        outputs: Sequence[Ints],
        *,
        dims: WindowDims,
        **params: Any,
    ) -> dict[str, Any]:
        """Windows that have all of an axis that is cut, too."""
        sizes = dims.window_sizes(outputs[0], len(inputs[0]))
        return params | {"dims": dims, "sizes": sizes}

    def infer(
        self,
        operand: ArrayType,
        indices: ArrayType,
        *,
        dims: WindowDims,
        sizes: Ints,
        mode: str,
        fill_value: Any,
    ) -> ArrayType:
        """The shape of the indices with the window's axes put in."""
        asked = f"gather({operand}, {indices}, {dims}, sizes={sizes}, mode={mode!r})"
        shape = windows_shape(asked, operand, indices, dims, sizes, mode)
        return operand.with_shape(shape)

    def reference(
        self,
        operand: Any,
        indices: Any,
        *,
        dims: WindowDims,
        sizes: Ints,
        mode: str,
        fill_value: Any,
    ) -> Any:
        """NumPy's take of rows, after the operand's whole axes were moved last."""
        fill = _fill(operand.dtype, fill_value)
        if not operand.size:
            shape = shape_of_windows(dims, sizes, indices.shape)
            return np.full(shape, fill, operand.dtype)
        rows = Rows(operand.shape, indices, dims, sizes)
        out = rows.of_operand(operand).take(rows.numbers, axis=0)
        if mode == "fill":
            out[~rows.inside] = fill
        return rows.as_windows(out)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        fill_value: Any,
        **params: Any,
    ) -> tuple[Any, Any]:
        """The same windows of the tangent; a fill value does not move."""
        output = self(*primals, fill_value=fill_value, **params)
        return output, self(tangents[0], primals[1], fill_value=0, **params)

    def transpose(
        self,
        ct: Any,
        operand: Any,
        indices: Any,
        *,
        dims: WindowDims,
        mode: str,
        **params: Any,
    ) -> tuple[Any, None]:
        """Adds the cotangent up where it was read."""
        # By name: scatters are defined from gathers.
        scatter_add = primitive("scatter_add")
        zeros = zeros_like(operand)
        return scatter_add(zeros, indices, ct, dims=dims, mode=mode), None

    def padded(
        self,
        pads: Pads,
        operand: Padded,
        indices: Padded,
        *,
        dims: WindowDims,
        sizes: Ints,
        mode: str,
        fill_value: Any,
    ) -> Any:
        """Indices are moved inside of the prefix, or outside of its padding."""
        windows = pads.extents(itemgetter("sizes"))
        places = padded_vectors(pads, operand, indices, dims, windows, mode)
        mode = "clip" if mode == "promise_in_bounds" else mode
        return self(
            operand.array,
            places,
            dims=dims,
            sizes=sizes,
            mode=mode,
            fill_value=fill_value,
        )

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        dims: WindowDims,
        sizes: Ints,
        **params: Any,
    ) -> tuple[Any, bool]:
        """A batching axis if both have the new one, else a window or an index axis."""
        if mapped[0]:
            sizes = (1 if mapped[1] else axis.size, *sizes)
        if any(mapped):
            dims = dims.raised(*mapped)
        return self(*args, dims=dims, sizes=sizes, **params), any(mapped)

    def element(
        self,
        k: Any,
        index: Any,
        operand: Any,
        indices: Any,
        *,
        dims: WindowDims,
        sizes: Ints,
        mode: str,
        fill_value: Any,
    ) -> Any:
        """A load at the window's start plus the place in the window."""
        fill = k.constant(_fill(operand.dtype, fill_value), operand.dtype)
        if not operand.type.size:
            return fill
        place, inside = window_place(k, index, operand.shape, indices, dims, sizes)
        if mode != "fill":
            return operand(place)
        return k.where(inside, lambda: operand(place), lambda: fill)

    def alignment(
        self,
        position: int,
        types: Sequence[ArrayType],
        *,
        dims: WindowDims,
        **params: Any,
    ) -> tuple[int | None, ...] | None:
        """The index vectors run along the axes that are not the windows'."""
        if position != 1:
            return None
        ndim = types[1].ndim - 1 + len(dims.offset_dims)
        return *dims.batch_axes(ndim), None

    def faults(
        self, inputs: Sequence[Any], outputs: Sequence[ArrayType], **params: Any
    ) -> Iterable[Fault]:
        """A window that is not inside of the operand."""
        dims, shape = params["dims"], inputs[0].type.shape
        return vectors_outside(inputs[1], dims.start_index_map, shape, params["sizes"])


gather = _Gather("gather")


# ---------------------------------------------------------------- for other rules

POINTS = WindowDims((), (0,), (0,))
"""Single elements of an array of rank 1."""


def points(x: Any, places: Any) -> Any:
    """The elements of an array of rank 1 at places that are inside.

    >>> import fnx.runtime.eager
    >>> from fnx.runtime.array import from_numpy
    >>> x = from_numpy(np.arange(10, 20))
    >>> points(x, from_numpy(np.array([3, 1])))
    Array([13, 11], dtype=int64)
    """
    column = reshape(places, shape=(*places.shape, 1))
    return gather(x, column, dims=POINTS, sizes=(1,), mode="promise_in_bounds")


def _fill(dtype: np.dtype[Any], value: Any) -> Any:
    """The fill value of a dtype, unless one is given."""
    if value is not None:
        return value
    if dtypes.is_inexact(dtype):
        return math.nan
    if dtypes.is_bool(dtype):
        return True
    info = dtypes.limits(dtype)
    return info.min or info.max  # the most negative one, if there are any
