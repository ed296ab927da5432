"""Losses of regression, of embeddings and between distributions; and all names.

Each function gives one number for each example: what to average over is left to the
caller. Receives arrays, gives arrays; integers count as the default float. 16-bit
inputs are computed in float32 and rounded once. The losses of classes and sequences are
in `class_losses.py`, next on the walk.

>>> squared_error(fnp.array([1.0, 3.0]), fnp.array([2.0, 3.0]))
Array([1., 0.], dtype=float32)
"""

from __future__ import annotations

import math
from typing import Any

import fnx.numpy as fnp
from fnx.errors import api_boundary
from fnx.optim.class_losses import (
    ctc_loss,
    hinge_loss,
    multiclass_hinge_loss,
    multiclass_perceptron_loss,
    perceptron_loss,
    poly_loss_cross_entropy,
    safe_softmax_cross_entropy,
    sigmoid_binary_cross_entropy,
    sigmoid_focal_loss,
    smooth_labels,
    softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels,
    sparsemax_loss,
)
from fnx.optim.hyperparameters import NOT_NEGATIVE, POSITIVE
from fnx.optim.operands import computed, rounded
from fnx.optim.updates import Leaf, safe_root

__all__ = [
    "convex_kl_divergence",
    "cosine_distance",
    "cosine_similarity",
    "ctc_loss",
    "generalized_kl_divergence",
    "hinge_loss",
    "huber_loss",
    "kl_divergence",
    "kl_divergence_with_log_targets",
    "l2_loss",
    "log_cosh",
    "multiclass_hinge_loss",
    "multiclass_perceptron_loss",
    "ntxent",
    "perceptron_loss",
    "poly_loss_cross_entropy",
    "safe_softmax_cross_entropy",
    "sigmoid_binary_cross_entropy",
    "sigmoid_focal_loss",
    "smooth_labels",
    "softmax_cross_entropy",
    "softmax_cross_entropy_with_integer_labels",
    "sparsemax_loss",
    "squared_error",
    "triplet_margin_loss",
]

Axis = int | tuple[int, ...] | None

# ---------------------------------------------------------------- regression


@api_boundary
def squared_error(predictions: Any, targets: Any = None) -> Leaf:
    """(predictions - targets)², element by element; targets are 0 if not given.

    >>> squared_error(fnp.array([3.0]))
    Array([9.], dtype=float32)
    """
    errors, dtype = _errors("squared_error", predictions, targets)
    return rounded(errors**2, dtype)


@api_boundary
def l2_loss(predictions: Any, targets: Any = None) -> Leaf:
    """Half the squared error, whose derivative is the error.

    >>> l2_loss(fnp.array([3.0]), fnp.array([1.0]))
    Array([2.], dtype=float32)
    """
    errors, dtype = _errors("l2_loss", predictions, targets)
    return rounded(0.5 * errors**2, dtype)


@api_boundary
def huber_loss(predictions: Any, targets: Any = None, *, delta: float = 1.0) -> Leaf:
    """Half the squared error, growing linearly where the error is above `delta`.

    Huber, "Robust Estimation of a Location Parameter", 1964.

    >>> huber_loss(fnp.array([0.5, 3.0]), delta=1.0)
    Array([0.125, 2.5  ], dtype=float32)
    """
    POSITIVE.check("huber_loss", "delta", delta)
    errors, dtype = _errors("huber_loss", predictions, targets)
    size = abs(errors)
    small = fnp.minimum(size, delta)
    return rounded(0.5 * small**2 + delta * (size - small), dtype)


@api_boundary
def log_cosh(predictions: Any, targets: Any = None) -> Leaf:
    """log(cosh(error)): half its square near 0, its size less log 2 far away.

    >>> log_cosh(fnp.array([0.0, 100.0])).round(4)
    Array([ 0.    , 99.3069], dtype=float32)
    """
    errors, dtype = _errors("log_cosh", predictions, targets)
    return rounded(fnp.logaddexp(errors, -errors) - math.log(2.0), dtype)


def _errors(function: str, predictions: Any, targets: Any) -> tuple[Leaf, Any]:
    if targets is None:
        (x,), dtype = computed(function, predictions=predictions)
        return x, dtype
    (x, y), dtype = computed(
        function, same_shapes=True, predictions=predictions, targets=targets
    )
    return x - y, dtype


