"""What the functions of this folder do with their arguments.

Receives what users pass, gives stacks of matrices of one dtype that LAPACK has. Next on
the walk: `decompositions.py`.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.api.jit import jit
from fnx.core.array import Array
from fnx.core.primitive import Primitive
from fnx.core.trace import tracing
from fnx.numpy.grids import eye
from fnx.numpy.operands import ArrayLike, as_array, broadcast, cast, inexact_dtype, read
from fnx.numpy.operands import pair as typed_pair
from fnx.numpy.shaping import broadcast_shapes
from fnx.ops.shape import broadcast_in_dim


def matrices(
    function: str, name: str, x: ArrayLike, square: bool = False, position: int = 0
) -> Array:
    """An argument as a stack of matrices of floats or complex numbers.

    Raises `ShapeError` or `DTypeError`, naming the function and its argument.
    """
    array = as_array(function, x, position)
    array = cast(array, inexact_dtype(array.dtype, array.type.weak))
    check(function, name, array, square)
    return array


def check(function: str, name: str, x: Array, square: bool = False) -> None:
    """Raises unless x is a stack of matrices of a dtype that LAPACK has."""
    if x.dtype.itemsize == 2:
        raise errors.DTypeError(
            errors.explain(
                f"linalg.{function}: {name} is {x.type}",
                "decompositions need 32 bits at least",
                "convert it first: x.astype('float32')",
            )
        )
    if x.ndim < 2:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.{function}: {name} is {x.type}",
                "the last two axes are those of a matrix",
            )
        )
    if square and x.shape[-1] != x.shape[-2]:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.{function}: {name} is {x.type}", "it takes square matrices"
            )
        )


def promoted_pair(function: str, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Two arguments as arrays of floats or complex numbers, of one dtype."""
    values = [read(function, x), read(function, y, 1)]
    dtype, weak = dtypes.promote(*[typed_pair(value) for value in values])
    dtype = inexact_dtype(dtype, weak)
    first, second = [cast(as_array(function, value), dtype) for value in values]
    return first, second


def same_stack(function: str, a: Array, b: Array) -> tuple[Array, Array]:
    """Two stacks of matrices, each repeated along the axes that only the other has."""
    try:
        stack = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except errors.FnxError as error:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.{function}: a is {a.type}, b is {b.type}",
                "their leading axes do not fit together",
            )
        ) from error
    return _repeated(a, stack), _repeated(b, stack)


def _repeated(x: Array, stack: tuple[int, ...]) -> Array:
    shape = (*stack, *x.shape[-2:])
    return x if x.shape == shape else broadcast(x, shape)


def identity(x: Array) -> Array:
    """The unit matrices as large as square ones."""
    n = x.shape[-1]
    return broadcast_in_dim(
        eye(n, dtype=x.dtype), shape=x.shape, dims=(x.ndim - 2, x.ndim - 1)
    )


MANY = 1024
"""Of so many matrices and more, machine code does the stack, called once or not."""


def apply(primitive: Primitive, *arrays: Any, **params: Any) -> Any:
    """What a primitive makes of stacks of matrices.

    Outside of a trace it runs by its reference rule, in Python for each matrix; where
    they are many, compiling it takes less time.
    """
    if not tracing() and math.prod(arrays[0].shape[:-2]) >= MANY:
        return _compiled(primitive, tuple(params.items()))(*arrays)
    return primitive(*arrays, **params)


@functools.cache
def _compiled(primitive: Primitive, params: tuple[tuple[str, Any], ...]) -> Any:
    options = dict(params)

    def run(*arrays: Any) -> Any:
        return primitive(*arrays, **options)

    return jit(run)


def epsilon(x: Any) -> float:
    """The precision of a dtype."""
    return float(np.finfo(dtypes.real_dtype(x.dtype)).eps)
