"""Collectives under the names of `jax.lax`: psum, all_gather, ppermute and so on.

Receives trees of arrays and the name of an axis that `vmap`, `pmap` or `shard_map`
binds (or several names); gives trees of arrays. Next on the walk: `permuting.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fnx import errors, tree
from fnx.core import axes
from fnx.core.array import Array
from fnx.dtypes import int32, is_bool, is_inexact
from fnx.numpy.operands import as_array, cast, is_scalar
from fnx.numpy.operands import axis_index as checked_axis
from fnx.numpy.shaping import moveaxis, reshape
from fnx.numpy.ufuncs import true_divide
from fnx.ops import collective, meeting, sending
from fnx.ops.arithmetic import add, mul
from fnx.ops.groups import checked_groups, member_count

Groups = Sequence[Sequence[int]] | None


def names_of(axis_name: Any) -> tuple[Hashable, ...]:
    """The names of axes that are given as one, or as several."""
    return tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)


def _each(name: str, x: Any, function: Callable[[Array], Array]) -> Any:
    """The function of every leaf of a tree."""
    return tree.map(lambda leaf: function(as_array(name, leaf)), x)


def _one_group(name: str, names: Sequence[Hashable], groups: Groups) -> None:
    """Raises for groups along several axes: their numbers would be ambiguous."""
    if groups is not None and len(names) != 1:
        raise errors.AxisError(
            errors.explain(
                f"{name}(axis_name={tuple(names)}, axis_index_groups={groups})",
                "groups are of the replicas along one axis",
                "name one axis, or leave the groups out",
            )
        )


def _reduced(
    name: str, x: Any, axis_name: Any, groups: Groups, function: Callable[..., Any]
) -> Any:
    """A reduction of every leaf of a tree, over one axis after the other."""
    names = names_of(axis_name)
    _one_group(name, names, groups)

    def over_axes(array: Array) -> Array:
        for axis in names:
            array = function(array, axis_name=axis, groups=groups)
        return array

    return _each(name, x, over_axes)


def psum(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The sum over all replicas, or over those of a group, the same on each.

    Of a Python number it is the number times the size of the axis (or of a group), a
    Python number: `psum(1, "batch")` is the size. Booleans are counted, in int32.
    """

    def summed(leaf: Any) -> Any:
        if is_scalar(leaf):
            return leaf * joined_count("psum", axis_name, axis_index_groups)
        array = as_array("psum", leaf)
        if is_bool(array.dtype):
            array = cast(array, int32)
        return _reduced("psum", array, axis_name, axis_index_groups, collective.psum)

    return tree.map(summed, x)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The mean over all replicas, or over those of a group, the same on each.

    That of integers and booleans is a float, as in `fnx.numpy.mean`; those of fewer
    than 32 bits are summed in 32, so that the sum does not wrap.
    """

    def averaged(array: Array) -> Array:
        if is_inexact(array.dtype):
            groups = axis_index_groups
            return _reduced("pmean", array, axis_name, groups, collective.pmean)
        if array.dtype.itemsize < 4:
            array = cast(array, int32)
        total = psum(array, axis_name, axis_index_groups=axis_index_groups)
        return true_divide(total, joined_count("pmean", axis_name, axis_index_groups))

    return _each("pmean", x, averaged)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The largest value of all replicas, or of those of a group, on each."""
    return _reduced("pmax", x, axis_name, axis_index_groups, collective.pmax)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Groups = None) -> Any:
    """The smallest value of all replicas, or of those of a group, on each."""
    return _reduced("pmin", x, axis_name, axis_index_groups, collective.pmin)


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """The value of replica `source`, on each.

    Along several axes the source is a number in row-major order, as `axis_index`.
    """
    names = names_of(axis_name)
    size = axis_size(names)
    if not 0 <= source < size:
        raise errors.AxisError(
            f"pbroadcast along {axis_name!r} from source={source}: it must be a number "
            f"from 0 to {size - 1}"
        )
    numbers = np.unravel_index(source, [axes.axis_size(name) for name in names])

    def sent(array: Array) -> Array:
        for name, number in reversed([*zip(names, numbers, strict=True)]):
            array = sending.pbroadcast(array, axis_name=name, source=int(number))
        return array

    return _each("pbroadcast", x, sent)


def pcast(x: Any, axis_name: Any, *, to: str) -> Any:
    """The values themselves: here every value may differ from replica to replica.

    JAX tells values that are the same on all replicas from those that vary, and this
    makes the former the latter; `to="varying"` is the only cast that has a meaning
    without that. Raises `OptionError` for any other.
    """
    axis_size(axis_name)
    if to != "varying":
        raise errors.OptionError(
            f"pcast: to={to!r} is not supported; values here are always 'varying'"
        )
    return tree.map(lambda leaf: as_array("pcast", leaf), x)


