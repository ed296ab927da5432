"""The operands of a loss: floating-point arrays of one dtype, 16 bits as float32.

Receives what a caller gives, gives arrays to compute with and the dtype of the result.
Next on the walk: `class_losses.py`.
"""

from __future__ import annotations

from typing import Any

import fnx.numpy as fnp
from fnx import dtypes
from fnx.errors import DTypeError, ShapeError
from fnx.optim.updates import Leaf


def computed(
    function: str, same_shapes: bool = False, **operands: Any
) -> tuple[list[Leaf], Any]:
    """The operands, named for errors, and the dtype that the result is rounded to.

    Integers and booleans count as the default float. Raises `DTypeError` for complex
    numbers, and `ShapeError` for shapes that cannot be broadcast, or that differ if
    `same_shapes`: a column of predictions and a row of targets is a mistake.
    """
    arrays: list[Leaf] = [fnp.asarray(x) for x in operands.values()]
    for name, x in zip(operands, arrays, strict=True):
        if dtypes.is_complex(x.dtype):
            raise DTypeError(f"{function}: {name} must be real, got {x.type}")
    _check_shapes(function, same_shapes, list(operands), arrays)
    dtype = fnp.result_type(*arrays)
    if not dtypes.is_inexact(dtype):
        dtype = dtypes.default_float()
    wider = dtypes.compute_dtype(dtype)
    return [x.astype(wider) for x in arrays], dtype


def rounded(x: Leaf, dtype: Any) -> Leaf:
    """The result in the dtype of the operands."""
    return x.astype(dtype)


def _check_shapes(
    function: str, same: bool, names: list[str], arrays: list[Leaf]
) -> None:
    shapes = [x.shape for x in arrays]
    if same:
        fits = len({*shapes}) == 1
    else:
        try:
            fnp.broadcast_shapes(*shapes)
            fits = True
        except ShapeError:
            fits = False
    if not fits:
        said = ", ".join(f"{n} {x.shape}" for n, x in zip(names, arrays, strict=True))
        must = "have one shape" if same else "fit each other"
        raise ShapeError(f"{function}: the shapes must {must}, got {said}")
