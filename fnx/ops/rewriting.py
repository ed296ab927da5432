"""Equations in the place of one: how a primitive writes itself in terms of others.

A `hoisted` rule receives an equation and gives equations that do the same; here they
come from a function of the operands. Next on the walk: `windows.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fnx.core.program import Atom, Eqn, Literal, Var
from fnx.core.trace import source_of, trace


def rewritten(eqn: Eqn, function: Callable[..., Any]) -> list[Eqn]:
    """The equations that a function of the inputs makes, for the one output of `eqn`.

    The function gives what an operation gives, not one of its arguments.
    """
    with source_of(eqn):
        types = [atom.type for atom in eqn.inputs]
        program = trace(lambda *xs: [function(*xs)], types, rule=True).program
    env: dict[Atom, Atom] = dict(zip(program.inputs, eqn.inputs, strict=True))
    env[program.outputs[0]] = eqn.outputs[0]

    def refer(atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else env.get(atom, atom)

    def outputs(old: Eqn) -> tuple[Var, ...]:
        return tuple([v for v in map(refer, old.outputs) if isinstance(v, Var)])

    return [
        replace(old, inputs=tuple(map(refer, old.inputs)), outputs=outputs(old))
        for old in program.eqns
    ]
