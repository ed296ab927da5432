"""Devices, and moving values to and from them.

There is one CPU device. Receives trees; `device_put` gives arrays, `device_get` NumPy
arrays. Operations on the CPU have ended when they return, so `block_until_ready` only
checks that there are values. Next on the walk: `fnx.numpy`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from fnx import errors, tree
from fnx.api.arguments import as_array, leaf_names
from fnx.core.array import Array
from fnx.records import record

T = TypeVar("T")


@record
class Device:
    """A place where arrays live and programs run."""

    id: int
    platform: str
    device_kind: str
    process_index: int = 0

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"


_CPU = Device(0, "cpu", "cpu")


def devices(backend: str | None = None) -> list[Device]:
    """All devices; `backend` chooses a platform. Raises `OptionError` if it has none.

    >>> import fnx
    >>> fnx.devices()
    [CpuDevice(id=0)]
    """
    if backend not in (None, "cpu"):
        raise errors.OptionError(
            errors.explain(
                f"devices({backend!r})", "this platform has no devices here, only 'cpu'"
            )
        )
    return [_CPU]


def local_devices(backend: str | None = None) -> list[Device]:
    """The devices of this process.

    >>> import fnx
    >>> fnx.local_devices() == fnx.devices()
    True
    """
    return devices(backend)


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
    """The platform that programs run on.

    >>> import fnx
    >>> fnx.default_backend()
    'cpu'
    """
    return "cpu"


def process_index(backend: str | None = None) -> int:
    """The number of this process.

    >>> import fnx
    >>> fnx.process_index()
    0
    """
    return devices(backend)[0].process_index


def process_count(backend: str | None = None) -> int:
    """How many processes there are.

    >>> import fnx
    >>> fnx.process_count()
    1
    """
    return len({device.process_index for device in devices(backend)})


@errors.api_boundary
def device_put(x: Any, device: Device | None = None) -> Any:
    """The leaves of a tree as arrays on a device; NumPy arrays are copied.

    Raises `ArgumentError` for a leaf that is neither array nor number, and for
    something that is no device.

    >>> import fnx, numpy as np
    >>> fnx.device_put({"w": np.zeros(2, "float32")})
    {'w': Array([0., 0.], dtype=float32)}
    """
    if device is not None and device not in devices():
        raise errors.ArgumentError(
            errors.explain(
                f"device_put to {device!r}",
                "this is no device",
                "pass one of fnx.devices(), or nothing",
            )
        )
    leaves, treedef = tree.flatten(x)
    rows = zip(leaves, leaf_names(["the argument"], [treedef]), strict=True)
    return treedef.unflatten([as_array(x, "device_put", name) for x, name in rows])


@errors.api_boundary
def device_get(x: Any) -> Any:
    """The arrays in a tree as NumPy arrays, read-only and without a copy.

    Other leaves are left as they are. Raises `TracerValueError` for a traced array
    whose value is not known.

    >>> import fnx
    >>> fnx.device_get([fnx.device_put(1.5), "text"])
    [array(1.5, dtype=float32), 'text']
    """
    return tree.map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, Array) else leaf, x
    )


def block_until_ready(x: T) -> T:
    """Waits until the arrays in a tree have their values; gives the tree.

    >>> import fnx
    >>> fnx.block_until_ready(fnx.device_put(1.5)).item()
    1.5
    """
    # On the CPU, the only device so far, a call has ended when it returns.
    return x
