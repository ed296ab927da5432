"""Single numbers: kernels without loops that follow each other become one.

The parts of a small state (a carry of many scalars, a packed one taken apart again)
are a kernel each, since nothing reads two of them. A call costs more than what such a
kernel computes, and so does compiling it. Receives what `fuse.py` decided, and gives
it with fewer groups. Next on the walk: `lower.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fnx.compiler.fuse import LARGEST, Fused, Group
from fnx.compiler.lower import inlined
from fnx.core.program import Eqn, Literal, Var


def side_by_side(fused: Fused) -> Fused:
    """The same steps, where groups of single numbers that follow each other are one.

    None of them reads another's.
    """
    steps: list[Group | Eqn] = []
    before: _Numbers | None = None
    for step in fused.steps:
        here = _numbers(step, fused)
        if before is not None and here is not None and before.takes(here):
            before.add(here)
            steps[-1] = Group(tuple(before.outputs))
        else:
            before = here
            steps.append(step)
    return replace(fused, steps=tuple(steps))


@dataclass(slots=True)
class _Numbers:
    """Groups that compute single numbers: their outputs, work, and what they load."""

    outputs: list[Var]
    eqns: set[Eqn]
    loads: set[Var]

    def takes(self, other: _Numbers) -> bool:
        """Whether one kernel can compute others as well."""
        return (
            self.outputs[0].type.shape == other.outputs[0].type.shape
            and other.loads.isdisjoint(self.outputs)
            and len(self.eqns) + len(other.eqns) <= LARGEST
        )

    def add(self, other: _Numbers) -> None:
        """Computes others as well."""
        self.outputs += other.outputs
        self.eqns |= other.eqns
        self.loads |= other.loads


def _numbers(step: Group | Eqn, fused: Fused) -> _Numbers | None:
    """What a step computes, if that is single numbers, and nothing is folded."""
    if not isinstance(step, Group):
        return None
    if any(size != 1 for size in step.outputs[0].type.shape):
        return None
    inside = inlined(step.outputs, step.outputs, fused)
    eqns = {fused.makers[var] for var in inside}
    if any(eqn.primitive.reads == "folded" for eqn in eqns):
        return None
    atoms = {
        atom for eqn in eqns for atom in eqn.inputs if not isinstance(atom, Literal)
    }
    loads = {fused.base(atom) for atom in atoms if atom not in inside}
    return _Numbers(list(step.outputs), eqns, loads)
