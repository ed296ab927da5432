"""One call of a custom function: what is an operand of its equation, and what is not.

Receives the arguments of a `custom_jvp` or `custom_vjp` function; gives the function
and its rules as programs over the operands. Next on the walk: `custom.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, tree
from fnx.api.arguments import (
    TracedTree,
    as_array,
    leaf_names,
    parameter_names,
    positions,
    trace_tree,
)
from fnx.api.symbolic import CustomVJPPrimal
from fnx.control.constant import closed
from fnx.core.array import Array
from fnx.core.program import Program
from fnx.core.simplify import simplify
from fnx.core.trace import Tracer, trace
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.transforms.rewrite import Mask
from fnx.tree import PyTreeDef


@record
class Call:
    """A call of a custom function: what is an operand of the equation, and what not.

    Operands are the leaves of the differentiable arguments, and the arrays among the
    others; `differentiable` marks those that have a tangent.
    """

    asker: str
    fun: Callable[..., Any]
    nondiff: frozenset[int]
    in_tree: PyTreeDef
    leaves: tuple[Any, ...]
    owners: tuple[int, ...]
    is_operand: Mask
    names: tuple[str, ...]

    @property
    def operands(self) -> list[Array]:
        """The arrays that the equation is given."""
        rows = zip(self.leaves, self.is_operand, strict=True)
        return [leaf for leaf, wanted in rows if wanted]

    @property
    def operand_names(self) -> list[str]:
        """What error texts call them."""
        rows = zip(self.names, self.is_operand, strict=True)
        return [name for name, wanted in rows if wanted]

    @property
    def differentiable(self) -> Mask:
        """Which operands have a tangent."""
        rows = zip(self.leaves, self.owners, self.is_operand, strict=True)
        return tuple(
            [
                owner not in self.nondiff and dtypes.is_inexact(leaf.dtype)
                for leaf, owner, wanted in rows
                if wanted
            ]
        )

    def arguments(
        self, operands: Sequence[Any], perturbed: Sequence[Any] | None = None
    ) -> tuple[Any, ...]:
        """All arguments, with other values of the operands.

        With `perturbed`, an entry for each operand, the leaves of the differentiable
        arguments say whether they are.
        """
        values = list(operands)
        if perturbed is not None:
            rows = zip(values, perturbed, self.is_apart(), strict=True)
            values = [x if a else CustomVJPPrimal(x, bool(p)) for x, p, a in rows]
        args: Any = self.in_tree.unflatten(self.filled(values))
        return tuple(args)

    def filled(self, values: Sequence[Any]) -> list[Any]:
        """The leaves of all arguments, with values in the place of the operands."""
        given = iter(values)
        rows = zip(self.leaves, self.is_operand, strict=True)
        return [next(given) if wanted else leaf for leaf, wanted in rows]

    def parted(self, operands: Sequence[Any]) -> tuple[list[Any], tuple[Any, ...]]:
        """The arguments that are not differentiable, and those that are."""
        args = self.arguments(operands)
        apart = [args[i] for i in sorted(self.nondiff)]
        return apart, tuple([x for i, x in enumerate(args) if i not in self.nondiff])

    def is_apart(self) -> Mask:
        """Which operands belong to arguments that are not differentiable."""
        rows = zip(self.owners, self.is_operand, strict=True)
        return tuple([owner in self.nondiff for owner, wanted in rows if wanted])

    def primal_types(self, operands: Sequence[ArrayType]) -> list[ArrayType]:
        """The types of the leaves of the differentiable arguments."""
        rows = zip(operands, self.is_apart(), strict=True)
        return [type for type, apart in rows if not apart]

    def known(self) -> list[Array | None]:
        """The operands whose value Python may ask for in a rule."""
        return [x if _is_known(x) else None for x in self.operands]

    def trace_function(self) -> TracedTree:
        """The function as a program over the operands."""
        operands = self.operands
        return trace_tree(
            lambda values: self.fun(*self.arguments(values)),
            [x.type for x in operands],
            asker=self.asker,
            names=self.operand_names,
            known=operands,
        )


def _is_known(x: Array) -> bool:
    """Whether a trace that knows its inputs made this (others would be kept alive)."""
    if not isinstance(x, Tracer):
        return True
    return any(var in x.builder.values for var in x.builder.inputs)


def bind_call(
    asker: str, fun: Callable[..., Any], nondiff: Sequence[int], args: tuple[Any, ...]
) -> Call:
    """The call of a custom function with these arguments.

    `nondiff` are the numbers of the arguments that are not differentiated by.
    """
    apart = frozenset(positions(asker, "nondiff_argnums", nondiff, len(args)))
    names = leaf_names(parameter_names(fun, len(args)), args)
    leaves, in_tree = tree.flatten(args)
    owners = [i for i, x in enumerate(args) for _ in tree.leaves(x)]
    fix = "name the argument in nondiff_argnums"
    values, is_operand = [], []
    for leaf, owner, name in zip(leaves, owners, names, strict=True):
        value = leaf if owner in apart else as_array(leaf, asker, name, fix)
        values.append(value)
        is_operand.append(isinstance(value, Array))
    return Call(
        asker,
        fun,
        apart,
        in_tree,
        tuple(values),
        tuple(owners),
        tuple(is_operand),
        tuple(names),
    )


def rule_program(
    call: Call, traced: TracedTree, run: Callable[..., Any], extra: Sequence[ArrayType]
) -> Program:
    """A rule as a program: over what the function captured, the operands, and `extra`.

    `run` takes the operands and the values of the inputs of types `extra`, as two
    sequences, and gives the flat results.
    """
    operands = [x.type for x in call.operands]
    count = len(operands)
    rule = trace(
        lambda *values: run(values[:count], values[count:]),
        [*operands, *extra],
        known=call.known() + [None] * len(extra),
        names=[*call.operand_names, *[f"a tangent of {call.asker}"] * len(extra)],
        captured=traced.captured,
    )
    kept = len(traced.captured)
    return simplify(closed(rule, f"the rule of {call.asker}", kept))
