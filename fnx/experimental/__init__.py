"""fnx.experimental: names that JAX has under `jax.experimental`, for ported scripts."""

from fnx.api.callbacks import io_callback
from fnx.experimental import checkify, jet, mesh_utils, ode, pjit, shard_map

__all__ = [
    "checkify",
    "io_callback",
    "jet",
    "mesh_utils",
    "ode",
    "pjit",
    "shard_map",
]
