"""fnx.debug: to look into programs while they run.

`print`, `callback` and `breakpoint` have the names and arguments of `jax.debug`. They
are effects: each happens once, in the order of the program, in compiled code too.
`checks` has what goes wrong raise; `key_reuse` finds random keys that are used twice.
The walk begins with `printing.py`.
"""

from fnx.debug.breakpoints import breakpoint
from fnx.debug.checking import checks
from fnx.debug.keys import key_reuse
from fnx.debug.printing import callback, print

__all__ = ["breakpoint", "callback", "checks", "key_reuse", "print"]
