"""Native libraries that plans call: BLAS, through the function pointers in SciPy.

SciPy ships a tuned BLAS in its wheel and exports its routines to C; a plan calls them
like its own kernels. Next on the walk: `driver.py`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

# Sets how many threads BLAS uses, and gives how many it used before.
SET_THREADS = "openblas_set_num_threads_local"


@cache
def blas_address(routine: str) -> int:
    """The address of a BLAS routine with Fortran's conventions (32-bit integers)."""
    capsule = _cython_blas().__pyx_capi__[routine]
    _set_threads()
    return _pointer()(capsule, _name()(capsule))


@cache
def set_threads_address() -> int | None:
    """The address of `SET_THREADS`, where SciPy's BLAS is OpenBLAS."""
    # Looking a symbol up in the extension finds those of the libraries it is linked to.
    function = getattr(ctypes.CDLL(_cython_blas().__file__), SET_THREADS, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def set_blas_threads(n: int) -> None:
    """Has BLAS use at most `n` threads, as soon as it is there."""
    _wanted[:] = [n]
    if "scipy.linalg.cython_blas" in sys.modules:
        _set_threads()


_wanted: list[int] = []  # empty while BLAS decides for itself


def _set_threads() -> None:
    address = set_threads_address() if _wanted else None
    if address is not None:
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(address)(*_wanted)


def _cython_blas() -> ModuleType:
    # lazy: SciPy takes longer to import than all of fnx, and few programs need it
    from scipy.linalg import cython_blas  # lazy: see above

    module: ModuleType = cython_blas
    return module


def _name() -> Callable[[Any], Any]:
    return ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
        ("PyCapsule_GetName", ctypes.pythonapi)
    )


def _pointer() -> Callable[[Any, Any], int]:
    return ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
