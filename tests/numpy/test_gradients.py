"""Gradients of functions made of several primitives: kinks, zeros, tails, and JAX's."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp

INF = math.inf


@pytest.mark.parametrize(
    ("function", "at", "want"),
    [
        (lambda x: fnp.linalg.norm(x), [0.0, 0.0], [0.0, 0.0]),
        (lambda x: fnp.std(x), [2.0, 2.0], [0.0, 0.0]),
        (lambda x: fnp.hypot(x[0], x[1]), [0.0, 0.0], [0.0, 0.0]),
        (lambda x: fnp.sum(abs(x)), [0.0, -2.0], [0.0, -1.0]),
        (lambda x: fnp.max(x), [3.0, 3.0, 1.0], [0.5, 0.5, 0.0]),
        (lambda x: fnp.maximum(x[0], x[1]), [3.0, 3.0], [0.5, 0.5]),
        (lambda x: fnp.sum(fnp.clip(x, 0, 1)), [0.0, 1.0, 2.0], [1.0, 1.0, 0.0]),
        (lambda x: fnp.prod(x), [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
        (lambda x: fnp.sum(x**2), [0.0, 1.0], [0.0, 2.0]),
        (lambda x: fnp.sum(x**0.5), [0.0], [INF]),
        (lambda x: fnp.sum(x**0), [0.0], [0.0]),
        (lambda x: fnp.sum(fnp.where(x > 0, fnp.log(x), 0.0)), [0.0, 1.0], [0.0, 1.0]),
        (lambda x: fnp.sum(fnp.where(x > 0, fnp.sqrt(x), x)), [0.0, 4.0], [1.0, 0.25]),
        (lambda x: fnp.sum(fnp.mod(x, 3.0)), [6.0, -1.0, 0.0], [1.0, 1.0, 1.0]),
        (lambda x: fnp.sum(fnp.mod(x, -3.0)), [6.0, -1.0, 0.0], [1.0, 1.0, 1.0]),
        (lambda x: fnp.sum(fnp.floor_divide(x, 3.0)), [6.0, -1.0], [0.0, 0.0]),
        (lambda x: fnp.sum(fnp.sinc(x)), [0.0], [0.0]),
        (lambda x: fnp.logaddexp(x[0], x[1]), [1.0, 1.0], [0.5, 0.5]),
        (lambda x: fnp.logaddexp(x[0], x[1]), [-INF, -INF], [0.0, 0.0]),
        (lambda x: fnp.median(x), [3.0, 1.0, 2.0], [0.0, 0.0, 1.0]),
        (lambda x: fnp.sum(fnp.sort(x) * fnp.arange(3.0)), [3.0, 1.0, 2.0], [2, 0, 1]),
        (lambda x: fnp.nanmean(x), [1.0, math.nan], [1.0, 0.0]),
        (lambda x: fnp.sum(fnp.cumprod(x)), [0.0, 2.0], [3.0, 0.0]),
    ],
)
def test_at_kinks_and_zeros(function, at, want):
    x = fnp.array(at)
    assert fnx.grad(function)(x).tolist() == want
    forward = fnx.jacfwd(function)(x)
    assert forward.tolist() == want


def test_second_derivatives_at_ties():
    hessian = fnx.hessian(lambda x: fnp.logaddexp(x[0], x[1]))(fnp.array([2.0, 2.0]))
    np.testing.assert_allclose(hessian, [[0.25, -0.25], [-0.25, 0.25]], rtol=1e-6)
    curve = fnx.grad(fnx.grad(fnp.sinc))(0.0)
    np.testing.assert_allclose(curve, -(math.pi**2) / 3, rtol=1e-6)
    norm = fnx.hessian(fnp.linalg.norm)(fnp.zeros(2))
    assert fnp.isfinite(norm).all()
    size = fnx.hessian(lambda x: fnp.hypot(x[0], x[1]))(fnp.array([3.0, 4.0]))
    np.testing.assert_allclose(size, [[0.128, -0.096], [-0.096, 0.072]], rtol=1e-5)


V = np.random.default_rng(1).standard_normal((3, 4))
W = np.random.default_rng(2).standard_normal((3, 4)) + 3
FUNCTIONS = {
    "var": lambda m, x: m.var(x, axis=1),
    "std": lambda m, x: m.std(x, axis=0),
    "softplus": lambda m, x: m.logaddexp(x, 0.5),
    "hypot": lambda m, x: m.hypot(x, W),
    "power": lambda m, x: m.power(m.abs(x), W),
    "mod": lambda m, x: m.mod(x, W),
    "arctan2": lambda m, x: m.arctan2(x, W),
    "einsum": lambda m, x: m.einsum("ij,kj,kl->il", x, W, x),
    "einsum trace": lambda m, x: m.einsum("ii->i", x[:, :3]),
    "matmul": lambda m, x: m.matmul(x[None], W.T),
    "tensordot": lambda m, x: m.tensordot(x, W, 2),
    "kron": lambda m, x: m.kron(x, W),
    "diag": lambda m, x: m.diag(x[0], 1) @ m.ones(5),
    "diagonal": lambda m, x: m.diagonal(x, 1),
    "trace": lambda m, x: m.trace(x),
    "tril": lambda m, x: m.tril(x),
    "pad": lambda m, x: m.pad(x, 3, mode="reflect"),
    "wrap": lambda m, x: m.pad(x, 5, mode="wrap"),
    "roll": lambda m, x: m.roll(x, 2, 1) * W,
    "sort": lambda m, x: m.sort(x, axis=1) * W,
    "cumsum": lambda m, x: m.cumsum(x, 1) * W,
    "cumprod": lambda m, x: m.cumprod(x, 1),
    "quantile": lambda m, x: m.quantile(x, 0.3, axis=1),
    "take": lambda m, x: m.take(x, np.array([3, 1, 1])),
    "along": lambda m, x: m.take_along_axis(x, np.argsort(W, 1), 1),
    "repeat": lambda m, x: m.repeat(x, np.array([1, 0, 2, 3]), 1) ** 2,
    "concatenate": lambda m, x: m.concatenate([x, x * 2], 1) ** 2,
    "linspace": lambda m, x: m.linspace(x[0], x[1], 5) ** 2,
    "where": lambda m, x: m.where(x > 0, m.exp(x), m.sin(x)),
    "norm": lambda m, x: m.linalg.norm(x, axis=1),
    "p-norm": lambda m, x: m.linalg.norm(x, 3, axis=1),
    "average": lambda m, x: m.average(x, axis=1, weights=m.abs(x)),
    "interp": lambda m, x: m.interp(x, np.array([-2.0, 0, 2]), np.array([1.0, 3, 2])),
    "prod": lambda m, x: m.prod(x, axis=1),
    "max": lambda m, x: m.max(x, axis=0),
    "cross": lambda m, x: m.cross(x[:, :3], W[:, :3]),
    "set": lambda m, x: x.at[1, ::2].set(x[0, :2] ** 2),
    "scatter": lambda m, x: x.at[np.array([0, 0, 2])].add(x**2),
    "multiply": lambda m, x: x.at[np.array([0, 2])].multiply(
        x[:2], unique_indices=True
    ),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_jax(name, jax):
    f = FUNCTIONS[name]
    weights = np.cos(np.arange(np.size(f(jax.numpy, jax.numpy.array(V)))))

    def loss(m):
        return lambda x: m.sum(m.ravel(f(m, x)) * weights)

    want_value, want = jax.value_and_grad(loss(jax.numpy))(jax.numpy.array(V))
    value, got = fnx.jit(fnx.value_and_grad(loss(fnp)))(fnp.array(V))
    np.testing.assert_allclose(value, want_value, rtol=1e-12)
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12)
    _, tangent = fnx.jvp(loss(fnp), (fnp.array(V),), (fnp.array(W),))
    np.testing.assert_allclose(tangent, np.sum(want * W), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap(name):
    f = FUNCTIONS[name]
    batch = np.stack([V, W, V + W])
    want = [np.asarray(f(fnp, fnp.array(x))) for x in batch]
    got = fnx.vmap(lambda x: f(fnp, x))(fnp.array(batch))
    np.testing.assert_allclose(got, np.stack(want), rtol=1e-10, atol=1e-12)
