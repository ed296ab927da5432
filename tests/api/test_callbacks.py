"""pure_callback and io_callback: values, vmap methods, derivatives, calls in calls."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax
from tests.api.host_calls import BOTH, F32, Mistake

STACK = np.array([0.5, 1.5, -2.0], np.float32)


# ---------------------------------------------------------------- values


@BOTH
def test_values_of_trees(transform):
    def outside(x, *, pair):
        assert isinstance(x, np.ndarray) and not x.flags.writeable
        assert [part.dtype for part in pair] == [np.int32, bool]
        return {"sum": x.sum(0), "rest": (pair[0] + 1, np.float16(2.5))}

    result = {
        "sum": fnx.ShapeDtypeStruct((3,), "float64"),
        "rest": (np.zeros((), np.int32), fnx.ShapeDtypeStruct((), "float16")),
    }

    def f(x, a):
        return fnx.pure_callback(outside, result, x, pair=[a, a > 3])

    x = np.arange(6.0).reshape(2, 3)
    found = transform(f)(x, np.int32(4))
    np.testing.assert_array_equal(found["sum"], x.sum(0))
    assert found["rest"][0].item() == 5 and found["rest"][1].item() == 2.5
    assert [leaf.dtype for leaf in fnx.tree.leaves(found)] == [
        np.int32,
        np.float16,
        np.float64,
    ]


@BOTH
def test_empty_arrays_and_numbers(transform):
    shape = fnx.ShapeDtypeStruct((0, 3), "float32"), fnx.ShapeDtypeStruct((), "int32")
    f = transform(lambda x: fnx.pure_callback(lambda x: (x, 7), shape, x))
    empty, seven = f(np.zeros((0, 3), np.float32))
    assert empty.shape == (0, 3) and seven.item() == 7


def test_what_a_function_keeps_stays_as_it_was():
    """The memory that a compiled program hands out is used again."""
    kept = []

    def f(x):
        def body(c, _):
            fnx.io_callback(kept.append, None, c * 2)
            return c + 1, None

        return lax.scan(body, x, None, 4)[0]

    fnx.jit(f)(np.zeros(3, np.float32))
    np.testing.assert_array_equal(kept, np.repeat([[0], [2], [4], [6]], 3, 1))
    assert not any(x.flags.writeable for x in kept)


def test_an_unused_pure_callback_is_dropped_and_io_is_not():
    calls = []

    def outside(x):
        calls.append(x.item())
        return x

    @fnx.jit
    def f(x):
        fnx.pure_callback(outside, F32, x)
        fnx.io_callback(outside, F32, 2 * x)
        return x

    f(fnp.float32(3))
    assert calls == [6.0]


def test_numpys_warnings_are_those_of_the_function():
    f = fnx.jit(lambda x: fnx.pure_callback(lambda x: x / np.float32(0), F32, x))
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        f(fnp.float32(1))


# ---------------------------------------------------------------- vmap


@pytest.mark.parametrize(
    ("method", "seen"),
    [
        ("sequential", [((), ())] * 3),
        ("sequential_unrolled", [((), ())] * 3),
        ("expand_dims", [((3,), (1,))]),
        ("broadcast_all", [((3,), (3,))]),
        ("legacy_vectorized", [((3,), ())]),
    ],
)
@BOTH
def test_vmap_methods(method, seen, transform):
    shapes = []

    def outside(x, y):
        shapes.append((x.shape, y.shape))
        return np.float32(x * y)

    def f(x, y):
        return fnx.pure_callback(outside, F32, x, y, vmap_method=method)

    found = transform(fnx.vmap(f, (0, None)))(STACK, np.float32(3))
    np.testing.assert_array_equal(found, STACK * 3)
    assert shapes == seen


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_nested_vmaps(method):
    def f(x, y):
        return fnx.pure_callback(np.add, F32, x, y, vmap_method=method)

    table = fnx.jit(fnx.vmap(fnx.vmap(f, (None, 0)), (0, None)))
    found = table(STACK, 2 * STACK)
    np.testing.assert_array_equal(found, STACK[:, None] + 2 * STACK)


def test_vmap_without_a_method():
    def f(x):
        return fnx.pure_callback(np.sin, F32, x)

    with pytest.raises(errors.ArgumentError, match="pure_callback of sin has no vmap"):
        fnx.vmap(f)(STACK)


def test_vmap_of_io_callbacks():
    seen = []
    f = fnx.vmap(lambda x: fnx.io_callback(lambda x: seen.append(x.item()), None, x))
    f(STACK)
    fnx.jit(f)(STACK)
    assert seen == [*STACK, *STACK]


def test_vmap_of_an_ordered_io_callback():
    def f(x):
        return fnx.io_callback(lambda x: x, F32, x, ordered=True)

    assert fnx.jit(f)(fnp.float32(3)).item() == 3.0
    np.testing.assert_array_equal(lax.map(f, STACK), STACK)
    with pytest.raises(errors.ArgumentError, match=r"is ordered.*\n.*fnx\.lax\.map"):
        fnx.vmap(f)(STACK)


# ---------------------------------------------------------------- derivatives


def test_without_a_rule():
    pure = lambda x: fnx.pure_callback(np.sin, F32, x)  # noqa: E731
    with pytest.raises(errors.ArgumentError, match="pure_callback of sin: its deriv"):
        fnx.grad(pure)(fnp.float32(1))
    with pytest.raises(
        errors.ArgumentError, match=r"vjp= or jvp=.*custom_jvp.*stop_gradient"
    ):
        fnx.jvp(pure, (fnp.float32(1),), (fnp.float32(1),))
    with pytest.raises(errors.ArgumentError, match="io_callback of sin: its deriv"):
        fnx.grad(lambda x: fnx.io_callback(np.sin, F32, x))(fnp.float32(1))
    stopped = fnx.grad(lambda x: x * pure(lax.stop_gradient(x)))(fnp.float32(1))
    np.testing.assert_allclose(stopped, np.sin(1), rtol=1e-6)


def test_inside_of_a_custom_rule():
    @fnx.custom_jvp
    def sine(x):
        return fnx.pure_callback(np.sin, F32, x, vmap_method="expand_dims")

    @sine.defjvp
    def _(primals, tangents):
        (x,), (t,) = primals, tangents
        cosine = fnx.pure_callback(np.cos, F32, x, vmap_method="expand_dims")
        return sine(x), t * cosine

    np.testing.assert_allclose(fnx.grad(sine)(fnp.float32(1)), np.cos(1), rtol=1e-6)
    found = fnx.jit(fnx.vmap(fnx.grad(sine)))(STACK)
    np.testing.assert_allclose(found, np.cos(STACK), rtol=1e-6)


def scaled(x, n, extra):
    """x ** n · a, of a tree with integers in it."""
    count = np.broadcast_to(n + np.int32(1), x.shape)
    return {"y": (x**n * extra["a"]).astype(np.float32), "n": count}


def scaled_vjp(args, outputs, cotangents):
    x, n, extra = args
    assert isinstance(x, np.ndarray) and outputs["n"].dtype == np.int32
    assert cotangents["n"] is None
    ct = cotangents["y"]
    by_x = (ct * n * x ** (n - 1) * extra["a"]).astype(np.float32)
    by_a = (ct * x**n).astype(np.float32)
    return by_x, None, {"a": by_a}


RESULT = {"y": F32, "n": fnx.ShapeDtypeStruct((), "int32")}


def with_vjp(x, a, method=None):
    n = np.int32(3)
    found = fnx.pure_callback(
        scaled, RESULT, x, n, {"a": a}, vjp=scaled_vjp, vmap_method=method
    )
    return found["y"] * 1.0


@BOTH
def test_a_vjp_on_the_host(transform):
    x, a = fnp.float32(2), fnp.float32(5)
    assert transform(with_vjp)(x, a).item() == 40.0
    gradients = transform(fnx.grad(with_vjp, (0, 1)))(x, a)
    assert [g.item() for g in gradients] == [60.0, 8.0]


@pytest.mark.parametrize("method", ["sequential", "broadcast_all", "expand_dims"])
def test_a_vjp_under_vmap(method):
    def f(x, a):
        return with_vjp(x, a, method)

    a = np.float32(5)
    found = fnx.jit(fnx.vmap(fnx.grad(f, (0, 1)), (0, None)))(STACK, a)
    np.testing.assert_allclose(found[0], 3 * STACK**2 * a, rtol=1e-6)
    np.testing.assert_allclose(found[1], STACK**3, rtol=1e-6)
    total = fnx.grad(lambda a: fnx.vmap(f, (0, None))(STACK, a).sum())(a)
    np.testing.assert_allclose(total, (STACK**3).sum(), rtol=1e-5)


def test_a_vjp_in_a_scan():
    def f(x):
        body = lambda c, _: (with_vjp(c, np.float32(0.5)), None)  # noqa: E731
        return lax.scan(body, x, None, 2)[0]

    # c -> c³/2 twice: x⁹/16
    found = fnx.jit(fnx.value_and_grad(f))(fnp.float32(2))
    assert [x.item() for x in found] == [32.0, 144.0]


def test_forward_mode_of_a_vjp_on_the_host():
    one = fnp.float32(1)
    with pytest.raises(errors.ArgumentError) as caught:
        fnx.jvp(lambda x: with_vjp(x, one), (one,), (one,))
    assert "forward mode through scaled, which has a custom_vjp" in str(caught.value)
    assert (
        "pure_callback of scaled_vjp is a rule for the other mode: what a function "
        "does on the host cannot be turned around.\n  Fix: pass both jvp= and vjp= to "
        "pure_callback"
    ) in str(caught.value)
    with pytest.raises(errors.ArgumentError) as caught:
        fnx.grad(fnx.grad(lambda x: with_vjp(x, one)))(one)
    assert str(caught.value) == (
        "pure_callback of scaled_vjp: its derivative is asked for: what a function "
        "does on the host cannot be differentiated.\n  Fix: write the rule in fnx "
        "(fnx.custom_jvp, fnx.custom_vjp), with callbacks that have rules of their own."
    )


def scaled_jvp(args, outputs, tangents):
    x, n, extra = args
    assert tangents[1] is None and outputs["y"].shape == x.shape
    moved = tangents[0] * n * x ** (n - 1) * extra["a"] + tangents[2]["a"] * x**n
    return {"y": moved.astype(np.float32), "n": None}


def with_jvp(x, a, method=None, vjp=None):
    found = fnx.pure_callback(
        *(scaled, RESULT, x, np.int32(3), {"a": a}),
        jvp=scaled_jvp,
        vjp=vjp,
        vmap_method=method,
    )
    return found["y"] * 1.0


@BOTH
@pytest.mark.parametrize("vjp", [None, scaled_vjp])
def test_a_jvp_on_the_host(transform, vjp):
    x, a = fnp.float32(2), fnp.float32(5)

    def f(x, a):
        return with_jvp(x, a, "sequential", vjp)

    tangents = fnp.float32(1), fnp.float32(10)
    value, moved = transform(lambda *p: fnx.jvp(f, p, tangents))(x, a)
    assert (value.item(), moved.item()) == (40.0, 60.0 + 80.0)
    assert transform(fnx.jacfwd(f, 1))(x, a).item() == 8.0
    many = transform(fnx.vmap(fnx.jacfwd(f), (0, None)))(STACK, a)
    np.testing.assert_allclose(many, 3 * STACK**2 * 5, rtol=1e-6)
    if vjp is not None:
        gradients = transform(fnx.grad(f, (0, 1)))(x, a)
        assert [g.item() for g in gradients] == [60.0, 8.0]
        return
    with pytest.raises(
        errors.ArgumentError, match="scaled_jvp is a rule for the other"
    ):
        transform(fnx.grad(f))(x, a)


def test_a_jvp_in_a_loop():
    def f(x):
        body = lambda c, _: (with_jvp(c, np.float32(0.5)), None)  # noqa: E731
        return lax.scan(body, x, None, 2)[0]

    one = fnp.float32(1)
    found = fnx.jit(lambda x: fnx.jvp(f, (x,), (one,)))(fnp.float32(2))
    assert [x.item() for x in found] == [32.0, 144.0]


@pytest.mark.parametrize(
    ("returned", "error", "text"),
    [
        (
            (1.0, 2.0),
            errors.TreeError,
            "the tangent must have the structure of the res",
        ),
        (np.zeros(2, np.float32), errors.ShapeError, r"the tangent is float32\[2\]"),
        (np.float64(1), errors.DTypeError, "the tangent is of dtype float64"),
    ],
)
def test_a_jvp_that_returns_something_else(returned, error, text):
    def f(x):
        return fnx.pure_callback(np.sin, F32, x, jvp=lambda *_: returned)

    one = fnp.float32(1)
    with pytest.raises(error, match=text):
        fnx.jvp(f, (one,), (one,))


@pytest.mark.parametrize(
    ("returned", "error", "text"),
    [
        (1.0, errors.ArgumentError, "a cotangent for each of the 1 arguments"),
        ((1, 2), errors.ArgumentError, "it returned tuple"),
        (({"a": 1},), errors.TreeError, "must have the structure of the argument"),
        ((np.zeros(2, np.float32),), errors.ShapeError, "the cotangent of argument 0"),
        ((np.float64(1),), errors.DTypeError, "of dtype float64: f32.. was declared"),
    ],
)
def test_a_vjp_that_returns_something_else(returned, error, text):
    def f(x):
        return fnx.pure_callback(np.sin, F32, x, vjp=lambda *_: returned)

    with pytest.raises(error, match=text):
        fnx.grad(f)(fnp.float32(1))


# ---------------------------------------------------------------- calls within calls


def test_callbacks_may_call_compiled_functions():
    """Of every size: the thread pool and the caller's own memory are free for them."""
    big = np.linspace(0, 1, 300_000, dtype=np.float32)
    inner = fnx.jit(
        lambda x: (fnp.sin(big) * x).sum() + (fnp.eye(64) @ fnp.eye(64))[0, 0]
    )
    wanted = np.sin(big.astype(float)).sum()

    def outside(x):
        return np.float32(inner(x))

    @fnx.jit
    def f(x):
        scale = (fnp.sin(big) * x).sum()
        body = lambda c, _: (fnx.pure_callback(outside, F32, c) / c, None)  # noqa: E731
        return lax.scan(body, x, None, 5)[0] + 0 * scale

    for _ in range(5):
        found = f(fnp.float32(1)).item()
        c = 1.0
        for _ in range(5):
            c = (wanted * c + 1) / c
        np.testing.assert_allclose(found, c, rtol=1e-4)


