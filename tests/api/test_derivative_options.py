"""argnames, chunk, fwd_and_bwd, hvp: the options of derivatives, and passes apart."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors
from fnx.core.program import walk

RNG = np.random.default_rng(2)
X = RNG.normal(size=5)
W = RNG.normal(size=(3, 5))


def close(found, wanted):
    assert fnx.tree.structure(found) == fnx.tree.structure(wanted)
    found, wanted = fnx.tree.leaves(found), fnx.tree.leaves(wanted)
    for a, b in zip(found, wanted, strict=True):
        a, b = [x if hasattr(x, "dtype") else fnp.asarray(x) for x in (a, b)]
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype != fnx.float0:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def loss(x, w, *, scale=2.0):
    return (fnp.sin(w @ x) * scale).sum()


def layers(params, x):
    """Outputs and inputs of several shapes, an integer among both."""
    y = fnp.tanh(params["w"] @ x + params["b"])
    return {"y": y, "n": params["n"] + 1, "square": fnp.outer(y, y) * params["b"]}


PARAMS = {"w": W, "b": np.float64(0.3), "n": np.int32(4)}


# ---------------------------------------------------------------- argnames


def test_a_name_is_an_argument_wherever_the_call_has_it():
    wanted = fnx.grad(loss, 1)(X, W)
    for args, kwargs in (((X, W), {}), ((X,), {"w": W}), ((), {"w": W, "x": X})):
        close(fnx.grad(loss, argnames="w")(*args, **kwargs), wanted)
        value, slope = fnx.value_and_grad(loss, argnames="w")(*args, **kwargs)
        close((value, slope), (loss(X, W), wanted))
        close(fnx.jit(fnx.grad(loss, argnames="w"))(*args, **kwargs), wanted)


def test_names_give_a_tuple_in_their_order():
    both = fnx.grad(loss, argnames=("scale", "x"))(X, w=W, scale=3.0)
    assert isinstance(both, tuple)
    close(both[0], np.float32(np.sin(W @ X).sum()))
    close(both[1], fnx.grad(loss)(X, W, scale=3.0))
    (alone,) = fnx.grad(loss, argnames=["x"])(X, W)
    close(alone, fnx.grad(loss)(X, W))


def test_jacobians_by_name():
    f = lambda x, w: fnp.tanh(w @ x)  # noqa: E731
    for make in (fnx.jacfwd, fnx.jacrev, fnx.jacobian):
        close(make(f, argnames="w")(X, W), make(f, 1)(X, W))
        close(make(f, argnames=("w", "x"))(X, w=W), make(f, (1, 0))(X, W))
    close(fnx.hessian(f, argnames="w")(X, w=W), fnx.hessian(f, 1)(X, W))
    close(fnx.hessian(loss, argnames=("x",))(X, W), fnx.hessian(loss, (0,))(X, W))


def test_names_and_auxiliary_data():
    f = lambda x, w: ((w @ x).sum(), {"x": x})  # noqa: E731
    slope, aux = fnx.grad(f, argnames="w", has_aux=True)(X, w=W)
    close(slope, np.tile(X, (3, 1)))
    close(aux["x"], X)


def test_without_options_it_is_the_first_argument():
    close(fnx.grad(loss)(X, W), fnx.grad(loss, 0)(X, W))
    close(fnx.jacrev(loss)(X, W), fnx.grad(loss, argnums=0)(X, W))


# ---------------------------------------------------------------- chunk


@pytest.mark.parametrize("chunk", [1, 2, 4, 5, 7, 16, 100])
@pytest.mark.parametrize("make", [fnx.jacfwd, fnx.jacrev])
def test_jacobians_in_chunks(make, chunk):
    f = lambda x: fnp.tanh(W @ x) * x[:3]  # noqa: E731
    wanted = make(f)(X)
    close(make(f, chunk=chunk)(X), wanted)
    close(fnx.jit(make(f, chunk=chunk))(X), wanted)
    stack = np.stack([X, 2 * X])
    close(fnx.vmap(make(f, chunk=chunk))(stack), fnx.vmap(make(f))(stack))


@pytest.mark.parametrize("chunk", [1, 3, 16])
def test_trees_in_chunks(chunk):
    floats = lambda p, x: [x for x in layers(p, x).values() if x.ndim]  # noqa: E731
    wanted = fnx.jacrev(floats, (0, 1), allow_int=True)(PARAMS, X)
    close(fnx.jacrev(floats, (0, 1), allow_int=True, chunk=chunk)(PARAMS, X), wanted)
    real = {key: x for key, x in PARAMS.items() if key != "n"}
    f = lambda p, x: layers({**p, "n": 1}, x)  # noqa: E731
    close(fnx.jacfwd(f, (0, 1), chunk=chunk)(real, X), fnx.jacfwd(f, (0, 1))(real, X))


@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_hessians_in_chunks(chunk):
    f = lambda x: (fnp.exp(W @ x) ** 2).sum()  # noqa: E731
    wanted = fnx.hessian(f)(X)
    close(fnx.hessian(f, chunk=chunk)(X), wanted)
    close(fnx.jit(fnx.hessian(f, chunk=chunk))(X), wanted)
    # and they are differentiable
    third = fnx.grad(lambda x: (fnx.hessian(f, chunk=chunk)(x) ** 2).sum())(X)
    close(third, fnx.grad(lambda x: (fnx.hessian(f)(x) ** 2).sum())(X))


def test_a_chunk_bounds_what_is_between():
    n = 64
    f = lambda x: fnp.sin(fnp.outer(x, x)).sum(0)  # noqa: E731
    program = fnx.make_jaxpr(fnx.jacfwd(f, chunk=4))(np.ones(n))
    sizes = [var.type.size for eqn in walk(program) for var in eqn.outputs]
    assert max(sizes) == 4 * n * n
    whole = fnx.make_jaxpr(fnx.jacfwd(f))(np.ones(n))
    assert max(v.type.size for e in walk(whole) for v in e.outputs) == n**3


def test_nothing_to_differentiate_by():
    empty = np.zeros((0,))
    f = lambda x: x.sum() * np.ones(2)  # noqa: E731
    assert fnx.jacfwd(f, chunk=2)(empty).shape == (2, 0)
    assert fnx.jacrev(f, chunk=1)(empty).shape == (2, 0)


# ---------------------------------------------------------------- fwd_and_bwd


@pytest.mark.parametrize("jitted", [True, False])
def test_the_two_passes_are_those_of_vjp(jitted):
    f = lambda x, n, w: fnp.sin(w @ x) * n  # noqa: E731
    fwd, bwd = fnx.fwd_and_bwd(f, argnums=(0, 2), jitted=jitted)
    ct = np.array([1.0, -2.0, 0.5])
    for scale in (1.0, 2.0, -1.0):
        y, residuals = fwd(scale * X, 3, W)
        wanted, pull = fnx.vjp(lambda x, w: f(x, 3, w), scale * X, W)
        close(y, wanted)
        close(bwd(residuals, ct), pull(ct))
    fwd, bwd = fnx.fwd_and_bwd(f, 0, jitted=jitted)
    close(bwd(fwd(X, 3, W)[1], ct), W.T @ (np.cos(W @ X) * 3 * ct))


def test_both_passes_are_traced_once():
    traces = []

    def f(x):
        traces.append(1)
        return fnp.sin(x)

    fwd, bwd = fnx.fwd_and_bwd(f, 0)
    for scale in (1.0, 2.0, 3.0):
        _, residuals = fwd(scale * X)
        close(bwd(residuals, X), np.cos(scale * X) * X)
    assert len(traces) == 1
    assert bwd.cache_info().misses == 1


def test_auxiliary_data_of_the_forward_pass():
    fwd, bwd = fnx.fwd_and_bwd(lambda x: (x * x, x + 1), 0, has_aux=True)
    y, residuals, aux = fwd(X)
    close((y, aux), (X * X, X + 1))
    close(bwd(residuals, X), 2 * X * X)


# ---------------------------------------------------------------- hvp


def test_products_with_the_hessian():
    f = lambda x: (fnp.exp(W @ x) ** 2).sum()  # noqa: E731
    v = np.arange(5.0) - 2
    wanted = np.asarray(fnx.hessian(f)(X)) @ v
    for run in (fnx.hvp, fnx.jit(fnx.hvp, static_argnums=0)):
        np.testing.assert_allclose(run(f, (X,), (v,)), wanted, rtol=1e-12)
    tree = {"x": X}
    found = fnx.hvp(lambda p: f(p["x"]), (tree,), ({"x": v},))
    np.testing.assert_allclose(found["x"], wanted, rtol=1e-12)


def test_products_with_the_hessian_of_several_arguments():
    t, s = RNG.normal(size=5), RNG.normal(size=(3, 5))
    found = fnx.hvp(loss, (X, W), (t, s))
    (xx, xw), (wx, ww) = fnx.hessian(loss, (0, 1))(X, W)
    wanted = (
        np.einsum("ij,j", xx, t) + np.einsum("ijk,jk", xw, s),
        np.einsum("ijk,k", wx, t) + np.einsum("ijkl,kl", ww, s),
    )
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- mistakes


BAD = {
    "an unknown name": (
        lambda: fnx.grad(loss, argnames="v"),
        errors.OptionError,
        "grad: argnames has 'v'; the function takes x, w, scale",
    ),
    "a name that is no name": (
        lambda: fnx.jacfwd(loss, argnames=(1,)),
        errors.ArgumentError,
        "jacfwd: argnames takes a name or a sequence of names, got 1",
    ),
    "names and numbers": (
        lambda: fnx.grad(loss, 0, argnames="x"),
        errors.OptionError,
        "argnums=0 beside argnames='x'",
    ),
    "a name that is not passed": (
        lambda: fnx.grad(loss, argnames="scale")(X, W),
        errors.ArgumentError,
        "argnames has 'scale', and the call does not pass it",
    ),
    "an integer by name": (
        lambda: fnx.grad(lambda x, n: x * n, argnames="n")(2.0, n=3),
        errors.DTypeError,
        r"grad: n is i32\[\]\*",
    ),
    "no chunk": (
        lambda: fnx.jacrev(loss, chunk=0),
        errors.OptionError,
        "jacrev: chunk must be a positive integer or None, got 0",
    ),
    "half a chunk": (
        lambda: fnx.hessian(loss, chunk=2.5),
        errors.OptionError,
        "chunk must be a positive integer or None, got 2.5",
    ),
    "a cotangent of another shape": (
        lambda: (lambda f: f[1](f[0](X)[1], X[:2]))(
            fnx.fwd_and_bwd(lambda x: x * x, 0)
        ),
        errors.ShapeError,
        r"the cotangent is f64\[2\]",
    ),
    "primals that are no tuple": (
        lambda: fnx.hvp(loss, X, X),
        errors.ArgumentError,
        r"hvp: primals must be a tuple or list.*write \(primals,\)",
    ),
    "no scalar": (
        lambda: fnx.hvp(lambda x: x, (X,), (X,)),
        errors.ShapeError,
        "needs a scalar output",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_named(name):
    run, kind, text = BAD[name]
    with pytest.raises(kind, match=re.compile(text, re.DOTALL)):
        run()


@pytest.mark.oracle
def test_against_jax(jax):
    f = lambda x, w: (w @ x) ** 2  # noqa: E731
    ct = np.array([1.0, -2.0, 0.5])
    results = []
    for library in (fnx, jax):
        fwd, bwd = library.fwd_and_bwd(f, argnums=(0, 1))
        y, residuals = fwd(library.numpy.asarray(X), library.numpy.asarray(W))
        results.append((y, *bwd(residuals, library.numpy.asarray(ct))))
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
