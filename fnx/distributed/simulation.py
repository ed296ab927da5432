"""What a program would take on a cluster that is described, not there.

Receives a function of one replica, or one under `pmap` or `shard_map`, and a `Cluster`;
gives the time of a call, what bounds it, and the memory of a device. The program is
compiled to its plan, as for a run: what is fused counts once. Next on the walk:
`pipelining.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from fnx import errors
from fnx.api.inspect import make_jaxpr
from fnx.api.partition import Partitioned
from fnx.control.spmd import spmd
from fnx.core.axes import bound_axis
from fnx.core.program import Program, walk
from fnx.distributed.cluster import Cluster
from fnx.distributed.timeline import Machine, Timeline, timeline
from fnx.records import record
from fnx.runtime.plan import Plan, type_bytes


@record
class Simulation:
    """What `simulate` found.

    `spent` has the seconds of each resource, the largest first, which add up to
    `seconds`; that of links is what the device waits for them. `communication` is how
    long they are busy, also while the device computes, and `sent` the bytes of the
    arrays that collectives take. `memory` are the bytes of arguments, results and
    temporary arrays on one device. `uncounted` operations run on the host, or in loops
    of unknown length, and count too little.
    """

    axes: tuple[tuple[Any, int], ...]
    devices: int
    seconds: float
    spent: tuple[tuple[str, float], ...]
    communication: float
    sent: float
    memory: int
    memory_there: float
    uncounted: int

    @property
    def bound(self) -> str:
        """The resource that the most time is spent on."""
        return self.spent[0][0] if self.spent else "nothing"

    @property
    def waiting(self) -> float:
        """The seconds in which a device waits for others."""
        return sum(
            [t for name, t in self.spent if name.startswith(("links", "latency"))]
        )

    @property
    def fits(self) -> bool:
        """Whether the arrays fit in the memory of a device."""
        return self.memory <= self.memory_there

    def __str__(self) -> str:
        mesh = " x ".join([f"{name} {size}" for name, size in self.axes])
        where = f"on {self.devices} device{'s' * (self.devices != 1)}"
        where += f": {mesh}" * bool(mesh)
        rows = [("step", _time(self.seconds), where)]
        for name, seconds in self.spent:
            share = f"{seconds / self.seconds:.1%}" if self.seconds else ""
            rows.append((f"  {name}", _time(seconds), share))
        hidden = self.communication - self.waiting
        rows.append(("bound by", "", self.bound))
        rows.append(("communication", _time(self.communication), ""))
        rows.append(("  hidden", _time(max(0.0, hidden)), "beside computing"))
        room = "fits" if self.fits else "DOES NOT FIT"
        rows.append(
            ("memory", _size(self.memory), f"of {_size(self.memory_there)}: {room}")
        )
        if self.uncounted:
            rows.append(("not counted", "", f"{self.uncounted} operations"))
        return "\n".join([f"{a:28}{b:>12}  {c}".rstrip() for a, b, c in rows])


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds / 1e-9:.1f} ns"


def _size(nbytes: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes:.0f} B"


def simulate(
    function: Callable[..., Any] | Program,
    cluster: Cluster,
    *args: Any,
    axes: Mapping[Any, int] | None = None,
    overlap: bool = True,
) -> Simulation:
    """The time of one call on a cluster, what bounds it, and whether it fits.

    `function` is either what one replica does, with the arguments that one has, and
    `axes` the sizes of the named axes, the outermost first (replicas along the last one
    are on neighbouring devices); or a function under `pmap`, `shard_map` or `jit` with
    shardings, with whole arguments, or a traced program. Arguments are arrays or
    `ShapeDtypeStruct`s: nothing of that size is made. Without `overlap` a device waits
    for each collective.

    Devices are equal and do the same; each step takes the longer of its arithmetic and
    its memory traffic, at the full speed of the chip. Links carry one collective of a
    device at a time, the quickest of rings and trees. Arithmetic on the host (a sort,
    a decomposition) counts its bytes alone, a loop of unknown length one round, and
    the slowest branch counts.

    Raises `ArgumentError` where the axes do not fit on the cluster, or their sizes on
    its levels; `AxisError` for a collective over another axis.

    >>> import fnx, fnx.numpy as fnp
    >>> from fnx.distributed import dgx_h100, simulate
    >>> x = fnx.ShapeDtypeStruct((4096, 4096), "float32")
    >>> def step(x):
    ...     return fnx.lax.psum(x @ x, "data")
    >>> found = simulate(step, dgx_h100(128), x, axes={"data": 1024})
    >>> found.devices, found.bound
    (1024, 'links of rack')
    """
    for name, size in (axes or {}).items():
        if size < 1:
            raise errors.ArgumentError(
                f"simulate: axes has {size} for {name!r}: an axis has one replica or "
                "more."
            )
    program = function if isinstance(function, Program) else None
    if isinstance(function, Partitioned):
        program = function.trace(*args).jaxpr
    elif program is None:
        assert not isinstance(function, Program)
        with ExitStack() as stack:
            for name, size in (axes or {}).items():
                stack.enter_context(bound_axis(name, size))
            program = make_jaxpr(function)(*args)
    elif args:
        raise errors.ArgumentError("simulate: a traced program has its arguments")
    inner, sizes = _of_replica(program, axes)
    devices = math.prod(sizes.values())
    if devices > cluster.devices:
        raise errors.ArgumentError(
            errors.explain(
                f"simulate: the axes {sizes} have {devices} replicas",
                f"the cluster has {cluster.devices} devices",
            )
        )
    plan = _plan(inner)
    found: Timeline = timeline(plan, Machine(cluster, sizes, overlap))
    spent = sorted(found.spent.items(), key=lambda row: -row[1])
    return Simulation(
        tuple(sizes.items()),
        devices,
        found.seconds,
        tuple([(name, seconds) for name, seconds in spent if seconds > 0]),
        found.communication,
        found.sent,
        type_bytes(plan.inputs) + type_bytes(plan.buffers) + plan.arena,
        cluster.chip.memory,
        found.uncounted,
    )


def _of_replica(
    program: Program, axes: Mapping[Any, int] | None
) -> tuple[Program, dict[Any, int]]:
    """What one replica does, and the axes."""
    mapped = [eqn for eqn in walk(program) if eqn.primitive is spmd]
    if axes is not None or not mapped:
        return program, dict(axes or {})
    if len(mapped) > 1:
        raise errors.ArgumentError(
            errors.explain(
                f"simulate: the program has {len(mapped)} pmaps and shard_maps",
                "each has devices of its own",
                "simulate them one by one",
            )
        )
    params = mapped[0].params
    return params["program"], dict(params["axes"])


def _plan(program: Program) -> Plan:
    # lazy: the compiler takes longer to import than the rest
    from fnx.runtime.compiling import plan_for

    return plan_for(program, "cpu")
