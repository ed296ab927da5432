"""fnx.experimental.jet: `fnx.jet`, where JAX has it."""

from fnx.api.jet import jet

__all__ = ["jet"]
