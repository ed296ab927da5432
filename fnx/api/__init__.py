"""Layer 8: the transformations that users call, over trees of arrays.

`arguments` turns a call into flat arrays and traces the function; `grad`, `derivatives`
and `jacobian` differentiate, `vmap` batches, `jit` compiles, `custom` takes the user's
derivative rules, `inspect` shows programs, `device` moves values. Each flattens its
arguments, works on a flat `Program`, and puts the results back in trees.
Next on the walk: `fnx.numpy`, the functions that users compute with.
"""
