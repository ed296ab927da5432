"""Norms of vectors and matrices.

Receives arrays of any dtype, gives real numbers. Next on the walk: `determinants.py`.
"""

from __future__ import annotations

import math
from typing import Any

from fnx import dtypes, errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import reductions
from fnx.numpy.counting import where
from fnx.numpy.linalg.decompositions import svdvals
from fnx.numpy.mathematics import absolute, conj, power, real, root
from fnx.numpy.operands import ArrayLike, as_array, axes_tuple, cast, inexact_dtype
from fnx.numpy.reductions import Axis
from fnx.numpy.shaping import moveaxis, reshape
from fnx.numpy.ufuncs import greater, multiply, not_equal


@becomes_native
def norm(
    x: ArrayLike, ord: Any = None, axis: Any = None, keepdims: bool = False
) -> Array:
    """The norm of vectors (one axis) or matrices (two axes).

    `ord`: of vectors `None` or 2 (Euclidean), 1, inf, -inf, 0 (the number of elements
    that are not 0), or any other p; of matrices `None` or "fro", 1, -1, inf, -inf,
    "nuc" (the sum of the singular values), 2 or -2 (the largest or the smallest one).
    Without `ord` and `axis` all elements count. The gradient at 0 is 0; singular values
    of 0 have none.

    >>> import numpy as np
    >>> norm(np.array([3.0, 4.0])).item()
    5.0
    """
    array = as_array("norm", x)
    array = cast(array, inexact_dtype(array.dtype))
    if axis is None and ord is None:
        return _euclidean(array, tuple(range(array.ndim)), keepdims)
    axes = axes_tuple("norm", axis, array.ndim)
    if len(axes) == 1:
        return _vector_norm(array, ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(array, ord, axes, keepdims)
    raise errors.AxisError(f"norm: ord={ord!r} needs one or two axes, got axis={axis}")


@becomes_native
def vector_norm(
    x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2
) -> Array:
    """The norm of all elements over axes, as of one vector; `ord` as in `norm`."""
    array = as_array("vector_norm", x)
    array = cast(array, inexact_dtype(array.dtype))
    axes = axes_tuple("vector_norm", axis, array.ndim)
    return _vector_norm(array, ord, axes, keepdims)


@becomes_native
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """The norm of matrices over the last two axes; `ord` as in `norm`."""
    return norm(x, ord, (-2, -1), keepdims)


def _euclidean(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    square = multiply(x, x)
    if dtypes.is_complex(x.dtype):
        square = real(multiply(x, conj(x)))
    return root(reductions.sum(square, axes, keepdims=keepdims))


def _vector_norm(x: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    if ord is None or ord == 2:
        return _euclidean(x, axes, keepdims)
    if ord == math.inf:
        return reductions.max(absolute(x), axes, keepdims=keepdims)
    if ord == -math.inf:
        return reductions.min(absolute(x), axes, keepdims=keepdims)
    if ord == 0:
        count = reductions.sum(not_equal(x, 0), axes, keepdims=keepdims)
        return cast(count, dtypes.real_dtype(x.dtype))
    if ord == 1:
        return reductions.sum(absolute(x), axes, keepdims=keepdims)
    if isinstance(ord, str):
        raise errors.OptionError(f"norm: ord={ord!r} is no norm of vectors")
    total = reductions.sum(power(absolute(x), ord), axes, keepdims=keepdims)
    return power(total, 1 / ord)


def _matrix_norm(x: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    if ord in (None, "fro", "f"):
        return _euclidean(x, axes, keepdims)
    if ord in ("nuc", 2, -2):
        return _spectral_norm(x, ord, axes, keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise errors.OptionError(
            f"norm: ord={ord!r} of matrices is none of 'fro', 'nuc', 1, -1, 2, -2, "
            "inf, -inf"
        )
    # The sums of the columns (1) or of the rows (inf), of which the largest counts.
    first, second = axes if abs(ord) == 1 else axes[::-1]
    sums = reductions.sum(absolute(x), first, keepdims=True)
    best = reductions.max if ord > 0 else reductions.min
    value = best(sums, second, keepdims=True)
    if keepdims:
        return value
    return reshape(value, [n for i, n in enumerate(x.shape) if i not in axes])


def _spectral_norm(x: Array, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Array:
    """A function of the singular values; where they are 0, it does not move."""
    s = svdvals(moveaxis(x, axes, (-2, -1)))
    s = where(greater(s, 0), s, 0)
    if ord == "nuc":
        value = reductions.sum(s, -1)
    else:
        value = reductions.max(s, -1) if ord > 0 else reductions.min(s, -1)
    if not keepdims:
        return value
    return reshape(value, [1 if i in axes else n for i, n in enumerate(x.shape)])
