"""Native libraries that plans call: BLAS and LAPACK, by the function pointers in SciPy.

SciPy ships a tuned library in its wheel and exports its routines to C; a plan calls
them like its own kernels. Next on the walk: `driver.py`.
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

from fnx.cpu import jit

# Sets how many threads BLAS uses, and gives how many it used before.
SET_THREADS = "openblas_set_num_threads_local"

# What a plan calls before its first matrix product and after its last.
BLAS_BEGIN, BLAS_END = "fnx_blas_begin", "fnx_blas_end"

_BLAS, _LAPACK = "scipy.linalg.cython_blas", "scipy.linalg.cython_lapack"


@cache
def blas_address(routine: str) -> int:
    """The address of a routine with Fortran's conventions (32-bit integers).

    It is one of BLAS, or of LAPACK.
    """
    capsule = _extension(_BLAS).__pyx_capi__.get(routine)
    if capsule is None:
        capsule = _extension(_LAPACK).__pyx_capi__[routine]
    return _pointer()(capsule, _name()(capsule))


@cache
def has_set_threads() -> bool:
    """Whether SciPy's BLAS is OpenBLAS, which has `SET_THREADS`."""
    return _set_threads() is not None


def _set_threads() -> Any:
    # Looking a symbol up in the extension finds those of the libraries it is linked to.
    return getattr(ctypes.CDLL(_extension(_BLAS).__file__), SET_THREADS, None)


def blas_threads_address(name: str) -> int:
    """The address of `BLAS_BEGIN` or `BLAS_END`; `ImportError` with another BLAS."""
    return _blas_threads().address(name)


@cache
def _blas_threads() -> jit.Library:
    function = _set_threads()
    if function is None:
        raise ImportError(f"SciPy's BLAS has no {SET_THREADS}")
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    exports = [BLAS_BEGIN, BLAS_END, "forget"]
    imports = {SET_THREADS: address}
    library = jit.load_fixed(_BLAS_THREADS, exports, imports, opt=0)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=library.function("forget", 0))
    return library


# OpenBLAS has one number of threads for the whole process. Plans that run at once count
# themselves: the first has BLAS use one thread, the last gives back what was before.
def _counting(name: str, change: int, number: str, action: str) -> str:
    """A function that changes the count, and acts where `number` of plans is 0."""
    return f"""
define void @{name}() {{
entry:
  call void @take()
  %before = load i32, ptr @plans
  %after = add i32 %before, {change}
  store i32 %after, ptr @plans
  %alone = icmp eq i32 %{number}, 0
  br i1 %alone, label %act, label %done
act:
  call void @{action}()
  br label %done
done:
  store atomic i32 0, ptr @lock release, align 4
  ret void
}}
"""


_BLAS_THREADS = f"""
@lock = internal global i32 0
@plans = internal global i32 0
@before = internal global i32 0
declare i32 @{SET_THREADS}(i32)
{_counting(BLAS_BEGIN, 1, "before", "use_one")}
{_counting(BLAS_END, -1, "after", "restore")}
define internal void @use_one() {{
  %before = call i32 @{SET_THREADS}(i32 1)
  store i32 %before, ptr @before
  ret void
}}

define internal void @restore() {{
  %before = load i32, ptr @before
  call i32 @{SET_THREADS}(i32 %before)
  ret void
}}

define internal void @take() {{
entry:
  br label %ask
ask:
  %asked = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %asked, 1
  br i1 %mine, label %done, label %ask
done:
  ret void
}}

; In a forked process no plan is running: who forks is in Python.
define void @forget() {{
entry:
  store atomic i32 0, ptr @lock release, align 4
  %plans = load i32, ptr @plans
  store i32 0, ptr @plans
  %none = icmp eq i32 %plans, 0
  br i1 %none, label %done, label %set
set:
  call void @restore()
  br label %done
done:
  ret void
}}
"""


@cache
def _extension(name: str) -> ModuleType:
    """An extension module of SciPy's alone: its package takes ten times longer."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    package = find_spec("scipy")
    folders = (package and package.submodule_search_locations) or ()
    paths = [os.path.join(folder, "linalg") for folder in folders]
    spec = PathFinder.find_spec(name, paths)
    if spec is None or spec.loader is None:
        raise ImportError(f"SciPy has no {name}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _name() -> Callable[[Any], Any]:
    return ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
        ("PyCapsule_GetName", ctypes.pythonapi)
    )


def _pointer() -> Callable[[Any, Any], int]:
    return ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
