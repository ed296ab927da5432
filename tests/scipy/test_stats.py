"""`fnx.scipy.stats` against SciPy, mpmath and JAX: values, tails, ends, derivatives."""

from __future__ import annotations

import inspect

import mpmath
import numpy as np
import pytest
import scipy.stats

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.scipy import stats
from fnx.testing import check_grads

inf = np.inf
X = np.array([-30.0, -3, -1, -0.25, 0, 1e-6, 0.3, 0.5, 1, 1.75, 4, 25, 300])
UNIT = np.array([-1.0, 0, 1e-9, 0.01, 0.3, 0.5, 0.875, 0.999, 1, 2])
Q = np.array([0.0, 1e-12, 0.01, 0.3, 0.5, 0.625, 0.99, 1 - 1e-9, 1])
K = np.array([-1.0, 0, 1, 2, 3, 7, 20])
PLACED = {"loc": 0.5, "scale": 2.0}

# distribution: its parameters in groups, where its densities are tested, whether it has
# a place and a scale, and points inside of the support where it is smooth
TABLE = {
    "norm": ([()], X, PLACED, [0.3, -2.0]),
    "expon": ([()], X, PLACED, [0.7, 3.0]),
    "laplace": ([()], X, PLACED, [0.7, -3.0]),
    "logistic": ([()], X, PLACED, [0.7, -3.0]),
    "cauchy": ([()], X, PLACED, [0.7, -3.0]),
    "uniform": ([()], UNIT, PLACED, [0.6, 0.3]),
    "gumbel_l": ([()], X, PLACED, [0.7, -3.0]),
    "gumbel_r": ([()], X, PLACED, [0.7, -3.0]),
    "gamma": ([(0.3,), (1.0,), (2.5,), (70.0,)], X, PLACED, [0.7, 3.0]),
    "chi2": ([(0.5,), (2.0,), (11.0,)], X, PLACED, [0.7, 3.0]),
    "beta": (
        [(0.5, 0.5), (1.0, 1.0), (2.5, 4.0), (90.0, 30.0), (1.0, 3.0)],
        UNIT,
        PLACED,
        [0.6, 0.3],
    ),
    "pareto": ([(0.5,), (3.0,)], X, PLACED, [3.0, 7.0]),
    "t": ([(0.5,), (3.0,), (1e5,)], X, PLACED, [0.7, -3.0]),
    "truncnorm": (
        [(-1.0, 2.0), (3.0, 5.0), (-9.0, -7.0), (-inf, 0.5), (0.0, inf)],
        X[X != 1e-6],  # where SciPy subtracts from 1
        PLACED,
        [0.6],
    ),
    "gennorm": ([(0.7,), (2.0,), (5.0,)], X, {}, [0.7, -1.5]),
    "vonmises": ([(0.1,), (4.0,), (600.0,)], X[1:10], {}, [0.7, -2.0]),
    "wrapcauchy": ([(0.2,), (0.9,)], X, {}, [0.7, 3.0]),
    "bernoulli": ([(0.3,), (0.0,), (1.0,)], K, {"loc": 1.0}, None),
    "binom": ([(7.0, 0.3), (20.0, 0.9), (3.0, 0.0)], K, {"loc": 1.0}, None),
    "nbinom": ([(4.0, 0.3), (20.0, 0.9)], K, {"loc": 1.0}, None),
    "geom": ([(0.3,), (0.9,)], K, {"loc": 1.0}, None),
    "poisson": ([(0.3,), (5.0,), (40.0,)], K, {"loc": 1.0}, None),
    "betabinom": ([(7.0, 0.6, 2.0), (20.0, 3.0, 1.0)], K, {"loc": 1.0}, None),
}


def functions(name):
    """The public functions of a distribution's module."""
    module = getattr(stats, name)
    return [
        f
        for f in "pdf logpdf pmf logpmf cdf logcdf sf logsf ppf isf".split()
        if hasattr(module, f)
    ]


ALL = [(name, f) for name in TABLE for f in functions(name)]


def points(name, f):
    return Q if f in ("ppf", "isf") else TABLE[name][1]


def oracle(name, f, x, parameters, placed):
    """SciPy's value; at 0 and 1 its quantiles of a Bernoulli number are the ends."""
    with np.errstate(all="ignore"):
        value = getattr(getattr(scipy.stats, name), f)(x, *parameters, **placed)
    if name == "bernoulli" and f == "ppf":
        value = np.where(x == 0, 0, np.where(x == 1, parameters[0] > 0, value))
    return np.asarray(value, np.float64)


def call(name, f, x, parameters, placed):
    function = getattr(getattr(stats, name), f)
    takes = inspect.signature(function).parameters
    placed = {key: value for key, value in placed.items() if key in takes}
    return function(x, *parameters, **placed), placed


