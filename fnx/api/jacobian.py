"""jacfwd, jacrev, hessian: all first or second derivatives of a function.

Receives a function; gives one that linearizes it where it is called and applies the
linear map, or its transpose, to every basis vector at once: the program is batched over
the basis. The result is the output's tree, whose leaves are trees of the arguments.
Next on the walk: `vmap.py`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.api.arguments import as_array, check_callable, indices, leaf_names
from fnx.api.derivatives import LinearMap, Point, linearized
from fnx.api.grad import Argnums, Chosen, check_inputs, check_outputs, choose
from fnx.api.tangents import moves, with_type, zeros
from fnx.control.call import spread
from fnx.core.primitive import MappedAxis
from fnx.core.program import Program
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add, eq
from fnx.ops.elementwise import convert
from fnx.ops.families import along
from fnx.ops.shape import iota, part_of, permute, reshaped
from fnx.transforms.batch import batch_program
from fnx.tree import leaves as tree_leaves


def jacfwd(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fun`, column by column (forward mode).

    Best where outputs outnumber inputs. The result has the tree of the output, each
    leaf the tree of the argument (a tuple of them if `argnums` is one), each of shape
    `output.shape + input.shape`. With `has_aux` the result is `(jacobian, aux)`.
    Arguments must be real, or complex with `holomorphic=True`; raises `DTypeError`.

    >>> import fnx, numpy as np
    >>> fnx.jacfwd(lambda x: x * x)(np.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float64)
    """
    check_callable("jacfwd", fun)
    numbers = indices("jacfwd", "argnums", argnums)

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        chosen = choose("jacfwd", fun, numbers, args, kwargs)
        check_inputs("jacfwd", chosen, holomorphic=holomorphic, allow_int=False)
        if not holomorphic:
            _check_real(chosen)
        point = linearized("jacfwd", chosen.call, chosen.args, chosen.roots, has_aux)
        if holomorphic:
            check_outputs("jacfwd", point, holomorphic)
        columns = _columns(point.map, point.residuals)
        return _jacobian(point, columns, argnums, has_aux)

    return errors.api_boundary(functools.wraps(fun)(jacobian_of))


