"""Replaces equations that stand for a program by the equations of that program.

Receives a program as the transformations left it, gives a flat one, which the fuser
sees as a whole. Next on the walk: `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fnx.core.program import Atom, Eqn, Program, Var
from fnx.errors import Source


def inline(program: Program, kept: Callable[[Eqn], bool] | None = None) -> Program:
    """The program with every held program that may be inlined written out.

    Equations that are `kept` stay as they are.
    """
    eqns: list[Eqn] = []
    env: dict[Var, Atom] = {var: var for var in program.inputs}
    outputs = _expand(program, env, eqns, None, kept)
    return Program(program.inputs, tuple(eqns), outputs)


def _expand(
    program: Program,
    env: dict[Var, Atom],
    eqns: list[Eqn],
    holder: Source | None,
    kept: Callable[[Eqn], bool] | None,
) -> tuple[Atom, ...]:
    """Appends a program's equations with fresh variables; gives its outputs.

    `holder` is the line of the equation that stood for the program.
    """
    for eqn in program.eqns:
        source = _located(eqn.source, holder)
        inputs = tuple([_refer(env, atom) for atom in eqn.inputs])
        stays = kept is not None and kept(eqn)
        body = None if stays else eqn.primitive.body(**eqn.params)
        if body is None:
            parts = eqn.primitive.hoisted(eqn)
            if parts is not None:
                # What a loop computes anew in every round is computed before it.
                held = Program((), tuple(parts), eqn.outputs)
                found = _expand(held, env, eqns, holder, kept)
                env.update(zip(eqn.outputs, found, strict=True))
                continue
            outputs = tuple([Var(var.type) for var in eqn.outputs])
            eqns.append(Eqn(eqn.primitive, inputs, outputs, eqn.params, source))
            env.update(zip(eqn.outputs, outputs, strict=True))
        else:
            inner = dict(zip(body.inputs, inputs, strict=True))
            found = _expand(body, inner, eqns, source, kept)
            env.update(zip(eqn.outputs, found, strict=True))
    return tuple([_refer(env, atom) for atom in program.outputs])


def _located(source: Source | None, holder: Source | None) -> Source | None:
    """The line of a held equation: its own, with the names around its holder's."""
    if source is None or holder is None:
        return source or holder
    return source.inside(holder.scope) if holder.scope else source


def _refer(env: Mapping[Var, Atom], atom: Atom) -> Atom:
    return env[atom] if isinstance(atom, Var) else atom
