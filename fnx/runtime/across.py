"""Replicas of several processes: each process runs those of its own devices.

Receives a program of a replica, and arrays of which each process has all, or its parts
(`GlobalArray`); gives its parts of the outputs. All processes of the job come here in
the same order. Next on the walk: `compiling.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fnx import errors
from fnx.config import config
from fnx.control.joint import Axes, Specs, names_of
from fnx.control.spmd import flattened
from fnx.core.cache import cached
from fnx.core.communicator import Communicator
from fnx.core.primitive import MappedAxis
from fnx.core.program import Program
from fnx.core.trace import evaluate
from fnx.ops.sending import pbroadcast
from fnx.records import record
from fnx.runtime.array import ConcreteArray, from_numpy
from fnx.runtime.device import Device, devices_of
from fnx.runtime.exchange import Exchange, Member
from fnx.runtime.executable import Executable, executable_for
from fnx.runtime.in_parts import GlobalArray, sharding_of
from fnx.runtime.lines import Joined, Line, line_of
from fnx.runtime.mesh import is_local
from fnx.runtime.processes import processes
from fnx.runtime.replicas import Index, Reads, empty, meets, places, replica, together
from fnx.runtime.sharding import Sharding
from fnx.transforms.batch import batch_program
from fnx.transforms.rewrite import rewrite

# For each communicator of a job the lines of its meshes.
_lines: WeakKeyDictionary[Any, dict[Any, dict[Any, Line]]] = WeakKeyDictionary()


@record
class Across:
    """A program, compiled, and which parts of arrays the replicas have.

    `owners` has the process of each replica.
    """

    executable: Executable
    axes: Axes
    owners: tuple[int, ...]
    reads: Reads
    writes: Reads
    meets: bool

    @property
    def own(self) -> list[int]:
        """The ranks of this process's replicas."""
        me = processes().index
        return [rank for rank, process in enumerate(self.owners) if process == me]

    def run(self, arrays: Sequence[Any]) -> list[list[Any]]:
        """The outputs of each of this process's replicas, as NumPy arrays.

        `arrays[i]` is a NumPy array, or has the part of each of these replicas.
        """
        own = self.own
        found_members = members(self.axes, self.owners, own, self.meets)
        types = self.executable.program.output_types
        found: list[Any] = [None] * len(own)

        def work(place: int) -> None:
            inputs = [
                x[place] if isinstance(x, tuple) else contiguous(x[index])
                for x, index in zip(arrays, self.reads[own[place]], strict=True)
            ]
            ends = [empty(self.executable, type) for type in types]
            with replica(found_members[place]):
                self.executable.run_into(inputs, ends)
            found[place] = ends

        together(len(own), work, self.executable.native is not None)
        return found

    def wholes(self, outputs: Sequence[Any], found: Sequence[Sequence[Any]]) -> None:
        """Writes the outputs as wholes: what other processes have is fetched."""
        for number, (out, *own) in enumerate(zip(outputs, *found, strict=True)):
            _assemble(out, own, [row[number] for row in self.writes], self.owners)


def members(
    axes: Axes, owners: tuple[int, ...], own: Sequence[int], meet: bool
) -> list[dict[Hashable, Communicator]]:
    """For each replica of this process those that it meets along each axis."""
    if not meet:
        return [{} for _ in own]
    job = processes()
    lines = _lines_of(axes, owners)
    exchanges: dict[Any, Exchange] = {}
    found: list[dict[Hashable, Communicator]] = []
    grid = list(product(*[range(size) for _, size in axes]))
    for rank in own:
        along: dict[Hashable, Communicator] = {}
        for axis, (name, _) in enumerate(axes):
            key = _line_key(grid[rank], axis)
            line, place = lines[key], grid[rank][axis]
            if key not in exchanges:
                exchanges[key] = Exchange(len(line.own), name)
            here = line.own.index(place)
            if line.far is None:
                along[name] = Member(exchanges[key], here)
            else:
                along[name] = Joined(line, exchanges[key], here, job)
        found.append(along)
    return found


def _line_key(place: Sequence[int], axis: int) -> tuple[Any, ...]:
    return (axis, *place[:axis], None, *place[axis + 1 :])


def _lines_of(axes: Axes, owners: tuple[int, ...]) -> Mapping[Any, Line]:
    """The lines of a mesh along all its axes, which all processes make at once."""
    job = processes()
    known = _lines.setdefault(job.communicator, {})
    found = known.get((axes, owners))
    if found is None:
        found = {}
        sizes = [size for _, size in axes]
        for axis, place in product(range(len(axes)), product(*map(range, sizes))):
            key = _line_key(place, axis)
            if key not in found:
                ranks = [
                    np.ravel_multi_index((*place[:axis], k, *place[axis + 1 :]), sizes)
                    for k in range(sizes[axis])
                ]
                found[key] = line_of([owners[rank] for rank in ranks], job)
        known[axes, owners] = found
    return found


