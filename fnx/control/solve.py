"""`linear_solve` and `root`: the solution of equations, by a solver that is left alone.

Nothing differentiates a solver. The tangent of a solution solves a linear system with
the same matrix, and so does its cotangent, with the transposed one; so the equations
hold, beside the program that solves, those that say what has been solved. All of them
take the same constants first. Where nothing is differentiated, what remains is the
solver's program, which the compiler inlines.
What users call is in `fnx/api/solve.py`; next on the walk: `custom.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import errors
from fnx.control.call import check_arguments, chosen, spread, with_outputs
from fnx.control.held import (
    either,
    equation_like,
    instantiated,
    parted,
    settled,
    with_axis,
)
from fnx.control.rounds import lifted
from fnx.core.primitive import MappedAxis, Primitive, is_linear
from fnx.core.program import Eqn, Program
from fnx.core.reference import run_reference
from fnx.core.simplify import needed_inputs, simplify
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import neg, sub
from fnx.ops.shape import zeros_like
from fnx.transforms.batch import batch_program
from fnx.transforms.jvp import jvp_program


class _Solve(Primitive):
    """What the two equations share: they compute what their `solve` does."""

    multiple = True
    compiled = True
    sees_axes = True

    def reference(self, *arrays: Any, solve: Program, **programs: Any) -> Any:
        """The solver by its reference rules."""
        return tuple(run_reference(solve, arrays))

    def body(self, *, solve: Program, **programs: Any) -> Program:
        """The solver: where nothing is differentiated, it is all there is."""
        return solve


class _LinearSolve(_Solve):
    """linear_solve(*consts, *b, …): x with matvec(*consts, *x) = b, and what else
    `solve(*consts, *b)` gives.

    `vecmat` and `transpose_solve` are those of the transposed system, or `None`.
    """

    linear = True

    def infer(
        self,
        *types: ArrayType,
        matvec: Program,
        solve: Program,
        vecmat: Program | None,
        transpose_solve: Program | None,
    ) -> tuple[ArrayType, ...]:
        """The output types of the solver."""
        check_arguments("linear_solve", matvec, types)
        check_arguments("linear_solve", solve, types)
        return solve.output_types

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **programs: Any
    ) -> tuple[Any, Any]:
        """A x = b moves by A dx = db - dA x: one more solution with the same A."""
        matvec: Program = programs["matvec"]
        count = len(matvec.outputs)
        consts, b = parted(primals, len(primals) - count)
        moves, ends = parted(tangents, len(consts))
        results = self(*primals, **programs)
        shifts = _moved(matvec, consts, moves, results[:count])
        right = [_minus(t, s) for t, s in zip(ends, shifts, strict=True)]
        if all(t is None for t in right):
            return results, [None] * len(results)
        slim = _solution_only(programs["solve"], count)
        dx = self(*consts, *instantiated(right, b), **{**programs, "solve": slim})
        return results, [*dx, *[None] * (len(results) - count)]

    def transpose(
        self,
        ct: Any,
        *inputs: Any,
        matvec: Program,
        solve: Program,
        vecmat: Program | None,
        transpose_solve: Program | None,
    ) -> Sequence[Any]:
        """The solution of the transposed system."""
        count = len(matvec.outputs)
        consts, b = parted(inputs, len(inputs) - count)
        if all(c is None for c in ct[:count]):
            return [None] * len(inputs)
        if vecmat is None or transpose_solve is None:
            raise errors.ArgumentError(
                errors.explain(
                    "custom_linear_solve in reverse mode: the transposed system has "
                    "to be solved",
                    "neither transpose_solve nor symmetric=True was given",
                    "pass transpose_solve(vecmat, b), which may be the function that "
                    "solve is; or symmetric=True if matvec is its own transpose",
                )
            )
        if any(map(is_linear, consts)):
            raise errors.ArgumentError(
                "linear_solve: it is not linear in what matvec closes over"
            )
        rows = zip(ct, b, strict=False)
        cts = [zeros_like(x) if c is None else c for c, x in rows]
        results = self(
            *consts,
            *cts,
            matvec=vecmat,
            solve=transpose_solve,
            vecmat=matvec,
            transpose_solve=_solution_only(solve, count),
        )
        pairs = zip(results, b, strict=True)
        return [None] * len(consts) + [c if is_linear(x) else None for c, x in pairs]

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        **programs: Any,
    ) -> tuple[Any, Any]:
        """The batched programs; a part of b has the axis where that part of x has."""
        count = len(programs["matvec"].outputs)
        consts, start = parted(mapped, len(mapped) - count)
        given = {key: p for key, p in programs.items() if p is not None}

        def grow(mask: tuple[bool, ...]) -> tuple[bool, ...]:
            for program in given.values():
                found = batch_program(program, axis, (*consts, *mask))[1]
                mask = either(mask, found[:count])
            return mask

        mask = settled(start, grow)
        flags = (*consts, *mask)
        beside = batch_program(programs["solve"], axis, flags)[1][count:]
        wanted = dict.fromkeys(given, mask) | {"solve": (*mask, *beside)}
        batched = {
            key: with_axis(p, axis, flags, wanted[key]) for key, p in given.items()
        }
        right = lifted(axis, args[len(consts) :], start, mask)
        results = self(*args[: len(consts)], *right, **{**programs, **batched})
        return results, wanted["solve"]

    def pruned(self, eqn: Eqn, used: Sequence[bool]) -> Eqn:
        """Without what nobody needs beside the solution, and unused constants."""
        return _pruned(eqn, used, len(eqn.params["matvec"].outputs))


class _Root(_Solve):
    """root(*consts, *guess, …): x with function(*consts, *x) = 0, and what else
    `solve(*consts, *guess)` gives.

    `tangent(*consts, *x, *y)` is dx with J dx = y, where J is the function's derivative
    by x.
    """

    def infer(
        self, *types: ArrayType, function: Program, solve: Program, tangent: Program
    ) -> tuple[ArrayType, ...]:
        """The output types of the solver."""
        check_arguments("root", solve, types)
        consts = types[: len(types) - len(function.outputs)]
        solution = solve.output_types[: len(function.outputs)]
        check_arguments("root", function, [*consts, *solution])
        return solve.output_types

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        function: Program,
        solve: Program,
        tangent: Program,
    ) -> tuple[Any, Any]:
        """f(c, x) = 0 moves by J dx = -∂f/∂c dc; the guess has no influence."""
        count = len(function.outputs)
        consts, _ = parted(primals, len(primals) - count)
        results = self(*primals, function=function, solve=solve, tangent=tangent)
        solution = results[:count]
        moves = tangents[: len(consts)]
        right = _moved(function, consts, moves, solution)
        if all(t is None for t in right):
            return results, [None] * len(results)
        filled = instantiated(right, solution)
        found = evaluate(tangent, [*consts, *solution, *filled])
        dx = [neg(t) for t in found]
        return results, [*dx, *[None] * (len(results) - count)]

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        function: Program,
        solve: Program,
        tangent: Program,
    ) -> tuple[Any, Any]:
        """The batched programs."""
        count = len(function.outputs)
        consts = tuple(mapped[: len(mapped) - count])
        found = batch_program(solve, axis, tuple(mapped))[1]
        start, beside = found[:count], found[count:]

        def grow(mask: tuple[bool, ...]) -> tuple[bool, ...]:
            mask = either(mask, batch_program(function, axis, (*consts, *mask))[1])
            flags = (*consts, *mask, *mask)
            return either(mask, batch_program(tangent, axis, flags)[1])

        mask = settled(start, grow)
        wanted = (*mask, *beside)
        results = self(
            *args,
            function=with_axis(function, axis, (*consts, *mask), mask),
            solve=with_axis(solve, axis, tuple(mapped), wanted),
            tangent=with_axis(tangent, axis, (*consts, *mask, *mask), mask),
        )
        return results, wanted

    def pruned(self, eqn: Eqn, used: Sequence[bool]) -> Eqn:
        """Without what nobody needs beside the solution, and unused constants."""
        return _pruned(eqn, used, len(eqn.params["function"].outputs))


linear_solve = _LinearSolve("linear_solve")
root = _Root("root")


def _moved(
    program: Program,
    consts: Sequence[Any],
    moves: Sequence[Any],
    solution: Sequence[Any],
) -> list[Any]:
    """The tangents of a program's outputs where its constants move, at a solution."""
    moving = tuple([t is not None for t in moves])
    if not any(moving):
        return [None] * len(program.outputs)
    moved, reached = jvp_program(program, (*moving, *[False] * len(solution)))
    given = [t for t in moves if t is not None]
    results = evaluate(moved, [*consts, *solution, *given])
    return spread(results[len(program.outputs) :], reached)


