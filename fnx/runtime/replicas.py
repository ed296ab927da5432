"""Replicas: one program on several CPU devices at once, each in a thread of its own.

Receives the equation that `pmap` or `shard_map` came to (`fnx/control/spmd.py`) and
whole arrays; every replica reads its part where it is, and writes its part of the
outputs where it belongs, so that nothing is cut or joined. The first replica runs in
the thread that called. Next on the walk: `compiling.py`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import product
from queue import SimpleQueue
from typing import Any

import numpy as np

from fnx import errors
from fnx.control import joint
from fnx.control import spmd as control
from fnx.control.joint import Axes, Spec, Specs, as_one, names_of, whole
from fnx.control.spmd import backend_of, flattened
from fnx.core import axes as named_axes
from fnx.core.cache import cached
from fnx.core.communicator import Communicator
from fnx.core.program import Program, walk
from fnx.core.stopping import Stop, stopped_by
from fnx.core.types import ArrayType
from fnx.records import record
from fnx.runtime.backend import backend
from fnx.runtime.exchange import Exchange, Member
from fnx.runtime.executable import Executable, executable_for
from fnx.runtime.processes import processes
from fnx.runtime.sharding import part_index
from fnx.transforms.combine import combined

Index = tuple[Any, ...]  # `...`, so that it gives a view, and a slice for each axis
Reads = tuple[tuple[Index, ...], ...]
Writes = tuple[tuple[Index | None, ...], ...]


@record
class Replicas:
    """A program, compiled, and which parts of the arrays the replicas have (`parts`).

    `meets` says whether they meet in collectives.
    """

    executable: Executable
    axes: Axes
    reads: Reads
    writes: Writes
    meets: bool

    def run(self, outputs: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Runs all replicas, and waits for them."""
        count = len(self.reads)
        members = meetings(self.axes) if self.meets else [{}] * count

        def work(rank: int) -> None:
            self._run_one(rank, members[rank], outputs, arrays)

        together(count, work, self.executable.native is not None)

    def _run_one(
        self,
        rank: int,
        members: dict[Hashable, Communicator],
        outputs: Sequence[Any],
        arrays: Sequence[Any],
    ) -> None:
        rows = zip(arrays, self.reads[rank], strict=True)
        inputs = [_contiguous(x[index]) for x, index in rows]
        types = self.executable.program.output_types
        ends = [
            self._memory(*row)
            for row in zip(outputs, self.writes[rank], types, strict=True)
        ]
        with replica(members):
            self.executable.run_into(inputs, ends)
        for out, index, end in zip(outputs, self.writes[rank], ends, strict=True):
            if index is not None and end.base is None:  # memory of its own
                out[index] = end

    def _memory(self, out: Any, index: Index | None, type: ArrayType) -> Any:
        """Where a replica writes an output: in its place, if that lies together."""
        if index is not None:
            part = out[index]
            if part.flags.c_contiguous:
                return part
        return self.empty(type)

    def empty(self, type: ArrayType) -> Any:
        """A NumPy array of a type, to be written."""
        return empty(self.executable, type)


def meetings(axes: Axes) -> list[dict[Hashable, Communicator]]:
    """For each replica those that it meets along each axis, for one run."""
    exchanges: dict[Any, Exchange] = {}
    found: list[dict[Hashable, Communicator]] = []
    for place in product(*[range(size) for _, size in axes]):
        own: dict[Hashable, Communicator] = {}
        for axis, (name, size) in enumerate(axes):
            key = (axis, *place[:axis], None, *place[axis + 1 :])
            if key not in exchanges:
                exchanges[key] = Exchange(size, name)
            own[name] = Member(exchanges[key], place[axis])
        found.append(own)
    return found


@contextmanager
def replica(members: Mapping[Hashable, Communicator]) -> Iterator[None]:
    """A context in which this thread is a replica; after it the others need not wait.

    They hear of what goes wrong in it.
    """
    failure: BaseException | None = None
    try:
        with named_axes.replica(members):
            yield
    except BaseException as error:
        failure = error
        raise
    finally:
        for member in members.values():
            member.leave(failure)


def run(
    outputs: Sequence[Any],
    arrays: Sequence[Any],
    *,
    program: Program,
    axes: Axes,
    ins: Specs,
    outs: Specs,
    devices: tuple[str, ...],
) -> None:
    """Writes the outputs of `spmd` for NumPy arrays."""
    owners = processes().count > 1 and across().owners_of(devices)
    if backend_of(devices) != "cpu":
        # lazy: few have such devices
        from fnx.runtime.spread import write_on_mesh

        write_on_mesh(
            outputs,
            arrays,
            program=program,
            axes=axes,
            ins=ins,
            outs=outs,
            devices=devices,
        )
    elif owners:
        there = across().prepared(program, axes, ins, outs, owners)
        there.wholes(outputs, there.run(arrays))
    else:
        ready(program, axes, ins, outs).run(outputs, arrays)


control.runner = run


def across() -> Any:
    """The module of replicas of several processes."""
    # lazy: few jobs have several
    from fnx.runtime import across as module

    return module


@record
class AsOne:
    """All replicas as one program, compiled."""

    executable: Executable

    def run(self, outputs: Sequence[Any], arrays: Sequence[Any]) -> None:
        """Runs it, in the thread that calls."""
        self.executable.run_into([_contiguous(x) for x in arrays], outputs)

    def empty(self, type: ArrayType) -> Any:
        """A NumPy array of a type, to be written."""
        return empty(self.executable, type)


def empty(executable: Executable, type: ArrayType) -> Any:
    """A NumPy array of a type, to be written by a program."""
    native = executable.native is not None
    return (backend().empty if native else np.empty)(type.shape, type.dtype)


