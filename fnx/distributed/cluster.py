"""A described cluster: what its devices compute, and how fast they reach each other.

Levels of links join devices: those of a machine, machines of a rack, racks. Receives
figures of data sheets, or measured ones; gives records that `simulate` reads.
Next on the walk: `transfers.py`.
"""

from __future__ import annotations

import math

from fnx import errors
from fnx.records import record


@record
class Chip:
    """One device: what it computes a second, and how it reads and writes its memory.

    `flops` are operations a second in matrix products, `vector_flops` in other code
    (None: the same). `bandwidth` is in bytes a second, `memory` in bytes; starting a
    kernel takes `launch` seconds.
    """

    flops: float
    bandwidth: float
    memory: float
    vector_flops: float | None = None
    launch: float = 0.0


@record
class Level:
    """Links that join `size` members: devices, or groups that a lower level joins.

    Each device sends and receives `bandwidth` bytes a second at the same time through
    them; a message takes `latency` seconds at least.
    """

    name: str
    size: int
    bandwidth: float
    latency: float


@record
class Cluster:
    """Equal devices, joined by levels of links, the innermost first.

    >>> cluster = dgx_h100(16)
    >>> cluster.devices
    128
    """

    chip: Chip
    levels: tuple[Level, ...]

    @property
    def devices(self) -> int:
        """How many there are."""
        return math.prod([level.size for level in self.levels])

    def reached(self, stride: int, count: int) -> tuple[tuple[Level, int], ...]:
        """The levels that join devices `0, stride, …`, and how many members each joins.

        The product of the members is `count`. Raises `ArgumentError` if some group of
        devices would have more members than others.
        """
        found = []
        done, size = 1, 1
        for level in self.levels:
            size *= level.size
            inside = min(max(1, size // stride), count)
            span = stride * count
            # groups of devices end inside of an axis, or one axis begins inside of them
            if span > size:
                uneven = size > stride and size % stride
            else:
                uneven = size < self.devices and size % span
            if count > 1 and (uneven or inside % done or count % inside):
                self._refuse(stride, count, level)
            if inside > done:
                found.append((level, inside // done))
            done = inside
        if done < count:
            raise errors.ArgumentError(
                f"an axis of {count} replicas, each {stride} devices from the next, "
                f"does not fit on {self.devices} devices"
            )
        return tuple(found)

    def _refuse(self, stride: int, count: int, level: Level) -> None:
        raise errors.ArgumentError(
            errors.explain(
                f"an axis of {count} replicas, each {stride} devices from the next",
                f"the groups of {level.name!r} would have different numbers of them",
                "choose sizes of axes that divide those of the levels, or the reverse",
            )
        )


def dgx_h100(machines: int, per_rack: int = 4) -> Cluster:
    """Machines of eight H100 SXM: figures of the vendor's data sheets.

    Products in bfloat16 without sparsity; NVLink 4 with 18 links of 25 GB/s for each
    direction; one adapter of 400 Gbit/s for each device. The latencies are typical.
    """
    chip = Chip(
        flops=989e12, bandwidth=3.35e12, memory=80e9, vector_flops=67e12, launch=3e-6
    )
    levels = [Level("NVLink", 8, 450e9, 2e-6)]
    racks, rest = divmod(machines, per_rack)
    if rest or racks < 2:
        levels.append(Level("network", machines, 50e9, 5e-6))
    else:
        levels.append(Level("rack", per_rack, 50e9, 5e-6))
        levels.append(Level("spine", racks, 50e9, 10e-6))
    return Cluster(chip, tuple(levels))
