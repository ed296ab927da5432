"""Tracing: runs a Python function on tracers and records what it does as a Program.

`bind` is the one way into the system: outside any trace it runs the primitive, inside
it appends an equation to the innermost builder. A tracer of an outer trace, or a
concrete array, that an inner trace meets becomes a captured input of the inner program,
so that nested derivatives cannot be confused with each other.
A trace may know the values of its inputs (`grad` of a concrete array); then Python may
ask a tracer for its value, and the equations it depends on are evaluated on demand,
without their effects: those happen once, when the program runs.
Next on the walk: `simplify.py`, then the transformations.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fnx import errors
from fnx.core import hooks
from fnx.core.array import Array
from fnx.core.leaks import holders
from fnx.core.program import Atom, Eqn, Literal, Program, Var, silent
from fnx.core.types import ArrayType
from fnx.errors import BACKWARD, DERIVATIVE, Source, user_source
from fnx.records import record

if TYPE_CHECKING:
    from fnx.core.primitive import Primitive


class _State(threading.local):
    """Per thread: the innermost trace, and what its equations remember of their line.

    That is `source` where one is set. But if there is a `floor`, a line of the user's
    on the stack above that frame goes first: a rule of the user's is being traced for
    an equation with this source. `scope` are the names around, within this trace.
    """

    builder: Builder | None = None
    source: Source | None = None
    floor: FrameType | None = None
    scope: tuple[str, ...] = ()
    checking_leaks: bool = False


_state = _State()


class Tracer(Array):
    """Stands for an array while a function is traced."""

    __slots__ = ("atom", "builder", "type")

    def __init__(self, builder: Builder, atom: Atom) -> None:
        self.builder = builder
        self.atom = atom
        self.type = atom.type

    def concrete(self) -> Array:
        """The concrete array of this tracer's value, evaluated on demand.

        Raises `TracerValueError` where the value depends on an argument that is not
        known while tracing.
        """
        return self.builder.value(self.atom)

    def _numpy(self) -> np.ndarray[Any, Any]:
        return self.concrete()._numpy()

    def __repr__(self) -> str:
        if self.builder.unknown_inputs(self.atom):
            return f"Tracer<{self.type}>"
        return repr(self.concrete())

    def __str__(self) -> str:
        if self.builder.unknown_inputs(self.atom):
            return repr(self)
        return str(self.concrete())

    def __deepcopy__(self, memo: Any) -> Tracer:
        return self

    def __copy__(self) -> Tracer:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"a traced array ({self.type}) cannot be pickled: it has a value only "
            "after the transformation has run; return it from the function instead"
        )


class Builder:
    """A trace in progress: the equations so far, and what is known of its inputs."""

    __slots__ = ("captured", "eqns", "inputs", "makers", "names", "outer", "values")

    def __init__(self, outer: Builder | None) -> None:
        self.outer = outer
        self.inputs: list[Var] = []
        self.names: dict[Var, str] = {}
        self.captured: dict[int, tuple[Var, Array]] = {}
        self.eqns: list[Eqn] = []
        self.makers: dict[Var, Eqn] = {}
        # Concrete arrays, or tracers of outer builders, that a variable stands for.
        self.values: dict[Var, Array] = {}

    def new_input(self, type: ArrayType, name: str, value: Array | None) -> Tracer:
        """Adds an input; `value` is what it stands for, where that is known."""
        var = Var(type)
        self.inputs.append(var)
        self.names[var] = name
        if value is not None:
            self.values[var] = value
        return Tracer(self, var)

    def atom(self, value: Any) -> Atom:
        """The atom of this trace for a value; foreign arrays become captured inputs."""
        if isinstance(value, Tracer):
            if value.builder is self or isinstance(value.atom, Literal):
                return value.atom
            self._check_outer(value)
            return self.capture(value)
        if isinstance(value, Array):
            return self.capture(value)
        return value if isinstance(value, Literal) else Literal(value)

    def capture(self, value: Array) -> Var:
        """The input that stands for an array from outside of the trace."""
        found = self.captured.get(id(value))
        if found is None:
            var = Var(value.type)
            # The pair keeps the value alive, so that its id stays its own.
            found = self.captured[id(value)] = (var, value)
            self.values[var] = value
        return found[0]

    def _check_outer(self, tracer: Tracer) -> None:
        if not self.reaches(tracer):
            raise leaked(tracer)

    def reaches(self, tracer: Tracer) -> bool:
        """Whether a tracer belongs to this trace, or to one around it."""
        builder: Builder | None = self
        while builder is not None:
            if builder is tracer.builder or id(tracer) in builder.captured:
                return True
            builder = builder.outer
        return False

    def add(
        self, primitive: Primitive, args: Sequence[Any], params: Mapping[str, Any]
    ) -> Any:
        """Appends one equation; gives its output tracer, or a tuple of them."""
        inputs = tuple([self.atom(arg) for arg in args])
        types = primitive.infer(*[atom.type for atom in inputs], **params)
        many = types if primitive.multiple else (types,)
        outputs = tuple([Var(type) for type in many])
        eqn = Eqn(primitive, inputs, outputs, params, current_source())
        self.eqns.append(eqn)
        for var in outputs:
            self.makers[var] = eqn
        if primitive.multiple:
            return tuple([Tracer(self, var) for var in outputs])
        return Tracer(self, outputs[0])

    def value(self, atom: Atom) -> Array:
        """The concrete value of an atom; raises where it depends on unknown inputs."""
        if isinstance(atom, Literal):
            return cast(Array, hooks.constant(atom))
        unknown = self.unknown_inputs(atom)
        if unknown:
            raise self._unknown_value(atom, unknown)
        with suspended():
            for eqn in map(silent, self._slice(atom)[1]):
                args = [self._known(a) for a in eqn.inputs]
                results = bind(eqn.primitive, args, eqn.params)
                many = results if eqn.primitive.multiple else (results,)
                self.values.update(zip(eqn.outputs, many, strict=True))
        return self._known(atom)

    def _known(self, atom: Atom) -> Array:
        """A value that is there; one held by an outer trace is asked for there."""
        if isinstance(atom, Literal):
            return cast(Array, hooks.constant(atom))
        value = self.values[atom]
        if isinstance(value, Tracer):
            value = self.values[atom] = value.concrete()
        return value

    def unknown_inputs(self, atom: Atom) -> list[str]:
        """The names of the inputs without a known value that an atom depends on."""
        names = []
        for var in self._slice(atom)[0]:
            value = self.values.get(var)
            if value is None:
                names.append(self._name(var))
            elif isinstance(value, Tracer):
                names += value.builder.unknown_inputs(value.atom)
        return names

    def _name(self, var: Var) -> str:
        eqn = self.makers.get(var)
        if eqn is not None:
            return f"a result of {eqn.primitive.name}"
        return self.names[var]

    def _slice(self, atom: Atom) -> tuple[list[Var], list[Eqn]]:
        """Inputs and equations (in order) that an atom needs and that have no value.

        What an effect gives is among the inputs.
        """
        leaves: list[Var] = []
        needed: set[int] = set()
        seen: set[Var] = set()
        pending = [atom]
        while pending:
            var = pending.pop()
            if isinstance(var, Literal) or var in seen:
                continue
            seen.add(var)
            eqn = self.makers.get(var)
            if var in self.values or eqn is None or silent(eqn).effect:
                leaves.append(var)
            elif id(eqn) not in needed:
                needed.add(id(eqn))
                pending += eqn.inputs
        if not needed:
            return leaves, []
        return leaves, [eqn for eqn in self.eqns if id(eqn) in needed]

    def _unknown_value(self, atom: Var, unknown: list[str]) -> Exception:
        eqn = self.makers.get(atom)
        origin = f"\n  it was made at {eqn.source}" if eqn and eqn.source else ""
        return errors.TracerValueError(
            f"Python asked for the value of a traced array of type {atom.type}, which "
            f"depends on {', '.join(dict.fromkeys(unknown))}, unknown while tracing."
            f"{origin}\n"
            "  For a choice by it use fnx.numpy.where(condition, a, b); to make an "
            "argument known, mark it in jit(..., static_argnums=...), or move the "
            "test outside of the transformed function."
        )


@record
class Traced:
    """What a trace gives: the program, and the values of its leading inputs."""

    program: Program
    captured: tuple[Array, ...]


def trace(
    function: Callable[..., Sequence[Any]],
    types: Sequence[ArrayType],
    *,
    known: Sequence[Array | None] | None = None,
    names: Sequence[str] | None = None,
    captured: Sequence[Array] = (),
    rule: bool = False,
) -> Traced:
    """Runs `function` on tracers of the given types and records it as a program.

    The program's inputs are the captured arrays followed by the arguments. `known`
    has the values of the arguments where Python may ask for them, `names` what error
    messages call them. The arrays in `captured` are captured first, whether they are
    used or not; they may be tracers of a trace that has ended. `rule` says that it is
    a rule of fnx's own, in which no line is the user's.
    """
    builder = Builder(_state.builder)
    for array in captured:
        builder.capture(array)
    values = known or [None] * len(types)
    labels = names or [f"argument {i}" for i in range(len(types))]
    tracers = [
        builder.new_input(*row) for row in zip(types, labels, values, strict=True)
    ]
    fixed = _state.source is None or (rule and _state.floor is None)
    floor = None if fixed else sys._getframe()
    with _entered(builder, floor):
        outputs = tuple([builder.atom(out) for out in function(*tracers)])
    if _state.checking_leaks:
        del tracers
        _check_leaks(builder)
    pairs = tuple(builder.captured.values())
    inputs = tuple([var for var, _ in pairs]) + tuple(builder.inputs)
    program = Program(inputs, tuple(builder.eqns), outputs)
    return Traced(program, tuple([value for _, value in pairs]))


def bind(primitive: Primitive, args: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """Applies a primitive: recorded inside a trace, run at once outside any."""
    builder = _state.builder
    if builder is None:
        return hooks.evaluate(primitive, tuple(args), params)
    return builder.add(primitive, args, params)


def evaluate(program: Program, args: Sequence[Any]) -> list[Any]:
    """Applies the equations of a program one by one with `bind`.

    Outside any trace this runs them; inside, it writes them into the current program.
    """
    env: dict[Var, Any] = dict(zip(program.inputs, args, strict=True))
    for eqn in program.eqns:
        inputs = [env[a] if isinstance(a, Var) else a for a in eqn.inputs]
        with source_of(eqn):
            results = bind(eqn.primitive, inputs, eqn.params)
        if eqn.primitive.multiple:
            env.update(zip(eqn.outputs, results, strict=True))
        else:
            env[eqn.outputs[0]] = results
    return [env[a] if isinstance(a, Var) else constant(a) for a in program.outputs]


def constant(literal: Literal) -> Array:
    """A literal as an array of the current level."""
    builder = _state.builder
    if builder is None:
        return cast(Array, hooks.constant(literal))
    return Tracer(builder, literal)


def tracing() -> bool:
    """Whether a trace is in progress in this thread."""
    return _state.builder is not None


def innermost() -> Builder | None:
    """The innermost trace in progress in this thread."""
    return _state.builder


def is_alive(tracer: Tracer) -> bool:
    """Whether the trace that made a tracer is in progress in this thread."""
    return _state.builder is not None and _state.builder.reaches(tracer)


def leaked(tracer: Tracer) -> Exception:
    """The error for a tracer met outside of the trace that made it."""
    held = "".join([f"\n  It is held by {holder}." for holder in holders(tracer)])
    return errors.LeakedTracerError(
        f"a traced array of type {tracer.type}, {_origin(tracer)}, was used after its "
        "trace had ended. A transformed function must return what it computes, not "
        f"store it in a global, an attribute or a list that outlives the call.{held}"
    )


@contextmanager
def leaks_checked(check: bool) -> Iterator[None]:
    """A context in which the end of a trace is an error where a tracer outlives it."""
    before = _state.checking_leaks
    _state.checking_leaks = check
    try:
        yield
    finally:
        _state.checking_leaks = before


def _check_leaks(builder: Builder) -> None:
    """Raises where the user's objects hold a tracer of a trace that has ended."""
    gc.collect()
    for tracer in gc.get_referrers(builder):
        if isinstance(tracer, Tracer) and tracer.builder is builder:
            found = holders(tracer)
            if found:
                held = "".join([f"\n  It is held by {holder}." for holder in found])
                raise errors.LeakedTracerError(
                    f"a traced array of type {tracer.type}, {_origin(tracer)}, "
                    f"outlives its trace.{held}"
                )


