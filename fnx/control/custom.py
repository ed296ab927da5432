"""Functions whose derivative the user wrote: `custom_jvp`, `custom_vjp` as equations.

An equation holds the program of the function and the rules as programs that are traced
when they are first needed, since a rule may use its own function. Both vanish when they
are differentiated: the first into its rule; the second into its forward program and
`custom_vjp_linear`, a linear map that is known by its transpose.
What users call is in `fnx.api.custom`; next on the walk: `fnx.compiler`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import dtypes, errors
from fnx.control.call import call, check_arguments, spread
from fnx.core.cache import cached
from fnx.core.primitive import MappedAxis, Primitive, is_linear
from fnx.core.program import Program
from fnx.core.reference import run_reference
from fnx.core.simplify import simplify
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.ops.families import along
from fnx.ops.reduce import reduce_sum
from fnx.ops.shape import zeros_like
from fnx.transforms.batch import batch_program
from fnx.transforms.rewrite import Mask, rewrite
from fnx.transforms.transpose import transpose_program


class Rule:
    """A program that is made when it is first asked for; equal only to itself."""

    __slots__ = ("_make", "_program")

    def __init__(self, make: Callable[[], Program]) -> None:
        self._make: Callable[[], Program] | None = make
        self._program: Program | None = None

    @property
    def program(self) -> Program:
        """The program, traced now if it was not before."""
        if self._program is None:
            assert self._make is not None
            self._program = self._make()
            self._make = None  # whatever it captured is free
        return self._program

    def __repr__(self) -> str:
        return "rule"


class _CustomCall(Primitive):
    """What the two equations share: they compute what their program does."""

    multiple = True
    linear = True
    sees_axes = True
    personal = True

    def infer(
        self, *types: ArrayType, program: Program, name: str, **rules: Any
    ) -> tuple[ArrayType, ...]:
        """The program's output types; the arguments are of its input types."""
        check_arguments(name, program, types)
        return program.output_types

    def reference(self, *arrays: Any, program: Program, **rules: Any) -> Any:
        """The program by its reference rules."""
        return tuple(run_reference(program, arrays))

    def body(self, *, program: Program, **rules: Any) -> Program:
        """The program: where nothing is differentiated the rules have no part."""
        return program

    def transpose(
        self, ct: Any, *inputs: Any, program: Program, name: str, **rules: Any
    ) -> Sequence[Any]:
        """Transposes the program: a linear function needs no rule."""
        return call.transpose(ct, *inputs, program=program, name=name)


class _CustomJvp(_CustomCall):
    """custom_jvp_call: `rule` takes the inputs and a tangent for each `differentiable`
    one; it gives the outputs and a tangent for each inexact output.
    """

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        rule: Rule,
        differentiable: Mask,
        name: str,
    ) -> tuple[Any, Any]:
        """The user's rule, with zeros for what does not move."""
        _check_moving(name, tangents, differentiable)
        moves = [
            zeros_like(x) if t is None else t
            for x, t, may_move in zip(primals, tangents, differentiable, strict=True)
            if may_move
        ]
        results = evaluate(rule.program, [*primals, *moves])
        count = len(program.outputs)
        inexact = [dtypes.is_inexact(type.dtype) for type in program.output_types]
        return results[:count], spread(results[count:], inexact)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        program: Program,
        rule: Rule,
        differentiable: Mask,
        name: str,
    ) -> tuple[Any, Any]:
        """The batched program with the batched rule."""
        lifted, flag = _batch_outputs(program, axis, tuple(mapped))
        moves = [m for m, d in zip(mapped, differentiable, strict=True) if d]
        lifted_rule = Rule(
            lambda: _mapped_outputs(rule.program, axis, (*mapped, *moves), flag)
        )
        results = self(
            *args,
            program=lifted,
            rule=lifted_rule,
            differentiable=differentiable,
            name=name,
        )
        return results, (flag,) * len(results)


