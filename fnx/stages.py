"""fnx.stages: the classes of what a jitted function goes through, as in `jax.stages`.

`fnx.jit(f)` is a `Wrapped`; `.trace(*args)` gives a `Traced`, `.lower()` of that a
`Lowered`, `.compile()` of that a `Compiled`. `ArgInfo` is what they say of an argument.
"""

from fnx.api.jit import Jitted as Wrapped
from fnx.api.stages import ArgInfo, Compiled, Lowered
from fnx.api.stages import Staged as Traced

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