def _assemble(
    out: Any, own: Sequence[Any], indices: Sequence[Index], owners: Sequence[int]
) -> None:
    """Fills an array from the parts of all processes' replicas."""
    if own[0].size == out.size:
        out[...] = own[0].reshape(out.shape)
        return
    mine = np.stack(own)
    rows = np.empty((processes().count, *mine.shape), mine.dtype)
    processes().communicator.all_gather(mine, rows)
    next_row = [iter(row) for row in rows]
    for index, owner in zip(indices, owners, strict=True):
        out[index] = next(next_row[owner])


@cached
def prepared(
    program: Program, axes: Axes, ins: Specs, outs: Specs, owners: tuple[int, ...]
) -> Across:
    """A program ready to run on the replicas of this process.

    Raises `ArgumentError` where some process has no replica, or fewer than others.
    """
    check_counts(owners)
    ready = settled(flattened(program, "cpu"), axes, ins, outs)
    return Across(
        executable_for(ready),
        axes,
        owners,
        places(ready.input_types, ins, axes),
        places(ready.output_types, outs, axes),
        meets(ready),
    )


def check_counts(owners: Sequence[int]) -> None:
    """Raises `ArgumentError` unless all processes have as many replicas."""
    counts = [owners.count(process) for process in range(processes().count)]
    if len(set(counts)) > 1:
        raise errors.ArgumentError(
            errors.explain(
                "a mesh over several processes",
                "of its devices " + ", ".join(map(str, counts)) + " belong to the "
                f"processes 0 to {len(counts) - 1}",
                "let it have as many devices of each process, or of this one alone",
            )
        )


def settled(program: Program, axes: Axes, ins: Specs, outs: Specs) -> Program:
    """The program whose outputs are the same where they are not cut.

    They are those of the first replica, which it has to send where they may differ.
    """
    varying = []
    for name, size in axes:
        mapped = tuple([name in names_of(spec) for spec in ins])
        _, flags = batch_program(program, MappedAxis(name, size), mapped)
        varying.append(flags)

    def run(*args: Any) -> list[Any]:
        results = evaluate(program, args)
        for (name, size), flags in zip(axes, varying, strict=True):
            for number, (spec, varies) in enumerate(zip(outs, flags, strict=True)):
                if varies and size > 1 and name not in names_of(spec):
                    results[number] = pbroadcast(
                        results[number], axis_name=name, source=0, axis_size=size
                    )
        return results

    return rewrite(run, program.input_types, "spmd", program)


# ---------------------------------------------------------------- arrays


def given(x: ConcreteArray, wanted: Sharding) -> Any:
    """An array as NumPy arrays: the parts that this process needs, or all of it."""
    if not isinstance(x, GlobalArray) or x.sharding.is_fully_replicated:
        return x._numpy()
    if x.sharding.devices_indices_map(x.shape) == wanted.devices_indices_map(x.shape):
        return tuple([part._numpy() for part in x.parts])
    return whole_of(x)


def whole_of(x: ConcreteArray) -> Any:
    """All of an array as a NumPy array; all processes come here together."""
    if not isinstance(x, GlobalArray) or x.sharding.is_fully_replicated:
        return x._numpy()
    out = np.empty(x.shape, x.type.dtype)
    rows = sharding_of(x).devices_indices_map(x.shape).items()
    indices: list[Any] = [(..., *index) for _, index in rows]
    owners = [device.process_index for device, _ in rows]
    _assemble(out, [part._numpy() for part in x.parts], indices, owners)
    return out


def global_array(found: Sequence[Any], type: Any, sharding: Sharding) -> GlobalArray:
    """The array whose parts on this process's devices are these NumPy arrays."""
    arrays = [from_numpy(contiguous(x), type.weak) for x in found]
    return GlobalArray(tuple(arrays), type, sharding)


def contiguous(x: Any) -> Any:
    """A NumPy array whose elements lie together."""
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


def cut(x: Any, type: Any, sharding: Sharding) -> GlobalArray:
    """The parts of this process of a NumPy array, which all processes have."""
    rows = sharding.devices_indices_map(type.shape).items()
    own: list[Any] = [(..., *index) for device, index in rows if is_local(device)]
    return global_array([x[index] for index in own], type, sharding)


def owners_of(devices: Sequence[Any]) -> tuple[int, ...] | None:
    """The process of each device, if there are several.

    Devices are given as such or by their names, as a program has them.
    """
    if processes().count == 1:
        return None
    owners = [_owner(device) for device in devices]
    return tuple(owners) if {*owners} - {processes().index} else None


def _owner(device: Any) -> int:
    if isinstance(device, Device):
        return device.process_index
    backend, _, number = device.partition(":")
    count = config.cpu_devices if backend == "cpu" else len(devices_of(backend))
    return int(number) // count
