"""Evaluates a program with the reference rules, on NumPy arrays.

The meaning of a program, without any compiler: the oracle of the tests, and the backend
of a platform without LLVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.program import Literal, Program, Var


def run_reference(program: Program, arrays: Sequence[Any]) -> list[Any]:
    """The outputs of a program as NumPy arrays."""
    env: dict[Var, Any] = dict(zip(program.inputs, arrays, strict=True))
    with np.errstate(all="ignore"):
        for eqn in program.eqns:
            inputs = [_read(env, atom) for atom in eqn.inputs]
            values = eqn.primitive.reference(*inputs, **eqn.params)
            many = values if eqn.primitive.multiple else (values,)
            env.update(zip(eqn.outputs, many, strict=True))
    return [_read(env, atom) for atom in program.outputs]


def _read(env: dict[Var, Any], atom: Any) -> Any:
    return atom.value if isinstance(atom, Literal) else env[atom]
