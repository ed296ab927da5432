"""jit: signatures, static and donated arguments, captured values, error texts."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import fnx
from fnx import errors
from fnx.core.program import walk
from fnx.ops.elementwise import sin
from fnx.ops.reduce import reduce_sum

X = np.arange(3.0)


def test_a_signature_is_traced_once():
    traces = []

    @fnx.jit
    def f(x, y=1.0):
        traces.append(1)
        return x * y

    for _ in range(3):
        np.testing.assert_allclose(f(X), X)
    np.testing.assert_allclose(f(X, 2.0), 2 * X)
    np.testing.assert_allclose(f(X, 3.0), 3 * X)
    np.testing.assert_allclose(f(x=X, y=3.0), 3 * X)
    f(X.astype("f4"))
    assert len(traces) == 4
    assert f.cache_info() == (3, 4, f.cache_info().maxsize, 4)
    f.clear_cache()
    f(X)
    assert len(traces) == 5


def test_trees_and_weak_types():
    f = fnx.jit(lambda p: {"s": p["a"] * p["b"], "n": (3, None)})
    found = f({"a": X, "b": 2.0})
    np.testing.assert_allclose(found["s"], 2 * X)
    assert found["n"][0].weak_type and found["n"][1] is None
    assert f({"a": 1.0, "b": 2.0})["s"].weak_type


def test_static_values_are_keyed_by_type():
    f = fnx.jit(lambda n, x: x * 1.0 if type(n) is int else x * 2.0, static_argnums=0)
    values = [f(n, 1.0).item() for n in (1, 1.0, True, 1)]
    assert values == [1.0, 2.0, 2.0, 1.0]
    sign = fnx.jit(lambda z, x: x * np.copysign(1, z).item(), static_argnames="z")
    assert sign(0.0, 1.0).item() == 1.0 and sign(-0.0, 1.0).item() == -1.0
    nested = fnx.jit(lambda x, t: x * t[0][0], static_argnums=(1,))
    assert nested(2.0, ((1,),)).dtype == nested(2.0, ((1.0,),)).dtype
    assert nested.cache_info().misses == 2


def test_static_arguments_by_position_name_and_default():
    @functools.partial(fnx.jit, static_argnames=("mode",))
    def f(x, mode="up", **options):
        assert isinstance(mode, str) and all(
            hasattr(v, "dtype") for v in options.values()
        )
        return x * (2.0 if mode == "up" else 3.0)

    assert [f(1.0).item(), f(1.0, "down").item()] == [2.0, 3.0]
    assert f(1.0, mode="down", other=1.0).item() == 3.0
    g = fnx.jit(lambda x, k: x * float(k), static_argnums=-1)
    assert g(1.0, 4).item() == g(1.0, k=4).item() == 4.0
    h = fnx.jit(static_argnums=0)(lambda f, x: f(x))
    assert h(lambda x: x * 5.0, 2.0).item() == 10.0


def test_methods():
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @functools.partial(fnx.jit, static_argnums=0)
        def __call__(self, x):
            return x * self.scale

    assert Model(2.0)(3.0).item() == 6.0
    assert Model(4.0)(3.0).item() == 12.0


def test_captured_arrays_are_inputs():
    c = fnx.device_put(np.arange(1000.0))
    f = fnx.jit(lambda x: reduce_sum(c * x, axes=(0,)))
    assert f(np.ones(1000)).item() == 499500.0
    staged = f.trace(np.ones(1000))
    assert staged.captured[0] is c
    assert len(staged.jaxpr.inputs) == 2


def test_captured_tracers_are_not_kept():
    @fnx.jit
    def inner(x):
        return x * holder[0]

    holder = [None]

    def outer(y):
        holder[0] = y
        return inner(2.0)

    assert fnx.grad(outer)(3.0).item() == 2.0
    assert fnx.grad(outer)(5.0).item() == 2.0
    assert inner.cache_info().currsize == 0
    assert fnx.vmap(outer)(X).tolist() == (2 * X).tolist()


def test_values_that_do_not_depend_on_arguments_are_known():
    @fnx.jit
    def f(x):
        n = fnx.device_put(np.float32(2)) * 3.0
        return x * float(n) if n > 5 else x

    assert f(1.0).item() == 6.0


def test_inside_a_trace_it_is_a_call():
    f = fnx.jit(lambda x: x * x)
    program = fnx.make_jaxpr(lambda x: f(f(x)))(2.0)
    assert [eqn.primitive.name for eqn in program.eqns] == ["call", "call"]
    assert fnx.grad(lambda x: f(f(x)))(2.0).item() == 32.0
    assert "call" in {eqn.primitive.name for eqn in walk(program)}


def test_default_dtypes_and_strong_zero_are_part_of_the_signature():
    f = fnx.jit(lambda x: x * 2.0 if x.dtype == "f4" else x)
    assert f(1).dtype == np.int32 and f(1.0).dtype == np.float32
    with fnx.default_dtypes(64):
        assert f(1).dtype == np.int64 and f(1.0).dtype == np.float64
    g = fnx.jit(fnx.grad(lambda x: reduce_sum(x * np.array([np.inf]) * 0.0, axes=(0,))))
    assert g(np.zeros(1)).item() == 0.0
    with fnx.config.override(strong_zero=False):
        assert np.isnan(g(np.zeros(1)).item())


def test_disable_jit_runs_python():
    f = fnx.jit(lambda x: x if x > 0 else -x)
    with fnx.disable_jit():
        assert f(-2.0) == 2.0
    with pytest.raises(errors.TracerValueError):
        f(-2.0)


def test_numpy_arguments_are_copied():
    x = np.ones(3)
    kept = fnx.jit(lambda x: x)(x)
    x[0] = 7.0
    assert kept.tolist() == [1.0, 1.0, 1.0]


def test_donation_is_recorded():
    f = fnx.jit(lambda x, p: x + p["a"], donate_argnums=1)
    np.testing.assert_allclose(f(X, {"a": X}), 2 * X)
    (entry,) = f._entries.values()
    assert entry.donated == (False, True)
    named = fnx.jit(lambda x, p: x + p["a"], donate_argnames="p")
    named(X, p={"a": X})
    assert next(iter(named._entries.values())).donated == (False, True)


def test_metadata_is_kept():
    @fnx.jit
    def f(x):
        """Doubles."""
        return x * 2.0

    assert f.__name__ == "f" and f.__doc__ == "Doubles."
    assert f.__wrapped__(2.0) == 4.0 and repr(f) == "<jit of f>"


def test_jit_equals_eager(rng):
    x = rng.standard_normal((4, 5))

    def f(x):
        return reduce_sum(sin(x) * x, axes=(1,)) * 2.0

    np.testing.assert_allclose(fnx.jit(f)(x), np.asarray((np.sin(x) * x).sum(1) * 2))


C = fnx.device_put(X)
BAD = {
    "branch": (
        lambda: fnx.jit(lambda p: p["w"] if p["w"] > 0 else 0.0)({"w": 1.0}),
        errors.TracerValueError,
        r"depends on p\['w'\], unknown(.|\n)*numpy.where(.|\n)*static_argnums",
    ),
    "string": (
        lambda: fnx.jit(lambda x, mode: x)(1.0, "up"),
        errors.ArgumentError,
        r"jit of <lambda>: mode is 'up' of type str(.|\n)*static_argnames",
    ),
    "object dtype": (
        lambda: fnx.jit(lambda x: x)(np.array([None])),
        errors.DTypeError,
        r"x: dtype\('O'\) is no dtype",
    ),
    "unhashable static": (
        lambda: fnx.jit(lambda x, n: x, static_argnums=1)(1.0, [2]),
        errors.ArgumentError,
        r"static argument 1 is of type list: static values must be hashable",
    ),
    "static out of range": (
        lambda: fnx.jit(lambda x: x, static_argnums=1),
        errors.OptionError,
        r"static_argnums=1 is out of range: the function takes 1 positional argument",
    ),
    "static name": (
        lambda: fnx.jit(lambda x: x, static_argnames="y"),
        errors.OptionError,
        r"static_argnames has 'y'.*it takes x",
    ),
    "static name of a wrong kind": (
        lambda: fnx.jit(lambda x: x, static_argnames=3),
        errors.ArgumentError,
        r"static_argnames takes a name or several, got 3",
    ),
    "static number of a wrong kind": (
        lambda: fnx.jit(lambda x: x, static_argnums="x"),
        errors.ArgumentError,
        r"static_argnums takes an integer",
    ),
    "donated out of range": (
        lambda: fnx.jit(lambda x: x, donate_argnums=3),
        errors.OptionError,
        r"donate_argnums=3 is out of range",
    ),
    "donated and static": (
        lambda: fnx.jit(lambda x: x, donate_argnums=0, static_argnums=0),
        errors.OptionError,
        r"argument 'x' is static and donated",
    ),
    "donated twice": (
        lambda: fnx.jit(lambda x, y: x, donate_argnums=0)(C, C),
        errors.ArgumentError,
        r"f64\[3\] is donated: the same array is another argument",
    ),
    "number too large": (
        lambda: fnx.jit(lambda n: n)(2**40),
        errors.DTypeError,
        r"n is 1099511627776: it does not fit into int32(.|\n)*default_dtypes\(64\)",
    ),
    "result": (
        lambda: fnx.jit(lambda x: [x, {"a": "text"}])(1.0),
        errors.ArgumentError,
        r"the function's result\[1\]\['a'\] is 'text' of type str",
    ),
    "option that does not exist": (
        lambda: fnx.jit(lambda x: x, inline=True),
        TypeError,
        r"inline",
    ),
}


def test_stages_show_themselves_in_a_line():
    traced = fnx.jit(lambda x, p: x * p["b"]).trace(X, {"b": 2.0})
    shown = f"<lambda>(x: {fnx.typeof(X)}, p['b']: f32[]*)>"
    assert repr(traced) == "<traced " + shown
    assert repr(traced.lower()) == "<lowered " + shown
    assert repr(traced.lower().compile()) == "<compiled " + shown


@pytest.mark.parametrize("name", BAD)
def test_errors_say_what_why_and_what_to_do(name):
    call, error, match = BAD[name]
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("leaf", ["text", np.array([None]), object()])
def test_an_argument_that_is_no_array_is_one_error_at_the_users_line(leaf):
    with pytest.raises(errors.FnxError, match=r"x\['a'\]") as found:
        fnx.jit(lambda x: x)({"a": leaf})
    assert found.value.__context__ is None or found.value.__suppress_context__
    assert {entry.path.name for entry in found.traceback} == {"test_jit.py"}
