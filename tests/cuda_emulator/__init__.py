"""A CUDA machine without a GPU: what stands in CuPy's place in the tests.

    from tests import cuda_emulator as emulator

    cupy = emulator.cupy_module()       # for fnx_cuda/_cupy.py
    emulator.reset(emulator.Settings(devices=2, seed=3))
    emulator.machine().findings         # mistakes found so far, as texts
    emulator.inject.out_of_memory(after=2)

Kernels are CUDA C; g++ compiles them (modules.py, shim.h), and a runtime in C++ runs
their threads on fibers and checks every access (runtime/). The machine's streams run
late and out of order where nothing orders them (machine.py). Next: surface.py.
"""

from . import inject
from .errors import Finding
from .machine import Settings, another, machine, reset
from .native import reason_missing
from .surface import cupy_module

__all__ = [
    "Finding",
    "Settings",
    "another",
    "cupy_module",
    "inject",
    "machine",
    "reason_missing",
    "reset",
]
