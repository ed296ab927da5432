"""Running averages of a leaf, and the correction of their start at zero.

Receives arrays in the dtype that they are computed in, gives such arrays. Next on the
walk: `leafwise.py`.
"""

from __future__ import annotations

import math
from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, tree
from fnx.optim.updates import Leaf, squared


def average(old: Leaf, new: Leaf, decay: Any) -> Leaf:
    """One step of a running average: decay · old + (1 - decay) · new."""
    return decay * old + (1 - decay) * new


def correction(decay: Any, count: Leaf, dtype: Any) -> Leaf:
    """1 - decay**count, to full precision also where decay is close to 1."""
    known = isinstance(decay, int | float)
    if known and decay == 0:
        return fnp.ones((), dtype)
    log = math.log(decay) if known else fnp.log(decay)
    power: Leaf = fnp.expm1(count.astype(dtype) * log)
    return -power


def square_dtype(dtype: Any) -> Any:
    """What averages of squares are kept in: real, and float32 for 16 bits."""
    return dtypes.real_dtype(dtypes.compute_dtype(dtype))


def zeros(p: Leaf, dtype: Any = None) -> Leaf:
    """Zeros of a parameter's shape, by default of its dtype: an average's start."""
    return fnp.zeros(p.shape, dtype or p.dtype)


def zero_squares(p: Leaf, fill: Any = 0.0) -> Leaf:
    """Where an average of squared gradients starts."""
    return fnp.full(p.shape, fill, square_dtype(p.dtype))


# ---------------------------------------------------------------- trees


def update_moment(updates: Any, moments: Any, decay: Any, order: int) -> Any:
    """The running averages of the updates to the power of `order`, leaf by leaf.

    >>> update_moment(fnp.array([2.0]), fnp.array([0.0]), 0.5, 2)
    Array([2.], dtype=float32)
    """
    return tree.map(lambda g, m: average(m, g**order, decay), updates, moments)


def update_moment_per_elem_norm(
    updates: Any, moments: Any, decay: Any, order: int
) -> Any:
    """As `update_moment`, of magnitudes: real for complex updates.

    >>> update_moment_per_elem_norm(fnp.array([2.0j]), fnp.array([0.0]), 0.5, 2)
    Array([2.], dtype=float32)
    """

    def moved(g: Leaf, m: Leaf) -> Leaf:
        power = squared(g) ** (order / 2) if order != 2 else squared(g)
        return average(m, power, decay)

    return tree.map(moved, updates, moments)


def update_infinity_moment(updates: Any, moments: Any, decay: Any, eps: Any) -> Any:
    """Decaying maxima of magnitudes, max(decay · m, |g| + eps), leaf by leaf.

    >>> update_infinity_moment(fnp.array([-2.0]), fnp.array([8.0]), 0.5, 0.0)
    Array([4.], dtype=float32)
    """
    return tree.map(
        lambda g, m: fnp.maximum(fnp.abs(g) + eps, decay * m), updates, moments
    )


def bias_correction(moment: Any, decay: Any, count: Any) -> Any:
    """Averages that started at 0 divided by 1 - decay**count, leaf by leaf.

    >>> bias_correction(fnp.array([1.0]), 0.5, 1)
    Array([2.], dtype=float32)
    """
    times = fnp.asarray(count)
    return tree.map(
        lambda m: (m / correction(decay, times, m.dtype)).astype(m.dtype), moment
    )