class _CustomVjp(_CustomCall):
    """custom_vjp_call: `forward` takes the inputs and gives the outputs, then the
    residuals; `backward` takes the residuals and a cotangent for each inexact output,
    and gives one for each `differentiable` input.
    """

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        forward: Rule,
        backward: Rule,
        differentiable: Mask,
        name: str,
    ) -> tuple[Any, Any]:
        """The forward program, and the linear map that the backward one transposes."""
        _check_moving(name, tangents, differentiable)
        values = evaluate(forward.program, primals)
        outputs = values[: len(program.outputs)]
        residuals = values[len(outputs) :]
        moving = [
            t is not None
            for t, may_move in zip(tangents, differentiable, strict=True)
            if may_move
        ]
        moved = custom_vjp_linear(
            *residuals,
            *[t for t in tangents if t is not None],
            backward=_only(backward.program, tuple(moving)),
            residuals=len(residuals),
            name=name,
        )
        inexact = [dtypes.is_inexact(type.dtype) for type in program.output_types]
        return outputs, spread(moved, inexact)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        program: Program,
        forward: Rule,
        backward: Rule,
        differentiable: Mask,
        name: str,
    ) -> tuple[Any, Any]:
        """The batched program with the batched rules."""
        flags = tuple(mapped)
        lifted, flag = _batch_outputs(program, axis, flags)
        count = len(program.outputs)
        inputs = tuple([m for m, d in zip(flags, differentiable, strict=True) if d])

        def lifted_forward() -> Program:
            return _forward_batched(forward.program, axis, flags, count, flag)[0]

        def lifted_backward() -> Program:
            kept = _forward_batched(forward.program, axis, flags, count, flag)[1]
            return _backward_batched(backward.program, axis, kept, flag, inputs)

        results = self(
            *args,
            program=lifted,
            forward=Rule(lifted_forward),
            backward=Rule(lifted_backward),
            differentiable=differentiable,
            name=name,
        )
        return results, (flag,) * count


class _VjpLinear(Primitive):
    """custom_vjp_linear: from residuals and tangents to tangents of the outputs.

    `backward` is its transpose, from residuals and cotangents of the outputs; forward
    mode transposes that once more.
    """

    multiple = True
    linear = True
    sees_axes = True

    def infer(
        self, *types: ArrayType, backward: Program, residuals: int, name: str
    ) -> tuple[ArrayType, ...]:
        """The types of the cotangents that the backward program takes."""
        return backward.input_types[residuals:]

    def reference(self, *arrays: Any, **params: Any) -> tuple[Any, ...]:
        """The transposed backward program by its reference rules."""
        return tuple(run_reference(self.body(**params), arrays))

    def body(self, *, backward: Program, residuals: int, name: str) -> Program:
        """The backward program transposed."""
        return _forward_map(backward, residuals, name)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        backward: Program,
        residuals: int,
        name: str,
    ) -> tuple[Any, Any]:
        """Linear while the residuals rest; else that of the transposed program."""
        params: dict[str, Any] = {
            "backward": backward,
            "residuals": residuals,
            "name": name,
        }
        if any(t is not None for t in tangents[:residuals]):
            program = self.body(**params)
            return call.jvp(primals, tangents, program=program, name=name)
        moves = [
            zeros_like(x) if t is None else t
            for x, t in zip(primals[residuals:], tangents[residuals:], strict=True)
        ]
        return self(*primals, **params), self(*primals[:residuals], *moves, **params)

    def transpose(
        self, ct: Any, *inputs: Any, backward: Program, residuals: int, name: str
    ) -> Sequence[Any]:
        """The user's backward rule."""
        rows = zip(backward.inputs[residuals:], ct, strict=True)
        cts = [zeros_like(var) if c is None else c for var, c in rows]
        results = evaluate(backward, [*inputs[:residuals], *cts])
        asked = [is_linear(x) for x in inputs[residuals:]]
        pairs = zip(results, asked, strict=True)
        return [None] * residuals + [c if wanted else None for c, wanted in pairs]

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        backward: Program,
        residuals: int,
        name: str,
    ) -> tuple[Any, Any]:
        """The batched backward program; tangents without the axis are repeated."""
        moves = zip(args[residuals:], mapped[residuals:], strict=True)
        repeated = [t if is_mapped else along(axis, t) for t, is_mapped in moves]
        outputs = len(backward.inputs) - residuals
        flags = (*mapped[:residuals], *[True] * outputs)
        results = self(
            *args[:residuals],
            *repeated,
            backward=_mapped_outputs(backward, axis, flags, True),
            residuals=residuals,
            name=name,
        )
        return results, (True,) * outputs


custom_jvp_call = _CustomJvp("custom_jvp_call")
custom_vjp_call = _CustomVjp("custom_vjp_call")
custom_vjp_linear = _VjpLinear("custom_vjp_linear")


def _check_moving(name: str, tangents: Sequence[Any], differentiable: Mask) -> None:
    """Raises where the derivative by something is asked that the rule does not know."""
    rows = zip(tangents, differentiable, strict=True)
    for t in [t for t, may_move in rows if t is not None and not may_move]:
        raise errors.ArgumentError(
            errors.explain(
                f"the derivative of {name} by an array of type {t.type} is asked for",
                "the function closes over that array or has it among its "
                "nondiff_argnums, so its custom rule does not know it",
                "pass the array as a differentiable argument and extend the rule",
            )
        )


