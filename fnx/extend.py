"""What users add to fnx with: primitives, kernels, transformations.

A subclass of `Primitive` gives rules as methods (`infer` and `reference` at least);
an instance is callable, and works under every transformation whose rule it has.

>>> import fnx, numpy as np
>>> from fnx.extend import ArrayType, Elementwise
>>> class Cube(Elementwise):
...     def jvp(self, primals, tangents):
...         (x,), (t,) = primals, tangents
...         return self(x), 3.0 * x * x * t
>>> cube = Cube("example_cube", "f", lambda x: x**3)
>>> fnx.grad(cube)(2.0).item()
12.0
"""

from __future__ import annotations

from fnx.api.foreign import kernel
from fnx.api.rewriting import Traced, rewritten, traced
from fnx.core.faults import Fault
from fnx.core.foreign import Cuda
from fnx.core.primitive import (
    LinearInput,
    MappedAxis,
    Primitive,
    is_linear,
    primitive,
    primitives,
)
from fnx.core.program import Eqn, Literal, Program, Var, walk
from fnx.core.trace import bind, evaluate
from fnx.core.types import ArrayType, array_type
from fnx.errors import MissingRule
from fnx.ops.arithmetic import Smooth
from fnx.ops.families import Elementwise
from fnx.transforms.batch import batch_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.split import linearize_program, split_program
from fnx.transforms.transpose import transpose_program

__all__ = [
    "ArrayType",
    "Cuda",
    "Elementwise",
    "Eqn",
    "Fault",
    "LinearInput",
    "Literal",
    "MappedAxis",
    "MissingRule",
    "Primitive",
    "Program",
    "Smooth",
    "Traced",
    "Var",
    "array_type",
    "batch_program",
    "bind",
    "evaluate",
    "is_linear",
    "jvp_program",
    "kernel",
    "linearize_program",
    "primitive",
    "primitives",
    "rewritten",
    "split_program",
    "traced",
    "transpose_program",
    "walk",
]
