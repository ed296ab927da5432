"""debug.key_reuse: a random key may be used once."""

import numpy as np
import pytest

import fnx
from fnx import errors, random

SAMPLERS = [
    lambda key: random.bits(key, (3,)),
    lambda key: random.uniform(key, (3,)),
    lambda key: random.normal(key, (3,)),
    lambda key: random.truncated_normal(key, -1, 1, (3,)),
    lambda key: random.randint(key, (3,), 0, 9),
    lambda key: random.bernoulli(key, 0.5, (3,)),
    lambda key: random.exponential(key, (3,)),
    lambda key: random.gumbel(key, (3,)),
    lambda key: random.laplace(key, (3,)),
    lambda key: random.wald(key, 1.0, (3,)),
    lambda key: random.double_sided_maxwell(key, 0.0, 1.0, (3,)),
    lambda key: random.permutation(key, 5),
    lambda key: random.choice(key, 5, (3,)),
    lambda key: random.choice(key, 5, (3,), replace=False),
    lambda key: random.choice(key, 3, (2,), p=np.array([0.2, 0.3, 0.5])),
    lambda key: random.categorical(key, np.zeros(3)),
    random.split,
]
MAKERS = [random.key, random.PRNGKey]


def reused():
    return pytest.raises(errors.KeyReuseError)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("number", range(len(SAMPLERS)))
def test_every_sampler_uses_a_key_up_once(number, make):
    sample = SAMPLERS[number]
    with fnx.debug.key_reuse():
        key = make(0)
        sample(key)
        with reused():
            random.uniform(key)
    with fnx.debug.key_reuse():
        sample(make(0))
        fnx.jit(sample)(make(0))  # another array: it is made for a second use


def test_both_lines_are_named():
    with fnx.debug.key_reuse():
        key = random.key(0)
        random.normal(key)
        with reused() as info:
            random.uniform(key, (2,))
    text = str(info.value)
    assert "the key that uniform is given has been used: by normal" in text
    assert "random.normal(key)" in text
    assert "random.uniform(key, (2,))" in text


def test_what_is_derived_may_be_used():
    with fnx.debug.key_reuse():
        keys = random.split(random.key(0), 3)
        for key in keys[1:]:
            random.normal(key)
        random.normal(keys[0])
        with reused():
            random.normal(keys[0])
        with reused():
            random.split(keys[-3])


def test_fold_in_is_no_use_but_equal_ones_are_one_key():
    with fnx.debug.key_reuse():
        key = random.key(0)
        for step in range(3):
            random.normal(random.fold_in(key, step))
        random.normal(key)
        with reused():
            random.normal(random.fold_in(key, 1))


def test_a_clone_is_meant():
    for make in MAKERS:
        with fnx.debug.key_reuse():
            key = make(0)
            other = random.clone(key)
            assert random.normal(key) == random.normal(other)
            with reused():
                random.normal(other)


def test_loops_and_calls_under_jit():
    def body(key, _):
        return key, random.normal(key)

    @fnx.jit
    def f(key):
        return random.normal(key)

    key = random.key(0)
    fnx.lax.scan(body, key, None, 2)
    f(key), f(key)
    with fnx.debug.key_reuse():
        with reused():
            fnx.lax.scan(body, random.key(0), None, 2)
        f(key)
        with reused():
            f(key)

    def right(key, _):
        key, own = random.split(key)
        return key, random.normal(own)

    with fnx.debug.key_reuse():
        found = fnx.lax.scan(right, random.key(1), None, 3)[1]
    wanted = fnx.lax.scan(right, random.key(1), None, 3)[1]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_derivatives_see_the_key_from_outside():
    with fnx.debug.key_reuse():
        key = random.key(0)
        fnx.grad(lambda x: x * random.normal(key))(1.0)
        with reused():
            fnx.grad(lambda x, key: x * random.normal(key))(1.0, key)


def test_nothing_is_looked_at_outside():
    with fnx.debug.key_reuse():
        pass
    key = random.key(3)
    assert random.normal(key) == random.normal(key)
    assert random.clone(key) is key


def test_under_the_name_of_jax_it_can_be_turned_off_inside_of_itself():
    key = random.key(3)
    with fnx.debug_key_reuse(True):
        with fnx.debug_key_reuse(False):
            assert random.normal(key) == random.normal(key)
        random.normal(key)
        with pytest.raises(errors.KeyReuseError, match="has been used"):
            random.uniform(key)
    assert random.normal(key) == random.normal(key)
    with fnx.debug_key_reuse(False):
        assert random.normal(key) == random.normal(key)