def test_a_function_may_call_itself_through_a_callback():
    def outside(n):
        return np.int32(factorial(n - 1)) if n > 1 else np.int32(1)

    @fnx.jit
    def factorial(n):
        return n * fnx.pure_callback(outside, np.int32(0), n)

    assert factorial(np.int32(6)).item() == 720


def test_callbacks_in_several_threads():
    def outside(x):
        return x + np.float32(1)

    f = fnx.jit(
        lambda x: lax.fori_loop(
            0, 50, lambda i, v: fnx.pure_callback(outside, F32, v), x
        )
    )
    f(fnp.float32(0))
    found = {}

    def run(number):
        found[number] = [f(fnp.float32(number)).item() for _ in range(20)]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [n + 50.0] * 20 for n in range(4)}


def test_errors_in_several_threads_do_not_get_mixed_up():
    def outside(x):
        raise Mistake(x.item())

    f = fnx.jit(
        lambda x: lax.fori_loop(
            0, 5, lambda i, v: fnx.pure_callback(outside, F32, v), x
        )
    )
    found = {}

    def run(number):
        errors_seen = set()
        for _ in range(30):
            try:
                f(fnp.float32(number))
            except Mistake as error:
                errors_seen.add(error.args[0])
        found[number] = errors_seen

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: {float(n)} for n in range(4)}


def test_experimental_has_jaxs_name():
    assert fnx.experimental.io_callback is fnx.io_callback
