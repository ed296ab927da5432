"""Joins an equation with the one that makes its input, where that can do both.

A sum over a stack of matrix products is one product in which more is contracted: the
gradients that `vmap` makes example by example, or replica by replica, are never stored
where only their sum is asked for. Receives a flat program, gives a flat program, whose
values differ by rounding alone. Next on the walk: `fuse.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fnx.core.program import Atom, Eqn, Program


def joined(program: Program) -> Program:
    """The program in which makers of what one equation alone reads do its work, too.

    They stay where they are, close to what they read.
    """
    uses = Counter([atom for eqn in program.eqns for atom in eqn.inputs])
    uses.update(program.outputs)
    eqns: list[Eqn] = []
    makers: dict[Atom, int] = {}
    for eqn in program.eqns:
        number = makers.get(eqn.inputs[0]) if len(eqn.inputs) == 1 else None
        if number is not None and uses[eqn.inputs[0]] == 1:
            maker = eqns[number]
            params = eqn.primitive.taken_by(maker, **eqn.params)
            if params is not None:
                eqns[number] = replace(maker, outputs=eqn.outputs, params=params)
                makers[eqn.outputs[0]] = number
                continue
        makers.update(dict.fromkeys(eqn.outputs, len(eqns)))
        eqns.append(eqn)
    return Program(program.inputs, tuple(eqns), program.outputs)
