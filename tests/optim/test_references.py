"""Twenty steps of each optimizer against its published rule in NumPy and float64."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim, tree
from tests.optim.references import OTHERWISE_IN_OPTAX, RULES, make

STEPS = 20
ALL = pytest.mark.parametrize("name", RULES)


def trees(seed, count, dtype="float64"):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape).astype(dtype)  # noqa: E731
    return [
        {"dense": {"w": draw(4, 3), "b": draw(3)}, "scale": draw()}
        for _ in range(count)
    ]


def trajectory(library, optimizer, as_array, dtype="float64"):
    (params,), grads = trees(0, 1, dtype), trees(1, STEPS, dtype)
    params = tree.map(as_array, params)
    state, visited = optimizer.init(params), []
    for g in grads:
        updates, state = optimizer.update(tree.map(as_array, g), state, params)
        params = library.apply_updates(params, updates)
        visited.append(params)
    return [np.asarray(x, "float64") for x in tree.leaves(visited)]


def reference(name):
    rule = RULES[name][1]
    (params,), grads = trees(0, 1), trees(1, STEPS)
    params, treedef = tree.flatten(params)
    memories = [{} for _ in params]
    visited = []
    for t, g in enumerate(grads, 1):
        params = [
            p + rule(memory, g, p, t)
            for memory, g, p in zip(memories, tree.leaves(g), params, strict=True)
        ]
        visited.append(tree.unflatten(treedef, params))
    return tree.leaves(visited)


@ALL
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-11), ("float32", 2e-4)])
def test_published_rule(name, dtype, rtol):
    found = trajectory(optim, make(name), fnp.asarray, dtype)
    expected = reference(name)
    assert len(found) == 3 * STEPS
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


@pytest.mark.oracle
@pytest.mark.parametrize("name", [n for n in RULES if n not in OTHERWISE_IN_OPTAX])
def test_optax_does_the_same(name, jax):
    optax = pytest.importorskip("optax", reason="the oracle of optimizers")
    optimizer = RULES[name][0](optax)
    found = trajectory(optim, make(name), fnp.asarray)
    expected = trajectory(optax, optimizer, jax.numpy.asarray)
    for x, y in zip(found, expected, strict=True):
        # optax has some powers of decays in float32
        np.testing.assert_allclose(x, y, rtol=2e-6, atol=2e-6)


@ALL
def test_leaves_of_every_kind(name):
    params = {
        "none": None,
        "empty": fnp.zeros((0, 3)),
        "half": fnp.array([[0.5, -1.0], [2.0, 3.0]], "bfloat16"),
        "double": fnp.array([1.0, -2.0], "float64"),
        "nested": [(), {"one": fnp.array(0.25, "float32")}],
    }
    optimizer = make(name)
    state = optimizer.init(params)

    @fnx.jit
    def step(params, state):
        updates, state = optimizer.update(params, state, params)
        return updates, optim.apply_updates(params, updates), state

    types = [x.type for x in tree.leaves(state)]
    for _ in range(2):
        updates, params, state = step(params, state)
        assert tree.map(lambda x: x.type, updates) == tree.map(lambda x: x.type, params)
        assert [x.type for x in tree.leaves(state)] == types
    assert all(bool(fnp.isfinite(x).all()) for x in tree.leaves((params, state)))
    assert step.cache_info().misses == 1


RATES = [
    *(
        "adabelief adadelta adafactor adagrad adamax adamaxw adan amsgrad fromage"
    ).split(),
    *("lamb lars lion nadam nadamw novograd radam rmsprop rprop sign_sgd").split(),
    *("signum sm3 yogi optimistic_gradient_descent optimistic_adam_v2").split(),
]


@pytest.mark.parametrize("algorithm", RATES)
def test_many_learning_rates_at_once(algorithm):
    params = {"w": fnp.array([[1.0, -2.0], [0.5, 3.0]]), "b": fnp.array([0.25, 1.0])}

    def run(rate):
        optimizer, p = getattr(optim, algorithm)(rate), params
        state = optimizer.init(p)
        for _ in range(3):
            updates, state = optimizer.update(tree.map(fnp.sin, p), state, p)
            p = optim.apply_updates(p, updates)
        return p

    rates = fnp.array([0.1, 0.02, 0.3])
    together = fnx.jit(fnx.vmap(run))(rates)
    for place, rate in enumerate(rates):
        alone = run(rate)
        for x, y in zip(tree.leaves(together), tree.leaves(alone), strict=True):
            np.testing.assert_allclose(x[place], y, rtol=2e-5, atol=1e-6)


@ALL
def test_a_step_is_differentiable_by_the_gradient(name):
    optimizer = make(name)
    params = {"w": fnp.array([[1.0, -2.0], [0.5, 3.0]], "float64")}
    grads = {"w": fnp.array([[0.3, 0.7], [-1.1, 0.4]], "float64")}
    if name in ("rprop", "sign_sgd", "signum", "lion"):  # constant between jumps
        slope = fnx.grad(lambda g: after(optimizer, params, g))(grads)["w"]
        np.testing.assert_allclose(slope, 0, atol=1e-12)
        return
    fnx.testing.check_grads(lambda g: after(optimizer, params, g), (grads,), order=1)


def after(optimizer, params, grads):
    """A number that depends on everything that two updates give."""
    state = optimizer.init(params)
    for _ in range(2):
        updates, state = optimizer.update(grads, state, params)
        params = optim.apply_updates(params, updates)
    return fnp.sum(fnp.sin(params["w"]))
