"""fnx.stages: the classes of what a jitted function goes through, as in `jax.stages`.

`fnx.jit(f)` is a `Wrapped`; `.trace(*args)` gives a `Traced`, `.lower()` of that a
`Lowered`, `.compile()` of that a `Compiled`.
"""

from fnx.api.jit import Jitted as Wrapped
from fnx.api.stages import Compiled, Lowered
from fnx.api.stages import Staged as Traced

__all__ = ["Compiled", "Lowered", "Traced", "Wrapped"]
