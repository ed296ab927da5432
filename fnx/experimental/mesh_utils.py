"""Devices in the form of a mesh under JAX's name: what `fnx.make_mesh` takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.api.shard_map import make_mesh
from fnx.runtime.device import Device


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
