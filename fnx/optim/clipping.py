"""Limits on the size of updates: of each element, or of all together.

Receives updates, gives updates. Next on the walk: `algorithms.py`.
"""

from __future__ import annotations

import fnx.numpy as fnp
from fnx import tree
from fnx.core.array import Array
from fnx.optim.hyperparameters import NOT_NEGATIVE, POSITIVE
from fnx.optim.transformation import (
    GradientTransformation,
    Params,
    Updates,
    stateless,
)
from fnx.optim.updates import Leaf, floating, global_norm, scaled


def clip(max_delta: float | Array) -> GradientTransformation:
    """Clip each element to [-max_delta, max_delta].

    >>> clip(1.0).update(fnp.array([-3.0, 0.5]), ())[0]
    Array([-1. ,  0.5], dtype=float32)
    """
    NOT_NEGATIVE.check("clip", "max_delta", max_delta)

    def clipped(g: Leaf) -> Leaf:
        most: Leaf = fnp.asarray(max_delta, g.dtype)
        return fnp.clip(g, -most, most)

    def clip_tree(updates: Updates, params: Params) -> Updates:
        return tree.map(clipped, floating("clip", "updates", updates))

    return stateless(clip_tree)


def clip_by_global_norm(max_norm: float | Array) -> GradientTransformation:
    """Shrink all updates together so that their global norm is at most `max_norm`.

    Updates of a smaller norm pass unchanged, zeros stay zeros, and the gradient through
    it is finite there. A NaN or an infinity among the updates is not hidden: it makes
    others NaN or 0. Pascanu, Mikolov and Bengio, "On the difficulty of training
    Recurrent Neural Networks", 2013.

    >>> clip_by_global_norm(1.0).update(fnp.array([3.0, 4.0]), ())[0].round(4)
    Array([0.6, 0.8], dtype=float32)
    """
    POSITIVE.check("clip_by_global_norm", "max_norm", max_norm)

    def clip_tree(updates: Updates, params: Params) -> Updates:
        updates = floating("clip_by_global_norm", "updates", updates)
        norm = global_norm(updates)
        most: Leaf = fnp.asarray(max_norm, norm.dtype)
        factor = most / fnp.maximum(norm, most)  # exactly 1 below the limit
        return tree.map(lambda g: scaled(g, factor), updates)

    return stateless(clip_tree)
