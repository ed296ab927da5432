"""Replicas on devices with memory of their own: one program, started on each of them.

Receives the program of a replica and arrays, whole or in parts; gives arrays in parts,
each where it was made. A thread of its own starts the program on each device; what
comes after it there waits, Python does not. Next on the walk: `compiling.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.control.joint import Axes, Specs
from fnx.control.spmd import flattened
from fnx.core.cache import cached
from fnx.core.program import Program
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.runtime.array import ConcreteArray, from_numpy
from fnx.runtime.device import Device, placed
from fnx.runtime.device_array import put
from fnx.runtime.executable import Executable, executable_for
from fnx.runtime.in_parts import PartsArray
from fnx.runtime.replicas import (
    Index,
    Reads,
    meetings,
    meets,
    parts,
    replica,
    together,
)
from fnx.runtime.sharding import Sharding
from fnx.transforms.combine import combined, early

# A run waits in each thread for its device, so that two of them could wait for each
# other.
_running = threading.RLock()


@record
class DeviceReplicas:
    """A program, compiled for devices, and which parts of arrays the replicas read."""

    executable: Executable
    axes: Axes
    reads: Reads
    meets: bool

    def run(
        self,
        arrays: Sequence[ConcreteArray],
        shardings: Sequence[Sharding],
        devices: Sequence[Device],
        what: str,
    ) -> list[Sequence[ConcreteArray]]:
        """Starts all replicas; gives the outputs of each.

        `shardings` are those that the arrays should have: who has it is not moved.
        """
        count = len(devices)
        found: list[Any] = [None] * count
        members: list[Any] = meetings(self.axes) if self.meets else [{}] * count
        given = [
            x.parts if isinstance(x, PartsArray) and x.sharding == wanted else None
            for x, wanted in zip(arrays, shardings, strict=True)
        ]

        # Now, and not in the threads: one that waits for the others has its device,
        # from which another one could want its part of an array.
        inputs = [
            [
                put(_part(x, index), placed(device, True)) if own is None else own[rank]
                for x, own, index in zip(arrays, given, reads, strict=True)
            ]
            for rank, (device, reads) in enumerate(
                zip(devices, self.reads, strict=True)
            )
        ]

        def work(rank: int) -> None:
            placement = placed(devices[rank], True)
            backend, number = placement.backend, devices[rank].ordinal
            others = {
                name: backend.communicator(member, number)
                for name, member in members[rank].items()
            }
            with replica(others):
                found[rank] = self.executable.run_at(inputs[rank], placement, what)

        with _running:
            together(count, work, native=False)
        return found


@cached
def prepared(
    program: Program, axes: Axes, ins: Specs, outs: Specs, backend: str
) -> DeviceReplicas:
    """A program ready to run on the devices of a backend."""
    reads, _ = parts(program, axes, ins, outs)
    executable = executable_for(combined(early(flattened(program, backend))), backend)
    return DeviceReplicas(executable, axes, reads, meets(program))


def _part(x: ConcreteArray, index: Index) -> ConcreteArray:
    """A part of an array; itself, where it is, if that is all of it."""
    rows = zip(index[1:], x.shape, strict=True)
    if all(part.start == 0 and part.stop == n for part, n in rows):
        return x
    return from_numpy(np.ascontiguousarray(x._numpy()[index]), x.type.weak)


def joined(
    found: Sequence[Sequence[ConcreteArray]],
    types: Sequence[ArrayType],
    shardings: Sequence[Sharding],
) -> list[ConcreteArray]:
    """The outputs of all replicas as arrays in parts."""
    rows = zip(*found, strict=True)
    return [
        PartsArray(tuple(row), type, sharding)
        for row, type, sharding in zip(rows, types, shardings, strict=True)
    ]
