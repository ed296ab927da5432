"""Roots, fixed points and minima: against closed forms and differences."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import optimize

import fnx
import fnx.numpy as fnp
from fnx import errors, implicit, lax
from fnx.testing import check_grads

RNG = np.random.default_rng(5)
M = RNG.normal(size=(3, 3)) * 0.2


def newton(fun, x, *args):
    """Newton's method on trees, until a step is small."""

    def step(state):
        x, _ = state
        value = fun(x, *args)
        move = fnx.linearize(lambda x: fun(x, *args), x)[1]
        delta = implicit.linear_solve(move, value)
        size = sum(abs(leaf).sum() for leaf in fnx.tree.leaves(delta))
        return fnx.tree.map(lambda a, b: a - b, x, delta), size

    start = (x, fnp.float64(1.0))
    return lax.while_loop(lambda state: state[1] > 1e-12, step, start)[0]


def iterated(fun, x, *args):
    def step(state):
        x, _ = state
        new = fun(x, *args)
        return new, abs(new - x).max()

    start = (x, fnp.float64(1.0))
    return lax.while_loop(lambda state: state[1] > 1e-15, step, start)[0]


def descent(fun, x, *args):
    slope = fnx.grad(fun)
    move = lambda _, x: x - 0.2 * slope(x, *args)  # noqa: E731
    return lax.fori_loop(0, 400, move, x)


square_root = implicit.root(lambda x, a: x * x - a, newton)
fixed = implicit.fixed_point(lambda x, m, c: fnp.tanh(m @ x) + c, iterated)


def ridge_loss(w, x, y, strength):
    return ((x @ w - y) ** 2).mean() + strength * (w**2).sum()


ridge = implicit.minimum(ridge_loss, descent)


def test_square_roots_in_every_mode():
    one = np.float64(1.0)
    values = np.array([0.25, 2.0, 9.0])

    def f(a):
        return square_root(one, a)

    for a in values:
        for run in (fnx.grad(f), fnx.jit(fnx.grad(f)), fnx.jacfwd(f)):
            np.testing.assert_allclose(run(a), 0.5 / np.sqrt(a), rtol=1e-12)
        np.testing.assert_allclose(fnx.hessian(f)(a), -0.25 * a**-1.5, rtol=1e-12)
        third = fnx.grad(fnx.grad(fnx.grad(f)))(a)
        np.testing.assert_allclose(third, 0.375 * a**-2.5, rtol=1e-11)
    mapped = fnx.vmap(fnx.grad(f))(values)
    np.testing.assert_allclose(mapped, 0.5 / np.sqrt(values), rtol=1e-12)


def test_fixed_points_against_the_closed_form():
    start, c = np.zeros(3), np.array([0.3, -0.2, 0.5])
    x = np.asarray(fixed(start, M, c))
    np.testing.assert_allclose(x, np.tanh(M @ x) + c, rtol=1e-12)
    slope = (1 - np.tanh(M @ x) ** 2)[:, None] * M
    wanted = np.linalg.inv(np.eye(3) - slope)
    for jacobian in (fnx.jacfwd, fnx.jacrev):
        np.testing.assert_allclose(jacobian(fixed, 2)(start, M, c), wanted, rtol=1e-9)
    check_grads(lambda m, c: fixed(start, m, c), (M, c), order=2)


def test_minima_against_the_closed_form():
    x, y = RNG.normal(size=(20, 3)), RNG.normal(size=20)

    def weights(strength):
        gram = x.T @ x / 20 + strength * np.eye(3)
        return np.linalg.solve(gram, x.T @ y / 20)

    start = np.zeros(3)
    np.testing.assert_allclose(ridge(start, x, y, 0.5), weights(0.5), rtol=1e-9)
    h = 1e-6
    wanted = (weights(0.5 + h) - weights(0.5 - h)) / (2 * h)
    half = np.float64(0.5)
    for jacobian in (fnx.jacfwd, fnx.jacrev):
        found = jacobian(ridge, 3)(start, x, y, half)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    gradient = fnx.jit(fnx.grad(lambda s: (ridge(start, x, y, s) ** 2).sum()))(half)
    np.testing.assert_allclose(gradient, 2 * weights(0.5) @ wanted, rtol=1e-6)
    check_grads(lambda y, s: ridge(start, x, y, s), (y, half), order=2)


def test_a_minimum_inside_of_a_minimum():
    """A strength is chosen by descent on what the weights give on other data."""
    x, y = RNG.normal(size=(20, 3)), RNG.normal(size=20)
    u, v = RNG.normal(size=(20, 3)), RNG.normal(size=20)

    def outer(logs):
        return ((u @ ridge(np.zeros(3), x, y, fnp.exp(logs)) - v) ** 2).mean()

    h, at = 1e-5, np.float64(-1.0)
    wanted = (outer(at + h) - outer(at - h)) / (2 * h)
    np.testing.assert_allclose(fnx.grad(outer)(at), wanted, rtol=1e-5)


