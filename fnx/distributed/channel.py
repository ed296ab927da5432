"""Channels: how bytes go between the processes of a group, and what may go wrong.

A transport says how buffers are exchanged (`mpi.py`, `tcp.py`). Here is what they have
in common: every exchange belongs to a numbered meeting on which all processes agree
before anything is sent, nobody waits longer than `fnx.config.collective_timeout`, and
whoever fails tells the others. After that a channel is closed for good: what was on its
way is lost, and only a restart is safe. Next on the walk: `communicator.py`.
"""

from __future__ import annotations

import hashlib
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fnx import errors
from fnx.config import config
from fnx.records import record

Buffer = np.ndarray[Any, np.dtype[np.uint8]]
Buffers = Mapping[int, Buffer]

RESTART = "start the job again, from its last checkpoint"
# Up to this many processes each one hears of each other one that it has come; beyond,
# word goes round in a logarithm of rounds, and who is missing is known less exactly.
_ALL_PAIRS = 32
# What may be sent along where processes meet, in bytes, so that little needs one round.
NOTE = 2048
# What is shown of a collective in an error of another process.
_SHOWN = 512


_NOTHING: Buffer = np.empty(0, np.uint8)


class Broken(Exception):
    """Why a channel cannot be used any more."""


@record
class Meeting:
    """One collective: its number on its channel, and what is done, with all sizes."""

    number: int
    what: str

    def __str__(self) -> str:
        return f"collective {self.number}, {self.what}"

    @property
    def digest(self) -> int:
        """63 bits that are the same where the meeting is."""
        made = hashlib.sha256(str(self).encode()).digest()
        return int.from_bytes(made[:8], "little") >> 1


