"""Values of several processes under JAX's name: those of `fnx.distributed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import errors, tree
from fnx.api.global_arrays import make_array_from_process_local_data
from fnx.distributed.values import (
    assert_equal,
    broadcast_one_to_all,
    process_allgather,
    sync_global_devices,
)
from fnx.runtime.in_parts import Shard
from fnx.runtime.sharding import NamedSharding, PartitionSpec

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "global_array_to_host_local_array",
    "host_local_array_to_global_array",
    "process_allgather",
    "sync_global_devices",
]


def _is_spec(x: Any) -> bool:
    return x is None or isinstance(x, PartitionSpec)


def host_local_array_to_global_array(
    local_inputs: Any, global_mesh: Any, pspecs: Any
) -> Any:
    """Arrays of all processes, of which this one has the parts that it passes.

    `pspecs` is a tree of specs (`None` for what is not cut) that is a prefix of the
    tree of arrays. Errors are those of `fnx.make_array_from_process_local_data`.

    >>> import fnx
    >>> mesh = fnx.make_mesh((1,), ("i",), devices=fnx.local_devices("cpu")[:1])
    >>> host_local_array_to_global_array(np.ones(2), mesh, PartitionSpec("i"))
    Array([1., 1.], dtype=float64)
    """

    def whole(x: Any, spec: Any) -> Any:
        sharding = NamedSharding(global_mesh, spec or PartitionSpec())
        return make_array_from_process_local_data(sharding, x)

    return _mapped(whole, local_inputs, pspecs)


def global_array_to_host_local_array(
    global_inputs: Any, global_mesh: Any, pspecs: Any
) -> Any:
    """What this process has of arrays of all, side by side, as NumPy arrays.

    The arrays are cut as `pspecs` say, as in `host_local_array_to_global_array`. Raises
    `ArgumentError` for an array that is cut otherwise.

    >>> import fnx
    >>> mesh = fnx.make_mesh((1,), ("i",), devices=fnx.local_devices("cpu")[:1])
    >>> x = host_local_array_to_global_array(np.ones(2), mesh, PartitionSpec("i"))
    >>> global_array_to_host_local_array(x, mesh, PartitionSpec("i"))
    array([1., 1.])
    """

    def own(x: Any, spec: Any) -> Any:
        wanted = NamedSharding(global_mesh, spec or PartitionSpec())
        if not x.sharding.is_equivalent_to(wanted, x.ndim):
            raise errors.ArgumentError(
                errors.explain(
                    f"global_array_to_host_local_array: an array {x.type}",
                    f"it is cut as {x.sharding} says, not as {wanted}",
                    "put it so with fnx.device_put",
                )
            )
        return _joined(x.addressable_shards)

    return _mapped(own, global_inputs, pspecs)


def _joined(shards: Sequence[Shard]) -> Any:
    """Parts of an array side by side, without what is between them."""
    cuts = list(zip(*[shard.index for shard in shards], strict=True))
    starts = [sorted({cut.start for cut in row}) for row in cuts]
    shape = [
        sum({cut.start: cut.stop - cut.start for cut in row}.values()) for row in cuts
    ]
    found = np.empty(shape, shards[0].data.dtype)
    for shard in shards:
        where: list[Any] = [...]
        for cut, row in zip(shard.index, starts, strict=True):
            size = cut.stop - cut.start
            first = row.index(cut.start) * size
            where.append(slice(first, first + size))
        found[tuple(where)] = shard.data
    return found


def _mapped(function: Any, arrays: Any, specs: Any) -> Any:
    """A function of each array of a tree and the spec that is meant for it."""
    leaves, treedef = tree.flatten(arrays)
    prefix = tree.broadcast_prefix(specs, arrays, "pspecs", is_leaf=_is_spec)
    return treedef.unflatten(
        [function(*row) for row in zip(leaves, prefix, strict=True)]
    )
