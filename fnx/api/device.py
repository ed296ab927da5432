"""Devices, and moving values to and from them.

Receives trees; `device_put` gives arrays on a device, `device_get` NumPy arrays.
Nothing here waits but what needs a value on the host: `block_until_ready` and
`device_get`. What a device is and which is the default is in `fnx/runtime/device.py`.
Next on the walk: `doctor.py`, `fnx.numpy`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from fnx import errors, tree
from fnx.api.arguments import as_array, leaf_names
from fnx.core.array import Array
from fnx.core.trace import Tracer
from fnx.runtime import device as where
from fnx.runtime.array import ConcreteArray
from fnx.runtime.device import CPU, Device, Placement, placed
from fnx.runtime.device_array import DeviceArray, on_default, put
from fnx.runtime.in_parts import sharded
from fnx.runtime.mesh import get_mesh
from fnx.runtime.processes import processes
from fnx.runtime.replicas import across
from fnx.runtime.sharding import (
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)

T = TypeVar("T")


def devices(backend: str | None = None) -> list[Device]:
    """All devices of a platform ("cpu", "gpu") or backend ("cuda"), of all processes.

    Without one, those of the platform of the default device. Raises `OptionError` if
    there are none, and says why.

    >>> import fnx
    >>> fnx.devices("cpu")
    [CpuDevice(id=0)]
    """
    return list(where.all_devices(backend))


def local_devices(backend: str | None = None) -> list[Device]:
    """The devices of this process.

    >>> import fnx
    >>> fnx.local_devices() == fnx.devices()
    True
    """
    return list(where.devices(backend))


def device_count(backend: str | None = None) -> int:
    """How many devices there are.

    >>> import fnx
    >>> fnx.device_count()
    1
    """
    return len(devices(backend))


def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has.

    >>> import fnx
    >>> fnx.local_device_count()
    1
    """
    return len(local_devices(backend))


def default_backend() -> str:
    """The platform that programs run on if nothing says where: "cpu" or "gpu".

    >>> import fnx
    >>> fnx.default_backend() in ("cpu", "gpu")
    True
    """
    return where.default_device().platform


def default_device(device: Device | str | None) -> AbstractContextManager[None]:
    """A context in which programs run on a device if none of their arrays is on one.

    It holds for the thread; `fnx.config.default_device` for the process. The device may
    be named: "cpu", "gpu", "cuda:1". Raises `ArgumentError` for what is no device,
    `OptionError` for a platform without any.

    >>> import fnx, fnx.numpy as fnp
    >>> with fnx.default_device(fnx.devices("cpu")[0]):
    ...     print(fnp.zeros(3).device)
    cpu:0
    """
    chosen = None if device is None else where.named(device, "default_device")
    return where.defaulting(chosen)


def process_index(backend: str | None = None) -> int:
    """The number of this process in its job (`fnx.distributed.initialize`).

    >>> import fnx
    >>> fnx.process_index()
    0
    """
    _known(backend)
    return processes().index


def process_count(backend: str | None = None) -> int:
    """How many processes the job has.

    >>> import fnx
    >>> fnx.process_count()
    1
    """
    _known(backend)
    return processes().count


def _known(backend: str | None) -> None:
    """Raises `OptionError` for what is no backend; they all have the same processes."""
    if backend is not None:
        where.devices(backend)


@errors.api_boundary
def device_put(x: Any, device: Any = None) -> Any:
    """The leaves of a tree as arrays on a device; NumPy arrays are copied.

    `device` is a device or a sharding (`fnx.sharding.NamedSharding`, or a
    `PartitionSpec` of the mesh around: the array in parts), or a tree of them and
    `None` that is a prefix of `x`. Of a traced array a sharding is a constraint
    (`fnx.lax.with_sharding_constraint`).
    Arrays that are put on a device are committed to it: programs run where their
    committed arrays are. Without a device (`None`), arrays stay where they are, and
    what is no array comes to the default device, where nothing holds it. Copying
    does not wait.

    Raises `ArgumentError` for a leaf that is neither array nor number, for something
    that is no device, and for a traced array with a device; `TreeError` where `device`
    is no prefix.

    >>> import fnx, numpy as np
    >>> fnx.device_put({"w": np.zeros(2, "float32")})
    {'w': Array([0., 0.], dtype=float32)}
    """
    leaves, treedef = tree.flatten(x)
    names = leaf_names(["the argument"], [treedef])
    arrays = [as_array(x, "device_put", n) for x, n in zip(leaves, names, strict=True)]
    wanted = _devices(device, x, len(leaves))
    rows = zip(leaves, arrays, wanted, names, strict=True)
    return treedef.unflatten([_put(*row) for row in rows])


def _devices(device: Any, x: Any, count: int) -> list[Device | Sharding | None]:
    """The device or sharding of each leaf."""
    if device is None or _is_device(device):
        given = [device] * count
    else:
        given = tree.broadcast_prefix(device, x, "device", is_leaf=_is_device)
    return [_wanted(d) for d in given]


def _wanted(device: Any) -> Device | Sharding | None:
    if isinstance(device, SingleDeviceSharding):
        return device.device
    if isinstance(device, PartitionSpec):
        return NamedSharding(get_mesh(), device)
    if device is None or isinstance(device, Sharding):
        return device
    return where.named(device, "device_put", names=False)


def _is_device(x: Any) -> bool:
    return isinstance(x, Device | Sharding | PartitionSpec)


def _put(leaf: Any, x: Array, device: Device | Sharding | None, name: str) -> Array:
    if isinstance(x, Tracer):
        if isinstance(device, Sharding):
            # lazy: few have several devices
            from fnx.api.partition import with_sharding_constraint

            return with_sharding_constraint(x, device)
        if device is not None:
            raise errors.ArgumentError(
                errors.explain(
                    f"device_put to {device}: {name} is a traced array ({x.type})",
                    "a transformed function runs as a whole, where its arguments are",
                    "put its arguments on the device instead",
                )
            )
        return x
    assert isinstance(x, ConcreteArray)
    if isinstance(device, Sharding):
        device.shard_shape(x.shape)  # raises where it cannot be cut so
        if not device.is_fully_addressable:
            return across().cut(across().whole_of(x), x.type, device)
        return sharded(x._numpy(), x.type, device)
    if device is not None:
        return put(x, _committed(device))
    return x if isinstance(leaf, Array) else on_default(x)


def _committed(device: Device) -> Placement:
    """A placement that says so; the CPU need not, where there is nothing else."""
    return placed(device, device is not CPU or where.others())


@errors.api_boundary
def device_get(x: Any) -> Any:
    """The arrays in a tree as NumPy arrays, read-only, once they have their values.

    Arrays on the CPU are not copied. Other leaves are left as they are. Raises
    `TracerValueError` for a traced array whose value is not known, and what has gone
    wrong in the program that made an array.

    >>> import fnx
    >>> fnx.device_get([fnx.device_put(1.5), "text"])
    [array(1.5, dtype=float32), 'text']
    """
    return tree.map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, Array) else leaf, x
    )


@errors.api_boundary
def block_until_ready(x: T) -> T:
    """Waits until the arrays in a tree have their values; gives the tree.

    Raises what has gone wrong in a program that made one of them.

    >>> import fnx
    >>> fnx.block_until_ready(fnx.device_put(1.5)).item()
    1.5
    """
    for leaf in tree.leaves(x):
        if isinstance(leaf, DeviceArray):  # on the CPU a call has ended when it returns
            leaf.block_until_ready()
    return x
