"""fnx.custom_batching: functions that bring their own rule for `vmap`."""

from fnx.api.custom_vmap import custom_vmap, sequential_vmap

__all__ = ["custom_vmap", "sequential_vmap"]
