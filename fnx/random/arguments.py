"""What the samplers do with their arguments: shapes, dtypes, parameters.

Receives what users pass, gives canonical shapes and dtypes, and parameters as operands
of elementwise primitives: literals for Python scalars, arrays of the sample's shape for
arrays. Next on the walk: `interval.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from fnx import dtypes, errors
from fnx.api.arguments import SCALARS, as_array
from fnx.core.array import Array
from fnx.ops.elementwise import convert
from fnx.ops.families import literal
from fnx.ops.shape import broadcast_in_dim, full

Shape = tuple[int, ...]
DType = np.dtype[Any]


def shape_of(sampler: str, shape: Any) -> Shape:
    """A shape given as a sequence of sizes, or as one size."""
    many = shape if isinstance(shape, tuple | list | np.ndarray) else (shape,)
    try:
        sizes = tuple([size.__index__() for size in many])
    except (AttributeError, TypeError):
        raise errors.ShapeError(
            f"{sampler}: a shape is made of integers, got {shape!r}"
        ) from None
    if any(size < 0 for size in sizes):
        raise errors.ShapeError(f"{sampler}: a size cannot be negative, got {shape!r}")
    return sizes


def float_dtype(sampler: str, dtype: Any) -> DType:
    """The dtype of samples that are real numbers; `None` means the default."""
    return _dtype_of_kind(sampler, dtype, float, dtypes.is_float, "float")


def int_dtype(sampler: str, dtype: Any) -> DType:
    """The dtype of samples that are integers; `None` means the default."""
    return _dtype_of_kind(sampler, dtype, int, dtypes.is_integer, "integer")


def _dtype_of_kind(
    sampler: str, dtype: Any, default: type, test: Callable[[DType], bool], words: str
) -> DType:
    found = dtypes.as_dtype(default if dtype is None else dtype)
    if not test(found):
        raise errors.DTypeError(
            errors.explain(
                f"{sampler}: dtype={found}", f"samples are of {words} dtypes"
            )
        )
    return found


def value_of(sampler: str, name: str, x: Any) -> Any:
    """A parameter as an array, or as the Python scalar that it is."""
    return x if x.__class__ in SCALARS else as_array(x, sampler, name)


def parameters(
    sampler: str, shape: Any, dtype: DType, **values: Any
) -> tuple[Shape, list[Any]]:
    """The shape of the samples, and parameters in the dtype as operands beside them.

    The parameters broadcast to `shape`; where that is `None` it is theirs.
    """
    read = {name: value_of(sampler, name, x) for name, x in values.items()}
    shape = sample_shape(sampler, shape, **read)
    return shape, [_operand(sampler, k, x, dtype, shape) for k, x in read.items()]


def sample_shape(sampler: str, shape: Any, **values: Any) -> Shape:
    """The shape asked for, if the parameters broadcast to it; else theirs."""
    arrays = {k: x for k, x in values.items() if isinstance(x, Array)}
    shapes = [x.shape for x in arrays.values()]
    asked = () if shape is None else shape_of(sampler, shape)
    try:
        common = np.broadcast_shapes(*shapes, asked)
    except ValueError:
        common = None
    if common is None or (shape is not None and common != asked):
        types = ", ".join([f"{k}: {x.type}" for k, x in arrays.items()])
        wanted = "" if shape is None else f" to shape={asked}"
        raise errors.ShapeError(
            f"{sampler}: the parameters ({types}) do not broadcast{wanted}"
        )
    return common


def _operand(sampler: str, name: str, x: Any, dtype: DType, shape: Shape) -> Any:
    if isinstance(x, Array):
        if dtypes.is_complex(x.dtype):
            raise errors.DTypeError(f"{sampler}: {name} must be real, got {x.type}")
        return spread(cast(x, dtype), shape)
    if isinstance(x, complex):
        raise errors.DTypeError(f"{sampler}: {name} must be real, got {x}")
    return literal(x, dtype)


def array_parameters(
    sampler: str, shape: Any, dtype: DType, **values: Any
) -> tuple[Shape, list[Any]]:
    """The shape of the samples, and parameters in the dtype as arrays of that shape."""
    shape, found = parameters(sampler, shape, dtype, **values)
    arrays = [x if isinstance(x, Array) else full(shape, dtype, x.value) for x in found]
    return shape, arrays


def cast(x: Any, dtype: DType) -> Any:
    """The array with that dtype, not weak."""
    if x.type.dtype == dtype and not x.type.weak:
        return x
    return convert(x, dtype=dtype)


def spread(x: Any, shape: Shape) -> Any:
    """The array repeated to a shape that its own broadcasts to."""
    if x.shape == shape:
        return x
    dims = tuple(range(len(shape) - x.ndim, len(shape)))
    return broadcast_in_dim(x, shape=shape, dims=dims)


def finfo(dtype: DType) -> Any:
    """The limits of a float dtype, bfloat16 included."""
    return ml_dtypes.finfo(dtype)
