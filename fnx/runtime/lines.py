"""Lines: where replicas of several processes meet along an axis of a mesh.

The replicas of one process that are on a line meet first (`exchange.py`); the last of
them to come speaks for the process, and brings what it hears to the others. Sums are
those of all replicas in the order of their ranks, wherever they run. Receives the ranks
of each process; gives `Joined`, a `Communicator`. Next on the walk: `across.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import errors
from fnx.core.communicator import Communicator, NumPyArray, Pairs
from fnx.runtime.exchange import Exchange, Member
from fnx.runtime.processes import Processes

Given = Sequence[tuple[NumPyArray, NumPyArray]]


class Line:
    """The replicas along an axis: `owners` has the process of each rank.

    `far` meets the processes of the line, in the order in which they come in it; it is
    made of `everyone` by all processes of the job at once.
    """

    def __init__(self, owners: Sequence[int], far: Any, me: int) -> None:
        self.owners = tuple(owners)
        self.far = far
        self.me = me
        self.processes = list(dict.fromkeys(owners))
        self.ranks = [
            [rank for rank, p in enumerate(owners) if p == process]
            for process in self.processes
        ]
        places = [rank for ranks in self.ranks for rank in ranks]
        # Where the array of each rank stands among those of the first process, then
        # those of the second…
        self.order = [places.index(rank) for rank in range(len(places))]
        self.own = self.ranks[self.processes.index(me)] if me in owners else []
        self.parts: dict[Any, dict[tuple[int, ...], Line]] = {}

    def divide(self, groups: Sequence[Sequence[int]]) -> None:
        """Makes the lines of groups of ranks; all processes of the line come here."""
        key = tuple(map(tuple, groups))
        if key not in self.parts:
            found = {}
            for group in key:
                owners = [self.owners[rank] for rank in group]
                far = _spoken(owners, self.far, self.processes)
                found[group] = Line(owners, far, self.me)
            self.parts[key] = found

    # ------------------------------------------------------------ what one speaks for

    def all_reduce(self, given: Given, op: str) -> None:
        """The array of all ranks' in each output."""
        out = given[0][1]
        self.far.all_reduce_rows([x for x, _ in given], out, op, self.order)
        for _, other in given[1:]:
            other[...] = out

    def all_gather(self, given: Given) -> None:
        """The arrays of all ranks in each output."""
        x, out = given[0]
        mine = np.stack([x for x, _ in given])
        got = np.empty((len(self.processes), *mine.shape), x.dtype)
        self.far.all_gather(mine, got)
        rows = got.reshape(out.shape)
        for _, other in given:
            np.take(rows, self.order, axis=0, out=other)

    def reduce_scatter(self, given: Given) -> None:
        """The sum of each rank's row in its output."""
        pieces = [[x[ranks] for x, _ in given] for ranks in self.ranks]
        sums = np.empty(pieces[0][0].shape, given[0][0].dtype)
        self.far.reduce_scatter_rows(pieces, sums, self.order)
        for row, (_, out) in zip(sums, given, strict=True):
            out[...] = row

    def all_to_all(self, given: Given) -> None:
        """Each rank's row of all in its output."""
        sends = np.stack([[x[ranks] for x, _ in given] for ranks in self.ranks])
        got = np.empty_like(sends)
        self.far.all_to_all(sends, got)
        for place, (_, out) in enumerate(given):
            for rows, ranks in zip(got, self.ranks, strict=True):
                out[ranks] = rows[:, place]

    def permute(self, given: Given, perm: Pairs) -> None:
        """What each rank is sent in its output."""
        by_rank = dict(zip(self.own, given, strict=True))
        sent = {target for _, target in perm}
        for rank, (_, out) in by_rank.items():
            if rank not in sent:
                out[...] = 0
        sends: dict[int, Any] = {}
        receives: dict[int, list[int]] = {}
        for source, target in sorted(perm):
            if source in by_rank and target in by_rank:
                by_rank[target][1][...] = by_rank[source][0]
            elif source in by_rank:
                sends.setdefault(self._process(target), []).append(by_rank[source][0])
            elif target in by_rank:
                receives.setdefault(self._process(source), []).append(target)
        x = given[0][0]
        buffers = {
            process: np.empty((len(targets), *x.shape), x.dtype)
            for process, targets in receives.items()
        }
        stacks = {process: np.stack(rows) for process, rows in sends.items()}
        what = f"ppermute({tuple(perm)}) of {x.dtype}{list(x.shape)}"
        self.far.swap(stacks, buffers, what)
        for process, targets in receives.items():
            for row, target in zip(buffers[process], targets, strict=True):
                by_rank[target][1][...] = row

    def _process(self, rank: int) -> int:
        """The rank in `far` of the process that a rank belongs to."""
        return self.processes.index(self.owners[rank])


