"""fnx.implicit: derivatives of what a solver finds, from the equation that it solved.

A function is defined by an equation and any solver for it; its derivatives need
neither the solver's steps nor their memory. The walk begins with `linear.py`.
"""

from fnx.implicit.host import on_host
from fnx.implicit.linear import linear_solve
from fnx.implicit.solutions import fixed_point, minimum, root

__all__ = ["fixed_point", "linear_solve", "minimum", "on_host", "root"]
