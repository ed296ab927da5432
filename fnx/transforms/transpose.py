"""Transposition: turns a linear program around, from cotangents of its outputs to those
of its linear inputs.

Receives a program, which inputs it is linear in, and which outputs have a cotangent;
gives a program from the other inputs and the cotangents to the cotangents of the linear
inputs. Equations that do not depend on a linear input run forward first, then the
linear ones backward, each with its `transpose` rule. Next on the walk: `batch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.cache import cached
from fnx.core.primitive import LinearInput, primitive
from fnx.core.program import Eqn, Program, Var
from fnx.core.trace import bind, source_of
from fnx.transforms.rewrite import Mask, rewrite


@cached
def transpose_program(
    program: Program, linear: Mask, given: Mask
) -> tuple[Program, Mask]:
    """The transposed program, and which linear inputs get a cotangent from it.

    `linear` marks the inputs in which the program is linear, `given` the outputs whose
    cotangent is given (the others are zero). Inputs of the result are the inputs that
    are not linear, then the given cotangents; outputs are the cotangents of the linear
    inputs that the returned mask marks (the others are zero).
    """
    reached: Mask = ()
    fixed = [
        v for v, is_linear in zip(program.inputs, linear, strict=True) if not is_linear
    ]
    ends = [a for a, is_given in zip(program.outputs, given, strict=True) if is_given]

    def run(*args: Any) -> list[Any]:
        nonlocal reached
        values = dict(zip(fixed, args[: len(fixed)], strict=True))
        cotangents = pull_back(program, values, ends, args[len(fixed) :])
        found = [
            cotangents.get(v)
            for v, is_linear in zip(program.inputs, linear, strict=True)
            if is_linear
        ]
        reached = tuple([ct is not None for ct in found])
        return [ct for ct in found if ct is not None]

    types = [v.type for v in fixed] + [a.type for a in ends]
    return rewrite(run, types, "transpose", program), reached


def pull_back(
    program: Program,
    values: dict[Var, Any],
    ends: Sequence[Any],
    given: Sequence[Any],
) -> dict[Var, Any]:
    """The cotangent of every variable that gets one, from those of the outputs `ends`.

    `values` holds the inputs that are not linear.
    """
    linear_eqns = _run_forward(program, values)
    cotangents: dict[Var, Any] = {}
    for atom, ct in zip(ends, given, strict=True):
        _accumulate(cotangents, atom, ct)
    for eqn in reversed(linear_eqns):
        out = [cotangents.pop(var, None) for var in eqn.outputs]
        if all(ct is None for ct in out):
            continue
        inputs = [_input(values, atom) for atom in eqn.inputs]
        ct = tuple(out) if eqn.primitive.multiple else out[0]
        with source_of(eqn, turned=True):
            results = eqn.primitive.transpose(ct, *inputs, **eqn.params)
            for atom, result in zip(eqn.inputs, results, strict=True):
                _accumulate(cotangents, atom, result)
    return cotangents


def _run_forward(program: Program, values: dict[Var, Any]) -> list[Eqn]:
    """Runs the equations that do not depend on a linear input; gives the others."""
    linear_eqns = []
    for eqn in program.eqns:
        if any(isinstance(a, Var) and a not in values for a in eqn.inputs):
            linear_eqns.append(eqn)
            continue
        inputs = [values[a] if isinstance(a, Var) else a for a in eqn.inputs]
        with source_of(eqn):
            results = bind(eqn.primitive, inputs, eqn.params)
        many = results if eqn.primitive.multiple else (results,)
        values.update(zip(eqn.outputs, many, strict=True))
    return linear_eqns


def _input(values: dict[Var, Any], atom: Any) -> Any:
    if not isinstance(atom, Var):
        return atom
    return values[atom] if atom in values else LinearInput(atom.type)


def _accumulate(cotangents: dict[Var, Any], atom: Any, ct: Any) -> None:
    if ct is None or not isinstance(atom, Var):
        return
    before = cotangents.get(atom)
    # `add` by name: the layer of operations is below, but no rule is called here.
    cotangents[atom] = ct if before is None else primitive("add")(before, ct)
