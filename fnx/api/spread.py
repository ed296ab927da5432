"""What `pmap` and `shard_map` share: a function traced for one replica, and its runs.

Receives the program of a replica, a mesh, and how arrays are cut; inside of a trace it
becomes an equation `spmd`, else it runs on the devices of the mesh, and gives arrays
that know their parts. Next on the walk: `pmap.py`, `shard_map.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx import errors
from fnx.config import watching
from fnx.control import joint
from fnx.control.joint import Specs, as_one, whole
from fnx.control.members import spmd_members
from fnx.control.spmd import spmd
from fnx.core import hooks
from fnx.core.array import Array
from fnx.core.axes import bound_axes
from fnx.core.cache import cached
from fnx.core.program import Program, walk
from fnx.core.trace import evaluate, tracing
from fnx.records import record
from fnx.runtime.array import ConcreteArray
from fnx.runtime.device import CPU, placed
from fnx.runtime.device_array import put
from fnx.runtime.eager import checked_kinds
from fnx.runtime.executable import single
from fnx.runtime.in_parts import sharded
from fnx.runtime.mesh import Mesh
from fnx.runtime.processes import processes
from fnx.runtime.sharding import NamedSharding
from fnx.runtime.spread import Replicated, joined_members, own_members, spec_of


@record(eq=False)
class Spread:
    """A traced function on a mesh.

    The program's inputs are the `captured` arrays, which every replica has whole, then
    the leaves of the arguments; `ins` and `outs` say how these and the outputs are cut.
    """

    asker: str
    program: Program
    captured: tuple[Array, ...]
    mesh: Mesh
    ins: Specs
    outs: Specs
    in_names: tuple[str, ...]
    out_names: tuple[str, ...]

    def __call__(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """The outputs for whole arrays."""
        arrays = [*self.captured, *leaves]
        return spmd(*arrays, **self._params) if tracing() else self._run(arrays)

    def of_members(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """The outputs for this process's members of stacked arrays.

        Of several processes all come here in the same order.
        """
        if self.mesh.is_local:
            return self(leaves)
        arrays = [*self.captured, *leaves]
        if tracing():
            params = {**self._params, "processes": processes().count}
            return spmd_members.results(*arrays, **params)
        specs = zip(arrays, self.ins, strict=True)
        joined = [joined_members(x, spec, self.mesh) for x, spec in specs]
        rows = zip(self._run(joined), self.outs, strict=True)
        return [own_members(x, spec, self.mesh) for x, spec in rows]

    def as_program(self) -> Program:
        """The program of whole arrays with the one equation of all replicas."""
        rows = zip(self.program.input_types, self.ins, strict=True)
        return single(spmd, [whole(*row, self.mesh.axes) for row in rows], self._params)

    @property
    def _params(self) -> dict[str, Any]:
        """The params of the equation."""
        return {
            "program": self.program,
            "axes": self.mesh.axes,
            "ins": self.ins,
            "outs": self.outs,
            "devices": tuple([str(device) for device in self.mesh.devices.flat]),
        }

    def _run(self, arrays: Sequence[Any]) -> list[Any]:
        usual = not hooks.busy and self.mesh.is_local and self.mesh.backend == "cpu"
        cut = self.program, self.mesh, self.ins, self.outs
        native = _jitted_as_one(*cut) if usual else None
        if native is not None:
            function, shardings = native
            found = function(*[ConcreteArray(x._numpy(), x.type) for x in arrays])
            rows = zip(found, shardings, strict=True)
            return [sharded(x._numpy(), x.type, where) for x, where in rows]
        run = Replicated(self.asker, *cut)
        results = run(arrays)
        if hooks.busy and (watching() or checked_kinds.get()):
            here = [put(x, placed(CPU, False)) for x in (*arrays, *results)]
            self._look(here[: len(arrays)], here[len(arrays) :])
        return results

    def _look(self, arrays: Sequence[Any], results: Sequence[Any]) -> None:
        """Raises where somebody looks for what a replica has done wrong."""
        program = as_one(self.program, self.mesh.axes, self.ins, self.outs)
        if watching():
            # lazy: few look for NaNs
            from fnx.runtime.nonfinite import check_program

            ends = self.out_names
            check_program(self.asker, program, arrays, results, self.in_names, ends)
        if checked_kinds.get():
            # lazy: few look for what goes wrong
            from fnx.runtime.checks import look_at_program

            look_at_program(self.asker, program, arrays)


@cached
def _jitted_as_one(
    program: Program, mesh: Mesh, ins: Specs, outs: Specs
) -> tuple[Any, Sequence[NamedSharding]] | None:
    """The replicas as one jitted function, and how its results are cut.

    Its calls are native, which those of `fnx.runtime.replicas` are not; `None` where
    each replica has a thread.
    """
    # lazy: few programs have replicas, and `jit` needs none
    from fnx.api.jit import jit

    one = joint.together(program, mesh.axes, ins, outs)
    if one is None:
        return None
    shardings = [NamedSharding(mesh, spec_of(spec)) for spec in outs]
    return jit(lambda *arrays: evaluate(one, arrays)), shardings


def refuse_members(asker: str, program: Program) -> None:
    """Raises for a replica that has replicas of other processes in it."""
    if processes().count == 1:
        return
    if any(eqn.primitive is spmd_members for eqn in walk(program)):
        raise errors.ArgumentError(
            errors.explain(
                f"{asker}: it calls pmap in a job of several processes",
                "the devices of others are busy with replicas of their own",
                "pass devices=fnx.local_devices() to the inner one, or use vmap",
            )
        )


def refuse_bound(asker: str, names: Sequence[Any]) -> None:
    """Raises for an axis whose name is bound outside: who means which of them?"""
    for name, size in bound_axes():
        if name in names:
            raise errors.AxisError(
                errors.explain(
                    f"{asker}: the axis name {name!r}",
                    f"an axis of that name, of size {size}, is bound around it",
                    "use another name",
                )
            )


def replicated(shape: Sequence[int]) -> tuple[tuple[Any, ...], ...]:
    """The spec of an array of which every replica has all."""
    return tuple([()] * len(shape))
