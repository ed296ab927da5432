"""`attention` and `attention_gradients`: programs that backends may have routines for.

They hold the program that they stand for. A backend that has no routine, and every
transformation that makes something else of them, takes that. Under `vmap` they stay
what they are, with more members in a batch, and reverse mode makes the gradients of the
one of the other: by what the routines know, the logsumexp of each query's products.
Arrays have the axes batch, positions, heads, and numbers of a head; the logsumexp has
batch, heads, positions. What users call is in `fnx.nn.attention`; next on the walk:
`fnx.compiler`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fnx.config import config
from fnx.control.call import call, check_arguments, chosen, with_outputs
from fnx.control.custom import custom_vjp_linear
from fnx.control.held import equation_like, new_vars, parted
from fnx.core.attended import FORWARD, GRADIENTS, Attended
from fnx.core.cache import cached
from fnx.core.primitive import MappedAxis, Primitive
from fnx.core.program import Eqn, Program, walk
from fnx.core.reference import run_reference
from fnx.core.trace import evaluate
from fnx.core.types import ArrayType
from fnx.ops.families import along
from fnx.ops.shape import reshaped
from fnx.transforms.batch import batch_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import Mask, rewrite
from fnx.transforms.shard import Cutter, Part, Spec
from fnx.transforms.split import linearize_program
from fnx.transforms.transpose import transpose_program

_NAME = "dot_product_attention"


class _Standing(Primitive):
    """What the two share: they compute what their program does."""

    multiple = True
    compiled = True
    linear = True
    sees_axes = True

    def infer(self, *types: ArrayType, **params: Any) -> tuple[ArrayType, ...]:
        """The program's output types; the arguments are of its input types."""
        program = self._program(params)
        check_arguments(self.name, program, types)
        return program.output_types

    def reference(self, *arrays: Any, **params: Any) -> tuple[Any, ...]:
        """The program by its reference rules."""
        return tuple(run_reference(self._program(params), arrays))

    def body(self, **params: Any) -> Program:
        """The program."""
        return self._program(params)

    def body_on(self, backend: str, **params: Any) -> Program:
        """The program, of which a CPU has one of its own."""
        return self._program(params, "cpu" if backend == "cpu" else "program")

    def _program(self, params: dict[str, Any], which: str = "program") -> Program:
        program: Program = params[which]
        return program

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The program with tangents."""
        return call.jvp(primals, tangents, program=self._program(params), name=_NAME)

    def jet(
        self, primals: Sequence[Any], series: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The program with derivatives."""
        return call.jet(primals, series, program=self._program(params), name=_NAME)

    def transpose(self, ct: Any, *inputs: Any, **params: Any) -> Sequence[Any]:
        """The transposed program."""
        return call.transpose(ct, *inputs, program=self._program(params), name=_NAME)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        **params: Any,
    ) -> tuple[Any, Any]:
        """Members of members are members of one batch.

        What all members share is repeated for each, unless products of few queries are
        smaller than that: then it is no attention any more.
        """
        _, length, _, width = args[0].type.shape[-4:]
        if not all(mapped[:3]) and length < width:
            program = self._program(params)
            return call.batch(axis, args, mapped, program=program, name=_NAME)
        pairs = zip(args, mapped, strict=True)
        whole = [x if is_mapped else along(axis, x) for x, is_mapped in pairs]
        wider = _changed(params, lambda program: _of_one_batch(program, axis))
        results = self(*map(_joined, whole), **wider)
        return tuple([_parted(x, axis) for x in results]), (True,) * len(results)

    def cut(
        self, cutter: Cutter, eqn: Eqn, parts: Sequence[Part]
    ) -> Sequence[Part] | None:
        """The attention of a device's members and heads; else it is the program's."""
        cuts = {part.spec for part in parts[:3]}
        spec = cuts.pop()
        if cuts or spec[1] or spec[3]:
            return None
        ins = [_alike(spec, atom.type) for atom in eqn.inputs]
        outs = [_alike(spec, var.type) for var in eqn.outputs]
        params = _changed(eqn.params, lambda p: _own_program(p, cutter, spec))
        held = [value for value in params.values() if isinstance(value, Program)]
        if any(inner.primitive.meets for own in held for inner in walk(own)):
            return None
        values = [cutter.moved(*row).value for row in zip(parts, ins, strict=True)]
        results = self(*values, **params)
        return [Part(x, out) for x, out in zip(results, outs, strict=True)]

    def attends(self, **params: Any) -> tuple[str, Attended]:
        """What it computes of an attention."""
        return self._part, params["attended"]

    _part = FORWARD

    def steps(self, plan: Any, *inputs: Any, **params: Any) -> None:
        """One step, which has the program beside it."""
        plan.attend(self._program(params), inputs)