def compare(got, want, f, single=False):
    """Within 2e-12, or 6e-5 in float32, where numbers overflow and vanish earlier."""
    got = np.asarray(got, np.float64)
    if single:
        with np.errstate(over="ignore", under="ignore"):
            want = np.where(np.abs(want) < 1e-37, got, want.astype("f4"))
    rtol, atol = (6e-5, 3e-6) if single else (2e-12, 0)
    np.testing.assert_allclose(got, want, rtol, atol or 1e-13 * f.startswith("log"))


@pytest.mark.parametrize(("name", "f"), ALL)
def test_values_are_scipys(name, f):
    groups, _, placed, _ = TABLE[name]
    for parameters in groups:
        for where in ({}, placed) if placed else ({},):
            x = points(name, f)
            if where and f not in ("ppf", "isf"):
                x = x * where.get("scale", 1) + where["loc"]
            got, where = call(name, f, x, parameters, where)
            compare(got, oracle(name, f, x, parameters, where), f)
            x = x[:-2] if f in ("ppf", "isf") else x  # in float32 the last are 1
            single, _ = call(name, f, x.astype("f4"), parameters, where)
            assert single.dtype == np.float32
            want = oracle(name, f, x.astype("f4").astype("f8"), parameters, where)
            compare(single, want, f, single=True)


# ---------------------------------------------------------------- tails


def _gamma_sf(x, a):
    return mpmath.gammainc(a, x, mpmath.inf, regularized=True)


def _t_logpdf(x, df):
    """The first terms about the normal distribution, of a large df."""
    normal = -x * x / 2 - mpmath.log(2 * mpmath.pi) / 2
    return normal + (x**4 - 2 * x * x - 1) / (4 * df)


def _poisson(k, mu):
    return k * mpmath.log(mu) - mu - mpmath.loggamma(k + 1)


def _binom(k, n, p):
    choices = mpmath.loggamma(n + 1) - mpmath.loggamma(k + 1)
    choices -= mpmath.loggamma(n - k + 1)
    return choices + k * mpmath.log(p) + (n - k) * mpmath.log(1 - p)


def _vonmises(x, k):
    return k * mpmath.cos(x) - mpmath.log(2 * mpmath.pi * mpmath.besseli(0, k))


