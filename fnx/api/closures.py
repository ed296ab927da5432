"""custom_gradient and closure_convert: rules and functions that close over values.

Receives functions whose closures hold traced arrays; gives functions that are passed
those arrays instead, so that a program can be made of them apart from their trace.
Next on the walk: `device.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors, tree
from fnx.api.arguments import (
    TracedTree,
    as_array,
    call_names,
    check_callable,
    leaf_names,
    trace_tree,
    type_of,
)
from fnx.api.custom import custom_vjp
from fnx.api.rules import check_pair
from fnx.core.program import Program
from fnx.core.trace import Tracer, evaluate
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.tree import Partial, PyTreeDef


@record
class _Applied:
    """A program as a function of trees: the static part of a `Partial`."""

    program: Program
    out_tree: PyTreeDef

    def __call__(self, captured: Sequence[Any], *args: Any) -> Any:
        leaves = tree.leaves(args)
        return self.out_tree.unflatten(evaluate(self.program, [*captured, *leaves]))


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function that returns its value and its backward rule together.

    `fun` returns `(output, rule)`; the rule takes the output's cotangent and gives a
    cotangent for each argument (a tuple if there are several), and may close over what
    `fun` has computed. Raises `ArgumentError` if it does not return such a pair.

    >>> import fnx
    >>> @fnx.custom_gradient
    ... def scaled(x):
    ...     return x * x, lambda ct: 10.0 * ct * x
    >>> fnx.grad(scaled)(3.0).item()
    30.0
    """
    check_callable("custom_gradient", fun)

    def value(*args: Any) -> Any:
        return check_pair("custom_gradient", "the function", fun(*args))[0]

    def forward(*args: Any) -> Any:
        output, rule = check_pair("custom_gradient", "the function", fun(*args))
        leaves, treedef = tree.flatten(output)
        names = leaf_names(["the cotangent"], [treedef])
        arrays = [as_array(x, "custom_gradient", "the output") for x in leaves]
        traced = trace_tree(
            lambda cts: _as_tuple(rule(treedef.unflatten(cts)), len(args)),
            [x.type for x in arrays],
            asker="custom_gradient",
            names=names,
        )
        pull = _Applied(traced.program, traced.out_tree)
        return output, Partial(pull, list(traced.captured))

    def backward(pull: Callable[..., Any], ct: Any) -> Any:
        return pull(ct)

    wrapped = custom_vjp(functools.wraps(fun)(value))
    wrapped.defvjp(forward, backward)
    return wrapped


def _as_tuple(result: Any, count: int) -> tuple[Any, ...]:
    if count == 1 and not isinstance(result, tuple | list):
        return (result,)
    return tuple(result)


@errors.api_boundary
def closure_convert(
    fun: Callable[..., Any], *example_args: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """A function apart from the traced arrays that it closes over, and those arrays.

    Gives `(converted, consts)` where `converted(*args, *consts)` is `fun(*args)`.
    `consts` are the inexact traced arrays that the function captures for arguments of
    the shapes and dtypes of `example_args`; pass them as arguments to a `custom_vjp`
    function, so that derivatives by them are not lost.

    >>> import fnx
    >>> converted, consts = fnx.closure_convert(lambda x: x * 2.0, 1.0)
    >>> converted(3.0, *consts).item(), consts
    (6.0, [])
    """
    check_callable("closure_convert", fun)
    leaves, in_tree = tree.flatten(example_args)
    names = call_names(fun, example_args, {})
    rows = zip(leaves, names, strict=True)
    types = [type_of(leaf, "closure_convert", name) for leaf, name in rows]
    traced = trace_tree(
        lambda values: fun(*in_tree.unflatten(values)),
        types,
        asker="closure_convert",
        names=names,
    )
    hoisted = [_is_hoisted(x) for x in traced.captured]
    pairs = list(zip(traced.captured, hoisted, strict=True))
    consts = [x for x, moves_out in pairs if moves_out]

    def converted(*args: Any) -> Any:
        count = len(args) - len(consts)
        given = iter(args[count:])
        captured = [next(given) if moves_out else x for x, moves_out in pairs]
        return _converted(traced, captured, args[:count], in_tree, types)

    return errors.api_boundary(functools.wraps(fun)(converted)), consts


def _is_hoisted(x: Any) -> bool:
    return isinstance(x, Tracer) and dtypes.is_inexact(x.dtype)


def _converted(
    traced: TracedTree,
    captured: Sequence[Any],
    args: tuple[Any, ...],
    in_tree: PyTreeDef,
    types: Sequence[ArrayType],
) -> Any:
    leaves, found = tree.flatten(args)
    if found != in_tree:
        lines = tree.difference(in_tree, found, first="the example", second="the call")
        raise errors.TreeError(f"closure_convert: other arguments:\n  {lines}")
    arrays = [as_array(x, "closure_convert", "an argument") for x in leaves]
    for x, type in zip(arrays, types, strict=True):
        if (x.shape, x.dtype) != (type.shape, type.dtype):
            raise errors.ShapeError(
                f"closure_convert: the example was {type}, the argument is {x.type}."
            )
    return traced.out_tree.unflatten(evaluate(traced.program, [*captured, *arrays]))
