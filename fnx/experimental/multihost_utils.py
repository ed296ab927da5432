"""Values of several processes under JAX's name: those of `fnx.distributed`."""

from fnx.distributed.values import (
    assert_equal,
    broadcast_one_to_all,
    process_allgather,
    sync_global_devices,
)

__all__ = [
    "assert_equal",
    "broadcast_one_to_all",
    "process_allgather",
    "sync_global_devices",
]
