"""Backends that the compiler's tests compile for, besides those that there are."""

from dataclasses import replace

from fnx.compiler.target import CPU
from fnx.kernel.grid import grid_schedule

GRID = replace(CPU, schedule=grid_schedule)
"""Kernels for groups of threads, and the products of BLAS."""
