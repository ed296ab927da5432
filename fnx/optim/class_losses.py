"""Losses of classes and of sequences of them: cross entropies, margins, CTC.

Each gives one number for each example. Receives scores and labels, gives arrays. Next
on the walk: `losses.py`, which has all names.
"""

from __future__ import annotations

import math
from typing import Any

import fnx.numpy as fnp
from fnx import dtypes, lax, nn
from fnx.errors import DTypeError, ShapeError, api_boundary
from fnx.optim.hyperparameters import FINITE, NOT_NEGATIVE, UNIT, steps
from fnx.optim.operands import computed, rounded
from fnx.optim.updates import Leaf

Axis = int | tuple[int, ...]

# ---------------------------------------------------------------- cross entropies


@api_boundary
def sigmoid_binary_cross_entropy(logits: Any, labels: Any) -> Leaf:
    """-labels · log σ(logits) - (1 - labels) · log(1 - σ(logits)), element by element.

    Labels are from 0 to 1; each element is a question of its own.

    >>> logits, ones = fnp.array([0.0, 100.0]), fnp.ones(2)
    >>> sigmoid_binary_cross_entropy(logits, ones).round(4)
    Array([0.6931, 0.    ], dtype=float32)
    """
    (x, y), dtype = computed(
        "sigmoid_binary_cross_entropy", logits=logits, labels=labels
    )
    return rounded(_binary(x, y), dtype)


def _binary(x: Leaf, y: Leaf) -> Leaf:
    return -y * nn.log_sigmoid(x) - (1 - y) * nn.log_sigmoid(-x)


@api_boundary
def sigmoid_focal_loss(
    logits: Any, labels: Any, *, alpha: float | None = None, gamma: float = 2.0
) -> Leaf:
    """`sigmoid_binary_cross_entropy` times (1 - p)^gamma, p the right answer's share.

    `alpha` weighs the questions whose answer is 1, 1 - alpha the others. Lin et al.,
    "Focal Loss for Dense Object Detection", 2017.

    >>> sigmoid_focal_loss(fnp.array([0.0]), fnp.array([1.0])).round(4)
    Array([0.1733], dtype=float32)
    """
    NOT_NEGATIVE.check("sigmoid_focal_loss", "gamma", gamma)
    (x, y), dtype = computed("sigmoid_focal_loss", logits=logits, labels=labels)
    wrong = y * nn.sigmoid(-x) + (1 - y) * nn.sigmoid(x)
    loss = _binary(x, y) * wrong**gamma
    if alpha is not None:
        UNIT.check("sigmoid_focal_loss", "alpha", alpha)
        loss = loss * (alpha * y + (1 - alpha) * (1 - y))
    return rounded(loss, dtype)


@api_boundary
def softmax_cross_entropy(
    logits: Any, labels: Any, axis: Axis = -1, where: Any = None
) -> Leaf:
    """-Σ labels · log softmax(logits) along `axis`; labels are distributions.

    `where` says which classes there are.

    >>> softmax_cross_entropy(fnp.zeros(2), fnp.array([1.0, 0.0])).round(4)
    Array(0.6931, dtype=float32)
    """
    (x, y), dtype = computed("softmax_cross_entropy", logits=logits, labels=labels)
    terms = y * nn.log_softmax(x, axis, where)
    return rounded(-fnp.sum(terms, axis=axis, where=where), dtype)


@api_boundary
def safe_softmax_cross_entropy(logits: Any, labels: Any) -> Leaf:
    """As `softmax_cross_entropy`; a class of label 0 may have the logit -inf.

    >>> safe_softmax_cross_entropy(fnp.array([0.0, -fnp.inf]), fnp.array([1.0, 0.0]))
    Array(-0., dtype=float32)
    """
    (x, y), dtype = computed("safe_softmax_cross_entropy", logits=logits, labels=labels)
    terms = fnp.where(y == 0, 0, y * nn.log_softmax(x, -1))
    return rounded(-fnp.sum(terms, axis=-1), dtype)


@api_boundary
def softmax_cross_entropy_with_integer_labels(
    logits: Any, labels: Any, axis: int = -1, where: Any = None
) -> Leaf:
    """-log softmax(logits)[label]: labels are numbers of classes along `axis`.

    Their shape is that of the logits without that axis. Numbers that are no class raise
    where they are known, and give NaN in compiled code.

    >>> logits = fnp.array([[0.0, 0.0], [0.0, 100.0]])
    >>> softmax_cross_entropy_with_integer_labels(logits, fnp.array([0, 1])).round(4)
    Array([0.6931, 0.    ], dtype=float32)
    """
    name = "softmax_cross_entropy_with_integer_labels"
    (x,), dtype = computed(name, logits=logits)
    numbers = _classes(name, labels)
    place = fnp.expand_dims(numbers, axis)
    if where is not None:
        x = fnp.where(where, x, -math.inf)
    picked = fnp.take_along_axis(x, place, axis=axis, mode="fill", fill_value=math.nan)
    total = nn.logsumexp(x, axis, keepdims=True)
    return rounded(fnp.squeeze(total - picked, axis), dtype)


