"""The check of a machine's GPU: are programs right there, and how fast are they?

`command.py` runs all questions and prints a table; each question is a function that
gives rows, and one that fails becomes a row that says why. Correctness is checked
against the CPU backend, speed beside CuPy, PyTorch and JAX where they are installed.
Next on the walk: `report.py`.
"""
