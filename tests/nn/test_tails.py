"""Value, first and second derivative in the tails, against arithmetic of 420 digits."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import nn

ULP = 8
DIGITS = 420


def _sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def _bump(x):
    return _sigmoid(x) * _sigmoid(-x)


ALPHA = mp.mpf("1.6732632423543772848170429916717")
SCALE = mp.mpf("1.0507009873554804934193349852946")


def _unit(above, below):
    """A function of a formula for x > 0 and one for the rest."""
    return lambda x: above(x) if x > 0 else below(x)


ZERO, ONE = (lambda x: mp.mpf(0)), (lambda x: mp.mpf(1))
# Each function with its value, its derivative and its second derivative.
FUNCTIONS = {
    "softplus": (nn.softplus, lambda x: mp.log1p(mp.exp(x)), _sigmoid, _bump),
    "sigmoid": (
        nn.sigmoid,
        _sigmoid,
        _bump,
        lambda x: -_bump(x) * mp.tanh(x / 2),
    ),
    "log_sigmoid": (
        nn.log_sigmoid,
        lambda x: -mp.log1p(mp.exp(-x)),
        lambda x: _sigmoid(-x),
        lambda x: -_bump(x),
    ),
    "elu": (
        nn.elu,
        _unit(lambda x: x, mp.expm1),
        _unit(ONE, mp.exp),
        _unit(ZERO, mp.exp),
    ),
    "selu": (
        nn.selu,
        _unit(lambda x: SCALE * x, lambda x: SCALE * ALPHA * mp.expm1(x)),
        _unit(lambda x: SCALE, lambda x: SCALE * ALPHA * mp.exp(x)),
        _unit(ZERO, lambda x: SCALE * ALPHA * mp.exp(x)),
    ),
    "celu": (
        lambda x: nn.celu(x, 2.0),
        _unit(lambda x: x, lambda x: 2 * mp.expm1(x / 2)),
        _unit(ONE, lambda x: mp.exp(x / 2)),
        _unit(ZERO, lambda x: mp.exp(x / 2) / 2),
    ),
    "tanh": (
        nn.tanh,
        mp.tanh,
        lambda x: mp.sech(x) ** 2,
        lambda x: -2 * mp.sech(x) ** 2 * mp.tanh(x),
    ),
    "logaddexp": (
        lambda x: fnp.logaddexp(x, 0.0),
        lambda x: mp.log1p(mp.exp(x)),
        _sigmoid,
        _bump,
    ),
    "log1mexp": (
        lambda x: nn.log1mexp(fnp.abs(x) + 0.0),
        lambda x: mp.log(-mp.expm1(-abs(x))),
        None,
        None,
    ),
}


def _grid(dtype):
    highest = 700 if dtype == "f8" else 85
    positive = np.logspace(-6, np.log10(highest), 60)
    return np.concatenate([-positive[::-1], positive]).astype(dtype)


def _worst(got, want, dtype):
    """The largest relative error in units of the last place, subnormals left out."""
    info = np.finfo(dtype)
    errors = [
        abs(mp.mpf(float(g)) - w) / abs(w) / mp.mpf(float(info.eps))
        for g, w in zip(np.ravel(got), want, strict=True)
        if abs(w) >= 4 * info.tiny
    ]
    return float(max(errors, default=0))


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_elementwise(name, dtype, order):
    function, *exact = FUNCTIONS[name]
    if exact[order] is None:
        pytest.skip("only the value is promised")
    for _ in range(order):
        function = fnx.grad(function)
    x = _grid(dtype)
    got = np.asarray(fnx.vmap(function)(fnp.array(x)))
    assert got.dtype == x.dtype
    with mp.workdps(DIGITS):
        want = [exact[order](mp.mpf(float(v))) for v in x]
        assert _worst(got, want, dtype) <= ULP


def test_second_derivatives_at_zero():
    assert fnx.grad(fnx.grad(nn.softplus))(0.0) == 0.25
    assert fnx.grad(fnx.grad(nn.log_sigmoid))(0.0) == -0.25
    assert fnx.grad(nn.relu)(0.0) == 0


# ---------------------------------------------------------------- softmax and its kin

REST = [[0.0, -1.0], [0.0, 0.0], [0.0, -0.5, -2.0, -20.0]]
# A class that takes nearly everything, or nearly nothing, or as much as another one.
# The exact differences keep the rounding of x - max(x) out of the comparison.
FIRST = [-64.0, -16.0, -2.0, -0.125, 0.0, 0.125, 2.0, 16.0, 32.0, 64.0]


def _exact(v):
    """Probabilities, their complements, the Jacobians, and the log-sum-exp."""
    terms = [mp.exp(mp.mpf(x)) for x in v]
    total = mp.fsum(terms)
    p = [t / total for t in terms]
    n = range(len(v))
    q = [mp.fsum([p[j] for j in n if j != i]) for i in n]
    jacobian = [p[i] * q[i] if i == j else -p[i] * p[j] for i in n for j in n]
    log_jacobian = [q[i] if i == j else -p[j] for i in n for j in n]
    return p, jacobian, log_jacobian, mp.log(total), mp.log(total) - mp.mpf(max(v))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("first", FIRST)
def test_softmax_family(first, dtype):
    for rest in REST:
        v = [first, *rest]
        x = fnp.array(np.array(v, dtype))
        with mp.workdps(DIGITS):
            p, jacobian, log_jacobian, lse, above = _exact(v)
            logs = [mp.mpf(value) - mp.mpf(max(v)) - above for value in v]
            for got, want in [
                (nn.softmax(x), p),
                (nn.log_softmax(x), logs),
                (nn.logsumexp(x), [lse]),
                (fnx.grad(nn.logsumexp)(x), p),
                (fnx.jacrev(nn.softmax)(x), jacobian),
                (fnx.jacfwd(nn.softmax)(x), jacobian),
                (fnx.jacrev(nn.log_softmax)(x), log_jacobian),
                (fnx.hessian(nn.logsumexp)(x), jacobian),
                (fnx.jacrev(fnx.grad(nn.logsumexp))(x), jacobian),
            ]:
                assert _worst(got, want, dtype) <= ULP


def test_logsumexp_of_infinities():
    inf = float("inf")
    x = fnp.array([-inf, -inf])
    assert nn.logsumexp(x) == -inf
    assert fnx.grad(nn.logsumexp)(x).tolist() == [0.0, 0.0]
    x = fnp.array([-inf, 0.0])
    assert nn.logsumexp(x) == 0
    assert fnx.grad(nn.logsumexp)(x).tolist() == [0.0, 1.0]
    assert nn.softmax(x).tolist() == [0.0, 1.0]
    assert nn.logsumexp(fnp.array([inf, 0.0])) == inf
    assert nn.logsumexp(fnp.zeros(0)) == -inf


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_softmax_beside_infinities(dtype):
    """Infinite elements share the whole; the derivative is that of a saturated one."""
    inf, nan = np.inf, np.nan
    largest = float(np.finfo(dtype).max)
    rows = {
        (inf, 0, -inf): [1, 0, 0],
        (inf, inf, 0): [0.5, 0.5, 0],
        (inf, largest / 2, 1): [1, 0, 0],
        (largest, 0, -largest): [1, 0, 0],
        (-inf, -inf, 0): [0, 0, 1],
        (nan, 0, 1): [nan, nan, nan],
        (inf, nan, 1): [nan, nan, nan],
    }
    for row, want in rows.items():
        x, want = fnp.array(np.array(row, dtype)), np.array(want, dtype)
        for function in (nn.softmax, fnx.jit(nn.softmax)):
            np.testing.assert_array_equal(function(x), want)
        with np.errstate(divide="ignore"):
            logs = np.log(want)
        if row != (largest, 0, -largest):
            np.testing.assert_allclose(nn.log_softmax(x), logs, 2e-3)
        if not np.isnan(want).any() and inf in row:
            wanted = want * (row[0] == row[1]) * [0.5, -0.5, 0]
            got = fnx.grad(lambda y: nn.softmax(y)[0])(x)
            np.testing.assert_array_equal(got * np.isfinite(x), 0 * wanted)
    empty = nn.softmax(fnp.zeros((2, 0), dtype))
    assert empty.shape == (2, 0)
