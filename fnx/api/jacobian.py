"""jacfwd, jacrev, hessian: all first or second derivatives of a function.

Receives a function; gives one that linearizes it where it is called and applies the
linear map, or its transpose, to every basis vector at once: the program is batched over
the basis. The result is the output's tree, whose leaves are trees of the arguments.
Next on the walk: `sparse.py`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.api.arguments import as_array, check_callable, leaf_names
from fnx.api.derivatives import LinearMap, Point, linearized
from fnx.api.grad import (
    Argnames,
    Argnums,
    Chosen,
    Selection,
    check_inputs,
    check_outputs,
    choose,
)
from fnx.api.loops import map as map_
from fnx.api.tangents import moves, with_type, zeros
from fnx.control.call import spread
from fnx.core.primitive import MappedAxis
from fnx.core.program import Program
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add, eq, mul
from fnx.ops.elementwise import convert
from fnx.ops.families import along
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import broadcast_in_dim, iota, permute, reshaped
from fnx.transforms.batch import batch_program
from fnx.tree import leaves as tree_leaves


def jacfwd(
    fun: Callable[..., Any],
    argnums: Argnums = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    argnames: Argnames = None,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fun`, column by column (forward mode).

    Best where outputs outnumber inputs. The result has the tree of the output, each
    leaf the tree of the argument (a tuple of them if `argnums` is one), each of shape
    `output.shape + input.shape`. With `has_aux` the result is `(jacobian, aux)`.
    `chunk` columns are computed at a time, all of them if it is `None`: the memory for
    what lies between is that of so many. `argnames` chooses arguments as in `grad`.
    Arguments must be real, or complex with `holomorphic=True`; raises `DTypeError`, and
    `OptionError` for a `chunk` that is no positive integer.

    >>> import fnx, numpy as np
    >>> fnx.jacfwd(lambda x: x * x)(np.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float64)
    """
    check_callable("jacfwd", fun)
    selection = Selection.of("jacfwd", fun, argnums, argnames)
    _check_chunk("jacfwd", chunk)

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        chosen = choose("jacfwd", fun, selection, args, kwargs)
        check_inputs("jacfwd", chosen, holomorphic=holomorphic, allow_int=False)
        if not holomorphic:
            _check_real(chosen)
        point = linearized("jacfwd", chosen.call, chosen.args, chosen.roots, has_aux)
        if holomorphic:
            check_outputs("jacfwd", point, holomorphic)
        columns = _columns(point.map, point.residuals, chunk)
        return _jacobian(point, columns, selection, has_aux)

    return errors.api_boundary(functools.wraps(fun)(jacobian_of))


