"""The array standard's forms of diagonal, trace, outer and cross.

Receives stacks of matrices (the last two axes) or vectors; `fnx.numpy` has functions of
the same names for other axes. Next on the walk: `solving.py`.
"""

from __future__ import annotations

from fnx import errors
from fnx.api.promote import becomes_native
from fnx.core.array import Array
from fnx.numpy import contractions, grids
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array


@becomes_native
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """The diagonals of matrices, as the last axis.

    >>> import numpy as np
    >>> diagonal(np.arange(8).reshape(2, 2, 2))
    Array([[0, 3],
           [4, 7]], dtype=int64)
    """
    return grids.diagonal(x, offset, -2, -1)


@becomes_native
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike = None) -> Array:
    """The sums of the diagonals of matrices.

    >>> import numpy as np
    >>> trace(np.arange(8).reshape(2, 2, 2))
    Array([ 3, 11], dtype=int64)
    """
    return contractions.trace(x, offset, -2, -1, dtype)


@becomes_native
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """All products of an element of one vector and one of the other.

    >>> import numpy as np
    >>> outer(np.array([1, 2]), np.array([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int64)
    """
    x, y = as_array("outer", x1), as_array("outer", x2, 1)
    if x.ndim != 1 or y.ndim != 1:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.outer: x1 is {x.type}, x2 is {y.type}",
                "both must be vectors",
                "fnx.numpy.outer takes arrays of any rank",
            )
        )
    return contractions.outer(x, y)


@becomes_native
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """The cross products of vectors of three elements along an axis.

    >>> import numpy as np
    >>> cross(np.array([1, 0, 0]), np.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int64)
    """
    x, y = as_array("cross", x1), as_array("cross", x2, 1)
    if x.shape[axis] != 3 or y.shape[axis] != 3:
        raise errors.ShapeError(
            errors.explain(
                f"linalg.cross: x1 is {x.type}, x2 is {y.type}",
                f"both must have three elements along axis {axis}",
            )
        )
    return contractions.cross(x, y, axis=axis)
