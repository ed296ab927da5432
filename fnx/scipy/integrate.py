"""fnx.scipy.integrate: trapezoid, which is that of `fnx.numpy`.

Next on the walk: `interpolate.py`.
"""

from fnx.numpy.statistics import trapezoid

__all__ = ["trapezoid"]
