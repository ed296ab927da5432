"""vmap: axes as trees and prefixes, unmapped arguments, output axes, error texts."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.ops.elementwise import sin
from fnx.ops.reduce import reduce_sum

X = np.arange(6.0).reshape(2, 3)


def dot(x, y):
    return reduce_sum(x * y, axes=(0,))


def test_axes_of_arguments():
    y = np.ones(3)
    np.testing.assert_allclose(fnx.vmap(dot, (0, None))(X, y), X @ y)
    np.testing.assert_allclose(fnx.vmap(dot, (1, None))(X, np.ones(2)), X.sum(0))
    np.testing.assert_allclose(fnx.vmap(dot, (-1, 0))(X.T, X), (X * X).sum(1))
    np.testing.assert_allclose(fnx.vmap(dot, [0, 0])(X, X), (X * X).sum(1))


def test_axes_as_trees_and_prefixes():
    tree = {"x": X, "y": (X.T, X)}
    f = lambda p: dot(p["x"], p["y"][0]) + dot(p["x"], p["y"][1])  # noqa: E731
    wanted = 2 * (X * X).sum(1)
    axes = ({"x": 0, "y": (1, 0)},)
    np.testing.assert_allclose(fnx.vmap(f, axes)(tree), wanted)
    whole = fnx.vmap(lambda p, q: p["x"] * q, ({"x": 0, "y": None}, None))(tree, 2.0)
    np.testing.assert_allclose(whole, X * 2)


def test_keyword_arguments_are_mapped_over_axis_0():
    found = fnx.vmap(lambda x, *, y: x * y)(X, y=X)
    np.testing.assert_allclose(found, X * X)


def test_arguments_that_are_not_mapped_may_be_anything():
    def f(x, mode, scale):
        assert mode == "double" and scale == 2
        return x * scale if scale > 1 else x

    found = fnx.vmap(f, (0, None, None))(X, "double", 2)
    np.testing.assert_allclose(found, 2 * X)
    assert fnx.vmap(lambda x, y: x, (0, None))(X, None).shape == X.shape


def test_axes_of_outputs():
    a, b, c = fnx.vmap(lambda x: (x, {"b": x}, 1.5), out_axes=(1, -1, None))(X)
    np.testing.assert_allclose(a, X.T)
    np.testing.assert_allclose(b["b"], X.T)
    assert c.item() == 1.5
    np.testing.assert_allclose(fnx.vmap(lambda x: 1.5)(X), [1.5, 1.5])


def test_axis_size_maps_functions_of_nothing():
    found = fnx.vmap(lambda: 2.0, axis_size=3)()
    np.testing.assert_allclose(found, [2.0] * 3)
    found = fnx.vmap(lambda x: x, in_axes=None, axis_size=2)(3.0)
    np.testing.assert_allclose(found, [3.0] * 2)


def test_nested_and_inside_other_transformations():
    f = lambda x, y: sin(x) * y  # noqa: E731
    outer = fnx.vmap(fnx.vmap(f, (0, None)), (None, 0))
    wanted = np.sin(X[0])[None, :] * X[1][:, None]
    np.testing.assert_allclose(outer(X[0], X[1]), wanted)
    np.testing.assert_allclose(fnx.jit(outer)(X[0], X[1]), wanted)
    np.testing.assert_allclose(fnx.vmap(fnx.jit(fnx.vmap(f)))(X, X), np.sin(X) * X)


def test_captured_tracers_are_shared():
    def f(y):
        return reduce_sum(fnx.vmap(lambda x: x * y)(X[0]), axes=(0,))

    assert fnx.grad(f)(2.0).item() == X[0].sum()
    np.testing.assert_allclose(fnx.vmap(f)(X[1]), X[1] * X[0].sum())


def test_integers_and_bools():
    n = np.arange(3)
    found = fnx.vmap(lambda n, b: (n * 2, b))(n, n > 1)
    assert found[0].dtype == n.dtype and found[1].dtype == bool
    np.testing.assert_array_equal(found[0], 2 * n)


def test_axis_of_size_zero():
    assert fnx.vmap(lambda x: x * 2.0)(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.oracle
def test_against_jax(jax):
    def f(p, y):
        return {"s": (p["x"] * y).sum(), "t": p["x"] + y}

    args = ({"x": X}, X.T)
    axes = (({"x": 0}, 1), {"s": 0, "t": 1})
    wanted, found = jax.vmap(f, *axes)(*args), fnx.vmap(f, *axes)(*args)
    for key in wanted:
        np.testing.assert_allclose(wanted[key], found[key])


BAD = {
    "sizes": (
        lambda: fnx.vmap(lambda p, y: y)({"a": X, "b": [X]}, X.T),
        errors.ShapeError,
        r"equal sizes:\n  p\['a'\]: f64\[2,3\] has 2 at axis 0\n"
        r"  p\['b'\]\[0\]: .*\n  y: f64\[3,2\] has 3 at axis 0",
    ),
    "axis_size": (
        lambda: fnx.vmap(lambda x: x, axis_size=5)(X),
        errors.ShapeError,
        r"x: f64\[2,3\] has 2 at axis 0\n  axis_size is 5",
    ),
    "tree of in_axes": (
        lambda: fnx.vmap(lambda p: p, ({"a": 0},))({"b": X}),
        errors.TreeError,
        r"in_axes(.|\n)*at \[0\]\['a'\]: only in",
    ),
    "number of in_axes": (
        lambda: fnx.vmap(lambda x: x, (0, 0))(X),
        errors.ArgumentError,
        r"in_axes=\(0, 0\) has 2 entries: the function was called with 1",
    ),
    "kind of in_axes": (
        lambda: fnx.vmap(lambda x: x, "x"),
        errors.ArgumentError,
        r"in_axes='x': axes are integers or None",
    ),
    "axis out of range": (
        lambda: fnx.vmap(lambda p: p, 2)({"a": X}),
        errors.AxisError,
        r"p\['a'\] is f64\[2,3\]: it has no axis 2",
    ),
    "scalar": (
        lambda: fnx.vmap(lambda x: x)(1.0),
        errors.AxisError,
        r"x is f32\[\]\*: it has no axis 0(.|\n)*None in in_axes",
    ),
    "nothing mapped": (
        lambda: fnx.vmap(lambda x: x, None)(X),
        errors.ArgumentError,
        r"no argument is mapped(.|\n)*axis_size",
    ),
    "string mapped": (
        lambda: fnx.vmap(lambda x, s: x)(X, "abc"),
        errors.ArgumentError,
        r"s is 'abc' of type str(.|\n)*None in in_axes",
    ),
    "out_axes None": (
        lambda: fnx.vmap(lambda x: {"y": x}, out_axes=None)(X),
        errors.AxisError,
        r"out_axes is None for the output\['y'\]: it depends on a mapped argument",
    ),
    "out_axes out of range": (
        lambda: fnx.vmap(lambda x: x, out_axes=2)(X),
        errors.AxisError,
        r"out_axes is 2 for the output: with the mapped axis it has rank 2",
    ),
    "tree of out_axes": (
        lambda: fnx.vmap(lambda x: x, out_axes=(0, 0))(X),
        errors.TreeError,
        r"out_axes",
    ),
    "branch on a mapped value": (
        lambda: fnx.vmap(lambda x: x if x > 0 else -x)(X[0]),
        errors.TracerValueError,
        r"depends on x \(mapped by vmap\)",
    ),
    "result": (
        lambda: fnx.vmap(lambda x: {"a": "text"})(X),
        errors.ArgumentError,
        r"the function's result\['a'\] is 'text'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_say_what_why_and_what_to_do(name):
    call, error, match = BAD[name]
    with pytest.raises(error, match=match):
        call()
