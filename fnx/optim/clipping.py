"""Limits on the size of updates: of each element, of a leaf, or of all together.

Receives updates, gives updates. Next on the walk: `algorithms.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import fnx.numpy as fnp
from fnx import tree
from fnx.core.array import Array
from fnx.errors import ShapeError
from fnx.optim.hyperparameters import NOT_NEGATIVE, POSITIVE
from fnx.optim.leafwise import beside_updates
from fnx.optim.transformation import (
    GradientTransformation,
    Params,
    Updates,
    stateless,
)
from fnx.optim.updates import (
    Leaf,
    floating,
    global_norm,
    root_mean_square,
    safe_root,
    scaled,
    squared,
    wide,
)


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


def clip_by_block_rms(threshold: float | Array) -> GradientTransformation:
    """Shrink each leaf's update so that its root mean square is at most `threshold`.

    Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost",
    2018, section 5.

    >>> clip_by_block_rms(1.0).update(fnp.array([1.0, 7.0]), ())[0].round(4)
    Array([0.2, 1.4], dtype=float32)
    """
    return block_rms_clip("clip_by_block_rms", "threshold", threshold)


def block_rms_clip(
    function: str, argument: str, threshold: Any
) -> GradientTransformation:
    """`clip_by_block_rms` on behalf of an algorithm that its errors name."""
    POSITIVE.check(function, argument, threshold)

    def clipped(g: Leaf) -> Leaf:
        size = root_mean_square(wide(g), threshold)
        return scaled(g, fnp.asarray(threshold, size.dtype) / size)

    def clip_tree(updates: Updates, params: Params) -> Updates:
        return tree.map(clipped, floating(function, "updates", updates))

    return stateless(clip_tree)


def adaptive_grad_clip(
    clipping: float | Array,
    eps: float | Array = 1e-3,
    axis: int | Sequence[int] | None = None,
) -> GradientTransformation:
    """Shrink updates, unit by unit, to at most `clipping` times the parameter's norm.

    A unit is what one output of a layer sees: the norms go over `axis` if given; else
    over all of an array with one axis of more than 1 element or none, over the first
    axis of a matrix (or three axes), over all but the last of a convolution's kernel.
    A parameter's norm counts as `eps` where it is less. `update` needs the parameters.
    Brock et al., "High-Performance Large-Scale Image Recognition Without
    Normalization", 2021.

    >>> params = fnp.array([3.0, 4.0])
    >>> adaptive_grad_clip(0.1).update(fnp.array([0.0, 2.0]), (), params)[0]
    Array([0. , 0.5], dtype=float32)
    """
    name = "adaptive_grad_clip"
    POSITIVE.check(name, "clipping", clipping)
    POSITIVE.check(name, "eps", eps)

    def clipped(g: Leaf, p: Leaf) -> Leaf:
        axes = _unit_axes(g) if axis is None else axis
        size = _norm(wide(g), axes)
        most = clipping * fnp.maximum(_norm(wide(p), axes), eps)
        excess = fnp.where(size > most, size, 1)
        factor = fnp.where(size > most, most / excess, 1)
        return (wide(g) * factor).astype(g.dtype)

    def clip_tree(updates: Updates, params: Params) -> Updates:
        updates = floating(name, "updates", updates)
        params = beside_updates(name, "the limit", updates, params)
        return tree.map(clipped, updates, params)

    return stateless(clip_tree)


def _unit_axes(x: Leaf) -> tuple[int, ...] | None:
    longer = [n for n in x.shape if n != 1]
    if len(longer) <= 1:
        return None
    return (0,) if x.ndim in (2, 3) else tuple(range(x.ndim - 1))


def _norm(x: Leaf, axes: Any) -> Leaf:
    return safe_root(fnp.sum(squared(x), axis=axes, keepdims=True))


# ---------------------------------------------------------------- each example's


def per_example_global_norm_clip(
    grads: Sequence[Any], l2_norm_clip: float | Array
) -> tuple[list[Leaf], Leaf]:
    """The sum over examples of gradients clipped together, and how many were clipped.

    Each array of `grads` has the examples along its first axis; an example's gradient
    is all of them together. Abadi et al., "Deep Learning with Differential Privacy",
    2016.

    >>> per_example_global_norm_clip([fnp.array([[0.0, 3.0], [8.0, 6.0]])], 5.0)
    ([Array([4., 6.], dtype=float32)], Array(1, dtype=int32))
    """
    NOT_NEGATIVE.check("per_example_global_norm_clip", "l2_norm_clip", l2_norm_clip)
    arrays = _examples("per_example_global_norm_clip", grads)
    squares = [_example_squares(x) for x in arrays]
    norms = safe_root(functools.reduce(fnp.add, squares))
    return _clipped_sums(arrays, norms, l2_norm_clip)


def per_example_layer_norm_clip(
    grads: Sequence[Any], global_l2_norm_clip: float | Array, uniform: bool = True
) -> tuple[list[Leaf], list[Leaf]]:
    """As `per_example_global_norm_clip`, with a limit of its own for each array.

    The limits are equal if `uniform`, else in proportion to the root of the number of
    elements; their Euclidean norm is `global_l2_norm_clip`. McMahan et al., "Learning
    Differentially Private Recurrent Language Models", 2018.

    >>> grads = [fnp.array([[0.0, 3.0], [8.0, 6.0]])]
    >>> per_example_layer_norm_clip(grads, 5.0)
    ([Array([4., 6.], dtype=float32)], [Array(1, dtype=int32)])
    """
    name = "per_example_layer_norm_clip"
    NOT_NEGATIVE.check(name, "global_l2_norm_clip", global_l2_norm_clip)
    arrays = _examples(name, grads)
    sizes = [x.size // x.shape[0] for x in arrays]
    parts = [1 / len(arrays) if uniform else n / sum(sizes) for n in sizes]
    sums, counts = [], []
    for x, part in zip(arrays, parts, strict=True):
        norms, limit = safe_root(_example_squares(x)), global_l2_norm_clip * part**0.5
        (total,), clipped = _clipped_sums([x], norms, limit)
        sums.append(total)
        counts.append(clipped)
    return sums, counts


def _examples(function: str, grads: Sequence[Any]) -> list[Leaf]:
    arrays = tree.leaves(floating(function, "grads", list(grads)))
    if not arrays or any(x.ndim == 0 for x in arrays):
        raise ShapeError(
            f"{function}: grads must be one array or more, each with the examples "
            f"along its first axis; got shapes {[x.shape for x in arrays]}"
        )
    if len({x.shape[0] for x in arrays}) > 1:
        raise ShapeError(
            f"{function}: the arrays of grads have different numbers of examples: "
            f"{[x.shape[0] for x in arrays]}"
        )
    return arrays


def _example_squares(x: Leaf) -> Leaf:
    return fnp.sum(squared(wide(x)), axis=tuple(range(1, x.ndim)))


def _clipped_sums(
    arrays: Sequence[Leaf], norms: Leaf, limit: Any
) -> tuple[list[Leaf], Leaf]:
    over: Leaf = norms > limit
    factors: Leaf = fnp.where(over, limit / fnp.where(over, norms, 1), 1)
    totals: list[Leaf] = [fnp.tensordot(factors, wide(x), 1) for x in arrays]
    sums = [total.astype(x.dtype) for total, x in zip(totals, arrays, strict=True)]
    return sums, fnp.sum(over, dtype="int32")
