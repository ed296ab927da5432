"""Native libraries that plans call: BLAS, through the function pointers in SciPy.

SciPy ships a tuned BLAS in its wheel and exports its routines to C; a plan calls them
like its own kernels. Next on the walk: `driver.py`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

from fnx.cpu.threads import on_change

# Sets how many threads BLAS uses, and gives how many it used before.
SET_THREADS = "openblas_set_num_threads_local"

_BLAS = "scipy.linalg.cython_blas"


@cache
def blas_address(routine: str) -> int:
    """The address of a BLAS routine with Fortran's conventions (32-bit integers)."""
    capsule = _cython_blas().__pyx_capi__[routine]
    _threads_are_set()
    return _pointer()(capsule, _name()(capsule))


@cache
def has_set_threads() -> bool:
    """Whether SciPy's BLAS is OpenBLAS, which has `SET_THREADS`."""
    return _set_threads_function() is not None


def set_threads_address() -> int:
    """The address of `SET_THREADS`; `ImportError` where BLAS does not have it."""
    function = _set_threads_function()
    if function is None:
        raise ImportError(f"SciPy's BLAS has no {SET_THREADS}")
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _set_threads_function() -> Any:
    # Looking a symbol up in the extension finds those of the libraries it is linked to.
    return getattr(ctypes.CDLL(_cython_blas().__file__), SET_THREADS, None)


def _set_threads(number: int) -> None:
    """Has BLAS use at most so many threads, if it can be told."""
    if has_set_threads():
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(set_threads_address())(number)


@cache
def _cython_blas() -> ModuleType:
    """SciPy's extension module alone: its package takes ten times longer to import."""
    loaded = sys.modules.get(_BLAS)
    if loaded is not None:
        return loaded
    package = find_spec("scipy")
    folders = (package and package.submodule_search_locations) or ()
    paths = [os.path.join(folder, "linalg") for folder in folders]
    spec = PathFinder.find_spec(_BLAS, paths)
    if spec is None or spec.loader is None:
        raise ImportError(f"SciPy has no {_BLAS}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _threads_are_set() -> None:
    """From now on BLAS is told how many threads to use whenever that is set."""
    on_change(_set_threads)


def _name() -> Callable[[Any], Any]:
    return ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
        ("PyCapsule_GetName", ctypes.pythonapi)
    )


def _pointer() -> Callable[[Any, Any], int]:
    return ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
