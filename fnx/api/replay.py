"""Replay: what an eager function did, as calls of reference rules on NumPy arrays.

Receives the program that a trace of the function gave and the primitives that it really
applied; where the two agree, the function does the same for all arrays of these types,
and a `Replay` gives the same bits without arrays of ours between the operations. It is
watched to find out whether it can run without Python at all.
Next on the walk: `fnx/cpu/entry/watch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fnx.core.primitive import primitive
from fnx.core.program import Atom, Eqn, Literal, Program, Var, params_key
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.runtime import array as making
from fnx.runtime import eager
from fnx.runtime.array import ConcreteArray

Applied = tuple[Any, Mapping[str, Any]]


class Watcher(Protocol):
    """What a replay is given for the values between two operations."""

    def settle(self, value: Any) -> Any:
        """A result of an operation, contiguous, as an operand of the next ones."""
        ...

    def constant(self, value: np.ndarray[Any, Any]) -> Any:
        """An array of the function's own, as an operand."""
        ...


@record
class _Call:
    """One primitive, and the places of its operands."""

    primitive: Any
    params: Mapping[str, Any]
    operands: tuple[int, ...]


@record
class Replay:
    """Calls of reference rules, one after the other.

    A value's place is its number: first the inputs, then the literals, then constants
    (what depends on no input is computed once), then what the calls give.
    """

    inputs: tuple[Any, ...]
    literals: tuple[Any, ...]
    constants: tuple[np.ndarray[Any, Any], ...]
    calls: tuple[_Call, ...]
    results: tuple[int, ...]
    outputs: tuple[ArrayType, ...]

    @staticmethod
    def of(
        program: Program,
        log: Sequence[Applied],
        arrays: Sequence[int],
        values: Sequence[Any],
    ) -> Replay | None:
        """The replay of a program, if `log` is what was applied.

        The program's inputs are the arrays among `values`, at the places `arrays`;
        another value is a Python number, and must be the program's only literal.
        """
        return _Maker(program, arrays, values).made(log)

    def run(self, watcher: Watcher, *arrays: Any) -> list[Any]:
        """The results; what lies between two operations goes through `settle`."""
        settle = watcher.settle
        known = [*arrays, *map(settle, self.literals)]
        known += map(watcher.constant, self.constants)
        for call in self.calls:
            operands = [known[i] for i in call.operands]
            values = call.primitive.reference(*operands, **call.params)
            many = values if call.primitive.multiple else (values,)
            known += [settle(value) for value in many]
        return [known[i] for i in self.results]

    def gives(self, values: Sequence[Any], leaves: Sequence[ConcreteArray]) -> bool:
        """Whether it gives the bits of these results."""
        arrays = [
            x._numpy() if isinstance(x, ConcreteArray) else np.asarray(x, type.dtype)
            for x, type in zip(values, self.inputs, strict=True)
        ]
        with np.errstate(all="ignore"):
            found = self.run(_Contiguous, *arrays)
        pairs = zip(found, leaves, strict=True)
        return all(_same(x, leaf._numpy()) for x, leaf in pairs)

    def function(self, out_tree: Any) -> Callable[..., Any]:
        """The replay as a function of NumPy arrays that gives the tree of results."""
        outputs, run, single = self.outputs, self.run, out_tree.is_leaf()
        ignore, restore = eager.ignore_errors, eager.restore_errors

        def replayed(*arrays: Any) -> Any:
            token = ignore()
            try:
                found = run(_Contiguous, *arrays)
            finally:
                restore(token)
            if single:
                return making.wrap(found[0], outputs[0])
            leaves = [making.wrap(*pair) for pair in zip(found, outputs, strict=True)]
            return out_tree.unflatten(leaves)

        return replayed


class _Contiguous:
    """What eager execution does with a value between two operations."""

    @staticmethod
    def settle(value: Any) -> Any:
        """A result as a contiguous array."""
        if value.__class__ is np.ndarray and value.flags.c_contiguous:
            return value
        if isinstance(value, np.generic):
            return np.asarray(value)
        return np.ascontiguousarray(value).reshape(value.shape)

    @staticmethod
    def constant(value: Any) -> Any:
        """The array itself."""
        return value


def _same(x: Any, y: Any) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()


