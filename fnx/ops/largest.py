"""The places of the largest elements of rows, without sorting the rows.

The k-th largest of the maxima of blocks is a bound that at least k elements reach;
those that do are few, and only they are sorted. Receives NumPy arrays, gives NumPy
arrays. Next on the walk: `collective.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# Blocks for each element that is asked for: with more of them fewer elements are left.
_BLOCKS = 4

# Rows that are shorter are sorted.
_SHORTEST = 64


def largest_places(x: Any, k: int) -> Any:
    """Where the k largest elements of rows are, in descending order; or `None`.

    NaN counts as larger than every number; of equal elements the first come first.
    `None` says that the rows should be sorted: they are short, or many elements of them
    would be left.

    >>> largest_places(np.arange(100.0), 2)
    array([99, 98])
    """
    size = x.shape[-1]
    blocks = max(_BLOCKS * k, min(1024, math.isqrt(size)))
    if not k or size < _SHORTEST or 2 * blocks > size or not x.size:
        return None
    rows = x.reshape(-1, size)
    long = size // blocks
    maxima = rows[:, : long * blocks].reshape(-1, long, blocks).max(1)
    bounds = np.partition(maxima, blocks - k, axis=1)[:, blocks - k]
    left = np.flatnonzero(~(rows < bounds[:, None]))  # NaN is not below the bound
    if 4 * left.size > x.size:
        return None
    owners, places = np.divmod(left[::-1], size)
    order = np.lexsort((rows[owners, places], owners))[::-1]
    # Now each row's places stand together, the last row's first.
    counts = np.bincount(owners, minlength=len(rows))[::-1]
    starts = np.cumsum(counts) - counts
    found = places[order[starts[:, None] + np.arange(k)]][::-1]
    return found.reshape(*x.shape[:-1], k)
