"""Outlining: groups that compute the same are lowered once.

A loop that Python unrolled, or the layers of a model, give the same group again and
again, on other values. Receives a `Group`; gives its kernel, made for the first group
of that structure, and the values behind the buffers. Compile time then follows what is
written, not how often it is repeated. Next on the walk: `lower.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from fnx.compiler.fuse import Fused, Group
from fnx.compiler.lower import Lowered, inlined, lower
from fnx.core.program import Atom, Eqn, Literal, Var, params_key
from fnx.kernel.ir import Kernel


class Outlined:
    """The kernels of a program's groups, by the structure of the groups."""

    def __init__(self, fused: Fused) -> None:
        self.fused = fused
        self.kernels: dict[Hashable, tuple[Kernel, tuple[int, ...]]] = {}

    def lowered(self, group: Group, name: str) -> Lowered:
        """The kernel of a group; one of its structure has only one, under one name."""
        structure = _Structure(group, self.fused)
        found = self.kernels.get(structure.key)
        if found is None:
            made = lower(group, self.fused, name)
            places = {var: place for place, var in enumerate(structure.values)}
            found = made.kernel, tuple([places[var] for var in made.values])
            self.kernels[structure.key] = found
        kernel, order = found
        return Lowered(kernel, tuple([structure.values[place] for place in order]))


class _Structure:
    """What a group computes, with numbers in the place of its values.

    `values` are what its kernel writes and reads; equal keys have them in the same
    order.
    """

    def __init__(self, group: Group, fused: Fused) -> None:
        self.fused = fused
        self.inside = inlined(group.outputs, group.outputs, fused)
        self.values: list[Var] = list(group.outputs)
        self.numbers: dict[Var, int] = {}
        for var in group.outputs:
            self._number(var)
        self.key: Hashable = tuple(self._rows(group))

    def _rows(self, group: Group) -> Iterator[Any]:
        """One row for each equation that the kernel computes, from the outputs back."""
        seen: set[Eqn] = set()
        pending: list[Atom] = list(group.outputs)
        while pending:
            atom = pending.pop()
            if isinstance(atom, Literal) or atom not in self.inside:
                continue
            eqn = self.fused.makers[atom]
            if eqn not in seen:
                seen.add(eqn)
                outputs = tuple([(self._number(v), v.type) for v in eqn.outputs])
                inputs = tuple([self._refer(atom) for atom in eqn.inputs])
                yield eqn.primitive, outputs, inputs, params_key(eqn.params)
                pending += eqn.inputs

    def _number(self, var: Var) -> int:
        return self.numbers.setdefault(var, len(self.numbers))

    def _refer(self, atom: Atom) -> Any:
        """How a row names an operand."""
        if isinstance(atom, Literal):
            return atom
        if atom in self.inside:
            return self._number(atom)
        base = self.fused.base(atom)
        if base not in self.numbers:
            self.values.append(base)
        return "stored", self._number(base), atom.type, base.type
