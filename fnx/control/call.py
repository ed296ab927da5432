"""`call`: a program applied inside a program, what `jit` becomes while tracing.

Its rules transform the held program and call the result, so that a `jit` stays one unit
under every transformation; the compiler inlines it. Next on the walk: `custom.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fnx import errors
from fnx.control.unwritten import permuted_back, without_permutes
from fnx.core.primitive import MappedAxis, Primitive, is_linear
from fnx.core.program import Atom, Eqn, Program, Var
from fnx.core.reference import run_reference
from fnx.core.simplify import needed_inputs, simplify
from fnx.core.types import ArrayType
from fnx.transforms.batch import batch_program
from fnx.transforms.jet import jet_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask
from fnx.transforms.split import Split, split_program
from fnx.transforms.transpose import transpose_program

Parts = tuple[Sequence[Eqn], Sequence[Eqn]]
"""An equation cut in known and unknown ones."""


class _Call(Primitive):
    multiple = True
    compiled = True
    linear = True
    sees_axes = True

    def infer(
        self, *types: ArrayType, program: Program, name: str
    ) -> tuple[ArrayType, ...]:
        """The program's output types; the arguments are of its input types."""
        check_arguments(name, program, types)
        return program.output_types

    def reference(self, *arrays: Any, program: Program, name: str) -> tuple[Any, ...]:
        """The program by its reference rules."""
        return tuple(run_reference(program, arrays))

    def body(self, *, program: Program, name: str) -> Program:
        """The program itself."""
        return program

    def pruned(self, eqn: Eqn, used: Sequence[bool]) -> Eqn:
        """The program without the outputs, and the inputs, that nobody needs."""
        program: Program = eqn.params["program"]
        needed = needed_inputs(program, used)
        if all(used) and all(needed):
            return eqn
        slim = with_outputs(program, needed, used)
        inputs, outputs = chosen(eqn.inputs, needed), chosen(eqn.outputs, used)
        return Eqn(self, inputs, outputs, {**eqn.params, "program": slim}, eqn.source)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        name: str,
    ) -> tuple[Any, Any]:
        """Calls the program with tangents."""
        moving = tuple([t is not None for t in tangents])
        moved, out_moving = jvp_program(program, moving)
        given = [t for t in tangents if t is not None]
        results = call(*primals, *given, program=moved, name=name)
        count = len(program.outputs)
        return results[:count], spread(results[count:], out_moving)

    def jet(
        self,
        primals: Sequence[Any],
        series: Sequence[Any],
        *,
        program: Program,
        name: str,
    ) -> tuple[Any, Any]:
        """Calls the program with derivatives."""
        moved, given, out_moving, order = series_program(program, series)
        results = call(*primals, *given, program=moved, name=name)
        return series_results(results, out_moving, order)

    def split(self, known: Sequence[bool], eqn: Eqn) -> Parts:
        """Calls the two parts of the program."""
        parts = split_program(eqn.params["program"], tuple(known))
        return split_equation(eqn, known, parts)

    def transpose(
        self, ct: Any, *inputs: Any, program: Program, name: str
    ) -> Sequence[Any]:
        """Calls the transposed program."""
        linear = tuple([is_linear(x) for x in inputs])
        given = tuple([c is not None for c in ct])
        turned, reached = transpose_program(program, linear, given)
        fixed = [x for x in inputs if not is_linear(x)]
        cts = [c for c in ct if c is not None]
        results = call(*fixed, *cts, program=turned, name=name)
        return spread(spread(results, reached), linear)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        program: Program,
        name: str,
    ) -> tuple[Any, Any]:
        """Calls the batched program."""
        lifted, out_mapped = batch_program(program, axis, tuple(mapped))
        (bare,), dims = without_permutes([lifted])
        results = call(*args, program=bare, name=name)
        return permuted_back(results, dims), out_mapped

    def absorb(
        self,
        inputs: Sequence[Atom],
        makers: Mapping[Var, Eqn],
        *,
        program: Program,
        name: str,
    ) -> tuple[Sequence[Atom], dict[str, Any]] | None:
        """Lanes are chosen where the program reads them."""
        # lazy: it is made of calls itself
        from fnx.control.lanes import lane

        found = made_by(inputs, makers, [lane])
        if not found:
            return None
        given, (inside,) = taken_in(inputs, found, [program])
        return given, {"program": inside, "name": name}

    def checked(self, found: Any, eqn: Eqn, inputs: Sequence[Any]) -> Sequence[Any]:
        """Calls the checked program."""
        checked = found.check(eqn.params["program"])
        results = call(*inputs, program=checked.program, name=eqn.params["name"])
        count = len(eqn.outputs)
        found.take([checked], results[count:])
        return tuple(results[:count])


call = _Call("call")


