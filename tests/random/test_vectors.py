"""multivariate_normal and orthogonal: against JAX, moments, derivatives, errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import fnx
import fnx.numpy as fnp
from fnx import errors, random

ROOT = np.random.default_rng(0).standard_normal((2, 3, 3))
COV = ROOT @ ROOT.swapaxes(1, 2) + np.eye(3)
MEAN = np.random.default_rng(1).standard_normal((2, 3))


def key(seed=0):
    return random.PRNGKey(seed)


@pytest.mark.oracle
@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_multivariate_normal_is_that_of_jax(jax, method, dtype):
    mean, cov = MEAN.astype(dtype), COV.astype(dtype)
    for args, shape in (
        ((mean, cov), None),
        ((mean, cov[0]), (4, 2)),
        ((mean[0], cov), (2,)),
        ((mean[0], cov[0]), ()),
        ((mean[:, :0], cov[:, :0, :0]), None),
    ):
        got = random.multivariate_normal(key(), *args, shape, method=method)
        theirs = jax.random.PRNGKey(0)
        want = jax.random.multivariate_normal(theirs, *args, shape, method=method)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if method == "cholesky" or not want.size:
            np.testing.assert_allclose(got, want, 1e-4 if dtype == "float32" else 1e-10)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_vectors_of_16_bits_are_computed_in_32(jax, dtype):
    mean, cov = MEAN.astype("float32"), COV.astype("float32")
    got = random.multivariate_normal(key(), mean, cov, dtype=dtype)
    theirs = jax.random.PRNGKey(0)
    want = jax.random.multivariate_normal(theirs, mean, cov, None, dtype)
    assert got.dtype == dtype
    near = np.asarray(want, "float32")
    np.testing.assert_allclose(got.astype("float32"), near, 0.02, 0.02)


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_moments(method):
    x = random.multivariate_normal(key(1), MEAN[0], COV[0], (40_000,), method=method)
    x = np.asarray(x)
    np.testing.assert_allclose(x.mean(0), MEAN[0], atol=0.05)
    np.testing.assert_allclose(np.cov(x.T), COV[0], rtol=0.05, atol=0.1)
    white = np.linalg.solve(np.linalg.cholesky(COV[0]), (x - MEAN[0]).T)
    assert stats.kstest(white.ravel(), stats.norm().cdf).pvalue > 0.01


@pytest.mark.parametrize("method", ["eigh", "svd"])
def test_singular_covariances(method):
    cov = np.outer([1.0, 2.0], [1.0, 2.0])
    x = np.asarray(
        random.multivariate_normal(key(2), np.zeros(2), cov, (50,), method=method)
    )
    np.testing.assert_allclose(x[:, 1], 2 * x[:, 0], atol=1e-6)
    assert x[:, 0].std() > 0.5


def test_derivatives_and_members_of_multivariate_normal():
    def sample(mean, root):
        cov = root @ root.T + fnp.eye(3)
        return random.multivariate_normal(key(3), mean, cov)

    slope = fnx.jvp(sample, (MEAN[0], ROOT[0]), (MEAN[1], ROOT[1]))[1]
    step = 1e-6
    moved = [
        sample(MEAN[0] + s * MEAN[1], ROOT[0] + s * ROOT[1]) for s in (step, -step)
    ]
    np.testing.assert_allclose(slope, (moved[0] - moved[1]) / (2 * step), 1e-6, 1e-7)
    keys = random.split(key(4), 2)
    many = fnx.jit(fnx.vmap(random.multivariate_normal))(keys, MEAN, COV)
    for k, mean, cov, row in zip(keys, MEAN, COV, many, strict=True):
        want = random.multivariate_normal(k, mean, cov)
        np.testing.assert_allclose(row, want, 1e-10)
    half = random.multivariate_normal(key(), MEAN, COV, dtype="float32")
    assert half.dtype == np.float32


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize(("n", "m"), [(3, None), (4, 2), (2, 4), (1, 1), (0, 2)])
def test_orthogonal_is_that_of_jax(jax, n, m, dtype):
    got = random.orthogonal(key(5), n, (2,), dtype, m)
    want = jax.random.orthogonal(jax.random.PRNGKey(5), n, (2,), dtype, m)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    tolerance = 1e-10 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(got, want, tolerance, tolerance)
    q = np.asarray(got)
    q = q if n >= (m or n) else q.swapaxes(1, 2)
    eye = np.broadcast_to(np.eye(q.shape[2]), (2, q.shape[2], q.shape[2]))
    np.testing.assert_allclose(q.conj().swapaxes(1, 2) @ q, eye, atol=2e-5)


def test_orthogonal_is_uniform():
    """An element of a matrix is as one of a point of the sphere: uniform in space."""
    q = np.asarray(random.orthogonal(key(6), 3, (4000,)))
    for place in ((0, 0), (1, 2), (2, 1)):
        x = q[:, place[0], place[1]]
        assert stats.kstest(x, stats.uniform(-1, 2).cdf).pvalue > 0.01
    signs = np.linalg.det(q)
    assert abs((signs > 0).mean() - 0.5) < 0.03
    keys = random.split(key(7), 3)
    many = fnx.vmap(lambda k: random.orthogonal(k, 2))(keys)
    want = [random.orthogonal(k, 2) for k in keys]
    np.testing.assert_allclose(many, np.stack(want), 1e-5, 1e-6)


ERRORS = [
    (lambda: random.multivariate_normal(key(), 1.0, COV[0]), r"mean is f32\[\]"),
    (lambda: random.multivariate_normal(key(), MEAN, COV[:, :2]), r"cov is f64\[2,2,3"),
    (lambda: random.multivariate_normal(key(), MEAN, COV, (3,)), r"shape=\(3,\)"),
    (
        lambda: random.multivariate_normal(key(), MEAN, COV, method="qr"),
        "method 'qr' is none of",
    ),
    (lambda: random.multivariate_normal(key(), MEAN * 1j, COV), "must be real"),
    (lambda: random.orthogonal(key(), -1), "orthogonal: n must be .* got -1"),
    (lambda: random.orthogonal(key(), 2, m=2.5), "orthogonal: m must be .* got 2.5"),
]


@pytest.mark.parametrize(("call", "match"), ERRORS, ids=[m for _, m in ERRORS])
def test_errors(call, match):
    with pytest.raises(errors.FnxError, match=match):
        call()
