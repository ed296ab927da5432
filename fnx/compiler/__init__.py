"""Layer 5: from a Program to a Plan.

`pipeline` is the table of contents: `inline` expands held programs, `fuse` decides
which values are stored and which kernel computes them, `beside` joins the smallest
ones, `lower` composes the `element` rules into kernels, `plan` orders the steps and
gives every stored value its memory.
The compiler calls the rules of primitives and never asks for their names.
Next on the walk: `fnx.kernel`, then `fnx.runtime` and the backend, `fnx.cpu`.
"""
