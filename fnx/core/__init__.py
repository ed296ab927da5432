"""Layer 1, array level: what a program is.

`types` gives every array a type, `program` holds equations over typed variables,
`trace` turns a Python function into a program, `primitive` says what an equation
means, `simplify`, `check` and `printer` clean, verify and show it.
Next on the walk: `fnx.transforms`, which rewrites programs.
"""

from fnx.core.trace import Tracer as Tracer  # isinstance(x, fnx.core.Tracer)
