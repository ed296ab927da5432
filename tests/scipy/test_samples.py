"""Distributions of several dimensions, density estimates and ranks, against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import fnx
import fnx.numpy as fnp
from fnx import errors, random
from fnx.scipy import stats
from fnx.testing import check_grads

RNG = np.random.default_rng(3)
POINTS = RNG.standard_normal((2, 9))
SPREAD = np.array([[2.0, 0.7, 0.1], [0.7, 1.0, -0.3], [0.1, -0.3, 0.5]])


def test_multivariate_normal():
    x, mean = RNG.standard_normal((4, 5, 3)), np.array([0.5, -1, 2])
    theirs, ours = scipy.stats.multivariate_normal, stats.multivariate_normal
    for f in ("logpdf", "pdf"):
        want = getattr(theirs, f)(x, mean, SPREAD)
        np.testing.assert_allclose(getattr(ours, f)(x, mean, SPREAD), want, 1e-12)
    one = theirs.logpdf(x[0, :, 0], 0.5, 2.0)
    np.testing.assert_allclose(ours.logpdf(x[0, :, 0], 0.5, 2.0), one, 1e-12)
    diagonal = theirs.logpdf(x, mean, np.diag([1.0, 2, 3]))
    got = ours.logpdf(x, mean, np.array([1.0, 2, 3]))
    np.testing.assert_allclose(got, diagonal, 1e-12)
    many = np.stack([SPREAD, 2 * SPREAD])
    pair = [theirs.logpdf(x[0, 0], mean, s) for s in many]
    np.testing.assert_allclose(ours.logpdf(x[0, 0], mean, many), pair, 1e-12)
    assert np.isnan(ours.logpdf(x[0, 0], mean, -SPREAD))

    def of_symmetric(x, mean, spread):
        return ours.logpdf(x, mean, (spread + spread.T) / 2)

    check_grads(of_symmetric, (x[0], mean, SPREAD), 2)
    with pytest.raises(errors.ShapeError, match="dimensions of the arguments differ"):
        ours.logpdf(x, mean[:2], SPREAD)
    with pytest.raises(errors.OptionError, match="allow_singular"):
        ours.logpdf(x, mean, SPREAD, True)


def test_multivariate_normal_of_many_dimensions():
    n = 11
    half = RNG.standard_normal((2, n, n))
    many = half @ half.swapaxes(1, 2) + np.eye(n)
    x, mean = RNG.standard_normal((4, 1, n)), RNG.standard_normal(n)
    theirs, ours = scipy.stats.multivariate_normal, stats.multivariate_normal
    want = [theirs.logpdf(x[:, 0], mean, spread) for spread in many]
    np.testing.assert_allclose(ours.logpdf(x, mean, many), np.transpose(want), 1e-12)
    got = fnx.jit(ours.logpdf)(x, mean, many[0])
    np.testing.assert_allclose(got[:, 0], want[0], 1e-12)
    check_grads(lambda x, mean: ours.logpdf(x, mean, many[1]), (x, mean), 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_multivariate_normal_of_narrow_numbers(dtype):
    x, mean = np.array([[0.5, -1, 2]]), np.zeros(3)
    want = scipy.stats.multivariate_normal.logpdf(x, mean, SPREAD)
    args = [fnp.asarray(each, dtype) for each in (x, mean, SPREAD)]
    got = stats.multivariate_normal.logpdf(*args)
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype("float64"), [want], 0.05)


def test_a_covariance_has_symmetric_derivatives(jax):
    point = np.array([0.5, -1, 2])
    got = fnx.grad(stats.multivariate_normal.logpdf, 2)(point, 0 * point, SPREAD)
    theirs = jax.scipy.stats.multivariate_normal.logpdf
    want = jax.grad(theirs, 2)(point, 0 * point, SPREAD)
    np.testing.assert_allclose(got, want, 1e-11, 1e-12)


def test_dirichlet():
    alpha = np.array([0.4, 5.0, 15.0])
    x = np.array([[0.2, 0.05], [0.2, 0.15], [0.6, 0.8]])
    want = [scipy.stats.dirichlet.logpdf(column, alpha) for column in x.T]
    ours = stats.dirichlet
    np.testing.assert_allclose(ours.logpdf(x, alpha), want, 1e-12)
    np.testing.assert_allclose(ours.logpdf(x[:2], alpha), want, 1e-12)
    np.testing.assert_allclose(ours.pdf(x, alpha), np.exp(want), 1e-12)
    outside = np.array([[-0.1, 0.5], [0.5, 0.7], [0.6, 0.8]])
    assert ours.logpdf(outside, alpha).tolist() == [-np.inf, -np.inf]
    check_grads(lambda a: ours.logpdf(x, a), (alpha,), 2)
    with pytest.raises(errors.ShapeError, match="as many elements or one less"):
        ours.logpdf(np.ones(5), alpha)


def test_multinomial():
    x, p = np.array([[3, 1, 0], [0, 4, 0], [1, 1, 1]]), np.array([0.5, 0.3, 0.2])
    want = scipy.stats.multinomial.logpmf(x, 4, p)
    ours = stats.multinomial
    np.testing.assert_allclose(ours.logpmf(x, 4, p), want, 1e-12)
    np.testing.assert_allclose(ours.pmf(x, 4, p), np.exp(want), 1e-12)
    check_grads(lambda p: ours.logpmf(x[:2], 4, p), (p,), 2)
    assert not np.isnan(
        fnx.grad(lambda p: ours.logpmf(x[1], 4, p))(p * [0, 1, 1])
    ).any()


@pytest.mark.parametrize("method", [None, "silverman", 0.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_density_estimates(method, weighted):
    weights = np.arange(1.0, 10) if weighted else None
    for data in (POINTS, POINTS[0]):
        theirs = scipy.stats.gaussian_kde(data, method, weights)
        ours = stats.gaussian_kde(data, method, weights)
        x = RNG.standard_normal((2, 4)) if data.ndim == 2 else np.linspace(-2, 2, 4)
        np.testing.assert_allclose(ours(x), theirs(x), 1e-11)
        np.testing.assert_allclose(ours.pdf(x), theirs(x), 1e-11)
        np.testing.assert_allclose(ours.logpdf(x), theirs.logpdf(x), 1e-10, 1e-11)
        np.testing.assert_allclose(ours.covariance, theirs.covariance, 1e-12)
        np.testing.assert_allclose(ours.inv_cov, theirs.inv_cov, 1e-11)
        np.testing.assert_allclose(ours.neff, theirs.neff, 1e-12)
        np.testing.assert_allclose(
            ours.integrate_kde(ours), theirs.integrate_kde(theirs), 1e-11
        )
        d = theirs.d
        np.testing.assert_allclose(
            ours.integrate_gaussian(np.full(d, 0.1), np.eye(d)),
            theirs.integrate_gaussian(np.full(d, 0.1), np.eye(d)),
            1e-11,
        )
    np.testing.assert_allclose(
        ours.integrate_box_1d(-1.0, 0.5), theirs.integrate_box_1d(-1.0, 0.5), 1e-12
    )


def test_density_estimates_of_many_dimensions():
    data, x = RNG.standard_normal((9, 30)), RNG.standard_normal((9, 4))
    theirs, ours = scipy.stats.gaussian_kde(data), stats.gaussian_kde(data)
    np.testing.assert_allclose(ours.logpdf(x), theirs.logpdf(x), 1e-10)
    np.testing.assert_allclose(ours.inv_cov, theirs.inv_cov, 1e-9, 1e-12)


def test_density_estimates_are_pytrees_and_differentiable():
    x = np.array([[0.1], [0.2]])

    @fnx.jit
    def density(data, x):
        return fnx.jit(lambda kde, x: kde.logpdf(x))(stats.gaussian_kde(data), x)

    want = scipy.stats.gaussian_kde(POINTS).logpdf(x)
    np.testing.assert_allclose(density(POINTS, x), want, 1e-10)
    check_grads(density, (POINTS, x), 1)


def test_samples_of_an_estimate():
    kde = stats.gaussian_kde(POINTS)
    sample = kde.resample(random.PRNGKey(0), (4000,))
    assert sample.shape == (2, 4000)
    np.testing.assert_allclose(sample.mean(1), POINTS.mean(1), atol=0.1)
    spread = np.cov(POINTS, ddof=0) + kde.covariance
    np.testing.assert_allclose(np.cov(np.asarray(sample)), spread, atol=0.15)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: stats.gaussian_kde(1.0), errors.ShapeError, "several elements"),
        (
            lambda: stats.gaussian_kde(POINTS, weights=np.ones(3)),
            errors.ShapeError,
            "a weight for each of 9 points",
        ),
        (lambda: stats.gaussian_kde(POINTS, "x"), errors.OptionError, "'silverman'"),
        (lambda: stats.gaussian_kde(POINTS * 1j), errors.DTypeError, "real numbers"),
        (
            lambda: stats.gaussian_kde(POINTS)(np.ones((3, 1))),
            errors.ShapeError,
            "points of 3 dimensions",
        ),
        (
            lambda: stats.gaussian_kde(POINTS).integrate_box_1d(0, 1),
            errors.ShapeError,
            "not one",
        ),
        (
            lambda: stats.gaussian_kde(POINTS).set_bandwidth(),
            errors.OptionError,
            "do not change",
        ),
    ],
)
def test_errors_of_estimates(call, error, match):
    with pytest.raises(error, match=match):
        call()


# ---------------------------------------------------------------- ranks

VALUES = RNG.integers(0, 4, (5, 7)).astype(float)


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_ranks(method, axis):
    want = scipy.stats.rankdata(VALUES, method, axis=axis)
    got = stats.rankdata(VALUES, method, axis=axis)
    np.testing.assert_array_equal(np.asarray(got).ravel(), np.ravel(want))
    spoiled = VALUES.copy()
    spoiled[0, 0] = np.nan
    with np.errstate(all="ignore"):
        want = scipy.stats.rankdata(spoiled, method, axis=axis)
    got = stats.rankdata(spoiled, method, axis=axis)
    np.testing.assert_array_equal(np.asarray(got).ravel(), np.ravel(want))


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_mode_and_standard_error(axis, keepdims):
    want = scipy.stats.mode(VALUES, axis=axis, keepdims=keepdims)
    got = stats.mode(VALUES, axis=axis, keepdims=keepdims)
    np.testing.assert_array_equal(got.mode, want.mode)
    np.testing.assert_array_equal(got.count, want.count)
    got = fnx.jit(lambda x: stats.mode(x, axis, keepdims=keepdims).mode)(VALUES)
    np.testing.assert_array_equal(got, want.mode)
    want = scipy.stats.sem(VALUES, axis=axis, ddof=2)
    np.testing.assert_allclose(stats.sem(VALUES, axis, 2), want, 1e-12)
    kept = stats.sem(VALUES, axis, keepdims=True)
    assert kept.ndim == 2


def test_options_of_ranks():
    for function in (stats.mode, stats.sem, stats.rankdata):
        with pytest.raises(errors.OptionError, match="must be 'propagate'"):
            function(VALUES, nan_policy="omit")
    with pytest.raises(errors.OptionError, match="method must be one of"):
        stats.rankdata(VALUES, "median")
    with pytest.raises(errors.ShapeError, match="nothing along axis"):
        stats.mode(fnp.zeros((0, 2)))


def test_entropy_of_poisson():
    mu = np.array([0.01, 0.5, 3, 40, 900])
    want = [float(scipy.stats.poisson.entropy(m)) for m in mu]
    np.testing.assert_allclose(stats.poisson.entropy(mu), want, 1e-6)
    check_grads(stats.poisson.entropy, (mu[1:4],), 2, rtol=1e-4)
