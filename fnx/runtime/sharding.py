"""Shardings: how arrays are cut along the axes of a mesh.

Receives a mesh and, for each axis of an array, the names of what cuts it
(`PartitionSpec`); gives the part of each device. Next on the walk: `in_parts.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.runtime.device import Device
from fnx.runtime.mesh import Mesh, is_local

Index = tuple[slice, ...]


class _Unconstrained:
    """The one value of `PartitionSpec.UNCONSTRAINED`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "_UNCONSTRAINED"


_UNCONSTRAINED = _Unconstrained()


class PartitionSpec(tuple[Any, ...]):
    """For each axis of an array, the axis of a mesh that cuts it, several, or `None`.

    Axes of the array that are not named are not cut. With
    `PartitionSpec.UNCONSTRAINED` a constraint, or an output of `jit`, says nothing of
    an axis: it stays as it comes. Elsewhere such an axis is not cut.

    >>> from fnx.sharding import PartitionSpec as P
    >>> P("data", None, ("x", "y"))
    PartitionSpec('data', None, ('x', 'y'))
    """

    __slots__ = ()

    UNCONSTRAINED = _UNCONSTRAINED

    def __new__(cls, *partitions: Any) -> PartitionSpec:
        """A spec of these entries; a list is taken as a tuple."""
        entries = [tuple(p) if isinstance(p, list) else p for p in partitions]
        return super().__new__(cls, entries)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PartitionSpec, tuple(self)


class Sharding(ABC):
    """Where the parts of an array are."""

    __slots__ = ()

    @property
    @abstractmethod
    def device_set(self) -> set[Device]:
        """The devices that have a part."""

    @property
    @abstractmethod
    def is_fully_replicated(self) -> bool:
        """Whether every device has the whole array."""

    @abstractmethod
    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """For each device the index of its part of an array of a shape."""

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a part of an array of a shape."""
        index = next(iter(self.devices_indices_map(global_shape).values()))
        return tuple([part.stop - part.start for part in index])

    @property
    def num_devices(self) -> int:
        """How many devices have a part."""
        return len(self.device_set)

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process."""
        return {device for device in self.device_set if is_local(device)}

    @property
    def has_addressable_devices(self) -> bool:
        """Whether this process has a part."""
        return bool(self.addressable_devices)

    def addressable_devices_indices_map(
        self, global_shape: Sequence[int]
    ) -> dict[Device, Index]:
        """For each device of this process the index of its part."""
        rows = self.devices_indices_map(global_shape).items()
        return {device: index for device, index in rows if is_local(device)}

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are of this process."""
        return all(map(is_local, self.device_set))

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether both put the same parts of an array of that rank on each device."""
        shape = (2 * self.num_devices,) * ndim
        try:
            return self.devices_indices_map(shape) == other.devices_indices_map(shape)
        except errors.FnxError:
            return False


class SingleDeviceSharding(Sharding):
    """All of the array on one device."""

    __slots__ = ("device",)

    def __init__(self, device: Device) -> None:
        self.device = device

    @property
    def device_set(self) -> set[Device]:
        """The one device."""
        return {self.device}

    @property
    def is_fully_replicated(self) -> bool:
        """The one device has the whole array."""
        return True

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """All of it."""
        return {self.device: tuple([slice(0, n) for n in global_shape])}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding) and self.device == other.device

    def __hash__(self) -> int:
        return hash(("one", self.device))

    def __repr__(self) -> str:
        return f"SingleDeviceSharding({self.device})"


