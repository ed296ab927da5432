"""`fnx.scipy.special` against SciPy and JAX: values, types, derivatives, errors.

The accuracy of what it is made of is tested in `tests/kernel/test_special.py`.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import scipy.special

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from fnx.scipy import special
from fnx.testing import check_grads

X = np.array([-30.5, -2.25, -0.3, 0.0, 0.2, 0.5, 0.9, 1.0, 1.5, 2.0, 3.7, 12.0, 60.0])
POSITIVE = X[4:]
UNIT = np.array([0.0, 1e-6, 0.1, 0.25, 0.5, 0.6, 0.999, 1.0])
WHOLE = np.array([0.0, 1, 2, 3, 5, 8])
INF = np.array([-np.inf, np.inf, np.nan])

# name: the arguments, by which points it is differentiable, and in which arguments
TABLE = {
    "gammaln": ((X,), (np.array([0.3, 2.5]),)),
    "gamma": ((X,), (np.array([0.3, -2.5]),)),
    "gammasgn": ((X,), None),
    "loggamma": ((POSITIVE,), (np.array([0.3, 2.5]),)),
    "digamma": ((X,), (np.array([0.3, 2.5]),)),
    "poch": ((POSITIVE[:, None], POSITIVE), (1.5, 2.5)),
    "gammainc": ((POSITIVE[:, None], X[3:]), (np.array([0.4, 2]), 1.5)),
    "gammaincc": ((POSITIVE[:, None], POSITIVE), (np.array([0.4, 2]), 1.5)),
    "betaln": ((POSITIVE[:, None], POSITIVE), (np.array([0.4, 2]), 1.5)),
    "beta": ((POSITIVE[:, None], POSITIVE), (np.array([0.4, 2]), 1.5)),
    "betainc": ((POSITIVE[:, None], 1.5, UNIT), (np.array([0.4, 2]), 1.5, 0.3)),
    "factorial": ((WHOLE,), (2.5,)),
    "comb": ((WHOLE[:, None], WHOLE), (5.5, 2.25)),
    "zeta": ((POSITIVE[4:, None], POSITIVE), (2.5, np.array([0.3, 4.0]))),
    "erf": ((X,), (np.array([0.3, -2.5]),)),
    "erfc": ((X,), (np.array([0.3, -2.5]),)),
    "erfinv": ((UNIT,), (np.array([0.3, -0.5]),)),
    "erfcx": ((X[1:],), (np.array([0.3, -2.5]),)),
    "dawsn": ((X,), (np.array([0.3, -2.5]),)),
    "ndtr": ((X,), (np.array([0.3, -2.5]),)),
    "ndtri": ((UNIT,), (np.array([0.3, 0.9]),)),
    "log_ndtr": ((X,), (np.array([0.3, -2.5]),)),
    "owens_t": ((X[:, None], X), (0.7, np.array([0.3, -2.5]))),
    "exp1": ((POSITIVE,), (np.array([0.3, 2.5]),)),
    "expi": ((X,), (np.array([0.3, -2.5]),)),
    "spence": ((POSITIVE,), (np.array([0.3, 1.0, 2.5]),)),
    "i0": ((X,), (np.array([0.3, -2.5]),)),
    "i1": ((X,), (np.array([0.3, -2.5]),)),
    "i0e": ((X,), (np.array([0.3, -2.5]),)),
    "i1e": ((X,), (np.array([0.3, -2.5]),)),
    "expit": ((X,), (np.array([0.3, -2.5]),)),
    "logit": ((UNIT,), (np.array([0.3, 0.9]),)),
    "xlogy": ((X[:, None], POSITIVE), (0.7, 2.5)),
    "xlog1py": ((X[:, None], POSITIVE), (0.7, 2.5)),
    "entr": ((X,), (np.array([0.3, 2.5]),)),
    "rel_entr": ((X[:, None], X), (0.7, np.array([0.3, 0.71]))),
    "kl_div": ((X[:, None], X), (0.7, np.array([0.3, 0.71]))),
    "boxcox": ((POSITIVE[:, None], X), (1.5, np.array([0.3, -2.5]))),
    "boxcox1p": ((POSITIVE[:, None], X), (1.5, np.array([0.3, -2.5]))),
    "hyp1f1": ((0.7, 2.5, X), (0.7, 2.5, np.array([0.3, -2.5]))),
    "hyp2f1": ((0.7, 1.5, 2.25, X[:8]), (0.7, 1.5, 2.25, np.array([0.3, -2.5]))),
}
# SciPy's are NaN at infinity, where these have limits; its gammaln(-inf) is -inf.
BEYOND = ("spence", "i0", "i1", "factorial", "gammaln")
FIRST_ORDER = ("hyp1f1", "hyp2f1")  # in their parameters


@pytest.mark.parametrize("name", TABLE)
def test_values_are_scipys(name):
    args, _ = TABLE[name]
    ours, theirs = getattr(special, name), getattr(scipy.special, name)
    want = theirs(*args)
    # SciPy's tails are good to 1e-13 or so; near zeros only the size counts.
    np.testing.assert_allclose(ours(*args), want, 1e-12, 1e-13)
    single = [np.asarray(x, "f4") for x in args]
    want = theirs(*[x.astype("f8") for x in single])
    got = np.asarray(ours(*single))
    assert got.dtype == np.float32
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(got, np.asarray(want, "f4"), 2e-5, 1e-6)
    if len(args) == 1 and name not in BEYOND:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(ours(INF), theirs(INF))


def test_gammaln_is_c_s_at_infinity_and_near_zero():
    assert special.gammaln(np.array([-np.inf, np.inf])).tolist() == [np.inf, np.inf]
    tiny = np.array([5e-324, -5e-324, 1e-40])
    np.testing.assert_allclose(special.gammaln(tiny), -np.log(np.abs(tiny)), 1e-14)


def test_functions_with_two_results_or_other_arguments():
    x = X[:, None]
    for name in ("sici", "fresnel"):
        points = POSITIVE if name == "sici" else X
        pair = zip(
            getattr(special, name)(points),
            getattr(scipy.special, name)(points),
            strict=True,
        )
        for got, want in pair:
            np.testing.assert_allclose(got, want, 1e-12, 1e-14)
        check_grads(getattr(special, name), (np.array([0.3, 2.5]),), 2)
    for n in (0, 1, 2, 5):
        np.testing.assert_allclose(
            special.expn(n, POSITIVE), scipy.special.expn(n, POSITIVE), 1e-12
        )
        np.testing.assert_allclose(
            special.polygamma(n, POSITIVE), scipy.special.polygamma(n, POSITIVE), 1e-12
        )
        check_grads(lambda v, n=n: special.expn(n, v), (np.array([0.3, 2.5]),), 2)
        check_grads(lambda v, n=n: special.polygamma(n, v), (np.array([0.3, 2.5]),), 2)
    got = special.bessel_jn(x, v=3)
    assert got.shape == (4, 13, 1)
    want = np.stack([scipy.special.jv(n, x) for n in range(4)])
    np.testing.assert_allclose(got, want, 1e-12, 1e-14)
    many = [scipy.special.multigammaln(v + 3, 4) for v in POSITIVE]
    np.testing.assert_allclose(special.multigammaln(POSITIVE + 3, 4), many, 1e-12)
    np.testing.assert_allclose(special.bernoulli(8), scipy.special.bernoulli(8), 1e-6)
    np.testing.assert_allclose(
        special.comb(WHOLE[:, None], WHOLE, repetition=True),
        scipy.special.comb(WHOLE[:, None], WHOLE, repetition=True),
    )
    np.testing.assert_allclose(special.zeta(3.5), scipy.special.zeta(3.5), 1e-6)


def test_complex_functions():
    z = np.array([0.3 + 1j, -2 + 0.5j, 4 - 3j])
    for name in ("wofz", "loggamma", "gamma"):
        want = getattr(scipy.special, name)(z)
        np.testing.assert_allclose(getattr(special, name)(z), want, 1e-12)
        np.testing.assert_allclose(fnx.jit(getattr(special, name))(z), want, 1e-12)
    assert special.wofz(np.float32(1)).dtype == np.complex64


def test_spherical_harmonics():
    n, m = np.array([0, 1, 2, 7, 7, 3]), np.array([0, -1, 2, 3, -7, 4])
    theta, phi = np.linspace(0, np.pi, 6), np.linspace(0, 6, 6)
    got = special.sph_harm_y(n, m, theta, phi)
    inside = np.abs(m) <= n
    want = scipy.special.sph_harm_y(n[inside], m[inside], theta[inside], phi[inside])
    np.testing.assert_allclose(np.asarray(got)[inside], want, 1e-12, 1e-15)
    assert np.asarray(got)[~inside].tolist() == [0]
    clipped = special.sph_harm_y(9, 1, theta, phi, n_max=2)
    np.testing.assert_allclose(clipped, special.sph_harm_y(2, 1, theta, phi))
    check_grads(
        lambda t, p: special.sph_harm_y(n[:5], m[:5], t, p).real,
        (theta[:5], phi[:5]),
        2,
    )


# ---------------------------------------------------------------- derivatives


@pytest.mark.parametrize("name", [n for n in TABLE if TABLE[n][1] is not None])
def test_derivatives_are_differences(name):
    args = TABLE[name][1]
    function = getattr(special, name)
    order = 1 if name in FIRST_ORDER else 2
    check_grads(function, args, order, rtol=1e-5, atol=1e-5)
    if name in FIRST_ORDER:
        check_grads(lambda x: function(*args[:-1], x), args[-1:], 2)


def test_logarithm_of_the_normal_distribution_in_the_tail():
    """Value and two derivatives, where JAX's have lost digits."""
    points = np.array([-1e4, -300, -37, -5, -1, 0, 2, 9, 36])

    def exact(x):
        return mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)

    function = special.log_ndtr
    for order in range(3):
        with mpmath.workdps(700):
            want = [float(mpmath.diff(exact, mpmath.mpf(x), order)) for x in points]
        got = fnx.vmap(function)(fnp.asarray(points))
        np.testing.assert_allclose(got, want, 1e-13, err_msg=str(order))
        function = fnx.grad(function)