def _minus(t: Any, shift: Any) -> Any:
    """A tangent less another one, where `None` is zero."""
    if shift is None:
        return t
    return neg(shift) if t is None else sub(t, shift)


def _solution_only(solve: Program, count: int) -> Program:
    """A solver without what it gives beside the solution."""
    if len(solve.outputs) == count:
        return solve
    return simplify(Program(solve.inputs, solve.eqns, solve.outputs[:count]))


def _pruned(eqn: Eqn, used: Sequence[bool], count: int) -> Eqn:
    """An equation without unused outputs beside the solution, and unused constants.

    Each of its programs takes the constants first.
    """
    kept = (*[True] * count, *used[count:])
    programs = {
        key: with_outputs(p, (True,) * len(p.inputs), kept) if key == "solve" else p
        for key, p in eqn.params.items()
    }
    first = len(eqn.inputs) - count
    read = [
        needed_inputs(p, (True,) * len(p.outputs))
        for p in programs.values()
        if p is not None
    ]
    needed = tuple(
        [any(marks) for marks in zip(*[m[:first] for m in read], strict=True)]
    )
    if all(kept) and all(needed):
        return eqn

    def slim(program: Program) -> Program:
        inputs = chosen(program.inputs[:first], needed) + program.inputs[first:]
        return Program(inputs, program.eqns, program.outputs)

    inputs = (*chosen(eqn.inputs[:first], needed), *eqn.inputs[first:])
    params = {key: None if p is None else slim(p) for key, p in programs.items()}
    return equation_like(eqn, inputs, chosen(eqn.outputs, kept), params)
