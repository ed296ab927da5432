"""Layer 10: `python -m fnx.demo digits`, a training run in under a minute.

`digits.py` is the model and its training loop, `report.py` what is printed about it,
`parallel` has recipes for many devices, `__main__.py` the command line. Nothing of fnx
imports this folder.
"""