@pytest.mark.parametrize(
    ("name", "args", "want"),
    [
        ("xlogy", (0.0, 0.0), (-np.inf, 0)),
        ("xlog1py", (0.0, -1.0), (-np.inf, 0)),
        ("entr", (0.0,), (np.inf,)),
        ("rel_entr", (0.0, 1.0), (0, 0)),
        ("boxcox", (2.0, 0.0), (0.5, np.log(2) ** 2 / 2)),
        ("spence", (1.0,), (-1,)),
        ("sici", (0.0,), (1,)),
        ("i0e", (0.0,), (0,)),
        ("gammainc", (1.0, 0.0), (0, 1)),
        ("gammainc", (2.0, 0.0), (0, 0)),
        ("betainc", (1.0, 1.0, 0.0), (0, 0, 1)),
        ("betainc", (2.0, 3.0, 1.0), (0, 0, 0)),
        ("logit", (0.5,), (4,)),
    ],
)
def test_derivatives_at_the_ends(name, args, want):
    function = getattr(special, name)

    def first(*xs):
        value = function(*xs)
        return value[0] if isinstance(value, tuple) else value

    places = tuple(range(len(args)))
    got = fnx.grad(first, places)(*map(fnp.float64, args))
    np.testing.assert_allclose(np.array(got), want, 1e-14)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda n: special.polygamma(n, 2.0), "polygamma in n"),
        (lambda n: special.expn(n, 2.0), "expn in n"),
    ],
)
def test_what_has_no_derivative_says_so(call, match):
    with pytest.raises(errors.ArgumentError, match=match):
        fnx.grad(call)(2.0)


