"""Verifies a Program: what every transformation promises of its result.

Receives a `Program` and the name of the pass that made it; gives it back or raises
`InternalError` with the pass and the program. Runs where `config.check` is set, which
tests always do.
"""

from __future__ import annotations

from fnx import errors
from fnx.config import config
from fnx.core.program import Eqn, Program, Var, params_key, sub_programs
from fnx.sizes import Undecided


def checked(
    program: Program, made_by: str, before: Program, weak: bool = True
) -> Program:
    """The program itself, verified where checking is on.

    `before` is the program that the pass `made_by` received. Whether types are `weak`
    tells nothing any more while a program is compiled.
    """
    if config.check:
        problem = find_problem(program, weak)
        if problem:
            raise errors.broken_pass(made_by, problem, before, program)
    return program


def find_problem(program: Program, weak: bool = True) -> str | None:
    """What is wrong with a program, in words; `None` where nothing is."""
    defined: set[Var] = set()
    for var in program.inputs:
        if var in defined:
            return f"an input of type {var.type} stands twice"
        defined.add(var)
    for number, eqn in enumerate(program.eqns):
        problem = _equation_problem(eqn, defined, weak)
        if problem:
            return f"equation {number} ({eqn.primitive.name}): {problem}"
        defined.update(eqn.outputs)
    for atom in program.outputs:
        if isinstance(atom, Var) and atom not in defined:
            return f"an output of type {atom.type} is not defined"
    return None


def _equation_problem(eqn: Eqn, defined: set[Var], weak: bool) -> str | None:
    for atom in eqn.inputs:
        if isinstance(atom, Var) and atom not in defined:
            return f"an input of type {atom.type} is not defined before it"
    if not defined.isdisjoint(eqn.outputs):
        return "an output is defined already"
    try:
        hash(params_key(eqn.params))
    except TypeError:
        return f"params are not hashable: {eqn.params}"
    try:
        types = eqn.primitive.infer(*[a.type for a in eqn.inputs], **eqn.params)
    except Undecided:
        return None  # a rule that tells types of known sizes only
    many = types if eqn.primitive.multiple else (types,)
    found = tuple([var.type for var in eqn.outputs])
    pairs = zip(many, found, strict=False)
    differ = [a is not b and (weak or a.strong() is not b.strong()) for a, b in pairs]
    if len(many) != len(found) or any(differ):
        return f"outputs are {found}, its rule infers {tuple(many)}"
    for inner in sub_programs(eqn):
        problem = find_problem(inner, weak)
        if problem:
            return problem
    return None
