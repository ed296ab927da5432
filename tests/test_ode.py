"""odeint: against formulas and SciPy, derivatives against formulas, ends, errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.experimental.ode import odeint

T = np.array([0.0, 0.3, 0.31, 1.0, 2.5])


def lorenz(y, t, s):
    return fnp.stack(
        [s * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]
    )


def test_values_are_those_of_formulas():
    got = odeint(lambda y, t, a: -a * y, np.array([1.0, 2.0]), T, 1.5)
    np.testing.assert_allclose(got, np.exp(-1.5 * T)[:, None] * [1, 2], rtol=1e-6)
    got = odeint(lambda y, t: fnp.cos(t), 0.5, T)  # a scalar, and of time alone
    np.testing.assert_allclose(got, 0.5 + np.sin(T), rtol=1e-6)
    got = odeint(lambda y, t: 1j * y, np.complex128(1), T)
    np.testing.assert_allclose(got, np.exp(1j * T), rtol=1e-6)
    got = odeint(lambda y, t: y * 0, np.ones(3), T)  # nothing moves
    np.testing.assert_array_equal(got, np.ones((5, 3)))


def test_values_are_those_of_scipy():
    start = np.array([1.0, 1.0, 1.0])
    got = odeint(lorenz, start, T, 10.0, rtol=1e-10, atol=1e-10)
    options = {"t_eval": T, "rtol": 1e-11, "atol": 1e-11, "method": "DOP853"}
    want = scipy.integrate.solve_ivp(
        lambda t, y: np.asarray(lorenz(y, t, 10.0)), (0, T[-1]), start, **options
    )
    np.testing.assert_allclose(got, want.y.T, rtol=1e-5)


def test_trees_and_dtypes():
    def flow(state, t, rates):
        return {"x": state["v"], "v": -rates["k"] * state["x"]}

    start = {"x": np.float32([1, 0]), "v": np.float32([0, 2])}
    rates = {"k": np.float32(4)}
    t = T.astype("float32")
    got = odeint(flow, start, t, rates, rtol=1e-6, atol=1e-6)
    want = np.stack([np.cos(2 * T), np.sin(2 * T)], 1)
    np.testing.assert_allclose(got["x"], want, atol=1e-4)
    assert got["x"].dtype == got["v"].dtype == np.float32
    assert odeint(lambda y, t: y, np.ones((2, 0)), T).shape == (5, 2, 0)
    assert odeint(lambda y, t: -y, 3, T).dtype == np.float64
    one = odeint(lambda y, t: -y, np.ones(2), T[:1])
    assert one.tolist() == [[1, 1]]


def test_compiled_and_mapped():
    def solve(y, s):
        return odeint(lorenz, y, T[:3], s)

    starts = np.random.default_rng(0).standard_normal((3, 3))
    rates = np.array([9.0, 10.0, 11.0])
    want = np.stack([solve(y, s) for y, s in zip(starts, rates, strict=True)])
    np.testing.assert_allclose(fnx.jit(solve)(starts[0], 9.0), want[0], rtol=1e-9)
    np.testing.assert_allclose(fnx.vmap(solve)(starts, rates), want, rtol=1e-9)


def test_derivatives_are_those_of_the_solution():
    """y = y0 exp(-a (t - t0)) + b: by all four, in both modes, and twice."""

    def solve(y0, a, t):
        return odeint(lambda y, t: -a * y, y0, t)

    def formula(y0, a, t):
        return y0 * fnp.exp(-a * (t - t[0]))

    args = np.float64(1.3), np.float64(0.7), T
    weights = np.array([0.0, 1.0, -2.0, 0.5, 3.0])
    for gradient in (
        fnx.grad(lambda *xs: fnp.sum(weights * solve(*xs)), (0, 1, 2)),
        fnx.jit(fnx.grad(lambda *xs: fnp.sum(weights * solve(*xs)), (0, 1, 2))),
    ):
        want = fnx.grad(lambda *xs: fnp.sum(weights * formula(*xs)), (0, 1, 2))(*args)
        for g, w in zip(gradient(*args), want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-7)
    got, want = [fnx.jacfwd(f, (0, 1))(*args) for f in (solve, formula)]
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-8)

    def last(f):
        return fnx.hessian(lambda a: f(args[0], a, T)[-1])(args[1])

    np.testing.assert_allclose(last(solve), last(formula), rtol=1e-4)


def test_derivatives_of_what_is_closed_over():
    def total(a):
        return fnp.sum(odeint(lambda y, t: -a * y, 1.0, T))

    want = -(T * np.exp(-0.7 * T)).sum()
    np.testing.assert_allclose(fnx.grad(total)(np.float64(0.7)), want, rtol=1e-5)
    many = fnx.vmap(fnx.grad(total))(np.array([0.7, 0.7]))
    np.testing.assert_allclose(many, [want, want], rtol=1e-5)


@pytest.mark.oracle
def test_gradients_are_those_of_jax(jax):
    from jax.experimental.ode import odeint as theirs

    def loss(solve, library):
        def function(y, s):
            return (solve(lorenz_of(library), y, T[:3], s) ** 2).sum()

        return library.grad(function, (0, 1))(np.array([1.0, 2.0, 3.0]), 9.5)

    def lorenz_of(library):
        def flow(y, t, s):
            rows = [s * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - y[2]]
            return library.numpy.stack(rows)

        return flow

    for ours, other in zip(loss(odeint, fnx), loss(theirs, jax), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-4)


def test_where_it_cannot_go_on():
    got = odeint(lambda y, t: y * y, 1.0, np.array([0.0, 0.5, 2.0, 3.0]))  # 1 / (1 - t)
    np.testing.assert_allclose(got[:2], [1, 2], rtol=1e-5)
    assert np.isnan(got[2:]).all()
    got = odeint(lambda y, t: -y, 1.0, T, mxstep=3)
    assert got[0] == 1 and np.isnan(got[-1])
    got = odeint(lambda y, t: fnp.nan * y, 1.0, T)
    assert got[0] == 1 and np.isnan(got[1:]).all()
    coarse, fine = [
        odeint(lambda y, t: fnp.cos(t), 0.0, T, rtol=10, atol=10, hmax=h)[-1]
        for h in (1.0, 0.01)
    ]
    want = np.sin(T[-1])
    assert abs(fine - want) < 1e-9 < abs(coarse - want)
    assert fine.dtype == np.float64  # a Python number is as precise as the times


def test_errors():
    with pytest.raises(errors.ShapeError, match=r"t must be a vector .* got f64\[\]"):
        odeint(lambda y, t: y, 1.0, np.float64(1))
    with pytest.raises(errors.DTypeError, match="t must be floats"):
        odeint(lambda y, t: y, 1.0, np.arange(3))
    with pytest.raises(errors.TreeError, match="func gives"):
        odeint(lambda y, t: [y], 1.0, T)
    with pytest.raises(errors.ShapeError, match="func gives 2 numbers, y0 has 1"):
        odeint(lambda y, t: fnp.stack([y, y]), 1.0, T)
