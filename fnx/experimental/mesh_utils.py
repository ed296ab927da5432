"""Devices in the form of a mesh under JAX's names: what `fnx.sharding.Mesh` takes.

Receives the sizes of axes; gives arrays of devices. Next on the walk:
`multihost_utils.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.api.shard_map import make_mesh
from fnx.runtime.device import Device, all_devices


def create_device_mesh(
    mesh_shape: Sequence[int], devices: Sequence[Device] | None = None
) -> Any:
    """The first devices that there are as an array of that shape, for a `Mesh`.

    Neighbours along the last axis are neighbours among the devices: that axis is the
    one for most of the communication. Raises `ArgumentError` for too few devices.

    >>> create_device_mesh((1, 1)).shape
    (1, 1)
    """
    return make_mesh(mesh_shape, range(len(mesh_shape)), devices=devices).devices


def create_hybrid_device_mesh(
    mesh_shape: Sequence[int],
    dcn_mesh_shape: Sequence[int],
    devices: Sequence[Device] | None = None,
) -> Any:
    """Devices of several processes as an array whose axes tell near from far.

    Axis `i` has `dcn_mesh_shape[i]` times `mesh_shape[i]` devices: those of one process
    have `mesh_shape`, and processes, between which the network is slow, stand along the
    slow part of each axis. Without `devices` they are those of all processes.

    Raises `ShapeError` for shapes of different lengths, `ArgumentError` where there are
    fewer processes than `dcn_mesh_shape` says, or too few devices of one.

    >>> create_hybrid_device_mesh((1, 1), (1, 1)).shape
    (1, 1)
    """
    near, far = tuple(map(int, mesh_shape)), tuple(map(int, dcn_mesh_shape))
    if len(near) != len(far):
        raise errors.ShapeError(
            errors.explain(
                f"create_hybrid_device_mesh: mesh_shape={near}, dcn_mesh_shape={far}",
                "each axis has a size within a process and one between processes",
                "pass as many of both; 1 where an axis is not cut so",
            )
        )
    by_process: dict[int, list[Device]] = {}
    for device in all_devices() if devices is None else devices:
        by_process.setdefault(device.process_index, []).append(device)
    count = int(np.prod(far))
    if count > len(by_process):
        raise errors.ArgumentError(
            errors.explain(
                f"create_hybrid_device_mesh: dcn_mesh_shape={far}",
                f"that takes {count} processes, and there are {len(by_process)}",
                "pass a smaller dcn_mesh_shape, or start more processes",
            )
        )
    chosen = [by_process[index] for index in sorted(by_process)][:count]
    grids = np.stack([create_device_mesh(near, there) for there in chosen])
    # An axis for each far one, then one for each near one; then in pairs.
    places = [n for axis in range(len(near)) for n in (axis, len(near) + axis)]
    sizes = [a * b for a, b in zip(far, near, strict=True)]
    return grids.reshape(*far, *near).transpose(places).reshape(sizes)
