"""Layer 3: transformations, each from a Program to a Program.

`jvp` adds tangents, `split` cuts a program in what is known and what is not,
`transpose` turns a linear program around, `batch` adds an axis. Reverse mode is the
first three in a row (`linearize` in `split`). Results are cached by structure. `jet`
adds higher derivatives; `sparsity` and `coloring` tell how few suffice.
Next on the walk: `fnx.control`, the primitives that hold programs.
"""