def jacrev(
    fun: Callable[..., Any],
    argnums: Argnums = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
    *,
    argnames: Argnames = None,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fun`, row by row (reverse mode).

    Best where inputs outnumber outputs. Results, and `chunk` rows at a time, as of
    `jacfwd`; complex arguments, `argnames`, `holomorphic` and `allow_int` as of `grad`.
    Raises `DTypeError`, and `OptionError` for a `chunk` that is no positive integer.

    >>> import fnx, numpy as np
    >>> fnx.jacrev(lambda x: x * x)(np.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float64)
    """
    check_callable("jacrev", fun)
    selection = Selection.of("jacrev", fun, argnums, argnames)
    _check_chunk("jacrev", chunk)

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        chosen = choose("jacrev", fun, selection, args, kwargs)
        check_inputs("jacrev", chosen, holomorphic=holomorphic, allow_int=allow_int)
        point = linearized("jacrev", chosen.call, chosen.args, chosen.roots, has_aux)
        check_outputs("jacrev", point, holomorphic)
        rows = _rows(point.map, point.residuals, chunk)
        return _jacobian(point, rows, selection, has_aux)

    return errors.api_boundary(functools.wraps(fun)(jacobian_of))


jacobian = jacrev


def hessian(
    fun: Callable[..., Any],
    argnums: Argnums = None,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    argnames: Argnames = None,
    chunk: int | None = None,
) -> Callable[..., Any]:
    """A function that gives the Hessian of `fun`: `jacfwd` of `jacrev`.

    The result nests the output's tree, the argument's tree, and the argument's tree
    again; each leaf has shape `output.shape + input.shape + input.shape`. `chunk`
    columns are computed at a time. Options and errors are those of the two.

    >>> import fnx, numpy as np
    >>> fnx.hessian(lambda x: (x * x * x).sum())(np.array([1.0, 2.0]))
    Array([[ 6.,  0.],
           [ 0., 12.]], dtype=float64)
    """
    chosen: Any = {"argnames": argnames, "chunk": chunk}
    first = jacrev(fun, argnums, has_aux, holomorphic, **chosen)
    return jacfwd(first, argnums, has_aux, holomorphic, **chosen)


def _check_chunk(asker: str, chunk: int | None) -> None:
    if chunk is None:
        return
    if isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1:
        raise errors.OptionError(
            f"{asker}: chunk must be a positive integer or None, got {chunk!r}"
        )


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


def _jacobian(point: Point, blocks: Blocks, selection: Selection, has_aux: bool) -> Any:
    """The blocks, a row for each output leaf, as a tree of trees."""
    rows = [point.map.in_tree.unflatten(row) for row in blocks]
    result = point.out_tree.unflatten([selection.result(row) for row in rows])
    return (result, point.aux) if has_aux else result


def _columns(linear: LinearMap, residuals: Sequence[Any], chunk: int | None) -> Blocks:
    """The derivative of every output by every input, from the images of the inputs."""
    inexact = moves(linear.in_types)
    inputs = [t for t, moving in zip(linear.in_types, inexact, strict=True) if moving]
    images = _images(linear.program, residuals, inputs, chunk)
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


def _rows(linear: LinearMap, residuals: Sequence[Any], chunk: int | None) -> Blocks:
    """The derivative of every output by every input, from the images of the outputs."""
    turned, reached = linear.transposed()
    rows = list(zip(linear.out_types, linear.reached, strict=True))
    outputs = [type for type, is_reached in rows if is_reached]
    images = iter(spread(_images(turned, residuals, outputs, chunk), reached))
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
    program: Program,
    residuals: Sequence[Any],
    types: Sequence[ArrayType],
    chunk: int | None,
) -> list[Any]:
    """A linear program applied to every basis vector: outputs with the basis first.

    So many vectors go through it at a time.
    """
    total = sum(type.size for type in types)
    if chunk is None or chunk >= total:
        return _applied(program, residuals, types, 0, total)
    rounds, left = divmod(total, chunk)
    starts = mul(iota(shape=(rounds,), dtype=dtypes.int64, axis=0), chunk)

    def step(start: Any) -> list[Any]:
        return _applied(program, residuals, types, start, chunk)

    whole = rounds * chunk
    images = [reshaped(x, (whole, *x.shape[2:])) for x in map_(step, starts)]
    if not left:
        return images
    rest = _applied(program, residuals, types, whole, left)
    return [concatenate(a, b, axis=0) for a, b in zip(images, rest, strict=True)]


def _applied(
    program: Program,
    residuals: Sequence[Any],
    types: Sequence[ArrayType],
    start: Any,
    count: int,
) -> list[Any]:
    """A linear program applied to so many basis vectors, from one on."""
    basis = _basis(types, start, count)
    axis = MappedAxis(None, count)
    flags = (False,) * len(residuals) + (True,) * len(basis)
    lifted, mapped = batch_program(program, axis, flags)
    results = evaluate(lifted, [*residuals, *basis])
    rows = zip(results, mapped, strict=True)
    return [x if is_mapped else along(axis, x) for x, is_mapped in rows]


def _basis(types: Sequence[ArrayType], start: Any, count: int) -> list[Any]:
    """Unit vectors of the space of some leaves, stacked along a leading axis."""
    firsts = itertools.accumulate([0, *[type.size for type in types]])
    return [
        _unit_rows(type, first, start, count)
        for type, first in zip(types, firsts, strict=False)
    ]


def _unit_rows(type: ArrayType, first: int, start: Any, count: int) -> Any:
    """Rows of the identity matrix, from `start` on, in the columns of one leaf."""
    shape = (count, type.size)
    row = iota(shape=shape, dtype=dtypes.int64, axis=0)
    if not isinstance(start, int):
        row = add(row, broadcast_in_dim(start, shape=shape, dims=()))
    elif start:
        row = add(row, start)
    column = add(iota(shape=shape, dtype=dtypes.int64, axis=1), first)
    ones = convert(eq(row, column), dtype=type.dtype, weak=type.weak)
    return reshaped(ones, (count, *type.shape))


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
