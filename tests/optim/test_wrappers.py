"""Transformations that hold others: what they pass on, keep, and refuse."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim, tree
from fnx.errors import ArgumentError, OptionError, TreeError

PARAMS = {"w": fnp.array([[1.0, -2.0], [3.0, 0.5]]), "b": fnp.array([2.0, -1.0])}
GRADS = tree.map(lambda p: p / 2, PARAMS)
W_ONLY = {"w": True, "b": False}


def equal(found, expected):
    assert tree.structure(found) == tree.structure(expected)
    for x, y in zip(tree.leaves(found), tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)


# ---------------------------------------------------------------- extra arguments


def takes_value():
    def update(updates, state, params=None, *, value, **extra_args):
        return tree.map(lambda g: g * value, updates), state

    return optim.GradientTransformationExtraArgs(lambda p: (), update)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tx: tx,
        lambda tx: optim.chain(optim.scale(1.0), tx),
        lambda tx: optim.named_chain(("first", optim.scale(1.0)), ("second", tx)),
        lambda tx: optim.masked(tx, {"w": True, "b": True}),
        lambda tx: optim.partition({"all": tx}, "all"),
        lambda tx: optim.MultiSteps(tx, 1).gradient_transformation(),
        lambda tx: optim.apply_if_finite(tx, 1),
        lambda tx: optim.conditionally_transform(tx, lambda step: step == 0),
        lambda tx: optim.conditionally_mask(tx, lambda step: step == 0),
        lambda tx: optim.flatten(tx),
        lambda tx: optim.inject_hyperparams(lambda: tx)(),
    ],
)
def test_extra_arguments_reach_who_takes_them(wrap):
    wrapped = wrap(takes_value())
    update = fnx.jit(wrapped.update)
    updates, _ = update(GRADS, wrapped.init(PARAMS), PARAMS, value=3.0, other=1.0)
    equal(updates, tree.map(lambda g: 3 * g, GRADS))


def test_named_chain_keeps_states_by_name():
    both = optim.named_chain(("sum", optim.trace(0.5)), ("rate", optim.scale(-1.0)))
    updates, state = both.update(GRADS, both.init(PARAMS))
    equal(updates, tree.map(lambda g: -g, GRADS))
    equal(state["sum"].trace, GRADS)
    with pytest.raises(OptionError, match="named_chain: 'a' is the name of two"):
        optim.named_chain(("a", optim.scale(1.0)), ("a", optim.scale(2.0)))


# ---------------------------------------------------------------- masks and labels


def test_masked_transforms_and_remembers_only_what_is_let_through():
    inner = optim.masked(optim.trace(1.0), W_ONLY)
    state = inner.init(PARAMS)
    assert isinstance(state.inner_state.trace["b"], optim.MaskedNode)
    for times in (1, 2):
        updates, state = inner.update(GRADS, state, PARAMS)
        equal(updates, {"w": times * GRADS["w"], "b": GRADS["b"]})


def test_masked_extra_arguments():
    def update(updates, state, params=None, *, weights, **extra_args):
        return tree.map(lambda g, x: g * x, updates, weights), state

    inner = optim.GradientTransformationExtraArgs(lambda p: (), update)
    wrapped = optim.masked(inner, W_ONLY, mask_compatible_extra_args=True)
    updates, _ = wrapped.update(GRADS, wrapped.init(PARAMS), PARAMS, weights=PARAMS)
    equal(updates, {"w": GRADS["w"] * PARAMS["w"], "b": GRADS["b"]})


def test_masks_within_masks():
    inner = optim.masked(optim.masked(optim.scale(2.0), W_ONLY), {"w": True, "b": True})
    updates, _ = inner.update(GRADS, inner.init(PARAMS))
    equal(updates, {"w": 2 * GRADS["w"], "b": GRADS["b"]})


def test_partition_gives_each_its_own():
    labels = {"w": "adam", "b": "sgd"}
    transforms = {"adam": optim.adam(0.1), "sgd": optim.sgd(0.5)}
    both = optim.multi_transform(transforms, labels)
    state = both.init(PARAMS)
    for _ in range(2):
        updates, state = both.update(GRADS, state, PARAMS)
    alone = optim.adam(0.1)
    alone_state = alone.init(PARAMS["w"])
    for _ in range(2):
        step, alone_state = alone.update(GRADS["w"], alone_state)
    equal(updates, {"w": step, "b": -0.5 * GRADS["b"]})


def test_partition_refuses_other_labels():
    wrong = optim.partition({"sgd": optim.sgd(0.5)}, {"w": "sgd", "b": "adam"})
    with pytest.raises(OptionError, match=r"params\['b'\] has the label 'adam', which"):
        wrong.init(PARAMS)
    with pytest.raises(TreeError, match="partition: param_labels"):
        optim.partition({"sgd": optim.sgd(0.5)}, {"w": "sgd"}).init(PARAMS)
    with pytest.raises(ArgumentError, match=r"partition: transforms\['sgd'\] must"):
        optim.partition({"sgd": optim.sgd}, "sgd")


def test_frozen_parameters():
    frozen = {"w": False, "b": True}
    zero = fnp.zeros(2)
    updates, _ = optim.freeze(frozen).update(GRADS, optim.freeze(frozen).init(PARAMS))
    equal(updates, {"w": GRADS["w"], "b": zero})
    half = optim.selective_transform(optim.trace(0.5), freeze_mask=frozen)
    updates, state = half.update(GRADS, half.init(PARAMS))
    equal(updates, {"w": GRADS["w"], "b": zero})
    equal(tree.leaves(state.inner_states["trained"]), [GRADS["w"]])


# ---------------------------------------------------------------- some steps only


@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize("jit", [True, False])
def test_multi_steps_is_one_step_of_all(mean, jit):
    many = [tree.map(lambda p, i=i: p + i, GRADS) for i in range(6)]
    every = optim.MultiSteps(optim.adam(0.1), 3, use_grad_mean=mean)
    update = fnx.jit(every.update) if jit else every.update
    state, given = every.init(PARAMS), []
    for g in many:
        updates, state = update(g, state, PARAMS)
        given.append(updates)
        assert bool(every.has_updated(state)) == (len(given) % 3 == 0)
    once = optim.adam(0.1)
    once_state = once.init(PARAMS)
    for start in (0, 3):
        total = tree.map(lambda a, b, c: a + b + c, *many[start : start + 3])
        total = tree.map(lambda x: x / 3, total) if mean else total
        expected, once_state = once.update(total, once_state)
        equal(given[start + 2], expected)
        zeros = tree.map(fnp.zeros_like, GRADS)
        equal(given[start : start + 2], [zeros, zeros])


def test_multi_steps_by_a_schedule():
    every = optim.MultiSteps(optim.sgd(1.0), lambda made: 1 + made)
    state, told = every.init(PARAMS), []
    for _ in range(6):
        _, state = every.update(GRADS, state, PARAMS)
        told.append(bool(every.has_updated(state)))
    assert told == [True, False, True, False, False, True]


@pytest.mark.parametrize(
    "skip",
    [
        optim.skip_not_finite,
        functools.partial(optim.skip_large_updates, max_squared_norm=1e4),
    ],
)
def test_multi_steps_skips(skip):
    every = optim.MultiSteps(optim.sgd(1.0), 2, should_skip_update_fn=skip)
    state = every.init(PARAMS)
    bad = GRADS | {"b": fnp.array([np.nan, 1.0])}
    for g, mini_step in ((GRADS, 1), (bad, 1), (GRADS, 0)):
        updates, state = every.update(g, state, PARAMS)
        assert int(state.mini_step) == mini_step
        assert bool(state.skip_state["should_skip"]) == (g is bad)
    equal(updates, tree.map(lambda g: -g, GRADS))


def test_sums_of_16_bit_gradients_are_kept_in_float32():
    every = optim.MultiSteps(optim.identity(), 1000, use_grad_mean=False)
    params = fnp.zeros(1, "bfloat16")
    state, update = every.init(params), fnx.jit(every.update)
    for _ in range(1000):
        updates, state = update(fnp.ones(1, "bfloat16"), state, params)
    assert float(updates[0]) == 1000


def test_apply_if_finite():
    safe = optim.apply_if_finite(optim.trace(1.0), max_consecutive_errors=2)
    update = fnx.jit(safe.update)
    bad = GRADS | {"b": fnp.array([np.inf, 1.0])}
    state, counts = safe.init(PARAMS), []
    for g in (GRADS, bad, bad, GRADS):
        updates, state = update(g, state)
        counts.append(int(state.notfinite_count))
        assert bool(state.last_finite) == (g is GRADS)
    assert counts == [0, 1, 2, 0]
    assert int(state.total_notfinite) == 2
    equal(updates, tree.map(lambda g: 2 * g, GRADS))
    for refused in (True, True, False):
        updates, state = update(bad, state)
        assert bool(fnp.isfinite(updates["b"]).all()) == refused


def test_conditions_see_the_extra_arguments():
    inner = optim.conditionally_mask(
        optim.scale(2.0), lambda step, value: value < 1.0, forward_extra_args=True
    )
    state = inner.init(PARAMS)
    for value, factor in ((0.5, 2.0), (1.5, 0.0)):
        updates, state = inner.update(GRADS, state, PARAMS, value=value)
        equal(updates, tree.map(lambda g, f=factor: f * g, GRADS))
    assert int(state.step) == 2


# ---------------------------------------------------------------- others


def test_injected_hyperparameters_change_without_compiling():
    factory = optim.inject_hyperparams(optim.adamw, static_args="mask")
    optimizer = factory(lambda count: 0.1 / (1 + count), weight_decay=0.0, mask=None)
    state = optimizer.init(PARAMS)
    names = {"learning_rate", "b1", "b2", "eps", "eps_root", "weight_decay"}
    assert state.hyperparams.keys() == names
    step = fnx.jit(optimizer.update)
    seen = []
    for decay in (0.0, 0.5):
        state.hyperparams["weight_decay"] = fnp.array(decay, "float32")
        updates, state = step(GRADS, state, PARAMS)
        seen.append(float(state.hyperparams["learning_rate"]))
    np.testing.assert_allclose(seen, [0.1, 0.05], rtol=1e-6)
    assert step.cache_info().misses == 1
    direct = optim.adamw(0.05, weight_decay=0.5)
    direct_state = direct.init(PARAMS)
    for _ in range(2):
        expected, direct_state = direct.update(GRADS, direct_state, PARAMS)
    equal(updates, expected)


def test_injected_values_are_checked():
    optimizer = optim.inject_hyperparams(optim.sgd)(0.1)
    state = optimizer.init(PARAMS)
    state.hyperparams["learning_rate"] = fnp.array(-1.0)
    with pytest.raises(OptionError, match="sgd: learning_rate must be"):
        optimizer.update(GRADS, state)
    with pytest.raises(ArgumentError, match="static_args has 'rate', which is no par"):
        optim.inject_hyperparams(optim.sgd, static_args=("rate",))


def test_hyperparameters_of_one_dtype():
    optimizer = optim.inject_hyperparams(optim.adam, hyperparam_dtype="float64")(0.1)
    state = optimizer.init(PARAMS)
    assert {x.dtype for x in tree.leaves(state.hyperparams)} == {np.dtype("float64")}
    updates, _ = optimizer.update(GRADS, state)
    assert {x.dtype for x in tree.leaves(updates)} == {np.dtype("float32")}


@pytest.mark.parametrize("reset", [True, False])
def test_lookahead_starts_anew(reset):
    ahead = optim.lookahead(optim.sgd(1.0, momentum=1.0), 2, 0.5, reset_state=reset)
    params = optim.LookaheadParams.init_synced(fnp.zeros(1))
    state, update = ahead.init(params), fnx.jit(ahead.update)
    for _ in range(4):
        updates, state = update(fnp.ones(1), state, params)
        params = optim.apply_updates(params, updates)
    # the fast ones go 1 and 2 further, or 3 and 4 with the old momentum: half of it
    expected = -3.0 if reset else -1.5 - 3.5
    equal(params, optim.LookaheadParams(*[fnp.array([expected])] * 2))
    with pytest.raises(ArgumentError, match="params must be a LookaheadParams"):
        ahead.init(fnp.zeros(1))


def test_flatten_makes_norms_those_of_the_whole():
    whole = optim.flatten(optim.scale_by_trust_ratio())
    updates, _ = whole.update(GRADS, whole.init(PARAMS), PARAMS)
    equal(updates, tree.map(lambda g: 2 * g, GRADS))


def test_zero_nans_and_nonnegative_params():
    bad = GRADS | {"b": fnp.array([np.nan, -3.0])}
    clean = optim.zero_nans()
    updates, state = clean.update(bad, clean.init(PARAMS))
    equal(updates["b"], fnp.array([0.0, -3.0]))
    assert tree.map(bool, state.found_nan) == {"w": False, "b": True}
    keep = optim.keep_params_nonnegative()
    params = fnp.array([1.0, 0.0, 2.0])
    updates, state = keep.update(
        fnp.array([-2.0, -1.0, -1.0]), keep.init(params), params
    )
    equal(optim.apply_updates(params, updates), fnp.array([0.0, 0.0, 1.0]))


def test_noise_shrinks_and_is_new_each_time():
    noise = optim.add_noise(eta=1.0, gamma=1.0, key=3)
    zeros = {"a": fnp.zeros(4000), "b": fnp.zeros(4000)}
    state, update, seen = noise.init(zeros), fnx.jit(noise.update), []
    for _ in range(4):
        updates, state = update(zeros, state)
        seen += [np.asarray(updates["a"]), np.asarray(updates["b"])]
    deviations = np.repeat([1 / (1 + t) ** 0.5 for t in range(4)], 2)
    np.testing.assert_allclose([x.std() for x in seen], deviations, rtol=0.05)
    correlations = np.corrcoef(seen) - np.eye(8)
    assert abs(correlations).max() < 0.06
    for wrong in ({}, {"key": 0, "seed": 1}):
        with pytest.raises(ArgumentError, match="add_noise: give the key"):
            optim.add_noise(1.0, 1.0, **wrong)


def test_noise_is_that_of_optax():
    """Of `random.key`: the following key and that of all leaves, then one for each."""
    noise = optim.add_noise(eta=4.0, gamma=1.0, key=3)
    state = noise.init(PARAMS)
    for step in range(2):
        following, drawn = fnx.random.split(state.rng_key)
        leaves, treedef = tree.flatten(GRADS)
        keys = fnx.random.split(drawn, len(leaves))
        wanted = [
            g + 2 / (1 + step) ** 0.5 * fnx.random.normal(key, g.shape)
            for g, key in zip(leaves, keys, strict=True)
        ]
        updates, state = noise.update(GRADS, state)
        equal(updates, tree.unflatten(treedef, wanted))
        assert np.array_equal(state.rng_key.words, following.words)


def test_polyak_step():
    polyak = optim.polyak_sgd(max_learning_rate=10.0, f_min=1.0)
    params = fnp.array([3.0, 4.0])
    value, grads = fnx.value_and_grad(lambda p: (p**2).sum() + 1)(params)
    updates, _ = polyak.update(grads, polyak.init(params), params, value=value)
    np.testing.assert_allclose(updates, -params / 2, rtol=1e-6)
    with pytest.raises(ArgumentError, match="polyak_sgd: the step needs the loss"):
        polyak.update(grads, polyak.init(params), params)
    plus = optim.scale_by_polyak(f_min=1e6, variant="sps+")
    updates, _ = plus.update(grads, plus.init(params), params, value=value)
    np.testing.assert_array_equal(updates, 0)


# ---------------------------------------------------------------- functions


def test_incremental_and_periodic_updates():
    new, old = tree.map(lambda p: p + 1, PARAMS), PARAMS
    equal(
        optim.incremental_update(new, old, 0.25), tree.map(lambda p: p + 0.25, PARAMS)
    )
    for count, expected in ((4, old), (6, new)):
        found = fnx.jit(lambda n: optim.periodic_update(new, old, n, 3))(count)
        equal(found, expected)


def test_per_example_clipping():
    rng = np.random.default_rng(0)
    grads = [rng.normal(size=(5, 3, 2)), rng.normal(size=(5, 4))]
    sums, clipped = optim.per_example_global_norm_clip(grads, 2.0)
    norms = [np.sqrt(sum((g[i] ** 2).sum() for g in grads)) for i in range(5)]
    factors = [min(1, 2.0 / norm) for norm in norms]
    assert int(clipped) == sum(norm > 2.0 for norm in norms)
    for found, g in zip(sums, grads, strict=True):
        expected = sum(factor * one for factor, one in zip(factors, g, strict=True))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    sums, clipped = optim.per_example_layer_norm_clip(grads, 2.0, uniform=False)
    for found, g, limit in zip(sums, grads, 2 * np.sqrt([0.6, 0.4]), strict=True):
        norms = [np.sqrt((one**2).sum()) for one in g]
        expected = sum(one * min(1, limit / n) for one, n in zip(g, norms, strict=True))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    with pytest.raises(fnx.errors.ShapeError, match="different numbers of examples"):
        optim.per_example_global_norm_clip([np.ones((2, 3)), np.ones((3, 3))], 1.0)


def test_gradients_of_norms_at_zero_and_scaled_gradients():
    zeros = fnp.zeros(3)
    for f in (
        lambda x: optim.safe_norm(x, 0.1),
        lambda x: optim.safe_norm(x, 0.1, ord=1),
        lambda x: optim.safe_root_mean_squares(x, 0.1),
    ):
        assert float(f(zeros)) == pytest.approx(0.1)
        np.testing.assert_array_equal(fnx.grad(f)(zeros), 0)
    x = fnp.array([3.0, -4.0])
    assert float(optim.safe_norm(x, 0.0, ord=np.inf)) == 4
    slope = fnx.grad(lambda x: (optim.scale_gradient(x, 0.3) ** 2).sum())(x)
    np.testing.assert_allclose(slope, 0.6 * np.asarray(x), rtol=1e-6)


def test_counts_stay_at_the_largest():
    for dtype, most in (("uint8", 255), ("int32", 2**31 - 1)):
        assert int(optim.safe_increment(fnp.array(most, dtype))) == most
        assert int(optim.safe_increment(fnp.array(most - 1, dtype))) == most


def test_moments_of_trees():
    g, m = {"a": fnp.array([2.0])}, {"a": fnp.array([1.0])}
    equal(optim.update_moment(g, m, 0.75, 3), {"a": fnp.array([0.75 + 2.0])})
    equal(optim.update_infinity_moment(g, m, 0.5, 0.5), {"a": fnp.array([2.5])})
    equal(optim.bias_correction(m, 0.5, 2), {"a": fnp.array([4 / 3])})
    found = optim.update_moment_per_elem_norm({"a": fnp.array([3 + 4j])}, m, 0.0, 4)
    equal(found, {"a": fnp.array([625.0])})
