"""How fast fnx is, and against whom: one file a question.

`python -m benchmarks NAME… [--quick] [--json FILE] [--plot FILE]` runs the named files;
each gives a list of `Case`s that `benchmarks/harness.py` compares, times and prints.
A speed claim is a ratio to a peer in the same run. Next on the walk: `harness.py`.
"""
