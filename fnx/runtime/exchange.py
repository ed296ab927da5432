"""Exchange: where the threads of one process that run replicas meet.

Each thread brings an array and waits for the others; then each has the arrays of all,
and works on its part of the result. What is small is done by the last one to come, for
all of them: a wait costs more than that. Nobody waits for a thread that has ended,
failed, or does not come in time: all the others raise `CollectiveError`. Receives
NumPy arrays; writes NumPy arrays. Next on the walk: `replicas.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx import dtypes, errors
from fnx.config import config
from fnx.core.communicator import NumPyArray, Pairs

_SMALL = 2**15  # bytes that one thread moves sooner than others wake up
_BLOCK = 2**16  # elements of a sum that stay in a cache

What = tuple[Any, ...]
"""What a replica calls: the collective and its params, the dtype and the shape."""

Work = Callable[[int, Sequence[Any]], None]


class _Round:
    """One meeting: what each rank brings, and what came of it."""

    __slots__ = ("count", "error", "given", "whats")

    def __init__(self, size: int) -> None:
        self.count = 0
        self.error: BaseException | None = None
        self.given: list[Any] = [None] * size
        self.whats: list[What | None] = [None] * size


class Exchange:
    """A place where `size` threads meet, again and again; `name` is of their axis."""

    def __init__(self, size: int, name: Any = "") -> None:
        self.size = size
        self.name = name
        self._lock = threading.Lock()
        self._round = _Round(size)
        self._number = 0
        self._error: BaseException | None = None
        self._gone: dict[int, BaseException | None] = {}
        self._groups: dict[Any, Exchange] = {}
        # Closed while their ranks wait.
        self._gates = [threading.Lock() for _ in range(size)]
        for gate in self._gates:
            gate.acquire()

    def meet(
        self, rank: int, what: What, value: Any, act: Callable[[Any], None] | None
    ) -> list[Any]:
        """Waits for all ranks; gives what each has brought.

        The last one to come calls `act` with that before the others go on.
        """
        with self._lock:
            self._refuse(rank, what)
            here, number = self._round, self._number
            here.given[rank], here.whats[rank] = value, what
            here.count += 1
            last = here.count == self.size
            if last:
                self._round = _Round(self.size)
                self._number += 1
        if last:
            self._end(rank, here, number, act)
        elif not self._gates[rank].acquire(timeout=config.collective_timeout):
            self._late(rank, here, number, what)
        if here.error is not None:
            raise here.error if last else _again(here.error)
        return here.given

    def leave(self, rank: int, error: BaseException | None = None) -> None:
        """This rank comes no more, because of an error or because it has ended."""
        with self._lock:
            self._gone[rank] = error
            here = self._round
            if here.count and here.error is None:
                here.error = self._missing(here)
                self._open([r for r, w in enumerate(here.whats) if w is not None])
            groups = list(self._groups.items())
        for (ranks, *_), group in groups:
            if rank in ranks:
                group.leave(ranks.index(rank), error)

    def group(self, ranks: tuple[int, ...]) -> Exchange:
        """The exchange of some of the ranks."""
        with self._lock:
            found = self._groups.get((ranks,))
            if found is None:
                found = self._groups[ranks,] = Exchange(len(ranks), self.name)
        return found

    # -- inside

    def _end(
        self,
        rank: int,
        here: _Round,
        number: int,
        act: Callable[[Any], None] | None,
    ) -> None:
        """The last one looks whether all came for the same, and lets them go on."""
        try:
            self._compare(here, number)
            if act is not None:
                act(here.given)
        except BaseException as error:
            here.error = error
        self._open([other for other in range(self.size) if other != rank])

    def _open(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._gates[rank].release()

    def _compare(self, here: _Round, number: int) -> None:
        first = here.whats[0]
        for rank, what in enumerate(here.whats):
            if what != first:
                raise errors.CollectiveError(
                    errors.explain(
                        f"collective {number} along the axis {self.name!r}: the "
                        "replicas do not call the same",
                        f"replica 0 calls {shown(first)}, replica {rank} calls "
                        f"{shown(what)}",
                        "have all replicas take the same branches, and the same "
                        "number of rounds, around collectives",
                    )
                )

    def _refuse(self, rank: int, what: What) -> None:
        """Raises where some rank will not come."""
        if self._gone or self._error is not None:
            here = self._round
            here.whats[rank] = what
            raise self._missing(here)

    def _missing(self, here: _Round) -> Exception:
        """The error for ranks that wait for others which are gone.

        Those that are gone because of another one are not to blame.
        """
        if self._error is not None:
            return _again(self._error)
        what = next(what for what in here.whats if what is not None)
        ended = [rank for rank, error in self._gone.items() if error is None]
        failed = [
            rank
            for rank, error in self._gone.items()
            if error is not None and not isinstance(error, errors.CollectiveError)
        ]
        if failed:
            reason = f"{_have(failed)} failed"
        elif ended:
            reason = f"{_have(ended)} ended without it"
        else:
            reason = "the replicas did not meet before"
        return errors.CollectiveError(
            errors.explain(
                f"collective {self._number} along the axis {self.name!r}, "
                f"{shown(what)}",
                reason,
                "have all replicas take the same branches, and the same number of "
                "rounds, around collectives",
            )
        )

    def _late(self, rank: int, here: _Round, number: int, what: What) -> None:
        """Some rank has not come in time; unless all came just now."""
        with self._lock:
            waiting = here.count < self.size and here.error is None
            if waiting:
                here.error = self._error = self._overdue(here, number, what)
                came = [r for r, other in enumerate(here.whats) if other is not None]
                self._open([other for other in came if other != rank])
        if not waiting:
            self._gates[rank].acquire()  # it is being opened

    def _overdue(self, here: _Round, number: int, what: What) -> Exception:
        missing = [r for r, other in enumerate(here.whats) if other is None]
        return errors.CollectiveError(
            errors.explain(
                f"collective {number} along the axis {self.name!r}, {shown(what)}",
                f"{_have(missing)} not come within {config.collective_timeout} s",
                "see what it does; fnx.config.collective_timeout is how long the "
                "others wait",
            )
        )


def _again(error: BaseException) -> Exception:
    """The error of one thread for another one, which has its own traceback."""
    if isinstance(error, errors.CollectiveError):
        return errors.CollectiveError(*error.args)
    return errors.CollectiveError(f"another replica failed: {error!r}")


def _have(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, sorted(ranks)))
    return f"replicas {shown} have" if len(ranks) > 1 else f"replica {shown} has"


def shown(what: What | None) -> str:
    """What a replica calls, for people.

    >>> shown(("all_reduce", "sum", "float32", (3, 4)))
    'all_reduce(sum) of float32[3,4]'
    """
    if what is None:
        return "nothing"
    kind, *params, dtype, shape = what
    options = f"({', '.join(map(str, params))})" if params else ""
    return f"{kind}{options} of {dtype}[{','.join(map(str, shape))}]"


class Member:
    """One thread's hold of an exchange, a `Communicator`."""

    __slots__ = ("exchange", "rank", "size")

    between = None  # no other processes are met

    def __init__(self, exchange: Exchange, rank: int) -> None:
        self.exchange = exchange
        self.size = exchange.size
        self.rank = rank

    def all_reduce(self, x: NumPyArray, out: NumPyArray, op: str) -> None:
        """Each adds up one stretch, and writes it into everybody's output."""

        def work(rank: int, given: Sequence[Any]) -> None:
            xs = [pair[0].reshape(-1) for pair in given]
            outs = [pair[1].reshape(-1) for pair in given]
            begin, end = _stretch(xs[0].size, rank, self.size)
            for start in range(begin, end, _BLOCK):
                piece = slice(start, min(start + _BLOCK, end))
                fold([each[piece] for each in xs], op, outs[0][piece])
                for each in outs[1:]:
                    each[piece] = outs[0][piece]

        self._share(_what("all_reduce", x, op), x, out, work)

    def all_gather(self, x: NumPyArray, out: NumPyArray) -> None:
        """Each takes all."""

        def work(rank: int, given: Sequence[Any]) -> None:
            for row, (other, _) in enumerate(given):
                given[rank][1][row] = other

        self._share(_what("all_gather", x), x, out, work)

    def reduce_scatter(self, x: NumPyArray, out: NumPyArray) -> None:
        """Each adds up its own row of all."""

        def work(rank: int, given: Sequence[Any]) -> None:
            rows = [other[rank].reshape(-1) for other, _ in given]
            flat = given[rank][1].reshape(-1)
            for start in range(0, flat.size, _BLOCK):
                piece = slice(start, start + _BLOCK)
                fold([row[piece] for row in rows], "sum", flat[piece])

        self._share(_what("reduce_scatter", x), x, out, work)

    def all_to_all(self, x: NumPyArray, out: NumPyArray) -> None:
        """Each takes its own row of all."""

        def work(rank: int, given: Sequence[Any]) -> None:
            for row, (other, _) in enumerate(given):
                given[rank][1][row] = other[rank]

        self._share(_what("all_to_all", x), x, out, work)

    def permute(self, x: NumPyArray, out: NumPyArray, perm: Pairs) -> None:
        """Each takes what is sent to it."""
        sources = {target: source for source, target in perm}

        def work(rank: int, given: Sequence[Any]) -> None:
            source = sources.get(rank)
            given[rank][1][...] = 0 if source is None else given[source][0]

        self._share(_what("ppermute", x, tuple(perm)), x, out, work)

    def split(self, groups: Sequence[Sequence[int]]) -> Member:
        """The hold of the exchange of this rank's group."""
        ranks = next(tuple(group) for group in groups if self.rank in group)
        return Member(self.exchange.group(ranks), ranks.index(self.rank))

    def leave(self, error: BaseException | None) -> None:
        """The others need not wait."""
        self.exchange.leave(self.rank, error)

    def together(
        self, what: What, value: Any, act: Callable[[Sequence[Any]], None]
    ) -> None:
        """Calls `act` once, in the thread that comes last, with the values of all."""
        self.exchange.meet(self.rank, what, value, act)

    def _share(self, what: What, x: NumPyArray, out: NumPyArray, work: Work) -> None:
        """Has the work of each rank done, which writes outputs of any of them."""
        size, meet = self.size, self.exchange.meet
        if max(x.nbytes, out.nbytes) * size <= _SMALL:

            def all_of_it(given: Sequence[Any]) -> None:
                for rank in range(size):
                    work(rank, given)

            meet(self.rank, what, (x, out), all_of_it)
            return
        work(self.rank, meet(self.rank, what, (x, out), None))
        # Inputs are read, and outputs written, until here.
        meet(self.rank, what, None, None)


def _what(kind: str, x: NumPyArray, *params: Any) -> What:
    return kind, *params, x.dtype.name, x.shape


def _stretch(size: int, rank: int, ranks: int) -> tuple[int, int]:
    """The part of so many elements that a rank works on, by whole cache lines."""
    share = -(-size // ranks)
    share = -(-share // 64) * 64
    return min(rank * share, size), min((rank + 1) * share, size)


_FOLDS: dict[str, Any] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def fold(arrays: Sequence[NumPyArray], op: str, out: NumPyArray) -> None:
    """The arrays combined in their order; NaN wins, and 16-bit floats round once.

    >>> out = np.empty(2)
    >>> fold([np.ones(2), np.ones(2), np.ones(2)], "sum", out)
    >>> out
    array([3., 3.])
    """
    combine, dtype = _FOLDS[op], out.dtype
    first, *others = arrays
    with np.errstate(all="ignore"):
        if dtypes.is_float(dtype) and dtype.itemsize < 4:
            total = first.astype(np.float32)
            for other in others:
                combine(total, other.astype(np.float32), out=total)
            out[...] = total
        elif others:
            combine(first, others[0], out=out)
            for other in others[1:]:
                combine(out, other, out=out)
        else:
            out[...] = first
