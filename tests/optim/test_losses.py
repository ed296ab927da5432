"""Losses against NumPy and optax: values, gradients at the edges, shapes, dtypes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim
from fnx.errors import DTypeError, OptionError, ShapeError
from fnx.optim import losses
from fnx.testing import check_grads

RNG = np.random.default_rng(7)
X, Y = RNG.normal(size=(2, 4, 3))
LOGITS = RNG.normal(size=(4, 5)) * 3
LABELS = RNG.dirichlet(np.ones(5), 4)
CLASSES = RNG.integers(0, 5, 4)
BITS = RNG.integers(0, 2, (4, 5)).astype(float)
MASK = np.array([[1, 1, 0, 1, 1]] * 4, bool)
LOG = np.log(RNG.dirichlet(np.ones(5), 4))
ONE_HOT = np.eye(5)[CLASSES]

# name: called with the module, the arguments, and which of them are differentiated
CASES = {
    "squared_error": (lambda o, x, y: o.squared_error(x, y), (X, Y), 2),
    "l2_loss": (lambda o, x, y: o.l2_loss(x, y), (X, Y), 2),
    "l2_loss, alone": (lambda o, x: o.l2_loss(x), (X,), 1),
    "huber_loss": (lambda o, x, y: o.huber_loss(x, y, delta=0.7), (X, Y), 2),
    "log_cosh": (lambda o, x, y: o.log_cosh(50 * x, y), (X, Y), 2),
    "cosine_similarity": (lambda o, x, y: o.cosine_similarity(x, y), (X, Y), 2),
    "cosine, axis": (
        lambda o, x, y: o.cosine_similarity(x, y, axis=0, epsilon=3.0),
        (X, Y),
        2,
    ),
    "cosine_distance": (
        lambda o, x, y: o.cosine_distance(x, y, where=np.abs(X) < 1),
        (X, Y),
        2,
    ),
    "triplet": (
        lambda o, x, y, z: o.triplet_margin_loss(x, y, z, margin=2.0),
        (X, Y, X[::-1]),
        3,
    ),
    "ntxent": (
        lambda o, x: o.ntxent(x, np.array([0, 1, 0, 1]), 0.5),
        (X,),
        1,
    ),
    "kl_divergence": (lambda o, p, t: o.kl_divergence(p, t), (LOG, LABELS), 2),
    "kl, where": (
        lambda o, p, t: o.kl_divergence(p, t, where=MASK),
        (LOG, LABELS),
        2,
    ),
    "kl, logs": (
        lambda o, p, t: o.kl_divergence_with_log_targets(p, t, axis=0),
        (LOG, np.log(LABELS)),
        2,
    ),
    "kl, generalised": (
        lambda o, p, t: o.generalized_kl_divergence(p, t),
        (LOG, 2 * LABELS),
        2,
    ),
    "sigmoid": (
        lambda o, x, y: o.sigmoid_binary_cross_entropy(x, y),
        (LOGITS, LABELS),
        2,
    ),
    "focal": (lambda o, x: o.sigmoid_focal_loss(x, BITS), (LOGITS,), 1),
    "focal, alpha": (
        lambda o, x: o.sigmoid_focal_loss(x, BITS, alpha=0.3, gamma=1.5),
        (LOGITS,),
        1,
    ),
    "softmax": (lambda o, x, y: o.softmax_cross_entropy(x, y), (LOGITS, LABELS), 2),
    "softmax, axis": (
        lambda o, x, y: o.softmax_cross_entropy(x, y, axis=0),
        (LOGITS, LABELS),
        2,
    ),
    "softmax, where": (
        lambda o, x, y: o.softmax_cross_entropy(x, y, where=MASK),
        (LOGITS, LABELS),
        2,
    ),
    "softmax, safe": (
        lambda o, x, y: o.safe_softmax_cross_entropy(x, y),
        (LOGITS, LABELS),
        2,
    ),
    "integers": (
        lambda o, x: o.softmax_cross_entropy_with_integer_labels(x, CLASSES),
        (LOGITS,),
        1,
    ),
    "integers, axis": (
        lambda o, x: o.softmax_cross_entropy_with_integer_labels(
            x, CLASSES[:3], axis=0
        ),
        (LOGITS[:, :3],),
        1,
    ),
    "integers, where": (
        lambda o, x: o.softmax_cross_entropy_with_integer_labels(
            x, np.array([0, 1, 3, 4]), where=MASK
        ),
        (LOGITS,),
        1,
    ),
    "poly": (
        lambda o, x: o.poly_loss_cross_entropy(x, ONE_HOT, epsilon=1.5),
        (LOGITS,),
        1,
    ),
    "smooth_labels": (lambda o, y: o.smooth_labels(y, 0.1), (ONE_HOT,), 1),
    "smooth_labels, where": (
        lambda o, y: o.smooth_labels(y, 0.1, where=MASK),
        (ONE_HOT,),
        1,
    ),
    "hinge_loss": (lambda o, x: o.hinge_loss(x, np.sign(Y)), (X,), 1),
    "perceptron_loss": (lambda o, x: o.perceptron_loss(x, np.sign(Y)), (X,), 1),
    "multiclass hinge": (
        lambda o, x: o.multiclass_hinge_loss(x, CLASSES),
        (LOGITS,),
        1,
    ),
    "multiclass perceptron": (
        lambda o, x: o.multiclass_perceptron_loss(x, CLASSES),
        (LOGITS,),
        1,
    ),
    "sparsemax": (lambda o, x: o.sparsemax_loss(x, BITS), (LOGITS / 2,), 1),
}
T, N = 6, 4
CTC = (
    RNG.normal(size=(3, T, 5)),
    np.array([[0] * T, [0] * 4 + [1] * 2, [0] * 3 + [1] * 3], float),
    np.array([[1, 1, 2, 4], [3, 2, 0, 0], [4, 4, 0, 0]]),
    np.array([[0] * 4, [0, 0, 1, 1], [0, 0, 1, 1]], float),
)
CASES["ctc_loss"] = (lambda o, x: o.ctc_loss(x, *CTC[1:]), (CTC[0],), 1)


@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_optax_has_the_same_values(name, jax):
    pytest.importorskip("optax", reason="the oracle of losses")
    import optax.losses as theirs

    f, args, _ = CASES[name]
    expected = np.asarray(f(theirs, *map(jax.numpy.asarray, args)))
    for call in (f, lambda o, *xs: fnx.jit(lambda *ys: f(o, *ys))(*xs)):
        found = call(losses, *map(fnp.asarray, args))
        assert found.dtype == "float64" and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name):
    f, args, count = CASES[name]
    rest = args[count:]
    check_grads(lambda *xs: f(losses, *xs, *rest), args[:count], order=1)


ALL_GIVEN = "squared_error huber_loss cosine_similarity kl_divergence sigmoid softmax"


@pytest.mark.parametrize("name", [*ALL_GIVEN.split(), "integers", "ntxent", "ctc_loss"])
def test_16_bits_are_computed_in_32(name):
    f, args, _ = CASES[name]
    small = [fnp.asarray(x, "bfloat16") for x in args]
    found = f(losses, *small)
    assert found.dtype == "bfloat16"
    exact = f(losses, *[x.astype("float32") for x in small])
    np.testing.assert_array_equal(found, exact.astype("bfloat16"))


def test_ctc_is_the_sum_over_all_alignments():
    logits, paddings, labels, label_paddings = CTC
    logs = np.asarray(fnx.nn.log_softmax(logits))
    found = losses.ctc_loss(*CTC)
    for place in range(3):
        times = int(T - paddings[place].sum())
        wanted = labels[place][label_paddings[place] == 0].tolist()
        total = 0.0
        for path in itertools.product(range(5), repeat=times):
            merged = [label for label, _ in itertools.groupby(path)]
            if [label for label in merged if label != 0] == wanted:
                total += math.exp(sum(logs[place, t, c] for t, c in enumerate(path)))
        np.testing.assert_allclose(found[place], -math.log(total), rtol=1e-9)


@pytest.mark.parametrize("degree", [1, 3])
def test_distances_of_other_degrees(degree):
    found = losses.triplet_margin_loss(X, Y, X[::-1], norm_degree=degree, margin=9.0)
    near, far = [(np.abs(X - z) ** degree).sum(1) + 1e-6 for z in (Y, X[::-1])]
    expected = np.maximum(near ** (1 / degree) - far ** (1 / degree) + 9, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_edges_have_finite_gradients():
    zeros = fnp.zeros(3)
    for f in (
        lambda x: losses.cosine_similarity(x, fnp.ones(3)),
        lambda x: losses.triplet_margin_loss(x, zeros, zeros, eps=0),
        lambda x: losses.kl_divergence(zeros, x),
        lambda x: losses.log_cosh(x).sum(),
        lambda x: losses.huber_loss(x).sum(),
        lambda x: losses.sigmoid_focal_loss(1e4 * (x + 1), zeros, gamma=0.5).sum(),
    ):
        assert fnp.isfinite(f(zeros)).all()
        assert fnp.isfinite(fnx.grad(f)(zeros)).all()
    logits, labels = fnp.array([0.0, 1.0, -np.inf]), fnp.array([0.5, 0.5, 0.0])
    slope = fnx.grad(losses.safe_softmax_cross_entropy)(logits, labels)
    assert fnp.isfinite(slope).all()
    far = losses.sigmoid_binary_cross_entropy(fnp.array([1e4, -1e4]), fnp.array([0, 1]))
    np.testing.assert_array_equal(far, 1e4)


def test_losses_are_also_names_of_optim():
    for name in losses.__all__:
        if hasattr(optim, name):
            assert getattr(optim, name) is getattr(losses, name)
    assert optim.softmax_cross_entropy is losses.softmax_cross_entropy


BAD = [
    (lambda: losses.squared_error(np.ones((3, 1)), np.ones(3)), ShapeError, "have one"),
    (lambda: losses.hinge_loss(np.ones(3), np.ones(2)), ShapeError, "fit each other"),
    (lambda: losses.l2_loss(np.ones(2) * 1j), DTypeError, "predictions must be real"),
    (
        lambda: losses.softmax_cross_entropy_with_integer_labels(LOGITS, np.ones(4)),
        DTypeError,
        "labels must be integers",
    ),
    (lambda: losses.huber_loss(X, delta=0), OptionError, "huber_loss: delta must be"),
    (lambda: losses.smooth_labels(LABELS, 1.5), OptionError, "alpha must be from 0"),
    (lambda: losses.ntxent(X, CLASSES, 0), OptionError, "ntxent: temperature must be"),
    (lambda: losses.ctc_loss(*CTC[:3], CTC[3][:, :1]), ShapeError, "ctc_loss: the sha"),
]


@pytest.mark.parametrize(("call", "kind", "match"), BAD, ids=[m for *_, m in BAD])
def test_bad_arguments(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
