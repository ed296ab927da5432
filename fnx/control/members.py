"""`spmd_members`: `spmd` over the devices of several processes, each with its members.

What `pmap` becomes in such a job, inside of another transformation. Arrays that are cut
are here the process's own members of those of all; whoever differentiates sees a
function of these alone, and what all processes owe one another is added up in the
derivative. All processes of the job come to it in the same order. Receives and gives
arrays of this process. Next on the walk: `scan.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx import errors
from fnx.control.joint import Axes, Specs, names_of
from fnx.control.spmd import Spmd, depends
from fnx.core.cache import cached
from fnx.core.program import Program
from fnx.core.trace import evaluate
from fnx.ops.pieces import part_of
from fnx.ops.sending import pbroadcast
from fnx.ops.shape import reshape
from fnx.transforms.rewrite import rewrite

# Runs the replicas of this process; `runtime.replicas` puts itself here.
runner: Callable[..., None] | None = None


class _Members(Spmd):
    """spmd_members(*inputs, program, axes, ins, outs, devices, processes): `spmd`.

    The one axis is that of all members, as many of each of `processes`. What is not cut
    is an input that all have alike: its cotangent is the sum of all that it is owed.
    """

    def seen(self, *, axes: Axes, processes: int, **_: Any) -> Axes:
        """The axis as this process's arrays have it."""
        ((name, size),) = axes
        return ((name, size // processes),)

    def results(self, *inputs: Any, **params: Any) -> Sequence[Any]:
        """The outputs, of which those that are not cut are the first of each process.

        As outputs of the equation they are members, so that each process owes its own.
        """
        program, outs = _with_members(
            params["program"], params["axes"], params["ins"], params["outs"]
        )
        found = self(*inputs, **{**params, "program": program, "outs": outs})
        rows = zip(found, params["outs"], outs, strict=True)
        return [x if old == new else _first(x) for x, old, new in rows]

    def reference(self, *arrays: Any, processes: int, **params: Any) -> Any:
        """The replicas as one program; of several processes nobody has all."""
        _refuse_alone("its reference rules", processes)
        return super().reference(*arrays, **params)

    def write(
        self, outputs: Sequence[Any], *arrays: Any, processes: int, **params: Any
    ) -> None:
        """The replicas on the devices of all processes."""
        if runner is None or processes == 1:
            super().write(outputs, *arrays, **params)
        else:
            runner(outputs, arrays, **params, processes=processes)

    def body(self, *, processes: int, **params: Any) -> Program | None:
        """The replicas as one program, where they are all here."""
        return super().body(**params) if processes == 1 else None

    def checked(
        self, found: Any, eqn: Any, inputs: Sequence[Any]
    ) -> Sequence[Any] | None:
        """Nobody looks for what goes wrong in replicas of others."""
        _refuse_alone("checkify", eqn.params["processes"])
        return super().checked(found, eqn, inputs)

    def cut(self, cutter: Any, eqn: Any, parts: Sequence[Any]) -> Any:
        """An error: a process's members are no array of all devices."""
        _refuse_alone("jit with shardings", eqn.params["processes"])
        return super().cut(cutter, eqn, parts)


@cached
def _with_members(
    program: Program, axes: Axes, ins: Specs, outs: Specs
) -> tuple[Program, Specs]:
    """The program whose outputs are all cut: what was not has a leading axis.

    They are those of the first replica, which it has to send where they may differ.
    """
    ((name, size),) = axes
    whole = [name not in names_of(spec) for spec in outs]
    varies = depends(program, ins, (name, size))

    def run(*args: Any) -> list[Any]:
        results = evaluate(program, args)
        for number, (is_whole, differs) in enumerate(zip(whole, varies, strict=True)):
            x = results[number]
            if is_whole and differs:
                x = pbroadcast(x, axis_name=name, source=0, axis_size=size)
            results[number] = reshape(x, shape=(1, *x.shape)) if is_whole else x
        return results

    cut = [
        ((name,), *spec) if is_whole else spec
        for spec, is_whole in zip(outs, whole, strict=True)
    ]
    return rewrite(run, program.input_types, "spmd", program), tuple(cut)


def _first(x: Any) -> Any:
    return reshape(part_of(x, 0, 0, 1), shape=x.shape[1:])


def _refuse_alone(asker: str, processes: int) -> None:
    if processes > 1:
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: pmap over {processes} processes",
                "this one has only its own members",
                "use fnx.shard_map with arrays of all",
            )
        )


spmd_members = _Members("spmd_members")