# ---------------------------------------------------------------- directions


@api_boundary
def cosine_similarity(
    predictions: Any,
    targets: Any,
    *,
    epsilon: float = 0.0,
    axis: Axis = -1,
    where: Any = None,
) -> Leaf:
    """The cosine of the angle between vectors along `axis`.

    A squared norm below `epsilon` counts as that; a vector of zeros is at 90° to all.
    `where` says which elements count.

    >>> cosine_similarity(fnp.array([3.0, 4.0]), fnp.array([1.0, 0.0]))
    Array(0.6, dtype=float32)
    """
    value, dtype = _cosine(
        "cosine_similarity", predictions, targets, epsilon, axis, where
    )
    return rounded(value, dtype)


@api_boundary
def cosine_distance(
    predictions: Any,
    targets: Any,
    *,
    epsilon: float = 0.0,
    axis: Axis = -1,
    where: Any = None,
) -> Leaf:
    """1 - `cosine_similarity`.

    >>> cosine_distance(fnp.array([3.0, 4.0]), fnp.array([0.0, 1.0])).round(4)
    Array(0.2, dtype=float32)
    """
    value, dtype = _cosine(
        "cosine_distance", predictions, targets, epsilon, axis, where
    )
    return rounded(1 - value, dtype)


def _cosine(
    function: str, predictions: Any, targets: Any, epsilon: Any, axis: Axis, where: Any
) -> tuple[Leaf, Any]:
    NOT_NEGATIVE.check(function, "epsilon", epsilon)
    (x, y), dtype = computed(function, predictions=predictions, targets=targets)
    least = fnp.asarray(epsilon, x.dtype)
    squares = [fnp.sum(v * v, axis=axis, where=where) for v in (x, y)]
    norms = [safe_root(fnp.maximum(square, least)) for square in squares]
    size: Leaf = norms[0] * norms[1]
    product: Leaf = fnp.sum(x * y, axis=axis, where=where)
    return product / fnp.where(size > 0, size, 1), dtype


@api_boundary
def triplet_margin_loss(
    anchors: Any,
    positives: Any,
    negatives: Any,
    axis: int = -1,
    norm_degree: float = 2,
    margin: float = 1.0,
    eps: float = 1e-6,
) -> Leaf:
    """How much nearer than the negative the positive should be: max(d₊ - d₋ + m, 0).

    d is (Σ |x - y|^norm_degree + eps)^(1 / norm_degree) along `axis`, m the `margin`.
    Vassileios Balntas et al., "Learning local feature descriptors with triplets and
    shallow convolutional neural networks", 2016.

    >>> anchor, near, far = fnp.zeros(1), fnp.array([1.0]), fnp.array([1.5])
    >>> triplet_margin_loss(anchor, near, far, eps=0)
    Array(0.5, dtype=float32)
    """
    name = "triplet_margin_loss"
    POSITIVE.check(name, "norm_degree", norm_degree)
    NOT_NEGATIVE.check(name, "eps", eps)
    (a, p, n), dtype = computed(
        name, anchors=anchors, positives=positives, negatives=negatives
    )

    def distance(x: Leaf) -> Leaf:
        power: Leaf = fnp.sum(fnp.abs(a - x) ** norm_degree, axis=axis) + eps
        some = power > 0
        root: Leaf = fnp.where(some, power, 1) ** (1 / norm_degree)
        return fnp.where(some, root, 0)

    return rounded(fnp.maximum(distance(p) - distance(n) + margin, 0), dtype)


