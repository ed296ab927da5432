"""The time of a plan on one of many equal devices: what computes, and what waits.

A device computes the steps of its plan in order; collectives run beside them, one after
the other, as soon as what they send is there. A loop's rounds follow each other, and
nothing overlaps its ends. Receives a plan, a cluster and the axes of the replicas;
gives seconds, and what they were spent on. Next on the walk: `simulation.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from fnx import errors
from fnx.distributed.cluster import Chip, Cluster, Level
from fnx.distributed.transfers import NOTHING, Transfer, message, transfer
from fnx.ops.collective import (
    all_gather,
    all_to_all,
    pmax,
    pmin,
    psum,
    psum_scatter,
)
from fnx.ops.meeting import axis_index
from fnx.ops.sending import pbroadcast, ppermute
from fnx.records import record
from fnx.runtime.plan import (
    AttentionStep,
    BranchStep,
    ConvolutionStep,
    CopyStep,
    FollowedStep,
    ForeignStep,
    HostStep,
    KernelStep,
    LoopStep,
    MatmulStep,
    Place,
    Plan,
    Step,
    step_cost,
    type_bytes,
)

# For each collective how it moves its bytes.
KINDS: dict[Any, str] = {
    psum: "all_reduce",
    pmax: "all_reduce",
    pmin: "all_reduce",
    all_gather: "all_gather",
    psum_scatter: "reduce_scatter",
    all_to_all: "all_to_all",
    pbroadcast: "broadcast",
    ppermute: "message",
}
PRODUCTS, ARITHMETIC, MEMORY, LAUNCH = (
    "matrix products",
    "arithmetic",
    "memory bandwidth",
    "starting kernels",
)
Seconds = dict[str, float]


@record
class Machine:
    """Where a plan runs: the cluster, and the sizes of the axes, outermost first."""

    cluster: Cluster
    axes: Mapping[Any, int]
    overlap: bool


@record
class Timeline:
    """The time of a plan: `spent` has the seconds of each resource, which add up to it.

    `communication` is how long links are busy, hidden or not; `sent` the bytes that a
    device sends or has sent for it, counted as the arrays of collectives; `uncounted`
    how many operations run on the host, of which only the bytes are known, and how many
    loops have a number of rounds that nobody knows and count as one.
    """

    seconds: float
    spent: Seconds
    communication: float = 0.0
    sent: float = 0.0
    uncounted: int = 0

    def times(self, rounds: int) -> Timeline:
        """So many rounds, one after the other."""
        spent = {name: rounds * t for name, t in self.spent.items()}
        return Timeline(
            rounds * self.seconds,
            spent,
            rounds * self.communication,
            rounds * self.sent,
            self.uncounted,
        )


def timeline(plan: Plan, machine: Machine) -> Timeline:
    """The time of a plan on a device of the machine, all devices doing the same."""
    clock = _Clock(machine)
    for step in plan.steps:
        clock.run(step)
    return clock.end()


class _Clock:
    """The state of a device: until when it computes, and until when its links send."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.computing = self.sending = 0.0
        self.spent: Seconds = {}
        self.communication = self.sent = 0.0
        self.uncounted = 0
        # When a value is there that the compute stream made.
        self.there: dict[Place, float] = {}
        # Collectives that are called and not yet on the links: place, ready, transfer.
        self.called: list[tuple[tuple[Place, ...], float, Transfer]] = []
        self.arrives: dict[Place, float] = {}
        # What the links carried: from when, until when, and which transfer.
        self.log: list[tuple[float, float, Transfer]] = []

    def run(self, step: Step) -> None:
        match step:
            case HostStep(primitive) if primitive is axis_index:
                pass
            case HostStep(primitive) if primitive in KINDS:
                self._call(step)
            case FollowedStep():
                for each in step.parts:
                    self.run(each)
            case _:
                self._wait(step)
                self._compute(step)

    def end(self) -> Timeline:
        """All that was called has arrived."""
        while self.called:
            self._send()
        if self.arrives:
            self._until(max(self.arrives.values()))
        return Timeline(
            self.computing, self.spent, self.communication, self.sent, self.uncounted
        )

    # -- inside

    def _call(self, step: HostStep) -> None:
        """A collective waits for its operands, not for what computes beside it."""
        nbytes = _whole_bytes(step)
        found = _transfer(step, nbytes, self.machine)
        ready = max([self._when(p) for p in _places(step.inputs)], default=0.0)
        if not self.machine.overlap:
            ready = max(ready, self.computing)
        self.communication += found.seconds
        self.sent += nbytes
        self.called.append((step.outputs, ready, found))
        if not self.machine.overlap:
            self._wait_for(step.outputs)

    def _when(self, place: Place) -> float:
        while any(place in outputs for outputs, _, _ in self.called):
            self._send()
        if place in self.arrives:
            return self.arrives[place]
        return self.there.get(place, 0.0)

    def _send(self) -> None:
        """The links take the collective that is ready first."""
        first = min(self.called, key=lambda row: row[1])
        self.called.remove(first)
        outputs, ready, found = first
        begin = max(self.sending, ready)
        self.sending = begin + found.seconds
        self.log.append((begin, self.sending, found))
        for place in outputs:
            self.arrives[place] = self.sending

    def _wait(self, step: Step) -> None:
        self._wait_for(_reads(step))

    def _wait_for(self, places: tuple[Place, ...]) -> None:
        for place in places:
            self._until(self._when(place))

    def _until(self, time: float) -> None:
        """The device waits, for what the links carry meanwhile."""
        for begin, end, found in reversed(self.log):
            if end <= self.computing:
                break
            gap = min(end, time) - max(begin, self.computing)
            if gap > 0:
                self._blame(found, gap)
        self.computing = max(self.computing, time)

    def _blame(self, found: Transfer, gap: float) -> None:
        for kind, rows in (("latency of", found.latency), ("links of", found.sending)):
            for name, seconds in rows:
                self._spend(f"{kind} {name}", gap * seconds / found.seconds)

    def _spend(self, what: str, seconds: float) -> None:
        self.spent[what] = self.spent.get(what, 0.0) + seconds

    def _compute(self, step: Step) -> None:
        inner = self._inner(step)
        if inner is None:
            for what, seconds in _own(step, self.machine.cluster.chip):
                self._spend(what, seconds)
                self.computing += seconds
            self.uncounted += isinstance(step, HostStep)
        else:
            if inner.communication:  # its collectives follow those outside
                while self.called:
                    self._send()
                self._until(self.sending)
            for what, seconds in inner.spent.items():
                self._spend(what, seconds)
            self.computing += inner.seconds
            self.communication += inner.communication
            self.sent += inner.sent
            self.uncounted += inner.uncounted
            self.sending = max(self.sending, self.computing * bool(inner.communication))
        for place in _writes(step):
            self.there[place] = self.computing
            self.arrives.pop(place, None)

    def _inner(self, step: Step) -> Timeline | None:
        """What the plans of a step take: all rounds, or the slowest branch."""
        match step:
            case LoopStep(body):
                once = timeline(body, self.machine)
                known = step.test is None and step.count is None
                if not known or step.length is None:
                    return replace(once, uncounted=once.uncounted + 1)
                return once.times(step.length)
            case AttentionStep(plan=plan):
                return timeline(plan, self.machine)
            case BranchStep(branches=branches):
                found = [timeline(plan, self.machine) for plan in branches]
                return max(found, key=lambda row: row.seconds)
        return None


