"""What a new primitive is made of: for users who add operations to fnx.

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

from fnx.core.primitive import (
    LinearInput,
    MappedAxis,
    Primitive,
    is_linear,
    primitive,
    primitives,
)
from fnx.core.program import Eqn, Literal, Program, Var
from fnx.core.trace import evaluate
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
    "Elementwise",
    "Eqn",
    "LinearInput",
    "Literal",
    "MappedAxis",
    "MissingRule",
    "Primitive",
    "Program",
    "Smooth",
    "Var",
    "array_type",
    "batch_program",
    "evaluate",
    "is_linear",
    "jvp_program",
    "linearize_program",
    "primitive",
    "primitives",
    "split_program",
    "transpose_program",
]
