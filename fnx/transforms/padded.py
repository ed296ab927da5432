"""Padding: one program for many sizes, which runs at the largest of them.

Receives the same function's programs at three sizes: the largest, whose shapes and
params the result has; another one, which shows by comparison what varies with the size;
and the size of now, which is where numbers that vary are read: true sizes of axes, and
literals such as the 1/n of a mean. These become further inputs of the result. Wherever
elements of an axis that varies meet, the `padded` rule of the operation keeps the
padding out. Programs that differ in anything else are refused, by the name of the first
operation that does. Next on the walk: `coloring.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fnx import errors
from fnx.core.check import checked
from fnx.core.padding import Extent, Ints, Padded
from fnx.core.program import Eqn, Literal, Program, Var
from fnx.core.simplify import simplify
from fnx.core.trace import bind, constant, innermost, source_of, trace
from fnx.core.types import ArrayType, array_type
from fnx.records import record


@record
class Sized:
    """A program at the size of now, at another size and at the largest one."""

    now: Program
    other: Program
    largest: Program


@record
class PaddedProgram:
    """What serves all sizes up to the largest one.

    Its inputs are those of the program, padded, then the `numbers`, which are scalars,
    and arrays that the program holds. Its outputs are padded.
    """

    program: Program
    numbers: tuple[Any, ...]


def pad_program(sized: Sized) -> PaddedProgram:
    """The program over padded arrays; raises `DynamicSizeError` if there is none."""
    walk = _Walk()

    def run(*args: Any) -> list[Any]:
        walk.numbers, walk.builder = [], innermost()
        return [out.array for out in walk.run(sized, args)]

    traced = trace(run, sized.largest.input_types, rule=True)
    program = checked(simplify(traced.program), "padding", sized.largest)
    return PaddedProgram(program, tuple(walk.numbers))


class _Row(NamedTuple):
    """The same equation (or atom, or type) in the three programs."""

    now: Any
    other: Any
    largest: Any


class _Walk:
    """The numbers that vary, as inputs of the program that is being traced."""

    def __init__(self) -> None:
        self.numbers: list[Any] = []
        self.found: dict[Any, Any] = {}
        self.builder: Any = None

    def run(self, sized: Sized, args: Sequence[Any]) -> list[Padded]:
        """The outputs of a program over padded arrays."""
        values: dict[_Row, Padded] = {}
        for row, array in zip(_rows(sized, "inputs"), args, strict=True):
            values[row] = Padded(array, self.sizes(_types(row), None))
        for row in _rows(sized, "eqns"):
            results = self.apply(row, values)
            values.update(zip(_columns(row, "outputs"), results, strict=True))
        return [self.atom(row, values) for row in _rows(sized, "outputs")]

    def apply(self, row: _Row, values: Mapping[_Row, Padded]) -> Sequence[Padded]:
        """The outputs of one equation."""
        eqn: Eqn = row.largest
        if not row.now.primitive is row.other.primitive is eqn.primitive:
            raise _differs(row, "it is another operation there")
        inputs = [self.atom(atoms, values, row) for atoms in _columns(row, "inputs")]
        outputs = [_types(atoms) for atoms in _columns(row, "outputs")]
        sizes = tuple([self.sizes(types, row) for types in outputs])
        primitive, params = eqn.primitive, eqn.params
        with source_of(eqn):
            if primitive.has("body"):
                programs = [_body(each) for each in row]
                found = self.run(Sized(*programs), [x.array for x in inputs])
                return found
            pads = _Pads(self, row, sizes)
            if pads.varies(inputs):
                results = primitive.padded(pads, *inputs, **params)
            else:
                results = bind(primitive, [x.array for x in inputs], params)
        many = results if primitive.multiple else (results,)
        return [Padded(*pair) for pair in zip(many, sizes, strict=True)]

    def atom(
        self, row: _Row, values: Mapping[_Row, Padded], eqns: _Row | None = None
    ) -> Padded:
        """What stands for an atom of an equation, or for an output."""
        if any(isinstance(atom, Var) for atom in row):
            if row not in values:
                raise _differs(eqns, "it is computed from something else there")
            return values[row]
        if row.other == row.largest:
            if row.now != row.largest:
                raise _differs(eqns, "a number differs")
            return Padded(row.largest, ())
        key = tuple([literal.key for literal in row])
        return Padded(self.hole(key, row.now.value, row.largest.type), ())

    def sizes(self, types: _Row, row: _Row | None) -> tuple[Extent, ...]:
        """The sizes of the axes of an array."""
        if not types.now.ndim == types.other.ndim == types.largest.ndim:
            raise _differs(row, "the number of axes differs")
        shapes = zip(*[type.shape for type in types], strict=True)
        sizes = tuple([Extent(*row) for row in shapes])
        for size in sizes:
            if size.now > size.largest or size.other > size.largest:
                raise _differs(row, "an axis shrinks when the size grows")
            if size.now != size.largest and not size.varies:
                raise _differs(row, f"an axis has size {size.now}, not {size.largest}")
        return sizes

    def integer(self, extent: Extent) -> Any:
        """An integer as it is now, as an int32 scalar."""
        return self.hole(extent, np.int32(extent.now), array_type((), np.int32))

    def hole(self, key: Any, value: Any, type: ArrayType) -> Any:
        """The input that stands for a number that varies."""
        found = self.found.get(key)
        if found is None:
            name = f"number {len(self.numbers)}"
            found = self.found[key] = self.builder.new_input(type, name, None)
            self.numbers.append(value)
        return found


class _Pads:
    """What the rule of one equation may ask: see `fnx.core.padding.Pads`."""

    def __init__(self, walk: _Walk, row: _Row, sizes: Any) -> None:
        self.walk, self.row, self.sizes = walk, row, sizes
        self.number = walk.integer

    @property
    def now(self) -> Mapping[str, Any]:
        """The params now."""
        params: Mapping[str, Any] = self.row.now.params
        return params

    def extents(self, read: Callable[[Mapping[str, Any]], Ints]) -> tuple[Extent, ...]:
        """Integers that are read from the params."""
        columns = [read(eqn.params) for eqn in self.row]
        return tuple([Extent(*row) for row in zip(*columns, strict=True)])

    def varies(self, inputs: Sequence[Padded]) -> bool:
        """Whether something of the equation does, so that its rule has to be asked.

        Raises if it has no rule, or a parameter varies that the rule does not know. A
        number in the place of a literal is like any other, if there is no rule.
        """
        primitive, params = self.row.largest.primitive, self.row.largest.params
        every = [*[x.sizes for x in inputs], *self.sizes]
        sizes_vary = any(size.varies for extents in every for size in extents)
        varying = [name for name in params if self._varies(name)]
        for name in varying:
            if name not in primitive.sized:
                shown = f"{self.now[name]} now, {params[name]} at the largest size"
                raise self.cannot(f"its parameter {name} varies: {shown}")
        if primitive.has("padded"):
            pairs = zip(inputs, self.row.largest.inputs, strict=True)
            numbers = any(isinstance(a, Literal) and x.array is not a for x, a in pairs)
            return sizes_vary or numbers or bool(varying)
        if sizes_vary:
            raise self.cannot("it has no rule for padded arrays")
        return False

    def _varies(self, name: str) -> bool:
        now, other, largest = [eqn.params[name] for eqn in self.row]
        return bool(now != largest or other != largest)

    def array(self, value: Any) -> Any:
        """An array of now, which may be longer at the largest size."""
        (var,) = self.row.largest.outputs
        return self.walk.hole(var, value._numpy(), var.type)

    def held(
        self, name: str, position: int | None = None
    ) -> tuple[Program, Sequence[Any]]:
        """The padded program that a param holds, and what it captures."""
        programs = [eqn.params[name] for eqn in self.row]
        if position is not None:
            programs = [held[position] for held in programs]
        sized = Sized(*programs)

        def run(*args: Any) -> list[Any]:
            return [
                constant(out.array) if isinstance(out.array, Literal) else out.array
                for out in self.walk.run(sized, args)
            ]

        traced = trace(run, sized.largest.input_types, rule=True)
        return traced.program, traced.captured

    def cannot(self, reason: str) -> Exception:
        """The error of this equation."""
        return _differs(self.row, reason)


def _rows(sized: Sized, name: str) -> Iterator[_Row]:
    """The inputs, equations or outputs of the three programs side by side."""
    columns = [getattr(p, name) for p in (sized.now, sized.other, sized.largest)]
    for row in zip(*columns, strict=False):
        yield _Row(*row)
    if len({*map(len, columns)}) > 1:
        rest = max(columns, key=len)[min(map(len, columns))]
        raise _differs(_Row(rest, rest, rest), "it is not there at all sizes")


def _columns(row: _Row, name: str) -> list[_Row]:
    """The inputs or outputs of the same equation side by side."""
    columns = [getattr(eqn, name) for eqn in row]
    if len({*map(len, columns)}) > 1:
        raise _differs(row, f"it has another number of {name}")
    return [_Row(*atoms) for atoms in zip(*columns, strict=True)]


def _types(row: _Row) -> _Row:
    return _Row(*[atom.type for atom in row])


def _body(eqn: Eqn) -> Program:
    program = eqn.primitive.body(**eqn.params)
    assert program is not None  # what has the rule has a program
    return program


def _differs(row: _Row | None, reason: str) -> Exception:
    """The error of what cannot be the same program at all sizes."""
    eqn = None if row is None else row.now
    if not isinstance(eqn, Eqn):
        what, source = "a program for all sizes", None
    else:
        what, source = f"{eqn.primitive.name} {_shown(eqn)}", eqn.source
    where = "" if source is None else f"\n  at {source}"
    return errors.DynamicSizeError(errors.explain(what, reason) + where)


def _shown(eqn: Eqn) -> str:
    inputs = ", ".join([str(atom.type) for atom in eqn.inputs])
    return f"({inputs}) -> {', '.join([str(var.type) for var in eqn.outputs])}"
