"""Small sums over replicas made together: one collective in place of many.

Replicas wait for each other in every collective, which takes longer than what a small
array costs. The gradients of a network's biases, its loss, its counts are laid one
after the other and summed at once: each element is what it was, to the bit. Receives a
program of one replica, gives a program. Next on the walk: `fnx/control`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.cache import cached
from fnx.core.primitive import Primitive
from fnx.core.program import (
    Eqn,
    Literal,
    Program,
    Var,
    params_key,
    walk,
    with_programs,
)
from fnx.core.trace import bind, constant, source_of
from fnx.ops.collective import pmax, pmin, psum, psum_scatter
from fnx.ops.pieces import concatenate, part_of
from fnx.ops.shape import reshaped
from fnx.transforms.rewrite import rewrite

SMALL = 2**16
"""Bytes of an array that is worth a copy there and back."""

MOST = 2**20
"""Bytes that are laid together."""

ELEMENTWISE: tuple[Primitive, ...] = (psum, pmax, pmin)

REDUCTIONS: tuple[Primitive, ...] = (*ELEMENTWISE, psum_scatter)

Group = list[Eqn]


@cached
def early(program: Program) -> Program:
    """The program in which reductions come as soon as what they reduce is known.

    Those of a gradient begin while the rest of it is computed. All replicas have the
    same order.
    """
    return _ordered(program, [[eqn] for eqn in _early(program)])


@cached
def combined(program: Program) -> Program:
    """The program with small reductions over the same replicas in one collective.

    What does not need a reduction comes before it, what does comes after it, in the
    order that it had; so do all collectives, on every replica alike. The same is done
    in the bodies of loops and branches.
    """
    inside = Program(
        program.inputs,
        tuple([with_programs(eqn, _combined_inside) for eqn in program.eqns]),
        program.outputs,
    )
    order = _in_groups(inside)
    held = zip(inside.eqns, program.eqns, strict=True)
    if all(len(group) == 1 for group in order) and all(
        params_key(one.params) == params_key(other.params) for one, other in held
    ):
        return program
    return _ordered(inside, order)


def _combined_inside(program: Program) -> Program:
    return combined(program) if any(map(_is_small, walk(program))) else program


def _ordered(program: Program, order: Sequence[Group]) -> Program:
    """The program with its equations in another order, those of a group together."""

    def run(*args: Any) -> list[Any]:
        env: dict[Var, Any] = dict(zip(program.inputs, args, strict=True))
        for group in order:
            with source_of(group[0]):
                (_alone if len(group) == 1 else _together)(group, env)
        return [env[a] if isinstance(a, Var) else constant(a) for a in program.outputs]

    return rewrite(run, program.input_types, "combine", program)


def _early(program: Program) -> list[Eqn]:
    """The equations, each reduction behind the last one that it needs."""
    behind: list[list[Eqn]] = [[]]
    made: dict[Var, int] = {}
    for eqn in program.eqns:
        needed = [made.get(a, 0) for a in eqn.inputs if isinstance(a, Var)]
        if eqn.primitive in REDUCTIONS and not eqn.effect:
            place = max(needed, default=0)
        else:
            place = len(behind)
            behind.append([])
        behind[place].append(eqn)
        made.update(dict.fromkeys(eqn.outputs, place))
    return [eqn for eqns in behind for eqn in eqns]


def _in_groups(program: Program) -> list[Group]:
    """The equations in their new order, those that become one together."""
    order: list[Group] = []
    waiting: dict[Any, Group] = {}
    late: list[Eqn] = []
    # what the waiting ones, and those behind them, compute
    unknown: set[Var] = set()

    def let_go() -> None:
        order.extend(waiting.values())
        order.extend([[eqn] for eqn in late])
        waiting.clear()
        late.clear()
        unknown.clear()

    for eqn in program.eqns:
        behind = not unknown.isdisjoint(a for a in eqn.inputs if isinstance(a, Var))
        small = _is_small(eqn)
        if eqn.effect or (small and (behind or _nbytes(waiting, eqn) > MOST)):
            let_go()
            behind = False
        if small:
            waiting.setdefault(_kind(eqn), []).append(eqn)
        elif behind:
            late.append(eqn)
        else:
            order.append([eqn])
            continue
        unknown.update(eqn.outputs)
    let_go()
    return order


def _is_small(eqn: Eqn) -> bool:
    if eqn.primitive not in ELEMENTWISE or isinstance(eqn.inputs[0], Literal):
        return False
    return _bytes_of(eqn) <= SMALL


def _bytes_of(eqn: Eqn) -> int:
    type = eqn.inputs[0].type
    return type.size * type.dtype.itemsize


def _nbytes(waiting: dict[Any, Group], eqn: Eqn) -> int:
    """The bytes of an equation's group with it."""
    return sum(map(_bytes_of, [*waiting.get(_kind(eqn), ()), eqn]))


def _kind(eqn: Eqn) -> Any:
    params = eqn.params
    names = params["axis_name"], params["axis_size"], params["groups"]
    return eqn.primitive, eqn.inputs[0].type.dtype, *names


def _operands(eqn: Eqn, env: dict[Var, Any]) -> list[Any]:
    return [env[a] if isinstance(a, Var) else a for a in eqn.inputs]


def _alone(group: Group, env: dict[Var, Any]) -> None:
    (eqn,) = group
    results = bind(eqn.primitive, _operands(eqn, env), eqn.params)
    many: Sequence[Any] = results if eqn.primitive.multiple else (results,)
    env.update(zip(eqn.outputs, many, strict=True))


def _together(group: Group, env: dict[Var, Any]) -> None:
    arrays = [_operands(eqn, env)[0] for eqn in group]
    flat = concatenate(*[reshaped(x, (x.type.size,)) for x in arrays], axis=0)
    total = bind(group[0].primitive, (flat,), group[0].params)
    start = 0
    for eqn, x in zip(group, arrays, strict=True):
        part = part_of(total, 0, start, start + x.type.size)
        env[eqn.outputs[0]] = reshaped(part, x.type.shape)
        start += x.type.size