# ---------------------------------------------------------------- types, calls, errors


@pytest.mark.parametrize("name", TABLE)
def test_compiled_mapped_and_scalar_calls_agree(name):
    args = [np.asarray(x) for x in TABLE[name][0]]
    function = getattr(special, name)
    want = np.asarray(function(*args))
    np.testing.assert_allclose(fnx.jit(function)(*args), want, 1e-12, 1e-14)
    wide = [fnp.asarray(x) for x in np.broadcast_arrays(*args)]
    np.testing.assert_allclose(fnx.vmap(function)(*wide), want, 1e-12, 1e-14)
    scalars = [float(np.ravel(x)[2]) for x in np.broadcast_arrays(*args)]
    one = function(*scalars)
    assert one.shape == () and one.dtype == np.float32 and one.weak_type
    assert function(*[x[:0] for x in np.broadcast_arrays(*args)]).size == 0


@pytest.mark.parametrize("name", TABLE)
def test_types_are_jaxs(name):
    import jax.scipy.special

    args, _ = TABLE[name]
    ours, theirs = getattr(special, name), getattr(jax.scipy.special, name)
    for dtype in ("f4", "i4", "bool"):
        ones = [np.ones(2, dtype) for _ in args]
        try:
            with jax.enable_x64(False):  # other tests turn it on
                want = theirs(*ones).dtype
        except (TypeError, ValueError):  # JAX takes fewer types
            continue
        assert ours(*ones).dtype == want, dtype
    mixed = [np.ones(2, "f2"), *[1.5] * (len(args) - 1)]
    assert ours(*mixed).dtype == np.float16


