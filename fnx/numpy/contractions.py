"""Products of vectors and matrices: dot, matmul, tensordot, inner, outer, kron, trace.

Receives arrays (promoted to one dtype), gives sums of products by one `dot_general`,
which reads its operands in place where BLAS can. `precision` and
`preferred_element_type` are those of `fnx.lax.dot_general`. Next on the walk:
`einstein.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import ufuncs
from fnx.numpy.grids import diagonal
from fnx.numpy.joining import stack, unstack
from fnx.numpy.mathematics import conj
from fnx.numpy.operands import (
    ArrayLike,
    DTypeLike,
    Shape,
    as_array,
    axes_tuple,
    axis_index,
    broadcast,
    cast,
    promoted,
    refuse,
    typed,
)
from fnx.numpy.reductions import sum
from fnx.numpy.shaping import broadcast_shapes, moveaxis
from fnx.ops.dot import dot_general
from fnx.ops.shape import reshape


def contract(
    function: str,
    x: ArrayLike,
    y: ArrayLike,
    contracted: tuple[Shape, Shape],
    batch: tuple[Shape, Shape] = ((), ()),
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """`dot_general` of operands promoted to one dtype; booleans give or of ands."""
    values, dtype, weak = promoted(function, (x, y))
    is_bool = dtypes.is_bool(dtype)
    wide = dtypes.int32 if is_bool else dtype
    a, b = [typed(function, v, wide, weak) for v in values]
    for i, j in zip(*contracted, strict=True):
        if a.shape[i] != b.shape[j]:
            raise errors.ShapeError(
                f"{function}: {a.type} and {b.type}: axis {i} of the first has size "
                f"{a.shape[i]}, axis {j} of the second {b.shape[j]}"
            )
    wanted = preferred_element_type
    out = dot_general(
        a,
        b,
        contract=contracted,
        batch=batch,
        precision=precision,
        preferred_element_type=None if wanted is None else dtypes.as_dtype(wanted),
    )
    return cast(out, dtypes.bool_) if is_bool else out


@becomes_native
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """Sums of products over the last axis of a and the last but one of b.

    A scalar multiplies; a vector b is summed over its only axis.

    >>> import numpy as np
    >>> dot(np.arange(3.0), np.arange(3.0)).item()
    5.0
    """
    x, y = as_array("dot", a), as_array("dot", b, 1)
    if not x.ndim or not y.ndim:
        return ufuncs.multiply(x, y)
    axes = (x.ndim - 1,), (max(y.ndim - 2, 0),)
    options = precision, preferred_element_type
    return contract("dot", x, y, axes, ((), ()), *options)


@becomes_native
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """The matrix product over the last two axes; leading axes are broadcast.

    A vector is a row on the left, a column on the right. Scalars raise.

    >>> import numpy as np
    >>> matmul(np.ones((5, 2, 3)), np.ones((3, 4))).shape
    (5, 2, 4)
    """
    x, y = as_array("matmul", a), as_array("matmul", b, 1)
    if not x.ndim or not y.ndim:
        raise errors.ShapeError(
            f"matmul: {x.type} and {y.type}: scalars have no matrix product; use *"
        )
    options = precision, preferred_element_type
    axes = (x.ndim - 1,), (max(y.ndim - 2, 0),)
    if y.ndim <= 2:
        return contract("matmul", x, y, axes, ((), ()), *options)
    return _stacked_product("matmul", x, y, options)


def _stacked_product(function: str, x: Array, y: Array, options: Any) -> Array:
    """The product of stacks of matrices; axes that one of them lacks stay free."""
    left, right = x.shape[:-2], y.shape[:-2]
    rank = max(len(left), len(right))
    broadcast_shapes(left, right)
    x_axes = _aligned(left, rank)
    y_axes = _aligned(right, rank)
    # Axes of size 1 that meet longer ones are dropped: nothing is repeated in memory.
    shared, only_x, only_y = [], [], []
    for i, j in zip(x_axes, y_axes, strict=True):
        in_x = i is not None and (j is None or x.shape[i] != 1 or y.shape[j] == 1)
        in_y = j is not None and (i is None or y.shape[j] != 1 or x.shape[i] == 1)
        shared.append(in_x and in_y)
        only_x.append(in_x and not in_y)
        only_y.append(in_y and not in_x)
    x, x_batch = _without_ones(x, x_axes, only_y, shared)
    y, y_batch = _without_ones(y, y_axes, only_x, shared)
    x_contract, y_contract = x.ndim - 1, max(y.ndim - 2, 0)
    out = contract(
        function, x, y, ((x_contract,), (y_contract,)), (x_batch, y_batch), *options
    )
    # The result has the shared axes, then those of x alone, its rows, those of y alone.
    places = [i for i in range(rank) if shared[i]]
    places += [i for i in range(rank) if only_x[i]]
    rows = [rank] if x.ndim > 1 else []
    alone = [i for i in range(rank) if only_y[i]]
    order = [*places, *rows, *alone, rank + 1]
    return _sorted_axes(out, order)


def _aligned(shape: Shape, rank: int) -> list[int | None]:
    """For each leading axis of the result the operand's axis, if it has one."""
    missing = rank - len(shape)
    return [None] * missing + list(range(len(shape)))


