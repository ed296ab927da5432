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
from fnx.control.call import call, check_arguments, chosen, spread
from fnx.control.held import filled, instantiated, new_vars, parted
from fnx.core.axes import bound_axes, rebound
from fnx.core.cache import cached
from fnx.core.primitive import MappedAxis, Primitive, is_linear
from fnx.core.program import Eqn, Program
from fnx.core.reference import run_reference
from fnx.core.simplify import simplify
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.ops.arithmetic import add
from fnx.ops.families import along
from fnx.ops.reduce import reduce_sum
from fnx.ops.shape import zeros_like
from fnx.transforms.batch import batch_program, batched
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, alone, rewrite
from fnx.transforms.transpose import transpose_program


class Rule:
    """A program that is made when it is first asked for; equal only to itself.

    A `masked` rule has one for every mask of what is not zero. Named axes are those
    that are bound where the rule is made, since the program may be asked for later.
    """

    __slots__ = ("_axes", "_make", "_programs", "masked")

    def __init__(self, make: Callable[[Mask], Program], masked: bool = False) -> None:
        self._make: Callable[[Mask], Program] | None = make
        self._programs: dict[Mask, Program] = {}
        self._axes = bound_axes()
        self.masked = masked

    def program(self, mask: Mask) -> Program:
        """The program for a mask, traced now if it was not before."""
        key = mask if self.masked else ()
        if key not in self._programs:
            assert self._make is not None
            with rebound(self._axes):
                self._programs[key] = self._make(mask)
            if not self.masked:
                self._make = None  # whatever it captured is free
        return self._programs[key]

    def given(self, values: Sequence[Any], likes: Sequence[Any]) -> list[Any]:
        """Those of the values that the program takes; `None` stands for a zero."""
        if self.masked:
            return [x for x in values if x is not None]
        return instantiated(values, likes)

    def taken(self, flags: Sequence[bool], mask: Mask) -> Mask:
        """The flags of what the program for a mask takes."""
        return chosen(flags, mask) if self.masked else tuple(flags)

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

    def dependences(
        self, follow: Any, sets: Sequence[Any], known: Sequence[Any], **params: Any
    ) -> Sequence[Any]:
        """What the tangents that the rules give depend on."""
        program: Program = params["program"]
        moving = tuple([s is not None for s in sets])
        single = alone(self, new_vars(program.input_types), params)
        moved, reached = jvp_program(single, moving)
        tangent = Program(
            moved.inputs, moved.eqns, moved.outputs[len(program.outputs) :]
        )
        given = [s for s in sets if s is not None]
        start = [*[None] * len(sets), *given]
        return spread(follow(tangent, start, [*known, *[None] * len(given)]), reached)

    def transpose(
        self, ct: Any, *inputs: Any, program: Program, name: str, **rules: Any
    ) -> Sequence[Any]:
        """Transposes the program: a linear function needs no rule."""
        return call.transpose(ct, *inputs, program=program, name=name)