def _origin(tracer: Tracer) -> str:
    """Where a tracer was made, or what it stands for."""
    if isinstance(tracer.atom, Literal):
        return f"the constant {tracer.atom.value}"
    eqn = tracer.builder.makers.get(tracer.atom)
    if eqn is not None:
        where = f"at {eqn.source}" if eqn.source else f"by {eqn.primitive.name}"
        return f"made {where}"
    name = tracer.builder.names.get(tracer.atom, "an array from outside of the trace")
    return f"which stands for {name}"


@contextmanager
def _entered(builder: Builder | None, floor: FrameType | None = None) -> Iterator[None]:
    """A context with another trace, in which scopes begin anew."""
    before = _state.builder, _state.source, _state.floor, _state.scope
    hooks.busy.append(None)
    _state.builder, _state.floor, _state.scope = builder, floor, ()
    if _state.source is not None:
        _state.source = _state.source.unscoped()
    try:
        yield
    finally:
        _state.builder, _state.source, _state.floor, _state.scope = before
        hooks.busy.pop()


def suspended() -> Any:
    """A context in which operations run at once, whatever trace is in progress."""
    return _entered(None)


def current_source() -> Source | None:
    """What an equation that is recorded here remembers of its line."""
    if _state.source is None:
        return user_source(_state.scope)
    if _state.floor is None:
        return _state.source
    found = user_source(_state.scope, _state.floor)
    if found is None:
        return _state.source
    return found.playing(BACKWARD) if _state.source.role == BACKWARD else found