def _only(program: Program, kept: Mask) -> Program:
    """The program with some of its outputs."""
    if all(kept):
        return program
    rows = zip(program.outputs, kept, strict=True)
    outputs = tuple([atom for atom, wanted in rows if wanted])
    return simplify(Program(program.inputs, program.eqns, outputs))


@cached
def _forward_map(backward: Program, residuals: int, name: str) -> Program:
    """From residuals and tangents to the outputs' tangents: the transposed rule."""
    linear = (False,) * residuals + (True,) * (len(backward.inputs) - residuals)
    given = (True,) * len(backward.outputs)
    try:
        turned, reached = transpose_program(backward, linear, given)
    except errors.FnxError as error:
        raise errors.ArgumentError(
            errors.explain(
                f"forward mode through {name}, which has a custom_vjp",
                "its backward rule cannot be transposed, since it is not linear in the "
                f"cotangent ({error})",
                "use reverse mode (grad, vjp, jacrev), or define the function with "
                "custom_jvp",
            )
        ) from error

    def run(*args: Any) -> list[Any]:
        found = spread(evaluate(turned, args), reached)
        rows = zip(backward.inputs[residuals:], found, strict=True)
        return [zeros_like(var) if t is None else t for var, t in rows]

    return rewrite(run, turned.input_types, "transpose of a custom_vjp rule", turned)


# ---------------------------------------------------------------- batching


def _batch_outputs(
    program: Program, axis: MappedAxis, mapped: Mask
) -> tuple[Program, bool]:
    """The batched program with all outputs mapped, or none, and which of the two.

    None only if nothing is mapped: the cotangent of an output that all members share
    could not be divided among them.
    """
    lifted, flags = batch_program(program, axis, mapped)
    if not any(flags) and not any(mapped):
        return lifted, False
    return _mapped_outputs(program, axis, mapped, True), True


def _mapped_outputs(
    program: Program, axis: MappedAxis, mapped: Mask, flag: bool
) -> Program:
    """The batched program, all of whose outputs have the axis (or none, by `flag`)."""
    wanted = (flag,) * len(program.outputs)
    return _batched(program, axis, mapped, wanted)


def _batched(
    program: Program, axis: MappedAxis, mapped: Mask, wanted: Sequence[bool | None]
) -> Program:
    """The batched program; `wanted` says which outputs have the axis (`None`: any)."""
    lifted, flags = batch_program(program, axis, mapped)

    def run(*args: Any) -> list[Any]:
        rows = zip(evaluate(lifted, args), flags, wanted, strict=True)
        return [_with_axis(axis, x, found, want) for x, found, want in rows]

    return rewrite(run, lifted.input_types, "batch of a custom rule", lifted)


def _with_axis(axis: MappedAxis, x: Any, found: bool, wanted: bool | None) -> Any:
    if wanted is None or found == wanted:
        return x
    if not wanted:
        raise errors.ArgumentError(
            f"a custom rule depends on the mapped axis {axis.name!r}, and its function "
            "does not"
        )
    return along(axis, x)


def _forward_batched(
    program: Program, axis: MappedAxis, mapped: Mask, count: int, flag: bool
) -> tuple[Program, Mask]:
    """The batched forward program, and which residuals have the axis."""
    flags = batch_program(program, axis, mapped)[1]
    wanted = [flag] * count + [None] * (len(flags) - count)
    return _batched(program, axis, mapped, wanted), flags[count:]


def _backward_batched(
    program: Program, axis: MappedAxis, kept: Mask, flag: bool, inputs: Mask
) -> Program:
    """The batched backward program.

    An input without the axis serves every member of the batch: its cotangents are
    summed.
    """
    cotangents = (flag,) * (len(program.inputs) - len(kept))
    lifted, flags = batch_program(program, axis, (*kept, *cotangents))

    def run(*args: Any) -> list[Any]:
        results = evaluate(lifted, args)
        if not flag:
            return results  # nothing has the axis: the function runs once for all
        rows = zip(results, flags, inputs, strict=True)
        return [_cotangent(axis, ct, found, want) for ct, found, want in rows]

    return rewrite(run, lifted.input_types, "batch of a custom rule", lifted)


def _cotangent(axis: MappedAxis, ct: Any, found: bool, wanted: bool) -> Any:
    ct = ct if found else along(axis, ct)
    return ct if wanted else reduce_sum(ct, axes=(0,))
