"""Contexts that JAX's users know: each has its effect, eagerly and compiled."""

from __future__ import annotations

import contextvars
import warnings

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import lax
from fnx.errors import (
    ArgumentError,
    DTypeError,
    OptionError,
    RecompileError,
    ShapeError,
)

X, H = np.ones(3, "f4"), np.ones(3, "f2")
M = np.ones((2, 3), "f4")


def test_strict_promotion_of_dtypes():
    add = fnx.jit(lambda x, y: x + y)
    assert add(X, H).dtype == "float32"
    with fnx.numpy_dtype_promotion("strict"):
        for call in (add, fnp.add, lambda x, y: fnp.where(True, x, y)):
            with pytest.raises(DTypeError, match="float16 and float32 have no dtype"):
                call(X, H)
        assert (fnp.array(X) + 1).dtype == "float32"
        assert (fnp.array(X) * True).dtype == "float32"
    assert add(X, H).dtype == "float32"
    with pytest.raises(OptionError, match="'standard', 'strict'"):
        fnx.numpy_dtype_promotion("loose").__enter__()


def test_promotion_of_ranks():
    add = fnx.jit(lambda x, y: x + y)
    add(M, X)
    with fnx.numpy_rank_promotion("raise"):
        for call in (add, fnp.add):
            with pytest.raises(ShapeError, match=r"ranks \[1, 2\]"):
                call(M, X)
        assert (M + fnp.asarray(1.0)).shape == M.shape
        assert (fnp.array(M) + fnp.ones(())).shape == M.shape
    with fnx.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="ranks"):
        fnp.add(M, X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fnp.add(M, X)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("high", "high"),
        ("tensorfloat32", "high"),
        ("bfloat16", "default"),
        (None, None),
    ],
)
def test_precision_of_products_that_ask_for_none(name, meant):
    def precision(f, *args):
        return [e.params["precision"] for e in fnx.make_jaxpr(f)(*args).eqns][-1]

    def convolved(x, w):
        return lax.conv(x, w, (1,), "SAME")

    signal, window = np.ones((1, 1, 5), "f4"), np.ones((1, 1, 3), "f4")
    with fnx.default_matmul_precision(name):
        assert precision(fnp.matmul, M, X) == meant
        assert precision(convolved, signal, window) == meant
        asked = precision(lambda x, y: fnp.matmul(x, y, precision="highest"), M, X)
        assert asked == "highest"
    jitted = fnx.jit(lambda x: x @ x)
    jitted(X)
    with fnx.default_matmul_precision("highest"):
        jitted(X)
        text = jitted.lower(X).as_text()
    assert "highest" in text
    with pytest.raises(OptionError, match="default_matmul_precision"):
        fnx.default_matmul_precision("exact").__enter__()


def test_scripts_set_options_by_the_names_of_jax():
    config = fnx.config

    def script():
        config.update("jax_enable_x64", True)
        wide = fnp.zeros(2).dtype, fnx.jit(lambda: fnp.arange(2))().dtype
        config.update("jax_enable_x64", False)
        config.update("jax_disable_jit", True)
        plain = fnx.jit(lambda x: x if x > 0 else -x)(-2.0)
        config.update("jax_disable_jit", False)
        return wide, plain, fnp.zeros(2).dtype

    # In a context of its own, so that a failure does not reach the other tests.
    (wide, plain, narrow) = contextvars.copy_context().run(script)
    assert wide == ("float64", "int64") and plain == 2.0 and narrow == "float32"
    with config.override(debug_nans=False, default_device=None):
        config.update("jax_debug_nans", True)
        assert config.debug_nans
        config.update("debug_nans", False)
        assert not config.debug_nans
        for name in ("jax_platforms", "jax_platform_name"):
            config.update(name, "cpu,cuda")
            assert config.default_device == "cpu"
            config.update(name, "")
            assert config.default_device is None
    with pytest.raises(OptionError, match="no option 'threefry'"):
        config.update("jax_threefry", True)
    with pytest.raises(ArgumentError, match="jax_enable_x64 takes bool"):
        config.update("jax_enable_x64", 1)
    with pytest.raises(ArgumentError, match="jax_platforms takes a name"):
        config.update("jax_platforms", 3)


def test_native_calls_do_not_outlive_an_option():
    jitted = fnx.jit(lambda x, y: x * y)
    for _ in range(50):
        jitted(X, H)
    with fnx.numpy_dtype_promotion("strict"), pytest.raises(DTypeError):
        jitted(X, H)
    before = fnx.config.numpy_dtype_promotion
    assert before == "standard" and jitted(X, H).dtype == "float32"


def test_widths_checks_and_traces():
    with fnx.enable_x64():
        assert fnp.zeros(2).dtype == "float64"
        with fnx.enable_x64(False):
            assert fnp.zeros(2).dtype == "float32"
    with fnx.enable_checks():
        assert fnx.config.check
    leaked = []
    with fnx.check_tracer_leaks(), pytest.raises(fnx.errors.LeakedTracerError):
        fnx.jit(lambda x: leaked.append(x) or x)(1.0)
    with fnx.no_tracing(), pytest.raises(RecompileError):
        fnx.jit(lambda x: x + 3)(1.0)


def test_values_at_compile_time():
    @fnx.jit
    def f(x, n):
        with fnx.ensure_compile_time_eval():
            table = fnp.arange(4) ** 2
            assert int(table[3]) == 9
            with pytest.raises(fnx.errors.LeakedTracerError):
                n + 1
        return x + table[3]

    assert f(1.0, 2) == 10
    program = fnx.make_jaxpr(lambda x: f(x, 2))(1.0)
    assert "integer_pow" not in str(program)


def test_live_arrays():
    x = fnp.ones(7) * 2
    assert any(x is y for y in fnx.live_arrays())
    assert any(x is y for y in fnx.live_arrays("cpu"))
    assert fnx.live_arrays("tpu") == []
    number = id(x)
    del x
    assert all(id(y) != number for y in fnx.live_arrays())


def test_what_there_is(capsys):
    text = fnx.print_environment_info(return_string=True)
    assert np.__version__ in text and "python" in text
    assert fnx.print_environment_info() is None
    assert capsys.readouterr().out.strip() == text.strip()
    assert fnx.process_indices() == fnx.host_ids() == [0]
    assert (fnx.host_count(), fnx.host_id()) == (1, 0)


def test_refs_that_begin_empty_and_end():
    ref = fnx.empty_ref(fnx.ShapeDtypeStruct((2,), "int32"))
    assert isinstance(ref, fnx.Ref)
    ref[0] = 3
    assert ref[...].tolist() == [3, 0]
    assert fnx.free_ref(ref) is None
    with pytest.raises(fnx.errors.ArgumentError):
        ref[...]
    with pytest.raises(OptionError, match="one memory"):
        fnx.empty_ref(ref, "hbm")


def test_checkify_and_stages_where_jax_has_them():
    import fnx.experimental.checkify as checkify
    from fnx import stages

    assert checkify.checkify is fnx.checkify.checkify
    assert fnx.checkify.init_error.get() is None
    error, _ = checkify.checkify(lambda x: fnp.log(x), errors=checkify.nan_checks)(-1.0)
    with pytest.raises(checkify.JaxRuntimeError):
        error.throw()
    wrapped = fnx.jit(lambda x: x + 1)
    assert isinstance(wrapped, stages.Wrapped)
    traced = wrapped.trace(1.0)
    lowered = traced.lower()
    assert isinstance(traced, stages.Traced)
    assert isinstance(lowered, stages.Lowered)
    assert isinstance(lowered.compile(), stages.Compiled)