class source_of:
    """A context in which recorded equations carry the source line of another one.

    They are `turned` where a transposition makes them, and where what they are made
    for is.
    """

    __slots__ = ("before", "count", "source", "turned")

    def __init__(self, eqn: Eqn, turned: bool = False) -> None:
        self.source = eqn.source
        self.turned = turned

    def __enter__(self) -> source_of:
        self.before = _state.source, _state.floor, _state.scope
        builder, source = _state.builder, self.source
        self.count = 0 if builder is None else len(builder.eqns)
        if source is not None:
            if _state.scope:
                source = source.inside(_state.scope)
            around = _state.source
            if self.turned or (around is not None and around.role == BACKWARD):
                source = source.playing(BACKWARD)
            _state.source, _state.floor, _state.scope = source, None, source.scope
        return self

    def __exit__(self, *error: object) -> None:
        _state.source, _state.floor, _state.scope = self.before

    def mark_lanes(self, size: int, lanes: tuple[int, ...]) -> None:
        """Notes the new leading axis of what was recorded, if it is one equation.

        `lanes` are the axes that it had before.
        """
        builder = _state.builder
        if builder is None or len(builder.eqns) != self.count + 1:
            return
        source = builder.eqns[-1].source
        if source is not None:
            _relocate(builder, self.count, source.mapped((size, *lanes)))

    def mark_derivative(self, results: Sequence[Any]) -> None:
        """Notes that what was recorded is for a derivative, but for the results."""
        builder = _state.builder
        if builder is None:
            return
        values = {x.atom for x in results if isinstance(x, Tracer)}
        for number in range(self.count, len(builder.eqns)):
            eqn = builder.eqns[number]
            source = eqn.source
            if (
                source is not None
                and not source.role
                and values.isdisjoint(eqn.outputs)
            ):
                _relocate(builder, number, source.playing(DERIVATIVE))


def _relocate(builder: Builder, number: int, source: Source) -> None:
    """Gives a recorded equation another source."""
    old = builder.eqns[number]
    eqn = Eqn(old.primitive, old.inputs, old.outputs, old.params, source)
    builder.eqns[number] = eqn
    for var in eqn.outputs:
        builder.makers[var] = eqn


@contextmanager
def named(name: str) -> Iterator[None]:
    """A context in which one more name is around the lines that are recorded."""
    before = _state.source, _state.scope
    _state.scope = (*_state.scope, name)
    if _state.source is not None:
        _state.source = _state.source.unscoped().inside(_state.scope)
    try:
        yield
    finally:
        _state.source, _state.scope = before
