"""fnx.debug: to look into programs while they run.

`print`, `log`, `callback` and `breakpoint` have the names of `jax.debug`. They are
effects: each happens once, in the order of the program, in compiled code too.
`visualize_array_sharding` shows which device has which part of an array. `checks` has
what goes wrong raise; `key_reuse` finds random keys that are used twice.
The walk begins with `printing.py`.
"""

from fnx.debug.breakpoints import breakpoint
from fnx.debug.checking import checks
from fnx.debug.keys import key_reuse
from fnx.debug.placing import visualize_array_sharding, visualize_sharding
from fnx.debug.printing import callback, log, print

__all__ = [
    "breakpoint",
    "callback",
    "checks",
    "key_reuse",
    "log",
    "print",
    "visualize_array_sharding",
    "visualize_sharding",
]
