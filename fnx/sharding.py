"""fnx.sharding: meshes of devices, and how arrays are cut along their axes."""

from fnx.api.partition import with_sharding_constraint as reshard
from fnx.runtime.in_parts import Shard
from fnx.runtime.mesh import AxisType, Mesh, get_mesh, set_mesh
from fnx.runtime.mesh import set_mesh as use_mesh
from fnx.runtime.sharding import (
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)
from fnx.runtime.sharding import PartitionSpec as P

__all__ = [
    "AxisType",
    "Mesh",
    "NamedSharding",
    "P",
    "PartitionSpec",
    "Shard",
    "Sharding",
    "SingleDeviceSharding",
    "get_mesh",
    "reshard",
    "set_mesh",
    "use_mesh",
]
