"""What names, orders and repeats other operations: composite, tokens, scatter_apply.

Receives functions and arrays, gives functions and arrays. Next on the walk:
`parallel.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors, tree
from fnx.api.loops import scan
from fnx.api.scopes import named_scope
from fnx.core.array import Array
from fnx.core.trace import Tracer, tracing
from fnx.lax.structure import (
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    gather,
    scatter,
)
from fnx.numpy.creation import array, zeros
from fnx.numpy.indexing import get
from fnx.numpy.mathematics import remainder
from fnx.numpy.operands import ArrayLike, DTypeLike, as_array
from fnx.numpy.shaping import broadcast_to, reshape, transpose
from fnx.ops.marks import barrier

# ---------------------------------------------------------------- names


def composite(
    decomposition: Callable[..., Any], name: str, version: int = 0
) -> Callable[..., Any]:
    """The function under a name, which programs, plans and errors show.

    Keyword arguments are attributes: they must be known. Transformations go through.

    >>> from fnx import lax
    >>> tangent = composite(lambda x: lax.sin(x) / lax.cos(x), "my.tangent")
    >>> tangent(0.0).item()
    0.0
    """
    label = f"{name}.v{version}" if version else name

    @functools.wraps(decomposition)
    def named(*args: Any, **attributes: Any) -> Any:
        for key, value in attributes.items():
            if any(isinstance(leaf, Tracer) for leaf in tree.leaves(value)):
                raise errors.ArgumentError(
                    f"composite {name!r}: the attribute {key!r} is traced; give it by "
                    "position"
                )
        with named_scope(label):
            return decomposition(*args, **attributes)

    return named


def stage(x: ArrayLike, /) -> Array:
    """The value as an array, and as an operation of the program while tracing.

    >>> stage(1.5).item()
    1.5
    """
    value = as_array("stage", x)
    return barrier(value, number=0)[0] if tracing() else value


def create_token(_: Any = None) -> Array:
    """A value that stands for nothing having been done; see `after_all`."""
    return zeros((0,), dtypes.bool_)


def after_all(*operands: Any) -> Array:
    """A token that is there once all operands are.

    Effects keep the order of the program, with tokens or without.

    >>> after_all(create_token(), create_token()).shape
    (0,)
    """
    leaves = [as_array("after_all", x, i) for i, x in enumerate(tree.leaves(operands))]
    return barrier(create_token(), *leaves, number=0)[0]


# ---------------------------------------------------------------- shapes and places


def empty(shape: Any, dtype: DTypeLike) -> Array:
    """The same as zeros: nothing could be written into an empty array."""
    return zeros(shape, dtype)


def broadcast_like(arr: ArrayLike, like_arr: Any) -> Array:
    """The array broadcast to the shape of another one.

    >>> import numpy as np
    >>> broadcast_like(np.arange(2), np.zeros((3, 2))).shape
    (3, 2)
    """
    return broadcast_to(arr, like_arr.shape)


def shape_as_value(shape: Sequence[int]) -> Array:
    """A shape as a vector of integers.

    >>> shape_as_value((2, 3)).tolist()
    [2, 3]
    """
    return array(tuple(shape), dtypes.default_int())


def index_take(src: ArrayLike, idxs: Sequence[ArrayLike], axes: Sequence[int]) -> Array:
    """The elements at places along some axes, given as a vector for each.

    Places are counted round the ends. The new axis is the first.

    >>> import numpy as np
    >>> index_take(np.arange(6).reshape(2, 3), [np.array([0, -1])], [1]).tolist()
    [[0, 3], [2, 5]]
    """
    x = as_array("index_take", src)
    places = [as_array("index_take", i, n) for n, i in enumerate(idxs)]
    index: list[Any] = [slice(None)] * x.ndim
    for axis, place in zip(axes, places, strict=True):
        index[axis] = remainder(place, x.shape[axis])
    found = get(x, tuple(index))
    # Places of neighbouring axes keep theirs, others come first; here always the first.
    together = max(axes) - min(axes) + 1 == len(axes)
    if not together or not min(axes):
        return found
    order = (min(axes), *[a for a in range(found.ndim) if a != min(axes)])
    return transpose(found, order)


def scatter_apply(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    func: Callable[[Array], Array],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Array:
    """Windows of an array replaced by a function of them, one after the other.

    A window whose index comes several times goes through the function as often.
    `update_shape` is the shape that updates would have in `scatter`. The two promises
    are accepted; nothing depends on them.

    >>> import numpy as np
    >>> numbers = ScatterDimensionNumbers((), (0,), (0,))
    >>> double = lambda x: 2 * x
    >>> places = np.array([[1], [1]])
    >>> x = np.ones(3)
    >>> scatter_apply(x, places, double, numbers, update_shape=(2,)).tolist()
    [1.0, 4.0, 1.0]
    """
    x, indices = (
        as_array("scatter_apply", operand),
        as_array("scatter_apply", scatter_indices, 1),
    )
    if dimension_numbers.operand_batching_dims:
        raise errors.OptionError("scatter_apply: batching axes are not there")
    window = tuple(dimension_numbers.update_window_dims)
    inserted = tuple(dimension_numbers.inserted_window_dims)
    expected = indices.shape[:-1]
    outer = tuple([n for i, n in enumerate(update_shape) if i not in window])
    if outer != expected:
        raise errors.ShapeError(
            f"scatter_apply: update_shape {tuple(update_shape)} does not have the axes "
            f"{expected} of the indices {indices.type} beside those of the windows"
        )
    sizes = iter([update_shape[i] for i in window])
    slices = tuple([1 if i in inserted else next(sizes) for i in range(x.ndim)])
    to_axes = tuple(dimension_numbers.scatter_dims_to_operand_dims)
    axes = tuple(range(len(window)))
    reads = GatherDimensionNumbers(axes, inserted, to_axes)
    writes = ScatterDimensionNumbers(axes, inserted, to_axes)

    def step(carry: Array, index: Array) -> tuple[Array, None]:
        old = gather(carry, index, reads, slices, mode="clip")
        return scatter(carry, index, func(old), writes, mode=mode), None

    rows = reshape(indices, (math.prod(expected), indices.shape[-1]))
    return scan(step, x, rows)[0]
