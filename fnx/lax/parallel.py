"""Collectives under the names of `jax.lax`: psum, all_gather, ppermute and so on.

Receives trees of arrays and the name of an axis that `vmap`, `pmap` or `shard_map`
binds (or several names); gives trees of arrays. Next on the walk: `fnx/nn`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fnx import errors, tree
from fnx.core import axes
from fnx.core.array import Array
from fnx.numpy.operands import as_array, is_scalar, refuse
from fnx.numpy.operands import axis_index as checked_axis
from fnx.numpy.shaping import moveaxis, reshape
from fnx.ops import collective
from fnx.ops.arithmetic import add, mul


def _names(axis_name: Any) -> tuple[Hashable, ...]:
    return tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)


def _each(name: str, x: Any, axis_name: Any, function: Callable[..., Any]) -> Any:
    """The collective over every leaf of a tree, over one axis after the other."""

    def over_axes(leaf: Any) -> Any:
        array = as_array(name, leaf)
        for axis in _names(axis_name):
            array = function(array, axis)
        return array

    return tree.map(over_axes, x)


def psum(x: Any, axis_name: Any, *, axis_index_groups: None = None) -> Any:
    """The sum over all replicas, the same on each.

    Of a Python number it is the number times the size of the axis, a Python number:
    `psum(1, "batch")` is the size.
    """
    refuse("psum", axis_index_groups=axis_index_groups)

    def summed(leaf: Any) -> Any:
        if is_scalar(leaf):
            return leaf * axis_size(axis_name)
        return _each("psum", leaf, axis_name, _psum)

    return tree.map(summed, x)


def _psum(x: Array, axis: Hashable) -> Array:
    return collective.psum(x, axis_name=axis)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: None = None) -> Any:
    """The mean over all replicas, the same on each."""
    refuse("pmean", axis_index_groups=axis_index_groups)
    return _each("pmean", x, axis_name, collective.pmean)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: None = None) -> Any:
    """The largest value of all replicas, on each."""
    refuse("pmax", axis_index_groups=axis_index_groups)
    return _each("pmax", x, axis_name, lambda a, n: collective.pmax(a, axis_name=n))


def pmin(x: Any, axis_name: Any, *, axis_index_groups: None = None) -> Any:
    """The smallest value of all replicas, on each."""
    refuse("pmin", axis_index_groups=axis_index_groups)
    return _each("pmin", x, axis_name, lambda a, n: collective.pmin(a, axis_name=n))


def all_gather(
    x: Any,
    axis_name: Hashable,
    *,
    axis_index_groups: None = None,
    axis: int = 0,
    tiled: bool = False,
) -> Any:
    """The values of all replicas, stacked along a new axis, or joined along one."""
    refuse("all_gather", axis_index_groups=axis_index_groups)

    def gathered(array: Array, name: Hashable) -> Array:
        rank = array.ndim if tiled else array.ndim + 1
        place = checked_axis("all_gather", axis, rank)
        found = moveaxis(collective.all_gather(array, axis_name=name), 0, place)
        return _merged(found, place) if tiled else found

    return _each("all_gather", x, (axis_name,), gathered)


def psum_scatter(
    x: Any,
    axis_name: Hashable,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: None = None,
    tiled: bool = False,
) -> Any:
    """Each replica's part, along an axis, of the sum over all replicas."""
    refuse("psum_scatter", axis_index_groups=axis_index_groups)

    def scattered(array: Array, name: Hashable) -> Array:
        place = checked_axis("psum_scatter", scatter_dimension, array.ndim)
        rows = _split(array, place, name) if tiled else array
        return collective.psum_scatter(moveaxis(rows, place, 0), axis_name=name)

    return _each("psum_scatter", x, (axis_name,), scattered)


def all_to_all(
    x: Any,
    axis_name: Hashable,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: None = None,
    tiled: bool = False,
) -> Any:
    """Part j of replica i becomes part i of replica j.

    The axis `split_axis` is cut in parts; what arrives is stacked along a new axis
    `concat_axis`, or joined along it if `tiled`.
    """
    refuse("all_to_all", axis_index_groups=axis_index_groups)

    def exchanged(array: Array, name: Hashable) -> Array:
        source = checked_axis("all_to_all", split_axis, array.ndim, "split_axis")
        target = checked_axis("all_to_all", concat_axis, array.ndim, "concat_axis")
        rows = _split(array, source, name) if tiled else array
        moved = collective.all_to_all(moveaxis(rows, source, 0), axis_name=name)
        found = moveaxis(moved, 0, target)
        return _merged(found, target) if tiled else found

    return _each("all_to_all", x, (axis_name,), exchanged)


def ppermute(x: Any, axis_name: Hashable, perm: Sequence[tuple[int, int]]) -> Any:
    """Each replica's value sent on by (source, destination) pairs; others get 0."""
    pairs = tuple([(int(a), int(b)) for a, b in perm])

    def sent(array: Array, name: Hashable) -> Array:
        return collective.ppermute(array, axis_name=name, perm=pairs)

    return _each("ppermute", x, (axis_name,), sent)


def pshuffle(x: Any, axis_name: Hashable, perm: Sequence[int]) -> Any:
    """Replica i gets the value of replica `perm[i]`."""
    return ppermute(x, axis_name, [(int(a), i) for i, a in enumerate(perm)])


def pswapaxes(
    x: Any, axis_name: Hashable, axis: int, *, axis_index_groups: None = None
) -> Any:
    """The named axis exchanged with an array axis of the same size."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


def axis_index(axis_name: Any) -> Array:
    """The number of this replica along an axis; along several in row-major order."""
    names = _names(axis_name)
    number = collective.axis_index(axis_name=names[0])
    for name in names[1:]:
        size = axes.axis_size(name)
        number = add(mul(number, size), collective.axis_index(axis_name=name))
    return number


def axis_size(axis_name: Any) -> int:
    """The number of replicas along an axis, or along several together."""
    size = 1
    for name in _names(axis_name):
        size *= axes.axis_size(name)
    return size


def _split(x: Array, place: int, name: Hashable) -> Array:
    """An axis as (replicas, the rest of it)."""
    count, n = axes.axis_size(name), x.shape[place]
    if n % count:
        raise errors.ShapeError(
            f"axis {place} of {x.type} cannot be cut in {count} parts, one for each "
            f"replica along {name!r}"
        )
    return reshape(x, (*x.shape[:place], count, n // count, *x.shape[place + 1 :]))


def _merged(x: Array, place: int) -> Array:
    """Two neighbouring axes as one."""
    size = x.shape[place] * x.shape[place + 1]
    return reshape(x, (*x.shape[:place], size, *x.shape[place + 2 :]))
