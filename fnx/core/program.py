"""Program: the array-level intermediate representation.

A program is a straight line of equations over typed variables, closed (whatever the
traced function captured is an input) and immutable. Primitives that hold programs keep
them in their params. Two programs with the same structure are equal and hash alike, so
that transformations and executables are cached by structure.
Receives equations from `trace.py`; every transformation takes and gives a `Program`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.types import ArrayType, scalar_type
from fnx.errors import Source
from fnx.records import record

if TYPE_CHECKING:
    from fnx.core.primitive import Primitive


class Var:
    """A variable of a program: a type and an identity."""

    __slots__ = ("type",)

    def __init__(self, type: ArrayType) -> None:
        self.type = type

    def __repr__(self) -> str:
        return f"Var({self.type})"


class Literal:
    """A scalar constant written into an equation.

    An elementwise equation takes a literal in place of an operand of any shape.
    """

    __slots__ = ("key", "type", "value")

    def __init__(self, value: Any, type: ArrayType | None = None) -> None:
        self.type = scalar_type(value) if type is None else type
        self.value = np.asarray(value, self.type.dtype)[()]
        # Bytes tell 0.0 from -0.0 and make a NaN equal to itself.
        self.key = (self.value.tobytes(), self.type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"{self.value}:{self.type}"


Atom = Var | Literal


@record(eq=False)
class Eqn:
    """One equation: outputs = primitive(inputs, params), with the user's line."""

    primitive: Primitive
    inputs: tuple[Atom, ...]
    outputs: tuple[Var, ...]
    params: Mapping[str, Any]
    source: Source | None

    @property
    def effect(self) -> bool:
        """Whether it does something besides computing its outputs.

        Then it runs once, where it stands among others of its kind: it is not dropped,
        merged with an equal one, computed before a loop, or run with other operands.
        """
        return self.primitive.effect or (
            self.primitive.multiple and self.primitive.acts(self)
        )


class Program:
    """Typed, straight-line, closed: inputs, equations, outputs."""

    __slots__ = (
        "__weakref__",
        "_effect",
        "_hash",
        "_key",
        "_lines",
        "_personal",
        "derived",
        "eqns",
        "inputs",
        "outputs",
    )

    def __init__(
        self,
        inputs: tuple[Var, ...],
        eqns: tuple[Eqn, ...],
        outputs: tuple[Atom, ...],
    ) -> None:
        self.inputs = inputs
        self.eqns = eqns
        self.outputs = outputs
        self._key: tuple[Any, ...] | None = None
        self._hash: int | None = None
        self._lines: tuple[Any, ...] | None = None
        self._personal: bool | None = None
        self._effect: bool | None = None
        # What `core.cache` keeps with a personal program.
        self.derived: dict[Any, Any] = {}

    @property
    def input_types(self) -> tuple[ArrayType, ...]:
        """The types of the inputs, in order."""
        return tuple(var.type for var in self.inputs)

    @property
    def output_types(self) -> tuple[ArrayType, ...]:
        """The types of the outputs, in order."""
        return tuple(atom.type for atom in self.outputs)

    @property
    def key(self) -> tuple[Any, ...]:
        """The structure as a hashable value: equal for equal programs."""
        if self._key is None:
            self._key = _structure(self)
        return self._key

    @property
    def lines(self) -> tuple[Any, ...]:
        """The source of every equation, and the lines of held programs behind it."""
        if self._lines is None:
            rows: list[Any] = []
            for eqn in self.eqns:
                rows.append(eqn.source)
                rows += [inner.lines for inner in sub_programs(eqn)]
            self._lines = tuple(rows)
        return self._lines

    @property
    def personal(self) -> bool:
        """Whether it holds what is equal only to itself: a user's rule, an array."""
        if self._personal is None:
            self._personal = any(eqn.primitive.personal for eqn in walk(self))
        return self._personal

    @property
    def effect(self) -> bool:
        """Whether it does something besides computing its outputs."""
        if self._effect is None:
            self._effect = any(eqn.effect for eqn in self.eqns)
        return self._effect

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Program)
            and hash(self) == hash(other)
            and self.key == other.key
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.key)
        return self._hash

    def __repr__(self) -> str:
        # lazy: the printer reads programs, so it is imported after this module
        from fnx.core.printer import print_program

        return print_program(self)

    def _repr_html_(self) -> str:
        # lazy: only notebooks draw
        from fnx.core.drawing import draw_program

        return draw_program(self)


def _structure(program: Program) -> tuple[Any, ...]:
    numbers: dict[Var, int] = {var: i for i, var in enumerate(program.inputs)}

    def refer(atom: Atom) -> Any:
        return numbers[atom] if isinstance(atom, Var) else atom

    rows: list[Any] = [program.input_types]
    for eqn in program.eqns:
        inputs = tuple([refer(atom) for atom in eqn.inputs])
        for var in eqn.outputs:
            numbers[var] = len(numbers)
        types = tuple([var.type for var in eqn.outputs])
        rows.append((eqn.primitive, inputs, types, params_key(eqn.params)))
    rows.append(tuple([refer(atom) for atom in program.outputs]))
    return tuple(rows)


def params_key(params: Mapping[str, Any]) -> tuple[Any, ...]:
    """Params as a hashable value that does not depend on their order."""
    return tuple(sorted(params.items(), key=_name)) if params else ()


def _name(item: tuple[str, Any]) -> str:
    return item[0]


def unfilled_outputs(program: Program, given: Sequence[bool] = ()) -> tuple[bool, ...]:
    """Which outputs have elements that nobody has written, and that nobody reads.

    `given` says it of the inputs: by default none has.
    """
    pairs = zip(program.inputs, given, strict=False)
    found: set[Atom] = {var for var, is_unfilled in pairs if is_unfilled}
    for eqn in program.eqns:
        marks = eqn.primitive.unfilled(eqn, [atom in found for atom in eqn.inputs])
        found |= {v for v, marked in zip(eqn.outputs, marks, strict=True) if marked}
    return tuple([atom in found for atom in program.outputs])


def sub_programs(eqn: Eqn) -> Iterator[Program]:
    """The programs that an equation holds in its params."""
    for value in eqn.params.values():
        if isinstance(value, Program):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, Program))


def silent(eqn: Eqn) -> Eqn:
    """An equation without what its programs do besides computing outputs.

    Where the outputs need an effect (they come from outside), it still has that.
    """
    if not eqn.effect:
        return eqn
    return with_programs(eqn, silent_program)


def with_programs(eqn: Eqn, change: Callable[[Program], Program]) -> Eqn:
    """The equation with other programs in its params; the same if it holds none."""
    held = list(sub_programs(eqn))
    if not held:
        return eqn
    params = {name: _changed(value, change) for name, value in eqn.params.items()}
    return Eqn(eqn.primitive, eqn.inputs, eqn.outputs, params, eqn.source)


def _changed(value: Any, change: Callable[[Program], Program]) -> Any:
    if isinstance(value, tuple) and any(isinstance(x, Program) for x in value):
        return tuple([_changed(item, change) for item in value])
    return change(value) if isinstance(value, Program) else value


def silent_program(program: Program) -> Program:
    """A program without what it does besides computing its outputs, as `silent`."""
    if not program.effect:
        return program
    kept = [silent(eqn) for eqn in program.eqns if eqn.outputs or not eqn.effect]
    return Program(program.inputs, tuple(kept), program.outputs)


def walk(program: Program) -> Iterator[Eqn]:
    """Every equation, those of held programs included, outermost first."""
    for eqn in program.eqns:
        yield eqn
        for inner in sub_programs(eqn):
            yield from walk(inner)
