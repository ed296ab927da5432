"""custom_jvp, custom_vjp and what is built on them, under every transformation."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.core.program import walk
from fnx.ops.elementwise import cos, sin
from fnx.ops.reduce import reduce_sum
from fnx.testing import check_grads

X = np.array([0.5, 1.0, 2.0])


def total(x):
    return reduce_sum(x, axes=tuple(range(x.ndim)))


@fnx.custom_jvp
def sine(x):
    return sin(x)


@sine.defjvp
def sine_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return sine(x), 3.0 * cos(x) * t


@fnx.custom_vjp
def product(x, p):
    return {"out": x * sin(p["y"])}


def product_fwd(x, p):
    return product(x, p), (x, p["y"])


def product_bwd(residuals, ct):
    x, y = residuals
    return ct["out"] * sin(y), {"y": ct["out"] * x * cos(y)}


product.defvjp(product_fwd, product_bwd)


def value(x, y):
    return product(x, {"y": y})["out"]


# ---------------------------------------------------------------- custom_jvp


def test_the_rule_serves_all_modes():
    wanted = 3 * np.cos(X)
    ones = np.ones(3)
    np.testing.assert_allclose(fnx.jvp(sine, (X,), (ones,))[1], wanted)
    np.testing.assert_allclose(fnx.vjp(sine, X)[1](ones)[0], wanted)
    np.testing.assert_allclose(fnx.linearize(sine, X)[1](ones), wanted)
    np.testing.assert_allclose(fnx.vmap(fnx.grad(sine))(X), wanted)
    np.testing.assert_allclose(fnx.grad(lambda x: total(fnx.vmap(sine)(x)))(X), wanted)
    np.testing.assert_allclose(fnx.jit(fnx.vmap(fnx.grad(fnx.jit(sine))))(X), wanted)
    np.testing.assert_allclose(np.diag(fnx.jacfwd(sine)(X)), wanted)


def test_the_rule_is_used_in_the_rule():
    # d/dx 3 cos(x) = -3 sin(x): the rule applies to `sine` only
    second = -3 * np.sin(X)
    np.testing.assert_allclose(fnx.vmap(fnx.grad(fnx.grad(sine)))(X), second)
    # `sine` in its own output is differentiated by the rule again
    out = fnx.jvp(lambda x: fnx.jvp(sine, (x,), (np.ones(3),))[0], (X,), (np.ones(3),))
    np.testing.assert_allclose(out[1], 3 * np.cos(X))


def test_without_differentiation_the_rule_is_not_run():
    @fnx.custom_jvp
    def f(x):
        return x * 2.0

    f.defjvp(lambda p, t: 1 / 0)
    assert f(1.0) == 2.0
    assert fnx.jit(f)(1.0).item() == 2.0
    np.testing.assert_allclose(fnx.vmap(f)(X), 2 * X)
    with pytest.raises(ZeroDivisionError):
        fnx.grad(f)(1.0)


def test_defjvps():
    f = fnx.custom_jvp(lambda x, y: x * y)
    f.defjvps(None, lambda t, out, x, y: 5.0 * t * out)
    assert [g.item() for g in fnx.grad(f, (0, 1))(2.0, 3.0)] == [0.0, 30.0]
    f.defjvps(None, None)
    assert [g.item() for g in fnx.grad(f, (0, 1))(2.0, 3.0)] == [0.0, 0.0]


def test_arguments_that_are_not_differentiated():
    @fnx.custom_jvp
    def plain(f, x, scale):
        return f(x) * scale

    plain = fnx.custom_jvp(plain.fun, nondiff_argnums=0, nondiff_argnames="scale")

    @plain.defjvp
    def rule(f, scale, primals, tangents):
        return plain(f, *primals, scale), tangents[0] * scale * 7.0

    assert fnx.grad(lambda x: plain(sin, x, 2.0))(1.0).item() == 14.0
    # an array among them is an operand, so it may be traced and mapped
    scaled = fnx.vmap(lambda s: fnx.grad(lambda x: plain(sin, x, s))(1.0))
    np.testing.assert_allclose(scaled(X), 7 * X)
    jitted = fnx.jit(lambda s: fnx.grad(lambda x: plain(sin, x, scale=s))(1.0))
    assert jitted(3.0).item() == 21.0


def test_integer_arguments_and_outputs():
    @fnx.custom_jvp
    def f(x, n):
        return x * 2.0, n

    @f.defjvp
    def rule(primals, tangents):
        assert tangents[1].dtype == fnx.float0
        return f(*primals), (tangents[0] * 4.0, tangents[1])

    assert fnx.grad(lambda x: f(x, 3)[0])(1.0).item() == 4.0


def test_rules_may_close_over_arrays():
    c = fnx.device_put(np.array([1.0, 2.0, 3.0]))

    @fnx.custom_jvp
    def f(x):
        return x * c

    f.defjvp(lambda p, t: (f(*p), t[0] * c * np.array([10.0, 10.0, 10.0])))
    wanted = 10 * np.asarray(c)
    np.testing.assert_allclose(fnx.grad(lambda x: total(f(x)))(X), wanted)
    np.testing.assert_allclose(fnx.jit(fnx.grad(lambda x: total(f(x))))(X), wanted)
    jitted = fnx.jit(lambda x: total(f(x)))
    np.testing.assert_allclose(fnx.grad(jitted)(X), wanted)
    batch = np.stack([X, X])
    np.testing.assert_allclose(
        fnx.vmap(fnx.grad(lambda x: total(f(x))))(batch), [wanted] * 2
    )


def test_rules_are_traced_anew_where_nothing_is_compiled():
    scale = [2.0]
    f = fnx.custom_jvp(lambda x: x)
    f.defjvp(lambda p, t: (f(*p), t[0] * scale[0]))
    assert fnx.grad(f)(1.0).item() == 2.0
    scale[0] = 3.0
    assert fnx.grad(f)(1.0).item() == 3.0


def test_python_sees_values_in_functions_and_rules():
    @fnx.custom_jvp
    def f(x):
        return x * 2.0 if x > 0 else x

    @f.defjvp
    def rule(primals, tangents):
        slope = 20.0 if primals[0] > 0 else 10.0
        return f(*primals), tangents[0] * slope

    assert fnx.grad(f)(1.0).item() == 20.0
    assert fnx.grad(f)(-1.0).item() == 10.0
    assert fnx.grad(lambda x: fnx.grad(lambda y: f(y * x) * y)(2.0))(1.0) is not None
    with pytest.raises(errors.TracerValueError, match="depends on x"):
        fnx.jit(fnx.grad(f))(1.0)


def test_closed_over_tracers():
    def outer(y):
        f = fnx.custom_jvp(lambda x: x * y)
        f.defjvp(lambda p, t: (f(*p), t[0] * 2.0))
        return fnx.grad(f)(3.0) + f(1.0)

    # the function may use a traced array, but nobody may differentiate by it
    np.testing.assert_allclose(fnx.vmap(outer)(X), X + 2)
    with pytest.raises(errors.ArgumentError, match=r"closes over(.|\n)*as a differ"):
        fnx.grad(outer)(1.0)

    def rule_closes(y):
        f = fnx.custom_jvp(lambda x: x)
        f.defjvp(lambda p, t: (f(*p), t[0] * y))
        return fnx.grad(f)(3.0)

    with pytest.raises(errors.ArgumentError, match=r"uses a traced array of type f64"):
        fnx.vmap(rule_closes)(X)


def test_keyword_arguments_and_methods():
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @fnx.custom_jvp
        def __call__(self, x):
            raise AssertionError

    class Scaled:
        scale = 2.0

        def plain(self, x, k=1.0):
            return self.scale * x * k

        call = fnx.custom_jvp(plain, nondiff_argnums=(0,))

        @call.defjvp
        def rule(self, primals, tangents):
            return self.call(*primals), 9.0 * tangents[0]

    assert fnx.grad(lambda x: Scaled().call(x, k=3.0))(1.0).item() == 9.0
    assert Scaled().call(1.0) == 2.0
    assert Model.__call__ is not None


# ---------------------------------------------------------------- custom_vjp


def test_reverse_mode_runs_the_backward_rule():
    gx, gy = fnx.grad(value, (0, 1))(2.0, 0.5)
    np.testing.assert_allclose([gx, gy], [np.sin(0.5), 2 * np.cos(0.5)], rtol=1e-6)
    gx, gy = fnx.jit(fnx.grad(fnx.jit(value), (0, 1)))(2.0, 0.5)
    np.testing.assert_allclose([gx, gy], [np.sin(0.5), 2 * np.cos(0.5)], rtol=1e-6)


def test_forward_mode_transposes_the_backward_rule():
    moved = fnx.jvp(value, (X, X), (np.ones(3), X))[1]
    np.testing.assert_allclose(moved, np.sin(X) + X * np.cos(X) * X)
    jitted = fnx.jit(lambda x, y: fnx.jvp(value, (x, y), (np.ones(3), X))[1])
    np.testing.assert_allclose(jitted(X, X), np.sin(X) + X * np.cos(X) * X)
    np.testing.assert_allclose(np.diag(fnx.jacfwd(value)(X, X)), np.sin(X))


def test_higher_orders_and_mixed_modes():
    check_grads(value, (X, X), order=3)
    for second in (
        fnx.jacfwd(fnx.jacrev(value, 1), 1),
        fnx.jacrev(fnx.jacfwd(value, 1), 1),
        fnx.jacfwd(fnx.jacfwd(value, 1), 1),
        fnx.jacrev(fnx.jacrev(value, 1), 1),
        fnx.jit(fnx.hessian(value, 1)),
    ):
        np.testing.assert_allclose(
            second(np.float64(2.0), np.float64(0.5)), -2 * np.sin(0.5)
        )


def test_cotangents_of_unmapped_inputs_are_summed():
    def f(x, y):
        return total(fnx.vmap(value, (0, None))(x, y))

    for g in (fnx.grad(f, (0, 1)), fnx.jit(fnx.grad(f, (0, 1)))):
        gx, gy = g(X, np.float64(0.5))
        np.testing.assert_allclose(gx, np.full(3, np.sin(0.5)))
        np.testing.assert_allclose(gy, np.sum(X * np.cos(0.5)))
    check_grads(f, (X, 0.5), order=2)
    per_sample = fnx.vmap(fnx.grad(value, (0, 1)), (0, None))(X, np.float64(0.5))
    np.testing.assert_allclose(per_sample[1], X * np.cos(0.5))


def test_vmap_of_vmap():
    def f(x, y):
        inner = fnx.vmap(value, (None, 0))
        return total(fnx.vmap(inner, (0, None))(x, y))

    check_grads(f, (X, X[:2]), order=2)
    check_grads(lambda x, y: fnx.jvp(f, (x, y), (X, X[:2]))[1], (X, X[:2]))


def test_backward_rule_that_ignores_its_cotangent():
    f = fnx.custom_vjp(lambda x, y: x * y)
    f.defvjp(lambda x, y: (x * y, None), lambda _, ct: (ct, 1.0))
    g = fnx.grad(lambda x, y: total(fnx.vmap(f, (0, None))(x, y)), 1)
    assert g(X.astype("f4"), np.float32(1)).item() == 3.0


def test_none_stands_for_zeros():
    f = fnx.custom_vjp(lambda p, n: p["a"] * p["b"])
    f.defvjp(lambda p, n: (p["a"] * p["b"], p["b"]), lambda b, ct: (None, None))
    g = fnx.grad(f)({"a": 2.0, "b": 3.0}, 4)
    assert g["a"].item() == g["b"].item() == 0.0
    f.defvjp(
        lambda p, n: (p["a"] * p["b"], p["b"]),
        lambda b, ct: ({"a": b * ct, "b": None}, None),
    )
    g = fnx.grad(f)({"a": 2.0, "b": 3.0}, 4)
    assert [g["a"].item(), g["b"].item()] == [3.0, 0.0]


def test_integer_outputs_have_float0_cotangents():
    f = fnx.custom_vjp(lambda x, n: (x, n))

    def bwd(_, cts):
        assert cts[1].dtype == fnx.float0
        return cts[0] * 5.0, np.zeros((), fnx.float0)

    f.defvjp(lambda x, n: ((x, n), None), bwd)
    assert fnx.grad(lambda x: f(x, 3)[0])(1.0).item() == 5.0


def test_arguments_that_are_not_differentiated_by_vjp():
    f = fnx.custom_vjp(lambda g, lo, x: g(x) * lo, nondiff_argnums=(0, 1))
    f.defvjp(
        lambda g, lo, x: (f(g, lo, x), cos(x)), lambda g, lo, res, ct: (ct * res * lo,)
    )
    np.testing.assert_allclose(
        fnx.grad(lambda x: f(sin, 2.0, x))(1.0), 2 * np.cos(1.0), rtol=1e-6
    )
    by_lo = fnx.vmap(lambda lo: fnx.grad(lambda x: f(sin, lo, x))(np.float64(1.0)))
    np.testing.assert_allclose(by_lo(X), X * np.cos(1.0))
    with pytest.raises(errors.ArgumentError, match="nondiff_argnums"):
        fnx.grad(lambda lo: f(sin, lo, 1.0))(2.0)


def test_rules_may_close_over_arrays_in_vjp():
    c = fnx.device_put(X)
    f = fnx.custom_vjp(lambda x: x * c)
    f.defvjp(lambda x: (x * c, c), lambda res, ct: (ct * res * X * 2.0,))
    for g in (
        fnx.grad(lambda x: total(f(x))),
        fnx.jit(fnx.grad(lambda x: total(f(x)))),
    ):
        np.testing.assert_allclose(g(X), 2 * X * X)


def test_programs_with_rules_do_not_fill_the_shared_caches():
    from fnx.transforms.jvp import _jvp_program

    shared = _jvp_program.__closure__
    assert shared is not None
    program = fnx.make_jaxpr(lambda x: sine(x))(1.0)
    assert program.personal
    assert not fnx.make_jaxpr(lambda x: x * 2.0)(1.0).personal
    assert [eqn.primitive.name for eqn in program.eqns] == ["custom_jvp_call"]
    assert "sin" in {eqn.primitive.name for eqn in walk(program)}


# ---------------------------------------------------------------- built on them


def test_custom_gradient():
    @fnx.custom_gradient
    def f(x, y):
        z = x * y
        return z, lambda ct: (ct * z, ct * 3.0)

    assert [g.item() for g in fnx.grad(f, (0, 1))(2.0, 5.0)] == [10.0, 3.0]
    assert [g.item() for g in fnx.jit(fnx.grad(f, (0, 1)))(2.0, 5.0)] == [10.0, 3.0]
    np.testing.assert_allclose(fnx.vmap(fnx.grad(f), (0, None))(X, 2.0), 2 * X)


def test_closure_convert():
    @fnx.custom_vjp
    def apply(f, x, *consts):
        return f(x, *consts)

    def outer(y, x):
        converted, consts = fnx.closure_convert(lambda x: x * y * y, x)
        assert len(consts) == 1
        g = fnx.custom_vjp(lambda x, *consts: converted(x, *consts))
        g.defvjp(
            lambda x, *consts: (g(x, *consts), (x, consts)),
            lambda res, ct: (ct, res[1][0] * ct),
        )
        return g(x, *consts)

    assert fnx.grad(outer)(3.0, 2.0).item() == 3.0
    assert apply.__name__ == "apply"


# ---------------------------------------------------------------- errors


def jvp_with(rule, f=lambda x: {"a": x}):
    g = fnx.custom_jvp(f)
    g.defjvp(rule)
    return lambda: fnx.jvp(g, (X,), (X,))


def vjp_with(fwd, bwd, f=lambda x, p: x * p["y"]):
    g = fnx.custom_vjp(f)
    g.defvjp(fwd, bwd)
    return lambda: fnx.vjp(g, X, {"y": X})[1](X)


def ok(x, p):
    return x * p["y"], x


BAD = {
    "no jvp rule": (
        lambda: fnx.custom_jvp(sin)(1.0),
        errors.ArgumentError,
        r"custom_jvp of sin has no rule(.|\n)*defjvp",
    ),
    "no vjp rule": (
        lambda: fnx.custom_vjp(value)(1.0, 1.0),
        errors.ArgumentError,
        r"custom_vjp of value has no rule(.|\n)*defvjp",
    ),
    "jvp rule without a pair": (
        jvp_with(lambda p, t: p[0]),
        errors.ArgumentError,
        r"jvp rule must return a pair \(output, tangent\)",
    ),
    "jvp rule with another output tree": (
        jvp_with(lambda p, t: (p[0], {"a": t[0]})),
        errors.TreeError,
        r"output of the jvp rule has not the structure(.|\n)*the function has a dict",
    ),
    "jvp rule with another output type": (
        jvp_with(lambda p, t: ({"a": total(p[0])}, {"a": t[0]})),
        errors.ShapeError,
        r"\['a'\] is f64\[\]: the function itself gives f64\[3\]",
    ),
    "jvp rule with another tangent tree": (
        jvp_with(lambda p, t: ({"a": p[0]}, t[0])),
        errors.TreeError,
        r"the tangent that the jvp rule returns must have the structure",
    ),
    "jvp rule with another tangent shape": (
        jvp_with(lambda p, t: ({"a": p[0]}, {"a": total(t[0])})),
        errors.ShapeError,
        r"\['a'\] is f64\[\]: the output there is f64\[3\]",
    ),
    "number of rules in defjvps": (
        lambda: _defjvps_with_two()(1.0),
        errors.ArgumentError,
        r"defjvps was given 2 rules for 1 arguments",
    ),
    "forward rule without a pair": (
        vjp_with(lambda x, p: x, lambda r, ct: (ct, None)),
        errors.ArgumentError,
        r"forward rule must return a pair \(output, residuals\)",
    ),
    "forward rule with another output": (
        vjp_with(lambda x, p: ((x, x), x), lambda r, ct: (ct, None)),
        errors.TreeError,
        r"the output of the forward rule",
    ),
    "residuals that are no arrays": (
        vjp_with(lambda x, p: (x * p["y"], {"r": "text"}), lambda r, ct: (ct, None)),
        errors.ArgumentError,
        r"the residuals(.|\n)*\['r'\] is 'text'",
    ),
    "backward rule without a tuple": (
        vjp_with(ok, lambda r, ct: ct),
        errors.ArgumentError,
        r"cotangent for each of the 2 arguments",
    ),
    "backward rule with too few": (
        vjp_with(ok, lambda r, ct: (ct,)),
        errors.ArgumentError,
        r"it returned a tuple of length 1(.|\n)*None",
    ),
    "backward rule with another tree": (
        vjp_with(ok, lambda r, ct: (ct, {"z": ct})),
        errors.TreeError,
        r"cotangent of argument 1",
    ),
    "backward rule with an array for a tree": (
        vjp_with(ok, lambda r, ct: (ct, ct)),
        errors.TreeError,
        r"cotangent of argument 1 has another structure",
    ),
    "backward rule with another shape": (
        vjp_with(ok, lambda r, ct: (total(ct), None)),
        errors.ShapeError,
        r"the cotangent of argument 0 is f64\[\]: the argument there is f64\[3\]",
    ),
    "backward rule with another dtype": (
        vjp_with(ok, lambda r, ct: (np.zeros(3, "f4"), None)),
        errors.DTypeError,
        r"the cotangent of argument 0 is f32\[3\]",
    ),
    "forward mode of a rule that is not linear": (
        lambda: fnx.jvp(_not_linear(), (X,), (X,)),
        errors.ArgumentError,
        r"forward mode through .*cannot be transposed(.|\n)*custom_jvp",
    ),
    "a cotangent that is no tuple": (
        lambda: fnx.grad(_bare())(1.0),
        errors.ArgumentError,
        r"must return a tuple(.|\n)*it returned an array(.|\n)*a tuple of one",
    ),
    "keyword-only argument": (
        lambda: _keyword_only()(1.0, k=2.0),
        errors.ArgumentError,
        r"k is a keyword-only argument",
    ),
    "nondiff_argnums out of range": (
        lambda: fnx.jit(_nondiff(3))(1.0),
        errors.ArgumentError,
        r"nondiff_argnums=3: the call has 1 positional argument",
    ),
    "string that is differentiated": (
        lambda: fnx.jit(lambda x: value(x, "abc"))(1.0),
        errors.ArgumentError,
        r"p\['y'\] is 'abc' of type str(.|\n)*nondiff_argnums",
    ),
}


def _defjvps_with_two():
    f = fnx.custom_jvp(lambda x: x)
    f.defjvps(None, None)
    return fnx.grad(f)


def _not_linear():
    f = fnx.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (sin(ct),))
    return f


def _bare():
    f = fnx.custom_vjp(lambda x: x * 1.0)
    f.defvjp(lambda x: (x, None), lambda _, ct: ct * 7)
    return f


def _keyword_only():
    f = fnx.custom_jvp(lambda x, *, k: x * k)
    f.defjvp(lambda p, t: (p[0], t[0]))
    return f


def _nondiff(number):
    f = fnx.custom_jvp(lambda x: x, nondiff_argnums=number)
    f.defjvp(lambda p, t: (p[0], t[0]))
    return f


@pytest.mark.parametrize("name", BAD)
def test_errors_say_what_why_and_what_to_do(name):
    call, error, match = BAD[name]
    with pytest.raises(error, match=match):
        call()


@pytest.mark.oracle
def test_against_jax(jax):
    def build(api, sin, cos):
        f = api.custom_vjp(lambda x, y: x * sin(y))
        f.defvjp(
            lambda x, y: (f(x, y), (x, y)),
            lambda res, ct: (ct * sin(res[1]), 2.0 * ct * res[0] * cos(res[1])),
        )

        def loss(x, y):
            return api.vmap(f, (0, None))(x, y).sum()

        return api.grad(loss, (0, 1)), api.jacrev(api.grad(loss, 1), 1)

    ours = build(fnx, sin, cos)
    theirs = build(jax, jax.numpy.sin, jax.numpy.cos)
    for a, b in zip(ours, theirs, strict=True):
        found, wanted = a(X, np.float64(0.5)), b(X, np.float64(0.5))
        rows = zip(fnx.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
        for x, y in rows:
            np.testing.assert_allclose(x, y, rtol=1e-12)
