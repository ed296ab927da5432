"""Sums of trees of arrays, many small ones in one collective.

A collective of a few bytes takes as long as one of many: replicas wait for each other.
Receives trees, gives trees. Next on the walk: `cluster.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import fnx.numpy as fnp
from fnx import errors, lax, tree
from fnx.core.array import Array
from fnx.numpy.operands import as_array


def psum_in_buckets(x: Any, axis_name: Any, nbytes: int = 2**25) -> Any:
    """The sum over all replicas of every leaf, as `fnx.lax.psum`, in fewer collectives.

    Leaves of one dtype are laid one after the other in buckets of at most `nbytes`
    bytes; a leaf that is larger has a bucket of its own. Each element is summed over
    the replicas in their order, so that every bit is that of `psum`. Worth it where
    leaves are small: what is laid together is copied there and back.

    Raises `ArgumentError` for a bucket of less than a byte, and what `psum` raises.

    >>> import fnx
    >>> def total(x):
    ...     return psum_in_buckets({"a": x, "b": 2 * x}, "i")
    >>> f = fnx.vmap(total, axis_name="i")
    >>> f(fnp.array([1.0, 2.0]))
    {'a': Array([3., 3.], dtype=float32), 'b': Array([6., 6.], dtype=float32)}
    """
    if nbytes < 1:
        raise errors.ArgumentError(f"psum_in_buckets: nbytes={nbytes}, less than 1")
    leaves, treedef = tree.flatten(x)
    arrays = [as_array("psum_in_buckets", leaf) for leaf in leaves]
    found: dict[int, Array] = {}
    for bucket in _buckets(arrays, nbytes):
        found |= zip(
            bucket, _summed([arrays[n] for n in bucket], axis_name), strict=True
        )
    return treedef.unflatten([found[n] for n in range(len(arrays))])


def _buckets(arrays: Sequence[Array], nbytes: int) -> Iterator[list[int]]:
    """The numbers of arrays that are summed together; in each bucket is one dtype."""
    by_dtype: dict[Any, list[int]] = {}
    for number, x in enumerate(arrays):
        by_dtype.setdefault(x.dtype, []).append(number)
    for numbers in by_dtype.values():
        bucket: list[int] = []
        filled = 0
        for number in numbers:
            size = arrays[number].type.size * arrays[number].dtype.itemsize
            if bucket and filled + size > nbytes:
                yield bucket
                bucket, filled = [], 0
            bucket.append(number)
            filled += size
        yield bucket


def _summed(arrays: Sequence[Array], axis_name: Any) -> list[Array]:
    if len(arrays) == 1:
        return [lax.psum(arrays[0], axis_name)]
    flat = fnp.concatenate([fnp.ravel(x) for x in arrays])
    total = lax.psum(flat, axis_name)
    found = []
    start = 0
    for x in arrays:
        stop = start + x.type.size
        found.append(fnp.reshape(total[start:stop], x.shape))
        start = stop
    return found