def test_the_names_of_lax():
    x, a, b = np.float32(0.3), np.float32(1.5), np.float32(2.5)
    import jax.lax

    calls = {
        "lgamma": (x,),
        "digamma": (x,),
        "polygamma": (np.float32(2), x),
        "igamma": (a, x),
        "igammac": (a, x),
        "igamma_grad_a": (a, x),
        "random_gamma_grad": (a, x),
        "betainc": (a, b, x),
        "zeta": (a, x),
        "bessel_i0e": (x,),
        "bessel_i1e": (x,),
    }
    for name, args in calls.items():
        want = getattr(jax.lax, name)(*args)
        np.testing.assert_allclose(getattr(lax, name)(*args), want, 2e-5)
    np.testing.assert_allclose(fnp.i0(X), np.i0(X), 1e-12)
    with pytest.raises(errors.DTypeError, match="equal dtypes"):
        lax.igamma(np.float32(1), np.float64(1))


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: special.gammainc(1.0, 1j), errors.DTypeError, "argument 'x' is compl"),
        (
            lambda: special.betainc(1.0, [1.0], 0.5),
            errors.ArgumentError,
            "betainc take",
        ),
        (
            lambda: special.gammainc(np.ones(2), np.ones(3)),
            errors.ShapeError,
            "gammainc: .* cannot be broadcast",
        ),
        (lambda: special.factorial(3, exact=True), errors.OptionError, "exact=True"),
        (lambda: special.log_ndtr(1.0, 31), errors.OptionError, "from 0 to 30"),
        (lambda: special.bessel_jn(1.0, v=-1), errors.OptionError, "v must be"),
        (lambda: special.bessel_jn(1.0, v=1, n_iter=0), errors.OptionError, "n_iter"),
        (lambda: special.multigammaln(1.0, 2.5), errors.ArgumentError, "'d' must be"),
        (lambda: special.bernoulli(-1), errors.OptionError, "not be negative"),
        (
            lambda: special.sph_harm_y(1, 1, 0.5, 0.5, diff_n=1),
            errors.OptionError,
            "diff_n",
        ),
    ],
)
def test_errors_name_the_argument(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_bessel_jn_begins_where_it_is_told():
    x = np.array([0.0, 1e-30, 1e-9, 0.3, -2.5, 7.0])
    for count in (60, 300):
        want = np.stack([scipy.special.jv(n, x) for n in range(4)])
        np.testing.assert_allclose(
            special.bessel_jn(x, v=3, n_iter=count), want, 1e-11, 1e-15
        )
    few = special.bessel_jn(np.array([0.5, 20.0]), v=1, n_iter=10)
    # 10 terms are enough for 0.5, and by far too few for 20.
    np.testing.assert_allclose(few[:, 0], scipy.special.jv([0, 1], 0.5), 1e-9)
    assert abs(few[0, 1] - scipy.special.jv(0, 20.0)) > 1e-3
    slope = fnx.grad(lambda x: special.bessel_jn(x, v=0, n_iter=40)[0])(1.5)
    np.testing.assert_allclose(slope, -scipy.special.jv(1, 1.5), 1e-5)
    with pytest.raises(errors.OptionError, match="less than v=5"):
        special.bessel_jn(1.0, v=5, n_iter=4)


def test_log_ndtr_cuts_its_series_where_it_is_told():
    x = np.array([-1000.0, -50.0, -21.0, -19.0, 0.5])
    exact = scipy.special.log_ndtr(x)
    np.testing.assert_allclose(special.log_ndtr(x), exact, 1e-14)
    found = {n: np.asarray(special.log_ndtr(x, series_order=n)) for n in (0, 1, 2, 8)}
    for n, value in found.items():
        np.testing.assert_array_equal(value[3:], special.log_ndtr(x)[3:])
        # The error is about the first term that is left out.
        term = float(np.prod(np.arange(1, 2 * n + 2, 2.0))) / x[:3] ** (2 * n + 2)
        assert (abs(value[:3] - exact[:3]) < 1.1 * term + 1e-12).all()
    assert abs(found[0][2] - exact[2]) > 1e-3
    slope = fnx.grad(lambda x: special.log_ndtr(x, series_order=8))(-30.0)
    np.testing.assert_allclose(slope, 30.033, 1e-4)
