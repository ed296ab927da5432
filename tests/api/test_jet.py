"""Taylor mode against nested jvp, closed forms and JAX, alone and inside of others."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax, nn
from fnx.core.program import walk

RNG = np.random.default_rng(5)
ORDER = 5
X = RNG.uniform(0.2, 0.8, size=(2, 3))
SERIES = [RNG.normal(size=(2, 3)) for _ in range(ORDER)]
W = RNG.normal(size=(3, 3))


def curve(t, x=X, series=SERIES):
    """The polynomial whose derivatives at 0 are the series."""
    terms = [c * (t**k / math.factorial(k)) for k, c in enumerate(series, 1)]
    return sum(terms, fnp.asarray(x))


def nested(fun, order=ORDER, x=X, series=SERIES):
    """The value and derivatives of `fun` along the curve, by jvp over jvp."""
    functions = [lambda t: fun(curve(t, x, series))]
    for _ in range(order):
        inner = functions[-1]
        functions.append(lambda t, f=inner: fnx.jvp(f, (t,), (np.float64(1.0),))[1])
    return [function(np.float64(0.0)) for function in functions]


def agree(found, wanted, rtol=1e-10):
    value, terms = found
    for a, b in zip([value, *terms], wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * (1 + np.abs(b).max()))


def check(fun, order=ORDER, x=X, series=SERIES, rtol=1e-10):
    found = fnx.jet(fun, (x,), (series[:order],))
    agree(found, nested(fun, order, x, series[:order]), rtol)
    jitted = fnx.jit(lambda x, s: fnx.jet(fun, (x,), (s,)))(x, series[:order])
    agree(jitted, [found[0], *found[1]], 1e-12)


UNARY = (
    *"exp exp2 expm1 log log1p sin cos tan arcsin arccos arctan sinh cosh tanh".split(),
    *"arcsinh arctanh sqrt cbrt square reciprocal abs negative floor".split(),
)


@pytest.mark.parametrize("name", UNARY)
def test_functions_are_nested_jvp(name):
    check(getattr(fnp, name))


MORE = {
    "logistic": nn.sigmoid,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erf_inv": lax.erf_inv,
    "rsqrt": lax.rsqrt,
    "silu": nn.silu,
    "arccosh": lambda x: fnp.arccosh(1 + x),
    "integer_pow": lambda x: x**4,
    "negative power": lambda x: x**-3,
    "power": lambda x: x**1.7,
    "power of powers": lambda x: x**x,
    "constant base": lambda x: 2.0**x,
    "quotient": lambda x: fnp.sin(x) / (1 + x * x),
    "constant over": lambda x: 2.0 / x,
    "over constant": lambda x: x / 3.0,
    "arctan2": lambda x: fnp.arctan2(x, fnp.cos(x)),
    "where": lambda x: fnp.where(x > 0.5, fnp.exp(x), x * x),
    "extremes": lambda x: fnp.maximum(x, 0.5) * fnp.minimum(x**2, 0.3),
    "clip": lambda x: fnp.clip(x, 0.3, 0.6) * x,
    "rem": lambda x: fnp.fmod(x, 0.3) * x,
    "complex": lambda x: fnp.abs(fnp.exp(1j * x) + x),
    "stop_gradient": lambda x: lax.stop_gradient(x) * x,
    "matmul": lambda x: fnp.tanh(x @ W) @ fnp.exp(x.T),
    "einsum": lambda x: fnp.einsum("ij,kj,ik->i", x, fnp.sin(x), fnp.exp(x @ x.T)),
    "sum": lambda x: fnp.sum(fnp.exp(x), axis=0),
    "prod": lambda x: fnp.prod(x, axis=1),
    "max": lambda x: fnp.max(fnp.sin(x), axis=1),
    "cumsum": lambda x: fnp.cumsum(x * x, axis=1),
    "cumprod": lambda x: fnp.cumprod(x, axis=1),
    "sort": lambda x: fnp.sort(fnp.sin(5 * x), axis=1),
    "logsumexp": lambda x: fnp.logaddexp(x[0], x[1]),
    "softmax": nn.softmax,
    "shapes": lambda x: fnp.concatenate([x.T[::-1], fnp.ones((3, 1))], 1).reshape(9),
    "indices": lambda x: x[:, fnp.array([2, 0, 2])] * x.at[0, 1].add(x[1, 0]),
    "slices": lambda x: lax.dynamic_slice(x, (0, 1), (2, 2)) ** 2,
    "pad": lambda x: fnp.pad(x * x, 1),
}


@pytest.mark.parametrize("name", MORE)
def test_operations_are_nested_jvp(name):
    check(MORE[name])


# ---------------------------------------------------------------- programs held


@fnx.custom_jvp
def doubled_sine(x):
    return fnp.sin(x)


@doubled_sine.defjvp
def _doubled_sine_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return doubled_sine(x), 2 * fnp.cos(x) * t


def newton(x):
    def body(c):
        y, n = c
        return y - (y * y - x[0]) / (2 * y), n + 1

    y, _ = lax.while_loop(lambda c: c[1] < 6, body, (fnp.ones_like(x[0]), 0))
    return y


def recurrence(x):
    def body(carry, row):
        carry = fnp.tanh(carry @ W + row)
        return carry, carry * row

    return lax.scan(body, fnp.zeros_like(x[0]), x)


FLOWS = {
    "jit": lambda x: fnx.jit(lambda y: fnp.exp(y) * y)(x),
    "remat": lambda x: fnx.remat(lambda y: fnp.sin(y) * y)(x),
    "cond": lambda x: lax.cond(x[0, 0] > 0.3, lambda y: fnp.exp(y), lambda y: y, x),
    "one branch moves": lambda x: lax.cond(
        x[0, 0] > 9, lambda y: fnp.exp(y), lambda y: fnp.ones_like(y), x
    ),
    "switch": lambda x: lax.switch(2, [fnp.sin, fnp.cos, fnp.exp], x),
    "while": newton,
    "fori": lambda x: lax.fori_loop(0, 4, lambda i, y: fnp.sin(y) + i * x, x),
    "scan": lambda x: recurrence(x)[1],
    "last carry": lambda x: recurrence(x)[0],
    "custom_jvp": doubled_sine,
    "vmap": lambda x: fnx.vmap(lambda row: fnp.exp(row).sum() * row)(x),
    "grad": lambda x: fnx.grad(lambda y: fnp.sum(fnp.exp(y) * y[::-1]))(x),
}


@pytest.mark.parametrize("name", FLOWS)
def test_held_programs_are_nested_jvp(name):
    check(FLOWS[name], order=4)


def test_reverse_scan_with_a_still_carry_and_integers():
    def fun(x):
        def body(carry, row):
            n, y = carry
            return (n + 1, y * row), (n, fnp.float64(1) * n)

        (_, y), (_, floats) = lax.scan(body, (0, fnp.ones_like(x[0])), x, reverse=True)
        return y + floats.sum()

    check(fun)


# ---------------------------------------------------------------- closed forms, JAX


def test_closed_forms():
    t = np.float64(0.7)
    line = [1.0, 0.0, 0.0, 0.0, 0.0]
    _, terms = fnx.jet(lambda t: fnp.exp(2 * t), (t,), (line,))
    np.testing.assert_allclose(terms, [2**k * np.exp(1.4) for k in range(1, 6)])
    _, terms = fnx.jet(fnp.sin, (t,), (line,))
    want = [math.sin(0.7 + k * math.pi / 2) for k in range(1, 6)]
    np.testing.assert_allclose(terms, want)
    _, terms = fnx.jet(lambda t: 1 / (1 - t), (t,), (line,))
    want = [math.factorial(k) / 0.3 ** (k + 1) for k in range(1, 6)]
    np.testing.assert_allclose(terms, want, rtol=1e-12)


def test_far_tails_keep_their_digits():
    # 1 - tanh(20)**2 would be 0 in double precision
    _, (first, second) = fnx.jet(fnp.tanh, (np.float64(20.0),), ([1.0, 0.0],))
    s = 4 * math.exp(-40.0)
    np.testing.assert_allclose([first, second], [s, -2 * s], rtol=1e-12)


def test_is_the_jet_of_jax():
    jax = pytest.importorskip("jax")
    other = pytest.importorskip("jax.experimental.jet")

    def fun(m, x, y):
        return m.tanh(x @ W) / (1 + m.exp(y)), m.sum(x**3) * m.sin(y)

    x, y = X, np.float64(0.4)
    series = SERIES[:4], [0.5, -1.0, 2.0, 0.25]
    with jax.enable_x64(True):
        for scaled in (True, False):
            want, want_terms = other.jet(
                lambda x, y: fun(jax.numpy, x, y),
                (x, y),
                (list(series[0]), [np.float64(c) for c in series[1]]),
                factorial_scaled=scaled,
            )
            got, terms = fnx.jet(
                lambda x, y: fun(fnp, x, y), (x, y), series, factorial_scaled=scaled
            )
            for i in range(2):
                agree((got[i], terms[i]), [want[i], *want_terms[i]])


# ---------------------------------------------------------------- composition


def test_under_vmap():
    rows = fnx.vmap(lambda x, *s: fnx.jet(lambda x: fnp.exp(x) @ x, (x,), (s,)))
    value, terms = rows(X, *SERIES[:3])
    for i in range(2):
        one = [s[i] for s in SERIES[:3]]
        want, want_terms = fnx.jet(lambda x: fnp.exp(x) @ x, (X[i],), (one,))
        agree((value[i], [t[i] for t in terms]), [want, *want_terms])


@pytest.mark.parametrize("name", ["scan", "while", "logsumexp", "quotient"])
def test_under_grad(name):
    fun = {**MORE, **FLOWS}[name]

    def last(x):
        return fnp.sum(fnx.jet(fun, (x,), (SERIES[:3],))[1][-1])

    gradient, h = fnx.grad(last)(X), 1e-5
    direction = RNG.normal(size=X.shape)
    ends = [float(last(X + s * h * direction)) for s in (1, -1)]
    np.testing.assert_allclose(
        np.sum(gradient * direction), (ends[0] - ends[1]) / (2 * h), rtol=1e-5
    )


def test_jet_of_jet():
    def second(x):
        return fnx.jet(fnp.exp, (x,), ([1.0, 0.0],))[1][1]

    value, terms = fnx.jet(second, (np.float64(0.3),), ([1.0, 0.0, 0.0],))
    np.testing.assert_allclose([value, *terms], [math.exp(0.3)] * 4)


def test_effects_happen_once():
    seen = []

    def fun(x):
        fnx.debug.callback(lambda v: seen.append(float(v)), x)
        return fnx.jit(fnp.exp)(x) + fnx.remat(fnp.sin)(x)

    _, terms = fnx.jet(fun, (np.float64(0.5),), ([1.0, 0.0, 0.0],))
    assert seen == [0.5]
    want = [math.exp(0.5) + math.sin(0.5 + k * math.pi / 2) for k in (1, 2, 3)]
    np.testing.assert_allclose(terms, want)


def test_trees_integers_and_what_does_not_move():
    def fun(params, n):
        return {"y": params["a"] ** n, "n": n, "still": fnp.ones(2)}

    params = {"a": np.float64(2.0)}
    none = np.zeros((), fnx.float0)
    series = [[{"a": 1.0}, {"a": 0.0}], [none, none]]
    value, terms = fnx.jet(fun, (params, np.int32(3)), series)
    np.testing.assert_allclose([value["y"], *terms["y"]], [8.0, 12.0, 12.0])
    assert [t.dtype for t in terms["n"]] == [fnx.float0] * 2
    for t in terms["still"]:
        np.testing.assert_array_equal(t, np.zeros(2))


def test_the_cost_is_polynomial():
    """Each order adds equations in proportion to it: nested jvp would double them."""

    def size(order):
        line = [np.float64(1.0)] * order
        shown = fnx.make_jaxpr(lambda t: fnx.jet(fnp.tanh, (t,), (line,)))(0.5)
        return len(list(walk(shown)))

    assert size(8) - size(7) <= 3 * (size(4) - size(3))


def test_float32_stays():
    value, terms = fnx.jet(fnp.exp, (np.float32(0.5),), ([np.float32(1), 0.0],))
    assert {x.dtype for x in (value, *terms)} == {np.dtype("float32")}


MISTAKES = [
    ((1.0, 1.0), ([1.0],), "lengths"),
    ((1.0, 1.0), ([1.0], [1.0, 2.0]), "lengths"),
    ((1.0,), ([],), "at least 1"),
    ((1.0,), (1.0,), "no list"),
    (1.0, ([1.0],), "primals must be a tuple"),
    ((1.0,), 1.0, "series must be a tuple"),
]


@pytest.mark.parametrize(("primals", "series", "text"), MISTAKES)
def test_mistakes(primals, series, text):
    with pytest.raises(errors.ArgumentError, match=text):
        fnx.jet(lambda *xs: sum(xs), primals, series)


def test_mistakes_name_the_derivative():
    with pytest.raises(errors.ShapeError, match=r"derivative 2 in the series\[0\]"):
        fnx.jet(fnp.sin, (X,), ([X, X[0]],))
