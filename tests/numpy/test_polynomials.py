"""Polynomials of `fnx.numpy` against NumPy: values, remainders, roots and fits."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from tests.numpy.given import F, V, W, same


@pytest.mark.parametrize("unroll", [1, 4, 16])
def test_polyval_in_a_loop(unroll):
    found = fnp.polyval(V, F, unroll=unroll)
    same(found, np.polyval(V, F))
    wanted = np.polyval(np.polyder(V), F)
    same(fnx.grad(lambda x: fnp.polyval(V, x, unroll=unroll).sum())(F), wanted)
    assert (
        "scan" in str(fnx.make_jaxpr(lambda x: fnp.polyval(V, x, unroll=unroll))(F))
    ) == (unroll < 9)


def test_remainder_of_a_division_is_as_long_as_the_dividend():
    quotient, rest = fnp.polydiv(V, W[:3])
    assert rest.shape == V.shape
    same(fnp.polyadd(fnp.polymul(quotient, W[:3]), rest), V)
    trimmed = fnp.polydiv(V, W[:3], trim_leading_zeros=True)[1]
    assert trimmed.size <= rest.size


@pytest.mark.parametrize("jitted", [False, True])
def test_polynomials_of_roots_and_of_matrices(jitted):
    poly = fnx.jit(fnp.poly) if jitted else fnp.poly
    for x in (V[:4], V[:1] + 2j, F[:, :3], np.array([2])):
        same(poly(x), np.poly(x))


@pytest.mark.parametrize(
    "p", [V[:5], [0, 0, 1, -3, 2, 0, 0], [1, 0, 0, -1], [3.0], [0.0, 0.0], [], [1, 2j]]
)
def test_roots(p):
    p = np.array(p)
    found, wanted = np.sort_complex(fnp.roots(p)), np.sort_complex(np.roots(p))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_roots_of_traced_polynomials():
    found = fnx.jit(lambda p: fnp.roots(p, strip_zeros=False))(V[:5])
    wanted = np.sort_complex(np.roots(V[:5]))
    np.testing.assert_allclose(np.sort_complex(found), wanted, rtol=1e-9)
    with pytest.raises(fnx.errors.TracerValueError, match="zeros"):
        fnx.jit(fnp.roots)(V)


@pytest.mark.parametrize("options", [{}, {"w": W}, {"rcond": 1e-3}])
@pytest.mark.parametrize("y", [V, np.stack([V, V**2], 1)])
def test_fits(y, options):
    x = np.linspace(-1, 2, 9)
    same(fnp.polyfit(x, y, 3, **options), np.polyfit(x, y, 3, **options))
    found = fnp.polyfit(x, y, 3, full=True, **options)
    wanted = np.polyfit(x, y, 3, full=True, **options)
    same(found[0], wanted[0])
    same(found[3], wanted[3])
    assert int(found[2]) == wanted[2]


@pytest.mark.parametrize("cov", [True, "unscaled"])
@pytest.mark.parametrize("y", [V, np.stack([V, V**2], 1)])
def test_covariances_of_fits(y, cov):
    x = np.linspace(-1, 2, 9)
    same(fnp.polyfit(x, y, 2, cov=cov), np.polyfit(x, y, 2, cov=cov))
    with pytest.raises(fnx.errors.OptionError, match="unscaled"):
        fnp.polyfit(x[:3], y[:3], 2, cov=True)


def test_slopes_of_fits():
    x = np.linspace(-1, 2, 9)
    slope = fnx.grad(lambda y: fnp.polyfit(x, y, 1)[0])(V)
    step = 1e-6 * np.eye(9)
    wanted = [
        (np.polyfit(x, V + h, 1)[0] - np.polyfit(x, V - h, 1)[0]) / 2e-6 for h in step
    ]
    np.testing.assert_allclose(slope, wanted, rtol=1e-6, atol=1e-9)
    for wrong in ((x, V[:3], 1), (F, V, 1)):
        with pytest.raises(fnx.errors.ShapeError):
            fnp.polyfit(*wrong)
    with pytest.raises(fnx.errors.OptionError, match="negative"):
        fnp.polyfit(x, V, -1)