class NamedSharding(Sharding):
    """Parts along the axes of a mesh: each axis of the array as the spec says.

    Raises `AxisError` for a name that the mesh does not have, or that stands twice.

    >>> import fnx
    >>> from fnx.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = fnx.make_mesh((1,), ("data",), devices=fnx.devices("cpu")[:1])
    >>> NamedSharding(mesh, P("data")).shard_shape((4, 2))
    (4, 2)
    """

    __slots__ = ("mesh", "spec")

    def __init__(self, mesh: Mesh, spec: PartitionSpec) -> None:
        if not isinstance(mesh, Mesh):
            raise errors.ArgumentError(f"NamedSharding: mesh is {mesh!r}, no Mesh")
        self.mesh = mesh
        self.spec = spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec)
        names_in(self.spec, mesh, "NamedSharding", "spec")

    @property
    def device_set(self) -> set[Device]:
        """All devices of the mesh."""
        return set(self.mesh.devices.flat)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether no axis is cut in more than one part."""
        sizes = self.mesh.shape
        names = [name for entry in self.spec for name in entry_names(entry)]
        return all(sizes[name] == 1 for name in names)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, Index]:
        """The part of each device.

        Raises `ShapeError` for an axis that cannot be cut in equal parts.
        """
        spec = full_spec(self.spec, tuple(global_shape), self.mesh, "the array")
        sizes = self.mesh.shape
        found: dict[Device, Index] = {}
        for place in np.ndindex(self.mesh.devices.shape):
            at = dict(zip(self.mesh.axis_names, place, strict=True))
            device: Any = self.mesh.devices[place]
            found[device] = part_index(tuple(global_shape), spec, at, sizes)
        return found

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, NamedSharding) and self.mesh == other.mesh
        return same and self.spec == other.spec  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))

    def __repr__(self) -> str:
        return f"NamedSharding({self.mesh}, {self.spec})"

    def __reduce__(self) -> tuple[Any, ...]:
        return NamedSharding, (self.mesh, self.spec)


def part_index(
    shape: tuple[int, ...],
    spec: Sequence[Sequence[Hashable]],
    at: Mapping[Hashable, int],
    sizes: Mapping[Hashable, int],
) -> Index:
    """The index of the part, in an array of a shape, of the device at a place."""
    index = []
    for n, names in zip(shape, spec, strict=True):
        number, count = 0, 1
        for name in names:
            number, count = number * sizes[name] + at[name], count * sizes[name]
        index.append(slice(number * (n // count), (number + 1) * (n // count)))
    return tuple(index)


def entry_names(entry: Any) -> tuple[Hashable, ...]:
    """The names in one entry of a spec."""
    if entry is None or entry is _UNCONSTRAINED:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def spec_names(spec: PartitionSpec, ndim: int) -> tuple[tuple[Hashable, ...], ...]:
    """For each axis of an array of that rank the names of those that cut it."""
    entries = [entry_names(entry) for entry in spec]
    return (*entries, *[()] * (ndim - len(spec)))


def open_spec(
    spec: PartitionSpec, names: Sequence[tuple[Hashable, ...]]
) -> tuple[tuple[Hashable, ...] | None, ...]:
    """The names that cut each axis; `None` where the spec is `UNCONSTRAINED`."""
    entries = (*spec, *[None] * (len(names) - len(spec)))
    rows = zip(entries, names, strict=True)
    return tuple([None if e is _UNCONSTRAINED else own for e, own in rows])


def names_in(
    spec: PartitionSpec, mesh: Mesh, asker: str, name: str
) -> tuple[Hashable, ...]:
    """The names in a spec; raises for those that the mesh lacks, or that come twice."""
    names = tuple([found for entry in spec for found in entry_names(entry)])
    for found in names:
        if found not in mesh.axis_names:
            raise errors.AxisError(
                errors.explain(
                    f"{asker}: {name} is {spec}",
                    f"the mesh has no axis {found!r}; its axes are "
                    f"{', '.join(map(repr, mesh.axis_names))}",
                )
            )
    if len(set(names)) != len(names):
        raise errors.AxisError(
            errors.explain(
                f"{asker}: {name} is {spec}", "an axis of the mesh stands in it twice"
            )
        )
    return names


def full_spec(
    spec: PartitionSpec, shape: tuple[int, ...], mesh: Mesh, name: str, asker: str = ""
) -> tuple[tuple[Hashable, ...], ...]:
    """For each axis of an array the names of those that cut it, checked.

    Raises `AxisError` for a spec that is longer than the shape, `ShapeError` for an
    axis that cannot be cut in equal parts.
    """
    prefix = f"{asker}: " if asker else ""
    if len(spec) > len(shape):
        raise errors.AxisError(
            errors.explain(
                f"{prefix}{name} has shape {shape}",
                f"its spec {spec} has an entry for more axes than there are",
            )
        )
    found = spec_names(spec, len(shape))
    sizes = mesh.shape
    for axis, (n, names) in enumerate(zip(shape, found, strict=True)):
        count = math.prod([sizes[name] for name in names])
        if n % count:
            raise errors.ShapeError(
                errors.explain(
                    f"{prefix}axis {axis} of {name}, of shape {shape}, is to be cut "
                    f"in {count} parts along {', '.join(map(repr, names))}",
                    f"{n} is no multiple of {count}",
                    "pad the array, or use a mesh of another shape",
                )
            )
    return found
