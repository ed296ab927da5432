"""Kernels: scalar loop nests, the lower of fnx's two IRs.

`expr.py` and `table.py` say what expressions are, `build.py` is the vocabulary of the
primitives' `element` rules, `loops.py`, `schedule.py` and `vectorize.py` turn what was
built into the statements of `ir.py`, and `check.py` and `printer.py` read those.
`scalar.py` is the table of operations, `math.py` the functions made of them. Knows
dtypes and nothing else of fnx; the backends print what comes out.
"""
