"""fnx/errors.py and fnx/config.py: kinds, texts, tracebacks, options."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import traceback

import pytest

from fnx import errors
from fnx.config import OPTIONS, Config, config
from fnx.errors import ArgumentError, OptionError, api_boundary, explain

BUILTIN = {
    errors.ShapeError: TypeError,
    errors.DTypeError: TypeError,
    errors.AxisError: ValueError,
    errors.ArgumentError: TypeError,
    errors.OptionError: ValueError,
    errors.TreeError: ValueError,
    errors.TracerValueError: TypeError,
    errors.LeakedTracerError: RuntimeError,
    errors.ImmutableError: TypeError,
    errors.ScalarOutOfRange: OverflowError,
    errors.IndexOutOfRange: IndexError,
    errors.CheckError: ValueError,
    errors.KeyReuseError: ValueError,
    errors.DynamicSizeError: TypeError,
    errors.StepLimitError: RuntimeError,
    errors.CollectiveError: RuntimeError,
    errors.NonFiniteError: FloatingPointError,
    errors.DifferenceError: AssertionError,
    errors.RecompileError: RuntimeError,
    errors.CheckpointError: RuntimeError,
    errors.CompileError: RuntimeError,
    errors.DeviceError: RuntimeError,
    errors.DeviceMemoryError: MemoryError,
    errors.MissingRule: NotImplementedError,
    errors.InternalError: RuntimeError,
}


@pytest.mark.parametrize(("error", "builtin"), BUILTIN.items())
def test_each_error_is_the_builtin_that_users_expect(error, builtin):
    assert issubclass(error, errors.FnxError)
    assert issubclass(error, builtin)


def test_the_table_above_is_complete():
    classes = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.FnxError)
    }
    assert classes == {errors.FnxError, *BUILTIN}


def test_missing_rule_says_where_to_add_it():
    error = errors.MissingRule("sort", "jvp", "fnx/ops/sort.py")
    assert (error.primitive, error.rule, error.file) == error.args
    for text in ("'sort'", "'jvp'", "fnx/ops/sort.py", "add the method"):
        assert text in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_compile_error_keeps_the_log_and_the_text():
    error = errors.CompileError("line 2: y is undefined.", "the log", "the text")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.log, again.text) == error.args


def test_broken_pass_shows_the_ir_before_and_after():
    error = errors.broken_pass("fuse", "lost a value", "x = a", "x = b")
    assert str(error).splitlines()[0] == "pass 'fuse': lost a value"
    assert "x = a" in str(error) and "x = b" in str(error)


# ---------------------------------------------------------------- texts


def test_explain_orders_line_request_reason_fix():
    text = explain("add(x: f32[3])", "too short", "pad x", source="f.py:3 (f): x + y")
    assert text.splitlines() == [
        "f.py:3 (f): x + y",
        "add(x: f32[3]): too short.",
        "  Fix: pad x.",
    ]
    assert explain("no reason known") == "no reason known."


def test_user_source_is_the_line_that_called():
    source = errors.user_source()
    assert source is not None
    assert source.file == __file__
    assert source.text == "source = errors.user_source()"
    assert source.function == "test_user_source_is_the_line_that_called"
    assert str(source).endswith(f": {source.text}")
    assert os.path.join("tests", "test_errors.py") in str(source)


def test_user_source_skips_fnx():
    frames = {}
    exec(_as_fnx("def inside(): return user_source()"), vars(errors) | frames, frames)
    source = frames["inside"]()
    assert source is not None and source.file == __file__


# ---------------------------------------------------------------- tracebacks


def _as_fnx(text: str):
    """Code that claims to stand in a file of fnx."""
    file = os.path.join(os.path.dirname(errors.__file__), "made.py")
    return compile(text, file, "exec")


INSIDE = """
def fail(error):
    raise error
def call(function):
    return function()
