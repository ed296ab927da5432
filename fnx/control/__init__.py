"""Layer 4: primitives that hold programs.

`call` is a `jit` inside a program, `custom` holds user-written derivative rules,
`callback` a function that runs on the host. They live above the transformations because
their rules apply them.
Next on the walk: `fnx.compiler`.
"""