class Channel(ABC):
    """A process's hold of the others of its group.

    `members` are the numbers that the processes of the group have in the job, in the
    order of their ranks in the group. One thread at a time uses a channel.
    """

    def __init__(self, rank: int, members: Sequence[int]) -> None:
        self.rank = rank
        self.members = tuple(members)
        self._lock = threading.Lock()
        self._broken = ""
        self._announced = False
        self._parts: list[Channel] = []

    @property
    def size(self) -> int:
        """How many processes there are."""
        return len(self.members)

    # ------------------------------------------------------------ what transports do

    @abstractmethod
    def _exchange(self, sends: Buffers, receives: Buffers, patient: bool) -> None:
        """Sends buffers to ranks and fills others from ranks.

        Raises `Broken`. With `patient`, the others may be busy for a while yet, and
        what comes may be shorter than its buffer.
        """

    @abstractmethod
    def _listen(self) -> None:
        """Raises `Broken` if another process has said that it has failed."""

    @abstractmethod
    def _tell(self, text: str) -> None:
        """Tells the others, as far as possible, why this process comes no more."""

    @abstractmethod
    def _part(self, ranks: Sequence[int]) -> Channel:
        """The channel of these ranks; all others make theirs at the same time."""

    @abstractmethod
    def _close(self) -> None:
        """Gives back what the transport holds; who waits for this process notices."""

    # ------------------------------------------------------------ what users call

    @property
    def takes_notes(self) -> bool:
        """Whether `agree` may be given a note: where there are not too many ranks."""
        return self.size <= _ALL_PAIRS

    def agree(self, meeting: Meeting, note: Buffer = _NOTHING) -> Buffer:
        """Waits for all to come to the same meeting; gives the notes of all, as rows.

        A note has at most `NOTE` bytes. Raises `CollectiveError` on every rank where
        one comes to another meeting, does not come in time, or has failed.
        """
        with self._using(meeting):
            same, notes = self._agreed(meeting.digest, note)
            if not same:
                raise self._disagreement(meeting)
            self._listen()  # whoever was waited for too long comes too late
        return notes

    def exchange(self, sends: Buffers, receives: Buffers, meeting: Meeting) -> None:
        """Sends bytes to ranks, and fills buffers from ranks, all at once."""
        with self._using(meeting):
            self._exchange(sends, receives, patient=False)

    def part(self, ranks: Sequence[int], meeting: Meeting) -> Channel:
        """The channel of a group of ranks that this one is in.

        Every rank calls it, each with its own group.
        """
        with self._using(meeting):
            made = self._part(ranks)
        self._parts.append(made)
        return made

    def fail(self, text: str) -> None:
        """Tells the others that this process comes no more; closes for good."""
        self._broken = self._broken or text
        # whoever waits there sees that it is broken, and announces that itself
        if self._lock.acquire(timeout=0.1):
            self._announce()
            self._lock.release()
        for part in self._parts:
            part.fail(text)

    def close(self) -> None:
        """Leaves in order: whoever still waits for this process raises."""
        for part in self._parts:
            part.close()
        self._broken = self._broken or "this process has left"
        self._close()

    @property
    def broken(self) -> str:
        """Why it cannot be used any more, or an empty text."""
        return self._broken or next(filter(None, [c.broken for c in self._parts]), "")

    # ------------------------------------------------------------ how they agree

    @contextmanager
    def _using(self, meeting: Meeting) -> Iterator[None]:
        with self._lock:
            try:
                self._check()
                yield
            except errors.CollectiveError:
                raise  # all disagree in the same way, and nothing is on its way
            except Broken as error:
                self._broken = self._broken or str(error)
                self._announce()
                raise errors.CollectiveError(
                    errors.explain(self._here(meeting), self._broken, RESTART)
                ) from None
            except BaseException as error:
                self._broken = f"process {self.members[self.rank]} failed: {error!r}"
                self._announce()
                raise

    def _announce(self) -> None:
        if not self._announced:
            self._announced = True
            self._tell(self._broken)

    def _check(self) -> None:
        if self._broken:
            raise Broken(self._broken)

    def _here(self, meeting: Meeting) -> str:
        return f"{meeting} on process {self.members[self.rank]}"

    def _agreed(self, digest: int, note: Buffer) -> tuple[bool, Buffer]:
        """Whether all have the same digest, and their notes."""
        name = as_bytes(np.array([digest], "<i8"))
        if not self.takes_notes:
            return self._spread(np.array([digest, digest], "<i8")), note[None]
        mine = np.concatenate([name, note])
        theirs = np.zeros((self.size, 8 + NOTE), np.uint8)
        theirs[self.rank, : mine.size] = mine
        others = [r for r in range(self.size) if r != self.rank]
        sends, receives = dict.fromkeys(others, mine), {r: theirs[r] for r in others}
        self._exchange(sends, receives, patient=True)
        same = bool((theirs[:, :8] == name).all())
        return same, theirs[:, 8 : 8 + note.size]

    def _spread(self, extremes: np.ndarray[Any, Any]) -> bool:
        """Whether the least and the largest digest of all ranks are the same."""
        step = 1
        while step < self.size:
            got = np.empty_like(extremes)
            to, source = (self.rank + step) % self.size, (self.rank - step) % self.size
            sends, receives = {to: as_bytes(extremes)}, {source: as_bytes(got)}
            self._exchange(sends, receives, patient=True)
            extremes = np.array([min(extremes[0], got[0]), max(extremes[1], got[1])])
            step *= 2
        return bool(extremes[0] == extremes[1])

    def _disagreement(self, meeting: Meeting) -> errors.CollectiveError:
        """What each rank does, for an error that is the same on all of them."""
        text = str(meeting).encode()[:_SHOWN]
        texts = np.zeros((self.size, _SHOWN), np.uint8)
        texts[self.rank, : len(text)] = np.frombuffer(text, np.uint8)
        others = [r for r in range(self.size) if r != self.rank]
        mine = texts[self.rank].copy()
        receives = {r: texts[r] for r in others}
        self._exchange(dict.fromkeys(others, mine), receives, patient=False)
        ranks: dict[str, list[int]] = {}
        for rank, row in enumerate(texts):
            shown = row.tobytes().rstrip(b"\0").decode(errors="replace")
            ranks.setdefault(shown, []).append(self.members[rank])
        rows = [f"{processes(who)}: {what}" for what, who in ranks.items()]
        return errors.CollectiveError(
            errors.explain(
                self._here(meeting),
                "not all processes do the same:\n    " + "\n    ".join(rows),
                "let all processes call the same collectives in the same order, with "
                "arrays of the same shapes and dtypes",
            )
        )

    def _late(self, ranks: Sequence[int]) -> Broken:
        """Why nothing more is waited for."""
        who = processes([self.members[r] for r in ranks])
        has = "has" if len(ranks) == 1 else "have"
        if self.size > _ALL_PAIRS:
            who += ", or one that is waited for there,"
        return Broken(
            f"{who} {has} not come within {config.collective_timeout} s "
            "(fnx.config.collective_timeout)"
        )


def processes(numbers: Sequence[int]) -> str:
    """Numbers of processes, in words.

    >>> processes([3]), processes([0, 1, 4])
    ('process 3', 'processes 0, 1, 4')
    """
    plural = "es" if len(numbers) > 1 else ""
    return f"process{plural} " + ", ".join(map(str, numbers))


def as_bytes(x: np.ndarray[Any, Any]) -> Buffer:
    """The memory of a contiguous array, as bytes."""
    return x.reshape(-1).view(np.uint8)


def deadline() -> float:
    """When waiting that begins now ends, by `time.monotonic`."""
    return time.monotonic() + config.collective_timeout