@api_boundary
def poly_loss_cross_entropy(
    logits: Any,
    labels: Any,
    *,
    epsilon: float = 2.0,
    axis: Axis = -1,
    where: Any = None,
) -> Leaf:
    """`softmax_cross_entropy` plus epsilon times the share of the wrong classes.

    Leng et al., "PolyLoss: A Polynomial Expansion Perspective of Classification Loss
    Functions", 2022.

    >>> poly_loss_cross_entropy(fnp.zeros(2), fnp.array([1.0, 0.0])).round(4)
    Array(1.6931, dtype=float32)
    """
    FINITE.check("poly_loss_cross_entropy", "epsilon", epsilon)
    (x, y), dtype = computed("poly_loss_cross_entropy", logits=logits, labels=labels)
    logs = nn.log_softmax(x, axis, where)
    terms = y * (epsilon * (1 - nn.softmax(x, axis, where)) - logs)
    return rounded(fnp.sum(terms, axis=axis, where=where), dtype)


@api_boundary
def smooth_labels(
    labels: Any, alpha: float, *, axis: Axis = -1, where: Any = None
) -> Leaf:
    """(1 - alpha) · labels + alpha / number of classes.

    `where` says which classes there are. Szegedy et al., "Rethinking the Inception
    Architecture for Computer Vision", 2016.

    >>> smooth_labels(fnp.array([1.0, 0.0]), 0.5)
    Array([0.75, 0.25], dtype=float32)
    """
    UNIT.check("smooth_labels", "alpha", alpha)
    (y,), dtype = computed("smooth_labels", labels=labels)
    count = fnp.sum(fnp.ones_like(y), axis=axis, where=where, keepdims=True)
    return rounded((1 - alpha) * y + alpha / count, dtype)


# ---------------------------------------------------------------- margins


@api_boundary
def hinge_loss(predictor_outputs: Any, targets: Any) -> Leaf:
    """max(0, 1 - output · target), for targets of -1 and 1, element by element.

    >>> hinge_loss(fnp.array([0.5, 2.0]), fnp.array([1.0, 1.0]))
    Array([0.5, 0. ], dtype=float32)
    """
    (x, y), dtype = computed(
        "hinge_loss", predictor_outputs=predictor_outputs, targets=targets
    )
    return rounded(fnp.maximum(1 - x * y, 0), dtype)


@api_boundary
def perceptron_loss(predictor_outputs: Any, targets: Any) -> Leaf:
    """max(0, -output · target), for targets of -1 and 1, element by element.

    Rosenblatt, "The Perceptron", 1958.

    >>> perceptron_loss(fnp.array([-2.0, 3.0]), fnp.array([1, 1]))
    Array([2., 0.], dtype=float32)
    """
    (x, y), dtype = computed(
        "perceptron_loss", predictor_outputs=predictor_outputs, targets=targets
    )
    return rounded(fnp.maximum(-x * y, 0), dtype)


@api_boundary
def multiclass_hinge_loss(scores: Any, labels: Any) -> Leaf:
    """The best score, with 1 more for wrong classes, less the right one's.

    Scores have the classes along the last axis, labels their numbers. Crammer and
    Singer, "On the Algorithmic Implementation of Multiclass Kernel-based Vector
    Machines", 2001.

    >>> multiclass_hinge_loss(fnp.array([1.0, 2.0, 0.5]), 0)
    Array(2., dtype=float32)
    """
    return _multiclass("multiclass_hinge_loss", scores, labels, 1.0)


@api_boundary
def multiclass_perceptron_loss(scores: Any, labels: Any) -> Leaf:
    """The best score less the right class's.

    >>> multiclass_perceptron_loss(fnp.array([1.0, 2.0, 0.5]), 0)
    Array(1., dtype=float32)
    """
    return _multiclass("multiclass_perceptron_loss", scores, labels, 0.0)


def _multiclass(function: str, scores: Any, labels: Any, margin: float) -> Leaf:
    (x,), dtype = computed(function, scores=scores)
    right = nn.one_hot(_classes(function, labels), x.shape[-1], dtype=x.dtype)
    best = fnp.max(x + margin * (1 - right), axis=-1)
    return rounded(best - fnp.sum(x * right, axis=-1), dtype)


@api_boundary
def sparsemax_loss(logits: Any, labels: Any) -> Leaf:
    """The loss of the binary sparsemax, element by element; labels are 0 and 1.

    With x the logit, negated for the label 1: 0 below -1, x above 1, and (x + 1)² / 4
    between. Martins and Astudillo, "From Softmax to Sparsemax", 2016.

    >>> sparsemax_loss(fnp.array([-3.0, 0.0, 2.0]), fnp.array([0, 0, 0]))
    Array([0.  , 0.25, 2.  ], dtype=float32)
    """
    (x, y), dtype = computed("sparsemax_loss", logits=logits, labels=labels)
    x = fnp.where(y > 0, -x, x)
    middle = (fnp.clip(x, -1, 1) + 1) ** 2 / 4
    return rounded(middle + fnp.maximum(x - 1, 0), dtype)


