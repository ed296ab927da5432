"""Where the replicas of a program run: on the devices of their mesh, of any kind.

Receives the program of a replica, a mesh, how arrays are cut, and arrays, whole or in
parts; gives arrays in parts. CPU devices share their memory and get views, devices with
memory of their own get their parts, and of several processes each has those of its own
devices. Next on the walk: `pieces.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.config import watching
from fnx.control import members
from fnx.control.joint import Axes, Specs, whole
from fnx.control.spmd import backend_of
from fnx.core.primitive import Primitive
from fnx.core.program import Literal, Program
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.runtime import replicas
from fnx.runtime.array import ConcreteArray, wrap
from fnx.runtime.device import Device, all_devices
from fnx.runtime.eager import checked_kinds
from fnx.runtime.executable import Executable, single
from fnx.runtime.in_parts import named_sharding, sharded
from fnx.runtime.mesh import Mesh
from fnx.runtime.sharding import NamedSharding, PartitionSpec, spec_names
from fnx.transforms.shard import partition_program


@record(eq=False)
class Replicated:
    """The program of a replica, its mesh, and how inputs and outputs are cut.

    `asker` is what errors call it.
    """

    asker: str
    program: Program
    mesh: Mesh
    ins: Specs
    outs: Specs

    @property
    def ends(self) -> tuple[Sequence[ArrayType], Sequence[NamedSharding]]:
        """The types of the outputs as wholes, and how they are cut."""
        return _ends(self.program.output_types, self.outs, self.mesh)

    def __call__(self, arrays: Sequence[Any]) -> list[Any]:
        """The outputs, where the replicas have made them."""
        if not self.mesh.is_local:
            return self._across(arrays)
        if self.mesh.backend == "cpu":
            return self._on_cpu(arrays)
        return self._on_devices(arrays)

    @property
    def executable(self) -> Executable:
        """What runs one replica; on the CPU, all of them if they are small."""
        cut = self.program, self.mesh.axes, self.ins, self.outs
        if self.mesh.backend == "cpu":
            return replicas.prepared(*cut).executable
        return on_devices().prepared(*cut, self.mesh.backend).executable

    def _on_cpu(self, arrays: Sequence[Any]) -> list[Any]:
        """Every replica writes into its part of the outputs."""
        data = [x._numpy() for x in arrays]
        ready = replicas.ready(self.program, self.mesh.axes, self.ins, self.outs)
        types, shardings = self.ends
        outputs = [ready.empty(type) for type in types]
        ready.run(outputs, data)
        rows = zip(outputs, types, shardings, strict=True)
        return [sharded(*row) for row in rows]

    def _across(self, arrays: Sequence[Any]) -> list[Any]:
        """Every process has the parts of its devices.

        Nobody looks for NaNs or failed checks there: that would be another program.
        """
        if watching() or checked_kinds.get():
            raise errors.OptionError(
                errors.explain(
                    f"{self.asker}: fnx.config.debug_nans, debug_infs and checkify "
                    "look at programs of one process",
                    "its mesh has devices of others",
                    "turn them off, or look for the mistake in one process",
                )
            )
        if self.mesh.backend != "cpu":
            return self._across_devices(arrays)
        there, mesh = replicas.across(), self.mesh
        owners = there.owners_of(list(mesh.devices.flat))
        ready = there.prepared(self.program, mesh.axes, self.ins, self.outs, owners)
        wanted = [NamedSharding(mesh, spec_of(spec)) for spec in self.ins]
        given = [there.given(*row) for row in zip(arrays, wanted, strict=True)]
        found = zip(*ready.run(given), strict=True)
        rows = zip(found, *self.ends, strict=True)
        return [there.global_array(*row) for row in rows]

    def _across_devices(self, arrays: Sequence[Any]) -> list[Any]:
        # lazy: few jobs have such devices
        from fnx.runtime import device_across as there

        mesh = self.mesh
        devices = list(mesh.devices.flat)
        owners = tuple([device.process_index for device in devices])
        ready = there.prepared(
            self.program, mesh.axes, self.ins, self.outs, owners, mesh.backend
        )
        wanted = [NamedSharding(mesh, spec_of(spec)) for spec in self.ins]
        found = zip(*ready.run(arrays, wanted, devices, self.asker), strict=True)
        rows = zip(found, *self.ends, strict=True)
        return [there.global_array(*row) for row in rows]

    def _on_devices(self, arrays: Sequence[Any]) -> list[Any]:
        """Every replica has its parts of the outputs."""
        there, mesh = on_devices(), self.mesh
        devices = list(mesh.devices.flat)
        ready = there.prepared(
            self.program, mesh.axes, self.ins, self.outs, mesh.backend
        )
        wanted = [NamedSharding(mesh, spec_of(spec)) for spec in self.ins]
        found = ready.run(arrays, wanted, devices, self.asker)
        return there.joined(found, *self.ends)


@functools.lru_cache(maxsize=1024)
def _ends(
    parts: tuple[ArrayType, ...], outs: Specs, mesh: Mesh
) -> tuple[Sequence[ArrayType], Sequence[NamedSharding]]:
    """The types of whole arrays whose parts replicas make, and how they are cut."""
    types = [whole(*row, mesh.axes) for row in zip(parts, outs, strict=True)]
    return types, [NamedSharding(mesh, spec_of(spec)) for spec in outs]


def on_devices() -> Any:
    """The module of replicas on devices with memory of their own."""
    # lazy: few have such devices
    from fnx.runtime import device_replicas as module

    return module


def spec_of(names: Sequence[Sequence[Any]]) -> PartitionSpec:
    """The names that cut each axis as people write them.

    >>> spec_of((("x",), (), ("y", "z"), ()))
    PartitionSpec('x', None, ('y', 'z'))
    """
    entries: list[Any] = []
    for entry in names:
        one = entry[0] if len(entry) == 1 else None
        entries.append(tuple(entry) if len(entry) > 1 else one)
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


def mesh_of(names: Sequence[str], axes: Axes) -> Mesh:
    """The mesh of devices of these names, as a program has them."""
    there = {str(device): device for device in all_devices(backend_of(names))}
    found: list[Device] = []
    for name in names:
        if name not in there:
            raise errors.ArgumentError(
                errors.explain(
                    f"a program for the devices {', '.join(names)}",
                    f"{name} is not there any more",
                    "trace it again",
                )
            )
        found.append(there[name])
    grid = np.array(found, dtype=object).reshape([size for _, size in axes])
    return Mesh(grid, tuple([name for name, _ in axes]))


def write_on_mesh(
    outputs: Sequence[Any],
    arrays: Sequence[Any],
    *,
    program: Program,
    axes: Axes,
    ins: Specs,
    outs: Specs,
    devices: tuple[str, ...],
) -> None:
    """Runs the replicas on their devices for NumPy arrays, and fetches the outputs."""
    mesh = mesh_of(devices, axes)
    run = Replicated("a program of replicas", program, mesh, ins, outs)
    types = [whole(*row, axes) for row in zip(program.input_types, ins, strict=True)]
    given: list[ConcreteArray] = [
        wrap(np.asarray(x), type) for x, type in zip(arrays, types, strict=True)
    ]
    for out, x in zip(outputs, run(given), strict=True):
        out[...] = x._numpy()


def evaluate_in_parts(
    primitive: Primitive, operands: Sequence[Any], params: Mapping[str, Any]
) -> Any:
    """One operation on arrays of which other processes have parts.

    It is cut as they are; all processes come here in the same order.
    """
    arrays = [x for x in operands if not isinstance(x, Literal)]
    cuts = [named_sharding(x) for x in arrays]
    meshes = {cut.mesh: None for cut in cuts if cut is not None}
    mesh, *different = meshes
    if different:
        raise errors.ArgumentError(
            errors.explain(
                f"{primitive.name}: arrays of several processes on different meshes",
                ", ".join(map(str, meshes)),
                "put all arrays on one mesh with fnx.device_put",
            )
        )
    ins = [
        spec_names(PartitionSpec() if cut is None else cut.spec, len(x.shape))
        for x, cut in zip(arrays, cuts, strict=True)
    ]
    program = single(primitive, operands, params)
    free = (None,) * len(program.outputs)
    local, outs = partition_program(program, mesh.axes, tuple(ins), free, True)
    found = Replicated(primitive.name, local, mesh, tuple(ins), outs)(arrays)
    return tuple(found) if primitive.multiple else found[0]


# ---------------------------------------------------------------- members


def joined_members(x: Any, spec: Any, mesh: Mesh) -> Any:
    """This process's members of a stacked array, as parts of the array of all.

    Where nothing is cut, the array is every process's own.
    """
    axes = [axis for axis, names in enumerate(spec) if names]
    if not axes:
        return x
    (axis,) = axes
    data = x._numpy()
    shape = (*x.shape[:axis], mesh.size, *x.shape[axis + 1 :])
    parts = np.split(data, data.shape[axis], axis)
    sharding = NamedSharding(mesh, spec_of(spec))
    return replicas.across().global_array(parts, x.type.with_shape(shape), sharding)


def own_members(x: Any, spec: Any, mesh: Mesh) -> Any:
    """The members of this process in an array of all, as an array on its devices."""
    parts = [part._numpy() for part in x.parts]
    axes = [axis for axis, names in enumerate(spec) if names]
    data = np.concatenate(parts, axes[0]) if axes else parts[0]
    own = Mesh(np.array(mesh.local_devices, dtype=object), mesh.axis_names)
    type = x.type.with_shape(data.shape)
    return sharded(data, type, NamedSharding(own, spec_of(spec)))


def write_members(
    outputs: Sequence[Any],
    arrays: Sequence[Any],
    *,
    program: Program,
    axes: Axes,
    ins: Specs,
    outs: Specs,
    devices: tuple[str, ...],
    processes: int,
) -> None:
    """Runs this process's replicas for NumPy arrays of its members."""
    mesh = mesh_of(devices, axes)
    run = Replicated("pmap over processes", program, mesh, ins, outs)
    given = [
        joined_members(wrap(np.asarray(x), type.with_shape(np.shape(x))), spec, mesh)
        for x, type, spec in zip(arrays, program.input_types, ins, strict=True)
    ]
    for out, x, spec in zip(outputs, run(given), outs, strict=True):
        out[...] = own_members(x, spec, mesh)._numpy()


members.runner = write_members