def _without_ones(
    x: Array, axes: Sequence[int | None], absent: Sequence[bool], shared: Sequence[bool]
) -> tuple[Array, Shape]:
    """The operand without the axes of size 1 that are broadcast; its batch axes."""
    gone = [i for i, out in zip(axes, absent, strict=True) if out and i is not None]
    if gone:
        x = reshape(x, shape=tuple([n for i, n in enumerate(x.shape) if i not in gone]))
    kept = [i for i, s in zip(axes, shared, strict=True) if s and i is not None]
    return x, tuple([i - len([g for g in gone if g < i]) for i in kept])


def _sorted_axes(x: Array, order: list[int]) -> Array:
    """The axes in the order of their keys."""
    dims = sorted(range(len(order)), key=order.__getitem__)
    return moveaxis(x, dims, list(range(len(dims))))


@becomes_native
def vdot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """The sum of conj(a) * b over all elements.

    >>> import numpy as np
    >>> vdot(np.array([1j]), np.array([1j])).item()
    (1+0j)
    """
    x, y = conj(as_array("vdot", a)), as_array("vdot", b, 1)
    x, y = reshape(x, shape=(x.size,)), reshape(y, shape=(y.size,))
    options = precision, preferred_element_type
    return contract("vdot", x, y, ((0,), (0,)), ((), ()), *options)


@becomes_native
def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """The sum of conj(x1) * x2 along an axis; the others are broadcast."""
    x, y = conj(as_array("vecdot", x1)), as_array("vecdot", x2, 1)
    x = moveaxis(x, axis_index("vecdot", axis, x.ndim), -1)
    y = moveaxis(y, axis_index("vecdot", axis, y.ndim), -1)
    if x.shape[-1] != y.shape[-1]:
        raise errors.ShapeError(
            f"vecdot: sizes {x.shape[-1]} and {y.shape[-1]} along axis {axis} differ"
        )
    shape = broadcast_shapes(x.shape, y.shape)
    x, y = broadcast(x, shape), broadcast(y, shape)
    outer = tuple(range(len(shape) - 1))
    last = ((len(outer),), (len(outer),))
    options = precision, preferred_element_type
    return contract("vecdot", x, y, last, (outer, outer), *options)