def all_gather(
    x: Any,
    axis_name: Any,
    *,
    axis_index_groups: Groups = None,
    axis: int = 0,
    tiled: bool = False,
) -> Any:
    """The values of all replicas, stacked along a new axis, or joined along one.

    Of groups: the values of the group's members in their order there.
    """
    names = names_of(axis_name)
    count = joined_count("all_gather", names, axis_index_groups)

    def gathered(array: Array) -> Array:
        rank = array.ndim if tiled else array.ndim + 1
        place = checked_axis("all_gather", axis, rank)
        shape = array.shape
        for name in reversed(names):
            array = collective.all_gather(
                array, axis_name=name, groups=axis_index_groups
            )
        found = moveaxis(reshape(array, (count, *shape)), 0, place)
        return _merged(found, place) if tiled else found

    return _each("all_gather", x, gathered)


def psum_scatter(
    x: Any,
    axis_name: Any,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Groups = None,
    tiled: bool = False,
) -> Any:
    """Each replica's part, along an axis, of the sum over all replicas, or a group."""
    names = names_of(axis_name)
    count = joined_count("psum_scatter", names, axis_index_groups)

    def scattered(array: Array) -> Array:
        place = checked_axis("psum_scatter", scatter_dimension, array.ndim)
        rows = _split(array, place, count, axis_name) if tiled else array
        rows = _by_axis("psum_scatter", moveaxis(rows, place, 0), names, count)
        for name in names:
            rows = collective.psum_scatter(
                rows, axis_name=name, groups=axis_index_groups
            )
        return rows

    return _each("psum_scatter", x, scattered)


def all_to_all(
    x: Any,
    axis_name: Any,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Groups = None,
    tiled: bool = False,
) -> Any:
    """Part j of replica i becomes part i of replica j.

    The axis `split_axis` is cut in parts; what arrives is stacked along a new axis
    `concat_axis`, or joined along it if `tiled`. In groups the numbers are those of
    the members.
    """
    names = names_of(axis_name)
    count = joined_count("all_to_all", names, axis_index_groups)

    def exchanged(array: Array) -> Array:
        source = checked_axis("all_to_all", split_axis, array.ndim, "split_axis")
        target = checked_axis("all_to_all", concat_axis, array.ndim, "concat_axis")
        rows = _split(array, source, count, axis_name) if tiled else array
        rows = moveaxis(rows, source, 0)
        moved = _by_axis("all_to_all", rows, names, count)
        for place, name in enumerate(names):
            parts = collective.all_to_all(
                moveaxis(moved, place, 0), axis_name=name, groups=axis_index_groups
            )
            moved = moveaxis(parts, 0, place)
        found = moveaxis(reshape(moved, rows.shape), 0, target)
        return _merged(found, target) if tiled else found

    return _each("all_to_all", x, exchanged)


def pswapaxes(
    x: Any, axis_name: Hashable, axis: int, *, axis_index_groups: Groups = None
) -> Any:
    """The named axis exchanged with an array axis of the same size."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def axis_index(axis_name: Any) -> Array:
    """The number of this replica along an axis; along several in row-major order."""
    names = names_of(axis_name)
    number = meeting.axis_index(axis_name=names[0])
    for name in names[1:]:
        size = axes.axis_size(name)
        number = add(mul(number, size), meeting.axis_index(axis_name=name))
    return number


def axis_size(axis_name: Any) -> int:
    """The number of replicas along an axis, or along several together."""
    size = 1
    for name in names_of(axis_name):
        size *= axes.axis_size(name)
    return size


def joined_count(name: str, axis_name: Any, groups: Groups) -> int:
    """The number of replicas that a collective joins."""
    names = names_of(axis_name)
    _one_group(name, names, groups)
    size = axis_size(names)
    if groups is None:
        return size
    return member_count(size, checked_groups(groups, names[0], size))


def _split(x: Array, place: int, count: int, axis_name: Any) -> Array:
    """An axis as (replicas, the rest of it)."""
    n = x.shape[place]
    if n % count:
        raise errors.ShapeError(
            f"axis {place} of {x.type} cannot be cut in {count} parts, one for each "
            f"replica along {axis_name!r}"
        )
    return reshape(x, (*x.shape[:place], count, n // count, *x.shape[place + 1 :]))


def _by_axis(name: str, x: Array, names: Sequence[Hashable], count: int) -> Array:
    """The leading axis, of replicas along several axes, as one axis for each."""
    if len(names) == 1:
        return x
    if x.ndim == 0 or x.shape[0] != count:
        raise errors.ShapeError(
            errors.explain(
                f"{name}({x.type}, axis_name={tuple(names)})",
                f"the axis that is cut must have size {count}, the axes' together",
            )
        )
    sizes = [axes.axis_size(axis) for axis in names]
    return reshape(x, (*sizes, *x.shape[1:]))


def _merged(x: Array, place: int) -> Array:
    """Two neighbouring axes as one."""
    size = x.shape[place] * x.shape[place + 1]
    return reshape(x, (*x.shape[:place], size, *x.shape[place + 2 :]))
