"""Which loops threads share, and how their rounds are cut: by shape alone.

Receives a scheduled kernel; gives, for each outermost loop with enough work, the chunks
that the thread pool hands out. One thread does all other loops sooner than the others
would be there to help. Nothing here depends on the number of threads, nor do results: a
chunk is whole rounds of a loop whose rounds know nothing of each other, and a fold
combines the values of the rounds in their order. Next on the walk: `emit.py`.
"""

from __future__ import annotations

from fnx.cpu.pool import RUN, RUN_SHORT
from fnx.kernel.ir import Kernel, Loop, Stmt, loops, parallel_loops
from fnx.kernel.vectorize import scheduled_cost
from fnx.records import record
from fnx.sizes import Size, lesser, usual

NANOSECONDS = 0.25
"""About what one unit of the schedule's costs takes: an instruction with its share of
waiting for memory."""

LEAST = 8_000
"""The nanoseconds of work that are shared at least: a worker that is awake is there in
less than one microsecond, as in a loop whose steps are shared."""

SHORT = 50_000
"""The nanoseconds of work for which no worker is woken, unless it comes again and
again: one that is parked takes ten microseconds, and forty on a virtual machine, and
waking it takes the caller ten."""

CHUNK = 10_000
"""The nanoseconds that a chunk takes at least, if there are more than two: many times
what taking one costs, and more of what a thread reads is in its cache from before."""

MOST_CHUNKS = 256
"""More chunks than processors, so that all of them are busy to the end."""

MOST_PARTIALS = 16_384
"""A shared loop with folds has at most so many rounds: it keeps a value of each."""


@record
class Share:
    """A loop of so many rounds, to be run in chunks of so many; by which function."""

    rounds: int | Size
    chunk: int | Size
    run: str = RUN


def shares(kernel: Kernel) -> dict[Loop, Share]:
    """How threads share the loops of a kernel, those that are not run as a whole."""
    cuts = {loop: _cut_loop(loop) for loop in parallel_loops(kernel)}
    return {loop: share for loop, share in cuts.items() if share is not None}


def _cut_loop(loop: Loop) -> Share | None:
    nanoseconds = NANOSECONDS * scheduled_cost((loop,))
    inner = sum(each.extent for each in loops(loop.body))
    if isinstance(inner, Size) and not isinstance(loop.extent, Size):
        share = cut(loop.extent, loop.width, max(nanoseconds, LEAST))
        return (
            None if share is None or loop.folds else _if_long(share, inner, nanoseconds)
        )
    if isinstance(loop.extent, Size):
        # Its partial values have no place on the stack.
        return None if loop.folds else cut_any(loop.extent, loop.width, nanoseconds)
    if loop.folds and loop.extent > MOST_PARTIALS:
        return None
    return cut(loop.extent, loop.width, nanoseconds)


def cut(rounds: int, width: int, nanoseconds: float) -> Share | None:
    """The chunks of a loop, in whole vectors; None where it has work for one only.

    >>> cut(1_000_000, 8, 300_000.0)
    Share(rounds=1000000, chunk=33336, run='fnx_run')
    >>> cut(1000, 8, 5_000.0) is None
    True
    """
    if nanoseconds < LEAST:
        return None
    pieces = min(max(int(nanoseconds / CHUNK), 2), MOST_CHUNKS)
    vectors = -(-rounds // width)
    chunk = -(-vectors // pieces) * width
    run = RUN_SHORT if nanoseconds < SHORT else RUN
    return Share(rounds, chunk, run) if chunk < rounds else None


def _if_long(share: Share, inner: Size, nanoseconds: float) -> Share:
    """The chunks if the loops inside are long enough, else one chunk.

    With their usual number of rounds it all takes so many `nanoseconds`.
    """
    enough = max(int(LEAST * usual(inner) / nanoseconds), 1)
    rounds, chunk = share.rounds, share.chunk
    chunk = rounds - lesser(inner // enough, 1) * (rounds - chunk)
    return Share(rounds, chunk)


def cut_any(rounds: Size, width: int, nanoseconds: float) -> Share:
    """The chunks of a loop whose rounds are known when it runs, in whole vectors.

    `nanoseconds` is what its usual number of rounds takes. What is too little for two
    threads is one chunk.
    """
    least = max(int(CHUNK * usual(rounds) / nanoseconds), 1)
    most = rounds // (MOST_CHUNKS * width)
    return Share(rounds, (most + -(-least // width)) * width)


def kernel_rounds(kernel: Kernel) -> int:
    """How many rounds the loops of a kernel make, innermost ones and vectors."""
    return sum(map(_rounds, kernel.body))


def _rounds(stmt: Stmt) -> int:
    if not isinstance(stmt, Loop):
        return 0
    inner = sum(map(_rounds, stmt.body))
    return int(usual(stmt.extent)) * max(inner, 1) // stmt.width