@becomes_native
def matvec(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Matrices times vectors: sums over the last axes; the others are broadcast.

    >>> import numpy as np
    >>> matvec(np.ones((5, 2, 3)), np.ones(3)).shape
    (5, 2)
    """
    x, y = as_array("matvec", x1), as_array("matvec", x2, 1)
    column = reshape(y, shape=(*y.shape, 1))
    return _without_axis(matmul(x, column), -1)


@becomes_native
def vecmat(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Conjugated vectors times matrices; leading axes are broadcast."""
    x, y = conj(as_array("vecmat", x1)), as_array("vecmat", x2, 1)
    row = reshape(x, shape=(*x.shape[:-1], 1, x.shape[-1]))
    return _without_axis(matmul(row, y), -2)


def _without_axis(x: Array, axis: int) -> Array:
    """The array without an axis of size 1."""
    place = axis % x.ndim
    return reshape(x, shape=x.shape[:place] + x.shape[place + 1 :])


@becomes_native
def inner(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """Sums of products over the last axes of both; a scalar multiplies."""
    x, y = as_array("inner", a), as_array("inner", b, 1)
    if not x.ndim or not y.ndim:
        return ufuncs.multiply(x, y)
    axes = (x.ndim - 1,), (y.ndim - 1,)
    options = precision, preferred_element_type
    return contract("inner", x, y, axes, ((), ()), *options)


@becomes_native
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """All products of an element of a with one of b.

    >>> import numpy as np
    >>> outer(np.array([1, 2]), np.array([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    refuse("outer", out=out)
    x, y = as_array("outer", a), as_array("outer", b, 1)
    return ufuncs.multiply(reshape(x, shape=(x.size, 1)), reshape(y, shape=(1, y.size)))


@becomes_native
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: Any = 2,
    *,
    precision: Any = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """Sums of products over the last axes of a and the first of b, or over given ones.

    `axes` is their number, or a pair of axes or sequences of axes.

    >>> import numpy as np
    >>> tensordot(np.ones((2, 3)), np.ones((3, 2)), axes=([0, 1], [1, 0])).item()
    6.0
    """
    x, y = as_array("tensordot", a), as_array("tensordot", b, 1)
    if isinstance(axes, int):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise errors.AxisError(
                f"tensordot: axes={axes} is out of range for {x.type} and {y.type}"
            )
        pair = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    else:
        first, second = [_several(side) for side in axes]
        pair = (
            axes_tuple("tensordot", first, x.ndim, "axes"),
            axes_tuple("tensordot", second, y.ndim, "axes"),
        )
        if len(pair[0]) != len(pair[1]):
            raise errors.AxisError(f"tensordot: axes={axes} have different lengths")
    options = precision, preferred_element_type
    return contract("tensordot", x, y, pair, ((), ()), *options)


def _several(axes: Any) -> tuple[int, ...]:
    return (axes,) if isinstance(axes, int) else tuple(axes)


@becomes_native
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """The Kronecker product: b once for each element of a, multiplied by it.

    >>> import numpy as np
    >>> kron(np.array([1, 10]), np.array([1, 2])).tolist()
    [1, 2, 10, 20]
    """
    x, y = as_array("kron", a), as_array("kron", b, 1)
    rank = max(x.ndim, y.ndim)
    left = (1,) * (rank - x.ndim) + x.shape
    right = (1,) * (rank - y.ndim) + y.shape
    spread = [n for size in left for n in (size, 1)]
    dense = [n for size in right for n in (1, size)]
    product = ufuncs.multiply(
        reshape(x, shape=tuple(spread)), reshape(y, shape=tuple(dense))
    )
    return reshape(
        product, shape=tuple([n * m for n, m in zip(left, right, strict=True)])
    )


@becomes_native
def trace(
    a: ArrayLike,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike = None,
    out: None = None,
) -> Array:
    """The sum of the diagonal of two axes.

    >>> import numpy as np
    >>> trace(np.eye(3)).item()
    3.0
    """
    refuse("trace", out=out)
    return sum(diagonal(a, offset, axis1, axis2), -1, dtype)


@becomes_native
def cross(
    a: ArrayLike,
    b: ArrayLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Array:
    """The cross product of vectors of size 2 or 3; of two of size 2 the third entry.

    >>> import numpy as np
    >>> cross(np.array([1, 0, 0]), np.array([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x = moveaxis(as_array("cross", a), axisa, -1)
    y = moveaxis(as_array("cross", b, 1), axisb, -1)
    if x.shape[-1] not in (2, 3) or y.shape[-1] not in (2, 3):
        raise errors.ShapeError(
            f"cross takes vectors of size 2 or 3, got {x.type} and {y.type}"
        )
    x0, x1, *x2 = unstack(x, axis=-1)
    y0, y1, *y2 = unstack(y, axis=-1)
    third = _minor(x0, y1, x1, y0)
    if not x2 and not y2:
        return third
    zero_x, zero_y = ufuncs.multiply(x0, 0), ufuncs.multiply(y0, 0)
    a2, b2 = x2[0] if x2 else zero_x, y2[0] if y2 else zero_y
    rows = [_minor(x1, b2, a2, y1), _minor(a2, y0, x0, b2), third]
    return moveaxis(stack(rows, -1), -1, axisc)


def _minor(a: Array, b: Array, c: Array, d: Array) -> Array:
    """A * b - c * d."""
    return ufuncs.subtract(ufuncs.multiply(a, b), ufuncs.multiply(c, d))
