"""Which examples each process loads: parts of the data, and batches in a random order.

The order is a function of seed, epoch and place alone: the batches of a job are the
same with any number of processes, a job that is restarted goes on with the batch that
was next, and nothing but the number of the step has to be kept. Next on the walk:
`checkpoint.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx import errors
from fnx.records import record
from fnx.runtime.processes import processes

Indices = np.ndarray[Any, np.dtype[np.int64]]

# Rounds of the Feistel network, and the fewest bits of each of its halves: with fewer,
# the orders of a few examples would not be even.
_ROUNDS = 6
_LEAST_BITS = 3
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1


def shard_of(n: int) -> range:
    """The part of `range(n)` that belongs to this process.

    Parts are in the order of the processes, and their lengths differ by at most one.
    Raises `ArgumentError` for a negative number.

    >>> import fnx
    >>> fnx.distributed.shard_of(10)  # of one process
    range(0, 10)
    """
    return part(n, processes().index, processes().count)


def part(n: int, index: int, count: int) -> range:
    """The part of `range(n)` that belongs to process `index` of `count`.

    >>> [len(part(10, i, 4)) for i in range(4)]
    [2, 3, 2, 3]
    """
    if n < 0:
        raise errors.ArgumentError(f"shard_of({n}): there are no so many items.")
    return range(n * index // count, n * (index + 1) // count)


@record
class Sampler:
    """Batches of indices of `size` examples, in another random order each epoch.

    `batch(step)` gives the indices of this process's part of a batch of `batch_size`
    examples. What is left at the end of an epoch, and makes no whole batch, is left
    out; it is something else in each epoch. Raises `ArgumentError` for a batch that is
    larger than the data or that does not divide by the number of processes.

    >>> sampler = Sampler(size=10, batch_size=4, seed=1)
    >>> sampler.steps
    2
    >>> sampler.batch(0)
    array([0, 7, 2, 6])
    """

    size: int
    batch_size: int
    seed: int = 0
    shuffle: bool = True

    @property
    def steps(self) -> int:
        """The number of batches of an epoch."""
        return self.size // self.batch_size

    def batch(self, step: int) -> Indices:
        """This process's indices of batch number `step`, epochs one after another."""
        count = processes().count
        reason = ""
        if not 0 < self.batch_size <= self.size:
            reason = f"a batch has 1 to {self.size} examples"
        elif self.batch_size % count:
            reason = f"{self.batch_size} is no multiple of {count}"
        elif step < 0:
            reason = "batches are counted from 0"
        if reason:
            asked = f"{self}: batch {step} for {count} processes"
            raise errors.ArgumentError(errors.explain(asked, reason))
        epoch, within = divmod(step, self.steps)
        places = np.arange(self.batch_size)[slice_of(shard_of(self.batch_size))]
        places += within * self.batch_size
        return permuted(places, self.size, self.seed, epoch) if self.shuffle else places


def slice_of(rows: range) -> slice:
    """The slice that takes these rows."""
    return slice(rows.start, rows.stop)


def permuted(places: Indices, size: int, seed: int, epoch: int) -> Indices:
    """What stands at places of a permutation of `range(size)`, without making it.

    A Feistel network permutes the numbers below a power of 4, and is applied until the
    number is one of the wanted (Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002).
    """
    half = max(((size - 1).bit_length() + 1) // 2, _LEAST_BITS)
    keys = _keys(seed, epoch)
    result = np.asarray(places).astype(np.uint64)
    todo = np.ones(result.shape, bool)
    while todo.any():
        result[todo] = _feistel(result[todo], half, keys)
        todo = result >= size
    return result.astype(np.int64)


def _keys(seed: int, epoch: int) -> list[int]:
    """The keys of the rounds."""
    state = _mixed((seed * _GOLDEN + 1) & _WORD)
    state = _mixed(state ^ _mixed((epoch * _GOLDEN + 2) & _WORD))
    return [_mixed((state + i * _GOLDEN) & _WORD) for i in range(_ROUNDS)]


def _mixed(x: int) -> int:
    """The finalizer of SplitMix64."""
    x = (x ^ (x >> 30)) * _MIX[0] & _WORD
    x = (x ^ (x >> 27)) * _MIX[1] & _WORD
    return x ^ (x >> 31)


def _feistel(x: np.ndarray[Any, Any], half: int, keys: list[int]) -> Any:
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = x >> bits, x & mask
    for key in keys:
        mixed = right + np.uint64(key)  # 64-bit words wrap
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX[0])
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX[1])
        left, right = right, left ^ ((mixed ^ (mixed >> np.uint64(31))) & mask)
    return (left << bits) | right