class _Maker:
    """Finds the place of every value of a program."""

    def __init__(
        self, program: Program, arrays: Sequence[int], values: Sequence[Any]
    ) -> None:
        self.program = program
        self.inputs: list[Any] = [None] * len(values)
        self.places: dict[Atom, int] = {}
        self.aliases: dict[Atom, Atom] = {}
        for var, place in zip(program.inputs, arrays, strict=True):
            self.inputs[place] = var.type
            self.places[var] = place
        self.numbers = [i for i, type in enumerate(self.inputs) if type is None]

    def made(self, log: Sequence[Applied]) -> Replay | None:
        eqns = self._applied(log)
        if eqns is None or any(type(a) is Literal for a in self.program.outputs):
            return None
        literals = [a for eqn in eqns for a in eqn.inputs if isinstance(a, Literal)]
        if self.numbers:
            if not len(self.numbers) == len(literals) == 1:
                return None
            # The only literal is the number.
            self.inputs[self.numbers[0]] = literals[0].type
            self.places[literals.pop()] = self.numbers[0]
        literals = list(dict.fromkeys(literals))
        constants = self._constants(eqns)
        calls = [eqn for eqn in eqns if eqn.outputs[0] not in constants]
        made = [var for eqn in calls for var in eqn.outputs]
        atoms: list[Atom] = [*literals, *constants, *made]
        for place, atom in enumerate(atoms, len(self.inputs)):
            self.places[atom] = place
        return Replay(
            tuple(self.inputs),
            tuple([literal.value for literal in literals]),
            tuple(constants.values()),
            tuple([self._call(eqn) for eqn in calls]),
            tuple([self.places[self._source(a)] for a in self.program.outputs]),
            self.program.output_types,
        )

    def _constants(self, eqns: Sequence[Eqn]) -> dict[Atom, Any]:
        """What depends on no input; nothing where a result does not, either.

        (A result has memory of its own.)
        """
        found: dict[Atom, Any] = {}
        with np.errstate(all="ignore"):
            for eqn in eqns:
                atoms = [self._source(a) for a in eqn.inputs]
                fixed = {a: a.value for a in atoms if isinstance(a, Literal)} | found
                if any(a in self.places or a not in fixed for a in atoms):
                    continue
                operands = [fixed[a] for a in atoms]
                values = eqn.primitive.reference(*operands, **eqn.params)
                many = values if eqn.primitive.multiple else (values,)
                found |= zip(eqn.outputs, map(_Contiguous.settle, many), strict=True)
        results = [self._source(a) for a in self.program.outputs]
        return {} if any(a in found for a in results) else found

    def _applied(self, log: Sequence[Applied]) -> list[Eqn] | None:
        """The equations that were applied, if they are all but some broadcasts.

        Outside of a trace an array of rank 0 is not broadcast, but used as a number.
        """
        left = list(reversed(log))
        applied = []
        for eqn in self.program.eqns:
            if left and _is(eqn, *left[-1]):
                left.pop()
                applied.append(eqn)
            elif _broadcasts_number(eqn):
                self.aliases[eqn.outputs[0]] = eqn.inputs[0]
            else:
                return None
        refused = [e for e in applied if e.effect or _compiles(e)]
        return None if left or refused else applied

    def _call(self, eqn: Eqn) -> _Call:
        operands = tuple([self.places[self._source(a)] for a in eqn.inputs])
        return _Call(eqn.primitive, eqn.params, operands)

    def _source(self, atom: Atom) -> Atom:
        return self.aliases.get(atom, atom)


def _compiles(eqn: Eqn) -> bool:
    """Whether it is compiled eagerly, too."""
    least = eqn.primitive.compiled_from
    long = least is not None and eqn.outputs[0].type.size >= least
    return eqn.primitive.compiled or long


def _is(eqn: Eqn, applied: Any, params: Mapping[str, Any]) -> bool:
    same = eqn.primitive is applied and not applied.sees_axes
    return same and params_key(eqn.params) == params_key(params)


def _broadcasts_number(eqn: Eqn) -> bool:
    (source, *_) = eqn.inputs or (None,)
    is_number = isinstance(source, Var) and not source.type.shape
    return is_number and eqn.primitive is primitive("broadcast_in_dim")
