"""fnx.sharding: meshes of devices, and how arrays are cut along their axes."""

from fnx.runtime.sharding import (
    Mesh,
    NamedSharding,
    PartitionSpec,
    Shard,
    Sharding,
    SingleDeviceSharding,
)

__all__ = [
    "Mesh",
    "NamedSharding",
    "PartitionSpec",
    "Shard",
    "Sharding",
    "SingleDeviceSharding",
]
