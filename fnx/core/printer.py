"""Prints a Program the way a jaxpr is printed: one equation a line, types as f32[3,4].

Receives a `Program`, gives text. Variables are named a, b, … z, aa, ab, … in the order
of their definition; held programs are printed indented below their equation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.program import Atom, Literal, Program, Var


def print_program(program: Program, sources: bool = False) -> str:
    """The program as text; `sources` appends the user's line to each equation."""
    names = _Names()
    header = " ".join(_declare(var, names) for var in program.inputs)
    lines = [f"{{ lambda {header}. let"]
    for eqn in program.eqns:
        inputs = " ".join(_refer(atom, names) for atom in eqn.inputs)
        params, nested = _params(eqn.params)
        outputs = " ".join(_declare(var, names) for var in eqn.outputs)
        line = f"    {outputs} = {eqn.primitive.name}{params} {inputs}".rstrip()
        lines.append(line + (f"  # {eqn.source}" if sources else ""))
        lines += [f"      {row}" for text in nested for row in text.split("\n")]
    outputs = ", ".join(_refer(atom, names) for atom in program.outputs)
    comma = "," if len(program.outputs) == 1 else ""
    lines.append(f"  in ({outputs}{comma}) }}")
    return "\n".join(lines)


class _Names(dict[Var, str]):
    """Gives each variable the next free name when it is first met."""

    def __missing__(self, var: Var) -> str:
        number, name = len(self), ""
        while number >= 0:
            number, letter = divmod(number, 26)
            name = chr(ord("a") + letter) + name
            number -= 1
        self[var] = name
        return name


def _declare(var: Var, names: _Names) -> str:
    return f"{names[var]}:{var.type}"


def _refer(atom: Atom, names: _Names) -> str:
    if isinstance(atom, Literal):
        return f"{atom.value}:{atom.type}"
    return names[atom]


def _params(params: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Params in brackets, and the texts of the programs among them."""
    shown, nested = [], []
    for name, value in params.items():
        if isinstance(value, Program):
            nested.append(f"{name} = {value}")
        else:
            shown.append(f"{name}={_value(value)}")
    return (f"[{' '.join(shown)}]" if shown else ""), nested


def _value(value: Any) -> str:
    if isinstance(value, np.dtype):
        return dtypes.short(value)
    if isinstance(value, tuple):
        return f"({','.join(map(_value, value))})"
    return getattr(value, "__name__", None) or str(value)
