"""What all primitives of linear algebra share: stacks of matrices, dtypes, LAPACK.

Their rules apply to every matrix of a stack, the leading axes. The reference rules call
LAPACK as SciPy gives it, one matrix after the other; a plan calls it from machine code
(`fnx/cpu/lapack.py`) or, where a backend has none, runs the reference rule on the host.
Row-major matrices are column-major ones transposed, so where the transposed problem is
as good, nothing is copied. Next on the walk: `triangular.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from fnx import dtypes, errors
from fnx.core.padding import Padded, Pads
from fnx.core.primitive import Flow, MappedAxis
from fnx.core.types import ArrayType
from fnx.ops.families import OnHost
from fnx.ops.prefix import filled
from fnx.ops.shape import all_along

DTYPES = (dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)


class Stacked(OnHost):
    """An operation on each matrix of a stack."""

    gathers = True
    whole_before = True
    # The axes of the first operand that are not the stack's.
    own_axes: ClassVar[int] = 2

    def flow(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], **params: Any
    ) -> Flow:
        """The axes of the stack run along all outputs."""
        stack = types[0].ndim - self.own_axes
        rows = [
            tuple([axis if axis < stack else None for axis in range(x.ndim)])
            for x in (*types, *outs)
        ]
        return Flow(tuple(rows[: len(types)]), tuple(rows[len(types) :]))

    def padded(self, pads: Pads, *xs: Padded, **params: Any) -> Any:
        """A larger stack, where only the axes of the stack vary."""
        stack = xs[0].array.type.ndim - self.own_axes
        if any(axis >= stack for x in xs for axis in x.varying):
            raise pads.cannot("an axis of its matrices varies")
        return self(*[filled(pads, x, 0) for x in xs], **params)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        **params: Any,
    ) -> tuple[Any, Any]:
        """A larger stack; operands without the new axis are repeated along it."""
        if not any(mapped):
            results = self(*args, **params)
            return results, (False,) * len(results) if self.multiple else False
        results = self(*all_along(axis, args, mapped), **params)
        return results, (True,) * len(results) if self.multiple else True


class Solving(Stacked):
    """A solution for each column (row, of `x @ a = b`) of its last operand."""

    def flow(
        self, types: Sequence[ArrayType], outs: Sequence[ArrayType], **params: Any
    ) -> Flow:
        """So do the columns, beside the axes of the stack."""
        found = super().flow(types, outs, **params)
        stack = found.outputs[0][:-2]
        last = (None, "columns") if params.get("left_side", True) else ("columns", None)
        return Flow((*found.inputs[:-1], (*stack, *last)), ((*stack, *last),))


def check_matrices(asked: str, name: str, x: ArrayType, square: bool = False) -> None:
    """Raises unless x is a stack of matrices of a dtype that LAPACK has."""
    check_dtype(asked, name, x)
    if x.ndim < 2:
        raise errors.ShapeError(
            errors.explain(asked, f"{name} must have the two axes of a matrix")
        )
    if square and x.shape[-1] != x.shape[-2]:
        raise errors.ShapeError(
            errors.explain(
                asked,
                f"{name} must be square matrices, and these are "
                f"{x.shape[-2]} by {x.shape[-1]}",
            )
        )


def check_dtype(asked: str, name: str, x: ArrayType) -> None:
    """Raises unless LAPACK has routines for the dtype."""
    if x.dtype not in DTYPES:
        raise errors.DTypeError(
            errors.explain(
                asked,
                f"{name} is {dtypes.short(x.dtype)}, and there is linear algebra of "
                "f32, f64, c64 and c128",
                "convert it first, such as by astype('float32')",
            )
        )


def check_same(asked: str, names: Sequence[str], types: Sequence[ArrayType]) -> None:
    """Raises unless dtypes and stacks of the operands (matrices) are the same."""
    first, own = types[0], names[0]
    for name, x in zip(names[1:], types[1:], strict=True):
        if x.dtype != first.dtype:
            raise errors.DTypeError(
                errors.explain(asked, f"{own} and {name} differ in dtype")
            )
        if x.shape[:-2] != first.shape[:-2] or x.ndim != first.ndim:
            raise errors.ShapeError(
                errors.explain(asked, f"{own} and {name} differ in their leading axes")
            )


def with_last(x: ArrayType, *last: int, dtype: Any = None) -> ArrayType:
    """The type of a stack like that of the matrices x, of arrays of such shapes."""
    return ArrayType((*x.shape[:-2], *last), dtype or x.dtype, x.weak)


def real_of(x: ArrayType) -> Any:
    """The real dtype of the same precision."""
    return dtypes.real_dtype(x.dtype)


@functools.cache
def lapack(name: str, dtype: Any) -> Callable[..., Any]:
    """A routine of LAPACK for a dtype, by its name without the letter of the dtype.

    Of orthogonal matrices, complex ones have names of their own.
    """
    from scipy.linalg import lapack as routines  # lazy: SciPy is slow to load

    return getattr(routines, letter(dtype) + _named(name, dtype))


@functools.cache
def blas(name: str, dtype: Any) -> Callable[..., Any]:
    """A routine of BLAS for a dtype."""
    from scipy.linalg import blas as routines  # lazy: SciPy is slow to load

    return getattr(routines, letter(dtype) + name)


_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_COMPLEX = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"}


def letter(dtype: Any) -> str:
    """The letter that LAPACK has for a dtype."""
    return _LETTERS[np.dtype(dtype).name]


def _named(name: str, dtype: Any) -> str:
    return _COMPLEX.get(name, name) if dtypes.is_complex(dtype) else name


def each(
    function: Callable[..., Sequence[Any] | None],
    arrays: Sequence[Any],
    types: Sequence[ArrayType],
    ndims: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """A function of one matrix applied to every matrix of stacks (NumPy arrays).

    It gives arrays, which are put into stacks of the types, or `None` where it has
    failed: those are NaN. `ndims` are the axes of each operand that are not the
    stack's. Where an operand has no elements, the function is not called, and what is
    left to fill is 0.
    """
    outputs = tuple([np.zeros(type.shape, type.dtype) for type in types])
    ndims = ndims or [2] * len(arrays)
    stack = arrays[0].shape[: arrays[0].ndim - ndims[0]]
    if any(0 in x.shape for x in arrays):
        return outputs
    for place in np.ndindex(stack):
        values = function(*[x[place] for x in arrays])
        if values is None:
            values = [nan(out.dtype) for out in outputs]
        for out, value in zip(outputs, values, strict=True):
            out[place] = value
    return outputs


def nan(dtype: Any) -> complex:
    """NaN in a dtype, in both parts of a complex one."""
    return complex(np.nan, np.nan) if dtypes.is_complex(dtype) else np.nan


def workspace(dtype: Any, size: int) -> dict[str, int]:
    """The option that has LAPACK work in blocks: enough memory for such a size."""
    return {"lwork": 64 * max(size, 1)}
