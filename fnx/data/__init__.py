"""Layer 10: data on its way to a function: batches padded to a few sizes.

Functions that are compiled for each size they meet (`jit` without `dynamic`, `pmap`,
what runs on a GPU) get few sizes to meet, and a mask of what is real. Receives trees of
arrays, gives trees of the same structure. Read `buckets.py`.

>>> import numpy as np
>>> lengths, mask = pad_to_bucket(np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3]))
>>> lengths.shape, int(mask.sum())
((12,), 10)
"""

from fnx.data.buckets import bucket_size, pad_to_bucket

__all__ = ["bucket_size", "pad_to_bucket"]