@api_boundary
def ntxent(embeddings: Any, labels: Any, temperature: float = 0.07) -> Leaf:
    """Normalised temperature-scaled cross entropy: embeddings of a label attract.

    For each pair of different rows of `embeddings` (shape [batch, dim]) with the same
    label: minus the log of exp(s) over the sum of exp(s) over this row's partners of
    other labels and this one, where s is their cosine over `temperature`; the mean over
    all pairs, as one number. Chen et al., "A Simple Framework for Contrastive Learning
    of Visual Representations", 2020.

    >>> rows = fnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> ntxent(rows, fnp.array([0, 0, 1]), temperature=1.0).round(4)
    Array(0.3133, dtype=float32)
    """
    POSITIVE.check("ntxent", "temperature", temperature)
    (x,), dtype = computed("ntxent", embeddings=embeddings)
    numbers: Leaf = fnp.asarray(labels)
    norms = safe_root(fnp.sum(x * x, axis=-1, keepdims=True))
    unit = x / fnp.where(norms > 0, norms, 1)
    scores = unit @ unit.T / temperature
    same = numbers[:, None] == numbers[None, :]
    pairs: Leaf = same & fnp.logical_not(fnp.eye(len(numbers), dtype="bool"))
    others = fnp.where(same, -math.inf, scores)
    rest = fnp.logaddexp(scores, _log_sums(others))
    count = fnp.maximum(fnp.sum(pairs), 1)
    return rounded(fnp.sum(fnp.where(pairs, rest - scores, 0)) / count, dtype)


def _log_sums(scores: Leaf) -> Leaf:
    """The logarithms of sums of exponentials of rows, as a column; -inf for none."""
    top: Leaf = fnp.max(scores, axis=1, keepdims=True)
    some = top > -math.inf
    top = fnp.where(some, top, 0)
    total = fnp.sum(fnp.exp(scores - top), axis=1, keepdims=True)
    return fnp.where(some, fnp.log(fnp.where(some, total, 1)) + top, -math.inf)


# ---------------------------------------------------------------- distributions


@api_boundary
def kl_divergence(
    log_predictions: Any, targets: Any, axis: Axis = -1, where: Any = None
) -> Leaf:
    """Σ targets · (log targets - log_predictions): Kullback and Leibler's divergence.

    What has the target 0 adds 0. `where` says which elements count. Kullback and
    Leibler, "On Information and Sufficiency", 1951.

    >>> kl_divergence(fnp.log(fnp.array([0.5, 0.5])), fnp.array([1.0, 0.0])).round(4)
    Array(0.6931, dtype=float32)
    """
    (p, t), dtype = computed(
        "kl_divergence", log_predictions=log_predictions, targets=targets
    )
    return rounded(fnp.sum(_kl_terms(p, t), axis=axis, where=where), dtype)


@api_boundary
def kl_divergence_with_log_targets(
    log_predictions: Any, log_targets: Any, axis: Axis = -1, where: Any = None
) -> Leaf:
    """As `kl_divergence`, of the logarithms of the targets.

    >>> logs = fnp.log(fnp.array([0.5, 0.5]))
    >>> kl_divergence_with_log_targets(logs, fnp.array([0.0, -fnp.inf])).round(4)
    Array(0.6931, dtype=float32)
    """
    (p, t), dtype = computed(
        "kl_divergence_with_log_targets",
        log_predictions=log_predictions,
        log_targets=log_targets,
    )
    some = t > -math.inf
    terms = fnp.where(some, fnp.exp(t) * (fnp.where(some, t, 0) - p), 0)
    return rounded(fnp.sum(terms, axis=axis, where=where), dtype)


@api_boundary
def generalized_kl_divergence(
    log_predictions: Any, targets: Any, axis: Axis = -1, where: Any = None
) -> Leaf:
    """`kl_divergence` plus the sum of predictions less that of targets.

    Not negative, also where the two do not sum to 1. Boyd and Vandenberghe, "Convex
    Optimization", 2004, p. 90.

    >>> generalized_kl_divergence(fnp.log(fnp.array([3.0])), fnp.array([1.0])).round(4)
    Array(0.9014, dtype=float32)
    """
    (p, t), dtype = computed(
        "generalized_kl_divergence", log_predictions=log_predictions, targets=targets
    )
    terms = _kl_terms(p, t) + fnp.exp(p) - t
    return rounded(fnp.sum(terms, axis=axis, where=where), dtype)


convex_kl_divergence = generalized_kl_divergence


def _kl_terms(p: Leaf, t: Leaf) -> Leaf:
    some = t != 0
    logs = fnp.log(fnp.where(some, t, 1))
    return fnp.where(some, t * (logs - fnp.where(some, p, 0)), 0)