def _own(step: Step, chip: Chip) -> Iterator[tuple[str, float]]:
    """What a step without plans of its own spends."""
    cost = step_cost(step)
    if isinstance(step, MatmulStep | ConvolutionStep):
        what, rate = PRODUCTS, chip.flops
    else:
        what, rate = ARITHMETIC, chip.vector_flops or chip.flops
    working, moving = cost.operations / rate, cost.nbytes / chip.bandwidth
    yield (what, working) if working >= moving else (MEMORY, moving)
    yield LAUNCH, chip.launch


# ---------------------------------------------------------------- collectives


def _whole_bytes(step: HostStep) -> float:
    """The bytes of the whole array: what is gathered, or what a replica gives."""
    given, found = type_bytes(step.input_types), type_bytes(step.output_types)
    return found if KINDS[step.primitive] == "all_gather" else given


def _transfer(step: HostStep, nbytes: float, machine: Machine) -> Transfer:
    name, count = step.params["axis_name"], step.params["axis_size"]
    if machine.axes.get(name) != count:
        raise errors.AxisError(
            f"simulate: {step.primitive} is over an axis {name!r} of {count} replicas, "
            f"the axes are {dict(machine.axes)}"
        )
    stride = 1
    for other in reversed(machine.axes):
        if other == name:
            break
        stride *= machine.axes[other]
    kind = KINDS[step.primitive]
    if kind == "message":
        level = _farthest(step.params["perm"], stride, machine.cluster)
        return NOTHING if level is None else message(nbytes, level)
    groups = step.params.get("groups")
    if groups is not None:
        count = len(groups[0])
        stride *= _even_step(groups)
    return transfer(kind, nbytes, machine.cluster.reached(stride, count))


