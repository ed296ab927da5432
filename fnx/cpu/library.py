"""Native libraries that plans call: BLAS, through the function pointers in SciPy.

SciPy ships a tuned BLAS in its wheel and exports its routines to C; a plan calls them
like its own kernels. Next on the walk: `driver.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def blas_address(routine: str) -> int:
    """The address of a BLAS routine with Fortran's conventions (32-bit integers)."""
    # lazy: SciPy takes longer to import than all of fnx, and few programs need it
    from scipy.linalg import cython_blas  # lazy: see above

    capsule = cython_blas.__pyx_capi__[routine]
    return _pointer()(capsule, _name()(capsule))


def _name() -> Callable[[Any], Any]:
    return ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
        ("PyCapsule_GetName", ctypes.pythonapi)
    )


def _pointer() -> Callable[[Any, Any], int]:
    return ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
