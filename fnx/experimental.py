"""fnx.experimental: names that JAX has under `jax.experimental`, for ported scripts."""

from fnx.api.callbacks import io_callback

__all__ = ["io_callback"]
