"""checkpoint (remat): a function that keeps little for its backward pass.

Receives a function and a policy; inside of a trace a call becomes one equation of
`fnx/control/remat.py`, outside it is the plain function. `checkpoint_name` gives values
the names that policies know them by. Next on the walk: `loops.py`.
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
    leaf_names,
    name_of,
    trace_tree,
)
from fnx.api.disabling import jit_is_disabled
from fnx.api.inspect import argument_types
from fnx.api.policies import Policy, check_policy
from fnx.api.static import Names, Nums, Options, read_options
from fnx.api.tangents import moves
from fnx.control.remat import Rule
from fnx.control.remat import remat as remat_
from fnx.core.program import Program, Var
from fnx.core.trace import tracing
from fnx.ops.marks import checkpoint_name as named
from fnx.transforms.split import linearize_program


def checkpoint(
    fun: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: Nums = (),
    static_argnames: Names = (),
) -> Any:
    """A function with the values of `fun`, whose backward pass computes them again.

    Reverse mode keeps what the backward pass reads of the forward pass. Of this
    function it keeps the arguments alone, and what `policy` says (one of
    `fnx.checkpoint_policies`, or a function of a primitive, operand types and params
    that gives a bool); the rest is computed again, just before it is read. So a chain
    of checkpointed functions takes the memory of one of them, and of their arguments.

    Unless `prevent_cse` is False, the compiler never merges what is computed again with
    what was computed first. Arguments in `static_argnums` or `static_argnames` are
    passed on as Python objects. Without `fun`, gives a decorator. `remat` is another
    name of this function.

    Raises `ArgumentError` for a `fun` that is no function and for arguments that are
    neither arrays nor static, `OptionError` for options that do not fit.

    >>> import fnx
    >>> f = fnx.checkpoint(lambda x: fnx.numpy.sin(fnx.numpy.sin(x)))
    >>> round(fnx.grad(f)(2.0).item(), 4)
    -0.2556
    """
    if policy is not None:
        check_policy("checkpoint", "policy", policy)
    if not isinstance(prevent_cse, bool):
        raise errors.OptionError(
            f"checkpoint: prevent_cse must be True or False, got {prevent_cse!r}"
        )
    rule = Rule(policy, int(prevent_cse))

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        check_callable("checkpoint", function)
        statics = static_argnums, static_argnames
        options = read_options("checkpoint", function, *statics)

        def checkpointed(*args: Any, **kwargs: Any) -> Any:
            if not tracing() or jit_is_disabled():
                return function(*args, **kwargs)
            return _record(function, options, rule, args, kwargs)

        return errors.api_boundary(functools.wraps(function)(checkpointed))

    return decorate if fun is None else decorate(fun)


remat = checkpoint


def _record(
    function: Callable[..., Any],
    options: Options,
    rule: Rule,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Traces a call, and records it as one equation."""
    asker = f"checkpoint of {name_of(function)}"
    divided = options.divide(args, kwargs)
    leaves, treedef = tree.flatten(divided[:2])
    names = call_names(function, *divided.shown())
    fix = "name it in static_argnames if it is an option of the function"
    rows = zip(leaves, names, strict=True)
    operands = [as_array(leaf, asker, name, fix) for leaf, name in rows]

    def run(values: Sequence[Any]) -> Any:
        full, named = divided.joined(*treedef.unflatten(values))
        return function(*full, **named)

    types = [x.type for x in operands]
    traced = trace_tree(run, types, asker=asker, names=names, known=operands, refs=True)
    results = remat_(
        *traced.captured,
        *operands,
        program=traced.program,
        name=name_of(function),
        rule=rule,
        again=False,
    )
    return traced.out_tree.unflatten(traced.without_refs(results))


@errors.api_boundary
def checkpoint_name(x: Any, name: str) -> Any:
    """The same values, under a name that policies of `checkpoint` know them by.

    `x` is a tree of arrays. Raises `ArgumentError` for a name that is no string and for
    leaves that are no arrays.

    >>> import fnx
    >>> fnx.ad_checkpoint.checkpoint_name(2.0, "doubled").item()
    2.0
    """
    if not isinstance(name, str):
        raise errors.ArgumentError(
            f"checkpoint_name: name must be a string, got {name!r}"
        )
    leaves, treedef = tree.flatten(x)
    paths = leaf_names(["x"], [treedef])
    rows = zip(leaves, paths, strict=True)
    arrays = [as_array(leaf, "checkpoint_name", path) for leaf, path in rows]
    return treedef.unflatten([named(array, name=name) for array in arrays])


# ---------------------------------------------------------------- what is kept


@errors.api_boundary
def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Prints what reverse mode keeps of `f(*args, **kwargs)`, a line for each array.

    Arguments are arrays or `ShapeDtypeStruct`, in trees; nothing is computed. Raises
    what `f` raises for them.

    >>> import fnx
    >>> x = fnx.ShapeDtypeStruct((3,), "float32")
    >>> print_saved_residuals(fnx.checkpoint(lambda x: fnx.numpy.sin(x) * x), x)
    f32[3] the argument x
    """
    check_callable("print_saved_residuals", f)
    leaves, treedef = tree.flatten((args, kwargs))
    names = call_names(f, args, kwargs)

    def run(values: Sequence[Any]) -> Any:
        inner, named = treedef.unflatten(values)
        return f(*inner, **named)

    asker = "print_saved_residuals"
    types = argument_types(asker, leaves, names)
    traced = trace_tree(run, types, asker=asker, names=names)
    moving = (False,) * len(traced.captured) + moves(types)
    parts = linearize_program(traced.program, moving, traced.out_tree.num_leaves)
    program = parts.primal
    inputs = ["an array from outside"] * len(traced.captured)
    inputs += [f"the argument {name}" for name in names]
    origins = dict(zip(program.inputs, inputs, strict=True))
    for atom in program.outputs[len(program.outputs) - len(parts.residuals) :]:
        if isinstance(atom, Var):
            print(atom.type, origins.get(atom) or _origin(program, atom))


def _origin(program: Program, var: Var) -> str:
    """Which operation makes a value, in a held program or in this one, and where."""
    eqn = next(eqn for eqn in program.eqns if var in eqn.outputs)
    held = eqn.params.get("program")
    if isinstance(held, Program) and len(held.outputs) == len(eqn.outputs):
        inner = held.outputs[eqn.outputs.index(var)]
        if isinstance(inner, Var) and inner not in held.inputs:
            return _origin(held, inner)
    where = f" at {eqn.source}" if eqn.source else ""
    return f"the result of {eqn.primitive.name}{where}"
