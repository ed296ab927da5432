"""The transformations one by one, and how they chain."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim
from fnx.errors import ArgumentError, ShapeError, TreeError


def test_chain_applies_in_order():
    both = optim.chain(optim.scale(2.0), optim.clip(1.0))
    updates, state = both.update(fnp.array([0.25, 0.75]), both.init(None))
    np.testing.assert_array_equal(updates, [0.5, 1.0])
    assert state == (optim.EmptyState(), optim.EmptyState())


def test_a_chain_of_nothing_changes_nothing():
    nothing = optim.chain()
    assert nothing.update([1.0], nothing.init(None)) == ([1.0], ())


@pytest.mark.parametrize("state", [None, (), fnp.ones(2), {"w": fnp.ones(2)}])
def test_chain_refuses_what_init_did_not_make(state):
    optimizer = optim.sgd(0.1)
    with pytest.raises(ArgumentError, match=r"order of arguments is update\(updates,"):
        optimizer.update(fnp.ones(2), state)


def test_apply_updates_keeps_the_parameters_dtype():
    params = fnp.ones(2, "bfloat16")
    new = optim.apply_updates(params, fnp.full(2, 0.5))
    assert new.dtype == "bfloat16"
    np.testing.assert_array_equal(np.asarray(new, "float32"), [1.5, 1.5])


def test_apply_updates_never_broadcasts():
    with pytest.raises(ShapeError, match=r"at \['w'\]: params has shape \(2,\)"):
        optim.apply_updates({"w": fnp.ones(2)}, {"w": fnp.ones((3, 2))})


def test_apply_updates_names_the_place_of_a_difference():
    with pytest.raises(TreeError, match=r"at \['a'\]\['b'\]: only in params"):
        optim.apply_updates({"a": {"b": 1.0, "c": 1.0}}, {"a": {"c": 1.0}})


def test_errors_show_no_frame_of_fnx():
    with pytest.raises(TreeError) as caught:
        optim.apply_updates({"a": 1.0}, {"b": 1.0})
    files = [entry.path.parent.name for entry in caught.traceback]
    assert files == ["optim"]  # tests/optim


# ---------------------------------------------------------------- norms


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_global_norm(dtype):
    values = {"w": fnp.full((2, 2), 300.0, dtype), "b": fnp.array([800.0], dtype)}
    norm = optim.global_norm(values)  # the squares overflow 16 bits
    assert norm.dtype == ("float64" if dtype == "float64" else "float32")
    assert float(norm) == pytest.approx(1000.0, rel=1e-6)


def test_global_norm_of_nothing_is_zero():
    assert float(optim.global_norm({})) == 0


def test_global_norm_has_a_gradient_at_zero():
    np.testing.assert_array_equal(fnx.grad(optim.global_norm)(fnp.zeros(3)), 0)
    hessian = fnx.hessian(optim.global_norm)(fnp.zeros(2))
    assert fnp.isfinite(hessian).all()


def test_clip_by_global_norm():
    clip = optim.clip_by_global_norm(1.0)
    small = {"w": fnp.array([0.3]), "b": fnp.array([0.4])}
    unchanged, _ = clip.update(small, ())
    assert float(unchanged["w"][0]) == float(small["w"][0])
    assert float(unchanged["b"][0]) == float(small["b"][0])
    large = {"w": fnp.array([30.0]), "b": fnp.array([40.0])}
    clipped, _ = clip.update(large, ())
    np.testing.assert_allclose(clipped["w"], 0.6, rtol=1e-6)
    assert float(optim.global_norm(clipped)) == pytest.approx(1.0)
    nan, _ = clip.update({"w": fnp.array([np.nan]), "b": fnp.array([1.0])}, ())
    assert fnp.isnan(nan["w"]).all()


def test_clip_by_global_norm_of_16_bit_gradients():
    updates, _ = optim.clip_by_global_norm(1.0).update(fnp.full(4, 6e4, "float16"), ())
    np.testing.assert_allclose(np.asarray(updates, "float32"), 0.5, rtol=1e-3)


# ---------------------------------------------------------------- weight decay

PARAMS = {"a": {"w": fnp.ones((2, 2)), "b": fnp.ones(2)}, "c": fnp.ones(1)}
ZEROS = fnx.tree.map(fnp.zeros_like, PARAMS)


@pytest.mark.parametrize(
    ("mask", "decayed"),
    [
        (None, [True, True, True]),
        ({"a": {"w": True, "b": False}, "c": False}, [True, False, False]),
        ({"a": True, "c": False}, [True, True, False]),
        (False, [False, False, False]),
        (
            lambda params: fnx.tree.map(lambda p: p.ndim > 1, params),
            [True, False, False],
        ),
    ],
)
def test_masks(mask, decayed):
    decay = optim.add_decayed_weights(0.5, mask)
    updates, _ = decay.update(ZEROS, decay.init(PARAMS), PARAMS)
    found = [updates["a"]["w"], updates["a"]["b"], updates["c"]]
    assert [bool((x == 0.5).all()) for x in found] == decayed
    assert [bool((x == 0).all()) for x in found] == [not d for d in decayed]


def test_a_mask_of_another_structure():
    decay = optim.add_decayed_weights(0.5, {"a": True})
    with pytest.raises(TreeError, match=r"add_decayed_weights: mask"):
        decay.update(ZEROS, decay.init(PARAMS), PARAMS)


def test_a_mask_holds_booleans():
    decay = optim.adamw(0.1, mask={"a": True, "c": 1.0})
    with pytest.raises(ArgumentError, match=r"adamw: mask .* for params\['c'\]"):
        decay.update(ZEROS, decay.init(PARAMS), PARAMS)


def test_weight_decay_needs_the_parameters():
    optimizer = optim.adamw(0.1)
    with pytest.raises(ArgumentError, match=r"adamw: weight decay needs the param"):
        optimizer.update(ZEROS, optimizer.init(PARAMS))


def test_decay_by_a_schedule_counts_from_0():
    decay = optim.add_decayed_weights(lambda count: 1.0 * count)
    state = decay.init(PARAMS)
    for count in range(3):
        updates, state = decay.update(ZEROS, state, PARAMS)
        assert float(updates["c"][0]) == count