"""
made: dict = {}
exec(_as_fnx(INSIDE), made)


def _functions(error: Exception) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def _caught(function, *args):
    try:
        api_boundary(function)(*args)
    except Exception as error:
        return error
    raise AssertionError("no error")


def test_frames_of_fnx_are_hidden_from_user_errors():
    error = _caught(made["fail"], ArgumentError("bad"))
    assert _functions(error) == ["_caught"]


def test_the_user_s_own_frames_stay():
    def loss():
        return 1 / 0

    error = _caught(made["call"], loss)
    assert _functions(error) == ["_caught", "loss"]
    assert isinstance(error, ZeroDivisionError)


@pytest.mark.parametrize(
    "error",
    [
        errors.InternalError("broken"),
        errors.MissingRule("p", "jvp", "f"),
        KeyError("k"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_faults_of_fnx_keep_their_frames(error):
    assert _functions(_caught(made["fail"], error)) == ["_caught", "boundary", "fail"]


def test_debug_shows_every_frame():
    with config.override(debug=1):
        error = _caught(made["fail"], ArgumentError("bad"))
    assert _functions(error) == ["_caught", "boundary", "fail"]


def test_api_boundary_keeps_name_and_result():
    @api_boundary
    def double(x: int) -> int:
        """Twice x."""
        return 2 * x

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice x.")


# ---------------------------------------------------------------- options


def test_option_defaults():
    fresh = Config(environment={})
    assert (fresh.strong_zero, fresh.debug, fresh.check) == (True, 0, False)
    assert {name: getattr(fresh, name) for name in OPTIONS} == {
        name: option.default for name, option in OPTIONS.items()
    }
    assert "strong_zero=True" in repr(fresh)


def test_options_from_the_environment():
    fresh = Config(environment={"FNX_DEBUG": "3", "FNX_CHECK": "1"})
    assert (fresh.debug, fresh.check) == (3, True)
    errors.hide_frames(True)  # the level that `fresh` set concerns the whole process
    wrong = [("FNX_DEBUG", "high"), ("FNX_CHECK", ""), ("FNX_DEBUG", "9")]
    for variable, value in wrong:
        with pytest.raises(OptionError, match="takes"):
            Config(environment={variable: value})


def test_the_checker_is_on_in_tests():
    assert config.check


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("strong_zero", 1, ArgumentError, r"takes bool .*, got 1 of type int"),
        ("debug", True, ArgumentError, "debug takes int"),
        ("debug", 7, OptionError, r"debug takes 0 to 6 .*, got 7"),
        ("check", None, ArgumentError, "check takes bool"),
        ("strongzero", True, OptionError, "no option 'strongzero'; it has strong_"),
    ],
)
def test_options_are_validated(name, value, error, text):
    with pytest.raises(error, match=text):
        setattr(config, name, value)
    with pytest.raises(error, match=text), config.override(**{name: value}):
        pass


def test_options_cannot_be_deleted_and_unknown_ones_not_read():
    with pytest.raises(OptionError, match="cannot be deleted"):
        del config.debug
    with pytest.raises(AttributeError):
        _ = config.nonsense


def test_override_restores_after_errors_also_of_its_own():
    with pytest.raises(KeyError), config.override(strong_zero=False):
        assert not config.strong_zero
        raise KeyError
    with pytest.raises(OptionError), config.override(strong_zero=False, debug=99):
        pass
    assert config.strong_zero and config.debug == 0


def test_options_are_those_of_all_threads():
    seen = []
    with config.override(strong_zero=False):
        thread = threading.Thread(target=lambda: seen.append(config.strong_zero))
        thread.start()
        thread.join()
    assert seen == [False]


def test_debug_variable_reaches_a_new_process():
    code = "from fnx.config import config; print(config.debug)"
    environment = {**os.environ, "FNX_DEBUG": "2"}
    run = [sys.executable, "-c", code]
    assert subprocess.check_output(run, env=environment, text=True).strip() == "2"
