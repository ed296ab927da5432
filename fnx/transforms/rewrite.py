"""How every transformation makes its result: it runs a function over tracers of the
new program's inputs, and what that records is simplified and checked.

Next on the walk: `jvp.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fnx import errors
from fnx.core.check import checked
from fnx.core.primitive import Primitive
from fnx.core.program import Eqn, Literal, Program, Var
from fnx.core.simplify import simplify
from fnx.core.trace import trace
from fnx.core.types import ArrayType

Mask = tuple[bool, ...]


def rewrite(
    run: Callable[..., Sequence[Any]],
    types: Sequence[ArrayType],
    made_by: str,
    before: Program,
) -> Program:
    """The program that `run` computes from inputs of the given types."""
    traced = trace(run, types, rule=True)
    if traced.captured:
        shown = ", ".join(str(value.type) for value in traced.captured)
        raise errors.InternalError(
            f"a rule used arrays from outside during {made_by}: {shown}"
        )
    return checked(simplify(traced.program), made_by, before)


def alone(
    primitive: Primitive, inputs: Sequence[Any], params: Mapping[str, Any]
) -> Program:
    """A program of one equation, whose inputs are those that are no literals."""
    atoms = [x if isinstance(x, Literal) else Var(x.type) for x in inputs]
    types = primitive.infer(*[x.type for x in inputs], **params)
    outputs = tuple([Var(t) for t in (types if primitive.multiple else (types,))])
    eqn = Eqn(primitive, tuple(atoms), outputs, params, None)
    return Program(tuple([a for a in atoms if isinstance(a, Var)]), (eqn,), outputs)
