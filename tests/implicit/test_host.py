"""SciPy's solvers in functions under jit, grad and vmap."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

import fnx
import fnx.numpy as fnp
from fnx import errors, implicit, lax
from fnx.testing import check_grads

RNG = np.random.default_rng(3)


@implicit.on_host
def bracketed(fun, init, *args):
    assert type(init) is np.ndarray and all(type(x) is np.ndarray for x in args)
    return optimize.brentq(fun, 0.0, 100.0, args=args, xtol=1e-14, rtol=1e-14)


cube_root = implicit.root(lambda x, a: x**3 - a, bracketed)
ONE = np.float64(1.0)


def f(a):
    return cube_root(ONE, a)


def test_a_root_in_every_mode():
    a = np.array([0.5, 8.0, 27.0])
    for run in (f, fnx.jit(f)):
        np.testing.assert_allclose([run(x) for x in a], np.cbrt(a), rtol=1e-12)
    for run in (fnx.vmap(f), fnx.jit(fnx.vmap(f))):
        np.testing.assert_allclose(run(a), np.cbrt(a), rtol=1e-12)
    slope, bend = a ** (-2 / 3) / 3, -2 * a ** (-5 / 3) / 9
    for run in (fnx.grad(f), fnx.jacfwd(f), fnx.jit(fnx.grad(f))):
        np.testing.assert_allclose(fnx.vmap(run)(a), slope, rtol=1e-12)
        np.testing.assert_allclose(run(a[1]), slope[1], rtol=1e-12)
    np.testing.assert_allclose(fnx.jit(fnx.vmap(fnx.hessian(f)))(a), bend, rtol=1e-11)


def test_in_loops_and_branches():
    def g(a):
        def body(c, x):
            c = c + lax.cond(x > 1, lambda: f(x * a), lambda: x)
            return c, c

        return lax.scan(body, a, np.array([0.5, 8.0, 27.0]))[1]

    a = np.float64(1.0)
    wanted = 1.0 + np.cumsum([0.5, 2.0, 3.0])
    np.testing.assert_allclose(fnx.jit(g)(a), wanted, rtol=1e-12)
    slopes = 1 + np.cumsum([0, 2 / 3, 1.0])
    np.testing.assert_allclose(fnx.jit(fnx.jacrev(g))(a), slopes, rtol=1e-10)
    np.testing.assert_allclose(fnx.jit(fnx.jacfwd(g))(a), slopes, rtol=1e-10)


def test_a_system_whose_function_closes_over_traced_arrays():
    m = RNG.normal(size=(4, 4)) * 0.2

    @implicit.on_host
    def hybrid(fun, x, c):
        jacobian = fnx.jacobian(fun)
        return optimize.root(fun, x, args=(c,), jac=jacobian, tol=1e-13).x

    def solved(m, scale, c):
        equation = implicit.root(lambda x, c: x + scale * fnp.sin(m @ x) - c, hybrid)
        return equation(np.zeros(4), c)

    c, scale = RNG.normal(size=4), np.float64(0.7)
    x = np.asarray(fnx.jit(solved)(m, scale, c))
    np.testing.assert_allclose(x + scale * np.sin(m @ x), c, rtol=1e-12)
    inverse = np.linalg.inv(np.eye(4) + scale * np.cos(m @ x)[:, None] * m)
    for jacobian in (fnx.jacfwd, fnx.jacrev):
        found = fnx.jit(jacobian(solved, 2))(m, scale, c)
        np.testing.assert_allclose(found, inverse, rtol=1e-9)
    check_grads(solved, (m, scale, c), order=2)
    many = fnx.jit(fnx.vmap(solved, (None, 0, None)))(m, np.array([0.1, 0.7]), c)
    np.testing.assert_allclose(many[1], x, rtol=1e-12)


def test_a_minimum_and_what_is_found_besides():
    x, y = RNG.normal(size=(20, 3)), RNG.normal(size=20)

    def loss(w, strength, power):
        return ((x @ w - y) ** power).mean() + strength * (w**power).sum()

    def bfgs(fun, w, *args):
        slope = fnx.jit(fnx.grad(fun), static_argnums=2)
        found = optimize.minimize(fun, w, args, jac=slope, tol=1e-13)
        return found.x, np.int32(found.nit)

    solver = implicit.on_host(bfgs, aux=fnx.ShapeDtypeStruct((), np.int32))
    ridge = implicit.minimum(loss, solver, has_aux=True)

    def weights(strength):
        w, rounds = ridge(np.zeros(3, np.float64), strength, 2)
        return w, rounds

    w, rounds = fnx.jit(weights)(np.float64(0.5))
    gram = x.T @ x / 20 + 0.5 * np.eye(3)
    np.testing.assert_allclose(w, np.linalg.solve(gram, x.T @ y / 20), rtol=1e-6)
    assert rounds.dtype == np.int32 and rounds > 0
    found, _ = fnx.jit(fnx.jacrev(weights, has_aux=True))(np.float64(0.5))
    wanted = -np.linalg.solve(gram, np.asarray(w))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_dtypes_are_those_of_the_guess():
    single = fnx.jit(cube_root)(np.float32(1), np.float32(8))
    assert single.dtype == np.float32 and abs(single - 2) < 1e-6


def test_what_is_said():
    def raising(fun, x, a):
        raise RuntimeError("no convergence")

    unlucky = implicit.root(lambda x, a: x - a, implicit.on_host(raising))
    with pytest.raises(RuntimeError, match="no convergence"):
        fnx.jit(unlucky)(ONE, ONE)
    other = implicit.root(
        lambda x, a: x - a, implicit.on_host(lambda fun, x, a: fun(x))
    )
    with pytest.raises(errors.TreeError, match="fun is given other trees"):
        fnx.jit(other)(ONE, ONE)
    wrong = implicit.root(
        lambda x, a: x - a, implicit.on_host(lambda fun, x, a: np.ones(2))
    )
    with pytest.raises(errors.ShapeError, match=r"the result is float64\[2\]; f64\[\]"):
        fnx.jit(wrong)(ONE, ONE)
    imaginary = implicit.root(
        lambda x, a: x - a, implicit.on_host(lambda fun, x, a: x * 1j)
    )
    with pytest.raises(errors.DTypeError, match="the result is of dtype complex128"):
        fnx.jit(imaginary)(ONE, ONE)
    aux = fnx.ShapeDtypeStruct((), np.float64)
    alone = implicit.root(
        lambda x, a: x - a, implicit.on_host(lambda fun, x, a: x, aux=aux), has_aux=True
    )
    with pytest.raises(errors.ArgumentError, match=r"must return a pair \(solution"):
        fnx.jit(alone)(ONE, ONE)
    with pytest.raises(errors.ArgumentError, match="solver takes a function"):
        implicit.on_host(3)