def _classes(function: str, labels: Any) -> Leaf:
    numbers: Leaf = fnp.asarray(labels)
    if not dtypes.is_integer(numbers.dtype):
        raise DTypeError(
            f"{function}: labels must be integers, the numbers of classes; got "
            f"{numbers.type}"
        )
    return numbers


# ---------------------------------------------------------------- sequences


@api_boundary
def ctc_loss(
    logits: Any,
    logit_paddings: Any,
    labels: Any,
    label_paddings: Any,
    *,
    blank_id: int = 0,
    log_epsilon: float = -1e5,
) -> Leaf:
    """-log of the probability of a label sequence, over all its alignments in time.

    `logits` (shape [batch, time, classes]) are scores of the classes and of the blank,
    class `blank_id`; `labels` (integers, [batch, n]) the sequences. Both are padded at
    their ends where `logit_paddings` ([batch, time]) and `label_paddings` ([batch, n])
    are 1. Gives one number for each sequence. `log_epsilon` stands for the logarithm of
    0. Graves et al., "Connectionist Temporal Classification: Labelling Unsegmented
    Sequence Data with Recurrent Neural Networks", 2006.

    >>> logits = fnp.zeros((1, 2, 2))  # two steps, the classes blank and 1
    >>> none, labels = fnp.zeros((1, 2)), fnp.array([[1]])
    >>> fnp.exp(-ctc_loss(logits, none, labels, fnp.zeros((1, 1)))).round(4)
    Array([0.75], dtype=float32)
    """
    (x, x_pad, y_pad), dtype = _sequence_operands(
        logits, logit_paddings, label_paddings
    )
    numbers = _classes("ctc_loss", labels)
    _check_sequences(x, x_pad, numbers, y_pad)
    steps("ctc_loss", "blank_id", blank_id, least=0)
    logs = nn.log_softmax(x, -1)
    batch, length = numbers.shape
    blanks = fnp.moveaxis(logs[:, :, blank_id], 1, 0)
    picked = fnp.take_along_axis(logs, fnp.expand_dims(numbers, 1), axis=2, mode="clip")
    repeats = fnp.pad(numbers[:, 1:] == numbers[:, :-1], ((0, 0), (1, 0)))[:, :length]
    never = fnp.full((batch, 1), log_epsilon, x.dtype)
    # between[n]: in a blank after n labels; on[n]: at the label n
    between = fnp.concatenate(
        [fnp.zeros((batch, 1), x.dtype), fnp.repeat(never, length, 1)], 1
    )
    on = fnp.repeat(never, length, 1)

    def advance(carry: Any, now: Any) -> tuple[Any, None]:
        between, on = carry
        blank, emitted, padded = now
        shifted = fnp.concatenate([never, on], 1)
        before = fnp.where(repeats, log_epsilon, shifted[:, :-1])
        reached = fnp.logaddexp(fnp.logaddexp(on, between[:, :-1]), before) + emitted
        rested = fnp.logaddexp(between, shifted) + blank[:, None]
        stays = padded[:, None] > 0
        return (fnp.where(stays, between, rested), fnp.where(stays, on, reached)), None

    times = blanks, fnp.moveaxis(picked, 1, 0), fnp.moveaxis(x_pad, 1, 0)
    (between, on), _ = lax.scan(advance, (between, on), times)
    ends = length - fnp.sum(fnp.not_equal(y_pad, 0), axis=1, dtype="int32")
    ended = fnp.logaddexp(between, fnp.concatenate([never, on], 1))
    total = fnp.take_along_axis(ended, ends[:, None], axis=1, mode="clip")
    return rounded(-total[:, 0], dtype)


def _sequence_operands(
    logits: Any, logit_paddings: Any, label_paddings: Any
) -> tuple[list[Leaf], Any]:
    """The operands of a sequence loss, in the dtype that it is computed in."""
    (x,), dtype = computed("ctc_loss", logits=logits)
    given: list[Leaf] = [fnp.asarray(p) for p in (logit_paddings, label_paddings)]
    return [x, *[p.astype(x.dtype) for p in given]], dtype


def _check_sequences(x: Leaf, x_pad: Leaf, numbers: Leaf, y_pad: Leaf) -> None:
    fits = (
        x.ndim == 3
        and x_pad.shape == x.shape[:2]
        and numbers.ndim == 2
        and numbers.shape[0] == x.shape[0]
        and y_pad.shape == numbers.shape
    )
    if not fits:
        raise ShapeError(
            "ctc_loss: the shapes must be logits [batch, time, classes], "
            "logit_paddings [batch, time], labels and label_paddings [batch, n]; got "
            f"{x.shape}, {x_pad.shape}, {numbers.shape} and {y_pad.shape}"
        )
