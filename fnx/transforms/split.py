"""Splits a program in what is known now and what is known later.

Receives a program and which inputs are known; gives a known program, which computes
what it can and the residuals, and an unknown program, which finishes from the residuals
and the unknown inputs. Applied to a program with tangents it is linearization: the
values are known, the tangents are not, and what is left is linear in them.
Next on the walk: `transpose.py`.
"""

from __future__ import annotations

from fnx.config import config
from fnx.core.cache import cached
from fnx.core.check import checked
from fnx.core.program import Atom, Eqn, Program, Var
from fnx.core.simplify import simplify
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask


@record
class Split:
    """A program in two parts.

    `known` takes the known inputs and gives the outputs that `outputs_known` marks,
    then the residuals; `unknown` takes the residuals, then the unknown inputs, and
    gives the other outputs.
    """

    known: Program
    unknown: Program
    outputs_known: Mask
    residuals: tuple[ArrayType, ...]


def split_program(program: Program, known: Mask, kept: Mask | None = None) -> Split:
    """Cuts a program by which of its inputs are known.

    `kept` marks the outputs that may be known (by default all): the others are given
    by the unknown part, even if they do not depend on an unknown input.
    """
    return _split_program(program, known, kept or (True,) * len(program.outputs))


@cached
def _split_program(program: Program, known: Mask, kept: Mask) -> Split:
    inputs = list(zip(program.inputs, known, strict=True))
    available = {var for var, is_known in inputs if is_known}
    early, late = _sort_equations(program, available)
    outputs_known = tuple(
        [
            may and (not isinstance(a, Var) or a in available)
            for a, may in zip(program.outputs, kept, strict=True)
        ]
    )
    outputs = list(zip(program.outputs, outputs_known, strict=True))
    late_outputs = tuple([atom for atom, is_known in outputs if not is_known])
    late_inputs = tuple([var for var, is_known in inputs if not is_known])
    residuals = _needed(late, late_outputs, set(late_inputs))
    early_outputs = tuple([atom for atom, is_known in outputs if is_known])
    known_program = Program(
        tuple([var for var, is_known in inputs if is_known]),
        tuple(early),
        (*early_outputs, *residuals),
    )
    unknown_program = Program((*residuals, *late_inputs), tuple(late), late_outputs)
    return Split(
        checked(simplify(known_program), "split", program),
        checked(simplify(unknown_program), "split", program),
        outputs_known,
        tuple([var.type for var in residuals]),
    )


def _sort_equations(
    program: Program, available: set[Var]
) -> tuple[list[Eqn], list[Eqn]]:
    """The equations of the two parts; `available` grows to all known variables."""
    early, late = [], []
    for eqn in program.eqns:
        constant = not any(isinstance(a, Var) for a in eqn.inputs)
        if constant and not eqn.primitive.multiple:
            # Constants are cheaper made twice than kept as residuals.
            early.append(eqn)
            late.append(eqn)
            available.update(eqn.outputs)
            continue
        known = [not isinstance(a, Var) or a in available for a in eqn.inputs]
        parts = None if all(known) else eqn.primitive.split(known, eqn)
        if all(known):
            early.append(eqn)
            available.update(eqn.outputs)
        elif parts is not None:
            early += parts[0]
            late += parts[1]
            available.update(var for part in parts[0] for var in part.outputs)
        else:
            late.append(eqn)
    return early, late


def _needed(
    eqns: list[Eqn], outputs: tuple[Atom, ...], defined: set[Var]
) -> tuple[Var, ...]:
    """The variables that equations and outputs read and that are not theirs."""
    free: dict[Var, None] = {}
    defined = set(defined)
    for eqn in eqns:
        free.update(
            dict.fromkeys(
                a for a in eqn.inputs if isinstance(a, Var) and a not in defined
            )
        )
        defined.update(eqn.outputs)
    free.update(
        dict.fromkeys(a for a in outputs if isinstance(a, Var) and a not in defined)
    )
    return tuple(free)


@record
class Linearized:
    """A function at a point, to be known: values and residuals, and the linear map.

    `primal` takes the inputs and gives the outputs, then the residuals; `linear` takes
    the residuals, then the tangents of the moving inputs, and gives the tangents of the
    outputs that `moving_outputs` marks.
    """

    primal: Program
    linear: Program
    moving_outputs: Mask
    residuals: tuple[ArrayType, ...]


def linearize_program(
    program: Program, moving: Mask, outputs: int | None = None
) -> Linearized:
    """The program's values, and its derivative as a linear program.

    `outputs` says how many of the outputs, from the first, have tangents that are
    wanted: all of them, unless some are auxiliary.
    """
    count = len(program.outputs) if outputs is None else outputs
    return _linearize_program(program, moving, count, config.strong_zero)


@cached
def _linearize_program(
    program: Program, moving: Mask, count: int, strong_zero: bool
) -> Linearized:
    with_tangents, moving_outputs = jvp_program(program, moving)
    if any(moving_outputs[count:]):
        kept = len(program.outputs) + sum(moving_outputs[:count])
        outputs = with_tangents.outputs[:kept]
        pruned = Program(with_tangents.inputs, with_tangents.eqns, outputs)
        with_tangents = simplify(pruned)
    moving_outputs = moving_outputs[:count] + (False,) * len(moving_outputs[count:])
    known = (True,) * len(moving) + (False,) * sum(moving)
    parts = split_program(with_tangents, known)
    return _forget_known_tangents(parts, len(program.outputs), moving_outputs)


def _forget_known_tangents(
    parts: Split, outputs: int, moving_outputs: Mask
) -> Linearized:
    """Drops the tangents that came out known: they do not depend on any tangent.

    A linear map whose value is known is the zero map.
    """
    tangents_known = parts.outputs_known[outputs:]
    kept = (*parts.known.outputs[:outputs], *_residual_outputs(parts))
    primal = Program(parts.known.inputs, parts.known.eqns, kept)
    flags = iter(tangents_known)
    moving = tuple([moves and not next(flags) for moves in moving_outputs])
    return Linearized(primal, parts.unknown, moving, parts.residuals)


def _residual_outputs(parts: Split) -> tuple[Atom, ...]:
    count = len(parts.residuals)
    return parts.known.outputs[len(parts.known.outputs) - count :] if count else ()
