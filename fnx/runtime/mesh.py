"""Meshes: devices in the form of an array whose axes have names.

Receives devices and names; gives `Mesh`, and which one is around (`with mesh:`,
`set_mesh`).
Next on the walk: `sharding.py`.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Hashable
from typing import Any

import numpy as np

from fnx import errors
from fnx.runtime.device import Device
from fnx.runtime.processes import processes


class Mesh:
    """Devices in the form of an array whose axes have names.

    `devices` is an array (or nested sequence) of devices, `axis_names` has a name for
    each of its axes. Meshes of the same devices and names are equal. Used as a context
    (`with mesh:`) it is the mesh of `shard_map` and `with_sharding_constraint`.

    `axis_types`, if given, is `AxisType.Auto` for each axis.

    Raises `ArgumentError` for what is no device and where there is none, `AxisError`
    for names that are not different, or not one for each axis, `OptionError` for other
    types of axes.

    >>> import fnx, numpy as np
    >>> from fnx.sharding import Mesh
    >>> dict(Mesh(np.array(fnx.devices("cpu")[:1]), ("data",)).shape)
    {'data': 1}
    """

    __slots__ = ("_hash", "axis_names", "devices", "key")

    def __init__(
        self, devices: Any, axis_names: Any, *, axis_types: Any = None
    ) -> None:
        grid = np.array(devices, dtype=object)
        names = _named(axis_names)
        check_axis_types("Mesh", axis_types, len(names))
        for device in grid.flat:
            if not isinstance(device, Device):
                raise errors.ArgumentError(
                    errors.explain(
                        f"Mesh: devices has {device!r}",
                        "this is no device",
                        "pass an array of fnx.devices(), or use fnx.make_mesh",
                    )
                )
        if not grid.size:
            raise errors.ArgumentError(
                f"Mesh: devices of shape {grid.shape}: a mesh has one or more."
            )
        if len(names) != grid.ndim or len(set(names)) != len(names):
            raise errors.AxisError(
                errors.explain(
                    f"Mesh: axis_names={names!r} for devices of shape {grid.shape}",
                    "each axis needs a name, and each name is of one axis",
                )
            )
        if len({(d.backend, d.id) for d in grid.flat}) != grid.size:
            raise errors.ArgumentError("Mesh: a device stands twice in devices")
        backends = sorted({device.backend for device in grid.flat})
        if len(backends) > 1:
            raise errors.ArgumentError(
                errors.explain(
                    f"Mesh: devices of {' and of '.join(backends)}",
                    "replicas of one program run on devices of one kind",
                )
            )
        grid.setflags(write=False)
        self.devices = grid
        self.axis_names = names
        # What equal meshes share.
        own = tuple([str(device) for device in grid.flat])
        self.key: tuple[Any, ...] = (names, grid.shape, own)
        self._hash = hash(self.key)

    @property
    def shape(self) -> dict[Hashable, int]:
        """The sizes of the axes, by name."""
        return dict(zip(self.axis_names, self.devices.shape, strict=True))

    @property
    def axis_sizes(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        found: tuple[int, ...] = self.devices.shape
        return found

    @property
    def size(self) -> int:
        """How many devices there are."""
        return int(self.devices.size)

    @property
    def axes(self) -> tuple[tuple[Hashable, int], ...]:
        """The axes as (name, size) pairs, the slowest first."""
        return tuple(self.shape.items())

    @property
    def local_devices(self) -> list[Device]:
        """The devices of this process."""
        return [d for d in self.devices.flat if is_local(d)]

    @property
    def backend(self) -> str:
        """What runs programs on the devices."""
        found: str = self.devices.flat[0].backend
        return found

    @property
    def is_local(self) -> bool:
        """Whether all devices are of this process."""
        return processes().count == 1 or all(map(is_local, self.devices.flat))

    @property
    def shares_memory(self) -> bool:
        """Whether all devices see the same memory: the CPU devices of one process."""
        return self.backend == "cpu" and self.is_local

    @property
    def empty(self) -> bool:
        """Whether there is no device: never."""
        return False

    @property
    def axis_types(self) -> tuple[AxisType, ...]:
        """What decides how arrays are cut along each axis: propagation."""
        return (AxisType.Auto,) * len(self.axis_names)

    @property
    def shape_tuple(self) -> tuple[tuple[Hashable, int], ...]:
        """The axes as (name, size) pairs, as `axes`."""
        return self.axes

    @property
    def device_ids(self) -> Any:
        """The numbers of the devices, in the form of the mesh."""
        numbers = [device.id for device in self.devices.flat]
        return np.array(numbers).reshape(self.devices.shape)

    @property
    def is_multi_process(self) -> bool:
        """Whether some device is of another process."""
        return not self.is_local

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Mesh) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        sizes = ", ".join([f"{name!r}: {size}" for name, size in self.axes])
        return f"Mesh({sizes})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Mesh, (self.devices.tolist(), self.axis_names)

    def __enter__(self) -> Mesh:
        _current.meshes.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _current.meshes.pop()


class AxisType(enum.Enum):
    """What decides how arrays are cut along an axis of a mesh.

    `Auto`: propagation, from what is asked of arguments, results and constraints.
    There are no others here; they have names so that asking for them is an error.
    """

    Auto = "Auto"
    Explicit = "Explicit"
    Manual = "Manual"


def check_axis_types(asker: str, types: Any, count: int) -> None:
    """Raises unless types of axes are that of every axis here, `Auto`."""
    many = (types,) * count if isinstance(types, AxisType) else types
    if many is None:
        return
    if len(many) != count or any(kind is not AxisType.Auto for kind in many):
        raise errors.OptionError(
            errors.explain(
                f"{asker}: axis_types={types!r} for {count} axes",
                "how arrays are cut is propagated along all axes (AxisType.Auto)",
                "leave axis_types out; fnx.lax.with_sharding_constraint asks for a "
                "cut where a value stands, fnx.shard_map is manual",
            )
        )


class _Current(threading.local):
    """Per thread: the meshes around, innermost last."""

    def __init__(self) -> None:
        self.meshes: list[Mesh] = []


_current = _Current()


def current_mesh() -> Mesh | None:
    """The mesh of the innermost `with mesh:` around, if there is one."""
    return _current.meshes[-1] if _current.meshes else None


class set_mesh:
    """Makes a mesh the one around: from now on, or in a `with` block.

    It is the mesh of `shard_map`, of `with_sharding_constraint`, and of `jit` with
    `PartitionSpec`s, in this thread. Raises `ArgumentError` for what is no mesh.

    >>> import fnx
    >>> from fnx.sharding import get_mesh
    >>> with fnx.set_mesh(fnx.make_mesh((1,), ("i",), devices=fnx.devices("cpu")[:1])):
    ...     get_mesh()
    Mesh('i': 1)
    """

    __slots__ = ("_before", "_mesh")

    def __init__(self, mesh: Mesh) -> None:
        if not isinstance(mesh, Mesh):
            raise errors.ArgumentError(f"set_mesh: mesh is {mesh!r}, no Mesh")
        self._mesh = mesh
        self._before = [*_current.meshes]
        _current.meshes.append(mesh)

    def __enter__(self) -> Mesh:
        return self._mesh

    def __exit__(self, *_: object) -> None:
        _current.meshes[:] = self._before


def get_mesh() -> Mesh:
    """The mesh around; raises `ArgumentError` where there is none."""
    mesh = current_mesh()
    if mesh is None:
        raise errors.ArgumentError(
            errors.explain(
                "get_mesh()", "there is no mesh around", "call it inside `with mesh:`"
            )
        )
    return mesh


def _named(names: Any) -> tuple[Hashable, ...]:
    return tuple(names) if isinstance(names, tuple | list) else (names,)


def is_local(device: Device) -> bool:
    """Whether a device is of this process."""
    return device.process_index == processes().index
