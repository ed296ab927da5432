"""Activations, functions over an axis and initializers: against JAX, kinks, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, nn, random
from fnx.nn import initializers

ACTIVATIONS = """relu relu6 sigmoid softplus silu swish log_sigmoid elu leaky_relu
hard_tanh hard_sigmoid hard_silu hard_swish celu selu gelu glu soft_sign squareplus mish
tanh sparse_plus sparse_sigmoid identity softmax log_softmax standardize""".split()
X = np.random.default_rng(0).standard_normal((5, 6)) * 3
MASK = np.random.default_rng(1).random((5, 6)) > 0.3


@pytest.mark.oracle
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_as_jax(name, jax):
    ours, theirs = getattr(nn, name), getattr(jax.nn, name)
    weights = np.cos(np.arange(theirs(X).size)).reshape(theirs(X).shape)
    np.testing.assert_allclose(ours(fnp.array(X)), theirs(X), rtol=1e-12, atol=1e-14)
    got = fnx.jit(fnx.grad(lambda x: fnp.sum(ours(x) * weights)))(fnp.array(X))
    want = jax.grad(lambda x: (theirs(x) * weights).sum())(X)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gelu", {"approximate": False}),
        ("celu", {"alpha": 0.5}),
        ("elu", {"alpha": 2.0}),
        ("leaky_relu", {"negative_slope": 0.3}),
        ("softmax", {"axis": 0}),
        ("softmax", {"axis": (0, 1)}),
        ("softmax", {"where": MASK}),
        ("log_softmax", {"axis": 0}),
        ("log_softmax", {"where": MASK}),
        ("logsumexp", {}),
        ("logsumexp", {"axis": 1, "keepdims": True}),
        ("logsumexp", {"axis": 0, "b": np.abs(X)}),
        ("logsumexp", {"axis": 0, "b": X, "return_sign": True}),
        ("logsumexp", {"axis": 1, "where": MASK}),
        ("logmeanexp", {"axis": 1}),
        ("logmeanexp", {"axis": 1, "where": MASK}),
        ("standardize", {"axis": (0, 1), "epsilon": 1e-3}),
        ("standardize", {"where": MASK}),
        ("squareplus", {"b": 1.0}),
        ("glu", {"axis": 1}),
    ],
    ids=str,
)
def test_options_as_jax(name, options, jax):
    got = getattr(nn, name)(fnp.array(X), **options)
    want = getattr(jax.nn, name)(X, **options)
    many = want if isinstance(want, tuple) else (want,)
    for g, w in zip(got if isinstance(got, tuple) else (got,), many, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-9)


@pytest.mark.parametrize(
    ("function", "at", "want"),
    [
        (nn.relu, 0.0, 0.0),
        (nn.relu6, 0.0, 1.0),
        (nn.relu6, 6.0, 1.0),
        (nn.relu6, 7.0, 0.0),
        (nn.hard_tanh, 1.0, 1.0),
        (nn.hard_sigmoid, -3.0, 1 / 6),
        (nn.hard_sigmoid, 4.0, 0.0),
        (nn.leaky_relu, 0.0, 1.0),
        (nn.elu, 0.0, 1.0),
        (nn.softplus, math.inf, 1.0),
        (nn.softplus, -math.inf, 0.0),
        (nn.sigmoid, math.inf, 0.0),
        (nn.log_sigmoid, -math.inf, 1.0),
    ],
)
def test_derivatives_at_kinks_and_ends(function, at, want):
    np.testing.assert_allclose(fnx.grad(function)(at), want, rtol=1e-6)


def test_nan_stays_nan():
    for name in ACTIVATIONS[:8]:
        assert fnp.isnan(getattr(nn, name)(math.nan)), name


def test_integers_are_computed_in_floating_point():
    assert nn.softplus(fnp.array([1, 2])).dtype == fnp.float32
    assert nn.relu(fnp.array([-1, 2])).tolist() == [0, 2]
    assert nn.softmax(fnp.array([1, 1], "float16")).dtype == fnp.float16


def test_one_hot():
    x = fnp.array([0, 2, 3, -1])
    want = [[1.0, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert nn.one_hot(x, 3).tolist() == want
    assert nn.one_hot(x, 3, axis=0).tolist() == np.transpose(want).tolist()
    assert nn.one_hot(x, 3, dtype=bool).dtype == fnp.bool_
    assert fnx.vmap(lambda i: nn.one_hot(i, 3))(x).tolist() == want


def test_errors():
    with pytest.raises(
        errors.ShapeError, match=r"axis 0 of f32\[3\] must have an even"
    ):
        nn.glu(fnp.ones(3))
    with pytest.raises(errors.AxisError, match="softmax: axis 2 is out of range"):
        nn.softmax(fnp.ones(3), axis=2)


# ---------------------------------------------------------------- initializers

SCALED = """glorot_uniform glorot_normal xavier_uniform xavier_normal he_uniform
he_normal kaiming_uniform kaiming_normal lecun_uniform lecun_normal""".split()


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SCALED)
def test_scaled_initializers_as_jax(name, dtype, jax):
    got = getattr(initializers, name)()(random.key(3), (4, 5, 6), dtype)
    init = getattr(jax.nn.initializers, name)()
    want = init(jax.random.key(3), (4, 5, 6), dtype)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["normal", "uniform", "truncated_normal"])
def test_plain_initializers_as_jax(name, jax):
    got = getattr(initializers, name)(0.3)(random.key(3), (4, 5))
    init = getattr(jax.nn.initializers, name)(0.3)
    want = init(jax.random.key(3), (4, 5), "float32")
    assert got.dtype == fnp.float32
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.oracle
@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg", "fan_geo_avg"])
def test_fans_as_jax(mode, jax):
    options = (2.0, mode, "uniform", (0, 1), 3, 2)
    got = initializers.variance_scaling(*options)(random.key(0), (2, 3, 4, 5))
    init = jax.nn.initializers.variance_scaling(*options)
    want = init(jax.random.key(0), (2, 3, 4, 5), "float32")
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 2, 3), (0, 2)])
@pytest.mark.parametrize("axis", [-1, 0])
def test_orthogonal_as_jax(shape, axis, jax):
    got = initializers.orthogonal(2.0, axis)(random.key(3), shape, "float64")
    init = jax.nn.initializers.orthogonal(2.0, axis)
    want = init(jax.random.key(3), shape, "float64")
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, 1e-9, 1e-12)


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(3, 2, 4), (2, 5, 3, 3), (1, 2, 3, 2, 2)])
def test_delta_orthogonal_as_jax(shape, jax):
    got = initializers.delta_orthogonal(0.5)(random.key(3), shape, "float32")
    init = jax.nn.initializers.delta_orthogonal(0.5, dtype="float32")
    want = init(jax.random.key(3), shape, "float32")
    np.testing.assert_allclose(got, want, 1e-4, 1e-5)


def test_orthogonal_columns():
    w = np.asarray(initializers.orthogonal(1.0, 1)(random.key(0), (2, 3, 4)))
    rows = np.moveaxis(w, 1, -1).reshape(8, 3)
    np.testing.assert_allclose(rows.T @ rows, np.eye(3), atol=1e-5)


def test_constants():
    assert initializers.zeros(None, (2,)).tolist() == [0, 0]
    assert initializers.ones(None, (2,), "int32").tolist() == [1, 1]
    assert initializers.constant(3.0)(None, (2,)).tolist() == [3, 3]


def test_initializer_errors():
    with pytest.raises(errors.ShapeError, match=r"the shape is \(3,\)"):
        initializers.he_normal()(random.key(0), (3,))
    with pytest.raises(errors.OptionError, match="mode 'fan' is none of"):
        initializers.variance_scaling(1.0, "fan", "normal")
    with pytest.raises(errors.ShapeError, match="orthogonal: the shape needs"):
        initializers.orthogonal()(random.key(0), (3,))
    with pytest.raises(errors.AxisError, match="column_axis 2"):
        initializers.orthogonal(1.0, 2)(random.key(0), (3, 3))
    with pytest.raises(errors.ShapeError, match="delta_orthogonal: the shape is"):
        initializers.delta_orthogonal()(random.key(0), (3, 4, 2))
    with pytest.raises(errors.DTypeError, match="not int32"):
        initializers.normal()(random.key(0), (3,), "int32")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint32"])
def test_bounded_activations_of_integers(dtype):
    x = np.array([0, 1, 7, 200, -3]).astype(dtype)
    same = "int32" if dtype == "bool" else dtype
    ends = {"relu": (0, np.inf, same), "hard_tanh": (-1, 1, same)}
    for name, (low, high, kind) in {**ends, "relu6": (0, 6, "float32")}.items():
        found = getattr(nn, name)(x)
        assert found.dtype == kind
        np.testing.assert_array_equal(found, np.clip(x.astype("float64"), low, high))