class _Attention(_Standing):
    """attention(q, k, v, program, cpu, gradients, attended): out[, logsumexp].

    The programs give both; `gradients` is that of `attention_gradients`.
    """

    def _program(self, params: dict[str, Any], which: str = "program") -> Program:
        program: Program = params[which]
        return program if params["attended"].logsumexp else _output_alone(program)

    def pruned(self, eqn: Eqn, used: Sequence[bool]) -> Eqn:
        """Without the logsumexp where nobody needs it."""
        attended: Attended = eqn.params["attended"]
        if not attended.logsumexp or used[1]:
            return eqn
        params = {**eqn.params, "attended": replace(attended, logsumexp=False)}
        return equation_like(eqn, eqn.inputs, eqn.outputs[:1], params)

    def jvp(
        self, primals: Sequence[Any], tangents: Sequence[Any], **params: Any
    ) -> tuple[Any, Any]:
        """The program with tangents, whose transpose are the gradients.

        Where the logsumexp is given, too, it moves as well: there is no such routine.
        """
        attended: Attended = params["attended"]
        if attended.logsumexp:
            return super().jvp(primals, tangents, **params)
        wider = {**params, "attended": replace(attended, logsumexp=True)}
        out, sums = self(*primals, **wider)
        moving = tuple([t is not None for t in tangents])
        residuals = *primals, out, sums
        cpu = _of_what_runs(params["cpu"], config.strong_zero)
        moved = custom_vjp_linear(
            *residuals,
            *[t for t in tangents if t is not None],
            backward=_backward(params["gradients"], cpu, attended, moving),
            forward=_forward(self._program(params), (out.type, sums.type), moving),
            residuals=len(residuals),
            outputs=(out.type,),
            name=_NAME,
        )
        return (out,), moved


class _Gradients(_Standing):
    """attention_gradients(q, k, v, out, logsumexp, ct, program, cpu, attended).

    The cotangents of q, k and v for one of the output, which it is linear in.
    """

    _part = GRADIENTS


attention = _Attention("attention")
attention_gradients = _Gradients("attention_gradients")


@cached
def _output_alone(program: Program) -> Program:
    return with_outputs(program, (True,) * len(program.inputs), (True, False))


def _changed(
    params: Mapping[str, Any], change: Callable[[Program], Program]
) -> dict[str, Any]:
    """The params with other programs."""
    return {
        name: change(value) if isinstance(value, Program) else value
        for name, value in params.items()
    }


# ---------------------------------------------------------------- derivatives


@cached
def _backward(
    gradients: Program, cpu: Program, attended: Attended, moving: Mask
) -> Program:
    """From what is saved and a cotangent of the output to cotangents of what moves."""
    inputs, outputs = new_vars(gradients.input_types), new_vars(gradients.output_types)
    params = {"program": gradients, "cpu": cpu, "attended": attended}
    eqn = Eqn(attention_gradients, inputs, outputs, params, None)
    return Program(inputs, (eqn,), chosen(outputs, moving))


@cached
def _of_what_runs(program: Program, strong_zero: bool) -> Program:
    """The gradients of what a CPU computes, from what `attention_gradients` takes.

    They depend on the option `strong_zero`.
    """
    parts = linearize_program(_output_alone(program), (True,) * 3, 1)
    count = len(parts.residuals)
    linear = (False,) * count + (True,) * 3
    turned, _ = transpose_program(parts.linear, linear, (True,))

    def run(q: Any, k: Any, v: Any, _: Any, sums: Any, ct: Any) -> list[Any]:
        values = evaluate(parts.primal, [q, k, v])
        return evaluate(turned, [*values[len(values) - count :], ct])

    out, sums = program.output_types
    types = [*program.input_types, out, sums, out]
    return rewrite(run, types, "transpose", program)


@cached
def _forward(program: Program, more: tuple[ArrayType, ...], moving: Mask) -> Program:
    """From what is saved and the tangents of what moves to that of the output."""
    moved, _ = jvp_program(program, moving)
    saved = new_vars(more)
    primals, tangents = parted(moved.inputs, 3)
    outputs = moved.outputs[1:]
    return Program((*primals, *saved, *tangents), moved.eqns, outputs)


# ---------------------------------------------------------------- several devices


def _alike(spec: Spec, type: ArrayType) -> Spec:
    """How an array is cut whose batch and heads are cut as those of others."""
    batch, _, heads, _ = spec
    return spec if len(type.shape) == 4 else (batch, heads, ())


def _own_program(program: Program, cutter: Cutter, spec: Spec) -> Program:
    """The program of one device."""
    ins = [_alike(spec, type) for type in program.input_types]
    outs = [_alike(spec, type) for type in program.output_types]
    return cutter.program(program, ins, outs)[0]


# ---------------------------------------------------------------- batching


@cached
def _of_one_batch(program: Program, axis: MappedAxis) -> Program:
    """The program for as many times the members of a batch."""
    lifted, _ = batch_program(program, axis, (True,) * len(program.inputs))

    def run(*args: Any) -> list[Any]:
        apart = [_parted(x, axis) for x in args]
        return [_joined(x) for x in evaluate(lifted, apart)]

    types = [
        t.with_shape((axis.size * t.shape[0], *t.shape[1:]))
        for t in program.input_types
    ]
    return rewrite(run, types, "batch", program)


def _joined(x: Any) -> Any:
    """An array whose first two axes are one."""
    shape = x.type.shape
    return reshaped(x, (shape[0] * shape[1], *shape[2:]))


def _parted(x: Any, axis: MappedAxis) -> Any:
    """An array whose first axis is two, of which the first is the mapped one."""
    size, *rest = x.type.shape
    return reshaped(x, (axis.size, size // axis.size, *rest))
