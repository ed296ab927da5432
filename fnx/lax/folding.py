"""Reductions by any function, and the largest elements: reduce, approx_max_k.

Receives arrays (or a tree of arrays) and a function of two scalars, gives what the
elements combine to. Next on the walk: `ragged.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors, tree
from fnx.api.vmap import vmap
from fnx.core.array import Array
from fnx.lax.elementwise import neg
from fnx.lax.reducing import top_k
from fnx.lax.windowing import combined, common_shape, known, start_of
from fnx.numpy import ufuncs
from fnx.numpy.operands import ArrayLike, as_array, axes_tuple, axis_index, broadcast
from fnx.numpy.shaping import moveaxis
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import reshape

# ---------------------------------------------------------------- any function


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
) -> Any:
    """What the elements along axes combine to, and `init_values` with that.

    `operands` is an array or a tree of arrays of one shape, `init_values` a scalar for
    each. `computation` takes two such trees of scalars and gives one; it is
    associative, and the order of the elements is kept. Sums, products, extremes and
    bits are known by what the function does; others go through it in log n steps. It
    can be differentiated.

    >>> import numpy as np
    >>> from fnx import lax
    >>> reduce(np.array([1.0, 3.0, 2.0]), -np.inf, lax.max, (0,)).item()
    3.0
    >>> def better(x, y):  # the larger value, and its place
    ...     first = x[0] >= y[0]
    ...     return tuple(lax.select(first, a, b) for a, b in zip(x, y))
    >>> pair = np.array([1.0, 5.0, 5.0]), np.arange(3)
    >>> [x.item() for x in reduce(pair, (-np.inf, 0), better, (0,))]
    [5.0, 1]
    """
    leaves, structure = tree.flatten(operands)
    starts, found = tree.flatten(init_values)
    if structure != found:
        raise errors.TreeError(
            f"reduce: operands is {structure}, init_values is {found}. Give a scalar "
            "for each array."
        )
    arrays = [as_array("reduce", x, n) for n, x in enumerate(leaves)]
    shape = common_shape("reduce", arrays)
    axes = tuple(sorted(axes_tuple("reduce", tuple(dimensions), len(shape))))
    values = [start_of("reduce", x, s) for x, s in zip(arrays, starts, strict=True)]
    if len(arrays) == 1 and tree.structure(0) == structure:
        name = known(computation, arrays[0].dtype)
        if name is not None:
            return combined(name, computation, arrays[0], values[0], axes)
    rows = [_in_front(x, axes) for x in arrays]
    kept = rows[0].shape[1:]
    mapped = computation
    for _ in kept:
        mapped = vmap(mapped)
    # Scalars with the shape of what is kept.
    first = [broadcast(as_array("reduce", v), kept) for v in values]
    total = _halved(rows, vmap(mapped), structure)
    if total is None:
        return structure.unflatten(first)
    return mapped(structure.unflatten(first), structure.unflatten(total))


def _in_front(x: Array, axes: tuple[int, ...]) -> Array:
    """The axes flattened into one, the first."""
    moved = moveaxis(x, axes, tuple(range(len(axes))))
    kept = moved.shape[len(axes) :]
    size = 1
    for n in moved.shape[: len(axes)]:
        size *= n
    return reshape(moved, shape=(size, *kept))


def _halved(
    rows: list[Array], combine: Callable[..., Any], structure: Any
) -> list[Array] | None:
    """Neighbours combined until one row is left; None if there are no rows."""
    n = rows[0].shape[0]
    if not n:
        return None
    while n > 1:
        even = n - n % 2
        left, right = [
            structure.unflatten([part_of(x, 0, begin, even, 2) for x in rows])
            for begin in (0, 1)
        ]
        leaves, found = tree.flatten(combine(left, right))
        if found != structure:
            raise errors.TreeError(
                f"reduce: computation takes and gives {structure}, it gave {found}"
            )
        pairs = [as_array("reduce", x) for x in leaves]
        for new, old in zip(pairs, rows, strict=True):
            if (new.dtype, new.shape[1:]) != (old.dtype, old.shape[1:]):
                raise errors.DTypeError(
                    f"reduce: of scalars of {old.dtype.name} the computation gave "
                    f"{new.dtype.name}[{', '.join(map(str, new.shape[old.ndim :]))}]"
                )
        if even < n:
            rest = [part_of(x, 0, even, n) for x in rows]
            pairs = [
                concatenate(x, y, axis=0) for x, y in zip(pairs, rest, strict=True)
            ]
        rows, n = pairs, n - even // 2
    return [reshape(x, shape=x.shape[1:]) for x in rows]


def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """The exclusive or of the bits of integers, or of booleans.

    >>> import numpy as np
    >>> reduce_xor(np.array([1, 3, 4]), (0,)).item()
    6
    """
    x = as_array("reduce_xor", operand)
    return reduce(x, x.dtype.type(0), ufuncs.bitwise_xor, axes)


# ---------------------------------------------------------------- the largest


def approx_max_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """The k largest elements along an axis, and their places: exactly those.

    `recall_target` (in (0, 1]) and `reduction_input_size_override` allow some to be
    missed, which does not happen here. Without `aggregate_to_topk` there would be
    candidates of which the user chooses: it raises.

    >>> import numpy as np
    >>> [x.tolist() for x in approx_max_k(np.array([1.0, 3.0, 2.0]), 2)]
    [[3.0, 2.0], [1, 2]]
    """
    return _best(
        "approx_max_k",
        operand,
        k,
        reduction_dimension,
        recall_target,
        aggregate_to_topk,
    )


def approx_min_k(
    operand: ArrayLike,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Array, Array]:
    """The k smallest elements along an axis, and their places; see `approx_max_k`."""
    values, places = _best(
        "approx_min_k",
        neg(as_array("approx_min_k", operand)),
        k,
        reduction_dimension,
        recall_target,
        aggregate_to_topk,
    )
    return neg(values), places


def _best(
    name: str, operand: Any, k: int, axis: int, recall: float, aggregate: bool
) -> tuple[Array, Array]:
    if not 0 < recall <= 1:
        raise errors.OptionError(f"{name}: recall_target is in (0, 1], not {recall}")
    if not aggregate:
        raise errors.OptionError(
            f"{name}: aggregate_to_topk=False has no meaning where the {k} elements "
            "are exact; leave it out"
        )
    x = as_array(name, operand)
    place = axis_index(name, axis, x.ndim, "reduction_dimension")
    values, places = top_k(x, k, axis=place)
    return values, places
