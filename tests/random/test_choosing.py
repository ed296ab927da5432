"""Permutations, choices and categories of `fnx.random` against JAX."""

from __future__ import annotations

import numpy as np
import pytest

from fnx import dtypes, errors, random
from tests.random.draws import equal, key, oracle, value


@oracle
@pytest.mark.parametrize("x", [1, 5, 100, 3000])
def test_permutation_of_numbers_is_that_of_jax(jax, x):
    with dtypes.default_dtypes(64):
        ours = random.permutation(key(11), x)
    equal(ours, jax.random.permutation(jax.random.PRNGKey(11), x))


@oracle
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("independent", [False, True])
def test_permutation_of_arrays_is_that_of_jax(jax, axis, independent):
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    ours = random.permutation(key(12), x, axis, independent)
    theirs = jax.random.permutation(jax.random.PRNGKey(12), x, axis, independent)
    equal(ours, theirs)
    row = x.reshape(-1)
    equal(
        random.permutation(key(12), row),
        jax.random.permutation(jax.random.PRNGKey(12), row),
    )


CHOICES = {
    "numbers": (10, (20,), {}),
    "one": (10, (), {}),
    "array": (np.arange(12, dtype=np.float32).reshape(4, 3), (2, 5), {}),
    "axis": (np.arange(12, dtype=np.float32).reshape(4, 3), (5,), {"axis": 1}),
    "distinct": (10, (2, 3), {"replace": False}),
    "distinct-rows": (np.arange(12.0).reshape(4, 3), (3,), {"replace": False}),
    "weighted": (4, (100,), {"p": np.float32([0.125, 0, 0.5, 0.375])}),
    "weighted-f64": (3, (50, 2), {"p": np.array([0.0, 0.25, 0.75])}),
    "weighted-array": (
        np.float32([7, 8, 9]),
        (20,),
        {"p": np.float32([0.5, 0.25, 0.25])},
    ),
    "weighted-distinct": (
        4,
        (3,),
        {"p": np.float32([0.25, 0, 0.5, 0.25]), "replace": False},
    ),
}


@oracle
@pytest.mark.parametrize("name", CHOICES)
def test_choice_is_that_of_jax(jax, name):
    a, shape, options = CHOICES[name]
    for seed in range(3):
        with dtypes.default_dtypes(64):
            ours = random.choice(key(seed), a, shape, **options)
        equal(ours, jax.random.choice(jax.random.PRNGKey(seed), a, shape, **options))


@oracle
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_categorical_is_that_of_jax(jax, axis):
    logits = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)
    batch = [n for i, n in enumerate(logits.shape) if i != axis % 3]
    theirs = jax.random.PRNGKey(13)
    with dtypes.default_dtypes(64):
        ours = random.categorical(key(13), logits, axis)
        equal(ours, jax.random.categorical(theirs, logits, axis))
        shape = (7, *batch)
        ours = random.categorical(key(13), logits, axis, shape)
        equal(ours, jax.random.categorical(theirs, logits, axis, shape))
    shape = (2, 2, *batch)
    options = {"axis": axis, "shape": shape, "replace": False}
    ours = random.categorical(key(13), logits, **options)
    equal(ours, jax.random.categorical(theirs, logits, **options))


def test_what_has_no_probability_is_never_drawn():
    logits = np.float32([0.0, -np.inf, 0.0])
    x = value(random.categorical(key(), logits, shape=(10_000,)))
    assert set(x.tolist()) == {0, 2}
    p = np.float32([0, 0.3, 0, 0.7, 0])
    x = value(random.choice(key(), 5, (10_000,), p=p))
    assert set(x.tolist()) == {1, 3}
    assert abs((x == 3).mean() - 0.7) < 0.02


def test_a_choice_without_replacement_has_no_repetition():
    x = value(random.choice(key(), 50, (50,), replace=False))
    assert sorted(x.tolist()) == list(range(50))


def test_choices_of_nothing():
    assert random.choice(key(), 5, (0, 2)).shape == (0, 2)
    rows = np.zeros((4, 3), np.float32)
    assert random.choice(key(), rows, (0,)).shape == (0, 3)
    assert random.permutation(key(), 0).shape == (0,)
    assert random.permutation(key(), 1).shape == (1,)


def test_invalid_choices():
    with pytest.raises(errors.ShapeError, match="draw fewer"):
        random.choice(key(), 3, (4,), replace=False)
    with pytest.raises(errors.ShapeError, match="nothing to choose"):
        random.choice(key(), 0, (4,))
    with pytest.raises(errors.ShapeError, match="3 elements to weigh"):
        random.choice(key(), 3, (4,), p=np.ones(4, np.float32))
    with pytest.raises(errors.AxisError, match="axis 2"):
        random.permutation(key(), np.zeros((2, 3)), 2)
    with pytest.raises(errors.ArgumentError, match="an integer or an array"):
        random.permutation(key(), 1.5)
    with pytest.raises(errors.DTypeError, match="logits are floats"):
        random.categorical(key(), np.zeros(3, np.int32))
    with pytest.raises(errors.ShapeError, match="does not fit"):
        random.categorical(key(), np.zeros((2, 3)), shape=(3,))
    with pytest.raises(errors.ShapeError, match="3 classes"):
        options = {"shape": (4,), "replace": False}
        random.categorical(key(), np.zeros(3), **options)
