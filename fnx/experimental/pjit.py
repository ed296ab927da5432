"""fnx.experimental.pjit: `fnx.jit`, by the name that JAX had for it with shardings."""

from fnx.api.jit import jit as pjit

__all__ = ["pjit"]
