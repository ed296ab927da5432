"""dot_product_attention and scaled_matmul: against NumPy loops and JAX, rows without
keys, 16-bit floats, derivatives, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, nn
from fnx.testing.gradients import check_grads

B, T, S, N, K, H = 2, 3, 5, 4, 2, 6
RNG = np.random.default_rng(0)
Q = RNG.standard_normal((B, T, N, H))
KEY = RNG.standard_normal((B, S, K, H))
VALUE = RNG.standard_normal((B, S, K, H))
BIAS = RNG.standard_normal((B, N, T, S))
MASK = RNG.random((B, N, T, S)) > 0.4
MASK[0, 1, 2] = False  # a query that sees nothing


def attended(q, k, v, allowed, bias=0.0, scale=None):
    """One query after the other; 0 for one that sees nothing."""
    out = np.zeros(q.shape)
    bias = np.broadcast_to(bias, (q.shape[0], q.shape[2], q.shape[1], k.shape[1]))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    for b, t, n in np.ndindex(*q.shape[:3]):
        head = n // (q.shape[2] // k.shape[2])
        seen = [s for s in range(k.shape[1]) if allowed(b, n, t, s)]
        if seen:
            x = [scale * (q[b, t, n] @ k[b, s, head]) + bias[b, n, t, s] for s in seen]
            weights = np.exp(np.array(x) - max(x))
            weights /= weights.sum()
            out[b, t, n] = weights @ v[b, seen, head]
    return out


LENGTHS = np.array([2, 0], np.int32), np.array([3, 5], np.int32)
OPTIONS = {
    "plain": ({}, lambda b, n, t, s: True),
    "causal": ({"is_causal": True}, lambda b, n, t, s: s <= t),
    "mask": ({"mask": MASK}, lambda b, n, t, s: MASK[b, n, t, s]),
    "mask-of-one-head": (
        {"mask": MASK[:, :1]},
        lambda b, n, t, s: MASK[b, 0, t, s],
    ),
    "mask-of-positions": ({"mask": MASK[0, 1]}, lambda b, n, t, s: MASK[0, 1, t, s]),
    "window": ({"local_window_size": 1}, lambda b, n, t, s: abs(t - s) <= 1),
    "windows": (
        {"local_window_size": (2, 0), "is_causal": True},
        lambda b, n, t, s: t - 2 <= s <= t,
    ),
    "lengths": (
        {"query_seq_lengths": LENGTHS[0], "key_value_seq_lengths": LENGTHS[1]},
        lambda b, n, t, s: t < LENGTHS[0][b] and s < LENGTHS[1][b],
    ),
    "no-keys": (
        {"key_value_seq_lengths": np.array([0, 2])},
        lambda b, n, t, s: s < (0, 2)[b],
    ),
    "all": (
        {"mask": MASK, "is_causal": True, "local_window_size": (1, 9)},
        lambda b, n, t, s: MASK[b, n, t, s] and t - 1 <= s <= t,
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("extra", ["", "bias", "scale"])
def test_values(name, extra):
    options, allowed = OPTIONS[name]
    more = {"": {}, "bias": {"bias": BIAS}, "scale": {"scale": 0.3}}[extra]
    want = attended(Q, KEY, VALUE, allowed, **more)

    def run(q, k, v):
        return nn.dot_product_attention(q, k, v, **options, **more)

    got = run(Q, KEY, VALUE)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, want, 1e-12, 1e-14)
    np.testing.assert_allclose(fnx.jit(run)(Q, KEY, VALUE), want, 1e-12, 1e-14)
    if name in ("plain", "causal", "window", "windows") and extra != "bias":
        mapped = fnx.vmap(run)(Q, KEY, VALUE)
        np.testing.assert_allclose(mapped, want, 1e-12, 1e-14)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["plain", "causal", "window", "lengths"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_values_are_those_of_jax(jax, name, dtype):
    options = OPTIONS[name][0]
    inputs = [np.asarray(jax.numpy.asarray(x, dtype)) for x in (Q, KEY, VALUE)]
    got = nn.dot_product_attention(*inputs, **options)
    want = jax.nn.dot_product_attention(*map(jax.numpy.asarray, inputs), **options)
    assert got.dtype == want.dtype
    tolerance = {"float32": 2e-6, "bfloat16": 2e-2, "float16": 2e-3}[dtype]
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    np.testing.assert_allclose(got, want, tolerance, tolerance)


@pytest.mark.oracle
def test_residual_is_that_of_jax(jax):
    inputs = [x.astype(np.float32) for x in (Q, KEY, VALUE)]
    options = {"is_causal": True, "return_residual": True}
    got, want = [
        library.nn.dot_product_attention(*inputs, **options) for library in (fnx, jax)
    ]
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, 1e-5)
    inputs = [x[0] for x in inputs]
    out, residual = nn.dot_product_attention(*inputs, **options)
    assert (out.shape, residual.shape) == ((T, N, H), (T, N))


def test_products_of_16_bit_floats_do_not_overflow():
    """A sum of products beyond the largest float16, before the scale."""
    q = np.full((1, 1, 64), 60.0, np.float16)
    k = np.stack([q[0], q[0] / 2])
    v = np.stack([q[0] * 0 + 1, q[0] * 0 + 2])
    assert np.asarray(nn.dot_product_attention(q, k, v)).tolist() == [[[1.0] * 64]]


def test_queries_that_see_nothing_have_value_and_derivatives_0():
    mask = MASK[0, 1]

    def total(q, k, v):
        return fnp.sum(nn.dot_product_attention(q, k, v, mask=mask) ** 2)

    dq, dk, dv = fnx.grad(total, argnums=(0, 1, 2))(Q, KEY, VALUE)
    for d in (dq, dk, dv):
        assert np.isfinite(np.asarray(d)).all()
    assert not np.asarray(dq)[:, 2].any() and np.asarray(dq)[:, :2].all()


@pytest.mark.parametrize("name", ["plain", "causal", "all", "lengths"])
def test_derivatives(name):
    options = OPTIONS[name][0]

    def run(q, k, v, bias):
        return nn.dot_product_attention(q, k, v, bias, **options)

    check_grads(run, (Q, KEY, VALUE, BIAS), order=2)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_empty(shape):
    rows, columns = shape
    q, k = np.ones((rows, 2, 4), np.float32), np.ones((columns, 1, 4), np.float32)
    out = nn.dot_product_attention(q, k, k, key_value_seq_lengths=np.array([columns]))
    assert out.shape == q.shape and not np.asarray(out).any()


ERRORS = [
    ((Q, KEY, VALUE[:, :4]), {}, errors.ShapeError, r"value must be \(2, 5, 2, 6\)"),
    ((Q[..., :5], KEY, VALUE), {}, errors.ShapeError, r"query must be \(2, …, …, 6\)"),
    ((Q[0, 0], KEY, VALUE), {}, errors.ShapeError, r"query is f64\[4,6\]"),
    ((Q[:, :, :3], KEY, VALUE), {}, errors.ShapeError, "no multiple of the 2"),
    ((Q, KEY.astype("f4"), VALUE), {}, errors.DTypeError, "have one float dtype"),
    ((Q, KEY, VALUE), {"mask": BIAS}, errors.DTypeError, "mask is f64.*pass bools"),
    ((Q, KEY, VALUE), {"bias": BIAS[:, :3]}, errors.ShapeError, "bias is f64"),
    ((Q, KEY, VALUE), {"mask": MASK[..., None]}, errors.ShapeError, "mask is bool"),
    ((Q, KEY, VALUE), {"implementation": "cudnn"}, errors.OptionError, "'cudnn'"),
    ((Q, KEY, VALUE), {"local_window_size": -1}, errors.OptionError, "got -1"),
    (
        (Q, KEY, VALUE),
        {"query_seq_lengths": np.ones(3, int)},
        errors.ShapeError,
        r"query_seq_lengths must be \(2\)",
    ),
    (
        (Q, KEY, VALUE),
        {"key_value_seq_lengths": np.ones(2)},
        errors.DTypeError,
        "key_value_seq_lengths must be integers",
    ),
]


@pytest.mark.parametrize("case", ERRORS, ids=[e[3] for e in ERRORS])
def test_errors(case):
    arguments, options, kind, match = case
    with pytest.raises(kind, match="(?s)" + match):
        nn.dot_product_attention(*arguments, **options)


@pytest.mark.parametrize("length", [8, 256])
@pytest.mark.parametrize("window", [2**31 - 1, 2**40, (2**40, 2**40)])
def test_a_window_wider_than_all_hides_nothing(length, window, rng):
    q, k, v = rng.standard_normal((3, 1, length, 2, 8)).astype(np.float32)
    got = fnx.nn.dot_product_attention(q, k, v, local_window_size=window)
    want = fnx.nn.dot_product_attention(q, k, v)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
