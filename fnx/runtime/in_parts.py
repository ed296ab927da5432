"""Arrays whose parts are on several devices, and know their sharding.

On CPU devices, which share their memory, such an array is one array, and a shard a view
of it; devices with memory of their own, and other processes, have their parts.
Receives values and a sharding. Next on the walk: `executable.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.runtime.array import ConcreteArray, Deleted, from_numpy
from fnx.runtime.device import Device
from fnx.runtime.mesh import is_local
from fnx.runtime.sharding import Index, NamedSharding, Sharding, SingleDeviceSharding


@record
class Shard:
    """The part of an array that one device has.

    `index` is where it lies in the array; of equal parts, one has the number 0 as its
    `replica_id`. `data` is the part as an array, `None` where another process has it.
    """

    device: Device
    index: Index
    replica_id: int
    data: Any


class ShardedArray(ConcreteArray):
    """An array whose parts are on several CPU devices; `sharding` says which part.

    Native calls do not know it, so that what is done with it goes through Python.
    """

    __slots__ = ("_sharding",)

    def __init__(
        self, data: np.ndarray[Any, Any], type: ArrayType, sharding: Sharding
    ) -> None:
        super().__init__(data, type)
        self._sharding = sharding

    committed = True

    def devices(self) -> set[Device]:
        """The devices that have a part."""
        return self._sharding.device_set

    @property
    def _gone(self) -> Any:
        return DeletedShardedArray


class PartsArray(ConcreteArray):
    """An array in parts on devices with memory of their own, in the mesh's order.

    As a whole it is on the host, from the time that somebody looks at it.
    """

    __slots__ = ("_sharding", "parts")

    parts: tuple[ConcreteArray, ...]

    def __init__(
        self, parts: tuple[ConcreteArray, ...], type: ArrayType, sharding: Sharding
    ) -> None:
        self.parts = parts
        self.type = type
        self._sharding = sharding
        self._data: Any = None

    def _numpy(self) -> np.ndarray[Any, Any]:
        if self._data is None:
            data = np.empty(self.type.shape, self.type.dtype)
            indices = list(self._sharding.devices_indices_map(self.type.shape).values())
            # The first of equal parts is what the array is.
            for part, index in reversed(list(zip(self.parts, indices, strict=True))):
                where: Any = (..., *index)
                data[where] = part._numpy()
            data.setflags(write=False)
            self._data = data
        return self._data

    committed = True

    def devices(self) -> set[Device]:
        """The devices that have a part."""
        return self._sharding.device_set

    def block_until_ready(self) -> PartsArray:
        """Itself, once all parts have their values."""
        for part in self.parts:
            part.block_until_ready()
        return self

    def is_ready(self) -> bool:
        """Whether all values are there."""
        return all(part.is_ready() for part in self.parts)

    def delete(self) -> None:
        """Gives the memory of all parts back."""
        for part in self.parts:
            part.delete()
        self._data = None

    def is_deleted(self) -> bool:
        """Whether the memory has been given back."""
        return any(part.is_deleted() for part in self.parts)

    def __repr__(self) -> str:
        if self.is_deleted():
            return f"Array(deleted, {self.type})"
        return super().__repr__()


class GlobalArray(PartsArray):
    """An array in parts of which other processes have some.

    `parts` are those of this process, in the mesh's order. As a whole it can be looked
    at where every device has all of it.
    """

    __slots__ = ()

    @property
    def is_remote(self) -> bool:  # type: ignore[override]
        """Whether this process has only some of the values."""
        return not self._sharding.is_fully_replicated

    def _numpy(self) -> np.ndarray[Any, Any]:
        if not self.is_remote:
            return self.parts[0]._numpy()
        raise errors.ArgumentError(
            errors.explain(
                f"the values of an array {self.type} cut over several processes",
                "this process has only some of them",
                "look at x.addressable_shards, compute with it, or have "
                "fnx.distributed.process_allgather(x) fetch it",
            )
        )

    def __repr__(self) -> str:
        if self.is_deleted() or not self.is_remote:
            return super().__repr__()
        return f"Array(of several processes, {self.type}, {self._sharding})"

    def __str__(self) -> str:
        here = self.is_deleted() or not self.is_remote
        return super().__str__() if here else repr(self)


class DeletedShardedArray(Deleted, ShardedArray):
    """What an array in parts turns into when its memory has been given away."""

    __slots__ = ()


def sharding_of(x: ConcreteArray) -> Sharding:
    """Where an array's parts are."""
    if isinstance(x, ShardedArray | PartsArray):
        return x._sharding
    return SingleDeviceSharding(x.device)


def named_sharding(x: Any) -> NamedSharding | None:
    """How an array, or what stands for one, is cut along a mesh, if it is."""
    found = getattr(x, "_sharding", None)
    return found if isinstance(found, NamedSharding) else None


def followed_shardings(
    arrays: Sequence[Any],
) -> tuple[NamedSharding | None, ...] | None:
    """How arrays are cut, if what is computed of them is to be cut so, too.

    Not for CPU devices of which each has all: one of them computes it for all.
    """
    found = tuple(map(named_sharding, arrays))
    there = [x for x in found if x is not None and x.mesh.size > 1]
    if all(x.is_fully_replicated and x.mesh.shares_memory for x in there):
        return None
    return found


def shards_of(x: ConcreteArray, everywhere: bool = False) -> list[Shard]:
    """The parts of an array, in the order of the devices of its mesh.

    Those of this process, or `everywhere`.
    """
    rows = sharding_of(x).devices_indices_map(x.shape).items()
    seen: dict[Any, int] = {}
    found: list[Shard] = []
    own = 0
    for device, index in rows:
        key = tuple([(part.start, part.stop) for part in index])
        number = seen[key] = seen.get(key, -1) + 1
        if is_local(device):
            found.append(Shard(device, index, number, _part(x, own, index)))
            own += 1
        elif everywhere:
            found.append(Shard(device, index, number, None))
    return found


def _part(x: ConcreteArray, rank: int, index: Index) -> ConcreteArray:
    if isinstance(x, PartsArray):
        return x.parts[rank]
    if not isinstance(x, ShardedArray):
        return x
    where: Any = (..., *index)
    return from_numpy(np.ascontiguousarray(x._numpy()[where]), x.type.weak)


def sharded(data: Any, type: ArrayType, sharding: Sharding) -> ShardedArray:
    """A NumPy array, to which nobody writes any more, as an array in parts."""
    data.setflags(write=False)
    return ShardedArray(data, type, sharding)
