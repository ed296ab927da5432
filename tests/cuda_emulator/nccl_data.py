"""What NCCL's collectives do to memory, in NumPy.

Sums of 16-bit floats are made in float32 and rounded once. Next: inject.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from .copies import device_of
from .errors import CUDARuntimeError, NcclError
from .machine import Machine
from .memory import ALLOCATED, INITIALISED
from .order import Position

DTYPES = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
)

Where = Mapping[int, Position]  # where the stream of each rank stands


@dataclass(frozen=True, eq=False)
class Call:
    """One rank's call of a collective."""

    comm: Any
    kind: str
    rank: int
    device: int
    stream: int
    source: int = 0
    out: int = 0
    count: int = 0
    dtype: int = 0
    op: int = -1
    root: int = -1
    peer: int = -1

    def __post_init__(self) -> None:
        if not 0 <= self.dtype < len(DTYPES):
            raise NcclError(4, f"no type has the number {self.dtype}")
        for number, most in (
            (self.op, 5),
            (self.root, self.comm.clique.size),
            (self.peer, self.comm.clique.size),
        ):
            if not -1 <= number < most:
                raise NcclError(4, f"{self.kind} with {number}, {most} is too large")

    def difference(self, other: Call) -> str:
        """In what a rank's call differs from another's; empty where they agree."""
        if self.kind != other.kind:
            return f"rank {self.rank} calls {self.kind}, not {other.kind} as that"
        for name in ("count", "dtype", "op", "root"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                return (
                    f"{self.kind} with {name} {mine} of rank {self.rank}, {name} {its}"
                )
        return ""

    @property
    def element(self) -> np.dtype[Any]:
        """The NumPy type."""
        return np.dtype(DTYPES[self.dtype])


def perform(here: Machine, calls: dict[int, Call], where: Where) -> None:
    """Move the data of a collective; `calls` has every rank's."""
    size = len(calls)
    ranks = [calls[rank] for rank in range(size)]
    sources = [source(here, one, size, where) for one in ranks]
    for one, result in zip(ranks, results(ranks[0], sources), strict=True):
        if result is not None:
            write(here, one, result, where)


def source(here: Machine, call: Call, size: int, where: Where) -> np.ndarray:
    """What a rank of so many brings to a collective."""
    if call.kind == "broadcast" and call.rank != call.root:
        return np.empty(0, call.element)
    parts = size if call.kind == "reduceScatter" else 1
    return _read(here, call, call.count * parts, where)


def results(call: Call, sources: list[Any]) -> list[Any]:
    """What each rank gets of what all have brought."""
    size, kind = len(sources), call.kind
    results: list[Any]
    if kind == "allReduce":
        result = _reduced(sources, call.op, size)
        results = [result] * size
    elif kind == "reduce":
        results = [None] * size
        results[call.root] = _reduced(sources, call.op, size)
    elif kind == "broadcast":
        results = [sources[call.root]] * size
    elif kind == "allGather":
        results = [np.concatenate(sources)] * size
    else:
        results = np.split(_reduced(sources, call.op, size), size)
    return results


def send(here: Machine, sender: Call, receiver: Call, where: Where) -> None:
    """Move one message."""
    write(here, receiver, _read(here, sender, sender.count, where), where)


def _reduced(sources: list[Any], op: int, size: int) -> np.ndarray:
    dtype = sources[0].dtype
    wide = np.float32 if dtype.itemsize < 4 and dtype.kind not in "iu" else dtype
    total = sources[0].astype(wide)
    combine = (np.add, np.multiply, np.maximum, np.minimum, np.add)[op]
    for source in sources[1:]:
        total = combine(total, source.astype(wide))
    if op == 4:
        total = total // size if dtype.kind in "iu" else total / size
    return total.astype(dtype)


def _check(here: Machine, call: Call, start: int, nbytes: int, state: int) -> bool:
    memory = device_of(here, start)
    if memory is None or memory.device != call.device:
        raise CUDARuntimeError(
            1, f"{call.kind} of rank {call.rank}: {start:#x} is not on its device"
        )
    bad = memory.first_without(start, nbytes, ALLOCATED)
    if bad < nbytes:
        where = memory.describe(start + bad)
        here.fail(700, f"{call.kind} of rank {call.rank} is out of bounds: {where}")
    return memory.first_without(start, nbytes, state) == nbytes


def _read(here: Machine, call: Call, count: int, where: Where) -> np.ndarray:
    nbytes = count * call.element.itemsize
    if nbytes and not _check(here, call, call.source, nbytes, INITIALISED):
        here.finding(
            f"{call.kind} of rank {call.rank} reads memory that nobody has written"
        )
    if nbytes:
        memory = here.memories[call.device]
        here.position = where[call.rank]
        label = f"{call.kind} of rank {call.rank}"
        here.access(memory, call.source, nbytes, False, label)
    data = ctypes.string_at(call.source, nbytes)
    return np.frombuffer(data, np.uint8).view(call.element)


def write(here: Machine, call: Call, values: np.ndarray, where: Where) -> None:
    """Write what a rank gets."""
    data = values.tobytes()
    if not data:
        return
    _check(here, call, call.out, len(data), ALLOCATED)
    memory = here.memories[call.device]
    here.position = where[call.rank]
    label = f"{call.kind} of rank {call.rank}"
    here.access(memory, call.out, len(data), True, label)
    ctypes.memmove(call.out, data, len(data))
    memory.mark(call.out, len(data), INITIALISED)
