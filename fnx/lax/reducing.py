"""Reductions, cumulative operations, orders and products under the names of `jax.lax`.

Receives arrays and axes (as sequences), gives arrays.
Next on the walk: `convolving.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import dtypes
from fnx.api.prefixes import associative_scan
from fnx.core.array import Array
from fnx.lax.accuracy import PrecisionLike, product
from fnx.numpy import complex_order
from fnx.numpy.mathematics import logaddexp
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array, axes_tuple, axis_index
from fnx.ops import cumulative, reduce
from fnx.ops import sort as sorts


def _reduction(name: str, op: Any, summary: str, args: str, result: Any) -> Any:
    def function(operand: ArrayLike, axes: Sequence[int]) -> Array:
        x = as_array(name, operand)
        return op(x, axes=tuple(sorted(axes_tuple(name, tuple(axes), x.ndim, "axes"))))

    example = f"{name}(np.array({args}), (0,)).item()\n    {result!r}"
    return _documented(function, name, f"{summary}\n{_IMPORT}    >>> {example}")


_IMPORT = "\n    >>> import numpy as np\n"


def _documented(function: Any, name: str, text: str) -> Any:
    """The function under its public name, with a docstring made of a table's row."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text}\n    "
    return function


def _largest(x: Array, *, axes: tuple[int, ...]) -> Array:
    if dtypes.is_complex(x.dtype):
        return complex_order.largest(x, axes)
    if dtypes.is_bool(x.dtype):
        return reduce.reduce_or(x, axes=axes)
    return reduce.reduce_max(x, axes=axes)


def _smallest(x: Array, *, axes: tuple[int, ...]) -> Array:
    if dtypes.is_complex(x.dtype):
        return complex_order.smallest(x, axes)
    if dtypes.is_bool(x.dtype):
        return reduce.reduce_and(x, axes=axes)
    return reduce.reduce_min(x, axes=axes)


_VALUES = "[2.0, 3.0]"
_TRUTHS = "[True, False]"
reduce_sum = _reduction("reduce_sum", reduce.reduce_sum, "The sum.", _VALUES, 5.0)
reduce_prod = _reduction(
    "reduce_prod", reduce.reduce_prod, "The product.", _VALUES, 6.0
)
reduce_max = _reduction("reduce_max", _largest, "The largest.", _VALUES, 3.0)
reduce_min = _reduction("reduce_min", _smallest, "The smallest.", _VALUES, 2.0)
reduce_and = _reduction("reduce_and", reduce.reduce_and, "The and.", _TRUTHS, False)
reduce_or = _reduction("reduce_or", reduce.reduce_or, "The or.", _TRUTHS, True)


def argmax(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """The index of the first largest element (or NaN) along an axis.

    >>> import numpy as np
    >>> argmax(np.array([1, 3, 2]), 0, "int32").item()
    1
    """
    return _place("argmax", reduce.argmax, operand, axis, index_dtype)


def argmin(operand: ArrayLike, axis: int, index_dtype: DTypeLike) -> Array:
    """The index of the first smallest element (or NaN) along an axis."""
    return _place("argmin", reduce.argmin, operand, axis, index_dtype)


def _place(
    name: str, op: Any, operand: ArrayLike, axis: int, dtype: DTypeLike
) -> Array:
    x = as_array(name, operand)
    place = axis_index(name, axis, x.ndim)
    return op(x, axis=place, index_dtype=dtypes.as_dtype(dtype))


def _cumulative(name: str, op: Any, summary: str, of_complex: Any = None) -> Any:
    """`of_complex` combines two complex numbers where the primitive takes none."""

    def function(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
        x = as_array(name, operand)
        place = axis_index(name, axis, x.ndim)
        if of_complex is not None and dtypes.is_complex(x.dtype):
            return associative_scan(of_complex, x, bool(reverse), place)
        return op(x, axis=place, reverse=bool(reverse))

    text = f"{summary} Up to each place of an axis, or from it on if `reverse`."
    example = f"{name}(np.ones(3)).shape\n    (3,)"
    return _documented(function, name, f"{text}\n{_IMPORT}    >>> {example}")


cumsum = _cumulative("cumsum", cumulative.cumsum, "Sums.")
cumprod = _cumulative("cumprod", cumulative.cumprod, "Products.")
cummax = _cumulative(
    "cummax", cumulative.cummax, "The largest element.", complex_order.maximum
)
cummin = _cumulative(
    "cummin", cumulative.cummin, "The smallest element.", complex_order.minimum
)
cumlogsumexp = _cumulative(
    "cumlogsumexp",
    cumulative.cumlogsumexp,
    "Logarithms of sums of exponentials.",
    logaddexp,
)


# ---------------------------------------------------------------- orders


def sort(
    operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Any:
    """One array sorted along an axis, or several in the order of the first `num_keys`.

    >>> import numpy as np
    >>> [x.tolist() for x in sort((np.array([2, 1]), np.array([8, 9])))]
    [[1, 2], [9, 8]]
    """
    many = operand if isinstance(operand, tuple | list) else (operand,)
    arrays = [as_array("sort", x, i) for i, x in enumerate(many)]
    place = axis_index("sort", dimension, arrays[0].ndim, "dimension")
    found = sorts.sort(*arrays, axis=place, num_keys=num_keys, stable=is_stable)
    return tuple(found) if isinstance(operand, tuple | list) else found[0]


def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """Keys sorted along an axis, and values in the same order."""
    return sort((keys, values), dimension, is_stable)


def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> list[Array]:
    """The k largest elements along an axis in descending order, and their places.

    >>> import numpy as np
    >>> [x.tolist() for x in top_k(np.array([1, 3, 2]), 2)]
    [[3, 2], [1, 2]]
    """
    x = as_array("top_k", operand)
    return list(sorts.top_k(x, k=k.__index__(), axis=axis_index("top_k", axis, x.ndim)))


# ---------------------------------------------------------------- products


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: Any,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """Sums of products over axes of both operands.

    `dimension_numbers` is ((contracted, contracted), (batch, batch)), pairs of axes.
    The result has the batch axes, then the free axes of the first operand, then those
    of the second. `preferred_element_type` is the dtype of the result. `precision` is a
    `Precision` (or a pair), or a `DotAlgorithm` or one of its presets, which says what
    operands are rounded to and what is summed in.

    >>> import numpy as np
    >>> dot_general(np.ones((2, 3)), np.ones((3, 4)), (((1,), (0,)), ((), ()))).shape
    (2, 4)
    """
    contract, batch = [(tuple(x), tuple(y)) for x, y in dimension_numbers]
    wanted = preferred_element_type
    return product(
        as_array("dot_general", lhs),
        as_array("dot_general", rhs, 1),
        contract,
        batch,
        precision,
        None if wanted is None else dtypes.as_dtype(wanted),
    )


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    dimension_numbers: Any = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike = None,
) -> Array:
    """The product of vectors and matrices, or `dot_general` with dimension numbers."""
    x, y = as_array("dot", lhs), as_array("dot", rhs, 1)
    numbers = dimension_numbers or (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, numbers, precision, preferred_element_type)


def batch_matmul(
    lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None
) -> Array:
    """The matrix product over the last two axes; the leading ones are equal."""
    x, y = as_array("batch_matmul", lhs), as_array("batch_matmul", rhs, 1)
    outer = tuple(range(x.ndim - 2))
    numbers = (((x.ndim - 1,), (y.ndim - 2,)), (outer, outer))
    return dot_general(x, y, numbers, precision)
