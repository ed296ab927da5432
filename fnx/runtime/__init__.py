"""Layer 6: values and execution.

`array` holds concrete arrays, `eager` runs single operations at once, `executable` and
`cache` hold what the compiler made. Next on the walk: a backend, `fnx.cpu`.
"""