def _even_step(groups: tuple[tuple[int, ...], ...]) -> int:
    """How far the members of each group are from each other."""
    steps = {b - a for group in groups for a, b in pairwise(group)}
    if len(steps) > 1:
        raise errors.ArgumentError(
            f"simulate: the members of {[list(group) for group in groups[:4]]} are not "
            "equally far from each other"
        )
    return steps.pop() if steps else 1


def _farthest(
    perm: tuple[tuple[int, int], ...], stride: int, cluster: Cluster
) -> Level | None:
    """The outermost level that a message passes; None if each replica keeps its own."""
    found = None
    size = 1
    left = [(a * stride, b * stride) for a, b in perm if a != b]
    for level in cluster.levels:
        if not left:
            break
        found = level
        size *= level.size
        left = [(a, b) for a, b in left if a // size != b // size]
    return found


# ---------------------------------------------------------------- what steps touch


def _places(values: Any) -> tuple[Place, ...]:
    return tuple([value for value in values if isinstance(value, Place)])


def _reads(step: Step) -> tuple[Place, ...]:
    match step:
        case KernelStep(kernel, buffers):
            rows = zip(kernel.buffers, buffers, strict=False)
            return tuple([place for buffer, place in rows if buffer.role != "out"])
        case MatmulStep():
            return step.x, step.y
        case FollowedStep():
            return tuple([place for part in step.parts for place in _reads(part)])
        case ConvolutionStep():
            return step.x, step.kernel
        case CopyStep():
            return (step.source,)
        case HostStep():
            return _places(step.inputs)
        case ForeignStep():
            return _places(step.host.inputs)
        case BranchStep():
            return step.index, *step.inputs
        case AttentionStep():
            return step.inputs
        case LoopStep():
            starts = [carry.start for carry in step.carry]
            read = [each.place for each in step.rows]
            return *step.consts, *starts, *read, *_places([step.count])


def _writes(step: Step) -> tuple[Place, ...]:
    match step:
        case KernelStep(kernel, buffers):
            rows = zip(kernel.buffers, buffers, strict=False)
            return tuple([place for buffer, place in rows if buffer.role != "in"])
        case FollowedStep():
            return tuple([place for part in step.parts for place in _writes(part)])
        case MatmulStep() | ConvolutionStep() | CopyStep():
            return (step.out,)
        case HostStep() | BranchStep() | AttentionStep():
            return step.outputs
        case ForeignStep():
            return step.host.outputs
        case LoopStep():
            ends = [carry.end for carry in step.carry]
            results = [each.place for each in step.results]
            return *ends, *results
