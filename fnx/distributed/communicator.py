"""The communicator of processes: collectives made of exchanges of buffers.

Receives a `Channel`; gives the methods of a communicator. A collective is a numbered
meeting, and large sums are cut: each process folds one piece of all arrays, in the
order of the ranks, and gets the other pieces from the others. So sums have the same
bits on every process, and from run to run. Next on the walk: `mpi.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from fnx import dtypes
from fnx.core.types import ArrayType
from fnx.distributed.channel import NOTE, Channel, Meeting, as_bytes

NumPyArray = np.ndarray[Any, Any]
Pairs = Sequence[tuple[int, int]]
Order = Sequence[int] | None

# Arrays of up to this many bytes go to all processes as a whole.
_SMALL = 16 * 1024
# Elements that are folded at a time: all operands' stay in the cache.
_BLOCK = 16 * 1024

_FOLDS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class ProcessCommunicator:
    """One process's hold of the others.

    Arrays are C-contiguous; `out` is written, and is no memory of `x`. Every method
    raises `CollectiveError` on all processes where one of them calls something else,
    does not come within `fnx.config.collective_timeout`, or has failed.
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.size = channel.size
        self.rank = channel.rank
        self._meetings = 0
        self._scratch = np.empty(0, np.uint8)

    def all_reduce(self, x: NumPyArray, out: NumPyArray, op: str) -> None:
        """The "sum", "max" or "min" of all processes' arrays.

        Sums are ((x0 + x1) + x2)…; 16-bit floats are summed in float32 and rounded
        once.
        """
        self.all_reduce_rows([x], out, op)

    def all_reduce_rows(
        self,
        rows: Sequence[NumPyArray],
        out: NumPyArray,
        op: str,
        order: Order = None,
    ) -> None:
        """The same of several arrays of each process.

        They are folded in the order of the processes, or in this one of the arrays
        numbered so.
        """
        many = f"{len(rows)} of " if len(rows) > 1 else ""
        what = f"all_reduce({many}{_type(out)}, {op})"
        flat, result = [x.reshape(-1) for x in rows], out.reshape(-1)
        if self._is_note(out.nbytes * len(rows)):
            notes = self._noted(what, np.concatenate(flat))
            pieces = [*notes.reshape(self.size * len(rows), out.size)]
            fold(_ordered(pieces, order), result, op)
            return
        meeting = self._meet(what)
        if out.nbytes <= _SMALL or self.size == 1:
            cuts = [slice(0, out.size)] * self.size
        else:
            ends = [out.size * rank // self.size for rank in range(self.size + 1)]
            cuts = [slice(*ends) for ends in pairwise(ends)]
        mine = result[cuts[self.rank]]
        pieces = [[x[cut] for x in flat] for cut in cuts]
        fold(_ordered(self._collect(pieces, meeting), order), mine, op)
        if mine.size < result.size:
            self._distribute(mine, [result[cut] for cut in cuts], meeting)

    def all_gather(self, x: NumPyArray, out: NumPyArray) -> None:
        """The arrays of all processes as the rows of `out`."""
        what = f"all_gather({_type(x)})"
        if self._is_note(x.nbytes):
            out[...] = self._noted(what, x.reshape(-1)).reshape(out.shape)
            return
        meeting = self._meet(what)
        out[self.rank] = x
        self._distribute(x, list(out.reshape(self.size, -1)), meeting)

    def reduce_scatter(self, x: NumPyArray, out: NumPyArray) -> None:
        """The sum of all processes' rows of this rank's number."""
        self.reduce_scatter_rows([[row] for row in x], out)

    def reduce_scatter_rows(
        self,
        pieces: Sequence[Sequence[NumPyArray]],
        out: NumPyArray,
        order: Order = None,
    ) -> None:
        """The sum of what all processes have for this one.

        `pieces[r]` are several arrays for rank r; the order is as in `all_reduce_rows`.
        """
        many = f"{len(pieces[0])} of " if len(pieces[0]) > 1 else ""
        meeting = self._meet(f"reduce_scatter({many}{_type(out)})")
        flat = [[np.ascontiguousarray(x).reshape(-1) for x in row] for row in pieces]
        rows = _ordered(self._collect(flat, meeting), order)
        fold(rows, out.reshape(-1), "sum")

    def all_to_all(self, x: NumPyArray, out: NumPyArray) -> None:
        """Row i of `out` is row `rank` of process i."""
        meeting = self._meet(f"all_to_all({_type(x)})")
        out[self.rank] = x[self.rank]
        rows, results = x.reshape(self.size, -1), out.reshape(self.size, -1)
        others = self._others()
        sends = {r: as_bytes(rows[r]) for r in others}
        receives = {r: as_bytes(results[r]) for r in others}
        self.channel.exchange(sends, receives, meeting)

    def permute(self, x: NumPyArray, out: NumPyArray, perm: Pairs) -> None:
        """The array of the process that sends here; zeros if none does.

        `perm` has (source, destination) pairs.
        """
        meeting = self._meet(f"permute({_type(x)}, {tuple(perm)})")
        to = [d for s, d in perm if s == self.rank]
        source = [s for s, d in perm if d == self.rank]
        if not source:
            out[...] = 0
        elif source[0] == self.rank:
            out[...] = x
        sends = {r: as_bytes(x) for r in to if r != self.rank}
        receives = {r: as_bytes(out) for r in source if r != self.rank}
        self.channel.exchange(sends, receives, meeting)

    def swap(
        self,
        sends: Mapping[int, NumPyArray],
        receives: Mapping[int, NumPyArray],
        what: str,
    ) -> None:
        """Sends an array to each of some ranks, and fills others from ranks."""
        meeting = self._meet(what)
        self.channel.exchange(
            {r: as_bytes(x) for r, x in sends.items()},
            {r: as_bytes(x) for r, x in receives.items()},
            meeting,
        )

    def broadcast(self, x: NumPyArray, root: int = 0) -> None:
        """Fills `x` with the root's; pieces go by way of all processes."""
        meeting = self._meet(f"broadcast({_type(x)}, from {root})")
        flat = as_bytes(x)
        ends = [flat.size * rank // self.size for rank in range(self.size + 1)]
        pieces = [flat[slice(*ends)] for ends in pairwise(ends)]
        if self.rank == root:
            self.channel.exchange({r: pieces[r] for r in self._others()}, {}, meeting)
        else:
            self.channel.exchange({}, {root: pieces[self.rank]}, meeting)
        self._distribute(pieces[self.rank], pieces, meeting)

    def barrier(self, name: str = "") -> None:
        """Waits for all processes to come here; they give the same name."""
        self._meet(f"barrier({name})")

    def split(self, groups: Sequence[Sequence[int]]) -> ProcessCommunicator:
        """The communicator of the group of ranks that this one is in."""
        meeting = self._meet(f"split({[list(group) for group in groups]})")
        (group,) = [group for group in groups if self.rank in group]
        return ProcessCommunicator(self.channel.part(list(group), meeting))

    def leave(self, error: BaseException | None) -> None:
        """Comes no more if something went wrong; else it may come again."""
        if error is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """This process comes no more: the others raise, and do not wait for it."""
        me = self.channel.members[self.rank]
        self.channel.fail(f"process {me} failed: {type(error).__name__}: {error}")

    # ------------------------------------------------------------ the parts of these

    def _meet(self, what: str) -> Meeting:
        self._meetings += 1
        meeting = Meeting(self._meetings, what)
        self.channel.agree(meeting)
        return meeting

    def _is_note(self, nbytes: int) -> bool:
        """Whether so much is sent along where all agree."""
        return nbytes <= NOTE and self.channel.takes_notes

    def _noted(self, what: str, x: NumPyArray) -> NumPyArray:
        """The small flat arrays of all processes, as rows."""
        self._meetings += 1
        rows = self.channel.agree(Meeting(self._meetings, what), as_bytes(x))
        found: NumPyArray = np.ascontiguousarray(rows).view(x.dtype)
        return found

    def _others(self) -> list[int]:
        """The other ranks, each process beginning with another one."""
        return [(self.rank + step) % self.size for step in range(1, self.size)]

    def _collect(
        self, pieces: Sequence[Sequence[NumPyArray]], meeting: Meeting
    ) -> list[NumPyArray]:
        """This rank's piece of each array of each process, in their order.

        `pieces[r]` are those of this process's arrays that rank r collects.
        """
        mine = pieces[self.rank]
        count, size, dtype = len(mine), mine[0].size, mine[0].dtype
        space = self._space(self.size * count * size * dtype.itemsize)
        got = space.view(dtype).reshape(self.size, count, size)
        sends = {
            r: as_bytes(pieces[r][0] if count == 1 else np.stack(pieces[r]))
            for r in self._others()
        }
        receives = {r: as_bytes(got[r]) for r in self._others()}
        self.channel.exchange(sends, receives, meeting)
        rows = [[*got[r]] for r in range(self.size)]
        rows[self.rank] = list(mine)
        return [row for of_process in rows for row in of_process]

    def _distribute(
        self, mine: NumPyArray, results: Sequence[NumPyArray], meeting: Meeting
    ) -> None:
        """Gives all processes what this rank has, and fills the rest from them."""
        sends = dict.fromkeys(self._others(), as_bytes(mine))
        receives = {r: as_bytes(results[r]) for r in self._others()}
        self.channel.exchange(sends, receives, meeting)

    def _space(self, nbytes: int) -> NumPyArray:
        """Scratch memory, kept between calls: fresh pages cost more than the sum."""
        if self._scratch.size < nbytes:
            self._scratch = np.empty(nbytes, np.uint8)
        return self._scratch[:nbytes]


def _ordered(rows: list[NumPyArray], order: Order) -> list[NumPyArray]:
    return rows if order is None else [rows[number] for number in order]


def fold(rows: Sequence[NumPyArray], out: NumPyArray, op: str) -> None:
    """The "sum", "max" or "min" of one-dimensional arrays, in their order.

    16-bit floats are summed in float32 and rounded once; NaN wins every comparison.
    """
    function = _FOLDS[op]
    wide = dtypes.compute_dtype(out.dtype)
    with np.errstate(all="ignore"):
        for start in range(0, out.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            if len(rows) == 1:
                out[block] = rows[0][block]
                continue
            into = out[block] if wide == out.dtype else np.empty(out[block].size, wide)
            first = rows[0][block].astype(wide, copy=False)
            for row in rows[1:]:
                first = function(first, row[block].astype(wide, copy=False), out=into)
            if into.dtype != out.dtype:
                out[block] = into


def _type(x: NumPyArray) -> ArrayType:
    return ArrayType(x.shape, x.dtype)
