"""extend.traced and extend.rewritten: what transformations of the user's are made of.

Receives a function; gives its program, or a function in which a rule of the user's may
replace each operation, also those inside of loops, branches and jitted functions.
Next on the walk: `foreign.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors, tree
from fnx.api.arguments import (
    as_array,
    call_names,
    check_callable,
    name_of,
    output_arrays,
    trace_tree,
    with_type,
)
from fnx.core.array import Array
from fnx.core.program import Eqn, Program, Var, with_programs
from fnx.core.trace import bind, constant, evaluate, source_of
from fnx.records import record
from fnx.transforms.rewrite import rewrite
from fnx.tree import PyTreeDef

Rule = Callable[[Eqn, Sequence[Any]], Any]


@record(eq=False)
class Traced:
    """A function as a program: `program(*arrays)` is flat, `rebuild` makes the result.

    `arrays` are those that the function closes over, then the leaves of the arguments.
    """

    program: Program
    arrays: tuple[Array, ...]
    out_tree: PyTreeDef

    def rebuild(self, outputs: Sequence[Any]) -> Any:
        """The tree that the function returns, of the program's outputs."""
        return self.out_tree.unflatten(outputs)


@errors.api_boundary
def traced(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """The program of `f(*args, **kwargs)`, with the arrays that it runs on.

    Arguments are trees of arrays. A transformation makes another program of it, or goes
    through `program.eqns` and computes something else; what it applies to arrays may
    be traced in turn, so that it works under `jit`, `grad`, `vmap` and with itself.

    Raises `ArgumentError` for arguments that are no arrays.

    >>> import fnx
    >>> found = fnx.extend.traced(lambda x: {"y": x * x + 1}, 3.0)
    >>> [eqn.primitive.name for eqn in found.program.eqns]
    ['mul', 'add']
    >>> found.rebuild(fnx.extend.evaluate(found.program, found.arrays))["y"].item()
    10.0
    """
    check_callable("extend.traced", f)
    leaves, in_tree = tree.flatten((args, kwargs))
    names = call_names(f, args, kwargs)
    rows = zip(leaves, names, strict=True)
    arrays = [as_array(leaf, "extend.traced", name) for leaf, name in rows]

    def run(members: Sequence[Any]) -> Any:
        given, named = in_tree.unflatten(members)
        return f(*given, **named)

    types = [x.type for x in arrays]
    found = trace_tree(run, types, asker="extend.traced", names=names)
    return Traced(found.program, (*found.captured, *arrays), found.out_tree)


def rewritten(f: Callable[..., Any], rule: Rule) -> Callable[..., Any]:
    """A function that does what `f` does, but for the operations that `rule` replaces.

    `rule(eqn, inputs)` gets an equation and its operands, arrays of the program that is
    being made; it returns the output (a tuple of them, if `eqn.primitive.multiple`) of
    the same shape and dtype, or `None` to leave the operation as it is. It sees the
    operations inside of loops, branches and jitted functions, and not the equation that
    holds them. Rules of custom derivatives stay what they are.

    Raises `ShapeError` where the rule gives something of another type, `ArgumentError`
    where it gives no array, or one of `f`'s own that it has kept.

    >>> import fnx
    >>> def rule(eqn, inputs):
    ...     if eqn.primitive is fnx.extend.primitive("sin"):
    ...         return fnx.lax.cos(*inputs)
    >>> g = fnx.extend.rewritten(fnx.jit(lambda x: fnx.numpy.sin(x) + 1), rule)
    >>> g(0.0).item()
    2.0
    """
    check_callable("extend.rewritten", f)
    check_callable("extend.rewritten: rule", rule)

    @functools.wraps(f)
    def transformed(*args: Any, **kwargs: Any) -> Any:
        found = traced(f, *args, **kwargs)
        program = _program(found.program, rule)
        return found.rebuild(evaluate(program, found.arrays))

    return errors.api_boundary(transformed)


def _program(program: Program, rule: Rule) -> Program:
    """The program with the rule applied to each of its equations."""

    def run(*args: Any) -> list[Any]:
        env: dict[Var, Any] = dict(zip(program.inputs, args, strict=True))
        for eqn in program.eqns:
            inputs = [env[a] if isinstance(a, Var) else a for a in eqn.inputs]
            with source_of(eqn):
                env.update(zip(eqn.outputs, _applied(eqn, inputs, rule), strict=True))
        ends = program.outputs
        return [env[a] if isinstance(a, Var) else constant(a) for a in ends]

    return rewrite(run, program.input_types, "extend.rewritten", program)


def _applied(eqn: Eqn, inputs: Sequence[Any], rule: Rule) -> Sequence[Any]:
    """What an equation gives, after the rule had a look at it."""
    inside = with_programs(eqn, lambda program: _program(program, rule))
    result = None
    if inside is eqn:
        arrays = [constant(x) if not isinstance(x, Array) else x for x in inputs]
        result = rule(eqn, arrays)
    if result is None:
        result = bind(eqn.primitive, inputs, inside.params)
        return result if eqn.primitive.multiple else (result,)
    asker = f"extend.rewritten: {name_of(rule)} for {eqn.primitive.name}"
    leaves, treedef = tree.flatten(result)
    outputs = output_arrays(asker, leaves, treedef)
    types = [x.type.strong() for x in outputs]
    wanted = [var.type.strong() for var in eqn.outputs]
    if types != wanted:
        shown = ", ".join(map(str, types)) or "nothing"
        raise errors.ShapeError(
            errors.explain(
                f"{asker}: it gave {shown}",
                f"the operation gives {', '.join(map(str, wanted))}",
                "convert what the rule returns, or return None",
            )
        )
    rows = zip(outputs, eqn.outputs, strict=True)
    return [with_type(x, var.type) for x, var in rows]
