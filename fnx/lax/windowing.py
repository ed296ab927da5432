"""reduce_window under the name of `jax.lax`: any reduction, over windows.

Receives arrays and a function of two scalars. Sums, products, extremes and bits are
known by what the function does, whatever it is called; other functions run over the
elements of the window one after the other. Next on the walk: `parallel.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fnx import dtypes, errors, tree
from fnx.api.loops import scan
from fnx.api.vmap import vmap
from fnx.core.array import Array
from fnx.core.program import Literal
from fnx.core.trace import trace
from fnx.core.types import ArrayType
from fnx.lax.convolving import windows_of
from fnx.numpy.counting import where
from fnx.numpy.operands import as_array, read, shape_tuple, typed
from fnx.ops import pooling, reduce
from fnx.ops.pieces import pad
from fnx.ops.reduce import Reduction
from fnx.ops.shape import broadcast_in_dim, full, reshape
from fnx.ops.windows import Windows, patches

Ints = Sequence[int]


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[..., Any],
    window_dimensions: Ints,
    window_strides: Ints | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Ints | None = None,
    window_dilation: Ints | None = None,
) -> Any:
    """What the elements of each window combine to, with `init_value` before them.

    `computation` takes two scalars, and is associative; `operand` and `init_value` may
    be trees of arrays of one shape and of scalars, which it takes and gives as trees.
    There is an entry for each axis in the window's dimensions, strides and dilations;
    `padding` is "SAME", "SAME_LOWER", "VALID" or pairs (before, after); what is padding
    does not count. Derivatives of `max` and `min` go to the first of the tied.

    >>> import numpy as np
    >>> from fnx import lax
    >>> x = np.array([1.0, 3.0, 2.0, 5.0])
    >>> reduce_window(x, -np.inf, lax.max, (2,), (2,)).tolist()
    [3.0, 5.0]
    >>> reduce_window(x, 0.0, lax.add, (3,), padding="SAME").tolist()
    [4.0, 6.0, 10.0, 7.0]
    """
    leaves, structure = tree.flatten(operand)
    starts, found = tree.flatten(init_value)
    if structure != found:
        raise errors.TreeError(
            f"reduce_window: operand is {structure}, init_value is {found}. "
            "Give a scalar for each array."
        )
    arrays = [as_array("reduce_window", x, n) for n, x in enumerate(leaves)]
    shape = common_shape("reduce_window", arrays)
    windows = windows_of(
        "reduce_window",
        shape,
        shape_tuple("reduce_window", window_dimensions),
        window_strides,
        padding,
        {"base_dilation": base_dilation, "window_dilation": window_dilation},
    )
    values = [
        start_of("reduce_window", x, start)
        for x, start in zip(arrays, starts, strict=True)
    ]
    if len(arrays) == 1 and tree.structure(0) == structure:
        name = known(computation, arrays[0].dtype)
        if name is not None:
            return _by_name(name, computation, arrays[0], values[0], windows)
    return _folded(computation, arrays, values, windows, structure)


def reduce_window_shape_tuple(
    operand_shape: Ints,
    window_dimensions: Ints,
    window_strides: Ints | None,
    padding: Any,
    base_dilation: Ints | None = None,
    window_dilation: Ints | None = None,
) -> tuple[int, ...]:
    """The shape that `reduce_window` gives.

    >>> reduce_window_shape_tuple((5, 6), (2, 3), (2, 1), "VALID")
    (2, 4)
    """
    windows = windows_of(
        "reduce_window_shape_tuple",
        operand_shape,
        window_dimensions,
        window_strides,
        padding,
        {"base_dilation": base_dilation, "window_dilation": window_dilation},
    )
    return windows.over(tuple(operand_shape))


# ---------------------------------------------------------------- known reductions

_WINDOWED = {
    "add": pooling.reduce_window_sum,
    "max": pooling.reduce_window_max,
    "min": pooling.reduce_window_min,
}
_OTHERS: dict[str, Reduction] = {
    "mul": reduce.reduce_prod,
    "and": reduce.reduce_and,
    "or": reduce.reduce_or,
}


def known(computation: Callable[..., Any], dtype: np.dtype[Any]) -> str | None:
    """The operation that a function is, by the program that it makes of two scalars."""
    scalar = ArrayType((), dtype)
    traced = trace(lambda x, y: [computation(x, y)], [scalar, scalar])
    program = traced.program
    if traced.captured or len(program.eqns) != 1:
        return None
    (eqn,) = program.eqns
    if set(eqn.inputs) != set(program.inputs) or eqn.outputs != program.outputs:
        return None
    name = eqn.primitive.name
    return name if name in _WINDOWED or name in _OTHERS else None


def _by_name(
    name: str,
    computation: Callable[..., Any],
    x: Array,
    start: Any,
    windows: Windows,
) -> Array:
    """The reduction by a primitive, and what the start adds to that."""
    other, neutral = _OTHERS.get(name), _neutral(name, x.dtype)
    if other is None:
        value = _WINDOWED[name](x, windows=windows)
    else:
        natural = tuple(range(2 * x.ndim))
        padded = _padded(x, neutral, windows)
        found = patches(padded, windows=windows.unpadded, dims=natural)
        value = other(found, axes=natural[x.ndim :])
    if _is(start, neutral):
        return value
    return computation(broadcast_in_dim(start, shape=value.shape, dims=()), value)


_ALONG_AXES: dict[str, Reduction] = {
    **_OTHERS,
    "add": reduce.reduce_sum,
    "max": reduce.reduce_max,
    "min": reduce.reduce_min,
}


def combined(
    name: str,
    computation: Callable[..., Any],
    x: Array,
    start: Any,
    axes: tuple[int, ...],
) -> Array:
    """The reduction along axes by a primitive, and what the start adds to that."""
    kept = tuple([n for i, n in enumerate(x.shape) if i not in axes])
    if not all(x.shape[i] for i in axes):
        return broadcast_in_dim(start, shape=kept, dims=())
    value = _ALONG_AXES[name](x, axes=axes)
    if _is(start, _neutral(name, x.dtype)):
        return value
    return computation(broadcast_in_dim(start, shape=kept, dims=()), value)


def _neutral(name: str, dtype: np.dtype[Any]) -> Any:
    """What changes nothing."""
    if name in ("max", "min"):
        return _WINDOWED[name].neutral(dtype)
    if name == "and":
        return True if dtypes.is_bool(dtype) else ~dtype.type(0)
    return 1 if name == "mul" else 0


def _is(start: Any, value: Any) -> bool:
    """Whether a start is known to be that number."""
    known = start.value if isinstance(start, Literal) else start
    if isinstance(known, Array):
        try:
            known = np.asarray(known)
        except errors.TracerValueError:
            return False
    return bool(known == np.asarray(value, known.dtype))


# ---------------------------------------------------------------- any function


def _folded(
    computation: Callable[..., Any],
    arrays: Sequence[Array],
    starts: Sequence[Any],
    windows: Windows,
    structure: Any,
) -> Any:
    """The function of what came before and of each element of the window."""
    ndim = len(windows.size)
    # The elements of a window along a leading axis.
    dims = (*range(ndim, 2 * ndim), *range(ndim))
    counts = windows.over(arrays[0].shape)

    def rows_of(x: Array) -> Array:
        found = patches(x, windows=windows, dims=dims)
        return reshape(found, shape=(windows.count, *counts))

    first = [broadcast_in_dim(x, shape=counts, dims=()) for x in starts]
    rows = tree.unflatten(structure, [rows_of(x) for x in arrays])
    mapped = computation
    for _ in range(ndim):
        mapped = vmap(mapped)

    def step(carry: Any, row: Any) -> tuple[Any, None]:
        values, is_element = row
        found = mapped(carry, values)
        return tree.map(partial(where, is_element), found, carry), None

    is_element = rows_of(full(arrays[0].shape, dtypes.bool_, True))
    return scan(step, tree.unflatten(structure, first), (rows, is_element))[0]


# ---------------------------------------------------------------- arguments


def common_shape(function: str, arrays: Sequence[Array]) -> tuple[int, ...]:
    """The one shape that arrays have."""
    shapes = {x.shape for x in arrays}
    if len(shapes) != 1:
        types = ", ".join([str(x.type) for x in arrays])
        reason = "the arrays must have one shape" if arrays else "there is no array"
        raise errors.ShapeError(errors.explain(f"{function}({types})", reason))
    return shapes.pop()


def start_of(function: str, x: Array, start: Any) -> Any:
    """The start, a scalar of the array's dtype."""
    value = read(function, start, 1)
    if not isinstance(value, Array):
        return typed(function, value, x.dtype, position=1)
    if value.shape or (value.dtype != x.dtype and not value.type.weak):
        asked = f"{function}({x.type}, {value.type})"
        reason = f"init_value must be a scalar of dtype {x.dtype}"
        raise errors.DTypeError(errors.explain(asked, reason, "convert it"))
    return typed(function, value, x.dtype)


def _padded(x: Array, value: Any, windows: Windows) -> Array:
    """The array among padding."""
    low, high, interior = windows.low, windows.high, windows.interior
    return pad(x, value, low=low, high=high, interior=interior)