def _ndtr(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


def _double_exp(x):
    return -mpmath.expm1(-mpmath.exp(x))


# Probabilities and densities far out, or about the mean of large numbers.
TAILS = [
    ("norm", "logcdf", -40.0, (), lambda x: mpmath.log(_ndtr(x))),
    ("norm", "logsf", 1e3, (), lambda x: mpmath.log(_ndtr(-x))),
    (
        "truncnorm",
        "cdf",
        1e-6,
        (0.0, inf),
        lambda x, a, b: mpmath.erf(x / mpmath.sqrt(2)),
    ),
    (
        "truncnorm",
        "logsf",
        31.0,
        (30.0, inf),
        lambda x, a, b: mpmath.log(_ndtr(-x) / _ndtr(-a)),
    ),
    ("logistic", "sf", 80.0, (), lambda x: 1 / (1 + mpmath.exp(x))),
    ("gumbel_r", "logsf", 800.0, (), lambda x: mpmath.log(_double_exp(-x))),
    ("gumbel_l", "cdf", -80.0, (), _double_exp),
    ("cauchy", "cdf", -1e20, (), lambda x: -mpmath.atan(1 / x) / mpmath.pi),
    ("poisson", "logpmf", 1e6, (1e6,), _poisson),
    ("binom", "logpmf", 5e8, (1e9, 0.5), _binom),
    ("gamma", "sf", 102000.0, (1e5,), _gamma_sf),
    ("t", "logpdf", 0.25, (1e12,), _t_logpdf),
    ("vonmises", "logpdf", 0.0078125, (1e5,), _vonmises),
]


@pytest.mark.parametrize(("name", "f", "x", "parameters", "exact"), TAILS)
def test_tails_keep_their_digits(name, f, x, parameters, exact):
    with mpmath.workdps(60):
        want = exact(*[mpmath.mpf(v) for v in (x, *parameters)])
        want = float(want)
    function = getattr(getattr(stats, name), f)
    np.testing.assert_allclose(function(np.float64(x), *parameters), want, 2e-12)
    single = function(np.float32(x), *parameters)
    if abs(want) > 1e-37 and np.float32(x) == x:
        np.testing.assert_allclose(single, want, 2e-6)


# ---------------------------------------------------------------- derivatives


@pytest.mark.parametrize(("name", "f"), ALL)
def test_derivatives_are_differences(name, f):
    first = name in ("truncnorm", "poisson", "binom")
    parameters = TABLE[name][0][0 if first else -1]
    parameters = [min(p, 20.0) for p in parameters]
    inside = TABLE[name][3]
    function = getattr(getattr(stats, name), f)
    if f in ("ppf", "isf"):
        if name == "bernoulli":
            return  # a step
        check_grads(function, (np.array([0.2, 0.7]), *parameters), 2, rtol=1e-4)
    elif inside is None:
        if name == "bernoulli":
            parameters = [0.3]
        k = np.array([1.0, 0.0 if name == "bernoulli" else 2.0])
        free = parameters[1:] if name == "binom" else parameters
        fixed = parameters[: len(parameters) - len(free)]
        check_grads(lambda *p: function(k, *fixed, *p), tuple(free), 2, rtol=1e-4)
    else:
        x = np.array(inside)
        check_grads(function, (x, *parameters), 2, rtol=1e-4)


@pytest.mark.parametrize(("name", "f"), ALL)
def test_no_derivative_is_nan(name, f):
    """At the ends of the supports and outside of them, in all arguments."""
    groups, _, _, _ = TABLE[name]
    function = getattr(getattr(stats, name), f)
    x = points(name, f)
    x = x[(x > 0) & (x < 1)] if f in ("ppf", "isf") else x
    for parameters in groups:
        if not np.isfinite(parameters).all():
            continue
        arguments = (fnp.asarray(x), *map(fnp.float64, parameters))
        places = tuple(range(len(arguments)))

        def total(*args):
            value = function(*args)
            return fnp.where(fnp.isfinite(value), value, 0).sum()

        for slope in fnx.grad(total, places)(*arguments):
            assert not np.isnan(slope).any(), (parameters, slope)


# ---------------------------------------------------------------- types, calls


@pytest.mark.parametrize(("name", "f"), ALL)
def test_compiled_mapped_and_scalar_calls_agree(name, f):
    parameters = TABLE[name][0][0]
    function = getattr(getattr(stats, name), f)
    x = points(name, f)
    want = np.asarray(function(x, *parameters))

    def of(v):
        return function(v, *parameters)

    np.testing.assert_allclose(fnx.jit(of)(x), want, 1e-13, 1e-14)
    np.testing.assert_allclose(fnx.vmap(of)(fnp.asarray(x)), want, 1e-13, 1e-14)
    one = of(float(x[3]))
    assert one.shape == () and one.dtype == np.float32 and one.weak_type
    assert of(x[:0]).shape == (0,)
    columns = [np.full((2, 1), p) for p in parameters]
    assert function(x, *columns).shape == ((2, *x.shape) if columns else x.shape)


@pytest.mark.parametrize(("name", "f"), ALL)
def test_types_are_jaxs(name, f):
    import jax.scipy.stats

    groups, _, _, _ = TABLE[name]
    theirs = getattr(getattr(jax.scipy.stats, name), f)
    ours = getattr(getattr(stats, name), f)
    x = np.array([1, 2])
    for dtype in ("f4", "i4", "f2"):
        try:
            with jax.enable_x64(False):  # other tests turn it on
                want = theirs(x.astype(dtype), *groups[0]).dtype
        except TypeError:  # JAX takes no integers, or no 16-bit floats, here
            continue
        assert ours(x.astype(dtype), *groups[0]).dtype == want, dtype


def test_complex_numbers_are_refused():
    with pytest.raises(
        errors.DTypeError, match=r"norm\.cdf: argument 'loc' is complex"
    ):
        stats.norm.cdf(1.0, 1j)


@pytest.mark.parametrize("name", ["pdf", "logpdf", "cdf", "logcdf", "sf", "logsf"])
def test_what_is_no_distribution_has_no_probabilities(name):
    x = np.array([-2.0, 0.0, 0.3, 1.0, 7.0])
    shapes = {"beta": (2.0, 3.0), "gamma": (2.0,), "pareto": (2.0,), "t": (2.0,)}
    for family in ("norm", "expon", "cauchy", "logistic", "laplace", *shapes):
        shape = shapes.get(family, ())
        f = getattr(getattr(fnx.scipy.stats, family), name, None)
        if f is None:
            continue
        for scale in (0.0, -1.0):
            assert np.isnan(f(x, *shape, 0.0, scale)).all(), (family, scale)
        for place in range(len(shape)):
            for value in (0.0, -1.0):
                wrong = list(shape)
                wrong[place] = value
                assert np.isnan(f(x, *wrong)).all(), (family, wrong)


@pytest.mark.parametrize("name", ["pmf", "logpmf"])
def test_counts_of_no_distribution_have_no_probabilities(name):
    k = np.array([-1.0, 0.0, 0.5, 1.0, 3.0, np.inf, -np.inf, np.nan])
    for share in (-1.0, 2.0, np.nan):
        assert np.isnan(getattr(stats.bernoulli, name)(k, share)).all()
        assert np.isnan(getattr(stats.binom, name)(k, 3.0, share)).all()
        assert np.isnan(getattr(stats.nbinom, name)(k, 3.0, share)).all()
        assert np.isnan(getattr(stats.geom, name)(k, share)).all()
    assert np.isnan(getattr(stats.binom, name)(k, -1.0, 0.5)).all()
    for share in (0.0, 0.3, 1.0):
        with np.errstate(all="ignore"):
            wanted = getattr(scipy.stats.bernoulli, name)(k, share)
        found = getattr(stats.bernoulli, name)(k, share)
        np.testing.assert_allclose(found, wanted, 1e-12)
