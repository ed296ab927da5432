"""The CPU backend: kernels and plans as LLVM IR, compiled in this process.

The walk: `emit.py` prints kernels (over `llvm.py`, `values.py` and `access.py`),
`driver.py` the function that runs a plan's steps, `jit.py` makes machine code of the
text, and `backend.py` calls it on arrays.
"""
