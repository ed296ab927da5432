"""Line searches and L-BFGS: the conditions that a rate keeps, and minima found."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import fnx
import fnx.numpy as fnp
from fnx import optim, tree
from fnx.errors import ArgumentError, OptionError


def rosenbrock(p):
    x = fnp.concatenate([p["a"], fnp.ravel(p["b"])])
    return fnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def start(dtype="float64"):
    return {
        "a": fnp.array([0.2, 1.4, 0.5], dtype),
        "none": None,
        "b": fnp.array([[2.0, -0.5]], dtype),
    }


def run(optimizer, f, params, count):
    gradient = optim.value_and_grad_from_state(f)

    @fnx.jit
    def step(params, state):
        value, grad = gradient(params, state=state)
        updates, state = optimizer.update(
            grad, state, params, value=value, grad=grad, value_fn=f
        )
        return optim.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(count):
        params, state = step(params, state)
    assert step.cache_info().misses == 1
    return params, state


@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-10), ("float32", 1e-3)])
def test_lbfgs_finds_the_minimum(dtype, tol):
    found, _ = run(optim.lbfgs(), rosenbrock, start(dtype), 60)
    for x in tree.leaves(found):
        assert x.dtype == dtype
        np.testing.assert_allclose(x, 1.0, rtol=tol)


def test_lbfgs_takes_about_as_many_steps_as_scipy():
    flat = np.concatenate([np.ravel(x) for x in tree.leaves(start())])
    theirs = scipy.optimize.minimize(
        scipy.optimize.rosen,
        flat,
        jac=scipy.optimize.rosen_der,
        method="L-BFGS-B",
        options={"gtol": 1e-6, "ftol": 0, "maxcor": 10},
    )
    found, _ = run(optim.lbfgs(), rosenbrock, start(), int(1.3 * theirs.nit))
    grads = fnx.grad(rosenbrock)(found)
    assert max(float(abs(g).max()) for g in tree.leaves(grads)) < 1e-5


def test_lbfgs_is_the_matrix_of_bfgs():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    hessian, x = root @ root.T + np.eye(5), rng.normal(size=5)
    scaling = optim.scale_by_lbfgs(memory_size=3, scale_init_precond=True)
    state, pairs = scaling.init(x), []
    for _ in range(6):
        g = hessian @ x
        found, state = scaling.update(g, state, x)
        gamma = min(1, 1 / np.linalg.norm(g))
        if pairs:
            s, y = pairs[-1]
            gamma = s @ y / (y @ y)
        inverse = gamma * np.eye(5)
        for s, y in pairs[-3:]:
            v = np.eye(5) - np.outer(y, s) / (s @ y)
            inverse = v.T @ inverse @ v + np.outer(s, s) / (s @ y)
        np.testing.assert_allclose(found, inverse @ g, rtol=1e-8)
        new = x - 0.1 * rng.random(5) * np.asarray(found)
        pairs.append((new - x, hessian @ (new - x)))
        x = new


def test_pairs_of_negative_curvature_have_no_part():
    plain, x = optim.scale_by_lbfgs(scale_init_precond=False), fnp.array([3.0, 4.0])
    assert plain.update(x, plain.init(x), x)[0].tolist() == [3.0, 4.0]
    scaling, x = optim.scale_by_lbfgs(), fnp.array([1.0, 2.0])
    state = scaling.init(x)
    for point in (x, x / 2):
        updates, state = scaling.update(-point, state, point)
    np.testing.assert_allclose(updates, -x / 2, rtol=1e-6)
    np.testing.assert_array_equal(state.weights_memory, 0)


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("guess", ["one", "keep"])
def test_wolfe_conditions(size, guess):
    search = optim.scale_by_zoom_linesearch(
        30, curv_rtol=0.1, approx_dec_rtol=None, initial_guess_strategy=guess
    )
    f = lambda x: fnp.sum(fnp.log(fnp.cosh(x - 1)) + 0.1 * fnp.sin(3 * x))  # noqa: E731
    x = fnp.array([3.0, -2.0, 0.5], "float64")
    state = search.init(x)
    for _ in range(3):
        value, grad = fnx.value_and_grad(f)(x)
        direction = -size * grad
        updates, state = fnx.jit(search.update, static_argnames="value_fn")(
            direction, state, x, value=value, grad=grad, value_fn=f
        )
        new, new_grad = fnx.value_and_grad(f)(x + updates)
        rate, slope = float(state.learning_rate), float(direction @ grad)
        assert float(new) <= float(value) + 1e-4 * rate * slope
        assert abs(float(direction @ new_grad)) <= 0.1 * abs(slope)
        np.testing.assert_allclose(state.value, new, rtol=1e-12)
        np.testing.assert_allclose(state.grad, new_grad, rtol=1e-10)
        np.testing.assert_allclose(updates, rate * direction, rtol=1e-12)
        x = x + updates


def test_backtracking():
    search = optim.scale_by_backtracking_linesearch(20, decrease_factor=0.5)
    f = lambda x: fnp.sum(x**4)  # noqa: E731
    x = fnp.array([3.0], "float64")
    value, grad = fnx.value_and_grad(f)(x)
    updates, state = search.update(
        -grad, search.init(x), x, value=value, grad=grad, value_fn=f
    )
    rate = next(
        r for r in 0.5 ** np.arange(20) if (3 - r * 108) ** 4 <= 81 - 1e-4 * r * 108**2
    )
    assert float(state.learning_rate) == rate
    assert int(state.info.num_linesearch_steps) == -np.log2(rate)
    np.testing.assert_allclose(updates, -rate * 108)
    assert state.grad is None


@pytest.mark.oracle
def test_optax_backtracks_to_the_same_rates(jax):
    optax = pytest.importorskip("optax", reason="the oracle of optimizers")
    rates = []
    for o, library, asarray in (
        (optim, fnx, fnp.asarray),
        (optax, jax, jax.numpy.asarray),
    ):
        f = lambda x: ((x - 1) ** 4).sum()  # noqa: E731
        solver = o.chain(
            o.sgd(1.0), o.scale_by_backtracking_linesearch(25, store_grad=True)
        )
        x = asarray(np.array([3.0, -1.0, 0.3]))
        state, found = solver.init(x), []
        for _ in range(6):
            value, grad = library.value_and_grad(f)(x)
            updates, state = solver.update(
                grad, state, x, value=value, grad=grad, value_fn=f
            )
            x = o.apply_updates(x, updates)
            found.append(float(state[-1].learning_rate))
        rates.append(found)
    np.testing.assert_allclose(rates[0], rates[1], rtol=1e-6)


def test_values_that_are_not_finite():
    f = lambda x: fnp.sum(fnp.log(x))  # noqa: E731  # NaN below 0
    x = fnp.array([1.0], "float64")
    value, grad = fnx.value_and_grad(f)(x)
    given = {"value": value, "grad": grad, "value_fn": f}
    short = optim.scale_by_backtracking_linesearch(2, decrease_factor=0.9)
    updates, _ = short.update(-4 * grad, short.init(x), x, **given)
    assert float(updates[0]) == 0
    for search in (
        optim.scale_by_backtracking_linesearch(30),
        optim.scale_by_zoom_linesearch(30),
    ):
        updates, state = search.update(-4 * grad, search.init(x), x, **given)
        assert float(state.value) < float(value)
        assert -1 < float(updates[0]) < 0


def test_arguments_reach_the_function():
    f = lambda x, *, shift: fnp.sum((x - shift) ** 2)  # noqa: E731
    optimizer, x = optim.lbfgs(), fnp.zeros(2)
    state = optimizer.init(x)
    for _ in range(3):
        value, grad = fnx.value_and_grad(f)(x, shift=3.0)
        updates, state = optimizer.update(
            grad, state, x, value=value, grad=grad, value_fn=f, shift=3.0
        )
        x = optim.apply_updates(x, updates)
    np.testing.assert_allclose(x, 3.0, rtol=1e-4)


def test_a_failed_search_is_printed(capsys):
    search = optim.scale_by_backtracking_linesearch(1, verbose=True)
    f, x = (lambda x: fnp.sum(x**2)), fnp.array([1.0])
    value, grad = fnx.value_and_grad(f)(x)
    search.update(grad, search.init(x), x, value=value, grad=grad, value_fn=f)
    fnx.effects_barrier()
    assert "no rate is good enough" in capsys.readouterr().out


def test_bad_arguments():
    x = fnp.ones(2)
    optimizer = optim.lbfgs()
    with pytest.raises(ArgumentError, match="scale_by_zoom_linesearch: the search nee"):
        optimizer.update(x, optimizer.init(x), x)
    with pytest.raises(
        ArgumentError, match="lbfgs: the Hessian's estimate needs the p"
    ):
        optimizer.update(x, optimizer.init(x))
    gradient = optim.value_and_grad_from_state(lambda x: x.sum())
    with pytest.raises(ArgumentError, match="is there 0 times"):
        gradient(x, state=optim.sgd(0.1).init(x))
    with pytest.raises(ArgumentError, match="does not store its gradient"):
        gradient(x, state=optim.scale_by_backtracking_linesearch(3).init(x))
    for make, match in (
        (lambda: optim.lbfgs(memory_size=0), "lbfgs: memory_size must be 1 or more"),
        (lambda: optim.scale_by_zoom_linesearch(0), "max_linesearch_steps must be 1"),
        (
            lambda: optim.scale_by_zoom_linesearch(5, initial_guess_strategy="two"),
            "initial_guess_strategy must be one or keep",
        ),
        (
            lambda: optim.scale_by_backtracking_linesearch(5, decrease_factor=1.0),
            "decrease_factor must be from 0 up to",
        ),
    ):
        with pytest.raises(OptionError, match=match):
            make()
