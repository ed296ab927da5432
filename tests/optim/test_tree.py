"""fnx.optim.tree: arithmetic of trees, and values of a state by their names."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import optim, random, tree
from fnx.errors import ArgumentError
from fnx.optim import tree as arithmetic
from fnx.optim import tree_utils

RNG = np.random.default_rng(5)
A = {"w": RNG.normal(size=(2, 3)), "none": None, "b": [RNG.normal(size=4)]}
B = {"w": RNG.normal(size=(2, 3)), "none": None, "b": [RNG.normal(size=4)]}
FLAT = [np.concatenate([x["b"][0], x["w"].ravel()]) for x in (A, B)]


def flat(values):
    return np.concatenate([np.ravel(x) for x in tree.leaves(values)])


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda o: o.add(A, B), lambda x, y: x + y),
        (lambda o: o.add(A, B, A), lambda x, y: 2 * x + y),
        (lambda o: o.sub(A, B), lambda x, y: x - y),
        (lambda o: o.mul(A, B), lambda x, y: x * y),
        (lambda o: o.div(A, B), lambda x, y: x / y),
        (lambda o: o.scale(3.0, A), lambda x, y: 3 * x),
        (lambda o: o.add_scale(A, -2.0, B), lambda x, y: x - 2 * y),
        (lambda o: o.where(False, A, B), lambda x, y: y),
        (lambda o: o.clip(A, -0.5, 0.25), lambda x, y: np.clip(x, -0.5, 0.25)),
        (lambda o: o.clip(A, max_value=0.1), lambda x, y: np.minimum(x, 0.1)),
        (lambda o: o.real(A), lambda x, y: x),
        (lambda o: o.conj(A), lambda x, y: x),
        (lambda o: o.zeros_like(A), lambda x, y: 0 * x),
        (lambda o: o.ones_like(A), lambda x, y: 0 * x + 1),
        (lambda o: o.full_like(A, 7.0), lambda x, y: 0 * x + 7),
        (lambda o: o.sum(A), lambda x, y: x.sum()),
        (lambda o: o.sum(A, True), lambda x, y: x.sum()),
        (lambda o: o.max(A), lambda x, y: x.max()),
        (lambda o: o.min(A), lambda x, y: x.min()),
        (lambda o: o.vdot(A, B), lambda x, y: x @ y),
        (lambda o: o.norm(A), lambda x, y: np.sqrt(x @ x)),
        (lambda o: o.norm(A, squared=True), lambda x, y: x @ x),
        (lambda o: o.norm(A, ord=1), lambda x, y: abs(x).sum()),
        (lambda o: o.norm(A, ord=np.inf, squared=True), lambda x, y: abs(x).max() ** 2),
    ],
)
def test_arithmetic(call, expected):
    found = call(arithmetic)
    np.testing.assert_allclose(flat(found), expected(*FLAT), rtol=1e-12)
    assert all(x.dtype == "float64" for x in tree.leaves(found))


def test_sizes_and_dtypes():
    assert arithmetic.size(A) == 10
    assert arithmetic.dtype(A) == "float64"
    mixed = [fnp.zeros(1, "bfloat16"), fnp.zeros(1, "float16")]
    assert arithmetic.dtype(mixed, "promote") == "float32"
    assert arithmetic.dtype([*mixed, fnp.zeros(1)], "lowest").itemsize == 2
    assert arithmetic.dtype([*mixed, fnp.zeros(1)], "highest") == "float32"
    with pytest.raises(ArgumentError, match="the leaves have the dtypes bfloat16, fl"):
        arithmetic.dtype(mixed)
    with pytest.raises(ArgumentError, match="mixed_dtype_handler must be"):
        arithmetic.dtype(mixed, "sum")
    with pytest.raises(ArgumentError, match="the tree has no leaves"):
        arithmetic.dtype([], "promote")
    assert arithmetic.dtype(arithmetic.cast(A, "float16")) == "float16"
    assert arithmetic.dtype(arithmetic.cast_like(A, arithmetic.cast(A, "f4"))) == "f4"


def test_trees_without_leaves():
    assert [float(f({})) for f in (arithmetic.sum, arithmetic.norm)] == [0, 0]
    assert [float(arithmetic.max({})), float(arithmetic.min([]))] == [-np.inf, np.inf]


def test_norm_of_complex_numbers_and_at_zero():
    assert float(arithmetic.norm([fnp.array([3 + 4j])])) == 5
    np.testing.assert_array_equal(fnx.grad(arithmetic.norm)([fnp.zeros(2)])[0], 0)
    with pytest.raises(ArgumentError, match=r"tree.norm: ord must be 1, 2, inf"):
        arithmetic.norm(A, ord=3)


def test_allclose():
    assert bool(arithmetic.allclose(A, A))
    assert not bool(arithmetic.allclose(A, B))
    assert bool(fnx.jit(arithmetic.allclose)(A, arithmetic.scale(1 + 1e-7, A)))


def test_random_trees():
    key = random.key(0)
    drawn = arithmetic.random_like(key, A)
    assert arithmetic.dtype(drawn) == "float64"
    assert tree.map(np.shape, drawn) == tree.map(np.shape, A)
    assert len(np.unique(flat(drawn))) == 10
    drawn = arithmetic.random_like(key, A, random.uniform, "float32")
    assert arithmetic.dtype(drawn) == "float32" and float(arithmetic.min(drawn)) >= 0
    keys = arithmetic.split_key_like(key, {"a": 1.0, "b": 2.0})
    assert float(random.uniform(keys["a"])) != float(random.uniform(keys["b"]))


def test_values_of_a_state():
    optimizer = optim.chain(optim.adam(0.1), optim.inject_hyperparams(optim.sgd)(0.5))
    state = optimizer.init(fnp.zeros(2))
    assert float(arithmetic.get(state, "learning_rate")) == 0.5
    assert arithmetic.get(state, "nothing", default=3) == 3
    with pytest.raises(
        ArgumentError, match="'count' is there 2 times, at 0/0/count, 1/c"
    ):
        arithmetic.get(state, "count")
    second = lambda path, value: path[0] == 1  # noqa: E731
    new = arithmetic.set(state, second, count=fnp.array(7, "int32"))
    counts = [int(x) for _, x in arithmetic.get_all_with_path(new, "count")]
    assert counts == [0, 7]
    new = arithmetic.set(state, learning_rate=fnp.array(0.25))
    updates, _ = optimizer.update(fnp.ones(2), new)
    np.testing.assert_allclose(updates, 0.025, rtol=1e-5)
    with pytest.raises(ArgumentError, match=r"tree.set: there is no 'rate'"):
        arithmetic.set(state, rate=0.1)


def test_older_names():
    for name in arithmetic.__all__:
        assert getattr(tree_utils, f"tree_{name}") is getattr(arithmetic, name)
