"""Why was it traced anew? The texts of explain_miss, and no_recompile."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax

X = np.ones(3)


def function(x, params, mode="up", fn=None, *, k=1.0):
    return x * params["w"] * k


def jitted():
    return fnx.jit(function, static_argnames=("mode", "fn"))


def why(*calls):
    """The explanation after these calls, each a pair of arguments and keywords."""
    f = jitted()
    for args, kwargs in calls:
        f(*args, **kwargs)
    assert f.cache_info().misses == len(calls)
    return f.explain_miss()


def call(*args, **kwargs):
    return args, kwargs


W = {"w": 2.0}
ONE = "jit of function: the call differs from the one earlier call:\n  "


class Options:
    def __repr__(self):
        return "Options()"


def helper(x):
    return x


CASES = {
    "shape": (
        [call(X, W), call(np.ones(4), W)],
        "x: f64[3] before, f64[4] now (shape)",
    ),
    "rank and dtype": (
        [call(X, W), call(np.ones((2, 2), "f4"), W)],
        "x: f64[3] before, f32[2,2] now (shape, dtype)",
    ),
    "dtype in a tree": (
        [call(X, {"w": X}), call(X, {"w": X.astype("f4")})],
        "params['w']: f64[3] before, f32[3] now (dtype)",
    ),
    "a weak type before": (
        [call(X, W), call(X, {"w": np.float32(2)})],
        "params['w']: f32[]* before, f32[] now (weak type: a Python number before)",
    ),
    "a weak type now": (
        [call(X, {"w": np.float32(2)}), call(X, W)],
        "params['w']: f32[] before, f32[]* now (weak type: a Python number now)",
    ),
    "an int for a float": (
        [call(X, W), call(X, {"w": 2})],
        "params['w']: f32[]* before, i32[]* now (dtype)",
    ),
    "one more leaf": (
        [call(X, W), call(X, {"w": 2.0, "b": X})],
        "params['b']: f64[3], not there before (structure)",
    ),
    "one leaf less": (
        [call(X, {"w": 2.0, "b": X}), call(X, W)],
        "params['b']: f64[3] before, not there now (structure)",
    ),
    "a list for a tuple": (
        [call(X, W | {"t": (1.0,)}), call(X, W | {"t": [1.0]})],
        "params: at ['t']: it before has a tuple of length 1, it now has a list of "
        "length 1 (structure)",
    ),
    "by name": (
        [call(X, W), call(X, params=W)],
        "arguments by name: 0 before, 1 now (structure)",
    ),
    "a further argument": (
        [call(X, W), call(X, W, k=2.0)],
        "k: f32[]*, not there before (structure)",
    ),
    "a static value": (
        [call(X, W, "up"), call(X, W, "down")],
        "mode: 'up' before, 'down' now (static)",
    ),
    "a static value not passed": (
        [call(X, W), call(X, W, mode="down")],
        "mode: 'down', not passed before (static)",
    ),
    "a static value of another type": (
        [call(X, W, 1), call(X, W, True)],
        "mode: 1 of type int before, True of type bool now (static)",
    ),
    "a new lambda": (
        [call(X, W, fn=lambda x: x), call(X, W, fn=lambda x: x)],
        "fn: another <lambda> than before (static): a function that is made anew for "
        "each call is a new value each time",
    ),
    "a static object without equality": (
        [call(X, W, Options()), call(X, W, Options())],
        "mode: another object than before, of the same text Options() (static): its "
        "class has no __eq__ and __hash__ that say so",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_explanations(name):
    calls, wanted = CASES[name]
    assert why(*calls) == ONE + wanted


def test_another_function_is_shown():
    found = why(call(X, W, fn=helper), call(X, W, fn=len))
    shown = r"fn: <function helper at 0x\w+> of type function before, "
    assert re.fullmatch(
        re.escape(ONE) + shown + r"<built-in .*> of type builtin\S+ now .static.", found
    )


def test_settings_are_explained():
    f = jitted()
    f(X, {"w": X})
    with fnx.default_dtypes(64):
        f(X, {"w": X})
    assert f.explain_miss() == ONE + "fnx.default_dtypes: 32 before, 64 now (setting)"
    with fnx.config.override(strong_zero=False):
        f(X, {"w": X})
    assert f.explain_miss().endswith(
        "\n  fnx.config.strong_zero: True before, False now (setting)"
    )
    g = fnx.jit(lambda x: x * 2.0)
    g(1.0)
    fnx.vmap(lambda x: g(1.0) + x, axis_name="i")(X)
    assert g.explain_miss().endswith(
        "\n  the bound axes: {} before, {'i': 3} now (setting)"
    )


def test_several_differences_and_the_closest_call():
    f = jitted()
    assert f.explain_miss() == "jit of function: no call has been traced."
    f(X, {"w": X}, "up")
    assert f.explain_miss() == (
        "jit of function: no earlier call is known, so this one was traced."
    )
    f(np.ones((5, 3)), {"w": X}, "down")
    f(np.ones((5, 4)), {"w": np.ones(4)}, "down")
    assert f.explain_miss() == (
        "jit of function: the call differs from the closest of 2 earlier ones:\n"
        "  x: f64[5,3] before, f64[5,4] now (shape)\n"
        "  params['w']: f64[3] before, f64[4] now (shape)"
    )
    f(np.ones((6, 3)), {"w": X}, "down")
    assert f.explain_miss().endswith(
        "closest of 3 earlier ones:\n  x: f64[5,3] before, f64[6,3] now (shape)"
    )
    f(X, {"w": X}, "up")  # a hit does not change the answer
    assert f.explain_miss().endswith("f64[6,3] now (shape)")
    f.clear_cache()
    assert f.explain_miss() == "jit of function: no call has been traced."


def test_what_captures_tracers_is_not_kept():
    calls = []

    def outer(y):
        f = fnx.jit(lambda x: x * y)
        f(1.0)
        f(1.0)
        calls.append(f.explain_miss())
        return f(2.0)

    fnx.grad(outer)(2.0)
    assert calls[-1].startswith("jit of <lambda>: no earlier call is known")


def test_methods_and_variadic_arguments():
    class Model:
        @functools.partial(fnx.jit, static_argnums=0)
        def apply(self, *xs):
            return sum(xs)

    model = Model()
    model.apply(X, X)
    model.apply(X, X.astype("f4"))
    assert "xs[1]: f64[3] before, f32[3] now (dtype)" in Model.apply.explain_miss()


# ---------------------------------------------------------------- no_recompile


def test_no_recompile_allows_hits():
    f = jitted()
    f(X, W)
    with fnx.no_recompile():
        for _ in range(200):  # through Python, and through machine code
            np.testing.assert_allclose(f(X, W), 2.0 * X)


def test_no_recompile_raises_with_the_explanation():
    f = jitted()
    f(X, W)
    with fnx.no_recompile(), pytest.raises(errors.RecompileError) as caught:
        f(np.ones(5), W)
    assert str(caught.value) == (
        "inside of fnx.no_recompile() a call would be traced anew.\n"
        "jit of function: the call differs from the one earlier call:\n"
        "  x: f64[3] before, f64[5] now (shape)"
    )
    assert f.cache_info().misses == 1
    f(np.ones(5), W)  # outside it is allowed
    assert f.cache_info().misses == 2
    with fnx.no_recompile(), pytest.raises(errors.RecompileError, match="no earlier"):
        fnx.jit(lambda x: x)(1.0)


def test_no_recompile_holds_inside_transformations():
    f = fnx.jit(lambda x: x * 2.5)
    f(X)
    with fnx.no_recompile(), pytest.raises(errors.RecompileError):
        fnx.make_jaxpr(lambda x: f(x) + 1)(np.ones(7))


def test_a_program_that_ran_only_inside_of_another_is_compiled():
    f = fnx.jit(lambda x: x * 3.125)
    fnx.jit(lambda x: f(x) + 1)(X)
    with fnx.no_recompile(), pytest.raises(errors.RecompileError) as caught:
        f(X)
    assert str(caught.value) == (
        "jit of <lambda>: inside of fnx.no_recompile() a program of f64[3] would be "
        "compiled: it has not run by itself before.\n  Fix: run it once before."
    )
    f(X)
    with fnx.no_recompile():
        f(X)


def test_eager_loops_count_too():
    def total(xs):
        return lax.scan(lambda c, x: (c + x * 1.625, None), 0.0, xs)[0]

    with fnx.no_recompile(), pytest.raises(errors.RecompileError, match="compiled"):
        total(X)
    total(X)
    with fnx.no_recompile():
        assert total(X) == 3 * 1.625


def test_clear_caches_forgets_everything():
    f = fnx.jit(lambda x: fnp.sin(x) * 1.875)
    f(X)
    fnx.clear_caches()
    with fnx.no_recompile(), pytest.raises(errors.RecompileError):
        f(X)
    f(X)
    assert f.cache_info().misses == 1


# ---------------------------------------------------------------- on standard error


def test_misses_can_be_shown(capsys):
    f = jitted()
    with fnx.config.override(explain_cache_misses=True):
        f(X, W)
        f(X, W)
        f(np.ones(4), W)
    assert capsys.readouterr().err == (
        "jit of function: no earlier call is known, so this one was traced.\n"
        + ONE
        + "x: f64[3] before, f64[4] now (shape)\n"
    )


def test_compiles_can_be_shown(capsys):
    f = fnx.jit(lambda x: x * 1.375)
    with fnx.config.override(log_compiles=True):
        f(X)
        f(X)
    lines = capsys.readouterr().err.split("\n")
    assert len(lines) == 3 and not lines[2]
    assert lines[0].startswith("traced <lambda>(x: f64[3]) in 0.")
    assert lines[1].startswith("compiled 1 steps in 0.")
