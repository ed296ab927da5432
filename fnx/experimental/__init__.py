"""fnx.experimental: names that JAX has under `jax.experimental`, for ported scripts."""

from fnx.api.callbacks import io_callback
from fnx.experimental import checkify, jet, ode

__all__ = ["checkify", "io_callback", "jet", "ode"]
