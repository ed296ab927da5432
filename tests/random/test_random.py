"""`fnx.random`: the same bits as JAX.

Keys, bits, uniform numbers, integers and booleans are equal to JAX's; so are the
permutations of `test_choosing.py`. The samples of `test_distributions.py` agree to the
accuracy of the functions that they are made of.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import fnx
from fnx import dtypes, errors, random, tree
from fnx.core.primitive import MappedAxis
from fnx.core.trace import trace
from fnx.core.types import array_type
from fnx.random.counters import counters
from fnx.runtime.array import from_numpy
from fnx.transforms.batch import map_over
from fnx.transforms.jvp import push_forward
from tests.random.draws import (
    SEEDS,
    close,
    equal,
    floats,
    integers,
    key,
    oracle,
    shapes,
    value,
)

# ---------------------------------------------------------------- keys


@oracle
@pytest.mark.parametrize("seed", SEEDS)
def test_keys_are_those_of_jax(jax, seed):
    ours, theirs = key(seed), jax.random.PRNGKey(seed)
    equal(ours, theirs)
    equal(random.split(ours), jax.random.split(theirs))
    equal(random.split(ours, 5), jax.random.split(theirs, 5))
    equal(random.split(ours, (2, 3)), jax.random.split(theirs, (2, 3)))
    equal(random.split(ours, 0), jax.random.split(theirs, 0))
    for data in (0, 1, 12345, 2**32 - 1):
        equal(random.fold_in(ours, data), jax.random.fold_in(theirs, data))


@oracle
@pytest.mark.parametrize(
    "seed",
    [
        -1,
        2**40 + 3,
        np.int64(-5),
        np.int32(-5),
        np.int8(-5),
        np.uint64(2**63),
        np.uint8(7),
    ],
    ids=repr,
)
def test_wide_and_negative_seeds_are_those_of_jax(jax, seed):
    """The oracle runs with 64-bit types, so ours are switched on."""
    with dtypes.default_dtypes(64):
        equal(key(seed), jax.random.PRNGKey(seed))


def test_a_python_seed_counts_modulo_2_to_the_32_by_default():
    np.testing.assert_array_equal(value(key(-1)), [0, 2**32 - 1])
    np.testing.assert_array_equal(value(key(2**40 + 3)), [0, 3])
    np.testing.assert_array_equal(value(key(np.int64(2**40 + 3))), [256, 3])


def test_typed_and_bare_keys_give_the_same_numbers():
    bare, typed = key(7), random.key(7)
    equal(random.key_data(typed), bare)
    equal(random.key_data(bare), bare)
    equal(random.uniform(typed, (3,)), random.uniform(bare, (3,)))
    split = random.split(typed, 3)
    assert isinstance(split, random.Key)
    equal(random.key_data(split), random.split(bare, 3))
    folded = random.fold_in(typed, 5)
    equal(random.key_data(folded), random.fold_in(bare, 5))
    wrapped = random.wrap_key_data(random.split(bare))
    equal(wrapped.words, random.split(bare))
    assert random.clone(typed) is typed
    assert random.key_impl(typed) == random.key_impl(bare) == "threefry2x32"


def test_an_array_of_keys_is_a_sequence_with_a_shape():
    keys = random.split(random.key(0), (2, 3))
    assert (keys.shape, keys.ndim, keys.size, len(keys)) == ((2, 3), 2, 6, 2)
    rows = list(keys)
    assert [k.shape for k in rows] == [(3,), (3,)]
    equal(rows[1].words, value(keys.words)[1])
    assert keys.reshape(6).shape == keys.reshape((6,)).shape == (6,)
    assert value(keys == keys).tolist() == [[True] * 3] * 2
    other = random.split(random.key(1), (2, 3))
    assert not value(keys == other).any()
    assert (keys == 3) is False
    with pytest.raises(TypeError, match="no length"):
        len(random.key(0))
    assert "threefry2x32" in repr(keys)


def test_a_key_is_a_tree_with_its_words_as_the_leaf():
    typed = random.key(3)
    leaves, structure = tree.flatten({"key": typed})
    (words,) = leaves
    equal(words, key(3))
    again = structure.unflatten(leaves)["key"]
    assert isinstance(again, random.Key)
    ((path, _),) = tree.leaves_with_path({"key": typed})
    assert tree.keystr(path) == "['key'].words"


def test_invalid_keys_and_seeds():
    with pytest.raises(errors.ArgumentError, match="a key is a Key, or a uint32"):
        random.uniform(np.zeros(2, np.int32))
    with pytest.raises(errors.ArgumentError, match=r"the key is u32\[3\]"):
        random.uniform(np.zeros(3, np.uint32))
    with pytest.raises(errors.ShapeError, match="array of keys of shape"):
        random.normal(random.split(key()))
    with pytest.raises(errors.ShapeError, match=r"fnx\.vmap"):
        random.split(random.split(random.key(0)))
    with pytest.raises(errors.ArgumentError, match="single integer"):
        random.key(np.zeros(2, np.int32))
    with pytest.raises(errors.ArgumentError, match="convert it"):
        random.key(1.5)
    with pytest.raises(errors.ArgumentError, match="not a key"):
        random.key(random.key(0))
    with pytest.raises(errors.OptionError, match="more than 64 bits"):
        random.key(2**64)
    with pytest.raises(errors.OptionError, match="one generator"):
        random.key(0, impl="rbg")
    with pytest.raises(errors.OptionError, match="modulo"):
        random.fold_in(key(), -1)
    with pytest.raises(errors.ArgumentError, match="single integer"):
        random.fold_in(key(), 0.5)


# ---------------------------------------------------------------- bits and uniform


@oracle
@shapes
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_bits_are_those_of_jax(jax, shape, dtype):
    for seed in SEEDS:
        ours = random.bits(key(seed), shape, dtype)
        equal(ours, jax.random.bits(jax.random.PRNGKey(seed), shape, dtype))


def test_the_default_width_of_bits():
    assert random.bits(key()).dtype == np.uint32
    with dtypes.default_dtypes(64):
        assert random.bits(key()).dtype == np.uint64


@oracle
@shapes
@floats
def test_uniform_is_that_of_jax(jax, shape, dtype):
    for seed in SEEDS:
        ours = random.uniform(key(seed), shape, dtype)
        equal(ours, jax.random.uniform(jax.random.PRNGKey(seed), shape, dtype))


@oracle
@floats
@pytest.mark.parametrize("bounds", [(0.0, 2.0), (-1.0, 1.0), (2.0, 4.0), (3.0, 3.0)])
def test_uniform_between_bounds_is_that_of_jax(jax, dtype, bounds):
    ours = random.uniform(key(), (1000,), dtype, *bounds)
    equal(ours, jax.random.uniform(jax.random.PRNGKey(0), (1000,), dtype, *bounds))


@oracle
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_between_any_bounds_is_that_of_jax_to_rounding(jax, dtype):
    low = np.linspace(-3, 3, 50).astype(dtype)[:, None]
    high = np.geomspace(4, 1e6, 40).astype(dtype)
    ours = random.uniform(key(), (50, 40), dtype, low, high)
    theirs = jax.random.uniform(jax.random.PRNGKey(0), (50, 40), dtype, low, high)
    scale = float(np.finfo(dtype).eps) * (high - low)
    assert (np.abs(value(ours) - np.asarray(theirs)) <= 2 * scale).all()


@floats
def test_uniform_never_reaches_the_upper_bound(dtype):
    high = np.nextafter(np.asarray(1, dtype), np.asarray(2, dtype))
    x = value(random.uniform(key(), (20_000,), dtype, 1.0, high))
    assert (x == 1).all()
    wide = value(random.uniform(key(), (20_000,), dtype, -1.0, 300.0))
    assert (wide < 300).all() and (wide >= -1).all()


def test_uniform_of_an_empty_interval_is_its_lower_end():
    x = value(random.uniform(key(), (100,), "float32", 2.0, 1.0))
    assert (x == 2).all()


def test_bounds_broadcast():
    low = np.float32([[0.0], [10.0]])
    x = value(random.uniform(key(), (2, 3), "float32", low, 20.0))
    assert (x[1] >= 10).all()
    with pytest.raises(errors.ShapeError, match=r"minval: f32\[2,1\]"):
        random.uniform(key(), (3,), "float32", low)


# ---------------------------------------------------------------- integers


@oracle
@integers
def test_randint_is_that_of_jax(jax, dtype):
    shape = (3, 5)
    for low, high in ((0, 10), (3, 4), (5, 5), (7, 2), (0, 127), (1, 100)):
        ours = random.randint(key(1), shape, low, high, dtype)
        theirs = jax.random.randint(jax.random.PRNGKey(1), shape, low, high, dtype)
        equal(ours, theirs)


@oracle
@integers
def test_randint_over_all_numbers_is_that_of_jax(jax, dtype):
    info = np.iinfo(dtype)
    bounds = [
        (int(info.min), int(info.max)),
        (0, int(info.max)),
        (int(info.max) - 3, int(info.max)),
    ]
    if info.bits < 64:
        bounds += [(int(info.min), int(info.max) + 1), (0, int(info.max) + 1)]
    for low, high in bounds:
        ours = random.randint(key(1), (100,), low, high, dtype)
        # As arrays, since JAX takes no Python integers beyond int64.
        low, high = [np.asarray(n, wide_type(n)) for n in (low, high)]
        theirs = jax.random.randint(jax.random.PRNGKey(1), (100,), low, high, dtype)
        equal(ours, theirs)
        equal(random.randint(key(1), (100,), low, high, dtype), theirs)


def wide_type(n):
    return np.uint64 if n >= 2**63 else np.int64


@oracle
@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("bound", ["int32", "uint64"])
def test_randint_between_arrays_is_that_of_jax(jax, dtype, bound):
    low = np.array([[0], [5], [100]], bound)
    high = np.array([1, 6, 50, 120], bound)
    ours = random.randint(key(2), (3, 4), low, high, dtype)
    theirs = jax.random.randint(jax.random.PRNGKey(2), (3, 4), low, high, dtype)
    equal(ours, theirs)


def test_randint_of_all_unsigned_numbers_uses_every_bit():
    x = value(random.randint(key(), (1000,), 0, 2**64, "uint64"))
    assert x.min() < 2**60 and x.max() > 2**64 - 2**60


def test_randint_is_uniform():
    x = value(random.randint(key(), (60_000,), -2, 4))
    assert x.dtype == np.int32
    counts = np.bincount(x + 2, minlength=6)
    assert stats.chisquare(counts).pvalue > 0.01


def test_invalid_integers():
    with pytest.raises(errors.DTypeError, match="integer dtypes"):
        random.randint(key(), (), 0, 2, "float32")
    with pytest.raises(errors.DTypeError, match="minval"):
        random.randint(key(), (), 0.5, 2)
    with pytest.raises(errors.ShapeError, match="broadcast"):
        random.randint(key(), (3,), np.zeros((2, 1), np.int32), 2)
    with pytest.raises(errors.DTypeError, match="unsigned"):
        random.bits(key(), (), "int32")
    with pytest.raises(errors.ShapeError, match="made of integers"):
        random.bits(key(), (2.5,))
    with pytest.raises(errors.ShapeError, match="negative"):
        random.bits(key(), (-1,))


@oracle
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("mode", ["low", "high"])
def test_bernoulli_is_that_of_jax(jax, dtype, mode):
    shape = (3, 5)
    for p in (0.0, 0.3, 0.5, 1.0):
        probability = np.asarray(p, dtype)
        ours = random.bernoulli(key(3), probability, shape, mode)
        theirs = jax.random.bernoulli(
            jax.random.PRNGKey(3), probability, shape, mode=mode
        )
        equal(ours, theirs)


def test_bernoulli_takes_the_shape_of_its_probabilities():
    p = np.float32([[0.0, 1.0, 0.0]])
    assert value(random.bernoulli(key(), p)).tolist() == [[False, True, False]]
    assert random.bernoulli(key()).shape == ()
    with pytest.raises(errors.DTypeError, match="a probability is a float"):
        random.bernoulli(key(), 1)
    with pytest.raises(errors.OptionError, match="mode"):
        random.bernoulli(key(), mode="best")


@oracle
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_rademacher_is_that_of_jax(jax, dtype):
    with dtypes.default_dtypes(64):
        ours = random.rademacher(key(4), (50,), dtype)
    equal(ours, jax.random.rademacher(jax.random.PRNGKey(4), (50,), dtype))


# ---------------------------------------------------------------- transformations


MAPPED = {
    "split": lambda k: random.split(k, 3),
    "fold_in": lambda k: random.fold_in(k, 3),
    "bits": lambda k: random.bits(k, (2, 3)),
    "uniform": lambda k: random.uniform(k, (4,), "float32", -1.0, 2.0),
    "normal": lambda k: random.normal(k, (4,)),
    "randint": lambda k: random.randint(k, (4,), 0, 1000),
    "permutation": lambda k: random.permutation(k, 10),
    "choice": lambda k: random.choice(k, 4, (5,), p=np.float32([0.25, 0.5, 0.25, 0])),
    "categorical": lambda k: random.categorical(k, np.zeros((2, 3), np.float32)),
}


@pytest.mark.parametrize("name", MAPPED)
def test_samples_of_many_keys_are_those_of_each(name):
    """Traced and batched over keys, the bits are those of eager calls."""
    sample = MAPPED[name]
    keys = random.split(key(14), 3)
    traced = trace(lambda k: [sample(k)], [array_type((2,), "uint32")])
    inputs = [*traced.captured, keys]
    mapped = [False] * len(traced.captured) + [True]
    (got,), flags = map_over(traced.program, MappedAxis(None, 3), inputs, mapped)
    assert flags == [True]
    for n in range(3):
        one = from_numpy(np.array(value(keys)[n]))
        equal(value(got)[n], sample(one))


@pytest.mark.parametrize("name", MAPPED)
def test_compiled_samples_are_the_eager_ones(name):
    sample = MAPPED[name]
    ours, eager = fnx.jit(sample)(key(15)), sample(key(15))
    if name == "normal":  # the compiled logarithm and NumPy's differ by an ulp
        close(ours, value(eager), 4)
    else:
        equal(ours, eager)


def test_typed_keys_go_through_transformations():
    typed = random.key(16)
    keys = fnx.jit(random.split, static_argnums=1)(typed, 4)
    assert isinstance(keys, random.Key) and keys.shape == (4,)
    equal(keys.words, random.split(typed, 4).words)
    mapped = fnx.vmap(lambda k: random.uniform(k, (2,)))(keys)
    equal(mapped, np.stack([value(random.uniform(k, (2,))) for k in keys]))
    assert keys[1].shape == () and keys[1:].shape == keys[..., 1:].shape == (3,)
    grad = fnx.grad(lambda scale, k: random.normal(k) * scale)(2.0, typed)
    equal(grad, random.normal(typed))


def test_bare_keys_can_be_unpacked():
    first, second = random.split(key(17))
    np.testing.assert_array_equal(value(random.split(key(17)))[0], value(first))
    assert second.shape == (2,)


def test_samples_move_with_their_parameters():
    """The derivative of a sample with respect to a bound (the reparameterisation)."""

    def sample(low, high):
        return [random.uniform(key(), (100,), "float64", low, high)]

    traced = trace(sample, [array_type((), "float64")] * 2)
    low, high, t = [from_numpy(np.array(x)) for x in (1.0, 3.0, 1.0)]
    unit = value(random.uniform(key(), (100,), "float64"))
    for moving, want in (([t, None], 1 - unit), ([None, t], unit)):
        inputs = [*traced.captured, low, high]
        tangents = [*[None] * len(traced.captured), *moving]
        _, (got,) = push_forward(traced.program, inputs, tangents)
        np.testing.assert_allclose(value(got), want, 1e-12)


def test_a_stream_does_not_depend_on_the_shape():
    """Element number n is the hash of n: reshaping changes nothing."""
    flat = value(random.bits(key(), (12,)))
    np.testing.assert_array_equal(value(random.bits(key(), (3, 4))).ravel(), flat)
    np.testing.assert_array_equal(value(random.bits(key(), (5,))), flat[:5])


def test_counters_beyond_32_bits():

    def last(shape):
        traced = trace(lambda: list(counters(shape)), ())
        return [atom.type.shape for atom in traced.program.outputs]

    huge = (2**20, 2**13)
    assert last(huge) == [huge, huge]
    assert math.prod(huge) > 2**32
