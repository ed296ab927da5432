"""Functions that a branch or a loop holds: traced over trees, and made to agree.

Receives the user's function and the types of the leaves that it will be given; gives a
program whose first inputs are the arrays that the function closes over. What a loop
carries, and what branches give, must have the same types everywhere: weak types (of
Python numbers) give way here, and what does not fit is told leaf by leaf.
Next on the walk: `threaded.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors, tree
from fnx.api.arguments import (
    as_array,
    kind_of,
    leaf_names,
    name_of,
    parameter_names,
    trace_tree,
)
from fnx.core.array import Array
from fnx.core.program import Program, Var
from fnx.core.trace import evaluate, trace
from fnx.core.types import ArrayType
from fnx.ops.elementwise import convert
from fnx.records import record
from fnx.tree import PyTreeDef


@record
class Operand:
    """A tree of arrays that a function is given, and its name in error texts.

    A tuple may have names for its `parts`.
    """

    name: str
    leaves: tuple[Array, ...]
    treedef: PyTreeDef
    parts: tuple[str, ...] = ()

    @staticmethod
    def of(asker: str, name: str, value: Any, parts: tuple[str, ...] = ()) -> Operand:
        """The operand for a value; `ArgumentError` for a leaf that is no array."""
        leaves, treedef = tree.flatten(value)
        names = Operand(name, (), treedef, parts).names
        rows = zip(leaves, names, strict=True)
        arrays = tuple([as_array(leaf, asker, path) for leaf, path in rows])
        return Operand(name, arrays, treedef, parts)

    @property
    def types(self) -> tuple[ArrayType, ...]:
        """The types of the leaves."""
        return tuple([leaf.type for leaf in self.leaves])

    @property
    def names(self) -> list[str]:
        """The names of the leaves."""
        if self.parts:
            return leaf_names(self.parts, self.treedef.children())
        return leaf_names([self.name], [self.treedef])


@record
class Held:
    """A traced function: its program takes what it `captured`, then the leaves."""

    name: str
    program: Program
    captured: tuple[Array, ...]
    out_tree: PyTreeDef

    @property
    def types(self) -> tuple[ArrayType, ...]:
        """The types of the leaves of the result."""
        return self.program.output_types

    def converted(self, types: Sequence[ArrayType]) -> Held:
        """The same function, whose results have these dtypes."""
        if tuple(types) == self.types:
            return self

        def run(*args: Any) -> list[Any]:
            rows = zip(evaluate(self.program, args), types, strict=True)
            return [cast_to(x, type) for x, type in rows]

        program = trace(run, self.program.input_types).program
        return Held(self.name, program, self.captured, self.out_tree)

    def result(self, leaves: Sequence[Any]) -> Any:
        """The tree of a result."""
        return self.out_tree.unflatten(leaves)


def hold(
    asker: str,
    function: Callable[..., Any],
    types: Sequence[ArrayType],
    in_tree: PyTreeDef,
    names: Sequence[str],
    known: Sequence[Array] | None = None,
) -> Held:
    """Traces a function of positional arguments, of which `in_tree` is the tuple.

    `known` are the values of the leaves, if Python may ask for them.
    """
    if not callable(function):
        raise errors.ArgumentError(f"{asker} takes functions: got {kind_of(function)}.")
    traced = trace_tree(
        lambda leaves: function(*in_tree.unflatten(leaves)),
        types,
        asker=f"{asker}: {name_of(function)}",
        names=names,
        known=known,
    )
    name = name_of(function)
    return Held(name, traced.program, traced.captured, traced.out_tree)


def argument_names(
    function: Callable[..., Any], operands: Sequence[Operand]
) -> list[str]:
    """The names of all leaves, by the function's parameters."""
    roots = parameter_names(function, len(operands)) if callable(function) else []
    trees = [operand.treedef for operand in operands]
    return leaf_names(roots, trees) if roots else []


def tuple_tree(trees: Sequence[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees of these structures."""
    leaves = [treedef.unflatten([0] * treedef.num_leaves) for treedef in trees]
    return tree.structure(tuple(leaves))


def cast_to(x: Any, type: ArrayType) -> Any:
    """An array with the dtype and weakness of a type."""
    if x.type.dtype == type.dtype and x.type.weak == type.weak:
        return x
    return convert(x, dtype=type.dtype, weak=type.weak)


def common_type(first: ArrayType, second: ArrayType) -> ArrayType | None:
    """The type of values that have one of two types; `None` if they do not fit.

    Dtypes that differ fit if a weak one gives way; what is not weak keeps its dtype.
    """
    if first.shape != second.shape:
        return None
    pairs = [(type.dtype, type.weak) for type in (first, second)]
    dtype, weak = dtypes.promote(*pairs)
    if any(not type.weak and type.dtype != dtype for type in (first, second)):
        return None
    return ArrayType(first.shape, dtype, weak)


def check_same_tree(
    asker: str, wanted: PyTreeDef, found: PyTreeDef, first: str, second: str
) -> None:
    """Raises `TreeError` where two trees differ, place by place."""
    if wanted != found:
        lines = tree.difference(wanted, found, first=first, second=second)
        raise errors.TreeError(
            f"{asker}: {first} and {second} differ:\n{_indented(lines)}"
        )


def mismatch(asker: str, lines: Sequence[str], fix: str = "") -> errors.ShapeError:
    """The error for leaves that have different types, one line for each."""
    text = f"{asker}:\n{_indented(chr(10).join(lines))}"
    return errors.ShapeError(f"{text}\n  Fix: {fix}." if fix else text)


def _indented(lines: str) -> str:
    return "\n".join(f"  {line}" for line in lines.split("\n"))


def with_captured(programs: Sequence[Held]) -> tuple[list[Array], list[Program]]:
    """All arrays that several functions capture, and programs that take them all."""
    arrays: dict[int, Array] = {}
    for held in programs:
        arrays |= {id(x): x for x in held.captured}
    taken = []
    for held in programs:
        count = len(held.captured)
        own = {
            id(x): var
            for x, var in zip(held.captured, held.program.inputs, strict=False)
        }
        inputs = [own.get(key) or Var(x.type) for key, x in arrays.items()]
        program = held.program
        taken.append(
            Program((*inputs, *program.inputs[count:]), program.eqns, program.outputs)
        )
    return list(arrays.values()), taken
