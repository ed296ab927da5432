"""minimize: known minima, against SciPy, under transformations, errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.scipy.optimize import OptimizeResults, minimize


def rosenbrock(x):
    return fnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(x):
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def beale(x):
    powers = [(1.5, 1), (2.25, 2), (2.625, 3)]
    return sum((c - x[0] + x[0] * x[1] ** n) ** 2 for c, n in powers)


def cosh(x):
    return fnp.sum(fnp.cosh(x - fnp.arange(4)))


CASES = {
    "rosenbrock": (rosenbrock, np.zeros(6), np.ones(6)),
    "himmelblau": (himmelblau, np.zeros(2), np.array([3.0, 2.0])),
    "beale": (beale, np.zeros(2), np.array([3.0, 0.5])),
    "cosh": (cosh, np.full(4, 20.0), np.arange(4.0)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_minima(name, dtype):
    function, start, want = CASES[name]
    start = start.astype(dtype)
    options = {"gtol": 1e-3} if dtype == "float32" else {}
    found = minimize(function, start, method="BFGS", options=options)
    assert isinstance(found, OptimizeResults) and found.x.dtype == dtype
    assert found.success and found.status == 0
    np.testing.assert_allclose(found.x, want, atol=1e-2 if dtype == "float32" else 1e-5)
    np.testing.assert_allclose(found.fun, function(found.x), 1e-5, 1e-9)
    assert np.abs(np.asarray(found.jac)).max() < options.get("gtol", 1e-5)
    compiled = fnx.jit(lambda x: minimize(function, x, method="bfgs", options=options))
    np.testing.assert_allclose(compiled(start).x, found.x, atol=5e-3)


@pytest.mark.parametrize("name", CASES)
def test_it_takes_about_as_many_steps_as_scipy(name):
    function, start, _ = CASES[name]
    found = minimize(function, start, method="BFGS")
    gradient = fnx.jit(fnx.grad(function))
    theirs = scipy.optimize.minimize(
        lambda x: float(function(x)), start, jac=lambda x: np.array(gradient(x))
    )
    assert found.nit <= 2 * theirs.nit + 5 and found.nfev <= 2 * theirs.nfev + 10
    inverse = np.linalg.inv(np.asarray(fnx.hessian(function)(found.x)))
    np.testing.assert_allclose(found.hess_inv, inverse, rtol=0.5, atol=0.3)


def test_arguments_and_options():
    def function(x, scale, shift):
        return fnp.sum(scale * (x - shift) ** 2)

    args = np.array([1.0, 10.0]), 3.0
    found = minimize(function, np.zeros(2), args, method="BFGS", tol=1e-8)
    np.testing.assert_allclose(found.x, [3, 3], atol=1e-8)
    few = minimize(rosenbrock, np.zeros(6), method="BFGS", options={"maxiter": 2})
    assert not few.success and (few.status, few.nit) == (1, 2)
    done = minimize(function, np.full(2, 3.0), args, method="BFGS", options={"norm": 2})
    assert done.success and done.nit == 0
    whole = minimize(lambda x: fnp.sum((x - 1) ** 2), np.array([5, 4]), method="BFGS")
    assert whole.x.dtype == np.float32


def test_no_number_is_no_minimum():
    for function in (
        lambda x: fnp.nan * x[0],
        lambda x: fnp.sum(0 * x) + fnp.nan,
        lambda x: fnp.where(x[0] == 1, 2 * x[0], fnp.inf),
    ):
        found = minimize(function, np.ones(1), method="BFGS")
        assert not found.success and found.status == 3 and found.x.tolist() == [1]


def test_transformations():
    def minimum(shift):
        return minimize(
            lambda x: fnp.sum(fnp.cosh(x - shift)),
            fnp.zeros(2, "float64"),
            method="BFGS",
            tol=1e-9,
        ).x

    shifts = np.array([[0.5, 1.0], [-2.0, 3.0], [0.0, 0.0]])
    np.testing.assert_allclose(fnx.vmap(minimum)(shifts), shifts, atol=1e-6)
    jacobian = fnx.jacfwd(minimum)(shifts[0])
    np.testing.assert_allclose(jacobian, np.eye(2), atol=1e-4)
    jacobian = fnx.jacrev(minimum)(shifts[1])
    np.testing.assert_allclose(jacobian, np.eye(2), atol=1e-4)


def test_errors():
    def square(x):
        return fnp.sum(x**2)

    with pytest.raises(errors.OptionError, match="method is 'BFGS', got 'CG'"):
        minimize(square, np.ones(2), method="CG")
    with pytest.raises(errors.OptionError, match=r"options \['ftol'\] are none"):
        minimize(square, np.ones(2), method="BFGS", options={"ftol": 1})
    with pytest.raises(errors.ShapeError, match=r"x0 is f64\[2,2\]"):
        minimize(square, np.ones((2, 2)), method="BFGS")
    with pytest.raises(errors.ArgumentError, match="args must be a tuple"):
        minimize(square, np.ones(2), 3.0, method="BFGS")