def check_arguments(name: str, program: Program, types: Sequence[ArrayType]) -> None:
    """Raises unless a program can be applied to arguments of the given types."""
    wanted = program.input_types
    same = len(wanted) == len(types) and all(
        (w.shape, w.dtype) == (t.shape, t.dtype)
        for w, t in zip(wanted, types, strict=True)
    )
    if not same:
        shown = ", ".join(map(str, types)) or "nothing"
        expected = ", ".join(map(str, wanted)) or "nothing"
        raise errors.ShapeError(f"{name}: takes {expected}, got {shown}")


def made_by(
    atoms: Sequence[Atom], makers: Mapping[Var, Eqn], primitives: Sequence[Primitive]
) -> dict[int, Eqn]:
    """By the number of an atom the equation that makes it, if it is one of those."""
    found = {n: makers.get(a) for n, a in enumerate(atoms) if isinstance(a, Var)}
    return {
        n: eqn
        for n, eqn in found.items()
        if eqn is not None and eqn.primitive in primitives
    }


def taken_in(
    inputs: Sequence[Atom], made: Mapping[int, Eqn], programs: Sequence[Program]
) -> tuple[tuple[Atom, ...], tuple[Program, ...]]:
    """Operands of programs without equations that make some, which are in them then.

    `made` has the equations by the numbers of what they make.
    """
    more = tuple(dict.fromkeys(a for eqn in made.values() for a in eqn.inputs))
    kept = [n for n in range(len(inputs)) if n not in made]
    inside = []
    for program in programs:
        given = {atom: Var(atom.type) for atom in more}
        front = [
            equation_of(eqn, [given[a] for a in eqn.inputs], program.inputs[n])
            for n, eqn in made.items()
        ]
        own = [program.inputs[n] for n in kept]
        taken = (*given.values(), *own)
        whole = Program(taken, (*front, *program.eqns), program.outputs)
        inside.append(simplify(whole))
    return (*more, *[inputs[n] for n in kept]), tuple(inside)


def equation_of(eqn: Eqn, inputs: Sequence[Atom], output: Var) -> Eqn:
    """The equation with other inputs and another output."""
    return Eqn(eqn.primitive, tuple(inputs), (output,), eqn.params, eqn.source)


def spread(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The values in the places that the mask marks, `None` in the others."""
    rest = iter(values)
    return [next(rest) if marked else None for marked in mask]


def series_program(
    program: Program, series: Sequence[Any]
) -> tuple[Program, list[Any], Mask, int]:
    """A program with derivatives, those that it is given, and what its outputs have.

    The last is how many there are of each value that moves.
    """
    moving = tuple([terms is not None for terms in series])
    order = next(len(terms) for terms in series if terms is not None)
    moved, out_moving = jet_program(program, order, moving)
    return moved, [t for terms in series for t in terms or ()], out_moving, order


def series_results(
    results: Sequence[Any], out_moving: Mask, order: int
) -> tuple[Sequence[Any], list[Any]]:
    """The outputs of a program with derivatives, and the derivatives of each."""
    count = len(out_moving)
    starts = range(count, len(results), order)
    groups = [results[i : i + order] for i in starts]
    return results[:count], spread(groups, out_moving)


def split_equation(eqn: Eqn, known: Sequence[bool], parts: Split) -> Parts:
    """The two `call` equations of a split program, with residuals between them.

    A residual that is an input is read where it is, so that loops see what they have.
    """
    first, name = parts.known, eqn.params["name"]
    given = chosen(eqn.inputs, known)
    count = len(first.outputs) - len(parts.residuals)
    ends, kept = first.outputs[:count], first.outputs[count:]
    found: dict[Any, Atom] = dict(zip(first.inputs, given, strict=True))
    computed = {
        end: Var(end.type) for end in kept if isinstance(end, Var) and end not in found
    }
    found.update(computed)
    early = Eqn(
        call,
        given,
        (*chosen(eqn.outputs, parts.outputs_known), *computed.values()),
        {
            "program": Program(first.inputs, first.eqns, (*ends, *computed)),
            "name": name,
        },
        eqn.source,
    )
    late = Eqn(
        call,
        (
            *[found.get(end, end) for end in kept],
            *chosen(eqn.inputs, [not is_known for is_known in known]),
        ),
        chosen(eqn.outputs, [not is_known for is_known in parts.outputs_known]),
        {"program": parts.unknown, "name": name},
        eqn.source,
    )
    return [early], [late]


def chosen(values: Sequence[Any], mask: Sequence[bool]) -> tuple[Any, ...]:
    """The values that a mask marks."""
    return tuple([x for x, marked in zip(values, mask, strict=True) if marked])


def with_outputs(program: Program, inputs: Mask, outputs: Sequence[bool]) -> Program:
    """The program with some of its inputs and outputs."""
    ends = chosen(program.outputs, outputs)
    slim = simplify(Program(program.inputs, program.eqns, ends))
    return Program(chosen(slim.inputs, inputs), slim.eqns, slim.outputs)