@cached
def alone(program: Program, axes: Axes, ins: Specs, outs: Specs) -> AsOne:
    """A program ready to run for all replicas, whatever it is, in one thread."""
    return AsOne(executable_for(as_one(program, axes, ins, outs)))


@cached
def prepared(program: Program, axes: Axes, ins: Specs, outs: Specs) -> Replicas | AsOne:
    """A program ready to run on all replicas, in threads or as one."""
    one = joint.together(program, axes, ins, outs)
    if one is not None:
        return AsOne(executable_for(one))
    reads, writes = parts(program, axes, ins, outs)
    executable = executable_for(combined(flattened(program, "cpu")))
    return Replicas(executable, axes, reads, writes, meets(program))


def ready(program: Program, axes: Axes, ins: Specs, outs: Specs) -> Replicas | AsOne:
    """A program ready to run here: a callback of a replica has only its own thread."""
    make = alone if named_axes.is_replica() else prepared
    return make(program, axes, ins, outs)


def meets(program: Program) -> bool:
    """Whether there is a collective in a program."""
    return any("axis_name" in eqn.params for eqn in walk(program))


def parts(
    program: Program, axes: Axes, ins: Specs, outs: Specs
) -> tuple[Reads, Writes]:
    """For each replica the index of its part of each input, and of each output.

    `None` for an output of which another replica's is taken.
    """
    reads = places(program.input_types, ins, axes)
    whole = places(program.output_types, outs, axes)
    writes = [
        tuple([i if _is_first(s, at) else None for i, s in zip(row, outs, strict=True)])
        for row, at in zip(whole, _grid(axes), strict=True)
    ]
    return reads, tuple(writes)


def places(types: Sequence[ArrayType], specs: Specs, axes: Axes) -> Reads:
    """For each replica the index of its part of arrays, of whose parts these are."""
    rows = list(zip(types, specs, strict=True))
    return tuple(
        [
            tuple([_part(type, spec, at, axes) for type, spec in rows])
            for at in _grid(axes)
        ]
    )


def _grid(axes: Axes) -> list[dict[Hashable, int]]:
    """Where each replica is along the axes."""
    names = [name for name, _ in axes]
    grid = product(*[range(size) for _, size in axes])
    return [dict(zip(names, place, strict=True)) for place in grid]


def _part(part: ArrayType, spec: Spec, at: dict[Hashable, int], axes: Axes) -> Index:
    """Where the part of a replica lies in the whole array."""
    return (..., *part_index(whole(part, spec, axes).shape, spec, at, dict(axes)))


def _is_first(spec: Spec, at: dict[Hashable, int]) -> bool:
    """Whether a replica is the first along all axes that do not cut an array."""
    names = names_of(spec)
    return all(number == 0 for name, number in at.items() if name not in names)


def _contiguous(x: Any) -> Any:
    return x if x.flags.c_contiguous else np.ascontiguousarray(x)


# ---------------------------------------------------------------- threads


class _Worker:
    """A thread that runs one replica after the other, for good."""

    def __init__(self, number: int) -> None:
        self.tasks: SimpleQueue[Callable[[], None]] = SimpleQueue()
        name = f"fnx-device-{number}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.tasks.get()()


# For each replica but the first, which the caller runs, the threads that wait for work.
_idle: dict[int, list[_Worker]] = {}
_starting = threading.Lock()


def _taken(rank: int) -> _Worker:
    """A thread that waits for work, or a new one.

    A run never waits for another one to end, which may wait for it: a callback of one
    may have started the thread that calls the other.
    """
    with _starting:
        waiting = _idle.setdefault(rank, [])
        return waiting.pop() if waiting else _Worker(rank)


def together(count: int, work: Callable[[int], None], native: bool) -> None:
    """Runs `work` of 0, 1, … at once; raises the error of the first one that failed.

    `native` work shares the CPU with its own threads.
    """
    failures: list[BaseException | None] = [None] * count
    ended = threading.Semaphore(0)
    stop = Stop()

    def task(rank: int) -> Callable[[], None]:
        def run() -> None:
            _guarded(work, rank, failures, stop)
            ended.release()

        return run

    with backend().divided(count) if native and count > 1 else nullcontext():
        workers = {rank: _taken(rank) for rank in range(1, count)}
        for rank, worker in workers.items():
            worker.tasks.put(task(rank))
        _guarded(work, 0, failures, stop)
        for _ in workers:
            _wait(ended, failures, stop)
        with _starting:
            for rank, worker in workers.items():
                _idle[rank].append(worker)
    _raise_first(failures)


def _wait(
    ended: threading.Semaphore, failures: list[BaseException | None], stop: Stop
) -> None:
    """Waits for one more replica; Ctrl-C has those that loop end, too."""
    while True:
        try:
            ended.acquire()
        except BaseException as error:  # a signal, which only this thread hears of
            failures[0] = failures[0] or error
            stop.asked = True
        else:
            return


def _guarded(
    work: Callable[[int], None],
    rank: int,
    failures: list[BaseException | None],
    stop: Stop,
) -> None:
    """Runs one replica; where it fails, the others need not go on."""
    try:
        with stopped_by(stop):
            work(rank)
    except BaseException as error:
        failures[rank] = error
        stop.asked = True


def _raise_first(failures: Sequence[BaseException | None]) -> None:
    """Raises what went wrong first: the error that the others only heard of."""
    found = [error for error in failures if error is not None]
    if not found:
        return
    own = [error for error in found if not isinstance(error, errors.CollectiveError)]
    error = (own or found)[0]
    if len(failures) > 1:
        error.add_note(f"raised by replica {failures.index(error)} of {len(failures)}")
    raise error


def _forget() -> None:
    """In a forked process none of the threads is there."""
    global _starting
    _idle.clear()
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
