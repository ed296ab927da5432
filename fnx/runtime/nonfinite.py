"""Where a NaN comes from: `fnx.config.debug_nans` and `debug_infs`.

Receives a program, what it was given, and results with a NaN in them; until there are
such, programs run as always. Then this one runs again by its reference rules, and one
walks back from the NaN to the operation that made it from operands without one; where
that operation holds a program, into the run of it that did. Loops run compiled, up to
the round that did, and only that runs by reference rules. Gives the `NonFiniteError`
that says all this. Next on the walk: `eager.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.config import config
from fnx.control.findings import any_of
from fnx.control.halting import halting_operands, halting_program
from fnx.core.primitive import Looped, Primitive
from fnx.core.program import Eqn, Literal, Program, Var, silent_program, sub_programs
from fnx.core.reference import outputs, value_of, watched
from fnx.core.trace import current_source
from fnx.errors import BACKWARD, DERIVATIVE, Source
from fnx.ops.arithmetic import eq
from fnx.ops.elementwise import abs as abs_
from fnx.ops.elementwise import ne
from fnx.ops.parts import imag, or_, real
from fnx.ops.shape import scalar
from fnx.records import record
from fnx.runtime.array import wrap

Arrays = Sequence[Any]


def is_bad(x: Any) -> np.ndarray[Any, Any] | None:
    """Where an array has what is looked for; `None` if nowhere."""
    x = np.asarray(x)
    if not dtypes.is_inexact(x.dtype):
        return None
    bad = np.zeros(x.shape, bool)
    if config.debug_nans:
        bad |= np.isnan(x)
    if config.debug_infs:
        bad |= np.isinf(x)
    return bad if bad.any() else None


# ---------------------------------------------------------------- a primitive


def check_primitive(primitive: Primitive, arrays: Arrays, values: Any) -> None:
    """Raises if an operation has made it from arrays in which it is not."""
    for value in values if primitive.multiple else (values,):
        bad = is_bad(value)
        if bad is not None and arrays and all(is_bad(x) is None for x in arrays):
            index = _first(bad)
            name = _name(np.asarray(value)[index])
            made = _Made(
                primitive.name, current_source(), index, value, tuple(arrays), ()
            )
            raise errors.NonFiniteError(
                f"{primitive.name} gave {name}.\n{_made_text(made)}"
            )


# ---------------------------------------------------------------- a program


def check_program(
    asker: str,
    program: Program,
    arrays: Arrays,
    results: Arrays,
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> None:
    """Raises if a program has given what is looked for, and says where it is made."""
    marks = [is_bad(result) for result in results]
    number = next((n for n, bad in enumerate(marks) if bad is not None), None)
    if number is None:
        return
    index = _first(marks[number])
    name = _name(np.asarray(results[number])[index])
    where = f"{output_names[number]}{_at(index)}"
    quiet = silent_program(program)
    found = None if quiet.effect else _origin(quiet, arrays, number)
    if quiet.effect:
        came = (
            "  The program has effects, so that it is not run again to see where it "
            "comes from."
        )
    elif isinstance(program.outputs[number], Literal):
        came = "  It is a constant: numbers alone were computed with while tracing."
    elif isinstance(found, int):
        bad = is_bad(arrays[found])
        place = "" if bad is None else _at(_first(bad))
        came = f"  It is in {input_names[found]}{place} already."
    elif found is None:
        came = (
            "  The reference rules give none: fnx.check(f)(...) shows where the "
            "compiled program differs from them."
        )
    else:
        came = _made_text(found)
    raise errors.NonFiniteError(f"{asker} gave {name}: {where}.\n{came}")


@record
class _Made:
    """The operation that made it: its output, at which index, and its operands.

    `held` are the equations around it, outermost first, each with its round.
    """

    name: str
    source: Source | None
    index: tuple[int, ...]
    output: Any
    operands: tuple[Any, ...]
    held: tuple[tuple[Eqn, int | None], ...]


def _origin(
    program: Program,
    arrays: Arrays,
    output: int | None = None,
    held: tuple[tuple[Eqn, int | None], ...] = (),
) -> _Made | int | None:
    """What made the bad value of an output, or the number of the input it was in."""
    env = _values(program, arrays)
    makers = {var: eqn for eqn in program.eqns for var in eqn.outputs}
    ends = program.outputs if output is None else program.outputs[output : output + 1]
    var = next((a for a in ends if isinstance(a, Var) and _bad_in(env, a)), None)
    if var is None:
        return None
    while var in makers:
        eqn = makers[var]
        index = _first(is_bad(env[var]))
        cause = _cause(env, eqn, index)
        if cause is None:
            inputs = [value_of(env, atom) for atom in eqn.inputs]
            inside = _inside(eqn, inputs, held)
            if inside is not None:
                return inside
            operands = tuple(inputs)
            name = eqn.primitive.name
            return _Made(name, eqn.source, index, env[var], operands, held)
        var = cause
    return program.inputs.index(var)


def _values(program: Program, arrays: Arrays) -> dict[Var, Any]:
    """The value of every variable; loops are compiled, all else is by reference."""
    # NumPy's, since operations between arrays of fnx would be looked at themselves.
    given = map(np.asarray, arrays)
    env: dict[Var, Any] = dict(zip(program.inputs, given, strict=True))
    with np.errstate(all="ignore"):
        for eqn in program.eqns:
            inputs = [value_of(env, atom) for atom in eqn.inputs]
            if _loops(eqn):
                results = _run(_alone(eqn), inputs)
            else:
                results = eqn.primitive.reference(*inputs, **eqn.params)
            many = results if eqn.primitive.multiple else (results,)
            env.update(zip(eqn.outputs, many, strict=True))
    return env


def _loops(eqn: Eqn) -> bool:
    """Whether an equation is a loop, or holds one."""
    return eqn.primitive.has("looped") or any(map(_has_loop, sub_programs(eqn)))


def _has_loop(program: Program) -> bool:
    return any(map(_loops, program.eqns))


def _held_outputs(program: Program, arrays: Arrays) -> list[Any]:
    """What a held program gives, compiled if there are loops in it."""
    return (_run if _has_loop(program) else outputs)(program, arrays)


def _alone(eqn: Eqn) -> Program:
    """The program of one equation, which has a variable for each operand."""
    inputs = tuple([Var(atom.type) for atom in eqn.inputs])
    alone = Eqn(eqn.primitive, inputs, eqn.outputs, eqn.params, eqn.source)
    return Program(inputs, (alone,), eqn.outputs)


def _run(program: Program, arrays: Arrays) -> list[Any]:
    """What a program gives for NumPy arrays."""
    # lazy: executables are defined with what looks here
    from fnx.runtime.executable import executable_for

    pairs = zip(arrays, program.input_types, strict=True)
    given = [wrap(np.asarray(x, type.dtype), type) for x, type in pairs]
    return [np.asarray(x) for x in executable_for(program).run(given)]


def _bad_in(env: dict[Var, Any], var: Var) -> bool:
    return is_bad(env[var]) is not None


def _cause(env: dict[Var, Any], eqn: Eqn, index: tuple[int, ...]) -> Var | None:
    """The operand from which an equation has its bad value, rather than made it.

    Best is one that has such a value at the same index.
    """
    bad = {a: is_bad(env[a]) for a in eqn.inputs if isinstance(a, Var)}
    there = [(var, where) for var, where in bad.items() if where is not None]
    shape = np.shape(env[eqn.outputs[0]])
    for var, where in there:
        if where.shape == shape and where[index]:
            return var
    return there[0][0] if there else None


def _inside(
    eqn: Eqn, inputs: Arrays, held: tuple[tuple[Eqn, int | None], ...]
) -> _Made | None:
    """What made it, in the first run of a held program that does."""
    loop = eqn.primitive.looped(inputs, **eqn.params)
    if loop is not None:
        return _in_loop(eqn, loop, held)
    if not any(sub_programs(eqn)):
        return None
    found: list[_Made] = []

    def seen(program: Program, arrays: Arrays, results: Arrays) -> None:
        given = any(is_bad(x) is not None for x in arrays)
        if given or all(is_bad(x) is None for x in results):
            return
        made = _origin(program, arrays, held=(*held, (eqn, None)))
        if isinstance(made, _Made):
            found.append(made)
            raise _Found

    try:
        with watched(seen, _held_outputs), np.errstate(all="ignore"):
            eqn.primitive.reference(*inputs, **eqn.params)
    except _Found:
        return found[0]
    return None


class _Found(Exception):
    """Ends an operation that runs by its reference rule."""


def _in_loop(
    eqn: Eqn, loop: Looped, held: tuple[tuple[Eqn, int | None], ...]
) -> _Made | None:
    """What made it, in the first round that does."""
    if any(len(x) == 0 for x in loop.xs):
        return None
    count = np.int32(loop.count or 0)
    found, number, *given = _run(
        halting_program(loop, _has), halting_operands(loop, count)
    )
    if not found:
        return None
    made = _origin(loop.body, given, held=(*held, (eqn, int(number))))
    return made if isinstance(made, _Made) else None


def _has(values: Arrays) -> Any:
    """Whether any of several traced arrays has what is looked for."""
    found: Any = scalar(False, dtypes.bool_)
    for x in values:
        if not dtypes.is_inexact(x.type.dtype):
            continue
        if config.debug_nans:
            found = or_(found, any_of(ne(x, x)))
        if config.debug_infs:
            parts = [real(x), imag(x)] if dtypes.is_complex(x.type.dtype) else [x]
            for part in parts:
                is_inf = eq(abs_(part), scalar(np.inf, part.type.dtype))
                found = or_(found, any_of(is_inf))
    return found


# ---------------------------------------------------------------- the text

_ROLES = {
    DERIVATIVE: "it is part of the derivative of that line",
    BACKWARD: "it is part of the derivative of that line, in the backward pass",
}


def _made_text(made: _Made) -> str:
    """A line for what made it, and one for each thing around it."""
    source, index = made.source, made.index
    scope = _scope(made)
    place = f", at {source.inside(scope) if scope and source else source}"
    lines = [f"made by {made.name}{place if source else ''}"]
    shape = np.shape(made.output)
    value = np.asarray(made.output)[index]
    there = [_element(x, index, shape) for x in made.operands]
    shown = [f"{text}" for text in there if text]
    of = f", of {', '.join(shown)}" if shown else ""
    lines.append(f"its output{_at(index)} is {value}{of}")
    if source is not None and source.role:
        lines.append(_ROLES[source.role])
    lanes = () if source is None else source.lanes
    if lanes and shape[: len(lanes)] == lanes:
        numbers = ", ".join(map(str, index[: len(lanes)]))
        lines.append(f"for member {numbers} of the mapped axis (vmap)")
    for eqn, number in reversed(made.held):
        which = "" if number is None else f"in round {number} of "
        stands = f", at {eqn.source}" if eqn.source else ""
        lines.append(f"{which or 'in '}{_holder(eqn)}{stands}")
    return "\n".join([f"  {line}" for line in lines])


def _scope(made: _Made) -> tuple[str, ...]:
    """The names around all equations that hold the one that made it."""
    sources = [eqn.source for eqn, _ in made.held]
    return tuple([name for source in sources if source for name in source.scope])


def _holder(eqn: Eqn) -> str:
    name = eqn.params.get("name")
    return f"{eqn.primitive.name} {name}" if name else eqn.primitive.name


def _element(x: Any, index: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """An operand at an index, where it has one."""
    x = np.asarray(x)
    if x.shape == shape:
        return str(x[index])
    return str(x) if x.ndim == 0 else ""


def _first(bad: np.ndarray[Any, Any] | None) -> tuple[int, ...]:
    """The first index at which an array of booleans is true."""
    assert bad is not None
    return tuple([int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape)])


def _at(index: tuple[int, ...]) -> str:
    return f" at index [{','.join(map(str, index))}]" if index else ""


def _name(value: Any) -> str:
    return "NaN" if np.isnan(value) else "an infinity"