def line_of(owners: Sequence[int], job: Processes) -> Line:
    """The line of replicas of these processes; all processes of the job come here.

    Raises `ArgumentError` where the processes have different numbers of replicas.
    """
    counts = {owners.count(process) for process in owners}
    if len(counts) > 1:
        raise errors.ArgumentError(
            errors.explain(
                "an axis of a mesh over several processes",
                f"its devices belong to the processes {list(owners)}",
                "let each process have the same number of an axis's devices",
            )
        )
    far = _spoken(owners, job.communicator, list(range(job.count)))
    return Line(owners, far, job.index)


def _spoken(owners: Sequence[int], everyone: Any, processes: list[int]) -> Any:
    """The communicator of the processes of a line; `None` if it is one alone.

    `processes` are those that `everyone` joins.
    """
    members = [processes.index(process) for process in dict.fromkeys(owners)]
    if len(members) == 1:
        return None
    others = [[rank] for rank in range(len(processes)) if rank not in members]
    return everyone.split([members, *others])


class Joined:
    """One replica's hold of those on its line, a `Communicator`.

    `place` is its place among those of its process, which meet in `exchange`.
    """

    __slots__ = ("exchange", "job", "line", "place", "rank", "size")

    def __init__(
        self, line: Line, exchange: Exchange, place: int, job: Processes
    ) -> None:
        self.line = line
        self.exchange = exchange
        self.place = place
        self.job = job
        self.rank = line.own[place]
        self.size = len(line.owners)

    @property
    def between(self) -> Any:
        """What meets the processes of the line, if each has one replica on it."""
        return self.line.far if len(self.line.own) == 1 else None

    def all_reduce(self, x: NumPyArray, out: NumPyArray, op: str) -> None:
        """One process's replicas are heard as its arrays."""
        line = self.line
        self._speak(
            ("all_reduce", op), x, out, lambda given: line.all_reduce(given, op)
        )

    def all_gather(self, x: NumPyArray, out: NumPyArray) -> None:
        """Each gets all."""
        self._speak(("all_gather",), x, out, self.line.all_gather)

    def reduce_scatter(self, x: NumPyArray, out: NumPyArray) -> None:
        """Each gets the sum of its own row of all."""
        self._speak(("reduce_scatter",), x, out, self.line.reduce_scatter)

    def all_to_all(self, x: NumPyArray, out: NumPyArray) -> None:
        """Each gets its own row of all."""
        self._speak(("all_to_all",), x, out, self.line.all_to_all)

    def permute(self, x: NumPyArray, out: NumPyArray, perm: Pairs) -> None:
        """Each gets what is sent to it."""
        line, pairs = self.line, tuple(perm)
        self._speak(("ppermute", pairs), x, out, lambda g: line.permute(g, pairs))

    def split(self, groups: Sequence[Sequence[int]]) -> Communicator:
        """The hold of this rank's group."""
        key = tuple(map(tuple, groups))
        what = ("split", key, "", ())
        self.exchange.meet(self.place, what, None, lambda _: self.line.divide(key))
        group = next(ranks for ranks in key if self.rank in ranks)
        line = self.line.parts[key][group]
        own = [r for r in group if r in self.line.own]
        local = self.exchange.group(tuple([self.line.own.index(r) for r in own]))
        place = own.index(self.rank)
        if line.far is None:
            return Member(local, place)
        return Joined(line, local, place, self.job)

    def leave(self, error: BaseException | None) -> None:
        """The others need not wait; what went wrong, all processes hear."""
        self.exchange.leave(self.place, error)
        self.job.communicator.leave(error)

    def _speak(
        self, what: tuple[Any, ...], x: NumPyArray, out: NumPyArray, act: Any
    ) -> None:
        """Meets the replicas of this process; the last one does what `act` does."""
        full = (*what, x.dtype.name, x.shape)
        self.exchange.meet(self.place, full, (x, out), act)
