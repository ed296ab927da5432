"""Sparse Jacobians and Hessians: patterns, colors, and values against dense ones."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax

RNG = np.random.default_rng(7)
N = 11
X = RNG.uniform(0.5, 1.5, size=N)
BAND = np.triu(np.tril(RNG.normal(size=(N, N)), 2), -1)
FULL = RNG.normal(size=(N, N))
BLOCKS = np.kron(np.eye(3), np.ones((2, 4)))


def dense(fun, x):
    return np.asarray(fnx.jacfwd(fun)(x))


def check(fun, count, x=X, by=None, exact=True):
    jacobian = fnx.sparse_jacobian(fun)
    found, want = jacobian(x), dense(fun, x)
    assert found.shape == want.shape
    np.testing.assert_allclose(found.todense(), want, rtol=1e-12, atol=1e-12)
    coloring = jacobian.coloring(x)
    assert coloring.count == count
    assert by is None or coloring.by == by
    if exact:  # nothing but the elements that are not 0 here
        np.testing.assert_array_equal(found.indices, np.argwhere(want))
    return found


JACOBIANS = {
    "diagonal": (lambda x: fnp.sin(x) * x**2, 1),
    "tridiagonal": (lambda x: x[2:] * x[1:-1] - fnp.exp(x[:-2]), 3),
    "second difference": (lambda x: fnp.convolve(x, fnp.ones(3), "valid") ** 2, 3),
    "circulant": (lambda x: fnp.roll(x, 1) * x, 3),
    "banded matrix": (lambda x: fnp.tanh(fnp.asarray(BAND) @ x), 4),
    "masked": (lambda x: fnp.outer(x, x) * BAND, 3),
    "dense": (lambda x: fnp.asarray(FULL) @ x, N),
    "sum": (lambda x: (x * x).sum(), 1),
    "dense column": (lambda x: x * x[0], 2),
    "dense row and column": (lambda x: (x * x[0]).at[0].set((x * x).sum()), N),
    "flipped": (lambda x: x[::-1] ** 2, 1),
    "strided": (lambda x: x[::3] * 2.0, 1),
    "padded": (lambda x: fnp.pad(x**2, (2, 1)), 1),
    "joined": (lambda x: fnp.concatenate([x**2, x[:3]]), 1),
    "gathered": (lambda x: x[fnp.array([3, 3, 0, 7])] ** 2, 1),
    "chosen": (lambda x: fnp.where(np.arange(N) % 2 == 0, x**2, x[0]), 1),
    "scattered": (lambda x: fnp.zeros_like(x[:4]).at[np.arange(N) % 4].add(x * x), 1),
    "part": (lambda x: lax.dynamic_update_slice(x * 2.0, x[:2] ** 2, (4,)), 1),
    "cumsum": (lambda x: fnp.cumsum(x[:4] ** 2), 4),
    "reversed cumsum": (lambda x: lax.cumsum(x[:4] ** 2, reverse=True), 4),
    "nothing": (lambda x: fnp.floor(x) + lax.stop_gradient(x), 0),
    "jit": (fnx.jit(lambda x: x[1:] * x[:-1]), 2),
    "remat": (fnx.remat(lambda x: x[1:] * fnp.sin(x[:-1])), 2),
    "cond": (
        lambda x: lax.cond(x[0] > 0, lambda y: y[1:] * y[:-1], lambda y: y[1:], x),
        2,
    ),
    "scan": (lambda x: lax.scan(lambda c, r: (c, r**2), 0.0, x)[1], 1),
    "vmap": (lambda x: fnx.vmap(lambda a, b: a * b)(x[1:], x[:-1]), 2),
}


@pytest.mark.parametrize("name", JACOBIANS)
def test_jacobians(name):
    fun, count = JACOBIANS[name]
    check(fun, count)


def test_patterns_that_hold_for_any_value():
    """What is 0 here and is not elsewhere stays in the pattern."""
    jacobian = fnx.sparse_jacobian(lambda x: lax.cond(x[0] > 0, fnp.sin, fnp.flip, x))
    found = jacobian(X)
    np.testing.assert_allclose(found.todense(), np.diag(np.cos(X)))
    assert found.data.shape == (2 * N - 1,)  # the diagonals meet once
    index = fnp.array([1, 0])

    def picked(x, i):
        return x[i]

    found = fnx.sparse_jacobian(picked)(X, index)
    np.testing.assert_allclose(found.todense(), np.eye(N)[[1, 0]])
    assert found.data.shape == (2 * N,)  # an argument's value is not known


@fnx.custom_jvp
def straight_through(x):
    return fnp.round(x)


@straight_through.defjvp
def _straight_through_jvp(primals, tangents):
    return straight_through(*primals), tangents[0][::-1]


@fnx.custom_vjp
def clipped_gradient(x):
    return fnp.round(x)


clipped_gradient.defvjp(lambda x: (fnp.round(x), x), lambda x, ct: (ct * x,))


def test_custom_rules_and_not_their_functions_say_what_depends_on_what():
    check(straight_through, 1)
    check(lambda x: straight_through(x) * 2.0 * x, 2)
    found = fnx.sparse_jacobian(clipped_gradient)(X).todense()
    np.testing.assert_allclose(found, np.diag(X))
    hessian = fnx.sparse_hessian(lambda x: fnx.remat(rosenbrock)(x))
    np.testing.assert_allclose(hessian(X).todense(), fnx.hessian(rosenbrock)(X))
    assert hessian.coloring(X).count == 3


def test_block_structure():
    x = RNG.normal(size=12)
    check(lambda x: fnp.asarray(BLOCKS) @ x, 2, x, by="rows")
    check(lambda x: (fnp.sin(x).reshape(3, 4) ** 2).sum(axis=1), 1, x, by="rows")
    w = RNG.normal(size=(4, 2))
    found = check(lambda x: fnp.tanh(x.reshape(3, 4) @ w), 2, x, by="rows")
    assert found.shape == (3, 2, 12) and found.data.shape == (24,)


def test_loops():
    """Each round of a heat equation reaches one neighbor further."""

    def step(u):
        return u.at[1:-1].add(0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]))

    x = RNG.normal(size=20)
    fun = lambda u: lax.fori_loop(0, 3, lambda i, u: step(u), u)  # noqa: E731
    found = fnx.sparse_jacobian(fun)(x)
    want = dense(fun, x)
    np.testing.assert_allclose(found.todense(), want, rtol=1e-12, atol=1e-14)
    assert fnx.sparse_jacobian(fun).coloring(x).count in (7, 20)


def test_axes_arguments_and_keywords():
    def fun(scale, image, *, shift):
        return image[1:, :] * scale + shift

    image = RNG.normal(size=(4, 3))
    found = fnx.sparse_jacobian(fun, argnums=1)(2.0, image, shift=1.0)
    want = fnx.jacfwd(fun, argnums=1)(2.0, image, shift=1.0)
    assert found.shape == (3, 3, 4, 3)
    np.testing.assert_allclose(found.todense(), want)


def test_random_programs():
    """Sums of products of shifted, gathered and masked inputs, of random patterns."""
    rng = np.random.default_rng(11)
    for _ in range(10):
        n = int(rng.integers(4, 9))
        take = rng.integers(0, n, size=(3, n))
        mask = rng.random((n, n)) < 0.25
        weights = np.where(mask, rng.normal(size=(n, n)), 0.0)

        def fun(x, take=take, weights=weights):
            y = x[take[0]] * fnp.sin(x[take[1]])
            return fnp.asarray(weights) @ y + fnp.zeros(len(x)).at[take[2]].add(x)

        x = rng.uniform(0.5, 1.5, size=n)
        found, want = fnx.sparse_jacobian(fun)(x), dense(fun, x)
        np.testing.assert_allclose(found.todense(), want, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- Hessians


def rosenbrock(x):
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


HESSIANS = {
    "rosenbrock": (rosenbrock, 3),
    "separable": (lambda x: fnp.exp(x).sum(), 1),
    # an arrow: a column coloring would need a color for each
    "arrow": (lambda x: (x * x[0] ** 2).sum() + (x**3).sum(), 2),
    "two apart": (lambda x: (x[2:] * x[1:-1] * x[:-2]).sum(), 5),
    "quadratic": (lambda x: x @ (fnp.asarray(BAND + BAND.T) @ x), 5),
    "dense": (lambda x: (x**2).sum() ** 2, N),
    "linear": (lambda x: 3.0 * x.sum(), 0),
}


@pytest.mark.parametrize("name", HESSIANS)
def test_hessians(name):
    fun, count = HESSIANS[name]
    hessian = fnx.sparse_hessian(fun)
    found, want = hessian(X), np.asarray(fnx.hessian(fun)(X))
    np.testing.assert_allclose(found.todense(), want, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(found.indices, np.argwhere(want))
    assert hessian.coloring(X).count <= count


def test_grids():
    x = RNG.normal(size=(5, 6))

    def energy(x):
        return ((x[1:] - x[:-1]) ** 4).sum() + ((x[:, 1:] - x[:, :-1]) ** 4).sum()

    hessian = fnx.sparse_hessian(energy)
    np.testing.assert_allclose(
        hessian(x).todense(), fnx.hessian(energy)(x), rtol=1e-10, atol=1e-10
    )
    assert hessian.coloring(x).count <= 9 < x.size


# ---------------------------------------------------------------- as functions


def test_inside_of_other_transformations():
    jacobian = fnx.sparse_jacobian(lambda x: x[1:] * x[:-1])
    want = dense(lambda x: x[1:] * x[:-1], X)
    np.testing.assert_allclose(fnx.jit(jacobian)(X).todense(), want)
    np.testing.assert_allclose(fnx.jit(lambda x: jacobian(x).todense())(X), want)
    rows = fnx.vmap(lambda x: jacobian(x).data)(np.stack([X, 2 * X]))
    np.testing.assert_allclose(rows, [jacobian(X).data, jacobian(2 * X).data])
    gradient = fnx.grad(lambda x: (jacobian(x).data ** 2).sum())(X)
    wanted = fnx.grad(lambda x: (fnx.jacfwd(lambda x: x[1:] * x[:-1])(x) ** 2).sum())(X)
    np.testing.assert_allclose(gradient, wanted)


def test_captured_tracers_have_no_known_value():
    def outer(mask):
        return fnx.sparse_jacobian(lambda x: mask @ x)(X).todense()

    np.testing.assert_allclose(fnx.jit(outer)(BAND), BAND)


def test_compiled_once_for_a_shape():
    calls = []

    def fun(x):
        calls.append(x.shape)
        return x[1:] * x[:-1]

    jacobian = fnx.sparse_jacobian(fun)
    jacobian(X)
    first = len(calls)
    jacobian(2 * X)
    assert len(calls) == first
    np.testing.assert_allclose(jacobian(X[:4]).todense(), dense(fun, X[:4]))


def test_scipy():
    sparse = pytest.importorskip("scipy.sparse")
    found = fnx.sparse_jacobian(lambda x: x[1:] * x[:-1])(X).to_scipy()
    assert isinstance(found, sparse.coo_array)
    np.testing.assert_allclose(found.toarray(), dense(lambda x: x[1:] * x[:-1], X))
    with pytest.raises(errors.ShapeError, match="two axes"):
        fnx.sparse_jacobian(lambda x: x.sum())(X).to_scipy()


def test_float32_and_empty():
    x = X.astype("float32")
    assert fnx.sparse_jacobian(lambda x: x * x)(x).data.dtype == np.float32
    empty = fnx.sparse_jacobian(lambda x: x * x)(np.zeros(0))
    assert empty.shape == (0, 0) and empty.data.shape == (0,)


def test_mistakes():
    with pytest.raises(errors.ArgumentError, match="argument 0 is a tree"):
        fnx.sparse_jacobian(lambda p: p["a"])({"a": X})
    with pytest.raises(errors.ArgumentError, match="gives a tree"):
        fnx.sparse_jacobian(lambda x: (x, x))(X)
    with pytest.raises(errors.DTypeError, match="x is i64"):
        fnx.sparse_jacobian(lambda x: x * 2)(np.arange(3))
    with pytest.raises(errors.ArgumentError, match="argnums must be an integer"):
        fnx.sparse_jacobian(lambda x: x, argnums=(0, 1))


# ---------------------------------------------------------------- coloring


def test_colorings_are_valid_on_random_patterns():
    from fnx.transforms.coloring import columns, star, star_reads

    rng = np.random.default_rng(3)
    for _ in range(30):
        n = int(rng.integers(1, 14))
        matrix = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.25)
        rows, cols = np.nonzero(matrix)
        colors = columns(rows, cols, (n, n))
        product = matrix @ (colors[:, None] == np.arange(n))
        np.testing.assert_allclose(product[rows, colors[cols]], matrix[rows, cols])

        both = matrix + matrix.T
        rows, cols = np.nonzero(both)
        colors = star(rows, cols, n)
        product = both @ (colors[:, None] == np.arange(n))
        reads, places = star_reads(rows, cols, colors)
        np.testing.assert_allclose(product[places, reads], both[rows, cols])
