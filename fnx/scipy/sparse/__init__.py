"""fnx.scipy.sparse: solvers that know a matrix by its products alone.

Next on the walk: `linalg.py`.
"""

from fnx.scipy.sparse import linalg

__all__ = ["linalg"]
