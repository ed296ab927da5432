"""What a policy keeps of a program, and what is computed again from it.

Receives a program and those of its outputs that are read later; gives the equations
that compute them again, and the values that these begin with. What is kept of values
inside of branches and loops, these say by their rule `kept`.
Next on the walk: `cond.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.control.call import call, chosen
from fnx.control.held import equation_like, new_vars, parted
from fnx.control.rounds import stacked
from fnx.core.program import Atom, Eqn, Program, Var
from fnx.core.trace import bind, constant, source_of
from fnx.ops.marks import checkpoint_name
from fnx.records import record
from fnx.transforms.rewrite import rewrite

Policy = Callable[..., Any]
"""Whether the results of `policy(primitive, *types, **params)` may be saved."""


@record
class Kept:
    """A program's equations, some of which give more now, to be `saved`.

    `again` computes the wanted outputs from that and from the program's inputs.
    """

    eqns: tuple[Eqn, ...]
    again: tuple[Eqn, ...]
    saved: tuple[Var, ...]

    def programs(
        self, program: Program, wanted: Sequence[Atom]
    ) -> tuple[Program, Program]:
        """The program that also gives what is saved, and the one that takes it."""
        first = Program(program.inputs, self.eqns, (*program.outputs, *self.saved))
        again = Program((*program.inputs, *self.saved), self.again, tuple(wanted))
        return first, again


Keep = Callable[[Program, Sequence[Atom]], Kept]
"""What is kept for the wanted values of a program, as some policy says."""


def keep(program: Program, wanted: Sequence[Atom], policy: Policy | None) -> Kept:
    """What a policy keeps for the wanted values of a program."""
    needed = set(wanted)
    refused: set[Atom] = set()
    eqns: list[Eqn] = []
    again: list[Eqn] = []
    saved: list[Var] = []
    for eqn in reversed(program.eqns):
        used = [var in needed for var in eqn.outputs]
        if not any(used):
            eqns.append(eqn)
            continue
        results = chosen(eqn.outputs, used)
        if refused.isdisjoint(results) and _is_saved(eqn, policy):
            eqns.append(eqn)
            saved += results
            continue
        part = _keep_part(eqn, used, policy)
        eqns.append(part.eqns[0])
        again += part.again
        saved += part.saved
        needed.update(*[late.inputs for late in part.again])
        if eqn.primitive is checkpoint_name and _refuses(policy, eqn.params["name"]):
            # The same value, before it got its name.
            refused.update(eqn.inputs)
    return Kept(tuple(eqns[::-1]), tuple(again[::-1]), tuple(saved))


def _keep_part(eqn: Eqn, used: Sequence[bool], policy: Policy | None) -> Kept:
    """An equation that is computed again, from what is kept of programs that it holds.

    Without a policy that is nothing.
    """
    if policy is not None:
        found: Kept | None = eqn.primitive.kept(
            eqn, used, lambda program, wanted: keep(program, wanted, policy)
        )
        if found is not None:
            return found
    again = eqn.primitive.pruned(eqn, used) if eqn.primitive.multiple else eqn
    return Kept((eqn,), (again,), ())


def kept_rows(eqn: Eqn, used: Sequence[bool], keep: Keep) -> Kept | None:
    """The rule `kept` of a scan: rows of saved values."""
    shape = eqn.params["shape"]
    program = flat(eqn.params["program"])
    live = set(eqn.primitive.pruned(eqn, used).outputs)
    carried = program.inputs[shape.consts : shape.consts + shape.carry]
    ends, ys = parted(program.outputs, shape.carry)
    end_vars, y_vars = parted(eqn.outputs, shape.carry)
    # A carry that nobody needs stays what it is, and goes with the pruning.
    rows = zip(ends, end_vars, carried, strict=True)
    kept_ends = [end if var in live else start for end, var, start in rows]
    kept_ys = [y for y, var in zip(ys, y_vars, strict=True) if var in live]
    inside = keep(program, (*kept_ends, *kept_ys))
    if not inside.saved:
        return None
    stacks = new_vars([stacked(var.type, shape.length) for var in inside.saved])
    first, again = inside.programs(program, (*kept_ends, *kept_ys))
    early = equation_like(
        eqn, eqn.inputs, (*eqn.outputs, *stacks), {"program": first, "shape": shape}
    )
    late = equation_like(
        eqn,
        (*eqn.inputs, *stacks),
        (*end_vars, *[var for var in y_vars if var in live]),
        {"program": again, "shape": shape},
    )
    wanted = [var in live for var in late.outputs]
    return Kept((early,), (eqn.primitive.pruned(late, wanted),), stacks)


def _is_saved(eqn: Eqn, policy: Policy | None) -> bool:
    """Whether the results of an equation are kept: what has an effect runs once."""
    if eqn.effect:
        return True
    if policy is None or not eqn.inputs:
        return False
    types = [atom.type for atom in eqn.inputs]
    return bool(policy(eqn.primitive, *types, **eqn.params))


def _refuses(policy: Policy | None, name: str) -> bool:
    """Whether a policy saves values of any origin, but for those of that name."""
    refuses = getattr(policy, "refuses", None)
    return refuses is not None and refuses(name)


def flat(program: Program) -> Program:
    """The program with the programs of its calls written out.

    A policy then sees every operation of functions under `jit`.
    """
    if not any(eqn.primitive is call for eqn in program.eqns):
        return program

    def run(*args: Any) -> list[Any]:
        return _written_out(program, args)

    return rewrite(run, program.input_types, "remat", program)


def _written_out(program: Program, args: Sequence[Any]) -> list[Any]:
    env: dict[Var, Any] = dict(zip(program.inputs, args, strict=True))
    for eqn in program.eqns:
        inputs = [env[a] if isinstance(a, Var) else a for a in eqn.inputs]
        with source_of(eqn):
            if eqn.primitive is call:
                results: Any = _written_out(eqn.params["program"], inputs)
            else:
                results = bind(eqn.primitive, inputs, eqn.params)
        many = results if eqn.primitive.multiple else (results,)
        env.update(zip(eqn.outputs, many, strict=True))
    return [env[a] if isinstance(a, Var) else constant(a) for a in program.outputs]
