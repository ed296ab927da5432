"""Communicator: how the replicas of a program exchange arrays.

Receives arrays of one replica; writes what it gets of the others. Threads of a
process implement it (`fnx/runtime/exchange.py`), and whatever joins processes. All
replicas call the same methods in the same order, with arrays of the same shapes and
dtypes: whoever does not, or does not come, is an error on every replica
(`errors.CollectiveError`). Next on the walk: `axes.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from fnx.records import record

NumPyArray = np.ndarray[Any, Any]
Pairs = Sequence[tuple[int, int]]


@record
class OnDevice:
    """An array in the memory of a device, for a communicator of replicas there.

    What becomes of it comes behind the work that is on the stream, and what is put on
    the stream later comes behind that.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    stream: int

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return math.prod(self.shape) * self.dtype.itemsize


class Communicator(Protocol):
    """One replica's hold of the others along an axis.

    Sums are ((x0 + x1) + x2)… on every replica, in the order of the ranks; 16-bit
    floats are summed in float32 and rounded once. Arrays are C-contiguous; `out` is
    written, and is no memory of `x`. Between devices both may be `OnDevice`; the order
    of a sum is that of the library there.
    """

    size: int
    rank: int

    def all_reduce(self, x: NumPyArray, out: NumPyArray, op: str) -> None:
        """The "sum", "max" or "min" of all replicas' arrays."""
        ...

    def all_gather(self, x: NumPyArray, out: NumPyArray) -> None:
        """The arrays of all replicas as the rows of `out`."""
        ...

    def reduce_scatter(self, x: NumPyArray, out: NumPyArray) -> None:
        """The sum of all replicas' rows of this rank's number."""
        ...

    def all_to_all(self, x: NumPyArray, out: NumPyArray) -> None:
        """Row i of `out` is row `rank` of replica i."""
        ...

    def permute(self, x: NumPyArray, out: NumPyArray, perm: Pairs) -> None:
        """The array of the replica that sends here; zeros if none does.

        `perm` has (source, destination) pairs; a source may send to several.
        """
        ...

    def split(self, groups: Sequence[Sequence[int]]) -> Communicator:
        """The communicator of the group of ranks that this one is in."""
        ...

    def leave(self, error: BaseException | None) -> None:
        """This replica comes no more, whatever went wrong: nobody waits for it."""
        ...


class Alone:
    """The communicator of the only replica of an axis."""

    size = 1
    rank = 0

    def all_reduce(self, x: NumPyArray, out: NumPyArray, op: str) -> None:
        """The array itself."""
        out[...] = x

    def all_gather(self, x: NumPyArray, out: NumPyArray) -> None:
        """The one row."""
        out[0] = x

    def reduce_scatter(self, x: NumPyArray, out: NumPyArray) -> None:
        """The one row."""
        out[...] = x[0]

    def all_to_all(self, x: NumPyArray, out: NumPyArray) -> None:
        """The array itself."""
        out[...] = x

    def permute(self, x: NumPyArray, out: NumPyArray, perm: Pairs) -> None:
        """The array itself, if it is sent."""
        out[...] = x if perm else 0

    def split(self, groups: Sequence[Sequence[int]]) -> Alone:
        """Alone in its group."""
        return self

    def leave(self, error: BaseException | None) -> None:
        """Nobody waits."""
