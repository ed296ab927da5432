"""Loops whose rounds know nothing of each other: which ones threads share, and how.

A scan without a carry (`lax.map`) may make its rounds in any order. A thread makes
whole rounds by itself then, in an arena of its own: what a round makes stays in the
cache of the thread that reads it, and threads meet once instead of after every step.
Receives a `LoopStep`, gives its `Stretch`, by the shape of the loop and the number of
the machine's processors. Next on the walk: `flow.py`.
"""

from __future__ import annotations

from fnx.cpu.effort import one_round
from fnx.cpu.threads import cpus
from fnx.records import record
from fnx.runtime.plan import LoopStep

LEAST = 2**14
"""Rounds of inner loops that a loop makes at least, to be worth the threads."""

UNSEEN = 2**24
"""Rounds of inner loops between two looks for signals: some ten milliseconds."""

MOST = 2**26
"""Rounds of inner loops in a round at most: threads of the pool cannot look."""

IDLE = 0.1
"""The part of the time that threads may wait for the one with most rounds: inside of
rounds they share the steps, and none waits."""

CHUNKS = 8
"""For each thread, so that those which are held up leave some to the others."""

MOST_ARENAS = 64
"""As many as a word has bits: which of them are free."""

MEMORY = 2**30
"""Bytes of all arenas at most."""


@record
class Stretch:
    """So many rounds between two looks, in chunks of so many.

    A chunk takes one of so many arenas, each of `arena` bytes, and gives it back.
    """

    rounds: int
    chunk: int
    arenas: int
    arena: int

    @property
    def nbytes(self) -> int:
        """The bytes of all arenas."""
        return self.arenas * self.arena


def stretch(step: LoopStep) -> Stretch | None:
    """How threads share the rounds of a loop; `None` if they do not."""
    length, arena, threads = step.length, step.body.arena, cpus()
    fixed = step.test is None and step.count is None and not step.carry
    if not fixed or not isinstance(length, int) or not isinstance(arena, int):
        return None
    # Infinite is also what calls Python, which threads of the pool cannot.
    effort = one_round(step)
    if effort > MOST or effort * length < LEAST:
        return None
    idle = 1 - length / (-(-length // threads) * threads)
    arenas, room = min(threads, MOST_ARENAS), -(-arena // 64) * 64
    if idle > IDLE or room * arenas > MEMORY:
        return None
    at_once = min(max(int(UNSEEN / effort), threads), length)
    return Stretch(at_once, -(-at_once // (CHUNKS * threads)), arenas, room)
