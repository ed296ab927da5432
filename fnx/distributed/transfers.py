"""What a collective costs: rings and trees over the levels of a cluster.

A ring of n members moves (n - 1) / n of the bytes through each of them in n - 1 steps,
a tree takes as many steps as it has storeys; both for an all-reduce twice (Thakur,
Rabenseifner & Gropp, 2005; the bus bandwidths of NCCL's tests are these numbers).
Through several levels either all members are one ring or one tree, or the work is
scattered on the inner level first, so that each device carries its part outside.
Receives levels and numbers of members, gives seconds. Next on the walk: `timeline.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.distributed.cluster import Level
from fnx.records import record

Reached = Sequence[tuple[Level, int]]


@record
class Transfer:
    """How long a collective takes, and through what.

    `latency` and `sending` have, for each level by name, the seconds of steps and those
    of bytes.
    """

    algorithm: str
    latency: tuple[tuple[str, float], ...]
    sending: tuple[tuple[str, float], ...]

    @property
    def seconds(self) -> float:
        """All together."""
        return sum([t for _, t in (*self.latency, *self.sending)])


NOTHING = Transfer("none", (), ())


def transfer(kind: str, nbytes: float, reached: Reached) -> Transfer:
    """The quickest way for a collective whose whole array has so many bytes.

    `kind` is "all_reduce", "all_gather", "reduce_scatter", "all_to_all" or "broadcast".
    The whole array is what one replica reduces, scatters or exchanges, and what it has
    gathered.
    """
    if not reached:
        return NOTHING
    return min(ways(kind, nbytes, reached), key=lambda way: way.seconds)


def ways(kind: str, nbytes: float, reached: Reached) -> list[Transfer]:
    """Every way that is known."""
    if kind == "all_to_all":
        return [_direct(nbytes, reached), _bruck(nbytes, reached)]
    if kind == "broadcast":
        return [_flat("tree", 1, nbytes, reached, 1.0)]
    passes = 2 if kind == "all_reduce" else 1
    total = math.prod([n for _, n in reached])
    share = (total - 1) / total
    found = [
        _flat("ring", passes, nbytes, reached, share),
        # up a tree to its root and down again go all of the bytes
        _flat("tree", passes, nbytes, reached, 1.0 if passes == 2 else share),
    ]
    if len(reached) > 1:
        found += [_scattered(how, passes, nbytes, reached) for how in ("ring", "tree")]
    return found


def message(nbytes: float, level: Level) -> Transfer:
    """One message through the links of a level."""
    return Transfer(
        "message",
        ((level.name, level.latency),),
        ((level.name, nbytes / level.bandwidth),),
    )


def _steps(how: str, n: int) -> int:
    return n - 1 if how == "ring" else math.ceil(math.log2(n))


def _narrowest(reached: Reached) -> tuple[Level, float]:
    """The level that holds up what passes through all, and its bytes a second.

    All devices below share what leaves for a level: each of them has its own links.
    """
    found = []
    below = 1
    for level, n in reached:
        found.append((level.bandwidth * below, level))
        below *= n
    bandwidth, level = min(found, key=lambda row: row[0])
    return level, bandwidth


def _flat(
    how: str, passes: int, nbytes: float, reached: Reached, share: float
) -> Transfer:
    """All members in one ring, or two trees of which each carries half of the bytes.

    `share` is that of the bytes that a member sends, in each pass.
    """
    total = math.prod([n for _, n in reached])
    level, bandwidth = _narrowest(reached)
    if how == "ring":
        # every step waits for its slowest link
        slowest = max(reached, key=lambda row: row[0].latency)[0]
        latency: list[tuple[str, float]] = [
            (slowest.name, passes * (total - 1) * slowest.latency)
        ]
    else:
        latency = [
            (each.name, passes * _steps("tree", n) * each.latency)
            for each, n in reached
        ]
    sending = passes * share * nbytes / bandwidth
    return Transfer(how, tuple(latency), ((level.name, sending),))


def _scattered(how: str, passes: int, nbytes: float, reached: Reached) -> Transfer:
    """Level by level: the outer ones carry what the inner ones have not in common."""
    latency, sending = [], []
    left = nbytes
    for level, n in reached:
        latency.append((level.name, passes * _steps(how, n) * level.latency))
        sending.append((level.name, passes * (n - 1) / n * left / level.bandwidth))
        left /= n
    return Transfer(f"{how} of each level", tuple(latency), tuple(sending))


def _direct(nbytes: float, reached: Reached) -> Transfer:
    """A message to each of the others; what goes through different links overlaps."""
    total = math.prod([n for _, n in reached])
    latency, sending = [], []
    done = 1
    for level, n in reached:
        others = done * (n - 1)
        latency.append((level.name, others * level.latency))
        sending.append((level.name, others / total * nbytes / level.bandwidth))
        done *= n
    longest = max(sending, key=lambda row: row[1])
    return Transfer("direct", tuple(latency), (longest,))


def _bruck(nbytes: float, reached: Reached) -> Transfer:
    """Half of the bytes in each of log₂ n steps (Bruck et al., 1997)."""
    latency, sending = [], []
    for level, n in reached:
        steps = math.ceil(math.log2(n))
        latency.append((level.name, steps * level.latency))
        sending.append((level.name, steps * nbytes / 2 / level.bandwidth))
    return Transfer("bruck", tuple(latency), tuple(sending))
