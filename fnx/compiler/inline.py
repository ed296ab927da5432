"""Replaces equations that stand for a program by the equations of that program.

Receives a program as the transformations left it, gives a flat one, which the fuser
sees as a whole. Next on the walk: `join.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fnx.compiler.target import CPU, Target
from fnx.core.program import Atom, Eqn, Program, Var
from fnx.errors import Source


def inline(
    program: Program,
    target: Target = CPU,
    kept: Callable[[Eqn], bool] | None = None,
    hoists: bool = True,
) -> Program:
    """The program with every held program that may be inlined written out.

    Equations that are `kept` stay as they are, and so do the convolutions and the
    attentions that a backend computes as such. What depends on the backend alone is put
    in. If it `hoists`, what loops compute anew in every round stands before them.
    """
    eqns: list[Eqn] = []
    env: dict[Var, Atom] = {var: var for var in program.inputs}
    outputs = _Inliner(target, kept, hoists).expand(program, env, eqns, None)
    return Program(program.inputs, tuple(eqns), outputs)


class _Inliner:
    """What stays as it is while programs are written out, and for which backend."""

    def __init__(
        self, target: Target, kept: Callable[[Eqn], bool] | None, hoists: bool
    ) -> None:
        self.target = target
        self.kept = kept
        self.hoists = hoists

    def expand(
        self,
        program: Program,
        env: dict[Var, Atom],
        eqns: list[Eqn],
        holder: Source | None,
    ) -> tuple[Atom, ...]:
        """Appends a program's equations with fresh variables; gives its outputs.

        `holder` is the line of the equation that stood for the program.
        """
        for eqn in program.eqns:
            source = _located(eqn.source, holder)
            inputs = tuple([_refer(env, atom) for atom in eqn.inputs])
            value = eqn.primitive.on_backend(self.target.name, **eqn.params)
            if value is not None:
                env[eqn.outputs[0]] = value
                continue
            stays = self.kept is not None and self.kept(eqn)
            stays = stays or self.target.products.has_attention(eqn)
            name = self.target.name
            body = None if stays else eqn.primitive.body_on(name, **eqn.params)
            if body is None:
                parts = self._parts(eqn)
                if parts is not None:
                    # What a loop computes anew in every round is computed before it.
                    held = Program((), tuple(parts), eqn.outputs)
                    found = self.expand(held, env, eqns, holder)
                    env.update(zip(eqn.outputs, found, strict=True))
                    continue
                outputs = tuple([Var(var.type) for var in eqn.outputs])
                eqns.append(Eqn(eqn.primitive, inputs, outputs, eqn.params, source))
                env.update(zip(eqn.outputs, outputs, strict=True))
            else:
                inner = dict(zip(body.inputs, inputs, strict=True))
                found = self.expand(body, inner, eqns, source)
                env.update(zip(eqn.outputs, found, strict=True))
        return tuple([_refer(env, atom) for atom in program.outputs])

    def _parts(self, eqn: Eqn) -> Sequence[Eqn] | None:
        """Equations in the place of one, unless the backend computes it as it is."""
        whole = self.target.products.convolution(eqn) is not None
        return None if whole or not self.hoists else eqn.primitive.hoisted(eqn)


def _located(source: Source | None, holder: Source | None) -> Source | None:
    """The line of a held equation: its own, with the names around its holder's."""
    if source is None or holder is None:
        return source or holder
    return source.inside(holder.scope) if holder.scope else source


def _refer(env: Mapping[Var, Atom], atom: Atom) -> Atom:
    return env[atom] if isinstance(atom, Var) else atom