def test_trees_and_arguments_of_any_kind():
    def f(state, params, name):
        assert name == "static"
        x, y = state["x"], state["y"]
        return {"x": x * x + y - params["a"], "y": y * 3.0 - x - params["b"]}

    solution = implicit.root(f, newton)
    start = {"x": np.float64(1.0), "y": np.float64(0.0)}

    def first(a, b):
        return solution(start, {"a": a, "b": b}, "static")["x"]

    # y = (x + b) / 3, x² + x/3 + b/3 = a
    def closed(a, b):
        return (-1 / 3 + np.sqrt(1 / 9 + 4 * (a - b / 3))) / 2

    a, b = np.float64(3.0), np.float64(0.5)
    np.testing.assert_allclose(first(a, b), closed(a, b), rtol=1e-12)
    h = 1e-6
    wanted = (closed(a, b + h) - closed(a, b - h)) / (2 * h)
    np.testing.assert_allclose(fnx.grad(first, 1)(a, b), wanted, rtol=1e-6)
    check_grads(first, (a, b), order=2)


def test_a_solver_in_scipy_where_values_are_known():
    def hybrid(fun, x, *args):
        known = [np.asarray(arg) for arg in args]
        return optimize.root(lambda x: np.asarray(fun(x, *known)), x, tol=1e-13).x

    solution = implicit.root(lambda x, m, c: x + fnp.sin(m @ x) - c, hybrid)
    start, c = np.zeros(3, "f4"), np.array([0.3, -0.2, 0.5])

    def f(m, c):
        return solution(start.astype("f8"), m, c)

    check_grads(f, (M, c), order=2)
    assert solution(start, M.astype("f4"), c.astype("f4")).dtype == np.float32
    with pytest.raises(errors.TracerValueError, match="unknown while tracing"):
        fnx.jit(f)(M, c)


def test_a_linear_solver_of_ones_own():
    calls = []

    def inverse(matvec, b):
        calls.append(b.shape)
        return b / matvec(1.0)

    f = implicit.root(lambda x, a: x * x - a, newton, linear_solver=inverse)
    slope = fnx.grad(f, 1)(np.float64(1.0), np.float64(4.0))
    np.testing.assert_allclose(slope, 0.25)
    assert calls


def test_what_a_solver_gives_besides():
    def counting(fun, x, *args):
        return newton(fun, x, *args), {"residual": fun(x, *args)}

    f = implicit.root(lambda x, a: x * x - a, counting, has_aux=True)
    x, aux = f(np.float64(1.0), np.float64(4.0))
    assert abs(x - 2) < 1e-12 and aux["residual"] == -3
    g, aux = fnx.grad(f, 1, has_aux=True)(np.float64(1.0), np.float64(4.0))
    assert abs(g - 0.25) < 1e-12 and aux["residual"] == -3


def test_the_guess_has_no_influence():
    assert fnx.grad(square_root)(np.float64(1.0), np.float64(4.0)).item() == 0.0


def test_a_singular_jacobian_is_seen():
    f = implicit.root(lambda x, a: (x - a) ** 2 * 0.0, lambda fun, x, a: a)
    assert not np.isfinite(fnx.grad(f, 1)(np.float64(1.0), np.float64(1.0)))


def traced(f):
    return fnx.jit(f)(np.zeros(2))


BAD = {
    "no solver": (
        lambda: implicit.root(lambda x: x, 3),
        errors.ArgumentError,
        "implicit.root: solver takes a function: got 3 of type int",
    ),
    "no function": (
        lambda: implicit.minimum(None, newton),
        errors.ArgumentError,
        "takes a function",
    ),
    "integer guess": (
        lambda: square_root(1, 4.0),
        errors.DTypeError,
        "implicit.root: init is i32",
    ),
    "another shape": (
        lambda: implicit.root(lambda x: x, lambda fun, x: x[:1])(np.zeros(2)),
        errors.ShapeError,
        r"init is f64\[2\], the solution there is f64\[1\]",
    ),
    "another tree": (
        lambda: implicit.root(lambda x: x, lambda fun, x: (x,))(np.zeros(2)),
        errors.TreeError,
        "implicit.root: init and the solution that",
    ),
    "a complex solution of a real equation": (
        lambda: implicit.root(lambda x: x, lambda fun, x: x * 1j)(np.zeros(2)),
        errors.ShapeError,
        r"init is f64\[2\], the solution there is c128\[2\]",
    ),
    "no pair": (
        lambda: implicit.root(lambda x: x, lambda fun, x: x, has_aux=True)(np.zeros(3)),
        errors.ArgumentError,
        r"implicit.root with has_aux=True: <lambda> must return a pair \(solution, aux",
    ),
    "nothing": (
        lambda: implicit.root(lambda x: x, lambda fun, x: None, has_aux=True)(1.0),
        errors.ArgumentError,
        "has_aux=True: <lambda> must return a pair .*it returned None",
    ),
    "a function with another tree": (
        lambda: traced(implicit.root(lambda x: (x, x), lambda fun, x: x)),
        errors.TreeError,
        "implicit.root: init and the result of <lambda> differ",
    ),
    "a map with another tree": (
        lambda: traced(implicit.fixed_point(lambda x: (x, x), lambda fun, x: x)),
        errors.TreeError,
        "implicit.fixed_point: init and the result of <lambda> differ",
    ),
    "a map to another shape": (
        lambda: traced(implicit.fixed_point(lambda x: x[0], lambda fun, x: x)),
        errors.ShapeError,
        r"init is f64\[2\], in the result of <lambda> there is f64\[\]",
    ),
    "not a scalar": (
        lambda: fnx.jit(implicit.minimum(lambda x: x, lambda fun, x: x))(np.zeros(2)),
        errors.ShapeError,
        "scalar",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_named(name):
    run, kind, text = BAD[name]
    with pytest.raises(kind, match=re.compile(text, re.DOTALL)):
        run()
