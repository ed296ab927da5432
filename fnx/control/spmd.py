"""`spmd`: one program that several replicas run, each on a part of the arrays.

What `pmap` and `shard_map` become. The replicas are the points of a mesh of named axes;
a spec says, for each axis of an array, along which axes of the mesh it is cut. An
output that is not cut along some axis is the one of the first replicas there; an input
that is not cut is the same on all of them, so that its cotangent is the sum of theirs.
Its meaning is `as_one` (`joint.py`). Receives global arrays, gives global arrays.
Next on the walk: `members.py`; who runs the replicas is in `fnx/runtime/replicas.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fnx import errors
from fnx.control import joint
from fnx.control.call import Parts, call, chosen, spread, with_outputs
from fnx.control.held import equation_like, new_vars, others
from fnx.control.joint import Axes, Spec, Specs, as_one, names_of, whole
from fnx.core.cache import cached
from fnx.core.primitive import MappedAxis, Primitive, is_linear
from fnx.core.program import (
    Atom,
    Eqn,
    Program,
    Var,
    walk,
    with_programs,
)
from fnx.core.reference import run_reference
from fnx.core.simplify import needed_inputs
from fnx.core.trace import bind, constant, evaluate, source_of
from fnx.core.types import ArrayType
from fnx.dtypes import int32
from fnx.ops.arithmetic import add, mul, select
from fnx.ops.collective import psum
from fnx.ops.elementwise import eq
from fnx.ops.meeting import axis_index
from fnx.ops.sending import pbroadcast
from fnx.ops.shape import (
    broadcast_in_dim,
    reshape,
    scalar,
)
from fnx.transforms.batch import batch_program
from fnx.transforms.jvp import jvp_program
from fnx.transforms.rewrite import rewrite
from fnx.transforms.shard import Part, nested
from fnx.transforms.split import Split, split_program
from fnx.transforms.transpose import transpose_program

# Runs the replicas on their devices; `runtime.replicas` puts itself here.
runner: Callable[..., None] | None = None


class Spmd(Primitive):
    """spmd(*inputs, program, axes, ins, outs, devices): a program on all replicas.

    `program` takes and gives what one replica has; `ins` and `outs` are the specs of
    the arrays as wholes. `devices` names those of the replicas, in the order of the
    mesh; without any the replicas have the first ones that there are.
    """

    multiple = True
    compiled = True
    linear = True
    sees_axes = True

    def seen(self, *, axes: Axes, **_: Any) -> Axes:
        """The axes as the arrays have them."""
        return axes

    def results(self, *inputs: Any, **params: Any) -> Sequence[Any]:
        """The outputs of the equation; of derivatives, too."""
        found: Sequence[Any] = self(*inputs, **params)
        return found

    def infer(
        self,
        *types: ArrayType,
        program: Program,
        ins: Specs,
        outs: Specs,
        **mesh: Any,
    ) -> tuple[ArrayType, ...]:
        """The types of the outputs as wholes."""
        axes = self.seen(**mesh)
        rows = zip(types, program.input_types, ins, strict=True)
        for given, part, spec in rows:
            if (
                given.shape != whole(part, spec, axes).shape
                or given.dtype != part.dtype
            ):
                raise errors.ShapeError(
                    f"spmd: takes {whole(part, spec, axes)}, got {given}"
                )
        ends = zip(program.output_types, outs, strict=True)
        return tuple([whole(part, spec, axes) for part, spec in ends])

    def reference(
        self,
        *arrays: Any,
        program: Program,
        axes: Axes,
        ins: Specs,
        outs: Specs,
        devices: tuple[str, ...],
    ) -> Any:
        """The replicas as one program, by its reference rules."""
        return tuple(run_reference(as_one(program, axes, ins, outs), arrays))

    def write(self, outputs: Sequence[Any], *arrays: Any, **params: Any) -> None:
        """The replicas on their devices."""
        if runner is None:
            super().write(outputs, *arrays, **params)
        else:
            runner(outputs, arrays, **params)

    def body(
        self,
        *,
        program: Program,
        axes: Axes,
        ins: Specs,
        outs: Specs,
        devices: tuple[str, ...],
    ) -> Program | None:
        """The replicas as one program, where that is what runs them.

        Those on devices with memory of their own run there.
        """
        if backend_of(devices) != "cpu":
            return None
        return joint.together(program, axes, ins, outs)

    def checked(
        self, found: Any, eqn: Any, inputs: Sequence[Any]
    ) -> Sequence[Any] | None:
        """The replicas as one program, so that what goes wrong in any is a value."""
        params = eqn.params
        one = as_one(params["program"], params["axes"], params["ins"], params["outs"])
        checked = found.check(one)
        if not checked.sites and not eqn.effect:
            return None
        results = call(*inputs, program=checked.program, name=self.name)
        count = len(eqn.outputs)
        found.take([checked], results[count:])
        return tuple(results[:count])

    def pruned(self, eqn: Any, used: Sequence[bool]) -> Any:
        """The program without the outputs, and the inputs, that nobody needs."""
        program: Program = eqn.params["program"]
        needed = needed_inputs(program, used)
        if all(used) and all(needed):
            return eqn
        params = {
            **eqn.params,
            "program": with_outputs(program, needed, used),
            "ins": chosen(eqn.params["ins"], needed),
            "outs": chosen(eqn.params["outs"], used),
        }
        inputs, outputs = chosen(eqn.inputs, needed), chosen(eqn.outputs, used)
        return equation_like(eqn, inputs, outputs, params)

    def jvp(
        self,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        program: Program,
        ins: Specs,
        outs: Specs,
        **mesh: Any,
    ) -> tuple[Any, Any]:
        """The program with tangents, which are cut as their values are."""
        moving = tuple([t is not None for t in tangents])
        moved, out_moving = jvp_program(program, moving)
        results = self(
            *primals,
            *[t for t in tangents if t is not None],
            program=moved,
            ins=(*ins, *chosen(ins, moving)),
            outs=(*outs, *chosen(outs, out_moving)),
            **mesh,
        )
        count = len(outs)
        return results[:count], spread(results[count:], out_moving)

    def split(self, known: Sequence[bool], eqn: Any) -> Parts:
        """The two parts of the program; each replica keeps its own residuals."""
        params = eqn.params
        parts = split_program(params["program"], tuple(known))
        return _split_equation(eqn, tuple(known), parts)

    def transpose(
        self,
        ct: Any,
        *inputs: Any,
        program: Program,
        axes: Axes,
        ins: Specs,
        outs: Specs,
        **rest: Any,
    ) -> Sequence[Any]:
        """The program transposed, which adds up what all replicas owe an input."""
        linear = tuple([is_linear(x) for x in inputs])
        given = tuple([c is not None for c in ct])
        turned, reached = _turned(program, axes, ins, outs, linear, given)
        wanted = chosen(chosen(ins, linear), reached)
        results = self.results(
            *others(inputs, linear),
            *[c for c in ct if c is not None],
            program=turned,
            axes=axes,
            ins=(*others(ins, linear), *chosen(outs, given)),
            outs=wanted,
            **rest,
        )
        return spread(spread(results, reached), linear)

    def batch(
        self,
        axis: MappedAxis,
        args: Sequence[Any],
        mapped: Sequence[bool],
        *,
        program: Program,
        ins: Specs,
        outs: Specs,
        **mesh: Any,
    ) -> tuple[Any, Any]:
        """The batched program; no replica cuts the new axis."""
        lifted, out_mapped = batch_program(program, axis, tuple(mapped))
        results = self(
            *args,
            program=lifted,
            ins=_one_up(ins, mapped),
            outs=_one_up(outs, out_mapped),
            **mesh,
        )
        return results, out_mapped

    def cut(self, cutter: Any, eqn: Any, parts: Sequence[Any]) -> Any:
        """The program itself, cut along what axes the mesh has besides.

        That of all replicas, if it is for another mesh.
        """
        params = eqn.params
        axes, ins, outs = params["axes"], params["ins"], params["outs"]
        if not {*cutter.sizes.items()} >= {*axes}:
            return cutter.run(as_one(params["program"], axes, ins, outs), parts)
        inner = cutter.without([name for name, _ in axes])
        given = [inner.within(cutter, *row) for row in zip(parts, ins, strict=True)]
        ends = inner.run(params["program"], given)
        found = [end.value for end in ends]
        for axis in axes:
            flags = depends(params["program"], ins, axis)
            found = [
                pbroadcast(x, axis_name=axis[0], source=0, axis_size=axis[1])
                if varies and axis in _missing(spec, axes)
                else x
                for x, varies, spec in zip(found, flags, outs, strict=True)
            ]
        rows = zip(found, outs, ends, strict=True)
        return [Part(x, nested(spec, end.spec)) for x, spec, end in rows]

    def steps(self, plan: Any, *inputs: Any, **params: Any) -> None:
        """The host has the replicas run, and waits for them."""
        plan.host()


spmd = Spmd("spmd")


# ---------------------------------------------------------------- shapes


def backend_of(devices: Sequence[str]) -> str:
    """What runs programs on devices of these names; without any, the CPU.

    >>> backend_of(("cuda:0", "cuda:1")), backend_of(())
    ('cuda', 'cpu')
    """
    return devices[0].partition(":")[0] if devices else "cpu"


def flattened(program: Program, backend: str) -> Program:
    """The program of a replica without replicas in it: they are one program there.

    The devices are busy, so that they cannot run elsewhere: raises `ArgumentError`
    where they are to run on devices of another kind.
    """
    if not any(eqn.primitive is spmd for eqn in walk(program)):
        return program

    def run(*args: Any) -> list[Any]:
        env: dict[Var, Any] = dict(zip(program.inputs, args, strict=True))
        for eqn in program.eqns:
            inputs = [env[a] if isinstance(a, Var) else a for a in eqn.inputs]
            with source_of(eqn):
                if eqn.primitive is spmd:
                    found: Any = evaluate(_inner(eqn, backend), inputs)
                else:
                    params = with_programs(eqn, lambda p: flattened(p, backend)).params
                    found = bind(eqn.primitive, inputs, params)
            many = found if eqn.primitive.multiple else (found,)
            env.update(zip(eqn.outputs, many, strict=True))
        return [env[a] if isinstance(a, Var) else constant(a) for a in program.outputs]

    return rewrite(run, program.input_types, "spmd", program)


def _inner(eqn: Eqn, backend: str) -> Program:
    """What replicas inside of a replica compute, as one program."""
    params = eqn.params
    wanted = backend_of(params["devices"])
    if params["devices"] and wanted != backend:
        raise errors.ArgumentError(
            errors.explain(
                f"replicas on {', '.join(params['devices'])} inside of a replica",
                f"it runs on a device of {backend}, and they run there, too",
                "give both devices of one kind",
            )
        )
    held = flattened(params["program"], backend)
    return as_one(held, params["axes"], params["ins"], params["outs"])


def depends(program: Program, ins: Specs, axis: tuple[Hashable, int]) -> Sequence[bool]:
    """Which outputs may differ along an axis of the mesh: those `vmap` would map."""
    mapped = tuple([axis[0] in names_of(spec) for spec in ins])
    return batch_program(program, MappedAxis(*axis), mapped)[1]


def _one_up(specs: Specs, mapped: Sequence[bool]) -> Specs:
    """The specs of arrays of which some have a new leading axis."""
    rows = zip(specs, mapped, strict=True)
    return tuple([((), *spec) if is_mapped else spec for spec, is_mapped in rows])


# ---------------------------------------------------------------- derivatives


@cached
def _turned(
    program: Program,
    axes: Axes,
    ins: Specs,
    outs: Specs,
    linear: tuple[bool, ...],
    given: tuple[bool, ...],
) -> tuple[Program, tuple[bool, ...]]:
    """The transposed program of a replica, and which linear inputs it reaches.

    A cotangent is that of the first replicas along the axes that do not cut its output;
    what an input gets along axes that do not cut it is added up.
    """
    turned, reached = transpose_program(program, linear, given)
    fixed = len(program.inputs) - sum(linear)
    sources = chosen(outs, given)
    targets = chosen(chosen(ins, linear), reached)

    def run(*args: Any) -> list[Any]:
        pairs = zip(args[fixed:], sources, strict=True)
        cts = [_of_first(ct, spec, axes) for ct, spec in pairs]
        rows = zip(evaluate(turned, [*args[:fixed], *cts]), targets, strict=True)
        return [_added_up(x, spec, axes) for x, spec in rows]

    return rewrite(run, turned.input_types, "transpose", program), reached


def _of_first(ct: Any, spec: Spec, axes: Axes) -> Any:
    """The cotangent on the first replicas along axes that do not cut; zeros elsewhere.

    So the output is what the first replica gives, and nothing else.
    """
    rest = _missing(spec, axes)
    if not rest:
        return ct
    number = axis_index(axis_name=rest[0][0], axis_size=rest[0][1])
    for name, size in rest[1:]:
        own = axis_index(axis_name=name, axis_size=size)
        number = add(mul(number, scalar(size, int32)), own)
    is_first = broadcast_in_dim(eq(number, scalar(0, int32)), shape=ct.shape, dims=())
    return select(is_first, ct, 0)


def _added_up(x: Any, spec: Spec, axes: Axes) -> Any:
    for name, size in _missing(spec, axes):
        x = psum(x, axis_name=name, axis_size=size)
    return x


def _missing(spec: Spec, axes: Axes) -> list[tuple[Hashable, int]]:
    """The axes of the mesh that do not cut an array."""
    names = names_of(spec)
    return [(name, size) for name, size in axes if name not in names and size > 1]


# ---------------------------------------------------------------- splitting


def _split_equation(eqn: Any, known: tuple[bool, ...], parts: Split) -> Parts:
    """The two equations; a residual that is an input is read where it is.

    Others have a leading axis with a part for each replica.
    """
    params, first = eqn.params, parts.known
    ins, outs, axes = params["ins"], params["outs"], eqn.primitive.seen(**params)
    given = chosen(eqn.inputs, known)
    count = len(first.outputs) - len(parts.residuals)
    ends, kept = first.outputs[:count], first.outputs[count:]
    found: dict[Any, Atom] = dict(zip(first.inputs, given, strict=True))
    specs: dict[Any, Spec] = dict(zip(first.inputs, chosen(ins, known), strict=True))
    computed = [x for x in dict.fromkeys(kept) if isinstance(x, Var) and x not in found]
    every = tuple([name for name, _ in axes])
    stacked = {x: (every, *[()] * len(x.type.shape)) for x in computed}
    rows = [x.type.with_shape((1, *x.type.shape)) for x in computed]
    pairs = zip(rows, stacked.values(), strict=True)
    wholes = new_vars([whole(type, spec, axes) for type, spec in pairs])
    early = equation_like(
        eqn,
        given,
        (*chosen(eqn.outputs, parts.outputs_known), *wholes),
        {
            **params,
            "program": _with_rows(
                Program(first.inputs, first.eqns, (*ends, *computed)), count
            ),
            "ins": chosen(ins, known),
            "outs": (*chosen(outs, parts.outputs_known), *stacked.values()),
        },
    )
    found.update(zip(computed, wholes, strict=True))
    specs.update(stacked)
    flags = tuple([end in stacked for end in kept])
    late_inputs = [found.get(end, end) for end in kept]
    late = equation_like(
        eqn,
        (*late_inputs, *others(eqn.inputs, known)),
        others(eqn.outputs, parts.outputs_known),
        {
            **params,
            "program": _from_rows(parts.unknown, flags),
            "ins": (*[specs.get(end, ()) for end in kept], *others(ins, known)),
            "outs": others(outs, parts.outputs_known),
        },
    )
    return [early], [late]


def _with_rows(program: Program, count: int) -> Program:
    """The program whose outputs after the first `count` have a new axis of size 1."""

    def run(*args: Any) -> list[Any]:
        results = evaluate(program, args)
        rows = [reshape(x, shape=(1, *x.shape)) for x in results[count:]]
        return [*results[:count], *rows]

    return rewrite(run, program.input_types, "split", program)


def _from_rows(program: Program, flags: Sequence[bool]) -> Program:
    """The program whose first inputs have a leading axis of size 1 where flagged."""
    marks = (*flags, *[False] * (len(program.inputs) - len(flags)))

    def run(*args: Any) -> list[Any]:
        rows = zip(args, marks, strict=True)
        return evaluate(
            program, [reshape(x, shape=x.shape[1:]) if row else x for x, row in rows]
        )

    types = [
        type.with_shape((1, *type.shape)) if row else type
        for type, row in zip(program.input_types, marks, strict=True)
    ]
    return rewrite(run, types, "split", program)
