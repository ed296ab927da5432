"""Replicas on devices with memory of their own, of several processes.

Receives a program of a replica, and arrays of which each process has all, or its parts;
gives the parts of this process's devices. All processes of the job come here in the
same order, and say so to each other before a run, so that none waits on its device for
another that runs something else. Next on the walk: `compiling.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from fnx.control.joint import Axes, Specs
from fnx.control.spmd import flattened
from fnx.core.cache import cached
from fnx.core.program import Program
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.runtime import across
from fnx.runtime.array import ConcreteArray, from_numpy
from fnx.runtime.device import Device, placed
from fnx.runtime.device_array import put
from fnx.runtime.executable import Executable, executable_for
from fnx.runtime.in_parts import GlobalArray, PartsArray
from fnx.runtime.mesh import is_local
from fnx.runtime.processes import processes
from fnx.runtime.replicas import Reads, meets, places, replica, together
from fnx.runtime.sharding import Sharding
from fnx.transforms.combine import combined, early


@record
class DeviceAcross:
    """A program, compiled for devices, and which parts of arrays the replicas read.

    `owners` has the process of each replica; `name` is what all of them run.
    """

    executable: Executable
    axes: Axes
    owners: tuple[int, ...]
    reads: Reads
    meets: bool
    name: str

    def run(
        self,
        arrays: Sequence[ConcreteArray],
        wanted: Sequence[Sharding],
        devices: Sequence[Device],
        what: str,
    ) -> list[list[ConcreteArray]]:
        """Starts this process's replicas; gives the outputs of each.

        `wanted` are the shardings that the arrays should have: who has it stays.
        """
        given = [_given(*row) for row in zip(arrays, wanted, strict=True)]
        if self.meets:
            processes().communicator.barrier(self.name)
        own = [rank for rank, device in enumerate(devices) if is_local(device)]
        members = across.members(self.axes, self.owners, own, self.meets)
        found: list[Any] = [None] * len(own)

        # Now, and not in the threads, as in `device_replicas.py`.
        inputs = [
            [
                put(
                    x[place] if isinstance(x, tuple) else _part(x, index),
                    placed(devices[rank], True),
                )
                for x, index in zip(given, self.reads[rank], strict=True)
            ]
            for place, rank in enumerate(own)
        ]

        def work(place: int) -> None:
            device = devices[own[place]]
            placement = placed(device, True)
            others = {
                name: placement.backend.communicator(member, device.ordinal)
                for name, member in members[place].items()
            }
            with replica(others):
                found[place] = self.executable.run_at(inputs[place], placement, what)

        together(len(own), work, native=False)
        return found


@cached
def prepared(
    program: Program,
    axes: Axes,
    ins: Specs,
    outs: Specs,
    owners: tuple[int, ...],
    backend: str,
) -> DeviceAcross:
    """A program ready to run on the devices of a backend that this process has.

    Raises `ArgumentError` where some process has no replica, or fewer than others.
    """
    across.check_counts(owners)
    settled = across.settled(flattened(program, backend), axes, ins, outs)
    return DeviceAcross(
        executable_for(combined(early(settled)), backend),
        axes,
        owners,
        places(settled.input_types, ins, axes),
        meets(settled),
        f"a program {zlib.crc32(str(settled).encode()):08x} of {backend} devices",
    )


def _given(x: ConcreteArray, wanted: Sharding) -> Any:
    """An array: the parts that this process's devices need, or all of it."""
    if isinstance(x, GlobalArray):
        there = x.sharding.devices_indices_map(x.shape)
        if there == wanted.devices_indices_map(x.shape):
            return tuple(x.parts)
        return across.whole_of(x)
    return x


def _part(x: Any, index: Any) -> ConcreteArray:
    """A part of an array; itself, where it is, if that is all of it."""
    rows = zip(index[1:], x.shape, strict=True)
    is_whole = all(part.start == 0 and part.stop == n for part, n in rows)
    if is_whole and isinstance(x, ConcreteArray) and not isinstance(x, PartsArray):
        return x
    data = x._numpy() if isinstance(x, ConcreteArray) else x
    return from_numpy(across.contiguous(data[index]))


def global_array(
    found: Sequence[ConcreteArray], type: ArrayType, sharding: Sharding
) -> GlobalArray:
    """The array whose parts on this process's devices are these."""
    return GlobalArray(tuple(found), type, sharding)
