"""Prints a Program the way a jaxpr is printed: one equation a line, types as f32[3,4].

Receives a `Program`, gives text. Variables are named a, b, … z, aa, ab, … in the order
of their definition; held programs are printed indented below their equation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.program import Atom, Literal, Program, Var


def print_program(program: Program, sources: bool = False) -> str:
    """The program as text; `sources` appends the user's line to each equation."""
    names = Names()
    header = " ".join(declare(var, names) for var in program.inputs)
    lines = [f"{{ lambda {header}. let"]
    for eqn in program.eqns:
        inputs = " ".join(refer(atom, names) for atom in eqn.inputs)
        params = shown_params(eqn.params)
        outputs = " ".join(declare(var, names) for var in eqn.outputs)
        line = f"    {outputs} = {eqn.primitive.name}{params} {inputs}".rstrip()
        lines.append(line + (f"  # {eqn.source}" if sources else ""))
        for name, held in held_programs(eqn.params):
            text = f"{name} = {print_program(held, sources)}"
            lines += [f"      {row}" for row in text.split("\n")]
    outputs = ", ".join(refer(atom, names) for atom in program.outputs)
    comma = "," if len(program.outputs) == 1 else ""
    lines.append(f"  in ({outputs}{comma}) }}")
    return "\n".join(lines)


class Names(dict[Var, str]):
    """Gives each variable the next free name when it is first met."""

    def __missing__(self, var: Var) -> str:
        number, name = len(self), ""
        while number >= 0:
            number, letter = divmod(number, 26)
            name = chr(ord("a") + letter) + name
            number -= 1
        self[var] = name
        return name


def declare(var: Var, names: Names) -> str:
    """A variable with its type, where it is defined."""
    return f"{names[var]}:{var.type}"


def refer(atom: Atom, names: Names) -> str:
    """A variable, or a literal with its type, where it is used."""
    if isinstance(atom, Literal):
        return f"{atom.value}:{atom.type}"
    return names[atom]


def shown_params(params: Mapping[str, Any]) -> str:
    """The params that are no programs, in brackets."""
    held = {name.partition("[")[0] for name, _ in held_programs(params)}
    shown = [f"{k}={_value(value)}" for k, value in params.items() if k not in held]
    return f"[{' '.join(shown)}]" if shown else ""


def held_programs(params: Mapping[str, Any]) -> Iterator[tuple[str, Program]]:
    """The programs among the params and in tuples of them, with their names."""
    for name, value in params.items():
        if isinstance(value, Program):
            yield name, value
        elif isinstance(value, tuple):
            for number, item in enumerate(value):
                if isinstance(item, Program):
                    yield f"{name}[{number}]", item


def _value(value: Any) -> str:
    if isinstance(value, np.dtype):
        return dtypes.short(value)
    if isinstance(value, tuple):
        return f"({','.join(map(_value, value))})"
    return getattr(value, "__name__", None) or str(value)
