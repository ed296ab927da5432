"""Arrays of random numbers for the tests of replicas."""

from __future__ import annotations

import numpy as np


def random(*shape, dtype="float32", seed=0):
    """Normal numbers; integers between -100 and 100."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-100, 100, shape).astype(dtype)
    if np.dtype(dtype).kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(
            dtype
        )
    return rng.standard_normal(shape).astype(dtype)
