"""jvp, vjp, linearize, linear_transpose and the Jacobians."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.ops.elementwise import exp, sin
from fnx.ops.parts import real
from fnx.ops.reduce import reduce_sum

X = np.array([0.5, 1.0, 2.0])


def f(x, y):
    return {"p": x * y, "q": sin(x)}


def test_jvp_pushes_tangents_through_trees():
    out, moved = fnx.jvp(f, (X, 2 * X), (np.ones(3), np.zeros(3)))
    np.testing.assert_allclose(out["p"], 2 * X * X)
    np.testing.assert_allclose(moved["p"], 2 * X)
    np.testing.assert_allclose(moved["q"], np.cos(X))


def test_jvp_of_integers_has_float0_tangents():
    zero = np.zeros((), fnx.float0)
    out, moved = fnx.jvp(lambda x, n: (x * 2.0, n), (1.0, 3), (1.0, zero))
    assert out[1].item() == 3 and moved[0].item() == 2.0
    assert moved[1].dtype == fnx.float0


def test_jvp_with_aux_and_constant_output():
    out, moved, aux = fnx.jvp(lambda x: (3.0, x), (1.0,), (1.0,), has_aux=True)
    assert (out.item(), moved.item(), aux.item()) == (3.0, 0.0, 1.0)


def test_linearize_evaluates_once():
    calls = []

    def g(x):
        calls.append(1)
        return exp(x)

    y, f_jvp = fnx.linearize(g, X)
    np.testing.assert_allclose(f_jvp(np.ones(3)), np.exp(X))
    np.testing.assert_allclose(f_jvp(2 * X), 2 * X * np.exp(X))
    assert len(calls) == 1
    y, f_jvp, aux = fnx.linearize(lambda x: (x * x, x), 3.0, has_aux=True)
    assert (y.item(), f_jvp(1.0).item(), aux.item()) == (9.0, 6.0, 3.0)


def test_vjp_pulls_cotangents_through_trees():
    _, f_vjp = fnx.vjp(f, X, 2 * X)
    ct_x, ct_y = f_vjp({"p": np.ones(3), "q": np.ones(3)})
    np.testing.assert_allclose(ct_x, 2 * X + np.cos(X))
    np.testing.assert_allclose(ct_y, X)


def test_vjp_of_integer_outputs_and_inputs():
    _, f_vjp, aux = fnx.vjp(lambda x, n: ((x * x, n), x), 3.0, 2, has_aux=True)
    ct_x, ct_n = f_vjp((1.0, np.zeros((), fnx.float0)))
    assert ct_x.item() == 6.0 and ct_n.dtype == fnx.float0 and aux.item() == 3.0


def test_vjp_function_may_leave_a_jit():
    _, f_vjp = fnx.jit(lambda x: fnx.vjp(lambda x: x * x, x))(3.0)
    assert f_vjp(1.0)[0].item() == 6.0
    pulled = fnx.vmap(f_vjp)(np.array([1.0, 2.0], "f4"))[0]
    np.testing.assert_allclose(pulled, [6.0, 12.0])


def test_python_sees_values_in_vjp_jvp_and_linearize():
    def g(x):
        return x * x if x > 1 else -x

    assert fnx.jvp(g, (3.0,), (1.0,))[1].item() == 6.0
    assert fnx.vjp(g, 0.5)[1](1.0)[0].item() == -1.0
    assert fnx.linearize(g, 3.0)[1](1.0).item() == 6.0


def test_linear_transpose():
    c = np.array([1.0, 2.0, 3.0])
    struct = fnx.ShapeDtypeStruct((3,), "float64")
    turned = fnx.linear_transpose(lambda x, y: (2.0 * x + c * y, x), struct, struct)
    ct_x, ct_y = turned((np.ones(3), np.ones(3)))
    np.testing.assert_allclose(ct_x, 3.0)
    np.testing.assert_allclose(ct_y, c)


def test_adjoint_identity(rng):
    t, ct = rng.standard_normal(3), rng.standard_normal(3)
    g = lambda x: exp(sin(x)) * x  # noqa: E731
    moved = np.asarray(fnx.jvp(g, (X,), (t,))[1])
    pulled = np.asarray(fnx.vjp(g, X)[1](ct)[0])
    np.testing.assert_allclose(moved @ ct, t @ pulled)


# ---------------------------------------------------------------- Jacobians


@pytest.mark.parametrize("jac", [fnx.jacfwd, fnx.jacrev, fnx.jacobian])
def test_jacobians_nest_the_trees(jac, rng):
    a, b = rng.standard_normal((2, 3)), rng.standard_normal(3)

    def g(p):
        return {"s": reduce_sum(p["a"] * p["a"], axes=(1,)), "t": p["b"] * 2.0}

    found = jac(g)({"a": a, "b": b})
    wanted = np.zeros((2, 2, 3))
    wanted[[0, 1], [0, 1]] = 2 * a
    np.testing.assert_allclose(found["s"]["a"], wanted)
    assert found["s"]["b"].shape == (2, 3) and not np.any(found["s"]["b"])
    np.testing.assert_allclose(found["t"]["b"], 2 * np.eye(3))
    assert found["t"]["a"].shape == (3, 2, 3)


def test_jacobian_options():
    many, aux = fnx.jacrev(lambda x, y: (x * y, x), (0, 1), has_aux=True)(X, 2.0 * X)
    np.testing.assert_allclose(many[0], np.diag(2 * X))
    np.testing.assert_allclose(aux, X)
    z = X + 1j
    holomorphic = fnx.jacfwd(lambda z: z * z, holomorphic=True)(z)
    np.testing.assert_allclose(holomorphic, np.diag(2 * z))
    np.testing.assert_allclose(
        fnx.jacrev(lambda z: z * z, holomorphic=True)(z), np.diag(2 * z)
    )
    g = fnx.jacrev(lambda p: p["x"] * 2.0, allow_int=True)({"x": 1.0, "n": 3})
    assert g["n"].dtype == fnx.float0


def test_jacobian_of_mixed_outputs():
    g = fnx.jacfwd(lambda x: (x * 2.0, 3.0, np.arange(2)))(X)
    np.testing.assert_allclose(g[0], 2 * np.eye(3))
    assert g[1].shape == (3,) and not np.any(g[1])
    assert g[2].shape == (2, 3) and g[2].dtype == fnx.float0


def test_hessian(rng):
    def g(p):
        return reduce_sum(p["a"] * p["a"] * p["b"], axes=(0,))

    p = {"a": X, "b": 2 * X}
    for hess in (fnx.hessian(g), fnx.jit(fnx.hessian(g)), fnx.jacrev(fnx.jacrev(g))):
        h = hess(p)
        np.testing.assert_allclose(h["a"]["a"], np.diag(4 * X))
        np.testing.assert_allclose(h["a"]["b"], np.diag(2 * X))
        np.testing.assert_allclose(h["b"]["b"], np.zeros((3, 3)))


@pytest.mark.oracle
def test_jacobians_against_jax(jax, rng):
    def g(p, y):
        return {"u": p["a"] * y[0], "v": (p["a"] ** 2, y[1] * 2.0)}

    args = ({"a": rng.standard_normal(3)}, [np.float64(2.0), rng.standard_normal(2)])
    for name in ("jacfwd", "jacrev", "hessian"):
        wanted = getattr(jax, name)(g, (0, 1))(*args)
        found = getattr(fnx, name)(g, (0, 1))(*args)
        assert str(fnx.tree.structure(wanted)) == str(fnx.tree.structure(found))
        rows = zip(jax.tree.leaves(wanted), fnx.tree.leaves(found), strict=True)
        for a, b in rows:
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-14)


BAD = {
    "tangent tree": (
        lambda: fnx.jvp(lambda p: p["a"], ({"a": 1.0},), ([1.0],)),
        errors.TreeError,
        r"the tangents must have the structure of the primals(.|\n)*at \[0\]",
    ),
    "tangent shape": (
        lambda: fnx.jvp(lambda p: p["a"], ({"a": X},), ({"a": np.ones(4)},)),
        errors.ShapeError,
        r"the tangents\[0\]\['a'\] is f64\[4\]: the primals there is f64\[3\]",
    ),
    "tangent dtype": (
        lambda: fnx.jvp(lambda x: x, (X,), (np.ones(3, "f4"),)),
        errors.DTypeError,
        r"the tangents\[0\] is f32\[3\](.|\n)*astype\('float64'\)",
    ),
    "tangent of an integer": (
        lambda: fnx.jvp(lambda n: n, (3,), (1,)),
        errors.DTypeError,
        r"i32\[\]\*, which has no derivative(.|\n)*fnx.float0",
    ),
    "primals without a tuple": (
        lambda: fnx.jvp(lambda x: x, 1.0, (1.0,)),
        errors.ArgumentError,
        r"primals must be a tuple or list(.|\n)*write \(primals,\)",
    ),
    "cotangent tree": (
        lambda: fnx.vjp(f, X, X)[1]((X, X)),
        errors.TreeError,
        r"the cotangent must have the structure of the output(.|\n)*at the root",
    ),
    "cotangent shape": (
        lambda: fnx.vjp(lambda x: x, X)[1](1.0),
        errors.ShapeError,
        r"the cotangent is f32\[\]\*: the output there is f64\[3\]",
    ),
    "linearize tree": (
        lambda: fnx.linearize(lambda x: x, X)[1](X, X),
        errors.TreeError,
        r"the tangents must have the structure",
    ),
    "transpose of a function that is not linear": (
        lambda: fnx.linear_transpose(sin, 1.0),
        errors.ArgumentError,
        r"not linear in its arguments: it applies sin",
    ),
    "transpose of a product": (
        lambda: fnx.linear_transpose(lambda x: x * x, 1.0)(1.0),
        errors.ArgumentError,
        r"not linear",
    ),
    "transpose of a quotient": (
        lambda: fnx.linear_transpose(lambda x: 2.0 / x, 1.0),
        errors.ArgumentError,
        r"not linear in its arguments: it multiplies what depends on them at .*2.0 / x",
    ),
    "transpose of integers": (
        lambda: fnx.linear_transpose(lambda n: n, 1),
        errors.DTypeError,
        r"n is i32\[\]\*",
    ),
    "jacfwd by a complex argument": (
        lambda: fnx.jacfwd(real)(1j),
        errors.DTypeError,
        r"forward mode takes real arguments",
    ),
    "jacrev by an integer": (
        lambda: fnx.jacrev(lambda x: x * 2.0)(1),
        errors.DTypeError,
        r"jacrev: x is i32",
    ),
    "jacrev of a complex output": (
        lambda: fnx.jacrev(lambda x: x * 1j)(1.0),
        errors.DTypeError,
        r"jacrev: the output is c64",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_errors_say_what_why_and_what_to_do(name):
    call, error, match = BAD[name]
    with pytest.raises(error, match=match):
        call()
