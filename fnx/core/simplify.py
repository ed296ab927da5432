"""Cleans a program: common subexpressions, identities, scalar folding, dead code.

Receives a `Program`, gives an equal one with fewer equations. Only what IEEE 754
allows is done: `x * 1` is `x`, but `x * 0` and `x + 0.0` stay. An equation that has an
effect stays, and so does the order of such equations. Runs after every trace and every
transformation. Next on the walk: `check.py`, then `fnx.transforms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.program import Atom, Eqn, Literal, Program, Var, params_key


def simplify(program: Program) -> Program:
    """The same program without repeated, trivial, constant and dead equations."""
    replaced: dict[Var, Atom] = {}
    known: dict[Any, Eqn] = {}
    eqns: list[Eqn] = []
    makers: dict[Var, Eqn] = {}

    def refer(atom: Atom) -> Atom:
        return replaced.get(atom, atom) if isinstance(atom, Var) else atom

    for eqn in program.eqns:
        inputs = tuple([refer(atom) for atom in eqn.inputs])
        if inputs != eqn.inputs:
            eqn = Eqn(eqn.primitive, inputs, eqn.outputs, eqn.params, eqn.source)
        eqn = _absorbed(eqn, makers)
        simple = _identity(eqn) or _folded(eqn)
        if simple is not None:
            replaced[eqn.outputs[0]] = simple
            continue
        earlier = eqn if eqn.effect else known.setdefault(_value_key(eqn), eqn)
        if earlier is eqn:
            eqns.append(eqn)
            makers.update(dict.fromkeys(eqn.outputs, eqn))
        else:
            replaced.update(zip(eqn.outputs, earlier.outputs, strict=True))
    outputs = tuple([refer(atom) for atom in program.outputs])
    return Program(program.inputs, _live(eqns, outputs), outputs)


def _absorbed(eqn: Eqn, makers: dict[Var, Eqn]) -> Eqn:
    """The equation with what its primitive can take in of its inputs' equations."""
    taken = eqn.primitive.absorb(eqn.inputs, makers, **eqn.params)
    if taken is None:
        return eqn
    inputs, params = taken
    return Eqn(eqn.primitive, tuple(inputs), eqn.outputs, params, eqn.source)


def _identity(eqn: Eqn) -> Atom | None:
    """The atom that a one-output equation is equal to, if it is trivial."""
    if eqn.primitive.multiple:
        return None
    simple = eqn.primitive.identity(eqn.inputs, **eqn.params)
    if simple is None or simple.type is not eqn.outputs[0].type:
        return None
    return simple


def _folded(eqn: Eqn) -> Literal | None:
    """The value of a scalar equation whose inputs are all literals."""
    if eqn.primitive.multiple or not eqn.inputs or not eqn.primitive.has("reference"):
        return None
    if eqn.outputs[0].type.shape or eqn.primitive.sees_axes:
        return None
    values = [atom.value for atom in eqn.inputs if isinstance(atom, Literal)]
    if len(values) < len(eqn.inputs):
        return None
    with np.errstate(all="ignore"):
        value = eqn.primitive.reference(*values, **eqn.params)
    return Literal(value, eqn.outputs[0].type)


def _value_key(eqn: Eqn) -> Any:
    """Equal for equations that compute the same values."""
    inputs: Any = eqn.inputs
    if eqn.primitive.commutative:
        inputs = frozenset(inputs) if len(set(inputs)) == len(inputs) else inputs
    types = tuple([var.type for var in eqn.outputs])
    return eqn.primitive, inputs, params_key(eqn.params), types


def _live(eqns: list[Eqn], outputs: tuple[Atom, ...]) -> tuple[Eqn, ...]:
    """The equations that an output depends on, in order."""
    needed = {atom for atom in outputs if isinstance(atom, Var)}
    kept = []
    for eqn in reversed(eqns):
        if eqn.effect or not needed.isdisjoint(eqn.outputs):
            if eqn.primitive.multiple:
                eqn = eqn.primitive.pruned(eqn, [v in needed for v in eqn.outputs])
            kept.append(eqn)
            needed.update(atom for atom in eqn.inputs if isinstance(atom, Var))
    return tuple(reversed(kept))


def needed_inputs(program: Program, used: Sequence[bool]) -> tuple[bool, ...]:
    """Which inputs of a program the used ones of its outputs depend on."""
    needed = {a for a, is_used in zip(program.outputs, used, strict=True) if is_used}
    for eqn in reversed(program.eqns):
        if eqn.effect or not needed.isdisjoint(eqn.outputs):
            needed.update(eqn.inputs)
    return tuple([var in needed for var in program.inputs])
