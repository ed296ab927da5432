"""`remat`: a program whose values are computed again for the backward pass, not kept.

Where it is split, the known part gives its outputs and what the policy saves; the
unknown part takes that and the known inputs, and computes the rest again before it goes
on. All else are transformations of the program, as for `call`.

The compiler writes both parts out and would merge what they have in common, so that
everything would be kept after all. The unknown part therefore reads its inputs behind a
`barrier`: it computes from other values, and not before its cotangents are there. Parts
have numbers, as in a binary tree: the first equation is 1, the parts of `n` are 2n and
2n + 1; so the barriers of the second recomputation in a gradient of a gradient are
other ones than those of the first.
Receives and gives arrays; next on the walk: `keep.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.control.call import (
    Parts,
    check_arguments,
    chosen,
    series_program,
    series_results,
    spread,
    with_outputs,
)
from fnx.control.held import equation_like, new_vars, others, parted
from fnx.control.keep import Policy, flat, keep
from fnx.core.cache import cached
from fnx.core.primitive import MappedAxis, Primitive, is_linear
from fnx.core.program import Eqn, Program
from fnx.core.reference import run_reference
from fnx.core.simplify import needed_inputs, simplify
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.ops.marks import barrier
from fnx.records import record
from fnx.transforms.batch import batch_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, rewrite
from fnx.transforms.split import split_program
from fnx.transforms.transpose import transpose_program


@record
class Rule:
    """What is saved (nothing if there is no policy), and the number of the part.

    With the number 0, the compiler may merge what is computed again.
    """

    policy: Policy | None = None
    number: int = 1

    @property
    def parts(self) -> tuple[Rule, Rule]:
        """The rules of the known and of the unknown part."""
        late = 2 * self.number + 1 if self.number else 0
        return Rule(self.policy, 2 * self.number), Rule(self.policy, late)


class _Remat(Primitive):
    """remat(*inputs, program, name, rule, again): the program applied.

    `again` says that it computes what another one has computed before.
    """

    multiple = True
    compiled = True
    linear = True
    sees_axes = True

    def infer(
        self, *types: ArrayType, program: Program, name: str, rule: Rule, again: bool
    ) -> tuple[ArrayType, ...]:
        """The program's output types; the arguments are of its input types."""
        check_arguments(name, program, types)
        return program.output_types

    def reference(self, *arrays: Any, program: Program, **rest: Any) -> Any:
        """The program by its reference rules."""
        return tuple(run_reference(program, arrays))

    def body(self, *, program: Program, name: str, rule: Rule, again: bool) -> Program:
        """The program, which reads its inputs behind a barrier if it runs again."""
        if not (again and rule.number):
            return program
        seen = new_vars(program.input_types)
        front = Eqn(barrier, seen, program.inputs, {"number": rule.number}, None)
        return Program(seen, (front, *program.eqns), program.outputs)

    def pruned(self, eqn: Eqn, used: Sequence[bool]) -> Eqn:
        """The program without the outputs, and the inputs, that nobody needs."""
        program: Program = eqn.params["program"]
        needed = needed_inputs(program, used)
        if all(used) and all(needed):
            return eqn
        params = {**eqn.params, "program": with_outputs(program, needed, used)}
        inputs, outputs = chosen(eqn.inputs, needed), chosen(eqn.outputs, used)
        return equation_like(eqn, inputs, outputs, params)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        **rest: Any,
    ) -> tuple[Any, Any]:
        """The program with tangents."""
        moving = tuple([t is not None for t in tangents])
        moved, out_moving = jvp_program(program, moving)
        results = self(
            *primals,
            *[t for t in tangents if t is not None],
            program=moved,
            **rest,
        )
        ends, moves = parted(results, len(program.outputs))
        return ends, spread(moves, out_moving)

    def jet(
        self,
        primals: Sequence[Any],
        series: Sequence[Any],
        *,
        program: Program,
        **rest: Any,
    ) -> tuple[Any, Any]:
        """The program with derivatives."""
        moved, given, out_moving, order = series_program(program, series)
        results = self(*primals, *given, program=moved, **rest)
        return series_results(results, out_moving, order)

    def split(self, known: Sequence[bool], eqn: Eqn) -> Parts | None:
        """What is known and saved; and what is computed again, with the rest."""
        if not any(known):
            return None
        mask, rule = tuple(known), eqn.params["rule"]
        halves = _halves(eqn.params["program"], mask, rule.policy)
        saved, given = new_vars(halves.saved), chosen(eqn.inputs, mask)
        early_rule, late_rule = rule.parts
        early = equation_like(
            eqn,
            given,
            (*chosen(eqn.outputs, halves.outputs_known), *saved),
            {**eqn.params, "program": halves.known, "rule": early_rule},
        )
        late = equation_like(
            eqn,
            (*saved, *[given[n] for n in halves.reads], *others(eqn.inputs, mask)),
            others(eqn.outputs, halves.outputs_known),
            {
                **eqn.params,
                "program": halves.unknown,
                "rule": late_rule,
                "again": halves.again,
            },
        )
        return [early], [late]

    def transpose(
        self,
        ct: Any,
        *inputs: Any,
        program: Program,
        **rest: Any,
    ) -> Sequence[Any]:
        """The transposed program, which first computes what it needs."""
        linear = tuple([is_linear(x) for x in inputs])
        given = tuple([c is not None for c in ct])
        turned, reached = transpose_program(program, linear, given)
        cts = [c for c in ct if c is not None]
        results = self(*others(inputs, linear), *cts, program=turned, **rest)
        return spread(spread(results, reached), linear)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        program: Program,
        **rest: Any,
    ) -> tuple[Any, Any]:
        """The batched program."""
        lifted, out_mapped = batch_program(program, axis, tuple(mapped))
        return self(*args, program=lifted, **rest), out_mapped


remat = _Remat("remat")


# ---------------------------------------------------------------- splitting


@record
class _Halves:
    """A program in two parts.

    `known` gives the known outputs, then what is `saved`; `unknown` takes that, those
    known inputs whose numbers are in `reads`, and the unknown inputs. `again` says that
    both compute some value.
    """

    known: Program
    unknown: Program
    outputs_known: Mask
    saved: tuple[ArrayType, ...]
    reads: tuple[int, ...]
    again: bool


@cached
def _halves(program: Program, known: Mask, policy: Policy | None) -> _Halves:
    """Cuts a program as `split_program`, but keeps only what a policy allows."""
    parts = split_program(program, known)
    first = flat(parts.known)
    ends, residuals = parted(first.outputs, sum(parts.outputs_known))
    kept = keep(first, residuals, policy)
    read = set(residuals).union(*[eqn.inputs for eqn in kept.again])
    reads = [n for n, var in enumerate(first.inputs) if var in read]
    given = (*kept.saved, *[first.inputs[n] for n in reads])
    recompute = Program(given, kept.again, residuals)

    def run(*args: Any) -> list[Any]:
        own, rest = parted(args, len(given))
        return evaluate(parts.unknown, [*evaluate(recompute, own), *rest])

    late = parts.unknown.input_types[len(residuals) :]
    types = [*recompute.input_types, *late]
    return _Halves(
        simplify(Program(first.inputs, kept.eqns, (*ends, *kept.saved))),
        rewrite(run, types, "remat", program),
        parts.outputs_known,
        tuple([var.type for var in kept.saved]),
        tuple(reads),
        bool(kept.again),
    )
