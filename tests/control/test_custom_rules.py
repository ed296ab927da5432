"""Rules beyond jvp and vjp: vmap, transpose, all of them at once.

Where it matters which rule ran, the rule is wrong on purpose, by a factor of its own.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import custom_batching, errors
from fnx.core.program import walk
from fnx.custom_derivatives import linear_call
from fnx.testing import check_grads
from tests.control.flows import STACK, TRANSFORMS, X

A = np.random.default_rng(1).normal(size=(3, 3))


AXES = pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- custom_vmap


def tenfold(f):
    """A function whose rule for vmap gives ten times what it should."""
    wrapped = custom_batching.custom_vmap(f)

    @wrapped.def_vmap
    def rule(size, in_batched, *args):
        axes = tuple(0 if flag else None for flag in in_batched)
        assert all(
            x.shape[0] == size for x, a in zip(args, axes, strict=True) if a == 0
        )
        return fnx.tree.map(lambda y: 10.0 * y, fnx.vmap(f, axes)(*args)), True

    return wrapped


def test_the_rule_serves_where_something_is_mapped():
    f = tenfold(lambda x, y: fnp.sin(x) * y)
    y = np.float64(2.0)
    wanted = np.sin(X) * 2
    close(f(X, y), wanted)
    close(fnx.jit(f)(X, y), wanted)
    close(fnx.grad(lambda x: f(x, y))(X[0]), np.cos(X[0]) * 2)
    for run in (fnx.vmap(f, (0, None)), fnx.jit(fnx.vmap(f, (0, None)))):
        close(run(X, y), 10 * wanted)
    slopes = fnx.grad(lambda x: fnx.vmap(f, (0, None))(x, y).sum())(X)
    close(slopes, 20 * np.cos(X))
    _, moved = fnx.jvp(lambda y: fnx.vmap(f, (0, None))(X, y), (y,), (1.0,))
    close(moved, 10 * np.sin(X))
    tangents = fnx.vmap(lambda x: fnx.jvp(f, (x, y), (1.0, 0.5))[1])(X)
    close(tangents, 10 * (np.cos(X) * 2 + np.sin(X) / 2))
    twice = fnx.vmap(fnx.vmap(f, (None, 0)), (0, None))(X, X)
    close(twice, 10 * np.sin(X)[:, None] * X)
    second = fnx.vmap(
        lambda x: fnx.jvp(lambda x: fnx.jvp(f, (x, y), (1.0, 0.0))[1], (x,), (1.0,))[1]
    )(X)
    close(second, -10 * np.sin(X) * 2)


def test_gradients_that_are_mapped_are_those_of_the_function():
    f = tenfold(lambda x: fnp.sin(x) * x)
    close(fnx.vmap(fnx.grad(f))(X), np.cos(X) * X + np.sin(X))
    check_grads(f, (X,), order=2)


def test_trees_and_outputs_that_are_not_mapped():
    @custom_batching.custom_vmap
    def f(tree, n):
        return {"a": tree["x"] * tree["y"], "n": n + 1}

    seen = []

    @f.def_vmap
    def rule(size, in_batched, tree, n):
        seen.append((size, in_batched))
        return {"a": tree["x"] * tree["y"], "n": n + 1}, {"a": True, "n": False}

    axes = ({"x": 0, "y": None}, None)
    found = fnx.vmap(f, axes, {"a": 0, "n": None})({"x": X, "y": 3.0}, 4)
    close(found["a"], 3 * X)
    assert found["n"] == 5
    assert seen == [(3, ({"x": True, "y": False}, False))]


def test_a_named_axis_is_seen_where_nothing_is_mapped():
    f = tenfold(lambda x: x + fnx.lax.axis_index("i"))
    found = fnx.vmap(lambda _: f(np.int32(5)), axis_name="i")(X)
    np.testing.assert_array_equal(found, [5, 6, 7])


def test_one_member_after_the_other():
    f = lambda x, w: fnp.tanh(w @ x) * x.sum()  # noqa: E731
    slow = custom_batching.sequential_vmap(f)
    program = fnx.make_jaxpr(fnx.vmap(slow, (0, None)))(STACK, A)
    assert "scan" in {eqn.primitive.name for eqn in walk(program)}
    for axes in ((0, None), (1, None)):
        stack = STACK if axes[0] == 0 else STACK.T
        close(fnx.vmap(slow, axes)(stack, A), fnx.vmap(f, axes)(stack, A))
    weights = np.stack([A, A.T])
    two = fnx.vmap(fnx.vmap(slow, (0, None)), (None, 0))
    close(
        two(STACK, weights), fnx.vmap(fnx.vmap(f, (0, None)), (None, 0))(STACK, weights)
    )


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("kind", ["sequential", "custom_vmap"])
def test_functions_with_a_rule_for_vmap_under_every_transformation(kind, name):
    def plain(x):
        return fnp.sin(x) * (A @ x)

    f = custom_batching.sequential_vmap(plain)
    if kind == "custom_vmap":
        f = custom_batching.custom_vmap(plain)
        f.def_vmap(lambda size, flags, x: (fnp.sin(x) * (x @ A.T), True))
    transform, maps = TRANSFORMS[name]
    if maps:
        close(fnx.vmap(transform(f))(STACK), fnx.vmap(transform(plain))(STACK))
        jitted = fnx.jit(fnx.vmap(transform(f)))(STACK)
        close(jitted, fnx.vmap(transform(plain))(STACK))
    else:
        close(transform(f)(X), transform(plain)(X))


def test_methods_have_rules_too():
    class Layer:
        @custom_batching.custom_vmap
        def __call__(self, x):
            return x + 1.0

    layer = Layer()
    fnx.tree_util.register_pytree_node(Layer, lambda _: ((), None), lambda *_: layer)
    Layer.__call__.def_vmap(lambda size, flags, layer, x: (x * 100.0, True))
    close(fnx.vmap(layer.__call__)(X), 100 * X)


# ---------------------------------------------------------------- linear_call


def rotated(r, x, factor=1.0):
    """x turned by the angle r, whose transpose is given, times a factor."""

    def forward(r, x):
        return {
            "out": fnp.stack(
                [
                    fnp.cos(r) * x[0] - fnp.sin(r) * x[1],
                    fnp.sin(r) * x[0] + fnp.cos(r) * x[1],
                ]
            )
        }

    def back(r, ct):
        y = ct["out"]
        return factor * fnp.stack(
            [
                fnp.cos(r) * y[0] + fnp.sin(r) * y[1],
                fnp.cos(r) * y[1] - fnp.sin(r) * y[0],
            ]
        )

    return linear_call(forward, back, r, x)["out"]


def test_the_transpose_of_a_linear_call():
    x, r = np.array([1.0, 2.0]), np.float64(0.7)
    turn = np.array([[np.cos(r), -np.sin(r)], [np.sin(r), np.cos(r)]])
    close(rotated(r, x), turn @ x)
    for run in (fnx.jacrev, lambda *a: fnx.jit(fnx.jacrev(*a))):
        close(run(lambda x: rotated(r, x, 5.0))(x), 5 * turn)
    close(fnx.jacfwd(lambda x: rotated(r, x, 5.0))(x), turn)
    back = fnx.linear_transpose(lambda x: rotated(r, x, 5.0), x)
    close(back(x)[0], 5 * turn.T @ x)
    # the transpose of the transpose is the function
    again = fnx.linear_transpose(lambda y: back(y)[0], x)
    assert again(x)[0].shape == (2,)
    check_grads(rotated, (r, x), order=3)
    stack = np.stack([x, 2 * x, -x])
    for axes in ((None, 0), (0, None), (0, 0)):
        args = (
            np.array([0.1, 0.7, 2.0]) if axes[0] == 0 else r,
            stack if axes[1] == 0 else x,
        )

        def both(r, x, axes=axes):
            return fnx.vmap(rotated, axes)(r, x)

        check_grads(both, args, order=2)


def test_integers_among_residuals():
    def scaled(n, x):
        return linear_call(
            lambda n, x: x * n["n"], lambda n, ct: ct * n["n"], {"n": n}, x
        )

    close(fnx.jit(fnx.grad(lambda x: scaled(3, x)))(2.0), 3.0)
    close(fnx.vmap(fnx.grad(scaled, 1))(np.arange(3), X), [0, 1, 2])


# ---------------------------------------------------------------- custom_rule


def test_every_mode_has_its_own_rule():
    @fnx.custom_rule(
        jvp=lambda p, t: (fnp.sin(p[0]), 3.0 * fnp.cos(p[0]) * t[0]),
        vjp=(lambda x: (fnp.sin(x), x), lambda x, ct: (5.0 * fnp.cos(x) * ct,)),
        vmap=lambda size, flags, x: (7.0 * fnp.sin(x), True),
    )
    def f(x):
        return fnp.sin(x)

    x = np.float64(0.4)
    close(f(x), np.sin(x))
    close(fnx.jvp(f, (x,), (1.0,))[1], 3 * np.cos(x))
    close(fnx.jit(lambda x: fnx.jvp(f, (x,), (1.0,))[1])(x), 3 * np.cos(x))
    close(fnx.grad(f)(x), 5 * np.cos(x))
    close(fnx.jit(fnx.grad(f))(x), 5 * np.cos(x))
    close(fnx.vmap(f)(X), 7 * np.sin(X))
    close(fnx.jacfwd(fnx.grad(f))(x), -5 * np.sin(x))
    close(fnx.grad(lambda x: fnx.jvp(f, (x,), (1.0,))[1])(x), -3 * np.sin(x))
    assert f.__name__ == "f"


@AXES
def test_both_rules_of_a_function_that_is_mapped(axes):
    @fnx.custom_rule(
        jvp=lambda p, t: (p[0] * p[1], 3.0 * (p[0] * t[1] + p[1] * t[0])),
        vjp=(
            lambda x, y: (x * y, (x, y)),
            lambda r, ct: (5.0 * ct * r[1], 5.0 * ct * r[0]),
        ),
    )
    def f(x, y):
        return x * y

    x, y = [X if axis == 0 else np.float64(2.0) for axis in axes]
    mapped = fnx.vmap(f, axes)
    close(fnx.jvp(lambda x: mapped(x, y), (x,), (x,))[1], 3 * x * y)
    inner = fnx.vmap(lambda x, y: fnx.jvp(f, (x, y), (1.0, 0.0))[1], axes)
    close(inner(x, y), 3 * y + 0 * x)
    g = fnx.grad(lambda x: mapped(x, y).sum())(x)
    close(g, 5 * (y + 0 * x) if axes[0] == 0 else 5 * y.sum())


def test_a_linear_function_with_rules():
    seen = []

    def vmap(size, in_batched, n, x):
        seen.append((n, in_batched))
        return fnp.concatenate([x, np.zeros((size, n))], axis=1), True

    @fnx.custom_rule(
        transpose=lambda n, ct: (ct[:-n],), vmap=vmap, nondiff_argnames="n"
    )
    def padded(n, x):
        return fnp.concatenate([x, np.zeros(n)])

    close(padded(2, X), [*X, 0, 0])
    close(fnx.vmap(lambda x: padded(2, x))(STACK)[:, :3], STACK)
    assert seen == [(2, (False, True))]
    weights = np.arange(5.0)
    close(fnx.grad(lambda x: (padded(2, x) * weights).sum())(X), weights[:3])
    g = fnx.grad(lambda s: (fnx.vmap(lambda x: padded(2, x))(s) * weights).sum())
    close(g(STACK), np.tile(weights[:3], (4, 1)))


def test_one_rule_alone():
    f = fnx.custom_rule(lambda x: x * x, jvp=lambda p, t: (p[0] ** 2, 9.0 * t[0]))
    close(fnx.grad(f)(2.0), 9.0)
    g = fnx.custom_rule(
        lambda x: x * x, vjp=(lambda x: (x * x, None), lambda _, ct: (8.0 * ct,))
    )
    close(fnx.grad(g)(2.0), 8.0)
    close(fnx.jvp(g, (2.0,), (1.0,))[1], 8.0)
    h = fnx.custom_rule(lambda x: x * x, vmap=lambda size, flags, x: (0.0 * x, True))
    close(fnx.vmap(h)(X), np.zeros(3))
    close(fnx.grad(h)(2.0), 4.0)


def test_a_vjp_function_keeps_forward_mode_and_its_hessian():
    f = fnx.custom_vjp(lambda x: (x**3).sum())
    f.defvjp(lambda x: ((x**3).sum(), x), lambda x, ct: (3.0 * x**2 * ct,))
    for make in (fnx.hessian, lambda f: fnx.jit(fnx.jacrev(fnx.jacfwd(f)))):
        close(make(f)(X), np.diag(6 * X))
    close(fnx.jvp(f, (X,), (np.ones(3),))[1], 3 * (X**2).sum())


# ---------------------------------------------------------------- mistakes


def no_vmap_rule():
    return custom_batching.custom_vmap(lambda x: x)(1.0)


def vmapped(rule, f=lambda x: x * 2.0):
    wrapped = custom_batching.custom_vmap(f)
    wrapped.def_vmap(rule)
    return fnx.vmap(wrapped)(X)


def closing_over(x):
    f = custom_batching.custom_vmap(lambda y: y * x)
    f.def_vmap(lambda size, flags, y: (y, True))
    return f(1.0)


def linear(transpose, fun=lambda r, x: x * r):
    return fnx.grad(lambda x: linear_call(fun, transpose, 2.0, x).sum())(X)


BAD = {
    "no vmap rule": (
        no_vmap_rule,
        errors.ArgumentError,
        "custom_vmap of <lambda> has no rule.*def_vmap",
    ),
    "the vmap rule gives no pair": (
        lambda: vmapped(lambda size, flags, x: x),
        errors.ArgumentError,
        r"the vmap rule must return a pair \(output, which of it is mapped\)",
    ),
    "the vmap rule gives another shape": (
        lambda: vmapped(lambda size, flags, x: (x[:2], True)),
        errors.ShapeError,
        r"its output is f64\[2\], and should be f64\[3\]",
    ),
    "the vmap rule says not mapped": (
        lambda: vmapped(lambda size, flags, x: (x, False)),
        errors.ShapeError,
        r"its output is f64\[3\], and should be f64\[\]",
    ),
    "the vmap rule gives another tree": (
        lambda: vmapped(lambda size, flags, x: ([x], True)),
        errors.TreeError,
        "the function's output and its output differ",
    ),
    "which is mapped has another tree": (
        lambda: vmapped(lambda size, flags, x: (x, [True, True])),
        errors.TreeError,
        "which is mapped",
    ),
    "a mapped array is closed over": (
        lambda: fnx.vmap(closing_over)(X),
        errors.ArgumentError,
        "it closes over an array of type f64.*pass that array as an argument",
    ),
    "no rule": (
        lambda: fnx.custom_rule(lambda x: x),
        errors.ArgumentError,
        "give one of jvp, vjp, vmap, transpose",
    ),
    "transpose beside jvp": (
        lambda: fnx.custom_rule(lambda x: x, jvp=len, transpose=len),
        errors.OptionError,
        "transpose beside jvp or vjp",
    ),
    "vjp is no pair": (
        lambda: fnx.custom_rule(lambda x: x, vjp=3),
        errors.ArgumentError,
        r"vjp is a pair \(forward, backward\), got 3",
    ),
    "a rule is no function": (
        lambda: fnx.custom_rule(lambda x: x, vmap=3),
        errors.ArgumentError,
        "custom_rule: vmap takes a function: got 3",
    ),
    "the transpose gives another shape": (
        lambda: linear(lambda r, ct: ct[:2]),
        errors.ShapeError,
        r"the cotangent of argument 0 is f64\[2\]",
    ),
    "the transpose gives another tree": (
        lambda: linear(lambda r, ct: {"a": ct}),
        errors.TreeError,
        "the cotangent of argument 0 has a dict with keys 'a'",
    ),
    "a linear function of integers": (
        lambda: linear(lambda r, ct: ct, lambda r, x: fnp.argmax(x)),
        errors.DTypeError,
        r"the output has a leaf of type i32\[\]",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_are_named(name):
    run, kind, text = BAD[name]
    with pytest.raises(kind, match=re.compile(text, re.DOTALL)):
        run()


@pytest.mark.oracle
def test_against_jax(jax):
    import jax.numpy as jnp

    def of(library, np_):
        cv = library.custom_batching.custom_vmap(lambda x, y: np_.sin(x) * y)

        @cv.def_vmap
        def rule(size, in_batched, x, y):
            return 10.0 * np_.sin(x) * y, True

        return [
            library.vmap(cv, (0, None))(X, 2.0),
            library.vmap(lambda x: library.jvp(lambda x: cv(x, 2.0), (x,), (1.0,))[1])(
                X
            ),
            library.jvp(lambda y: library.vmap(cv, (0, None))(X, y), (2.0,), (1.0,))[1],
        ]

    for found, wanted in zip(of(fnx, fnp), of(jax, jnp), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
