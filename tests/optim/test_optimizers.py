"""What every optimizer and transformation keeps, over one table of them."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim, tree

# name: (how it is made, whether update needs the parameters)
TABLE = {
    "sgd": (lambda: optim.sgd(0.1), False),
    "sgd momentum": (lambda: optim.sgd(0.1, momentum=0.9), False),
    "sgd nesterov": (lambda: optim.sgd(0.1, momentum=0.9, nesterov=True), False),
    "adam": (lambda: optim.adam(0.1), False),
    "adam nesterov": (lambda: optim.adam(0.1, nesterov=True), False),
    "adamw": (lambda: optim.adamw(0.1, weight_decay=0.01), True),
    "adam, schedule": (
        lambda: optim.adam(optim.warmup_cosine_decay_schedule(0.0, 0.1, 2, 300)),
        False,
    ),
    "clipped sgd": (
        lambda: optim.chain(optim.clip_by_global_norm(1.0), optim.sgd(0.1)),
        False,
    ),
    "clip": (lambda: optim.chain(optim.clip(0.5), optim.scale(-0.1)), False),
    "decay schedule": (
        lambda: optim.chain(
            optim.add_decayed_weights(optim.linear_schedule(0.0, 0.1, 5)),
            optim.scale_by_learning_rate(0.1),
        ),
        True,
    ),
    "identity": (lambda: optim.chain(optim.identity(), optim.scale(-0.05)), False),
    "rmsprop": (
        lambda: optim.rmsprop(0.03, momentum=0.5, bias_correction=True),
        False,
    ),
    "radam": (lambda: optim.radam(0.05), False),
    "novograd": (lambda: optim.novograd(0.02, weight_decay=0.1), True),
    "lamb": (lambda: optim.lamb(0.05), False),
    "lion": (lambda: optim.lion(0.02), True),
    "adafactor": (lambda: optim.adafactor(0.5, 2), False),
    "sm3": (lambda: optim.sm3(0.3), False),
    "masked": (
        lambda: optim.chain(
            optim.masked(optim.trace(0.5), lambda p: tree.map(lambda x: x.ndim > 0, p)),
            optim.scale(-0.1),
        ),
        False,
    ),
    "partition": (
        lambda: optim.partition(
            {"sgd": optim.sgd(0.1), "adam": optim.adam(0.1)},
            lambda p: tree.map(lambda x: "adam" if x.ndim else "sgd", p),
        ),
        False,
    ),
    "several steps": (
        lambda: optim.MultiSteps(optim.sgd(0.1), 2).gradient_transformation(),
        False,
    ),
    "if finite": (lambda: optim.apply_if_finite(optim.adam(0.1), 3), False),
    "injected": (lambda: optim.inject_hyperparams(optim.adam)(0.1), False),
}
ALL = pytest.mark.parametrize("name", TABLE)
NO_DECAY = pytest.mark.parametrize("name", [n for n in TABLE if not TABLE[n][1]])


def make(name):
    return TABLE[name][0]()


def params_like(dtype="float32"):
    return {
        "dense": {
            "w": fnp.array(np.linspace(-1, 1, 6).reshape(2, 3), dtype),
            "b": fnp.array([0.5, -0.5, 2.0], dtype),
        },
        "scale": fnp.array(1.5, dtype),
    }


def loss(params):
    return sum((x.astype("float32") ** 2).sum() for x in tree.leaves(params))


def run(optimizer, params, steps, gradient=fnx.grad(loss)):  # noqa: B008
    state = optimizer.init(params)
    for _ in range(steps):
        updates, state = optimizer.update(gradient(params), state, params)
        params = optim.apply_updates(params, updates)
    return params, state


def types(values):
    return [str(x.type) for x in tree.leaves(values)]


@ALL
def test_it_minimizes_a_quadratic(name):
    optimizer, params = make(name), params_like()
    state = optimizer.init(params)

    @fnx.jit
    def step(params, state):
        updates, state = optimizer.update(fnx.grad(loss)(params), state, params)
        return optim.apply_updates(params, updates), state

    before = float(loss(params))
    for _ in range(200):
        params, state = step(params, state)
    assert float(loss(params)) < 0.02 * before
    assert step.cache_info().misses == 1  # the state's types never change


@ALL
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_dtypes_and_structure_are_kept(name, dtype):
    optimizer, params = make(name), params_like(dtype)
    state = optimizer.init(params)
    updates, new_state = optimizer.update(params, state, params)
    assert types(updates) == types(params)
    assert types(new_state) == types(state)
    assert types(optim.apply_updates(params, updates)) == types(params)
    assert tree.structure(new_state) == tree.structure(state)
    assert not any(x.weak_type for x in tree.leaves((updates, new_state)))


@NO_DECAY
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_zero_gradients_give_zero_updates(name, dtype):
    optimizer, params = make(name), params_like(dtype)
    zeros, state = tree.map(fnp.zeros_like, params), optimizer.init(params)
    for _ in range(3):
        updates, state = optimizer.update(zeros, state, params)
        assert all(float(abs(x).max()) == 0 for x in tree.leaves(updates))


@ALL
def test_jit_and_eager_agree(name):
    optimizer, params = make(name), params_like()
    eager, _ = run(optimizer, params, 5)
    compiled, _ = run(optimizer._replace(update=fnx.jit(optimizer.update)), params, 5)
    for x, y in zip(tree.leaves(eager), tree.leaves(compiled), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)


@ALL
def test_gradients_through_the_update_are_finite(name):
    optimizer = make(name)

    def after(params):  # at zero: where norms and square roots are not smooth
        grads = tree.map(lambda p: 0.0 * p, params)
        updates, _ = optimizer.update(grads, optimizer.init(params), params)
        return loss(optim.apply_updates(params, updates))

    zeros = tree.map(fnp.zeros_like, params_like())
    for params in (zeros, params_like()):
        grads = fnx.grad(after)(params)
        assert all(bool(fnp.isfinite(g).all()) for g in tree.leaves(grads))


@pytest.mark.parametrize("name", ["sgd momentum", "adam", "adamw", "decay schedule"])
def test_grads_of_another_structure_raise(name):
    optimizer, params = make(name), params_like()
    state = optimizer.init(params)
    wrong = {"dense": {"w": params["dense"]["w"]}, "scale": params["scale"]}
    with pytest.raises(fnx.errors.TreeError, match=r"at \['dense'\]\['b'\]: only in"):
        optimizer.update(wrong, state, params)
    wrong = params | {"scale": fnp.zeros(3)}
    with pytest.raises(
        fnx.errors.ShapeError, match=r"at \['scale'\]: updates has shape \(3,\)"
    ):
        optimizer.update(wrong, state, params)


@ALL
def test_integer_gradients_raise(name):
    optimizer, params = make(name), params_like()
    wrong = params | {"scale": fnp.array(1)}
    with pytest.raises(fnx.errors.DTypeError, match=r"updates\['scale'\] is i32\[\]"):
        optimizer.update(wrong, optimizer.init(params), params)


@pytest.mark.parametrize("name", ["adam", "sgd momentum"])
def test_integer_params_raise(name):
    with pytest.raises(fnx.errors.DTypeError, match=r"params\['n'\] is i32\[\]"):
        make(name).init({"n": fnp.array(1)})


@ALL
def test_it_runs_under_vmap(name):
    optimizer = make(name)
    many = fnp.array([[1.0, -2.0], [3.0, 0.5], [0.0, 4.0]])

    def one(params):
        return run(optimizer, params, 3)[0]

    batched = fnx.vmap(one)(many)
    for row, params in zip(batched, many, strict=True):
        np.testing.assert_allclose(row, one(params), rtol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_the_learning_rate_may_be_traced(name):
    algorithm = getattr(optim, name)

    @fnx.jit
    def step(rate, params):
        return run(algorithm(rate), params, 2)[0]

    params = params_like()
    for rate in (0.1, 0.01):
        expected, _ = run(algorithm(rate), params, 2)
        found = step(rate, params)
        np.testing.assert_allclose(
            found["dense"]["w"], expected["dense"]["w"], rtol=1e-5
        )
    assert step.cache_info().misses == 1


def test_numbers_and_numpy_arrays_are_leaves():
    optimizer = optim.adam(0.1)
    params = {"w": np.float32([1, 2]), "b": 3.0}
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    assert types(optim.apply_updates(params, updates)) == ["f32[]", "f32[2]"]


def test_complex_parameters():
    params = fnp.array([1 + 2j, -3j])
    optimizer = optim.adam(0.1)
    state = optimizer.init(params)
    assert types(state[0].nu) == ["f32[2]"]  # a squared magnitude is real
    updates, _ = optimizer.update(params, state)
    np.testing.assert_allclose(
        updates, -0.1 * np.asarray(params) / abs(np.asarray(params)), rtol=1e-5
    )
    assert float(optim.global_norm(params)) == pytest.approx(14**0.5)


def test_a_second_moment_of_16_bits_would_not_decay():
    # bfloat16 rounds 0.999 to 1, so that an average kept in it would only ever grow
    optimizer = optim.scale_by_adam()
    state = optimizer.init(fnp.zeros(1, "bfloat16"))
    update = fnx.jit(lambda size, state: optimizer.update(size, state)[1])
    for size in (1.0, 1e-3):
        for _ in range(200):
            state = update(fnp.full(1, size, "bfloat16"), state)
    assert state.nu.dtype == "float32"
    assert float(state.nu[0]) == pytest.approx(0.999**200 - 0.999**400, rel=1e-3)


def test_mu_dtype_and_accumulator_dtype():
    params = fnp.ones(2)
    state = optim.adam(0.1, mu_dtype="bfloat16").init(params)
    assert types(state[0]) == ["i32[]", "bf16[2]", "f32[2]"]
    state = optim.sgd(0.1, momentum=0.9, accumulator_dtype="float64").init(params)
    assert types(state) == ["f64[2]"]


def test_the_count_does_not_overflow():
    optimizer = optim.scale_by_adam()
    most = fnp.array(2**31 - 1, "int32")
    state = optimizer.init(fnp.ones(1))._replace(count=most)
    _, state = optimizer.update(fnp.ones(1), state)
    assert int(state.count) == 2**31 - 1