class _CustomJvp(_CustomCall):
    """custom_jvp_call: `rule` takes the inputs and a tangent for each `differentiable`
    one (that is not zero, if it is masked); it gives the outputs and a tangent for each
    inexact output.
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
        moves = chosen(tangents, differentiable)
        given = rule.given(moves, chosen(primals, differentiable))
        results = evaluate(rule.program(_present(moves)), [*primals, *given])
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
        moves = chosen(mapped, differentiable)

        def lifted_rule(moving: Mask) -> Program:
            flags = (*mapped, *rule.taken(moves, moving))
            return _mapped_outputs(rule.program(moving), axis, flags, flag)

        results = self(
            *args,
            program=lifted,
            rule=Rule(lifted_rule, rule.masked),
            differentiable=differentiable,
            name=name,
        )
        return results, (flag,) * len(results)


class _CustomVjp(_CustomCall):
    """custom_vjp_call: `forward` takes the inputs and gives the outputs, then the
    residuals; `backward` takes the residuals and a cotangent for each inexact output
    (that is not zero, if it is masked), and gives one for each `differentiable` input.

    Masks of `forward` are of the differentiable inputs, those of `backward` of these
    and of the inexact outputs. `tangent`, if there is one, is the rule of forward mode.
    """

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        forward: Rule,
        backward: Rule,
        tangent: Rule | None,
        differentiable: Mask,
        name: str,
    ) -> tuple[Any, Any]:
        """The forward program, and the linear map that the backward one transposes."""
        _check_moving(name, tangents, differentiable)
        inexact = tuple([dtypes.is_inexact(t.dtype) for t in program.output_types])
        moving = _present(chosen(tangents, differentiable))
        values = evaluate(forward.program(moving), primals)
        outputs, residuals = parted(values, len(program.outputs))

        apply: Program | None = None
        count = len(residuals)
        if tangent is not None:
            apply = _tangent_map(tangent.program(moving), residuals, moving, inexact)
            residuals = (*residuals, *primals)

        def turned(given: Mask) -> Program:
            made = _only(backward.program((*moving, *given)), moving)
            return _with_residuals(made, count, residuals[count:])

        linear = custom_vjp_symbolic if backward.masked else custom_vjp_linear
        every = (True,) * sum(inexact)
        moved = linear(
            *residuals,
            *[t for t in tangents if t is not None],
            backward=Rule(turned, True) if backward.masked else turned(every),
            forward=apply,
            residuals=len(residuals),
            outputs=chosen(program.output_types, inexact),
            name=name,
        )
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
        tangent: Rule | None,
        differentiable: Mask,
        name: str,
    ) -> tuple[Any, Any]:
        """The batched program with the batched rules."""
        flags = tuple(mapped)
        lifted, flag = _batch_outputs(program, axis, flags)
        count = len(program.outputs)
        inputs = chosen(flags, differentiable)

        def lifted_forward(moving: Mask) -> Program:
            rule = forward.program(moving)
            return _forward_batched(rule, axis, flags, count, flag)[0]

        def lifted_backward(mask: Mask) -> Program:
            rule = forward.program(mask[: len(inputs)])
            kept = _forward_batched(rule, axis, flags, count, flag)[1]
            return _backward_batched(backward.program(mask), axis, kept, flag, inputs)

        def lifted_tangent(moving: Mask) -> Program:
            assert tangent is not None
            return _mapped_outputs(
                tangent.program(moving), axis, (*flags, *inputs), flag
            )

        results = self(
            *args,
            program=lifted,
            forward=Rule(lifted_forward, forward.masked),
            backward=Rule(lifted_backward, backward.masked),
            tangent=None if tangent is None else Rule(lifted_tangent),
            differentiable=differentiable,
            name=name,
        )
        return results, (flag,) * count


class _VjpLinear(Primitive):
    """custom_vjp_linear: from residuals and linear inputs to what is linear in them.

    `backward` is its transpose, from residuals and cotangents of the `outputs`; or a
    rule for those that are not zero. `forward` is the map itself; where it is `None`,
    forward mode transposes `backward` once more.
    """

    multiple = True
    linear = True
    sees_axes = True

    def infer(
        self,
        *types: ArrayType,
        backward: Program | Rule,
        forward: Program | None,
        residuals: int,
        outputs: tuple[ArrayType, ...],
        name: str,
    ) -> tuple[ArrayType, ...]:
        """The types of the outputs."""
        return outputs

    def reference(self, *arrays: Any, **params: Any) -> tuple[Any, ...]:
        """The map's program by its reference rules."""
        return tuple(run_reference(self.body(**params), arrays))

    def acts(self, eqn: Eqn) -> bool:
        """What a backward rule does besides, it does when it pulls a cotangent back."""
        forward = eqn.params["forward"]
        return forward is not None and forward.effect

    def body(
        self,
        *,
        backward: Program | Rule,
        forward: Program | None,
        residuals: int,
        outputs: tuple[ArrayType, ...],
        name: str,
    ) -> Program:
        """The map, which may have to be made of the backward program."""
        if forward is not None:
            return forward
        return _forward_map(_turned(backward, (True,) * len(outputs)), residuals, name)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The map itself where the residuals rest, besides that of its program."""
        residuals: int = params["residuals"]
        fixed, given = parted(primals, residuals)
        moves = tangents[residuals:]
        found: list[Any] = [None] * len(params["outputs"])
        if any(t is not None for t in moves):
            found = list(self(*fixed, *instantiated(moves, given), **params))
        if all(t is None for t in tangents[:residuals]):
            return self(*primals, **params), found
        rest = [*tangents[:residuals], *[None] * len(moves)]
        program = self.body(**params)
        results, shifts = call.jvp(primals, rest, program=program, name=params["name"])
        return results, [_sum(a, b) for a, b in zip(found, shifts, strict=True)]

    def transpose(
        self,
        ct: Any,
        *inputs: Any,
        backward: Program | Rule,
        forward: Program | None,
        residuals: int,
        outputs: tuple[ArrayType, ...],
        name: str,
    ) -> Sequence[Any]:
        """The user's backward rule."""
        given = _present(ct)
        masked = isinstance(backward, Rule)
        cts = filled(ct, given if masked else [True] * len(ct), outputs)
        results = evaluate(_turned(backward, given), [*inputs[:residuals], *cts])
        asked = [is_linear(x) for x in inputs[residuals:]]
        pairs = zip(results, asked, strict=True)
        return [None] * residuals + [c if wanted else None for c, wanted in pairs]

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        backward: Program | Rule,
        forward: Program | None,
        residuals: int,
        outputs: tuple[ArrayType, ...],
        name: str,
    ) -> tuple[Any, Any]:
        """The batched programs; linear inputs without the axis are repeated."""
        moves = zip(args[residuals:], mapped[residuals:], strict=True)
        repeated = [t if is_mapped else along(axis, t) for t, is_mapped in moves]
        own = tuple(mapped[:residuals])

        def lifted(program: Program) -> Program:
            count = len(program.inputs) - residuals
            return _mapped_outputs(program, axis, (*own, *[True] * count), True)

        turned: Program | Rule
        if isinstance(backward, Rule):
            rule = backward
            turned = Rule(lambda given: lifted(rule.program(given)), True)
        else:
            turned = lifted(backward)
        results = self(
            *args[:residuals],
            *repeated,
            backward=turned,
            forward=None if forward is None else lifted(forward),
            residuals=residuals,
            outputs=tuple([batched(type, axis.size) for type in outputs]),
            name=name,
        )
        return results, (True,) * len(outputs)


