"""vmap: a function over arrays becomes one over stacks of arrays.

Receives a function and which axes to map; gives one that traces the function on single
members, batches the program, and puts the axis where `out_axes` wants it. Arguments
that are not mapped are passed on as they are, so they may be anything.
Next on the walk: `disabling.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from fnx import errors, tree
from fnx.api.arguments import (
    as_array,
    call_names,
    check_callable,
    leaf_names,
    trace_tree,
)
from fnx.api.key_arrays import axes_of_words
from fnx.core.array import Array
from fnx.core.axes import bound_axis
from fnx.core.frames import Cell, HasCell, lending, read, write
from fnx.core.primitive import MappedAxis
from fnx.core.trace import evaluate
from fnx.ops.families import along
from fnx.ops.shape import permute
from fnx.records import record
from fnx.transforms.batch import batch_program
from fnx.tree import PyTreeDef

Axes = Any  # int | None | a tree of them


@record
class MappedLeaf:
    """A leaf of a call: its name, its value, and the axis that is mapped, if any.

    Of a ref that is mapped, `value` is what it holds, and `cell` its place.
    """

    name: str
    value: Any
    axis: int | None
    cell: Cell | None = None

    @property
    def size(self) -> int:
        """The length of the mapped axis."""
        assert self.axis is not None
        return self.value.shape[self.axis]


def vmap(
    fun: Callable[..., Any],
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_name: Hashable | None = None,
    axis_size: int | None = None,
) -> Callable[..., Any]:
    """A function that applies `fun` to every member of stacked arguments at once.

    `in_axes` says which axis of each positional argument holds the members: an integer
    (negative ones count from the end) or `None` for what all members share; a tuple has
    an entry for each argument, which may be a tree, or a prefix of the argument's tree.
    Keyword arguments are mapped over axis 0. Of a ref that is mapped, each member has a
    part, which it may write to. `out_axes` says where the axis stands in
    the outputs. `axis_name` names the axis for collectives such as `fnx.lax.psum`;
    `axis_size` is needed only where no argument is mapped.

    Raises `TreeError` where `in_axes` or `out_axes` does not fit, `AxisError` for an
    axis out of range, `ShapeError` where mapped axes have different sizes, listing all
    of them.

    >>> import fnx, numpy as np
    >>> fnx.vmap(lambda x, y: x * y, in_axes=(0, None))(np.array([1.0, 2.0]), 10.0)
    Array([10., 20.], dtype=float64)
    """
    check_callable("vmap", fun)
    in_axes = check_axes("vmap", "in_axes", in_axes)
    out_axes = check_axes("vmap", "out_axes", out_axes)

    def mapped_function(*args: Any, **kwargs: Any) -> Any:
        leaves = _mapped_leaves(fun, in_axes, args, kwargs)
        axis = MappedAxis(axis_name, common_size("vmap", leaves, axis_size))
        in_tree = tree.structure((args, kwargs))
        outputs, flags, out_tree = _run(fun, axis, leaves, in_tree)
        if any(leaf.cell is not None for leaf in leaves):
            out_tree, _ = out_tree.children()
            count = out_tree.num_leaves
            _write_back(axis, leaves, outputs[count:], flags[count:])
            outputs, flags = outputs[:count], flags[:count]
        return out_tree.unflatten(_placed(axis, outputs, flags, out_tree, out_axes))

    return errors.api_boundary(functools.wraps(fun)(mapped_function))


def check_axes(asker: str, option: str, axes: Axes) -> Axes:
    """`in_axes` or `out_axes` with lists at the top as tuples, after a check."""
    if isinstance(axes, list):
        axes = tuple(axes)
    for axis in tree.leaves(axes):
        if not isinstance(axis, int) or isinstance(axis, bool):
            raise errors.ArgumentError(
                errors.explain(
                    f"{asker}: {option}={axes!r}",
                    f"axes are integers or None, got {axis!r}",
                )
            )
    return axes


def _mapped_leaves(
    fun: Callable[..., Any],
    in_axes: Axes,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> list[MappedLeaf]:
    """The leaves of a call, each with its axis."""
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise errors.ArgumentError(
            errors.explain(
                f"vmap: in_axes={in_axes!r} has {len(in_axes)} entries",
                f"the function was called with {len(args)} positional arguments",
                "give in_axes one entry for each positional argument",
            )
        )
    leaves = tree.leaves((args, kwargs))
    # A prefix with an entry for each argument: an integer stands for all of them.
    prefix = tree.broadcast_prefix(in_axes, args, "vmap's in_axes")
    axes = axes_of_words(prefix, args) + [0] * (len(leaves) - len(prefix))
    names = call_names(fun, args, kwargs)
    rows = zip(names, leaves, axes, strict=True)
    return [_leaf_or_ref(*row) for row in rows]


def _leaf_or_ref(name: str, value: Any, axis: int | None) -> MappedLeaf:
    """A leaf; of a ref that is mapped, what it holds is."""
    if axis is None or not isinstance(value, HasCell):
        return mapped_leaf("vmap", name, value, axis)
    return replace(mapped_leaf("vmap", name, read(value._cell), axis), cell=value._cell)


def mapped_leaf(asker: str, name: str, value: Any, axis: int | None) -> MappedLeaf:
    """A leaf with its mapped axis counted from 0; what is mapped must be an array."""
    if axis is None:
        return MappedLeaf(name, value, None)
    fix = "give it None in in_axes, so that all members share it"
    array = as_array(value, asker, name, fix)
    if not -array.ndim <= axis < array.ndim:
        raise errors.AxisError(
            errors.explain(
                f"{asker}: {name} is {array.type}", f"it has no axis {axis} to map", fix
            )
        )
    return MappedLeaf(name, array, axis % array.ndim)


def common_size(asker: str, leaves: Sequence[MappedLeaf], axis_size: int | None) -> int:
    """The length that all mapped axes have."""
    mapped = [leaf for leaf in leaves if leaf.axis is not None]
    sizes = {leaf.size for leaf in mapped}
    if axis_size is not None:
        sizes.add(axis_size)
    if not sizes:
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: no argument is mapped",
                "in_axes is None for all of them",
                "map an argument, or pass axis_size",
            )
        )
    if len(sizes) > 1:
        rows = [
            f"{x.name}: {x.value.type} has {x.size} at axis {x.axis}" for x in mapped
        ]
        if axis_size is not None:
            rows.append(f"axis_size is {axis_size}")
        raise errors.ShapeError(
            f"{asker}: the mapped axes must have equal sizes:\n  " + "\n  ".join(rows)
        )
    return sizes.pop()


def _run(
    fun: Callable[..., Any],
    axis: MappedAxis,
    leaves: Sequence[MappedLeaf],
    in_tree: PyTreeDef,
) -> tuple[list[Any], tuple[bool, ...], PyTreeDef]:
    """Traces the function on one member, batches it and runs it on all of them.

    Where refs are mapped, the result is a pair with what they hold in the end.
    """
    mapped = [leaf for leaf in leaves if leaf.axis is not None]
    stacks = [moved(leaf.value, leaf.axis, 0) for leaf in mapped]

    def call(members: Sequence[Any]) -> Any:
        given = iter(members)
        values = [x.value if x.axis is None else next(given) for x in leaves]
        own = [n for n, x in enumerate(leaves) if x.cell is not None]
        for n in own:
            values[n] = _refs().new_ref(values[n])
        args, kwargs = in_tree.unflatten(values)
        result = fun(*args, **kwargs)
        return (result, [read(values[n]._cell) for n in own]) if own else result

    lent = [leaf.cell for leaf in mapped if leaf.cell is not None]
    with bound_axis(axis.name, axis.size), lending(lent):
        traced = trace_tree(
            call,
            [x.type.with_shape(x.shape[1:]) for x in stacks],
            asker="vmap",
            names=[f"{leaf.name} (mapped by vmap)" for leaf in mapped],
            refs=True,
        )
    flags = (False,) * len(traced.captured) + (True,) * len(stacks)
    program, out_flags = batch_program(traced.program, axis, flags)
    count = traced.out_tree.num_leaves
    for cell, is_mapped in zip(traced.written, out_flags[count:], strict=True):
        if is_mapped:
            raise errors.ArgumentError(
                errors.explain(
                    f"vmap: a Ref of type {cell.type} from outside is written to with "
                    "a value of its own for each member",
                    "it has room for one",
                    "return the value, or make a ref inside of the function",
                )
            )
    values = evaluate(program, [*traced.captured, *stacks])
    outputs = traced.without_refs(values)
    return list(outputs), out_flags[:count], traced.out_tree


def _refs() -> Any:
    # lazy: few functions use refs
    from fnx.api import refs

    return refs


def _write_back(
    axis: MappedAxis,
    leaves: Sequence[MappedLeaf],
    ends: Sequence[Any],
    flags: Sequence[bool],
) -> None:
    """Has each ref that is mapped hold what the members have left in their parts."""
    refs = [(x.cell, x.axis, x.name) for x in leaves if x.cell is not None]
    for (cell, place, name), end, is_mapped in zip(refs, ends, flags, strict=True):
        write(cell, _place(axis, end, is_mapped, place, name))


def moved(x: Array, source: int | None, target: int) -> Any:
    """The array with one axis moved to another place."""
    if source == target:
        return x
    assert source is not None
    dims = [d for d in range(x.ndim) if d != source]
    dims.insert(target, source)
    return permute(x, dims=tuple(dims))


def _placed(
    axis: MappedAxis,
    outputs: Sequence[Any],
    flags: Sequence[bool],
    out_tree: PyTreeDef,
    out_axes: Axes,
) -> list[Any]:
    """The outputs with the mapped axis where `out_axes` wants it."""
    axes = tree.broadcast_prefix(out_axes, out_tree, "vmap's out_axes")
    axes = axes_of_words(axes, out_tree.unflatten(range(len(axes))))
    names = leaf_names(["the output"], [out_tree])
    rows = zip(outputs, flags, axes, names, strict=True)
    return [_place(axis, *row) for row in rows]


def _place(
    axis: MappedAxis, x: Array, is_mapped: bool, target: int | None, name: str
) -> Any:
    if target is None:
        if is_mapped:
            raise errors.AxisError(
                errors.explain(
                    f"vmap: out_axes is None for {name}",
                    "it depends on a mapped argument, so each member has its own",
                    "give it an axis in out_axes",
                )
            )
        return x
    stack = x if is_mapped else along(axis, x)
    if not -stack.ndim <= target < stack.ndim:
        raise errors.AxisError(
            errors.explain(
                f"vmap: out_axes is {target} for {name}",
                f"with the mapped axis it has rank {stack.ndim}",
            )
        )
    return moved(stack, 0, target % stack.ndim)