def jacrev(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fun`, row by row (reverse mode).

    Best where inputs outnumber outputs. Results as of `jacfwd`; complex arguments,
    `holomorphic` and `allow_int` as of `grad`. Raises `DTypeError`.

    >>> import fnx, numpy as np
    >>> fnx.jacrev(lambda x: x * x)(np.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float64)
    """
    check_callable("jacrev", fun)
    numbers = indices("jacrev", "argnums", argnums)

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        chosen = choose("jacrev", fun, numbers, args, kwargs)
        check_inputs("jacrev", chosen, holomorphic=holomorphic, allow_int=allow_int)
        point = linearized("jacrev", chosen.call, chosen.args, chosen.roots, has_aux)
        check_outputs("jacrev", point, holomorphic)
        rows = _rows(point.map, point.residuals)
        return _jacobian(point, rows, argnums, has_aux)

    return errors.api_boundary(functools.wraps(fun)(jacobian_of))


jacobian = jacrev


def hessian(
    fun: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Hessian of `fun`: `jacfwd` of `jacrev`.

    The result nests the output's tree, the argument's tree, and the argument's tree
    again; each leaf has shape `output.shape + input.shape + input.shape`.

    >>> import fnx, numpy as np
    >>> fnx.hessian(lambda x: (x * x * x).sum())(np.array([1.0, 2.0]))
    Array([[ 6.,  0.],
           [ 0., 12.]], dtype=float64)
    """
    first = jacrev(fun, argnums, has_aux, holomorphic)
    return jacfwd(first, argnums, has_aux, holomorphic)


def _check_real(chosen: Chosen) -> None:
    leaves = tree_leaves(chosen.args)
    names = leaf_names(chosen.roots, chosen.args)
    for leaf, name in zip(leaves, names, strict=True):
        type = as_array(leaf, "jacfwd", name).type
        if dtypes.is_complex(type.dtype):
            raise errors.DTypeError(
                errors.explain(
                    f"jacfwd: {name} is {type}",
                    "forward mode takes real arguments",
                    "pass holomorphic=True if the function is holomorphic, or use "
                    "jacrev",
                )
            )


# ---------------------------------------------------------------- blocks

Blocks = list[list[Any]]


def _jacobian(point: Point, blocks: Blocks, argnums: Argnums, has_aux: bool) -> Any:
    """The blocks, a row for each output leaf, as a tree of trees."""
    many = isinstance(argnums, tuple | list)
    rows = [point.map.in_tree.unflatten(row) for row in blocks]
    result = point.out_tree.unflatten([row if many else row[0] for row in rows])
    return (result, point.aux) if has_aux else result


def _columns(linear: LinearMap, residuals: Sequence[Any]) -> Blocks:
    """The derivative of every output by every input, from the images of the inputs."""
    inexact = moves(linear.in_types)
    inputs = [t for t, moving in zip(linear.in_types, inexact, strict=True) if moving]
    images = _images(linear.program, residuals, inputs)
    rows = zip(spread(images, linear.reached), linear.out_types, strict=True)
    return [_column_blocks(image, out, linear.in_types) for image, out in rows]


def _column_blocks(
    image: Any, out: ArrayType, in_types: Sequence[ArrayType]
) -> list[Any]:
    """The image of all basis vectors (or `None`) cut in a block for each input."""
    parts = _parts(image, in_types)
    return [
        zeros(out.with_shape(out.shape + type.shape))
        if part is None or not dtypes.is_inexact(out.dtype)
        else with_type(_last(part, type.shape), out)
        for part, type in zip(parts, in_types, strict=True)
    ]


def _rows(linear: LinearMap, residuals: Sequence[Any]) -> Blocks:
    """The derivative of every output by every input, from the images of the outputs."""
    turned, reached = linear.transposed()
    rows = list(zip(linear.out_types, linear.reached, strict=True))
    outputs = [type for type, is_reached in rows if is_reached]
    images = iter(spread(_images(turned, residuals, outputs), reached))
    found = [next(images) if moving else None for moving in linear.moving]
    columns = [
        _row_blocks(image, type, rows)
        for image, type in zip(found, linear.in_types, strict=True)
    ]
    return [[column[i] for column in columns] for i in range(len(rows))]


def _row_blocks(
    image: Any, type: ArrayType, rows: Sequence[tuple[ArrayType, bool]]
) -> list[Any]:
    """The image of all basis vectors (or `None`) cut in a block for each output."""
    parts = iter(_parts(image, [out for out, is_reached in rows if is_reached]))
    blocks = []
    for out, is_reached in rows:
        part = next(parts) if is_reached else None
        whole = type.with_shape(out.shape + type.shape)
        found = None if part is None else reshaped(part, whole.shape)
        blocks.append(zeros(whole) if found is None else with_type(found, type))
    return blocks


def _images(
    program: Program, residuals: Sequence[Any], types: Sequence[ArrayType]
) -> list[Any]:
    """A linear program applied to every basis vector: outputs with the basis first."""
    basis = _basis(types)
    axis = MappedAxis(None, sum(type.size for type in types))
    flags = (False,) * len(residuals) + (True,) * len(basis)
    lifted, mapped = batch_program(program, axis, flags)
    results = evaluate(lifted, [*residuals, *basis])
    rows = zip(results, mapped, strict=True)
    return [x if is_mapped else along(axis, x) for x, is_mapped in rows]


def _basis(types: Sequence[ArrayType]) -> list[Any]:
    """The unit vectors of the space of some leaves, stacked along a leading axis."""
    total = sum(type.size for type in types)
    starts = itertools.accumulate([0, *[type.size for type in types]])
    return [
        _unit_rows(type, start, total)
        for type, start in zip(types, starts, strict=False)
    ]


def _unit_rows(type: ArrayType, start: int, total: int) -> Any:
    """The part of the identity matrix that belongs to one leaf, in its shape."""
    shape = (total, type.size)
    row = iota(shape=shape, dtype=dtypes.int64, axis=0)
    column = add(iota(shape=shape, dtype=dtypes.int64, axis=1), start)
    ones = convert(eq(row, column), dtype=type.dtype, weak=type.weak)
    return reshaped(ones, (total, *type.shape))


def _parts(image: Any, types: Sequence[ArrayType]) -> list[Any]:
    """The image cut along the basis, a part for each inexact leaf."""
    parts: list[Any] = []
    start = 0
    for type in types:
        if image is None or not dtypes.is_inexact(type.dtype):
            parts.append(None)
            continue
        parts.append(part_of(image, 0, start, start + type.size))
        start += type.size
    return parts


def _last(part: Any, shape: tuple[int, ...]) -> Any:
    """The basis axis moved behind the others and given the shape of its leaf."""
    axes = (*range(1, part.ndim), 0)
    turned = permute(part, dims=axes) if part.ndim > 1 else part
    return reshaped(turned, (*part.shape[1:], *shape))