class _VjpSymbolic(_VjpLinear):
    """The same whose backward is a rule, which no two equations share."""

    personal = True


def _turned(backward: Program | Rule, given: Mask) -> Program:
    """The backward program for cotangents of which these are given."""
    return backward.program(given) if isinstance(backward, Rule) else backward


custom_jvp_call = _CustomJvp("custom_jvp_call")
custom_vjp_call = _CustomVjp("custom_vjp_call")
custom_vjp_linear = _VjpLinear("custom_vjp_linear")
custom_vjp_symbolic = _VjpSymbolic("custom_vjp_symbolic")


def _sum(a: Any, b: Any) -> Any:
    """The sum of two tangents, where `None` is zero."""
    if a is None or b is None:
        return b if a is None else a
    return add(a, b)


def _present(values: Sequence[Any]) -> Mask:
    """Which values there are, rather than zeros."""
    return tuple([x is not None for x in values])


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


def _tangent_map(
    rule: Program, residuals: Sequence[Any], moving: Mask, inexact: Mask
) -> Program:
    """The linear map that a jvp rule is, from residuals, inputs and moving tangents."""
    count = len(rule.inputs) - len(moving)
    moves = rule.inputs[count:]

    def run(*args: Any) -> list[Any]:
        _, primals, given = parted(args, len(residuals), count)
        tangents = instantiated(spread(given, moving), moves)
        return evaluate(rule, [*primals, *tangents])[len(inexact) :]

    types = [x.type for x in (*residuals, *rule.inputs[:count], *chosen(moves, moving))]
    return rewrite(run, types, "jvp of a custom rule", rule)


def _with_residuals(backward: Program, count: int, more: Sequence[Any]) -> Program:
    """The backward program with more residuals, which it ignores."""
    if not more:
        return backward
    extra = new_vars([x.type for x in more])
    inputs = (*backward.inputs[:count], *extra, *backward.inputs[count:])
    return Program(inputs, backward.eqns, backward.outputs)


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
                f"its backward rule cannot be transposed ({error})",
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
