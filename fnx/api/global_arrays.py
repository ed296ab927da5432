"""Arrays in parts, made of what each process has.

Receives a sharding and this process's data; gives arrays whose other parts are in other
processes. In a job of one process they are all here. Next on the walk: `device.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors, tree
from fnx.api.arguments import as_array
from fnx.core.types import ArrayType
from fnx.runtime.array import ConcreteArray
from fnx.runtime.in_parts import sharded
from fnx.runtime.mesh import is_local
from fnx.runtime.replicas import across
from fnx.runtime.sharding import Index, Sharding


@errors.api_boundary
def make_array_from_process_local_data(
    sharding: Sharding, local_data: Any, global_shape: Sequence[int] | None = None
) -> Any:
    """The array of which each process has a part, from this process's part.

    `local_data` has the rows (along each axis) of this process's devices, in the order
    of the array; an axis that its devices are not the only ones to have is as long as
    in the array. Without `global_shape` it follows from the sharding. A tree of data
    gives a tree of arrays.

    Raises `ShapeError` where the data does not fit, `ArgumentError` where this process
    has no device of the sharding.

    >>> import fnx, numpy as np
    >>> from fnx.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = fnx.make_mesh((1,), ("data",), devices=fnx.local_devices("cpu")[:1])
    >>> sharding = NamedSharding(mesh, P("data"))
    >>> fnx.make_array_from_process_local_data(sharding, np.arange(4.0, dtype="f4"))
    Array([0., 1., 2., 3.], dtype=float32)
    """
    return tree.map(lambda x: _from_local(sharding, x, global_shape), local_data)


def _from_local(sharding: Sharding, data: Any, shape: Sequence[int] | None) -> Any:
    local = as_array(data, "make_array_from_process_local_data", "local_data")
    x = np.asarray(local)
    if not sharding.addressable_devices:
        raise errors.ArgumentError(
            errors.explain(
                f"make_array_from_process_local_data: {sharding}",
                "no device of it is in this process",
            )
        )
    full = _whole_shape(sharding, x.shape) if shape is None else tuple(shape)
    starts = _own_starts(sharding, full, x.shape)

    def part(index: Index) -> Any:
        where: Any = (
            ...,
            *[
                slice(at[cut.start], at[cut.start] + cut.stop - cut.start)
                for at, cut in zip(starts, index, strict=True)
            ],
        )
        return x[where]

    return _made(sharding, ArrayType(full, x.dtype), part)


def _whole_shape(sharding: Sharding, local: Sequence[int]) -> tuple[int, ...]:
    """The shape of an array of which this process has so much."""
    # parts of one element each: an axis is as long as it has parts
    probe = tuple([_parts_of(sharding, len(local), axis) for axis in range(len(local))])
    found = []
    for axis, (n, count) in enumerate(zip(local, probe, strict=True)):
        rows = sharding.devices_indices_map(probe).items()
        own = {index[axis].start for device, index in rows if is_local(device)}
        if n % len(own):
            raise errors.ShapeError(
                errors.explain(
                    f"make_array_from_process_local_data: axis {axis} of local_data, "
                    f"of shape {tuple(local)}",
                    f"this process has {len(own)} parts of it, and {n} is no multiple",
                )
            )
        found.append(n // len(own) * count)
    return tuple(found)


def _parts_of(sharding: Sharding, ndim: int, axis: int) -> int:
    """In how many parts a sharding cuts an axis."""
    count = len(sharding.device_set)  # a multiple of each axis's parts
    return count // sharding.shard_shape([count] * ndim)[axis]


def _own_starts(
    sharding: Sharding, full: tuple[int, ...], local: Sequence[int]
) -> list[dict[int, int]]:
    """For each axis: where a part that begins there in the array begins in the data."""
    rows = sharding.devices_indices_map(full).items()
    found = []
    for axis, (n, size) in enumerate(zip(full, local, strict=True)):
        cuts = {(i[axis].start, i[axis].stop) for d, i in rows if is_local(d)}
        own = sorted(cuts)
        if size == n:  # all of the axis is here
            found.append({start: start for start, _ in own})
            continue
        width = own[0][1] - own[0][0]
        if size != width * len(own):
            raise errors.ShapeError(
                errors.explain(
                    "make_array_from_process_local_data: local_data of shape "
                    f"{tuple(local)} for an array of shape {full}",
                    f"of axis {axis} this process has {width * len(own)} of {n}",
                )
            )
        found.append({start: k * width for k, (start, _) in enumerate(own)})
    return found


@errors.api_boundary
def make_array_from_callback(
    shape: Sequence[int], sharding: Sharding, data_callback: Callable[[Index], Any]
) -> Any:
    """The array whose parts a function gives, for the index of each.

    It is called for the parts of this process. Raises `ShapeError` where one has
    another shape than its index.

    >>> import fnx, numpy as np
    >>> from fnx.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = fnx.make_mesh((1,), ("data",), devices=fnx.local_devices("cpu")[:1])
    >>> data = np.arange(4, dtype="int32")
    >>> fnx.make_array_from_callback((4,), NamedSharding(mesh, P("data")),
    ...                              lambda index: data[index])
    Array([0, 1, 2, 3], dtype=int32)
    """

    def part(index: Index) -> Any:
        found = as_array(data_callback(index), "make_array_from_callback", "a part")
        wanted = tuple([cut.stop - cut.start for cut in index])
        if found.shape != wanted:
            raise errors.ShapeError(
                errors.explain(
                    f"make_array_from_callback: the part at {index} is {found.type}",
                    f"it must have the shape {wanted}",
                )
            )
        return np.asarray(found)

    rows = sharding.devices_indices_map(tuple(shape)).items()
    own = next((index for device, index in rows if is_local(device)), None)
    if own is None:
        raise errors.ArgumentError(
            errors.explain(
                f"make_array_from_callback: {sharding}",
                "no device of it is in this process",
            )
        )
    first = part(own)
    dtype = dtypes.same(first.dtype)
    known = {_key(own): first}

    def once(index: Index) -> Any:
        key = _key(index)
        if key not in known:
            known[key] = part(index)
        return known[key]

    return _made(sharding, ArrayType(tuple(shape), dtype), once)


def _key(index: Index) -> tuple[tuple[int, int], ...]:
    return tuple([(cut.start, cut.stop) for cut in index])


@errors.api_boundary
def make_array_from_single_device_arrays(
    shape: Sequence[int], sharding: Sharding, arrays: Sequence[Any]
) -> Any:
    """The array whose parts on this process's devices are these arrays.

    There is one for each device of the sharding that is in this process, on that
    device, in any order. Raises `ArgumentError` where a device has none or several,
    `ShapeError` for a part of another shape.

    >>> import fnx, numpy as np
    >>> from fnx.sharding import NamedSharding, PartitionSpec as P
    >>> devices = fnx.local_devices("cpu")[:1]
    >>> sharding = NamedSharding(fnx.make_mesh((1,), ("i",), devices=devices), P("i"))
    >>> part = fnx.device_put(np.arange(3, dtype="int32"), devices[0])
    >>> fnx.make_array_from_single_device_arrays((3,), sharding, [part])
    Array([0, 1, 2], dtype=int32)
    """
    asker = "make_array_from_single_device_arrays"
    parts: list[Any] = [
        as_array(x, asker, f"arrays[{n}]") for n, x in enumerate(arrays)
    ]
    by_device = {str(x.device): x for x in parts}
    rows = sharding.devices_indices_map(tuple(shape)).items()
    own = [(device, index) for device, index in rows if is_local(device)]
    wanted = sorted([str(device) for device, _ in own])
    if sorted([str(x.device) for x in parts]) != wanted:
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: arrays are on {', '.join(by_device) or 'no device'}",
                f"this process has one part on each of {', '.join(wanted)}",
                "put one part on each device with fnx.device_put",
            )
        )
    found = {_key(index): by_device[str(device)] for device, index in own}
    wrong = next((x for x in parts if x.shape != sharding.shard_shape(shape)), None)
    if wrong is not None:
        raise errors.ShapeError(
            errors.explain(
                f"{asker}: an array is {wrong.type}",
                f"the parts of {tuple(shape)} have the shape "
                f"{sharding.shard_shape(shape)}",
            )
        )
    type = ArrayType(tuple(shape), parts[0].type.dtype)
    return _made(sharding, type, lambda index: np.asarray(found[_key(index)]))


def _made(
    sharding: Sharding, type: ArrayType, part: Callable[[Index], Any]
) -> ConcreteArray:
    """The array whose parts on this process's devices `part` gives."""
    rows = sharding.devices_indices_map(type.shape).items()
    own = [index for device, index in rows if is_local(device)]
    if not sharding.is_fully_addressable:
        return across().global_array([part(index) for index in own], type, sharding)
    data = np.empty(type.shape, type.dtype)
    for index in own:
        where: Any = (..., *index)
        data[where] = part(index)
    return sharded(data, type, sharding)
